//! ICMP errors (RFC 792, RFC 1191, RFC 4443), which a gateway sends when it cannot forward a packet.

use super::flow::Upper;
use super::ip::{ICMP, ICMPV6, IpPacket, Ipv4Header, Ipv6Header};
use crate::checksum::Sum;
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header that all ICMP errors share.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IcmpHeader {
    /// The type.
    pub kind: u8,
    /// The code.
    pub code: u8,
    /// Checksum; over IPv6 with the pseudo header.
    pub checksum: [u8; 2],
    /// The MTU of a "too big"; otherwise unused.
    pub rest: U32,
}

impl IcmpHeader {
    /// Length in bytes.
    pub const LENGTH: usize = 8;
}

/// The error to report to the sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// Destination unreachable: no tunnel leads to this host.
    HostUnreachable,
    /// Destination unreachable: a policy forbids it (RFC 1812 section 5.2.7.1, RFC 4443 section 3.1).
    Prohibited,
    /// Packet too big: the path carries packets of at most this size.
    TooBig {
        /// The largest packet that fits.
        mtu: u32,
    },
}

/// RFC 1812 section 4.3.2.3: as much of the packet as fits into 576 bytes.
const QUOTE_V4: usize = 576 - Ipv4Header::LENGTH - IcmpHeader::LENGTH;
/// RFC 4443 section 2.4(c): as much of the packet as fits into the minimum IPv6 MTU.
const QUOTE_V6: usize = 1280 - Ipv6Header::LENGTH - IcmpHeader::LENGTH;

/// The type of an ICMPv6 redirect (RFC 4861 section 4.5).
const REDIRECT: u8 = 137;

/// The ICMP error for `packet`, or `None` where no error may be sent.
///
/// The source of the error is the unreachable destination, as the gateway has no address of its own here. No error is
/// sent for ICMP errors, for ICMPv6 redirects, for later fragments of IPv4, and to or from multicast and unspecified addresses (RFC 1812 section
/// 4.3.2.7, RFC 4443 section 2.4(e)).
pub fn answer(packet: &IpPacket<'_>, error: IcmpError) -> Option<Vec<u8>> {
    match packet {
        IpPacket::V4(header, bytes) => answer_v4(header, bytes, error),
        IpPacket::V6(header, bytes) => answer_v6(header, bytes, error),
    }
}

fn answer_v4(header: &Ipv4Header, bytes: &[u8], error: IcmpError) -> Option<Vec<u8>> {
    let source = Ipv4Addr::from(header.source);
    let destination = Ipv4Addr::from(header.destination);
    let later_fragment = header.fragment.get() & 0x1fff != 0;
    // Types 3, 4, 5, 11 and 12 are errors. All others, such as echo requests, may cause an error.
    let is_error = header.protocol == ICMP && matches!(bytes.get(header.length())?, 3 | 4 | 5 | 11 | 12);
    let unfit =
        |address: Ipv4Addr| address.is_unspecified() || address.is_multicast() || address.is_broadcast();
    if later_fragment || is_error || unfit(source) || unfit(destination) {
        return None;
    }
    let (code, rest) = match error {
        IcmpError::HostUnreachable => (1, 0),
        IcmpError::Prohibited => (13, 0),
        IcmpError::TooBig { mtu } => (4, mtu.min(u32::from(u16::MAX))),
    };
    let quote = &bytes[..bytes.len().min(QUOTE_V4)];
    let mut icmp = IcmpHeader { kind: 3, code, checksum: [0; 2], rest: rest.into() };
    icmp.checksum = (Sum::of(icmp.as_bytes()) + Sum::of(quote)).checksum();
    let mut ip = Ipv4Header {
        // RFC 1812 section 4.3.2.5: errors have precedence "internetwork control".
        ds_field: 0xc0,
        ..Ipv4Header::new(
            ICMP,
            header.destination,
            header.source,
            (Ipv4Header::LENGTH + IcmpHeader::LENGTH + quote.len()) as u16,
        )
    };
    ip.finish();
    Some([ip.as_bytes(), icmp.as_bytes(), quote].concat())
}

