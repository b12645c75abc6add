//! Neighbour discovery (RFC 4861): the two messages by which a station finds the hardware address of an IPv6 address.

use super::Malformed;
use super::ethernet::{self, EthernetHeader};
use super::ip::{ICMPV6, IpPacket, Ipv6Header};
use crate::checksum::Sum;
use std::net::Ipv6Addr;
use zerocopy::IntoBytes;

/// The type of a solicitation (section 4.3).
pub const SOLICITATION: u8 = 135;
/// The type of an advertisement (section 4.4).
const ADVERTISEMENT: u8 = 136;
/// No router has forwarded a message with this hop limit.
const HOP_LIMIT: u8 = 255;
/// Bytes of a message without options.
const LENGTH: usize = 24;
/// The option with the hardware address of the sender of a solicitation.
const SOURCE_LINK: u8 = 1;
/// The option with the hardware address of the target of an advertisement.
const TARGET_LINK: u8 = 2;
/// Options count their lengths in units of 8 bytes.
const UNIT: usize = 8;
/// The group of all stations of a link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It asks for the hardware address of the target.
    Solicitation,
    /// It tells it.
    Advertisement {
        /// Whether it answers a solicitation.
        is_solicited: bool,
        /// Whether it replaces what the receiver knows.
        overrides: bool,
    },
}

/// A neighbour solicitation or advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourMessage {
    /// What it is for.
    pub kind: Kind,
    /// The source of the packet; unspecified in duplicate address detection.
    pub source: Ipv6Addr,
    /// The destination of the packet.
    pub destination: Ipv6Addr,
    /// The address that is asked for, or told of.
    pub target: Ipv6Addr,
    /// The hardware address of the sender.
    pub link: Option<[u8; 6]>,
}

impl NeighbourMessage {
    /// Reads an IP packet, and makes the checks of RFC 4861 sections 7.1.1 and 7.1.2.
    pub fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let IpPacket::V6(header, packet) = IpPacket::parse(packet)? else { return Err(Malformed) };
        let message = &packet[Ipv6Header::LENGTH..];
        if header.next_header != ICMPV6 || header.hop_limit != HOP_LIMIT || message.len() < LENGTH {
            return Err(Malformed);
        }
        let (source, destination) = (Ipv6Addr::from(header.source), Ipv6Addr::from(header.destination));
        let sum = Sum::pseudo_v6(source, destination, ICMPV6, message.len()) + Sum::of(message);
        let target: [u8; 16] = message[8..LENGTH].try_into().map_err(|_| Malformed)?;
        let target = Ipv6Addr::from(target);
        if !sum.is_valid() || message[1] != 0 || target.is_multicast() {
            return Err(Malformed);
        }
        let (kind, option) = match message[0] {
            SOLICITATION => (Kind::Solicitation, SOURCE_LINK),
            ADVERTISEMENT => {
                let (is_solicited, overrides) = (message[4] & 0x40 != 0, message[4] & 0x20 != 0);
                (Kind::Advertisement { is_solicited, overrides }, TARGET_LINK)
            }
            _ => return Err(Malformed),
        };
        let link = link(&message[LENGTH..], option)?;
        let is_refused = match kind {
            Kind::Solicitation => {
                source.is_unspecified() && (destination != solicited_node(target) || link.is_some())
            }
            Kind::Advertisement { is_solicited, .. } => destination.is_multicast() && is_solicited,
        };
        if is_refused { Err(Malformed) } else { Ok(Self { kind, source, destination, target, link }) }
    }

    /// The frame that answers a solicitation for an address of `station`; `from` sent its frame. An advertisement gets no answer, and neither
    /// does a solicitation that names a group as its sender: the answer would flood it.
    pub fn answer(&self, from: [u8; 6], station: [u8; 6]) -> Option<Vec<u8>> {
        // Section 7.2.4: a prober without an address is answered at the group of all.
        let is_solicited = !self.source.is_unspecified();
        let destination = if is_solicited { self.source } else { ALL_NODES };
        let link = if is_solicited { self.link.unwrap_or(from) } else { multicast_link(ALL_NODES) };
        if self.kind != Kind::Solicitation || (is_solicited && link[0] & 1 == 1) {
            return None;
        }
        let kind = Kind::Advertisement { is_solicited, overrides: true };
        let answer =
            Self { kind, source: self.target, destination, target: self.target, link: Some(station) };
        Some(answer.frame(station, link))
    }

    /// The frame from one hardware address to another.
    pub fn frame(&self, source: [u8; 6], destination: [u8; 6]) -> Vec<u8> {
        let ether = EthernetHeader { destination, source, ether_type: ethernet::IPV6.into() };
        [ether.as_bytes(), &self.packet()].concat()
    }

    /// The IP packet.
    pub fn packet(&self) -> Vec<u8> {
        let (kind, flags, option) = match self.kind {
            Kind::Solicitation => (SOLICITATION, 0, SOURCE_LINK),
            Kind::Advertisement { is_solicited, overrides } => {
                (ADVERTISEMENT, u8::from(is_solicited) << 6 | u8::from(overrides) << 5, TARGET_LINK)
            }
        };
        let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
        message.extend(self.target.octets());
        if let Some(link) = self.link {
            message.extend([option, 1]);
            message.extend(link);
        }
        let pseudo = Sum::pseudo_v6(self.source, self.destination, ICMPV6, message.len());
        let checksum = (pseudo + Sum::of(&message)).checksum();
        message[2..4].copy_from_slice(&checksum);
        let header = Ipv6Header {
            hop_limit: HOP_LIMIT,
            ..Ipv6Header::new(ICMPV6, self.source.octets(), self.destination.octets(), message.len() as u16)
        };
        [header.as_bytes(), &message].concat()
    }
}

