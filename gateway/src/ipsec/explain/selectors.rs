//! No common packets: which lines make a tunnel what the peer has for it.

use super::Explained;
use crate::ipsec::connections::Names;
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use std::collections::BTreeSet;
use std::net::IpAddr;
use tunnel::esp::TrafficSelector;
use tunnel::ikev2::Path;
use tunnel::ikev2::selectors::narrow;

/// Lines of configuration for one range of addresses.
const MOST_PREFIXES: usize = 8;

pub(super) fn no_selectors(
    set: &str,
    path: Path,
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
        lines_that_differ(set, path, ours, [local, remote])
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

/// The lines of this gateway that make a tunnel what the peer has for it: those to delete, then those to set.
fn lines_that_differ(
    set: &str,
    path: Path,
    ours: &[Vec<TrafficSelector>; 2],
    theirs: [&Vec<TrafficSelector>; 2],
) -> Vec<String> {
    let of = set.trim_start_matches("set ");
    let sides = || ["local", "remote"].into_iter().zip(ours.iter().zip(theirs));
    let is_wrong = |ours: &[TrafficSelector], theirs: &[TrafficSelector]| narrow(ours, theirs).is_empty();
    let one_is_wrong = sides().any(|(_, (ours, theirs))| is_wrong(ours, theirs));
    let (mut superfluous, mut missing) = (Vec::new(), Vec::new());
    for (side, (ours, theirs)) in sides().filter(|(_, it)| !one_is_wrong || is_wrong(it.0, it.1)) {
        let [ours, theirs] = [ours, theirs].map(|selectors| traffic(side, selectors));
        // Without a prefix a tunnel is for the addresses of the gateways: there is none to delete.
        let own =
            [path.local.ip(), path.remote.ip()].map(|own| format!("{side} prefix {}", IpNet::from(own)));
        superfluous.extend(ours.iter().filter(|it| !theirs.contains(it) && !own.contains(it)).cloned());
        missing.extend(theirs.iter().filter(|it| !ours.contains(it)).cloned());
    }
    let mut said = BTreeSet::new();
    let lines = superfluous.iter().map(|words| format!("delete {of} {words}"));
    let lines = lines.chain(missing.iter().map(|words| format!("set {of} {words}")));
    let mut lines: Vec<String> = lines.filter(|line| said.insert(line.clone())).collect();
    lines.push("here; or change the tunnel of the peer, if this side is right".to_owned());
    lines
}

/// What the configuration says of one side of a tunnel.
fn traffic(side: &str, selectors: &[TrafficSelector]) -> Vec<String> {
    let mut words = Vec::new();
    for selector in selectors {
        words.extend(prefixes(selector).iter().map(|prefix| format!("{side} prefix {prefix}")));
        if selector.protocol != 0 {
            words.push(format!("protocol {}", selector.protocol));
        }
        // A range of ports has no words.
        if selector.ports.start() == selector.ports.end() {
            words.push(format!("{side} port {}", selector.ports.start()));
        }
    }
    words
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
