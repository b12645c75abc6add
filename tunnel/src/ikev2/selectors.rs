//! Narrowing of traffic selectors (RFC 7296 section 2.9).

use super::limits::SELECTORS;
use crate::esp::TrafficSelector;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The maximum number of selectors in a payload.
pub const MOST: usize = u8::MAX as usize;

/// The intersection of both lists, in the order of `ours`; empty if they do not overlap.
/// The result has at most as many selectors as `ours`, or [`SELECTORS`] if that is more: a peer must not split a
/// network into many selectors, which are all compared with those of others. The rest is left out, as narrowing may
/// leave out anything.
pub fn narrow(ours: &[TrafficSelector], theirs: &[TrafficSelector]) -> Vec<TrafficSelector> {
    let mut narrowed: Vec<TrafficSelector> = Vec::new();
    let most = ours.len().clamp(SELECTORS, MOST);
    let common = ours.iter().flat_map(|ours| theirs.iter().filter_map(|theirs| intersect(ours, theirs)));
    for selector in common {
        // A selector within another one is redundant: peers often repeat the addresses of the packet.
        if narrowed.iter().any(|other| contains(other, &selector)) {
            continue;
        }
        narrowed.retain(|other| !contains(&selector, other));
        if narrowed.len() < most {
            narrowed.push(selector);
        }
    }
    narrowed
}

/// Whether an answer is within the offer: each of its selectors is within one of `ours`.
pub fn is_within(answer: &[TrafficSelector], ours: &[TrafficSelector]) -> bool {
    !answer.is_empty() && answer.iter().all(|answer| ours.iter().any(|ours| contains(ours, answer)))
}

/// The selector of all packets of an address.
pub fn host(address: IpAddr) -> TrafficSelector {
    TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses: address..=address }
}

/// The address, if all selectors are of the same one.
pub fn one_host(selectors: &[TrafficSelector]) -> Option<IpAddr> {
    let first = *selectors.first()?.addresses.start();
    selectors.iter().all(|selector| selector.addresses == (first..=first)).then_some(first)
}

/// Whether two selectors overlap.
pub(super) fn meets(one: &TrafficSelector, other: &TrafficSelector) -> bool {
    intersect(one, other).is_some()
}

fn intersect(one: &TrafficSelector, other: &TrafficSelector) -> Option<TrafficSelector> {
    let protocol = match (one.protocol, other.protocol) {
        (0, protocol) | (protocol, 0) => protocol,
        (one, other) if one == other => one,
        _ => return None,
    };
    // IPv4 sorts before IPv6, so ranges of different families would seem to overlap.
    if one.addresses.start().is_ipv4() != other.addresses.start().is_ipv4() {
        return None;
    }
    let ports = overlap(&one.ports, &other.ports)?;
    let addresses = overlap(&one.addresses, &other.addresses)?;
    Some(TrafficSelector { protocol, ports, addresses })
}

fn overlap<T: Copy + Ord>(one: &RangeInclusive<T>, other: &RangeInclusive<T>) -> Option<RangeInclusive<T>> {
    let both = *one.start().max(other.start())..=*one.end().min(other.end());
    (!both.is_empty()).then_some(both)
}

