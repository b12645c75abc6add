//! Parsing and writing of IKEv2 messages (RFC 7296 section 3, RFC 7383 section 2.5).
//!
//! ```text
//! datagram ──> Header ──> payloads in the clear                                Body::Clear
//!                    └──> SK:  iv | ciphertext | icv                           Body::Encrypted
//!                    └──> SKF: number | total | iv | ciphertext | icv          Body::Fragment
//! ```
//! A parsed message borrows from the datagram. All lengths are checked, counts are bounded, and payloads that may
//! occur only once do. The exchanges check what the payloads mean together.

mod header;
pub mod numbers;
mod payload;
mod payloads;
mod proposal;
mod reader;
mod selectors;
#[cfg(test)]
mod tests;

pub use header::{Exchange, Header};
pub use payload::{Authentication, Certificate, Delete, Identification, KeyExchange, Notify, Payload};
pub use payloads::{Payloads, emit};
pub use proposal::{Attribute, Proposal, ProposalSpi, Transform};

use numbers::payload as kinds;
use reader::Reader;

/// The reason why a datagram is not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A length field exceeds the enclosing data.
    #[error("a length field exceeds its data")]
    Truncated,
    /// The length in the header is not that of the datagram.
    #[error("the header's length is not the datagram's")]
    Length,
    /// It is of another major version.
    #[error("major version {0}")]
    MajorVersion(u8),
    /// The initiator's SPI is zero.
    #[error("the initiator's SPI is zero")]
    ZeroSpi,
    /// A critical payload is of an unknown type.
    #[error("unknown critical payload {0}")]
    UnsupportedCritical(u8),
    /// A payload occurs twice, or where it must not occur.
    #[error("a payload is misplaced")]
    Misplaced,
    /// More payloads, proposals or transforms than the limits allow.
    #[error("too many payloads, proposals or transforms")]
    TooMany,
    /// Another violation of the format.
    #[error("malformed")]
    Malformed,
}

/// A message with a valid outer format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The header.
    pub header: Header,
    /// The part after the header.
    pub body: Body<'a>,
}

/// The part of a message after its header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, for one message")]
pub enum Body<'a> {
    /// Unencrypted payloads.
    Clear(Payloads<'a>),
    /// An encrypted chain of payloads.
    Encrypted(Sealed<'a>),
    /// A fragment of an encrypted chain of payloads (RFC 7383).
    Fragment {
        /// The fragment number, from 1.
        number: u16,
        /// The total number of fragments.
        total: u16,
        /// The encrypted fragment; `first` belongs to the whole chain, and is only set in the first fragment.
        sealed: Sealed<'a>,
    },
}

/// Ciphertext and its associated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// The type of the first payload inside.
    pub first: u8,
    /// Everything before the initialization vector.
    pub associated: &'a [u8],
    /// Initialization vector, ciphertext and tag.
    pub text: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads a datagram.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, ParseError> {
        let (header, first, payloads) = Header::parse(datagram)?;
        let body = match first {
            kinds::SK | kinds::SKF => Body::parse_encrypted(first, datagram)?,
            _ => Body::Clear(Payloads::parse(first, payloads)?),
        };
        Ok(Self { header, body })
    }
}

impl<'a> Body<'a> {
    /// Reads an encrypted payload, which must be the only one. RFC 7296 section 3.14 allows unencrypted payloads
    /// before it, which are not accepted here.
    fn parse_encrypted(kind: u8, datagram: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(datagram);
        reader.take(Header::LENGTH)?;
        let (first, _flags, length) = (reader.u8()?, reader.u8()?, reader.u16()?);
        if usize::from(length) != datagram.len() - Header::LENGTH {
            return Err(ParseError::Misplaced);
        }
        let sealed = |text: &'a [u8]| {
            let associated = datagram.split_at(datagram.len() - text.len()).0;
            Sealed { first, associated, text }
        };
        if kind == kinds::SK {
            return Ok(Self::Encrypted(sealed(reader.rest())));
        }
        let (number, total) = (reader.u16()?, reader.u16()?);
        if number == 0 || number > total {
            return Err(ParseError::Malformed);
        }
        Ok(Self::Fragment { number, total, sealed: sealed(reader.rest()) })
    }
}

/// Writes a message in the clear.
pub fn emit_clear(header: &Header, payloads: &[Payload<'_>]) -> Vec<u8> {
    let (first, body) = emit(payloads);
    [&header.emit(first, body.len())[..], &body].concat()
}

/// The outer format of an encrypted message.
#[derive(Clone, Copy, Debug)]
pub enum Envelope {
    /// The whole chain in one message.
    Whole,
    /// A fragment: its number, from 1, and the total.
    Fragment(u16, u16),
}

/// Writes everything before the initialization vector of an encrypted message; `text` bytes will follow.
pub fn emit_associated(header: &Header, first: u8, envelope: Envelope, text: usize) -> Vec<u8> {
    let (kind, numbers) = match envelope {
        Envelope::Whole => (kinds::SK, Vec::new()),
        Envelope::Fragment(number, total) => {
            (kinds::SKF, [number.to_be_bytes(), total.to_be_bytes()].concat())
        }
    };
    let length = 4 + numbers.len() + text;
    let generic = u16::try_from(length).expect("longer messages leave in fragments").to_be_bytes();
    [&header.emit(kind, length)[..], &[first, 0], &generic, &numbers].concat()
}

/// A length field that is filled in after the data that it counts.
struct Length {
    at: usize,
    counted: usize,
}

impl Length {
    /// Reserves the field. It counts itself and the `before` bytes before it, if `before` is not zero.
    fn begin(out: &mut Vec<u8>, before: usize) -> Self {
        let at = out.len();
        out.extend([0; 2]);
        Self { at, counted: if before == 0 { at + 2 } else { at - before } }
    }

    fn end(self, out: &mut [u8]) {
        let length = u16::try_from(out.len() - self.counted).expect("what we write is checked to be short");
        out[self.at..self.at + 2].copy_from_slice(&length.to_be_bytes());
    }
}
