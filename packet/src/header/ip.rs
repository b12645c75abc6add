//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers, and the ECN rules for tunnels (RFC 6040).

use super::Malformed;
use crate::checksum::Sum;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ICMP's protocol number.
pub const ICMP: u8 = 1;
/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;
/// ICMPv6's protocol number.
pub const ICMPV6: u8 = 58;

/// The largest IP packet.
pub const MAXIMUM: usize = 65_535;

/// An IPv4 header without its options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv4Header {
    /// Version (4) and header length in words.
    pub version_ihl: u8,
    /// DSCP and ECN.
    pub ds_field: u8,
    /// Length of header and payload.
    pub total_length: U16,
    /// Identification, for reassembly.
    pub identification: U16,
    /// Flags and fragment offset.
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// The protocol of the payload.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: [u8; 2],
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Ipv4Header {
    /// Length without options.
    pub const LENGTH: usize = 20;
    /// The flag "don't fragment" in [`fragment`](Self::fragment).
    pub const DONT_FRAGMENT: u16 = 0x4000;
    /// The flag "more fragments".
    pub const MORE_FRAGMENTS: u16 = 0x2000;
    /// The bits of the fragment offset.
    pub const OFFSET: u16 = 0x1fff;
    /// The offset of the field that names the protocol.
    pub const PROTOCOL: usize = 9;
    /// The flag "more fragments" and the fragment offset: not zero in every fragment.
    pub const FRAGMENTED: u16 = 0x3fff;

    /// A header without options and without a checksum (see [`finish`](Self::finish)): TTL 64, not a fragment, and one that
    /// routers may fragment.
    ///
    /// `total_length`: header and payload, in bytes.
    #[inline]
    pub fn new(protocol: u8, source: [u8; 4], destination: [u8; 4], total_length: u16) -> Self {
        Self {
            version_ihl: 0x45,
            ds_field: 0,
            total_length: total_length.into(),
            identification: 0.into(),
            fragment: 0.into(),
            ttl: 64,
            protocol,
            checksum: [0; 2],
            source,
            destination,
        }
    }

    /// Header length in bytes, options included, as the header says.
    #[inline]
    pub fn length(&self) -> usize {
        usize::from(self.version_ihl & 0x0f) * 4
    }

    /// Whether the packet is a fragment.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & Self::FRAGMENTED != 0
    }

    /// Whether it is a fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.get() & Self::OFFSET != 0
    }

    /// Sets the checksum of a header without options.
    #[inline]
    pub fn finish(&mut self) {
        self.checksum = [0; 2];
        self.checksum = Sum::of(self.as_bytes()).checksum();
    }
}

/// An IPv6 header without extension headers.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv6Header {
    /// Version (6), traffic class and flow label.
    pub version_class_flow: U32,
    /// Length of everything after this header.
    pub payload_length: U16,
    /// The type of the next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

impl Ipv6Header {
    /// Length in bytes.
    pub const LENGTH: usize = 40;

    /// A header with hop limit 64, without DSCP, ECN and flow label.
    ///
    /// `payload_length`: what follows, in bytes, extension headers included.
    #[inline]
    pub fn new(next_header: u8, source: [u8; 16], destination: [u8; 16], payload_length: u16) -> Self {
        Self {
            version_class_flow: 0x6000_0000.into(),
            payload_length: payload_length.into(),
            next_header,
            hop_limit: 64,
            source,
            destination,
        }
    }

    /// The same with DSCP and ECN, and without a flow label.
    #[inline]
    #[must_use]
    pub fn with_ds_field(self, ds_field: u8) -> Self {
        Self { version_class_flow: (0x6000_0000 | u32::from(ds_field) << 20).into(), ..self }
    }

    /// DSCP and ECN.
    #[inline]
    pub fn ds_field(&self) -> u8 {
        (self.version_class_flow.get() >> 20) as u8
    }
}

/// A well-formed IP packet: its version is known, and its lengths are within the received bytes.
#[derive(Clone, Copy, Debug)]
pub enum IpPacket<'a> {
    /// IPv4: the header, and the packet cut to its total length.
    V4(&'a Ipv4Header, &'a [u8]),
    /// IPv6: the header, and the packet cut to its payload length.
    V6(&'a Ipv6Header, &'a [u8]),
}

