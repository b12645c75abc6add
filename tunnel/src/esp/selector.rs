//! Traffic selectors: the packets of a policy or an SA (RFC 4301 section 4.4.1.1, RFC 7296 section 3.13).

use ipnet::IpNet;
use packet::header::flow::{Flow, number};
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// A selector of the source or the destination of packets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrafficSelector {
    /// The IP protocol; 0 for any.
    pub protocol: u8,
    /// Ports of TCP, UDP and SCTP; of ICMP the type in the high and the code in the low byte.
    ///
    /// 0 to 65535 is ANY; 65535 to 0 is OPAQUE, which only matches packets whose ports are not visible.
    pub ports: RangeInclusive<u16>,
    /// An address range of one family.
    pub addresses: RangeInclusive<IpAddr>,
}

/// A prefix or a range, with protocol and ports where there are any: `10.0.0.0/24[6/443]`.
impl fmt::Display for TrafficSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (*self.addresses.start(), *self.addresses.end());
        let prefix = (0..=if first.is_ipv4() { 32 } else { 128 })
            .filter_map(|length| IpNet::new(first, length).ok())
            .find(|net| net.network() == first && net.broadcast() == last);
        match prefix {
            Some(prefix) => write!(f, "{prefix}")?,
            None => write!(f, "{first}-{last}")?,
        }
        let ports = match (*self.ports.start(), *self.ports.end()) {
            (0, u16::MAX) if self.protocol == 0 => return Ok(()),
            (0, u16::MAX) => String::new(),
            (low, high) if low == high => low.to_string(),
            (low, high) => format!("{low}-{high}"),
        };
        write!(f, "[{}/{ports}]", self.protocol)
    }
}

/// A [`TrafficSelector`] prepared for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) is_v4: bool,
    protocol: u8,
    ports: Ports,
    pub(super) first: u128,
    pub(super) last: u128,
}

/// RFC 4301 section 7: only ANY and OPAQUE match packets whose ports are not visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    Any,
    Opaque,
    From(u16, u16),
}

impl Side {
    /// `None` if no packet can match.
    fn of(selector: &TrafficSelector) -> Option<Self> {
        let (first, last) = (*selector.addresses.start(), *selector.addresses.end());
        let ports = match (*selector.ports.start(), *selector.ports.end()) {
            (0, u16::MAX) => Ports::Any,
            (u16::MAX, 0) => Ports::Opaque,
            (first, last) => Ports::From(first, last),
        };
        let (is_v4, protocol) = (first.is_ipv4(), selector.protocol);
        let possible = is_v4 == last.is_ipv4() && first <= last;
        possible.then(|| Self { is_v4, protocol, ports, first: number(first), last: number(last) })
    }

    /// Whether this side of a packet matches.
    #[inline]
    fn matches(&self, is_v4: bool, address: u128, protocol: u8, port: Option<u16>) -> bool {
        self.is_v4 == is_v4
            && (self.first..=self.last).contains(&address)
            && (self.protocol == 0 || self.protocol == protocol)
            && match self.ports {
                Ports::Any => true,
                Ports::Opaque => port.is_none(),
                Ports::From(first, last) => port.is_some_and(|port| (first..=last).contains(&port)),
            }
    }
}

/// The selectors of both sides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    local: Box<[Side]>,
    pub(super) remote: Box<[Side]>,
}

impl Selectors {
    /// Creates selectors that match packets between any of the `local` and any of the `remote` ones.
    pub fn new(local: &[TrafficSelector], remote: &[TrafficSelector]) -> Self {
        let sides = |selectors: &[TrafficSelector]| selectors.iter().filter_map(Side::of).collect();
        Self { local: sides(local), remote: sides(remote) }
    }

    /// Whether an outbound packet matches.
    #[inline]
    pub fn match_outbound(&self, flow: &Flow) -> bool {
        between(&self.local, &self.remote, flow)
    }

    /// Whether an inbound packet matches.
    #[inline]
    pub fn match_inbound(&self, flow: &Flow) -> bool {
        between(&self.remote, &self.local, flow)
    }
}

