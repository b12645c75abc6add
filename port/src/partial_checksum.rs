//! Checksums that the kernel has left to a network card which is not there: a veth carries such frames unchanged.
//!
//! The field of such a frame holds the sum of the pseudo header, not complemented (linux, "CHECKSUM_PARTIAL"). Before the frame is
//! encrypted or sent by another port, the sum must be completed: nothing later can.

use crate::checksum;
use packet::checksum::Sum;
use packet::header::ethernet::{EthernetHeader, IPV4, IPV6};
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use packet::header::tcp::TcpHeader;
use packet::header::udp::UdpHeader;
use std::ops::Range;

/// Completes the checksum of a frame whose field holds the pseudo header's sum; whether it did.
///
/// TCP and UDP without IPv6 extension headers; a fragment has no checksum of its own. A frame that is right as it is stays so, even
/// if its checksum happens to be that sum.
#[inline]
pub fn complete(frame: &mut [u8]) -> bool {
    let Some((segment, offset, pseudo)) = locate(frame) else { return false };
    let segment = &mut frame[segment];
    let Some(field) = segment.get(offset..offset + 2) else { return false };
    if field != pseudo.fold().to_ne_bytes() {
        return false;
    }
    // Of the data and, in the field, the pseudo header: of all that the checksum is of.
    let sum = checksum::sum(segment);
    if (sum + pseudo).is_valid() {
        return false;
    }
    let checksum = match sum.checksum() {
        [0, 0] if offset == UdpHeader::CHECKSUM => [0xff; 2],
        checksum => checksum,
    };
    segment[offset..offset + 2].copy_from_slice(&checksum);
    true
}

/// Where the segment is, the offset of the checksum in it, and the sum of its pseudo header.
fn locate(frame: &[u8]) -> Option<(Range<usize>, usize, Sum)> {
    let (ether_type, start) = EthernetHeader::payload(frame).ok()?;
    if !matches!(ether_type, IPV4 | IPV6) {
        return None;
    }
    let offset = |protocol| match protocol {
        TCP => Some(TcpHeader::CHECKSUM),
        UDP => Some(UdpHeader::CHECKSUM),
        _ => None,
    };
    match IpPacket::parse(&frame[start..]).ok()? {
        IpPacket::V4(header, packet) => {
            let segment = start + header.length()..start + packet.len();
            let (source, destination) = (header.source.into(), header.destination.into());
            let pseudo = Sum::pseudo_v4(source, destination, header.protocol, segment.len());
            let is_whole = header.fragment.get() & Ipv4Header::FRAGMENTED == 0;
            is_whole.then_some((segment, offset(header.protocol)?, pseudo))
        }
        IpPacket::V6(header, packet) => {
            let segment = start + Ipv6Header::LENGTH..start + packet.len();
            let (source, destination) = (header.source.into(), header.destination.into());
            let pseudo = Sum::pseudo_v6(source, destination, header.next_header, segment.len());
            Some((segment, offset(header.next_header)?, pseudo))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a UDP datagram of `payload`, whose checksum field is `checksum` of the pseudo header's sum and the segment.
    fn frame(v6: bool, payload: &[u8], field: impl Fn(Sum, Sum) -> [u8; 2]) -> Vec<u8> {
        let length = (8 + payload.len()) as u16;
        let mut segment = [&[0, 7, 0, 7][..], &length.to_be_bytes(), &[0, 0], payload].concat();
        let (ether, ip, pseudo) = if v6 {
            let addresses: Vec<u8> = (0..32).collect();
            let ip = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[17, 64], &addresses].concat();
            let of = |range: Range<usize>| <[u8; 16]>::try_from(&addresses[range]).expect("16 bytes");
            let pseudo = Sum::pseudo_v6(of(0..16).into(), of(16..32).into(), 17, segment.len());
            ([0x86, 0xdd], ip, pseudo)
        } else {
            let total = (20 + length).to_be_bytes();
            let ip = [&[0x45, 0][..], &total, &[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]].concat();
            let pseudo = Sum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), 17, segment.len());
            ([8, 0], ip, pseudo)
        };
        let field = field(pseudo, Sum::of(&segment));
        segment[6..8].copy_from_slice(&field);
        [&[0; 12][..], &ether, &ip, &segment].concat()
    }

    #[test]
    fn a_partial_checksum_is_completed_once_and_a_right_one_is_left() {
        for v6 in [false, true] {
            for payload in [&b"x"[..], b"hello, world", &[0xff; 1400]] {
                let right = frame(v6, payload, |pseudo, segment| (pseudo + segment).checksum());
                let mut partial = frame(v6, payload, |pseudo, _| pseudo.fold().to_ne_bytes());
                assert!(complete(&mut partial), "{v6}");
                assert_eq!(partial, right, "{v6}");
                assert!(!complete(&mut partial) && partial == right);
            }
        }
    }

    #[test]
    fn fragments_other_protocols_and_broken_frames_are_left() {
        let partial = frame(false, b"hello", |pseudo, _| pseudo.fold().to_ne_bytes());
        for (place, value) in [(20, 0x20), (23, 47), (12, 9), (14, 0x4f)] {
            let mut other = partial.clone();
            other[place] = value;
            let before = other.clone();
            assert!(!complete(&mut other) && other == before, "byte {place}");
        }
        for length in 0..partial.len() {
            assert!(!complete(&mut partial[..length].to_vec()), "{length} bytes");
        }
    }
}