impl<'a> IpPacket<'a> {
    /// Checks version and lengths; bytes after the end of the packet (padding) are removed.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match bytes.first().ok_or(Malformed)? >> 4 {
            4 => {
                let (header, _) = Ipv4Header::ref_from_prefix(bytes).map_err(|_| Malformed)?;
                let total = usize::from(header.total_length.get());
                if header.length() < Ipv4Header::LENGTH || header.length() > total {
                    return Err(Malformed);
                }
                Ok(Self::V4(header, bytes.get(..total).ok_or(Malformed)?))
            }
            6 => {
                let (header, _) = Ipv6Header::ref_from_prefix(bytes).map_err(|_| Malformed)?;
                let total = Ipv6Header::LENGTH + usize::from(header.payload_length.get());
                Ok(Self::V6(header, bytes.get(..total).ok_or(Malformed)?))
            }
            _ => Err(Malformed),
        }
    }

    /// The whole packet, without anything behind its end.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::V4(_, bytes) | Self::V6(_, bytes) => bytes,
        }
    }

    /// The source address.
    #[inline]
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(header, _) => Ipv4Addr::from(header.source).into(),
            Self::V6(header, _) => Ipv6Addr::from(header.source).into(),
        }
    }

    /// The destination address.
    #[inline]
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(header, _) => Ipv4Addr::from(header.destination).into(),
            Self::V6(header, _) => Ipv6Addr::from(header.destination).into(),
        }
    }

    /// DSCP and ECN.
    #[inline]
    pub fn ds_field(&self) -> u8 {
        match self {
            Self::V4(header, _) => header.ds_field,
            Self::V6(header, _) => header.ds_field(),
        }
    }
}

/// The four values of the ECN field (RFC 3168 section 5).
pub mod ecn {
    /// The two bits of the DS field that carry ECN.
    pub const MASK: u8 = 0b11;
    /// Not ECN-capable.
    pub const NOT_ECT: u8 = 0b00;
    /// ECN-capable, codepoint 1.
    pub const ECT_1: u8 = 0b01;
    /// Congestion experienced.
    pub const CE: u8 = 0b11;

    /// The ECN field of a decapsulated packet, from the inner and the outer one (RFC 6040, figure 4).
    ///
    /// `None`: the packet must be dropped, as congestion was marked, but the flow is not ECN-capable.
    #[inline]
    pub fn decapsulate(inner: u8, outer: u8) -> Option<u8> {
        match (inner & MASK, outer & MASK) {
            (NOT_ECT, CE) => None,
            (NOT_ECT, _) => Some(NOT_ECT),
            (CE, _) | (_, CE) => Some(CE),
            (_, ECT_1) => Some(ECT_1),
            (inner, _) => Some(inner),
        }
    }
}

