//! The selector fields of a packet (RFC 4301 section 4.4.1.1): addresses, protocol and ports.

use super::Malformed;
use super::ip::{ICMP, ICMPV6, IpPacket, Ipv6Header, TCP, UDP};
use std::net::IpAddr;

/// SCTP's protocol number (RFC 9260).
const SCTP: u8 = 132;
/// UDP-Lite's protocol number (RFC 3828).
const UDP_LITE: u8 = 136;
/// DCCP's protocol number (RFC 4340).
const DCCP: u8 = 33;
/// Extension headers of IPv6 (RFC 8200 section 4) that are skipped: hop-by-hop, routing, destination options.
const OPTIONS: [u8; 3] = [0, 43, 60];
/// The fragment header.
const FRAGMENT: u8 = 44;
/// The maximum number of extension headers; regular packets have fewer.
const MOST_EXTENSIONS: usize = 8;

/// The selector fields of a packet.
///
/// Addresses are numbers, so that comparisons and range lookups take few instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Whether the addresses are of IPv4.
    pub is_v4: bool,
    /// The upper-layer protocol, after IPv6 extension headers.
    pub protocol: u8,
    /// Source and destination port; of ICMP, in both places, the type in the high and the code in the low byte.
    ///
    /// `None` if the protocol has no ports, or if they are in another fragment (RFC 4301 section 7).
    pub ports: Option<(u16, u16)>,
    /// The source address.
    pub source: u128,
    /// The destination address.
    pub destination: u128,
}

impl Flow {
    /// Reads an IP packet.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        IpPacket::parse(bytes).map(|packet| Self::of(&packet))
    }

    /// The selector fields of a parsed packet.
    // Not inlined, the call would pass the flow through memory and read it back in pieces of other sizes: half of its
    // cost.
    #[inline(always)]
    pub fn of(packet: &IpPacket<'_>) -> Self {
        let (is_v4, source, destination) = match packet {
            IpPacket::V4(header, _) => {
                let number = |address| u32::from_be_bytes(address).into();
                (true, number(header.source), number(header.destination))
            }
            IpPacket::V6(header, _) => {
                (false, u128::from_be_bytes(header.source), u128::from_be_bytes(header.destination))
            }
        };
        let upper = Upper::of(packet);
        let ports = if upper.is_later_fragment { None } else { ports(upper.protocol, upper.bytes) };
        Self { is_v4, protocol: upper.protocol, ports, source, destination }
    }
}

/// An address as a number.
#[inline]
pub fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The part of a packet after the IP header and its extensions.
#[derive(Clone, Copy, Debug)]
pub struct Upper<'a> {
    /// The protocol.
    pub protocol: u8,
    /// The rest of the packet.
    pub bytes: &'a [u8],
    /// Whether the packet is a fragment.
    pub is_fragment: bool,
    /// Whether the packet is a fragment that is not the first.
    pub is_later_fragment: bool,
}

impl<'a> Upper<'a> {
    /// Finds the upper layer of a packet.
    #[inline(always)]
    pub fn of(packet: &IpPacket<'a>) -> Self {
        match packet {
            IpPacket::V4(header, bytes) => Upper {
                protocol: header.protocol,
                bytes: bytes.get(header.length()..).unwrap_or_default(),
                is_fragment: header.is_fragment(),
                is_later_fragment: header.is_later_fragment(),
            },
            IpPacket::V6(header, bytes) => {
                upper_v6(header.next_header, bytes.get(Ipv6Header::LENGTH..).unwrap_or_default())
            }
        }
    }
}

impl Upper<'_> {
    /// Whether the protocol of an IPv6 packet is that of an extension header: then the chain is malformed, longer than 8 headers, or
    /// goes on in another fragment, and nothing is known about the upper layer.
    #[inline]
    pub fn ends_in_extension(&self) -> bool {
        OPTIONS.contains(&self.protocol) || self.protocol == FRAGMENT
    }
}

