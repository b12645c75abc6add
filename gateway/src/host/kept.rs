//! What stays closed when a part of a configuration was refused: what was protected before and is to be protected still, and that
//! no tunnel has any more.
//!
//! ```text
//! before             wg0 has 10.1.0.0/16
//! configuration      wg1 has 10.1.0.0/16, and is refused
//! afterwards         nothing has it: it is closed, not open
//! ```

use super::restore::Wanted;
use super::wants::Wants;
use ipnet::IpNet;
use std::collections::BTreeSet;

/// What of `held` a configuration with these wants still protects, and nothing that is wanted now does.
pub(super) fn left(held: &Wanted, configured: &Wanted, now: &Wanted) -> Wanted {
    let present = prefixes(now);
    let missing: BTreeSet<IpNet> = prefixes(configured).difference(&present).copied().collect();
    let before = prefixes(held);
    // The narrower of the two: the rest of a wider one is for no tunnel any more, or was not closed before.
    let narrowed = |prefix: IpNet| missing.contains(&prefix) && before.iter().any(|it| it.contains(&prefix));
    let widened = |prefix: IpNet| !present.contains(&prefix) && missing.iter().any(|it| it.contains(&prefix));
    let mut left = of(configured, narrowed);
    for (name, wants) in of(held, widened) {
        let both = left.get(&name).map_or_else(|| wants.clone(), |it| it.and(&wants));
        left.insert(name, both);
    }
    left
}

/// Says what stays closed: packets to it are refused though no tunnel shows it.
pub(super) fn log(kept: &Wanted) {
    let prefixes: Vec<String> = prefixes(kept).iter().map(ToString::to_string).collect();
    if !prefixes.is_empty() {
        tracing::warn!("{}: blocked, as the tunnel for it was refused", prefixes.join(", "));
    }
}

fn of(wanted: &Wanted, is_meant: impl Fn(IpNet) -> bool) -> Wanted {
    let of_each = wanted.iter().map(|(name, wants)| (name.clone(), wants.closing(&is_meant)));
    of_each.filter(|(_, wants)| wants.prefixes().next().is_some()).collect()
}

fn prefixes(wanted: &Wanted) -> BTreeSet<IpNet> {
    wanted.values().flat_map(Wants::prefixes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::netlink::{MAIN_TABLE, Rule};

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    fn wanted(interfaces: &[(&str, &[&str])]) -> Wanted {
        let of_one = |prefixes: &[&str]| {
            let closed = prefixes.iter().map(|prefix| (net(prefix), MAIN_TABLE)).collect();
            Wants { closed, ..Wants::default() }
        };
        interfaces.iter().map(|(name, prefixes)| ((*name).to_owned(), of_one(prefixes))).collect()
    }

    /// What stays closed when `wg1` is refused.
    fn left_of(before: &Wanted, configured: &[&str]) -> Vec<String> {
        let configured = wanted(&[("wg1", configured)]);
        prefixes(&left(before, &configured, &wanted(&[]))).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_moves_to_something_refused_stays_closed() {
        let before = wanted(&[("wg0", &["10.1.0.0/16", "10.2.0.0/16"])]);
        assert_eq!(left_of(&before, &["10.1.0.0/16", "10.3.0.0/16"]), ["10.1.0.0/16"]);
        assert_eq!(left_of(&before, &["10.1.7.0/24"]), ["10.1.7.0/24"], "a part of it");
        assert_eq!(left_of(&before, &["10.0.0.0/8"]), ["10.1.0.0/16", "10.2.0.0/16"], "within another");
    }

    #[test]
    fn what_another_tunnel_has_is_its_own() {
        let before = wanted(&[("wg0", &["10.1.0.0/16"])]);
        let now = wanted(&[("wg2", &["10.1.0.0/16"])]);
        assert!(left(&before, &now, &now).is_empty());
    }

    #[test]
    fn rules_stay_with_a_tunnel_for_everything_only() {
        let mut before = wanted(&[("wg0", &["10.1.0.0/16"])]);
        let wants = before.get_mut("wg0").expect("it is there");
        wants.closed.insert((net("0.0.0.0/0"), 77));
        let rule = Rule::NotMarked { v6: false, mark: 77, table: 77 };
        wants.rules.insert(rule);
        let rules = |configured: &[&str]| {
            let left = left(&before, &wanted(&[("wg1", configured)]), &wanted(&[]));
            left.values().flat_map(|wants| wants.rules.clone()).collect::<Vec<_>>()
        };
        assert_eq!(rules(&["10.1.0.0/16"]), []);
        assert_eq!(rules(&["0.0.0.0/0"]), [rule]);
    }
}
