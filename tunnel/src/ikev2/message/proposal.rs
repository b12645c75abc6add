//! The Security Association payload: proposals, each a choice of transforms (RFC 7296 section 3.3).

use super::numbers::{protocol, transform};
use super::reader::Reader;
use super::{Length, ParseError};

/// The maximum number of proposals in a payload.
const PROPOSALS: usize = 64;
/// The maximum number of transforms in a proposal.
const TRANSFORMS: usize = 128;

/// The SPI of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProposalSpi {
    /// None: the first proposals for an IKE SA, whose SPI is in the header.
    None,
    /// Of ESP or AH.
    Child(u32),
    /// Of IKE, when it is rekeyed.
    Ike(u64),
}

/// The attribute of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Attribute {
    /// Nothing.
    None,
    /// The length of the key, in bits.
    KeyLength(u16),
    /// An unknown attribute: such a transform must not be selected (section 3.3.6).
    Unknown,
}

/// One algorithm of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transform {
    /// A number of [`transform`].
    pub kind: u8,
    /// A number of the module that belongs to the type.
    pub id: u16,
    /// The key length, for an algorithm with several.
    pub attribute: Attribute,
}

/// A protocol and its transforms, of which one of each type is selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The proposal number, from 1; the answer repeats the number of the selected proposal.
    pub number: u8,
    /// A number of [`protocol`], or an unknown one.
    pub protocol: u8,
    /// The sender's SPI.
    pub spi: ProposalSpi,
    /// The transforms.
    pub transforms: Vec<Transform>,
}

/// The last substructure. Other values repeat IKEv1 payload types to mark a proposal or a transform that is followed
/// by another.
const LAST: u8 = 0;
const MORE_PROPOSALS: u8 = 2;
const MORE_TRANSFORMS: u8 = 3;

pub(super) fn parse(body: &[u8]) -> Result<Vec<Proposal>, ParseError> {
    let (mut reader, mut proposals) = (Reader::new(body), Vec::new());
    loop {
        let more = reader.u8()?;
        let (_reserved, length) = (reader.u8()?, reader.u16()?);
        proposals.push(Proposal::parse(&mut reader.body(length, 4)?)?);
        match more {
            LAST if reader.is_empty() => return Ok(proposals),
            MORE_PROPOSALS if proposals.len() < PROPOSALS => {}
            MORE_PROPOSALS => return Err(ParseError::TooMany),
            _ => return Err(ParseError::Malformed),
        }
    }
}

pub(super) fn emit(proposals: &[Proposal], out: &mut Vec<u8>) {
    for (index, proposal) in proposals.iter().enumerate() {
        let more = if index + 1 == proposals.len() { LAST } else { MORE_PROPOSALS };
        out.extend([more, 0]);
        let length = Length::begin(out, 2);
        proposal.emit(out);
        length.end(out);
    }
}

impl Proposal {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (number, protocol) = (reader.u8()?, reader.u8()?);
        let (spi_size, count) = (reader.u8()?, reader.u8()?);
        let spi = ProposalSpi::parse(protocol, reader.take(spi_size.into())?)?;
        if usize::from(count) > TRANSFORMS {
            return Err(ParseError::TooMany);
        }
        let mut transforms = Vec::with_capacity(count.into());
        for index in 1..=count {
            transforms.push(Transform::parse(reader, index == count)?);
        }
        if !reader.is_empty() {
            return Err(ParseError::Malformed);
        }
        Ok(Self { number, protocol, spi, transforms })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let count = u8::try_from(self.transforms.len()).expect("a configuration offers fewer than 256");
        out.extend([self.number, self.protocol]);
        match self.spi {
            ProposalSpi::None => out.extend([0, count]),
            ProposalSpi::Child(spi) => {
                out.extend([4, count]);
                out.extend(spi.to_be_bytes());
            }
            ProposalSpi::Ike(spi) => {
                out.extend([8, count]);
                out.extend(spi.to_be_bytes());
            }
        }
        for (index, transform) in self.transforms.iter().enumerate() {
            transform.emit(index + 1 == self.transforms.len(), out);
        }
    }
}

impl ProposalSpi {
    /// The size of an SPI follows from its protocol. The SPI of an unknown protocol is ignored, and such a
    /// proposal is never selected.
    fn parse(protocol: u8, bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        match (protocol, bytes.len()) {
            (protocol::IKE, 0) => Ok(Self::None),
            (protocol::IKE, 8) => reader.u64().map(Self::Ike),
            (protocol::AH | protocol::ESP, 4) => reader.u32().map(Self::Child),
            (protocol::IKE | protocol::AH | protocol::ESP, _) => Err(ParseError::Malformed),
            _ => Ok(Self::None),
        }
    }
}

impl Transform {
    /// A transform without a key length.
    pub const fn new(kind: u8, id: u16) -> Self {
        Self { kind, id, attribute: Attribute::None }
    }

    fn parse(reader: &mut Reader<'_>, is_last: bool) -> Result<Self, ParseError> {
        let more = reader.u8()?;
        if more != if is_last { LAST } else { MORE_TRANSFORMS } {
            return Err(ParseError::Malformed);
        }
        let (_reserved, length) = (reader.u8()?, reader.u16()?);
        let mut body = reader.body(length, 4)?;
        let kind = body.u8()?;
        let (_reserved, id) = (body.u8()?, body.u16()?);
        let mut attribute = Attribute::None;
        while !body.is_empty() {
            attribute = match (attribute, Attribute::parse(&mut body)?) {
                (Attribute::None, next) => next,
                _ => Attribute::Unknown,
            };
        }
        Ok(Self { kind, id, attribute })
    }

    fn emit(self, is_last: bool, out: &mut Vec<u8>) {
        out.extend([if is_last { LAST } else { MORE_TRANSFORMS }, 0]);
        let length = Length::begin(out, 2);
        out.extend([self.kind, 0]);
        out.extend(self.id.to_be_bytes());
        if let Attribute::KeyLength(bits) = self.attribute {
            out.extend((SHORT | transform::KEY_LENGTH).to_be_bytes());
            out.extend(bits.to_be_bytes());
        }
        length.end(out);
    }
}

/// The bit of an attribute whose value stands in place of its length (section 3.3.5).
const SHORT: u16 = 0x8000;

impl Attribute {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (kind, value) = (reader.u16()?, reader.u16()?);
        if kind == SHORT | transform::KEY_LENGTH {
            return Ok(Self::KeyLength(value));
        }
        if kind & SHORT == 0 {
            reader.take(value.into())?;
        }
        Ok(Self::Unknown)
    }
}