fn answer_v6(header: &Ipv6Header, bytes: &[u8], error: IcmpError) -> Option<Vec<u8>> {
    let source = Ipv6Addr::from(header.source);
    let destination = Ipv6Addr::from(header.destination);
    let upper = Upper::of(&IpPacket::V6(header, bytes));
    // Types below 128 are errors; no error is sent for a redirect either.
    let is_icmp = upper.protocol == ICMPV6 && !upper.is_later_fragment;
    let is_error = is_icmp && matches!(*upper.bytes.first()?, 0..128 | REDIRECT);
    // RFC 4443 excepts "too big" to a multicast address, but that address is no source for an error.
    if is_error || source.is_unspecified() || source.is_multicast() || destination.is_multicast() {
        return None;
    }
    let (kind, code, rest) = match error {
        IcmpError::HostUnreachable => (1, 3, 0),
        IcmpError::Prohibited => (1, 1, 0),
        IcmpError::TooBig { mtu } => (2, 0, mtu),
    };
    let quote = &bytes[..bytes.len().min(QUOTE_V6)];
    let length = IcmpHeader::LENGTH + quote.len();
    let mut icmp = IcmpHeader { kind, code, checksum: [0; 2], rest: rest.into() };
    let pseudo = Sum::pseudo_v6(destination, source, ICMPV6, length);
    icmp.checksum = (pseudo + Sum::of(icmp.as_bytes()) + Sum::of(quote)).checksum();
    let ip = Ipv6Header::new(ICMPV6, header.destination, header.source, length as u16);
    Some([ip.as_bytes(), icmp.as_bytes(), quote].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut header = Ipv4Header {
            fragment: fragment.into(),
            ..Ipv4Header::new(protocol, [10, 0, 0, 1], [192, 0, 2, 9], (20 + payload.len()) as u16)
        };
        header.finish();
        [header.as_bytes(), payload].concat()
    }

    fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let header = Ipv6Header::new(
            next_header,
            "fd00::1".parse::<Ipv6Addr>().expect("literal").octets(),
            "fd00::9".parse::<Ipv6Addr>().expect("literal").octets(),
            payload.len() as u16,
        );
        [header.as_bytes(), payload].concat()
    }

    #[test]
    fn unreachable_quotes_the_packet_and_goes_back_to_its_sender() {
        let offending = v4(17, 0, &[7; 1000]);
        let bytes = answer(&IpPacket::parse(&offending).expect("well-formed"), IcmpError::HostUnreachable)
            .expect("an ICMP error is sent");
        let IpPacket::V4(header, packet) = IpPacket::parse(&bytes).expect("well-formed") else {
            panic!("v4")
        };
        assert_eq!((header.source, header.destination), ([192, 0, 2, 9], [10, 0, 0, 1]));
        assert_eq!((packet.len(), &packet[20..22], &packet[28..]), (576, &[3u8, 1][..], &offending[..548]));
        assert!(Sum::of(&packet[20..]).is_valid() && Sum::of(&packet[..20]).is_valid());
    }

    #[test]
    fn too_big_tells_the_mtu_over_both_versions() {
        let offending = v4(17, 0, &[0; 100]);
        let bytes =
            answer(&IpPacket::parse(&offending).expect("well-formed"), IcmpError::TooBig { mtu: 1400 })
                .expect("an ICMP error is sent");
        assert_eq!((&bytes[20..22], &bytes[24..28]), (&[3u8, 4][..], &1400u32.to_be_bytes()[..]));
        let offending = v6(17, &[0; 3000]);
        let bytes =
            answer(&IpPacket::parse(&offending).expect("well-formed"), IcmpError::TooBig { mtu: 1400 })
                .expect("an ICMP error is sent");
        assert_eq!(
            (bytes.len(), &bytes[40..42], &bytes[44..48]),
            (1280, &[2u8, 0][..], &1400u32.to_be_bytes()[..])
        );
        let IpPacket::V6(header, packet) = IpPacket::parse(&bytes).expect("well-formed") else {
            panic!("v6")
        };
        let pseudo =
            Sum::pseudo_v6(header.source.into(), header.destination.into(), ICMPV6, packet.len() - 40);
        assert!((pseudo + Sum::of(&packet[40..])).is_valid());
    }

    #[test]
    fn no_error_is_sent_for_an_error_or_a_later_fragment() {
        let behind_options = v6(60, &[&[ICMPV6, 0, 1, 4, 0, 0, 0, 0][..], &[1, 0, 0, 0]].concat());
        let no_errors = [
            v4(ICMP, 0, &[3, 1, 0, 0]),
            v4(17, 100, &[0; 8]),
            v6(ICMPV6, &[1, 0, 0, 0]),
            v6(ICMPV6, &[REDIRECT, 0, 0, 0]),
            behind_options,
        ];
        for offending in no_errors {
            let packet = IpPacket::parse(&offending).expect("well-formed");
            assert_eq!(answer(&packet, IcmpError::HostUnreachable), None);
        }
        for echo in [v4(ICMP, 0, &[8, 0, 0, 0]), v6(ICMPV6, &[128, 0, 0, 0])] {
            let packet = IpPacket::parse(&echo).expect("well-formed");
            assert!(answer(&packet, IcmpError::HostUnreachable).is_some());
        }
    }
}
