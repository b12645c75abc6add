//! TCP (RFC 9293), as far as offloads need it.

use super::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP};
use super::{Malformed, flow::Upper};
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A TCP header without its options.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TcpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Sequence number of the first payload byte.
    pub sequence: U32,
    /// Acknowledgment number.
    pub acknowledgment: U32,
    /// Header length in words, in the upper half.
    pub data_offset: u8,
    /// Flags.
    pub flags: u8,
    /// Receive window.
    pub window: U16,
    /// Checksum over pseudo header, header and payload.
    pub checksum: [u8; 2],
    /// Urgent pointer.
    pub urgent: U16,
}

impl TcpHeader {
    /// Length without options.
    pub const LENGTH: usize = 20;
    /// Offset of the checksum field.
    pub const CHECKSUM: usize = 16;
    /// Last segment of the sender.
    pub const FIN: u8 = 0x01;
    /// First segment of the sender.
    pub const SYN: u8 = 0x02;
    /// Deliver at once.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// Congestion window reduced (RFC 3168): set in the first segment of a train only.
    pub const CWR: u8 = 0x80;

    /// The header, and its length with options.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(&Self, usize), Malformed> {
        let (header, _) = Self::ref_from_prefix(bytes).map_err(|_| Malformed)?;
        let length = usize::from(header.data_offset >> 4) * 4;
        if length < Self::LENGTH || length > bytes.len() {
            return Err(Malformed);
        }
        Ok((header, length))
    }
}

/// The kinds of options (RFC 9293 section 3.2).
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NOTHING: u8 = 1;
    pub(super) const MSS: u8 = 2;
}

/// Lowers the maximum segment size announced by the IP packet in `bytes`, so that full segments make packets of at
/// most `mtu` bytes. Returns whether it was lowered.
///
/// Only a SYN segment announces one.
#[inline]
pub fn clamp_mss(bytes: &mut [u8], mtu: usize) -> bool {
    let Ok(ip) = IpPacket::parse(bytes) else { return false };
    let headers = match ip {
        IpPacket::V4(..) => Ipv4Header::LENGTH,
        IpPacket::V6(..) => Ipv6Header::LENGTH,
    } + TcpHeader::LENGTH;
    let (total, upper) = (ip.bytes().len(), Upper::of(&ip));
    if upper.protocol != TCP || upper.is_later_fragment {
        return false;
    }
    let Ok((header, length)) = TcpHeader::parse(upper.bytes) else { return false };
    if header.flags & TcpHeader::SYN == 0 {
        return false;
    }
    let start = total - upper.bytes.len();
    let Some(offset) = find_mss(&upper.bytes[..length]) else { return false };
    lower(&mut bytes[start..total], offset, mtu.saturating_sub(headers))
}

/// The offset of the value of the MSS option in the header.
fn find_mss(header: &[u8]) -> Option<usize> {
    let mut at = TcpHeader::LENGTH;
    loop {
        match *header.get(at)? {
            option::END => return None,
            option::NOTHING => at += 1,
            kind => {
                let length = usize::from(*header.get(at + 1)?);
                if kind == option::MSS && length == 4 && at + 4 <= header.len() {
                    return Some(at + 2);
                }
                at += length.max(2);
            }
        }
    }
}

/// Lowers the value at `offset`, and updates the checksum (RFC 1624, equation 3).
fn lower(segment: &mut [u8], offset: usize, most: usize) -> bool {
    let before = u16::from_be_bytes([segment[offset], segment[offset + 1]]);
    let after = u16::try_from(most).unwrap_or(u16::MAX);
    if before <= after {
        return false;
    }
    segment[offset..offset + 2].copy_from_slice(&after.to_be_bytes());
    let field = [segment[TcpHeader::CHECKSUM], segment[TcpHeader::CHECKSUM + 1]];
    // At an odd offset, the value's bytes belong to two checksum words, with swapped positions.
    let (before, after) =
        if offset.is_multiple_of(2) { (before, after) } else { (before.swap_bytes(), after.swap_bytes()) };
    let mut sum = u32::from(!u16::from_be_bytes(field)) + u32::from(!before) + u32::from(after);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    segment[TcpHeader::CHECKSUM..TcpHeader::CHECKSUM + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN over IPv4 with these options and a valid checksum.
    fn syn(options: &[u8]) -> Vec<u8> {
        use crate::checksum::Sum;
        let length = TcpHeader::LENGTH + options.len();
        let mut ip = Ipv4Header::new(TCP, [10, 0, 0, 1], [10, 0, 0, 2], (20 + length) as u16);
        ip.finish();
        let mut segment = [&[0; TcpHeader::LENGTH][..], options].concat();
        segment[12] = (length as u8 / 4) << 4;
        segment[13] = TcpHeader::SYN;
        let pseudo = Sum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), TCP, length);
        let checksum = (pseudo + Sum::of(&segment)).checksum();
        segment[16..18].copy_from_slice(&checksum);
        [ip.as_bytes(), &segment].concat()
    }

    fn is_whole(packet: &[u8]) -> bool {
        use crate::checksum::Sum;
        let pseudo = Sum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), TCP, packet.len() - 20);
        (pseudo + Sum::of(&packet[20..])).is_valid()
    }

    #[test]
    fn the_mss_is_clamped_and_the_checksum_stays_valid() {
        for options in
            [&[2, 4, 0x05, 0xb4][..], &[1, 2, 4, 0x05, 0xb4, 1, 1, 0], &[4, 2, 2, 4, 0x05, 0xb4, 0, 0]]
        {
            let mut packet = syn(options);
            assert!(is_whole(&packet));
            assert!(!clamp_mss(&mut packet.clone(), 1500), "it fits");
            assert!(clamp_mss(&mut packet, 1400));
            let at = packet.windows(2).position(|pair| pair == [2, 4]).expect("the option");
            assert_eq!(packet[at + 2..at + 4], 1360u16.to_be_bytes());
            assert!(is_whole(&packet), "{options:?}");
        }
    }

    #[test]
    fn only_packets_with_an_mss_option_are_changed() {
        let mut later = syn(&[2, 4, 0x05, 0xb4]);
        later[20 + 13] = TcpHeader::ACK;
        for mut packet in
            [later, syn(&[]), syn(&[1, 1, 1, 0]), syn(&[2, 3, 0, 0]), syn(&[9, 0, 2, 4]), vec![0x45]]
        {
            let before = packet.clone();
            assert!(!clamp_mss(&mut packet, 100));
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn options_belong_to_the_header() {
        let mut bytes = [0u8; 40];
        bytes[12] = 0x80;
        bytes[4..8].copy_from_slice(&[1, 2, 3, 4]);
        let (header, length) = TcpHeader::parse(&bytes).expect("well-formed");
        assert_eq!((header.sequence.get(), length), (0x0102_0304, 32));
        assert_eq!(header.as_bytes(), &bytes[..20]);
    }

    #[test]
    fn truncated_or_too_short_headers_are_refused() {
        let mut bytes = [0u8; 32];
        bytes[12] = 0x80;
        for length in 0..32 {
            assert!(TcpHeader::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        bytes[12] = 0x40;
        assert!(TcpHeader::parse(&bytes).is_err());
    }
}