#[inline]
fn between(from: &[Side], to: &[Side], flow: &Flow) -> bool {
    let (source, destination) = flow.ports.unzip();
    from.iter().any(|side| side.matches(flow.is_v4, flow.source, flow.protocol, source))
        && to.iter().any(|side| side.matches(flow.is_v4, flow.destination, flow.protocol, destination))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::header::ip::{ICMP, TCP, UDP};

    fn flow(source: &str, destination: &str, protocol: u8, ports: Option<(u16, u16)>) -> Flow {
        let address = |text: &str| text.parse::<IpAddr>().expect("literal");
        let (source, destination) = (address(source), address(destination));
        let is_v4 = source.is_ipv4();
        Flow { is_v4, protocol, ports, source: number(source), destination: number(destination) }
    }

    fn side(protocol: u8, ports: RangeInclusive<u16>, first: &str, last: &str) -> Vec<TrafficSelector> {
        let addresses = first.parse().expect("literal")..=last.parse().expect("literal");
        vec![TrafficSelector { protocol, ports, addresses }]
    }

    #[test]
    fn a_selector_is_written_as_a_prefix_where_it_is_one() {
        let text = |selectors: Vec<TrafficSelector>| selectors[0].to_string();
        assert_eq!(text(side(0, 0..=u16::MAX, "10.1.0.0", "10.1.0.255")), "10.1.0.0/24");
        assert_eq!(text(side(0, 0..=u16::MAX, "fd00::1", "fd00::1")), "fd00::1/128");
        assert_eq!(text(side(TCP, 80..=90, "10.2.0.5", "10.2.0.7")), "10.2.0.5-10.2.0.7[6/80-90]");
        assert_eq!(text(side(UDP, 0..=u16::MAX, "10.2.0.0", "10.2.0.1")), "10.2.0.0/31[17/]");
        assert_eq!(text(side(0, 53..=53, "0.0.0.0", "255.255.255.255")), "0.0.0.0/0[0/53]");
    }

    #[test]
    fn both_sides_must_match_and_inbound_they_are_exchanged() {
        let selectors = Selectors::new(
            &side(0, 0..=u16::MAX, "10.1.0.0", "10.1.0.255"),
            &side(TCP, 80..=90, "10.2.0.5", "10.2.0.7"),
        );
        let out = |source, destination, protocol, port| {
            selectors.match_outbound(&flow(source, destination, protocol, Some((9, port))))
        };
        assert!(out("10.1.0.1", "10.2.0.5", TCP, 80) && out("10.1.0.255", "10.2.0.7", TCP, 90));
        assert!(!out("10.1.1.0", "10.2.0.5", TCP, 80), "another source");
        assert!(!out("10.1.0.1", "10.2.0.8", TCP, 80), "another destination");
        assert!(!out("10.1.0.1", "10.2.0.5", UDP, 80), "another protocol");
        assert!(!out("10.1.0.1", "10.2.0.5", TCP, 91), "another port");
        assert!(selectors.match_inbound(&flow("10.2.0.5", "10.1.0.1", TCP, Some((85, 9)))));
        assert!(!selectors.match_inbound(&flow("10.1.0.1", "10.2.0.5", TCP, Some((9, 85)))));
    }

    #[test]
    fn ports_that_cannot_be_seen_are_only_in_any_and_opaque() {
        let matches = |ports: RangeInclusive<u16>, port: Option<u16>| {
            let selectors = Selectors::new(
                &side(0, 0..=u16::MAX, "0.0.0.0", "255.255.255.255"),
                &side(UDP, ports, "0.0.0.0", "255.255.255.255"),
            );
            let ports = port.map(|port| (1, port));
            selectors.match_outbound(&flow("10.0.0.1", "10.0.0.2", UDP, ports))
        };
        #[expect(clippy::reversed_empty_ranges, reason = "this is how OPAQUE is written")]
        let opaque = 65535..=0;
        assert!(matches(0..=u16::MAX, None) && matches(opaque.clone(), None) && !matches(53..=53, None));
        assert!(!matches(1..=u16::MAX, None), "not all ports");
        assert!(matches(53..=53, Some(53)) && !matches(opaque, Some(53)));
    }

    #[test]
    fn families_do_not_mix() {
        let all_v4 = side(0, 0..=u16::MAX, "0.0.0.0", "255.255.255.255");
        let selectors = Selectors::new(&all_v4, &all_v4);
        assert!(!selectors.match_outbound(&flow("fd00::1", "fd00::2", TCP, None)));
        assert!(!selectors.match_outbound(&flow("::ffff:10.0.0.1", "::ffff:10.0.0.2", TCP, None)));
    }

    #[test]
    fn icmp_is_chosen_by_type_and_code() {
        let selectors = Selectors::new(
            &side(0, 0..=u16::MAX, "0.0.0.0", "255.255.255.255"),
            &side(ICMP, 0x0800..=0x08ff, "0.0.0.0", "255.255.255.255"),
        );
        let echo = |both| selectors.match_outbound(&flow("10.0.0.1", "10.0.0.2", ICMP, Some((both, both))));
        assert!(echo(0x0800) && !echo(0x0000));
    }
}
