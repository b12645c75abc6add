//! No common packets: which lines make a tunnel what the peer has for it.

use super::Explained;
use crate::ipsec::connections::Names;
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use std::collections::BTreeSet;
use std::net::IpAddr;
use tunnel::esp::TrafficSelector;

/// Lines of configuration for one range of addresses.
const MOST_PREFIXES: usize = 8;

pub(super) fn no_selectors(
    set: &str,
    ours: &[Vec<TrafficSelector>; 2],
    theirs: &[Vec<TrafficSelector>; 2],
) -> Explained {
    let [local, remote] = theirs;
    let is_said = !local.is_empty() || !remote.is_empty();
    let theirs = if is_said {
        format!("the peer: local {}, remote {}", list(remote), list(local))
    } else {
        "the peer does not say".to_owned()
    };
    let fix = if is_said {
        let mut lines = traffic(set, "local", local);
        lines.extend(traffic(set, "remote", remote));
        let mut said = BTreeSet::new();
        lines.retain(|line| said.insert(line.clone()));
        lines
    } else {
        vec![format!("{set} local prefix and remote prefix: what is local here is remote there")]
    };
    (
        "traffic selectors do not overlap".to_owned(),
        vec![format!("here: local {}, remote {}", list(&ours[0]), list(&ours[1])), theirs],
        fix,
    )
}

/// Selectors on one line.
fn list(selectors: &[TrafficSelector]) -> String {
    if selectors.is_empty() {
        return "the gateway's own address".to_owned();
    }
    selectors.iter().map(TrafficSelector::to_string).collect::<Vec<_>>().join(", ")
}

/// The lines that make one side of a tunnel what the peer has for it.
fn traffic(set: &str, side: &str, wanted: &[TrafficSelector]) -> Vec<String> {
    let mut lines = Vec::new();
    for selector in wanted {
        lines.extend(prefixes(selector).iter().map(|prefix| format!("{set} {side} prefix {prefix}")));
        if selector.protocol != 0 {
            lines.push(format!("{set} protocol {}", selector.protocol));
        }
        // A range of ports has no words.
        if selector.ports.start() == selector.ports.end() {
            lines.push(format!("{set} {side} port {}", selector.ports.start()));
        }
    }
    lines
}

/// The prefixes that make up a range of addresses; an unaligned range has hundreds.
fn prefixes(selector: &TrafficSelector) -> Vec<IpNet> {
    let subnets: IpSubnets = match (selector.addresses.start(), selector.addresses.end()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4Subnets::new(*first, *last, 0).into(),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6Subnets::new(*first, *last, 0).into(),
        _ => return Vec::new(),
    };
    subnets.take(MOST_PREFIXES).collect()
}

/// The packets that a peer wants are those of another one.
pub(super) fn contested(tunnel: &str, packets: &[TrafficSelector], owner: &str) -> Explained {
    (
        format!("packets to {} are those of {owner}, which is connected", list(packets)),
        vec![],
        vec![
            format!("{tunnel} remote prefix PREFIX, one that no other peer has"),
            "behind one NAT, also local prefix, and mode tunnel for its esp-group".to_owned(),
            format!(
                "if {owner} is gone: wait; it is being asked, its connection ends if it does not answer, and the next attempt succeeds"
            ),
        ],
    )
}

pub(super) fn mode(names: &Names) -> Explained {
    let groups = names.esp_groups.iter().map(|(_, group)| group);
    let fix = groups.map(|group| {
        format!("set vpn ipsec esp-group {} mode tunnel|transport, the same on both sides", group.name)
    });
    let mut fix: Vec<String> = fix.collect();
    fix.dedup();
    ("one side wants tunnel mode, the other transport mode".to_owned(), vec![], fix)
}

/// The words before what a tunnel is for, with its number if there is only one.
pub(super) fn tunnel(names: &Names, set: &str) -> String {
    let mut numbers = names.esp_groups.iter().map(|(name, _)| name.rsplit('-').next().unwrap_or("N"));
    match (numbers.next(), numbers.next()) {
        (Some(only), None) => format!("{set} tunnel {only}"),
        _ => format!("{set} tunnel N"),
    }
}