/// Skips extension headers; a malformed chain is treated as a protocol that is its last header.
#[inline(never)]
fn upper_v6(first: u8, payload: &[u8]) -> Upper<'_> {
    let mut upper = Upper { protocol: first, bytes: payload, is_fragment: false, is_later_fragment: false };
    for _ in 0..MOST_EXTENSIONS {
        let length = if OPTIONS.contains(&upper.protocol) {
            upper.bytes.get(1).map_or(0, |&words| (usize::from(words) + 1) * 8)
        } else if upper.protocol == FRAGMENT {
            let &[_, _, high, low, ..] = upper.bytes else { return upper };
            upper.is_fragment = true;
            upper.is_later_fragment |= u16::from_be_bytes([high, low]) & 0xfff8 != 0;
            8
        } else {
            return upper;
        };
        let (Some(&next), Some(rest)) = (upper.bytes.first(), upper.bytes.get(length..)) else {
            return upper;
        };
        (upper.protocol, upper.bytes) = (next, rest);
        if upper.is_later_fragment {
            return upper;
        }
    }
    upper
}

#[inline]
fn ports(protocol: u8, upper: &[u8]) -> Option<(u16, u16)> {
    match protocol {
        TCP | UDP | SCTP | UDP_LITE | DCCP => {
            let &[a, b, c, d] = upper.first_chunk()?;
            Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
        }
        ICMP | ICMPV6 => {
            let both = u16::from_be_bytes(*upper.first_chunk()?);
            Some((both, both))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::ip::Ipv4Header;
    use zerocopy::IntoBytes;

    fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut header = Ipv4Header {
            fragment: fragment.into(),
            ..Ipv4Header::new(protocol, [10, 0, 0, 1], [10, 0, 0, 2], (20 + payload.len()) as u16)
        };
        header.finish();
        [header.as_bytes(), payload].concat()
    }

    fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let header = Ipv6Header::new(next_header, [1; 16], [2; 16], payload.len() as u16);
        [header.as_bytes(), payload].concat()
    }

    fn seen(packet: &[u8]) -> (u8, Option<(u16, u16)>) {
        let flow = Flow::parse(packet).expect("well-formed");
        (flow.protocol, flow.ports)
    }

    #[test]
    fn ports_are_read_for_protocols_that_have_them() {
        for protocol in [TCP, UDP, SCTP, UDP_LITE, DCCP] {
            assert_eq!(seen(&v4(protocol, 0, &[1, 2, 3, 4])), (protocol, Some((0x102, 0x304))));
            assert_eq!(seen(&v6(protocol, &[1, 2, 3, 4])), (protocol, Some((0x102, 0x304))));
        }
        assert_eq!(seen(&v4(ICMP, 0, &[8, 0])), (ICMP, Some((0x800, 0x800))));
        assert_eq!(seen(&v4(47, 0, &[1, 2, 3, 4])), (47, None), "GRE has none");
        assert_eq!(seen(&v4(TCP, 0, &[1, 2, 3])), (TCP, None), "truncated");
    }

    #[test]
    fn later_fragments_have_no_ports_and_the_first_has() {
        assert_eq!(seen(&v4(UDP, 0x2000, &[1, 2, 3, 4])), (UDP, Some((0x102, 0x304))));
        assert_eq!(seen(&v4(UDP, 0x2001, &[1, 2, 3, 4])), (UDP, None));
        assert_eq!(seen(&v6(FRAGMENT, &[UDP, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4])), (UDP, Some((0x102, 0x304))));
        assert_eq!(seen(&v6(FRAGMENT, &[UDP, 0, 0, 9, 0, 0, 0, 0, 1, 2, 3, 4])), (UDP, None));
        // After a fragment offset, bytes that look like an extension header are data.
        assert_eq!(seen(&v6(FRAGMENT, &[60, 0, 0, 9, 0, 0, 0, 0, UDP, 0, 0, 0, 0, 0, 0, 0])), (60, None));
    }

    #[test]
    fn extension_headers_are_skipped() {
        let options = [43, 0, 0, 0, 0, 0, 0, 0, 60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let packet = v6(0, &[&options[..], &[UDP, 0, 0, 0, 0, 0, 0, 0], &[0, 53, 0, 99]].concat());
        assert_eq!(seen(&packet), (UDP, Some((53, 99))));
        for cut in 40..packet.len() - 4 {
            let (protocol, ports) = seen(&v6(0, &packet[40..cut]));
            assert!(ports.is_none(), "{cut}: {protocol}");
        }
        let endless = v6(60, &[60, 0, 0, 0, 0, 0, 0, 0].repeat(100));
        assert_eq!(seen(&endless), (60, None));
    }
}
