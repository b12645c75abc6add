//! Traffic selectors: which packets a policy or an SA is for (RFC 4301 section 4.4.1.1, RFC 7296 section 3.13).

use packet::header::flow::Flow;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// One side of the packets that are meant: their source or their destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrafficSelector {
    /// The IP protocol; 0 for any.
    pub protocol: u8,
    /// Ports of TCP, UDP and SCTP; of ICMP the type in the high and the code in the low byte.
    ///
    /// All of them is ANY; 65535 to 0 is OPAQUE: only packets whose ports cannot be seen.
    pub ports: RangeInclusive<u16>,
    /// Addresses, both of one family.
    pub addresses: RangeInclusive<IpAddr>,
}

impl TrafficSelector {
    /// Whether this side of a packet is meant.
    #[inline]
    fn matches(&self, address: IpAddr, protocol: u8, port: Option<u16>) -> bool {
        (self.protocol == 0 || self.protocol == protocol) && self.has_port(port) && self.has_address(address)
    }

    #[inline]
    fn has_address(&self, address: IpAddr) -> bool {
        // All of IPv4 is ordered before all of IPv6.
        self.addresses.contains(&address)
    }

    /// RFC 4301 section 7: ports that cannot be seen are only in ANY and OPAQUE.
    #[inline]
    fn has_port(&self, port: Option<u16>) -> bool {
        let (first, last) = (*self.ports.start(), *self.ports.end());
        match port {
            _ if (first, last) == (0, u16::MAX) => true,
            Some(port) => (first..=last).contains(&port),
            None => (first, last) == (u16::MAX, 0),
        }
    }
}

/// Both sides of the packets that are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// What is on our side: one of these.
    pub local: Vec<TrafficSelector>,
    /// What is on the other side: one of these.
    pub remote: Vec<TrafficSelector>,
}

impl Selectors {
    /// Whether a packet to the other side is meant.
    pub fn match_outbound(&self, flow: &Flow) -> bool {
        let (source, destination) = flow.ports.unzip();
        any(&self.local, flow.source, flow.protocol, source)
            && any(&self.remote, flow.destination, flow.protocol, destination)
    }

    /// Whether a packet from the other side is meant.
    pub fn match_inbound(&self, flow: &Flow) -> bool {
        let (source, destination) = flow.ports.unzip();
        any(&self.remote, flow.source, flow.protocol, source)
            && any(&self.local, flow.destination, flow.protocol, destination)
    }
}

#[inline]
fn any(selectors: &[TrafficSelector], address: IpAddr, protocol: u8, port: Option<u16>) -> bool {
    selectors.iter().any(|selector| selector.matches(address, protocol, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::header::ip::{ICMP, TCP, UDP};

    fn flow(source: &str, destination: &str, protocol: u8, ports: Option<(u16, u16)>) -> Flow {
        let address = |text: &str| text.parse().expect("literal");
        Flow { source: address(source), destination: address(destination), protocol, ports }
    }

    fn side(protocol: u8, ports: RangeInclusive<u16>, first: &str, last: &str) -> Vec<TrafficSelector> {
        let addresses = first.parse().expect("literal")..=last.parse().expect("literal");
        vec![TrafficSelector { protocol, ports, addresses }]
    }

    #[test]
    fn both_sides_must_match_and_inbound_they_are_exchanged() {
        let selectors = Selectors {
            local: side(0, 0..=u16::MAX, "10.1.0.0", "10.1.0.255"),
            remote: side(TCP, 80..=90, "10.2.0.5", "10.2.0.7"),
        };
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
            let selectors = Selectors {
                local: side(0, 0..=u16::MAX, "0.0.0.0", "255.255.255.255"),
                remote: side(UDP, ports, "0.0.0.0", "255.255.255.255"),
            };
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
        let selectors = Selectors { local: all_v4.clone(), remote: all_v4 };
        assert!(!selectors.match_outbound(&flow("fd00::1", "fd00::2", TCP, None)));
        assert!(!selectors.match_outbound(&flow("::ffff:10.0.0.1", "::ffff:10.0.0.2", TCP, None)));
    }

    #[test]
    fn icmp_is_chosen_by_type_and_code() {
        let selectors = Selectors {
            local: side(0, 0..=u16::MAX, "0.0.0.0", "255.255.255.255"),
            remote: side(ICMP, 0x0800..=0x08ff, "0.0.0.0", "255.255.255.255"),
        };
        let echo = |both| selectors.match_outbound(&flow("10.0.0.1", "10.0.0.2", ICMP, Some((both, both))));
        assert!(echo(0x0800) && !echo(0x0000));
    }
}
