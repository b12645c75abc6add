//! Fragments of IP packets (RFC 791 section 3.2, RFC 8200 section 4.5), read for their reassembly.

use super::chain::{Place, place_of_fragment};
use super::flow::Upper;
use super::ip::{IpPacket, Ipv4Header, Ipv6Header, MAXIMUM};
use crate::DropReason;
use std::ops::Range;

/// Fragment offsets count units of 8 bytes.
const UNIT: usize = 8;
/// The length of IPv6's fragment header.
const HEADER: usize = 8;
/// RFC 791 section 3.2: each link carries 68 bytes, of which a fragment that is not the last leaves at most 7 unused.
const SHORTEST: usize = 68 - (UNIT - 1);
/// In an [`Identity`], the protocol of all fragments of IPv6: RFC 8200 takes that of the first fragment, whatever the others say.
const V6: u16 = 0x100;

/// What all fragments of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The source address; that of IPv4 has zeros behind it.
    pub source: [u8; 16],
    destination: [u8; 16],
    identification: u32,
    protocol: u16,
}

/// A fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// What it has in common with the others.
    pub identity: Identity,
    /// Bytes of the headers before its payload, without a fragment header.
    pub header: usize,
    /// The offset of the field in the headers that names the protocol of the payload.
    pub field: usize,
    /// The protocol of the payload, as this fragment says.
    pub protocol: u8,
    /// Where the payload is in the fragment.
    pub payload: Range<usize>,
    /// Where the payload is in that of the whole packet.
    pub offset: usize,
    /// Whether the payload is the end of that of the packet.
    pub is_last: bool,
}

/// Whether an IP packet may be a fragment: all fragments may, and IPv6 packets with certain extension headers.
#[inline]
pub fn may_be(packet: &[u8]) -> bool {
    match packet.first_chunk() {
        Some(&[first, _, _, _, _, _, high, low]) if first >> 4 == 4 => {
            u16::from_be_bytes([high, low]) & Ipv4Header::FRAGMENTED != 0
        }
        // Those that stand before a fragment header, and itself.
        Some(&[_, _, _, _, _, _, next, _]) => matches!(next, 0 | 43 | 44 | 60),
        None => false,
    }
}

impl Fragment {
    /// Reads a packet; none if it is whole, or if its extension headers cannot be read.
    ///
    /// # Errors
    /// [`DropReason::BadFragment`] if no packet has such a fragment, [`DropReason::TinyFragment`] if no link cuts one so small, or if
    /// its headers go on in the next one (RFC 7112).
    pub fn parse(packet: &IpPacket<'_>) -> Result<Option<Self>, DropReason> {
        let Some(fragment) = Self::of(packet) else { return Ok(None) };
        let length = fragment.payload.len();
        let is_cut = !fragment.is_last && !length.is_multiple_of(UNIT);
        if length == 0 || is_cut || fragment.header + fragment.offset + length > longest(packet) {
            return Err(DropReason::BadFragment);
        }
        let hides_upper = || fragment.offset == 0 && Upper::of(packet).ends_in_extension();
        if !fragment.is_last && (packet.bytes().len() < SHORTEST || hides_upper()) {
            return Err(DropReason::TinyFragment);
        }
        Ok(Some(fragment))
    }

    fn of(packet: &IpPacket<'_>) -> Option<Self> {
        match packet {
            IpPacket::V4(header, bytes) => {
                let widened = |address: [u8; 4]| {
                    let mut wide = [0; 16];
                    wide[..4].copy_from_slice(&address);
                    wide
                };
                let identity = Identity {
                    source: widened(header.source),
                    destination: widened(header.destination),
                    identification: header.identification.get().into(),
                    protocol: header.protocol.into(),
                };
                header.is_fragment().then(|| Self {
                    identity,
                    header: header.length(),
                    field: Ipv4Header::PROTOCOL,
                    protocol: header.protocol,
                    payload: header.length()..bytes.len(),
                    offset: usize::from(header.fragment.get() & Ipv4Header::OFFSET) * UNIT,
                    is_last: header.fragment.get() & Ipv4Header::MORE_FRAGMENTS == 0,
                })
            }
            IpPacket::V6(header, bytes) => {
                let Place { offset: at, field, .. } = place_of_fragment(packet)?;
                let &[protocol, _, high, low, ref identification @ ..] =
                    bytes.get(at..)?.first_chunk::<HEADER>()?;
                let identification = u32::from_be_bytes(*identification);
                let place = u16::from_be_bytes([high, low]);
                let (source, destination) = (header.source, header.destination);
                Some(Self {
                    identity: Identity { source, destination, identification, protocol: V6 },
                    header: at,
                    field,
                    protocol,
                    payload: at + HEADER..bytes.len(),
                    offset: usize::from(place & !7),
                    is_last: place & 1 == 0,
                })
            }
        }
    }
}

