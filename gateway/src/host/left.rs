//! What an earlier daemon has left closed for an interface whose server says what that is. The configuration does not have it, so the
//! kernel keeps it: it stays closed until a server says it again.
//!
//! ```text
//! push reply ──> routes and rules of the interface, and a note of its routes in the main table
//! daemon killed, or ended ──> those that lead nowhere stay
//! next start ──> adopt ──> wanted
//! ```

use super::netlink::{MAIN_TABLE, Netlink, NetlinkError, Route, Rule, Way};
use super::restore::Wanted;
use super::wants::{LeftIn, Wants};
use std::collections::BTreeSet;

/// Adds what is left to what is wanted.
pub(super) fn adopt(wanted: &mut Wanted) -> Result<(), NetlinkError> {
    if wanted.values().all(|wants| wants.left_in.is_none()) {
        return Ok(());
    }
    let mut netlink = Netlink::open().map_err(|error| NetlinkError::new("rtnetlink", &error))?;
    let (routes, rules) = (netlink.routes()?, netlink.rules()?);
    for wants in wanted.values_mut() {
        if let Some(tables) = wants.left_in {
            *wants = wants.and(&closed(tables, &routes, &rules));
        }
    }
    Ok(())
}

/// What is closed for the interface of these tables by these routes and rules.
fn closed(tables: LeftIn, routes: &[Route], rules: &[Rule]) -> Wants {
    let mut wants = Wants::default();
    for &Route { prefix, table, way } in routes {
        match way {
            Way::Nowhere if table == tables.table => _ = wants.closed.insert((prefix, table)),
            Way::Onward if table == tables.table => _ = wants.onward.insert((prefix, table)),
            Way::Nowhere if table == tables.note => {
                wants.closed.extend([(prefix, table), (prefix, MAIN_TABLE)]);
            }
            _ => {}
        }
    }
    let marks: BTreeSet<u32> = rules.iter().filter_map(|rule| mark_of(tables, rule)).collect();
    let is_own = |rule: &&Rule| match rule {
        Rule::MainBefore { mark, .. } => marks.contains(mark),
        other => mark_of(tables, other).is_some(),
    };
    wants.rules.extend(rules.iter().filter(is_own));
    wants
}

/// The mark of a rule that leads to the table of the interface.
fn mark_of(tables: LeftIn, rule: &Rule) -> Option<u32> {
    match rule {
        Rule::NotMarked { mark, table, .. } if *table == tables.table => Some(*mark),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::IpNet;

    fn net(text: &str) -> IpNet {
        text.parse().expect("literal")
    }

    fn nowhere(prefix: &str, table: u32) -> Route {
        Route { prefix: net(prefix), table, way: Way::Nowhere }
    }

    #[test]
    fn what_is_left_is_told_from_what_others_have() {
        let onward = Route { prefix: net("192.0.2.1/32"), table: 77, way: Way::Onward };
        let routes = [
            nowhere("0.0.0.0/0", 77),
            onward,
            nowhere("10.1.0.0/16", 88),
            nowhere("10.1.0.0/16", MAIN_TABLE),
            nowhere("10.2.0.0/16", MAIN_TABLE),
            nowhere("0.0.0.0/0", 99),
        ];
        let own =
            [Rule::NotMarked { v6: false, mark: 5, table: 77 }, Rule::MainBefore { v6: false, mark: 5 }];
        let other =
            [Rule::NotMarked { v6: false, mark: 6, table: 99 }, Rule::MainBefore { v6: false, mark: 6 }];
        let found = closed(LeftIn { table: 77, note: 88 }, &routes, &[own, other].concat());
        let closed = [("0.0.0.0/0", 77), ("10.1.0.0/16", 88), ("10.1.0.0/16", MAIN_TABLE)];
        assert_eq!(found.closed, closed.map(|(prefix, table)| (net(prefix), table)).into());
        assert_eq!(found.onward, [(net("192.0.2.1/32"), 77)].into());
        assert_eq!(found.rules, own.into());
    }
}
