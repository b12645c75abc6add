//! The place of ESP in transport mode: behind the IP header and the options and routing headers of IPv6 (RFC 4303 section 3.1.1). A
//! fragment header of a whole packet is one of them (RFC 6946).

use super::Malformed;
use super::esp::ESP;
use super::ip::{IpPacket, Ipv4Header, Ipv6Header};
use crate::DropReason;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// The length of a fragment header.
const FRAGMENT_LENGTH: usize = 8;
/// The bits of a fragment header that are 0 in a whole packet.
const OFFSET_AND_MORE: u16 = 0xfff9;
/// The most extension headers; regular packets have fewer.
const MOST: usize = 8;
/// The next header field of an IPv6 header.
const NEXT_HEADER: usize = 6;

/// A place between two headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes before it.
    pub offset: usize,
    /// The offset of the field that names what is behind it.
    pub field: usize,
    /// What is behind it.
    pub protocol: u8,
}

impl Place {
    /// The place behind the IP header.
    fn first(packet: &IpPacket<'_>) -> Self {
        match packet {
            IpPacket::V4(header, _) => {
                Self { offset: header.length(), field: Ipv4Header::PROTOCOL, protocol: header.protocol }
            }
            IpPacket::V6(header, _) => {
                Self { offset: Ipv6Header::LENGTH, field: NEXT_HEADER, protocol: header.next_header }
            }
        }
    }

    /// The place behind the fragment header here, if the packet is whole.
    fn behind_whole(self, bytes: &[u8]) -> Result<Self, DropReason> {
        match bytes.get(self.offset..self.offset + FRAGMENT_LENGTH) {
            Some(&[protocol, _, high, low, ..]) if u16::from_be_bytes([high, low]) & OFFSET_AND_MORE == 0 => {
                Ok(Self { offset: self.offset + FRAGMENT_LENGTH, field: self.offset, protocol })
            }
            Some(_) => Err(DropReason::Fragmented),
            None => Err(DropReason::Malformed),
        }
    }

    /// The place behind the extension header here.
    fn next(self, bytes: &[u8]) -> Result<Self, Malformed> {
        let &[protocol, words, ..] = bytes.get(self.offset..).ok_or(Malformed)? else {
            return Err(Malformed);
        };
        let offset = self.offset + (usize::from(words) + 1) * 8;
        if offset > bytes.len() { Err(Malformed) } else { Ok(Self { offset, field: self.offset, protocol }) }
    }
}

/// Where ESP is put into a packet that is no fragment (RFC 4301 section 7).
///
/// RFC 4303 leaves the side of destination options to the sender. As in ipsec-secgw, they stand before ESP, where RFC 6275 section 6.3
/// wants a home address.
///
/// # Errors
/// It is a fragment, or its extension headers are malformed.
pub fn place_for_esp(packet: &IpPacket<'_>) -> Result<Place, DropReason> {
    place(packet, |place, bytes| match place.protocol {
        HOP_BY_HOP | ROUTING | DESTINATION => {
            place.next(bytes).map(Some).map_err(|Malformed| DropReason::Malformed)
        }
        FRAGMENT => place.behind_whole(bytes).map(Some),
        _ => Ok(None),
    })
}

/// Where a fragment header is put into a packet that has none (RFC 8200 section 4.5): behind the headers that routers read.
///
/// # Errors
/// It has a fragment header, or its extension headers are malformed.
pub fn place_for_fragment(packet: &IpPacket<'_>) -> Result<Place, DropReason> {
    place(packet, |place, bytes| {
        let next = match place.protocol {
            HOP_BY_HOP | ROUTING => place.next(bytes).map(Some),
            // RFC 8200 section 4.1: before a routing header, the options are for the routers that it lists.
            DESTINATION => place.next(bytes).map(|next| (next.protocol == ROUTING).then_some(next)),
            FRAGMENT => return Err(DropReason::Fragmented),
            _ => Ok(None),
        };
        next.map_err(|Malformed| DropReason::Malformed)
    })
}

/// Where the fragment header of an IPv6 packet is, unless the packet is whole despite it (RFC 6946).
pub(super) fn place_of_fragment(packet: &IpPacket<'_>) -> Option<Place> {
    let mut place = Place::first(packet);
    for _ in 0..MOST {
        place = match place.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => place.next(packet.bytes()).ok()?,
            FRAGMENT => match place.behind_whole(packet.bytes()) {
                Err(DropReason::Fragmented) => return Some(place),
                behind => behind.ok()?,
            },
            _ => return None,
        };
    }
    None
}

/// The place before the first header that `next` leads not beyond.
fn place(
    packet: &IpPacket<'_>,
    next: impl Fn(Place, &[u8]) -> Result<Option<Place>, DropReason>,
) -> Result<Place, DropReason> {
    let mut place = Place::first(packet);
    let bytes = match packet {
        IpPacket::V4(header, _) if header.is_fragment() => return Err(DropReason::Fragmented),
        IpPacket::V4(..) => return Ok(place),
        IpPacket::V6(_, bytes) => bytes,
    };
    for _ in 0..MOST {
        match next(place, bytes)? {
            Some(behind) => place = behind,
            None => return Ok(place),
        }
    }
    Err(DropReason::Malformed)
}

/// Where ESP is in a packet, if it is behind the IP header and its extension headers.
#[inline]
pub fn find_esp(packet: &IpPacket<'_>) -> Option<Place> {
    find(packet, ESP)
}

