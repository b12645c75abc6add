//! The message formats of WireGuard (whitepaper, section 5.4).
//!
//! ```text
//! initiation    148   kind 1 | sender | ephemeral 32 | static 32+16 | timestamp 12+16 | mac1 16 | mac2 16
//! response       92   kind 2 | sender | receiver | ephemeral 32 | nothing 0+16        | mac1 16 | mac2 16
//! cookie reply   64   kind 3 | receiver | nonce 24 | cookie 16+16
//! data          ≥32   kind 4 | receiver | counter 8 | packet n+16
//! ```
//! A kind is one byte and three zero bytes; together they are read as one little-endian word.

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The kind of a handshake initiation.
pub const INITIATION: u32 = 1;
/// The kind of a handshake response.
pub const RESPONSE: u32 = 2;
/// The kind of a cookie reply.
pub const COOKIE_REPLY: u32 = 3;
/// The kind of a data message.
pub const DATA: u32 = 4;

/// The place of the most significant byte of the receiver's index in a data message.
pub const STEERING_BYTE: usize = 7;

/// Bytes of an authentication tag.
pub const TAG: usize = 16;
/// Bytes of the header before the encrypted packet of a data message.
pub const DATA_HEADER: usize = size_of::<DataHeader>();
/// What a data message adds to the padded packet.
pub const DATA_OVERHEAD: usize = DATA_HEADER + TAG;
/// Plaintext is padded to a multiple of this (whitepaper, section 5.4.6).
pub const PADDING: usize = 16;

/// First message of a handshake, initiator to responder.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Initiation {
    /// [`INITIATION`].
    pub kind: U32,
    /// The sender's index, which the response must contain.
    pub sender: U32,
    /// The sender's ephemeral public key.
    pub ephemeral: [u8; 32],
    /// The sender's static public key, encrypted.
    pub encrypted_static: [u8; 32 + TAG],
    /// A TAI64N timestamp, encrypted.
    pub encrypted_timestamp: [u8; 12 + TAG],
    /// The two MACs.
    pub macs: Macs,
}

/// Second message of a handshake, responder to initiator.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Response {
    /// [`RESPONSE`].
    pub kind: U32,
    /// The responder's index, which data messages must contain.
    pub sender: U32,
    /// The initiator's index.
    pub receiver: U32,
    /// The responder's ephemeral public key.
    pub ephemeral: [u8; 32],
    /// The encrypted empty string, which proves possession of the keys.
    pub encrypted_nothing: [u8; TAG],
    /// The two MACs.
    pub macs: Macs,
}

/// The end of both handshake messages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Macs {
    /// Proves that the sender knows the receiver's public key.
    pub mac1: [u8; 16],
    /// Proves that the sender received a cookie at its address; zero without one.
    pub mac2: [u8; 16],
}

/// The answer of a responder under load, instead of a response.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CookieReply {
    /// [`COOKIE_REPLY`].
    pub kind: U32,
    /// The index of the message answered.
    pub receiver: U32,
    /// The nonce of XChaCha20-Poly1305.
    pub nonce: [u8; 24],
    /// The cookie, encrypted.
    pub encrypted_cookie: [u8; 16 + TAG],
}

/// The header of a data message; the encrypted packet follows.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DataHeader {
    /// [`DATA`].
    pub kind: U32,
    /// The receiver's index.
    pub receiver: U32,
    /// The counter of the packet, which is also the nonce.
    pub counter: U64,
}

/// A datagram whose length is valid for its kind; nothing else is checked.
#[derive(Debug)]
pub enum Message<'a> {
    /// Kind 1.
    Initiation(&'a Initiation),
    /// Kind 2.
    Response(&'a Response),
    /// Kind 3.
    CookieReply(&'a CookieReply),
    /// Kind 4: the header, and the encrypted packet with its tag.
    Data(&'a DataHeader, &'a [u8]),
}

impl<'a> Message<'a> {
    /// Determines the kind of a datagram, and checks its length; `None` if it is no WireGuard message.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (kind, _) = U32::read_from_prefix(bytes).ok()?;
        match kind.get() {
            INITIATION => Initiation::ref_from_bytes(bytes).ok().map(Self::Initiation),
            RESPONSE => Response::ref_from_bytes(bytes).ok().map(Self::Response),
            COOKIE_REPLY => CookieReply::ref_from_bytes(bytes).ok().map(Self::CookieReply),
            DATA => {
                let (header, packet) = DataHeader::ref_from_prefix(bytes).ok()?;
                (packet.len() >= TAG).then_some(Self::Data(header, packet))
            }
            _ => None,
        }
    }
}

/// The padded length of a packet of `length` bytes; the padding does not extend a packet beyond `mtu`.
#[inline]
pub fn padded(length: usize, mtu: usize) -> usize {
    length.next_multiple_of(PADDING).min(mtu.max(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_lengths_of_the_whitepaper() {
        assert_eq!(size_of::<Initiation>(), 148);
        assert_eq!(size_of::<Response>(), 92);
        assert_eq!(size_of::<CookieReply>(), 64);
        assert_eq!(DATA_OVERHEAD, 32);
    }

    #[test]
    fn messages_round_trip() {
        let mut bytes: Vec<u8> = (0..148).map(|i| i as u8).collect();
        bytes[..4].copy_from_slice(&[1, 0, 0, 0]);
        let Some(Message::Initiation(message)) = Message::parse(&bytes) else { panic!("an initiation") };
        assert_eq!(message.sender.get(), 0x0706_0504);
        assert_eq!(message.as_bytes(), bytes);
        bytes[..4].copy_from_slice(&[4, 0, 0, 0]);
        let Some(Message::Data(header, packet)) = Message::parse(&bytes) else { panic!("data") };
        assert_eq!((header.counter.get(), packet.len()), (0x0f0e_0d0c_0b0a_0908, 132));
    }

    #[test]
    fn every_wrong_length_is_refused() {
        for (kind, length) in [(1u8, 148), (2, 92), (3, 64)] {
            for wrong in (0..200).filter(|&wrong| wrong != length) {
                let mut bytes = vec![0; wrong];
                if let Some(first) = bytes.first_mut() {
                    *first = kind;
                }
                assert!(Message::parse(&bytes).is_none(), "kind {kind}, {wrong} bytes");
            }
        }
        for length in 0..32 {
            let mut bytes = vec![0; length];
            if let Some(first) = bytes.first_mut() {
                *first = 4;
            }
            assert!(Message::parse(&bytes).is_none(), "data, {length} bytes");
        }
    }

    #[test]
    fn a_kind_with_reserved_bytes_set_is_refused() {
        let mut bytes = [0u8; 148];
        bytes[..4].copy_from_slice(&[1, 0, 1, 0]);
        assert!(Message::parse(&bytes).is_none());
    }

    #[test]
    fn padding_stops_at_the_mtu() {
        for (length, mtu, expected) in [
            (0, 1420, 0),
            (1, 1420, 16),
            (16, 1420, 16),
            (1410, 1420, 1420),
            (1420, 1420, 1420),
            (2000, 1420, 2000),
        ] {
            assert_eq!(padded(length, mtu), expected, "{length} bytes at MTU {mtu}");
        }
    }
}
