//! The format of ESP (RFC 4303 section 2), and its encapsulation in UDP (RFC 3948 section 2).
//!
//! ```text
//! header      8   SPI | sequence number, its low half if it has 64 bits
//! IV          n   0, 8 or 16 bytes, by the cipher
//! payload     n   an IP packet, or what follows an IP header
//! padding 0-255   1, 2, 3, ...
//! trailer     2   length of the padding | next header
//! tag         n
//! ```
//! In a datagram of port 4500, four zero bytes in place of the SPI mark an IKE message, and a single byte ff is a NAT
//! keepalive. All others are ESP.

use super::Malformed;
use zerocopy::byteorder::network_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// ESP's protocol number.
pub const ESP: u8 = 50;
/// The next header of an IPv4 packet inside.
pub const NEXT_IPV4: u8 = 4;
/// The next header of an IPv6 packet inside.
pub const NEXT_IPV6: u8 = 41;
/// The next header of a dummy packet (RFC 4303 section 2.6).
pub const NEXT_NONE: u8 = 59;

/// Bytes of the header.
pub const HEADER: usize = size_of::<EspHeader>();
/// Bytes of the trailer, without the padding.
pub const TRAILER: usize = 2;
/// The minimum alignment of payload and trailer (RFC 4303 section 2.4).
pub const ALIGNMENT: usize = 4;
/// The byte of an inbound SPI that leads to a receiving thread of ours: the first one, as tables hash by the last.
pub const STEERING_BYTE: usize = 0;
/// The UDP port of IKE and ESP behind a NAT.
pub const UDP_PORT: u16 = 4500;
/// The marker of IKE messages in datagrams of [`UDP_PORT`].
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// The datagram that keeps a NAT mapping alive.
pub const NAT_KEEPALIVE: [u8; 1] = [0xff];

/// The part of an ESP packet that is not encrypted.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EspHeader {
    /// The SPI, by which the receiver finds the SA.
    pub spi: U32,
    /// The sequence number, or its low half.
    pub sequence: U32,
}

/// The content of a datagram of [`UDP_PORT`].
#[derive(Debug)]
pub enum Encapsulated<'a> {
    /// An ESP packet: the header, and the rest.
    Esp(&'a EspHeader, &'a [u8]),
    /// An IKE message, without the marker.
    Ike(&'a [u8]),
    /// A NAT keepalive.
    Keepalive,
}

impl<'a> Encapsulated<'a> {
    /// Determines the type of a datagram.
    #[inline]
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        if let Some(message) = datagram.strip_prefix(&NON_ESP_MARKER) {
            return Ok(Self::Ike(message));
        }
        if datagram == NAT_KEEPALIVE {
            return Ok(Self::Keepalive);
        }
        EspHeader::ref_from_prefix(datagram)
            .map(|(header, rest)| Self::Esp(header, rest))
            .map_err(|_| Malformed)
    }
}

/// Bytes of padding after `length` bytes of payload: payload, padding and trailer fill whole blocks.
///
/// `block` is a power of two.
#[inline]
pub fn padding(length: usize, block: usize) -> usize {
    debug_assert!(block.is_power_of_two(), "the block size of a cipher is a power of two");
    (length + TRAILER).wrapping_neg() & (block - 1)
}

/// Writes padding and trailer into `room` (RFC 4303 section 2.4).
#[inline]
pub fn write_trailer(room: &mut [u8], next_header: u8) {
    let Some((trailer, padding)) = room.split_last_chunk_mut::<TRAILER>().map(|(rest, last)| (last, rest))
    else {
        return;
    };
    for (byte, value) in padding.iter_mut().zip(1..=u8::MAX) {
        *byte = value;
    }
    *trailer = [padding.len() as u8, next_header];
}

/// The parsed trailer of a decrypted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Bytes of the text before the padding.
    pub payload: usize,
    /// The next header field.
    pub next_header: u8,
}

impl Trailer {
    /// Reads the trailer of a decrypted text, and checks the padding (RFC 4303 section 2.4).
    #[inline]
    pub fn parse(text: &[u8]) -> Result<Self, Malformed> {
        let (rest, &[length, next_header]) = text.split_last_chunk::<TRAILER>().ok_or(Malformed)?;
        let payload = rest.len().checked_sub(length.into()).ok_or(Malformed)?;
        if rest[payload..].iter().zip(1..=u8::MAX).any(|(&byte, value)| byte != value) {
            return Err(Malformed);
        }
        Ok(Self { payload, next_header })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_and_trailer_fill_blocks() {
        for block in [4, 8, 16] {
            for length in 0..100 {
                let padding = padding(length, block);
                assert!(padding < block && (length + padding + TRAILER).is_multiple_of(block));
            }
        }
    }

    #[test]
    fn trailers_round_trip() {
        for padding in 0..=255usize {
            let mut text = vec![0xaa; 7 + padding + TRAILER];
            write_trailer(&mut text[7..], NEXT_IPV4);
            assert_eq!(
                Trailer::parse(&text),
                Ok(Trailer { payload: 7, next_header: NEXT_IPV4 }),
                "{padding}"
            );
        }
    }

    #[test]
    fn wrong_or_too_long_padding_is_refused() {
        let mut text = [9, 1, 2, 3, 3, NEXT_IPV6];
        assert_eq!(Trailer::parse(&text), Ok(Trailer { payload: 1, next_header: NEXT_IPV6 }));
        text[4] = 5;
        assert_eq!(Trailer::parse(&text), Err(Malformed), "more padding than text");
        assert_eq!(Trailer::parse(&[9, 1, 2, 4, 3, 4]), Err(Malformed), "not 1, 2, 3");
        assert_eq!(Trailer::parse(&[0]), Err(Malformed));
        assert_eq!(Trailer::parse(&[]), Err(Malformed));
    }

    #[test]
    fn the_first_bytes_tell_esp_ike_and_keepalives_apart() {
        let header = EspHeader { spi: 0x0102_0304.into(), sequence: 7.into() };
        assert_eq!(header.as_bytes(), [1, 2, 3, 4, 0, 0, 0, 7]);
        let packet = [header.as_bytes(), b"sealed"].concat();
        let Ok(Encapsulated::Esp(header, rest)) = Encapsulated::parse(&packet) else { panic!("it is ESP") };
        assert_eq!((header.spi.get(), header.sequence.get(), rest), (0x0102_0304, 7, &b"sealed"[..]));
        assert!(matches!(Encapsulated::parse(&[0, 0, 0, 0, 9]), Ok(Encapsulated::Ike([9]))));
        assert!(matches!(Encapsulated::parse(&[0xff]), Ok(Encapsulated::Keepalive)));
        for length in [0, 1, 2, 7] {
            assert!(Encapsulated::parse(&packet[..length]).is_err(), "{length} bytes");
        }
    }
}