pub(super) fn contains(outer: &TrafficSelector, inner: &TrafficSelector) -> bool {
    intersect(outer, inner).as_ref() == Some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice::from_ref;

    fn ts(from: &str, to: &str, protocol: u8, ports: RangeInclusive<u16>) -> TrafficSelector {
        let addresses = from.parse().expect("literal")..=to.parse().expect("literal");
        TrafficSelector { protocol, ports, addresses }
    }

    fn net(from: &str, to: &str) -> TrafficSelector {
        ts(from, to, 0, 0..=65535)
    }

    #[test]
    fn the_common_part_is_chosen() {
        let ours = [net("10.0.1.0", "10.0.1.255"), net("10.0.9.0", "10.0.9.255")];
        let theirs = [net("10.0.0.0", "10.0.1.127")];
        assert_eq!(narrow(&ours, &theirs), [net("10.0.1.0", "10.0.1.127")]);
        assert_eq!(narrow(&theirs, &ours), [net("10.0.1.0", "10.0.1.127")]);
        assert_eq!(narrow(&ours, &ours), ours);
        assert!(narrow(&ours, &[net("192.0.2.0", "192.0.2.1")]).is_empty());
        assert!(narrow(&ours, &[]).is_empty());
    }

    #[test]
    fn protocols_and_ports_are_narrowed_too() {
        let all = net("10.0.0.0", "10.0.0.255");
        let web = ts("10.0.0.0", "10.0.0.255", 6, 80..=443);
        assert_eq!(narrow(from_ref(&all), from_ref(&web)), from_ref(&web));
        let high = ts("10.0.0.7", "10.0.0.9", 6, 400..=65535);
        assert_eq!(narrow(from_ref(&web), &[high]), [ts("10.0.0.7", "10.0.0.9", 6, 400..=443)]);
        assert!(narrow(&[web], &[ts("10.0.0.0", "10.0.0.255", 17, 0..=65535)]).is_empty());
    }

    #[test]
    fn more_than_a_payload_holds_is_left_out() {
        let ours: Vec<TrafficSelector> = hosts(1).chain(hosts(2)).collect();
        assert_eq!(narrow(&ours, &[net("10.0.0.0", "10.0.0.255")]).len(), MOST);
    }

    fn hosts(port: u16) -> impl Iterator<Item = TrafficSelector> {
        (0..=255u8).map(move |host| ts(&format!("10.0.0.{host}"), &format!("10.0.0.{host}"), 6, port..=port))
    }

    #[test]
    fn a_peer_cuts_what_is_configured_into_few_parts() {
        let all = net("10.0.0.0", "10.0.0.255");
        let mut theirs: Vec<TrafficSelector> = hosts(1).collect();
        assert_eq!(narrow(from_ref(&all), &theirs), theirs[..SELECTORS]);
        // A selector that covers many others comes last.
        theirs.push(all.clone());
        assert_eq!(narrow(from_ref(&all), &theirs), from_ref(&all));
        let ours: Vec<TrafficSelector> = hosts(1).take(100).collect();
        assert_eq!(narrow(&ours, from_ref(&all)), ours, "as many as are configured");
    }

    #[test]
    fn families_do_not_mix() {
        let (all4, all6) = (net("0.0.0.0", "255.255.255.255"), net("::", "ffff::"));
        assert!(narrow(from_ref(&all4), from_ref(&all6)).is_empty());
        assert_eq!(narrow(&[all4.clone(), all6.clone()], from_ref(&all6)), [all6]);
    }

    #[test]
    fn one_address_with_several_ports_is_one_host() {
        let (web, mail) = (ts("10.0.0.1", "10.0.0.1", 6, 80..=80), ts("10.0.0.1", "10.0.0.1", 6, 25..=25));
        assert_eq!(one_host(&[web.clone(), mail]), Some([10, 0, 0, 1].into()));
        assert_eq!(one_host(&[web, net("10.0.0.2", "10.0.0.2")]), None);
        assert_eq!(one_host(&[net("10.0.0.0", "10.0.0.1")]), None);
        assert_eq!(one_host(&[]), None);
    }

    #[test]
    fn the_packet_that_made_the_peer_ask_adds_nothing() {
        let net = net("10.0.0.0", "10.0.0.255");
        let packet = ts("10.0.0.5", "10.0.0.5", 6, 1234..=1234);
        assert_eq!(narrow(from_ref(&net), &[packet, net.clone()]), [net]);
    }

    #[test]
    fn an_answer_stays_within_the_offer() {
        let ours = [net("10.0.0.0", "10.0.0.255"), net("10.0.2.0", "10.0.2.255")];
        assert!(is_within(&ours, &ours));
        assert!(is_within(&[net("10.0.0.5", "10.0.0.9")], &ours));
        assert!(!is_within(&[net("10.0.0.5", "10.0.1.9")], &ours));
        assert!(!is_within(&[net("10.0.0.0", "10.0.2.255")], &ours), "it spans both");
        assert!(!is_within(&[], &ours));
    }
}
