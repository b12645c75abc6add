//! The fixed header of every message (RFC 7296 section 3.1).

use super::ParseError;
use super::reader::Reader;

/// The exchange type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exchange {
    /// Key exchange.
    IkeSaInit,
    /// Authentication.
    IkeAuth,
    /// A Child SA is made, or an SA rekeyed.
    CreateChildSa,
    /// Deletions, notifications and liveness checks.
    Informational,
    /// An unknown type.
    Other(u8),
}

impl Exchange {
    fn from_number(number: u8) -> Self {
        match number {
            34 => Self::IkeSaInit,
            35 => Self::IkeAuth,
            36 => Self::CreateChildSa,
            37 => Self::Informational,
            other => Self::Other(other),
        }
    }

    /// Its number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Self::IkeSaInit => 34,
            Self::IkeAuth => 35,
            Self::CreateChildSa => 36,
            Self::Informational => 37,
            Self::Other(number) => number,
        }
    }
}

const INITIATOR: u8 = 0x08;
const RESPONSE: u8 = 0x20;

/// The header of a message, without version and length, which are checked and computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Chosen by the initiator of the IKE SA; never zero.
    pub initiator_spi: u64,
    /// Chosen by the responder; zero in the first message.
    pub responder_spi: u64,
    /// The exchange type.
    pub exchange: Exchange,
    /// Whether the sender is the initiator of the IKE SA.
    pub from_initiator: bool,
    /// Whether the message is the response to the request with the same message ID.
    pub is_response: bool,
    /// The message ID: counts the requests of one side.
    pub message_id: u32,
}

impl Header {
    /// Bytes of a header.
    pub const LENGTH: usize = 28;

    /// Reads the header of a datagram; also returns the type of the first payload, and the payloads.
    pub fn parse(datagram: &[u8]) -> Result<(Self, u8, &[u8]), ParseError> {
        Self::parse_of(datagram, |major| major == 2)
    }

    /// The same for a later version, whose header has the same layout (section 2.5).
    pub fn parse_later(datagram: &[u8]) -> Result<(Self, u8, &[u8]), ParseError> {
        Self::parse_of(datagram, |major| major > 2)
    }

    /// The same for IKEv1 (RFC 2408 section 3.1), which has other exchange types and no initiator flag.
    pub fn parse_version_1(datagram: &[u8]) -> Result<(Self, u8, &[u8]), ParseError> {
        let (header, first, rest) = Self::parse_of(datagram, |major| major == 1)?;
        // A first message comes from the initiator.
        Ok((Self { from_initiator: true, ..header }, first, rest))
    }

    fn parse_of(
        datagram: &[u8],
        is_version: impl FnOnce(u8) -> bool,
    ) -> Result<(Self, u8, &[u8]), ParseError> {
        let mut reader = Reader::new(datagram);
        let (initiator_spi, responder_spi) = (reader.u64()?, reader.u64()?);
        let (first, version) = (reader.u8()?, reader.u8()?);
        let exchange = Exchange::from_number(reader.u8()?);
        let flags = reader.u8()?;
        let (message_id, length) = (reader.u32()?, reader.u32()?);
        let header = Self {
            initiator_spi,
            responder_spi,
            exchange,
            from_initiator: flags & INITIATOR != 0,
            is_response: flags & RESPONSE != 0,
            message_id,
        };
        // Section 2.5: minor versions differ only in parts that may be ignored.
        if !is_version(version >> 4) {
            return Err(ParseError::MajorVersion(version >> 4));
        }
        if length as usize != datagram.len() {
            return Err(ParseError::Length);
        }
        if initiator_spi == 0 {
            return Err(ParseError::ZeroSpi);
        }
        Ok((header, first, reader.rest()))
    }

    /// Writes the header of a message whose payloads take `payloads` bytes, the first of which is of type `first`.
    pub fn emit(&self, first: u8, payloads: usize) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        let flags =
            if self.from_initiator { INITIATOR } else { 0 } | if self.is_response { RESPONSE } else { 0 };
        bytes[..8].copy_from_slice(&self.initiator_spi.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.responder_spi.to_be_bytes());
        bytes[16..20].copy_from_slice(&[first, 0x20, self.exchange.number(), flags]);
        bytes[20..24].copy_from_slice(&self.message_id.to_be_bytes());
        bytes[24..].copy_from_slice(&((Self::LENGTH + payloads) as u32).to_be_bytes());
        bytes
    }

    /// The header of the response to a request with this header.
    #[must_use]
    pub fn response(&self) -> Self {
        Self { from_initiator: !self.from_initiator, is_response: true, ..*self }
    }
}
