//! UDP (RFC 768).

use super::Malformed;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A UDP header.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UdpHeader {
    /// Source port.
    pub source: U16,
    /// Destination port.
    pub destination: U16,
    /// Length of header and payload.
    pub length: U16,
    /// Checksum over pseudo header, header and payload; zero over IPv4 means none.
    pub checksum: [u8; 2],
}

impl UdpHeader {
    /// Length in bytes.
    pub const LENGTH: usize = 8;
    /// Offset of the checksum field.
    pub const CHECKSUM: usize = 6;

    /// The UDP header of a datagram that fills `bytes` exactly.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<&Self, Malformed> {
        let (header, _) = Self::ref_from_prefix(bytes).map_err(|_| Malformed)?;
        if usize::from(header.length.get()) == bytes.len() { Ok(header) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn length_must_be_exact() {
        let bytes = [0, 1, 0, 2, 0, 10, 0, 0, 9, 9];
        let header = UdpHeader::parse(&bytes).expect("well-formed");
        assert_eq!((header.source.get(), header.destination.get()), (1, 2));
        assert_eq!(header.as_bytes(), &bytes[..8]);
        for length in 0..bytes.len() {
            assert!(UdpHeader::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
    }
}