/// The hardware address in this option, if it is there. Options without a length are refused (section 4.6).
fn link(mut options: &[u8], wanted: u8) -> Result<Option<[u8; 6]>, Malformed> {
    let mut found = None;
    while let Some((&[kind, units], _)) = options.split_first_chunk::<2>() {
        let length = usize::from(units) * UNIT;
        if length == 0 || length > options.len() {
            return Err(Malformed);
        }
        if kind == wanted && length == UNIT {
            found = options[2..UNIT].try_into().ok();
        }
        options = &options[length..];
    }
    if options.is_empty() { Ok(found) } else { Err(Malformed) }
}

/// The group that stations with this address listen to (RFC 4291 section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The hardware address of a multicast address (RFC 2464 section 7).
pub fn multicast_link(address: Ipv6Addr) -> [u8; 6] {
    let [.., a, b, c, d] = address.octets();
    [0x33, 0x33, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Ipv6Addr {
        text.parse().expect("literal")
    }

    fn solicitation() -> NeighbourMessage {
        let target = address("2001:2::1");
        NeighbourMessage {
            kind: Kind::Solicitation,
            source: address("2001:2::2"),
            destination: solicited_node(target),
            target,
            link: Some([2, 0, 0, 0, 0, 9]),
        }
    }

    fn advertisement() -> NeighbourMessage {
        NeighbourMessage {
            kind: Kind::Advertisement { is_solicited: true, overrides: true },
            source: address("2001:2::1"),
            destination: address("2001:2::2"),
            ..solicitation()
        }
    }

    #[test]
    fn messages_round_trip_and_multicast_addresses_are_those_of_the_rfcs() {
        for message in [solicitation(), advertisement(), NeighbourMessage { link: None, ..advertisement() }] {
            assert_eq!(NeighbourMessage::parse(&message.packet()), Ok(message));
        }
        // RFC 4291 section 2.7.1 has this example.
        let group = solicited_node(address("4037::01:800:200e:8c6c"));
        assert_eq!(group, address("ff02::1:ff0e:8c6c"));
        assert_eq!(multicast_link(group), [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
    }

    #[test]
    fn every_truncation_and_every_inverted_bit_of_a_message_is_refused() {
        for message in [solicitation(), advertisement()] {
            let packet = message.packet();
            for length in 0..packet.len() {
                assert_eq!(NeighbourMessage::parse(&packet[..length]), Err(Malformed), "{length} bytes");
            }
            // Class and flow label, in bytes 0 to 3, have no checksum.
            for bit in (0..4).chain(32..packet.len() * 8) {
                let mut damaged = packet.clone();
                damaged[bit / 8] ^= 1 << (7 - bit % 8);
                assert_eq!(NeighbourMessage::parse(&damaged), Err(Malformed), "bit {bit}");
            }
        }
    }

    #[test]
    fn what_section_7_1_forbids_is_refused() {
        let unspecified = Ipv6Addr::UNSPECIFIED;
        let probe = NeighbourMessage { source: unspecified, link: None, ..solicitation() };
        assert_eq!(NeighbourMessage::parse(&probe.packet()), Ok(probe), "duplicate address detection");
        for refused in [
            NeighbourMessage { source: unspecified, ..solicitation() },
            NeighbourMessage { destination: address("2001:2::1"), ..probe },
            NeighbourMessage { target: ALL_NODES, ..solicitation() },
            NeighbourMessage { destination: ALL_NODES, ..advertisement() },
        ] {
            assert_eq!(NeighbourMessage::parse(&refused.packet()), Err(Malformed), "{refused:?}");
        }
        assert_eq!(link(&[1, 0, 0, 0, 0, 0, 0, 0], SOURCE_LINK), Err(Malformed), "no length");
        assert_eq!(
            link(&[14, 1, 7, 7, 7, 7, 7, 7, 1, 1, 1, 2, 3, 4, 5, 6], SOURCE_LINK),
            Ok(Some([1, 2, 3, 4, 5, 6]))
        );
    }
}