/// Where this protocol is in a packet, if it is behind the IP header and its extension headers.
#[inline(always)]
pub fn find(packet: &IpPacket<'_>, protocol: u8) -> Option<Place> {
    let first = Place::first(packet);
    match packet {
        _ if first.protocol == protocol => Some(first),
        IpPacket::V4(..) => None,
        IpPacket::V6(_, bytes) => find_behind(first, bytes, protocol),
    }
}

/// As [`find`], behind the first extension header. Apart, because a place that a call returns in memory is waited for.
fn find_behind(mut place: Place, bytes: &[u8], protocol: u8) -> Option<Place> {
    for _ in 1..MOST {
        place = match place.protocol {
            HOP_BY_HOP | ROUTING | DESTINATION => place.next(bytes).ok()?,
            FRAGMENT => place.behind_whole(bytes).ok()?,
            _ => return None,
        };
        if place.protocol == protocol {
            return Some(place);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::ip::TCP;
    use zerocopy::IntoBytes;

    /// An IPv6 packet with these extension headers, each of 8 bytes, and 4 bytes of TCP.
    fn v6(extensions: &[u8], last: u8) -> Vec<u8> {
        let chain: Vec<u8> = extensions.iter().copied().chain([last]).collect();
        let header = Ipv6Header::new(chain[0], [1; 16], [2; 16], extensions.len() as u16 * 8 + 4);
        let mut bytes = header.as_bytes().to_vec();
        for next in &chain[1..] {
            bytes.extend([*next, 0, 0, 0, 0, 0, 0, 0]);
        }
        bytes.extend([7; 4]);
        bytes
    }

    fn place(bytes: &[u8]) -> Result<(usize, usize, u8), DropReason> {
        let packet = IpPacket::parse(bytes).expect("it is IP");
        place_for_esp(&packet).map(|place| (place.offset, place.field, place.protocol))
    }

    #[test]
    fn esp_is_behind_options_and_routing_headers() {
        for (extensions, expected) in [
            (&[][..], (40, 6, TCP)),
            (&[HOP_BY_HOP], (48, 40, TCP)),
            (&[HOP_BY_HOP, DESTINATION, ROUTING, DESTINATION], (72, 64, TCP)),
            (&[ROUTING], (48, 40, TCP)),
            (&[DESTINATION], (48, 40, TCP)),
        ] {
            assert_eq!(place(&v6(extensions, TCP)), Ok(expected), "{extensions:?}");
        }
        let fragment = |extensions: &[u8], high, low| {
            let mut bytes = v6(extensions, TCP);
            let at = 40 + 8 * (extensions.len() - 1);
            bytes[at + 2..at + 4].copy_from_slice(&[high, low]);
            place(&bytes)
        };
        for (high, low) in [(0, 1), (0, 8), (1, 0)] {
            assert_eq!(fragment(&[FRAGMENT], high, low), Err(DropReason::Fragmented));
            assert_eq!(fragment(&[HOP_BY_HOP, FRAGMENT], high, low), Err(DropReason::Fragmented));
        }
        assert_eq!(fragment(&[HOP_BY_HOP, FRAGMENT], 0, 0), Ok((56, 48, TCP)), "a whole packet");
        assert_eq!(place(&v6(&[ROUTING; 9], TCP)), Err(DropReason::Malformed), "too many");
        for (extensions, expected) in [
            (&[HOP_BY_HOP, DESTINATION, ROUTING, DESTINATION][..], Ok((64, 56))),
            (&[DESTINATION], Ok((40, 6))),
            (&[HOP_BY_HOP, FRAGMENT], Err(DropReason::Fragmented)),
        ] {
            let bytes = v6(extensions, TCP);
            let found = place_for_fragment(&IpPacket::parse(&bytes).expect("it is IP"));
            assert_eq!(found.map(|place| (place.offset, place.field)), expected, "{extensions:?}");
        }
        let mut long = v6(&[HOP_BY_HOP], TCP);
        long[41] = 1;
        assert_eq!(place(&long), Err(DropReason::Malformed), "longer than the packet");
        let mut header = [0x45, 0, 0, 24, 0, 0, 0x20, 0, 64, TCP, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0];
        assert_eq!(place(&header), Err(DropReason::Fragmented));
        (header[0], header[6]) = (0x46, 0x40);
        assert_eq!(place(&header), Ok((Ipv4Header::LENGTH + 4, 9, TCP)), "behind the options");
    }

    #[test]
    fn esp_is_found_behind_extension_headers_but_not_in_a_fragment() {
        let find = |bytes: &[u8]| {
            find_esp(&IpPacket::parse(bytes).expect("it is IP")).map(|place| (place.offset, place.field))
        };
        assert_eq!(find(&v6(&[], ESP)), Some((40, 6)));
        assert_eq!(find(&v6(&[HOP_BY_HOP, DESTINATION, ROUTING], ESP)), Some((64, 56)));
        let mut fragment = v6(&[FRAGMENT], ESP);
        assert_eq!(find(&fragment), Some((48, 40)), "a whole packet");
        fragment[43] = 1;
        assert_eq!(find(&fragment), None);
        assert_eq!(find(&v6(&[HOP_BY_HOP], TCP)), None);
        for length in 40..52 {
            let mut cut = v6(&[HOP_BY_HOP], ESP)[..length].to_vec();
            cut[5] = length as u8 - 40;
            assert_eq!(find(&cut).is_some(), length >= 48, "{length} bytes");
        }
    }
}
