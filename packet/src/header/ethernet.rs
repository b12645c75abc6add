//! Ethernet II frames without their frame check sequence (IEEE 802.3), and VLAN tags (IEEE 802.1Q).

use super::Malformed;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of a VLAN tag.
pub const VLAN: u16 = 0x8100;
/// EtherType of an outer VLAN tag (IEEE 802.1ad).
pub const SERVICE_VLAN: u16 = 0x88a8;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// The frame check sequence, which network cards add and remove.
pub const FCS: usize = 4;
/// The shortest frame, without its frame check sequence.
pub const SHORTEST: usize = 60;
/// Preamble, start delimiter and gap, which a frame also takes on the wire.
pub const GAP: usize = 20;

/// An Ethernet header without VLAN tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EthernetHeader {
    /// Destination address.
    pub destination: [u8; 6],
    /// Source address.
    pub source: [u8; 6],
    /// The protocol of the payload, or a VLAN tag.
    pub ether_type: U16,
}

impl EthernetHeader {
    /// Length in bytes.
    pub const LENGTH: usize = 14;

    /// The EtherType behind at most two VLAN tags, and the offset of the payload.
    #[inline]
    pub fn payload(frame: &[u8]) -> Result<(u16, usize), Malformed> {
        let mut offset = Self::LENGTH;
        for _ in 0..3 {
            let ether_type = frame.get(offset - 2..offset).ok_or(Malformed)?;
            let ether_type = u16::from_be_bytes([ether_type[0], ether_type[1]]);
            if !matches!(ether_type, VLAN | SERVICE_VLAN) {
                return Ok((ether_type, offset));
            }
            offset += 4;
        }
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_behind_the_vlan_tags() {
        let plain = [&[0u8; 12][..], &[0x08, 0x00, 0x45]].concat();
        assert_eq!(EthernetHeader::payload(&plain), Ok((IPV4, 14)));
        let two = [&[0u8; 12][..], &[0x88, 0xa8, 0, 5, 0x81, 0x00, 0, 7, 0x86, 0xdd]].concat();
        assert_eq!(EthernetHeader::payload(&two), Ok((IPV6, 22)));
        for length in 0..two.len() {
            assert!(EthernetHeader::payload(&two[..length]).is_err(), "{length} bytes");
        }
        let three = [&[0u8; 12][..], &[0x81, 0x00, 0, 1].repeat(3), &[0x08, 0x00]].concat();
        assert!(EthernetHeader::payload(&three).is_err(), "at most two tags");
    }

    #[test]
    fn a_header_is_its_bytes() {
        let bytes: Vec<u8> = (0..14).collect();
        let (header, rest) = EthernetHeader::read_from_prefix(&bytes).expect("14 bytes");
        assert_eq!((header.destination[0], header.source[0], header.ether_type.get()), (0, 6, 0x0c0d));
        assert!(rest.is_empty() && header.as_bytes() == bytes);
    }
}