/// Sets the ECN bits of the IP packet in `bytes`, and updates the IPv4 header checksum.
pub fn set_ecn(bytes: &mut [u8], ecn: u8) -> Result<(), Malformed> {
    match bytes.first().ok_or(Malformed)? >> 4 {
        4 => {
            let (header, _) = Ipv4Header::mut_from_prefix(bytes).map_err(|_| Malformed)?;
            let before = u16::from_be_bytes([header.version_ihl, header.ds_field]);
            header.ds_field = (header.ds_field & !ecn::MASK) | ecn;
            let after = u16::from_be_bytes([header.version_ihl, header.ds_field]);
            // RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
            let mut sum =
                u32::from(!u16::from_be_bytes(header.checksum)) + u32::from(!before) + u32::from(after);
            sum = (sum & 0xffff) + (sum >> 16);
            sum = (sum & 0xffff) + (sum >> 16);
            header.checksum = (!(sum as u16)).to_be_bytes();
            Ok(())
        }
        6 => {
            let (header, _) = Ipv6Header::mut_from_prefix(bytes).map_err(|_| Malformed)?;
            let word = header.version_class_flow.get();
            header.version_class_flow.set((word & !(u32::from(ecn::MASK) << 20)) | (u32::from(ecn) << 20));
            Ok(())
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 packet with a complete header and `payload` bytes.
    fn v4(payload: usize) -> Vec<u8> {
        let mut header = Ipv4Header {
            identification: 7.into(),
            fragment: Ipv4Header::DONT_FRAGMENT.into(),
            ..Ipv4Header::new(UDP, [10, 0, 0, 1], [10, 0, 0, 2], (20 + payload) as u16)
        };
        header.finish();
        [header.as_bytes(), &vec![0; payload]].concat()
    }

    fn v6(payload: usize) -> Vec<u8> {
        let header = Ipv6Header {
            version_class_flow: 0x6a50_0000.into(),
            payload_length: (payload as u16).into(),
            next_header: UDP,
            hop_limit: 64,
            source: Ipv6Addr::LOCALHOST.octets(),
            destination: Ipv6Addr::LOCALHOST.octets(),
        };
        [header.as_bytes(), &vec![0; payload]].concat()
    }

    #[test]
    fn headers_round_trip() {
        let bytes = v4(100);
        let IpPacket::V4(header, packet) = IpPacket::parse(&bytes).expect("well-formed") else {
            panic!("v4")
        };
        assert_eq!((header.length(), packet.len()), (20, 120));
        assert!(Sum::of(header.as_bytes()).is_valid());
        let bytes = v6(100);
        let IpPacket::V6(header, packet) = IpPacket::parse(&bytes).expect("well-formed") else {
            panic!("v6")
        };
        assert_eq!((header.ds_field(), packet.len()), (0xa5, 140));
    }

    #[test]
    fn padding_after_the_packet_is_removed() {
        let mut bytes = v4(10);
        bytes.extend([0; 6]);
        assert_eq!(IpPacket::parse(&bytes).expect("well-formed").bytes().len(), 30);
    }

    #[test]
    fn truncated_packets_are_refused_at_every_length() {
        for whole in [v4(30), v6(30)] {
            for length in 0..whole.len() {
                assert!(IpPacket::parse(&whole[..length]).is_err(), "{length} bytes");
            }
        }
    }

    #[test]
    fn contradicting_lengths_are_refused() {
        for (offset, value) in [(0, 0x44), (0, 0x4f), (0, 0x55), (3, 19), (2, 0xff)] {
            let mut bytes = v4(10);
            bytes[offset] = value;
            assert_eq!(IpPacket::parse(&bytes).err(), Some(Malformed), "byte {offset} = {value:#x}");
        }
    }

    #[test]
    fn ecn_follows_figure_4_of_rfc_6040() {
        // Rows: inner Not-ECT, ECT(0), ECT(1), CE; columns: outer Not-ECT, ECT(0), ECT(1), CE.
        let (not, ect0, ect1, ce) = (0b00, 0b10, 0b01, 0b11);
        let figure = [
            (not, [Some(not), Some(not), Some(not), None]),
            (ect0, [Some(ect0), Some(ect0), Some(ect1), Some(ce)]),
            (ect1, [Some(ect1), Some(ect1), Some(ect1), Some(ce)]),
            (ce, [Some(ce), Some(ce), Some(ce), Some(ce)]),
        ];
        for (inner, row) in figure {
            for (outer, expected) in [not, ect0, ect1, ce].into_iter().zip(row) {
                assert_eq!(ecn::decapsulate(inner, outer), expected, "inner {inner:02b}, outer {outer:02b}");
            }
        }
    }

    #[test]
    fn setting_ecn_keeps_the_header_checksum_right() {
        for ecn in 0..4 {
            let mut bytes = v4(0);
            set_ecn(&mut bytes, ecn).expect("well-formed");
            assert!(Sum::of(&bytes).is_valid());
            assert_eq!(IpPacket::parse(&bytes).expect("well-formed").ds_field(), ecn);
            let mut bytes = v6(0);
            set_ecn(&mut bytes, ecn).expect("well-formed");
            assert_eq!(IpPacket::parse(&bytes).expect("well-formed").ds_field(), 0xa4 | ecn);
        }
    }
}