/// The longest packet of its family.
fn longest(packet: &IpPacket<'_>) -> usize {
    match packet {
        IpPacket::V4(..) => MAXIMUM,
        IpPacket::V6(..) => Ipv6Header::LENGTH + MAXIMUM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::ip::UDP;
    use zerocopy::IntoBytes;

    fn v4(field: u16, payload: usize) -> Vec<u8> {
        let mut header = Ipv4Header {
            identification: 0x1234.into(),
            fragment: field.into(),
            ..Ipv4Header::new(UDP, [10, 0, 0, 1], [10, 0, 0, 2], (20 + payload) as u16)
        };
        header.finish();
        [header.as_bytes(), &vec![7; payload]].concat()
    }

    /// A fragment of IPv6 behind these extension headers, each of 8 bytes.
    fn v6(before: &[u8], first: u8, field: u16, payload: &[u8]) -> Vec<u8> {
        let chain: Vec<u8> = before.iter().copied().chain([44, first]).collect();
        let header = Ipv6Header {
            version_class_flow: 0x6000_0000.into(),
            payload_length: ((chain.len() - 1) * 8 + payload.len())
                .try_into()
                .map(u16::into)
                .expect("it is short"),
            next_header: chain[0],
            hop_limit: 64,
            source: [1; 16],
            destination: [2; 16],
        };
        let mut bytes = header.as_bytes().to_vec();
        for next in &chain[1..chain.len() - 1] {
            bytes.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes.extend([first, 0]);
        bytes.extend(field.to_be_bytes());
        bytes.extend([0, 0, 0x12, 0x34]);
        bytes.extend(payload);
        bytes
    }

    fn parse(bytes: &[u8]) -> Result<Option<Fragment>, DropReason> {
        let parsed = Fragment::parse(&IpPacket::parse(bytes).expect("it is IP"));
        assert!(may_be(bytes) || parsed == Ok(None));
        parsed
    }

    fn found(bytes: &[u8]) -> (usize, usize, usize, bool) {
        let Fragment { header, payload, offset, is_last, .. } =
            parse(bytes).expect("it is right").expect("it is a fragment");
        assert_eq!(payload.end, bytes.len());
        (header, payload.len(), offset, is_last)
    }

    #[test]
    fn fragments_of_both_families_say_where_they_belong() {
        assert_eq!(found(&v4(0x2000, 48)), (20, 48, 0, false));
        assert_eq!(found(&v4(0x2006, 48)), (20, 48, 48, false));
        assert_eq!(found(&v4(0x4006, 1)), (20, 1, 48, true), "with the flag \"don't fragment\"");
        assert_eq!(found(&v6(&[], UDP, 1, &[0; 48])), (40, 48, 0, false));
        assert_eq!(found(&v6(&[0, 60, 43], UDP, 48, &[0; 3])), (64, 3, 48, true));
        let [one, other] = [v6(&[], UDP, 1, &[0; 48]), v6(&[], 6, 48, &[0; 3])];
        let [one, other] = [one, other].map(|bytes| parse(&bytes).expect("it is right").expect("it is one"));
        assert_eq!(one.identity, other.identity, "the protocol is that of the first");
        for whole in [v4(0, 9), v4(0x4000, 9), v6(&[], UDP, 0, &[0; 9]), v6(&[0], UDP, 0, &[0; 9])] {
            assert_eq!(parse(&whole), Ok(None));
        }
    }

    #[test]
    fn what_no_packet_has_and_no_link_cuts_is_refused() {
        for (bytes, reason) in [
            (v4(0x2000, 49), DropReason::BadFragment),
            (v4(0x2000, 0), DropReason::BadFragment),
            // A ping of death: it would end behind the longest packet.
            (v4(0x1fff, 8), DropReason::BadFragment),
            (v6(&[], UDP, 0xfff8, &[0; 8]), DropReason::BadFragment),
            (v6(&[], UDP, 9, &[0; 47]), DropReason::BadFragment),
            (v4(0x2000, 40), DropReason::TinyFragment),
            (v6(&[], UDP, 1, &[0; 8]), DropReason::TinyFragment),
            // The header of the upper layer is in the next one.
            (v6(&[], 60, 1, &[60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), DropReason::TinyFragment),
        ] {
            assert_eq!(parse(&bytes), Err(reason), "{bytes:02x?}");
        }
        assert!(parse(&v4(0x1ffb, 16)).is_ok_and(|it| it.is_some()), "up to the longest");
    }

    #[test]
    fn a_fragment_header_that_ends_early_is_none() {
        let whole = v6(&[0], UDP, 8, &[]);
        for length in 40..whole.len() {
            let mut cut = whole[..length].to_vec();
            cut[5] = length as u8 - 40;
            assert_eq!(parse(&cut), Ok(None), "{length} bytes");
        }
    }
}
