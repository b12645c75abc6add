//! TCP (RFC 9293), as far as offload must know it.

use super::Malformed;
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

#[cfg(test)]
mod tests {
    use super::*;

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
