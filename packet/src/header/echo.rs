//! ICMP echo (RFC 792, RFC 4443 section 4): a request that every host answers with the same bytes.

use super::Malformed;
use crate::checksum::Sum;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The types of requests and replies: of ICMP, of ICMPv6.
const REQUEST: [u8; 2] = [8, 128];
const REPLY: [u8; 2] = [0, 129];

/// The header of a request or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Echo {
    /// The type.
    kind: u8,
    code: u8,
    checksum: [u8; 2],
    /// Tells the programs of a machine apart.
    pub identifier: U16,
    /// The number of the request.
    pub sequence: U16,
}

impl Echo {
    /// Length in bytes.
    pub const LENGTH: usize = 8;

    /// Appends a request with the bytes that `fill` appends. The kernel sets the checksum of ICMPv6, which has a pseudo header.
    pub fn request(
        is_v4: bool,
        identifier: u16,
        sequence: u16,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        let header = Self {
            kind: REQUEST[usize::from(!is_v4)],
            code: 0,
            checksum: [0; 2],
            identifier: identifier.into(),
            sequence: sequence.into(),
        };
        out.extend_from_slice(header.as_bytes());
        fill(out);
        if is_v4 {
            let checksum = Sum::of(&out[start..]).checksum();
            out[start + 2..start + 4].copy_from_slice(&checksum);
        }
    }

    /// Reads a reply, and what it repeats.
    pub fn reply(is_v4: bool, bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        Self::of_kind(REPLY[usize::from(!is_v4)], bytes)
    }

    /// Reads a request that an ICMP error quotes, as much as it does.
    pub fn quoted(is_v4: bool, bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        Self::of_kind(REQUEST[usize::from(!is_v4)], bytes)
    }

    fn of_kind(kind: u8, bytes: &[u8]) -> Result<(&Self, &[u8]), Malformed> {
        let (header, rest) = Self::ref_from_prefix(bytes).map_err(|_| Malformed)?;
        if header.kind == kind && header.code == 0 { Ok((header, rest)) } else { Err(Malformed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_checksum_and_its_reply_is_read() {
        let mut bytes = vec![0xff];
        Echo::request(true, 0x1234, 7, &mut bytes, |out| out.extend(b"abc"));
        let request = &mut bytes[1..];
        assert_eq!(Sum::of(request).checksum(), [0; 2], "RFC 1071: of all it is zero");
        assert_eq!((request[0], &request[4..]), (8, &[0x12, 0x34, 0, 7, b'a', b'b', b'c'][..]));
        assert_eq!(Echo::reply(true, request), Err(Malformed), "it is a request");
        assert_eq!(Echo::quoted(true, request).expect("one").1, b"abc");
        request[0] = 0;
        let (reply, rest) = Echo::reply(true, request).expect("one");
        assert_eq!((reply.identifier.get(), reply.sequence.get(), rest), (0x1234, 7, &b"abc"[..]));
        for length in 0..Echo::LENGTH {
            assert_eq!(Echo::reply(true, &request[..length]), Err(Malformed));
        }
        let mut bytes = Vec::new();
        Echo::request(false, 1, 2, &mut bytes, |_| ());
        assert_eq!(bytes, [128, 0, 0, 0, 0, 1, 0, 2]);
        bytes[0] = 129;
        assert_eq!(Echo::reply(false, &bytes).expect("one").1, b"");
        bytes[1] = 1;
        assert_eq!(Echo::reply(false, &bytes), Err(Malformed), "it has a code");
    }
}
