//! Payloads, one at a time (RFC 7296 sections 3.3 to 3.16).

use super::numbers::{payload, protocol};
use super::proposal::{self, Proposal};
use super::reader::Reader;
use super::{ParseError, selectors};
use crate::esp::TrafficSelector;

/// A payload, encrypted or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// The offered or the selected algorithms.
    Sa(Vec<Proposal>),
    /// The public value of a key exchange.
    Ke(KeyExchange<'a>),
    /// The identity of the initiator.
    IdI(Identification<'a>),
    /// The identity of the responder, or the one that the initiator asks for.
    IdR(Identification<'a>),
    /// A certificate or a related object.
    Certificate(Certificate<'a>),
    /// A request for certificates.
    CertificateRequest(Certificate<'a>),
    /// The proof of an identity.
    Auth(Authentication<'a>),
    /// A nonce of 16 to 256 bytes.
    Nonce(&'a [u8]),
    /// A notification.
    Notify(Notify<'a>),
    /// Deleted SAs.
    Delete(Delete),
    /// The identity of an implementation.
    VendorId(&'a [u8]),
    /// The traffic selectors of the initiator.
    TsI(Vec<TrafficSelector>),
    /// The traffic selectors of the responder.
    TsR(Vec<TrafficSelector>),
    /// Configuration attributes, such as an internal address.
    Configuration(&'a [u8]),
    /// An EAP message.
    Eap(&'a [u8]),
}

/// A public value (section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyExchange<'a> {
    /// A number of [`group`](super::numbers::group).
    pub group: u16,
    /// The public value.
    pub public: &'a [u8],
}

/// An identity as it is sent (section 3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identification<'a> {
    /// A number of [`identity`](super::numbers::identity).
    pub kind: u8,
    /// The identity; its format depends on the type.
    pub data: &'a [u8],
    /// The whole body of the payload, which is signed.
    pub body: &'a [u8],
}

/// A certificate, or the hashes of authorities in a request (sections 3.6 and 3.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// A number of [`certificate`](super::numbers::certificate).
    pub encoding: u8,
    /// The certificate or the hashes.
    pub data: &'a [u8],
}

/// The proof of an identity (section 3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authentication<'a> {
    /// A number of [`method`](super::numbers::method).
    pub method: u8,
    /// A signature or a MAC.
    pub data: &'a [u8],
}

/// A notification (section 3.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify<'a> {
    /// A number of [`notify`](super::numbers::notify).
    pub kind: u16,
    /// The protocol and the SPI of the Child SA concerned.
    pub spi: Option<(u8, u32)>,
    /// The data; the format depends on the type.
    pub data: &'a [u8],
}

/// Deleted SAs (section 3.11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delete {
    /// The IKE SA that the message is sent in.
    Ike,
    /// ESP SAs, by their inbound SPIs at the sender.
    Esp(Vec<u32>),
    /// AH SAs.
    Ah(Vec<u32>),
}

impl<'a> Payload<'a> {
    /// Reads the body of a payload; `None` for an unknown type.
    pub(super) fn parse(kind: u8, body: &'a [u8]) -> Result<Option<Self>, ParseError> {
        let mut reader = Reader::new(body);
        Ok(Some(match kind {
            payload::SA => Self::Sa(proposal::parse(body)?),
            payload::KE => Self::Ke(KeyExchange::parse(&mut reader)?),
            payload::IDI => Self::IdI(Identification::parse(body)?),
            payload::IDR => Self::IdR(Identification::parse(body)?),
            payload::CERT => Self::Certificate(Certificate::parse(&mut reader)?),
            payload::CERTREQ => Self::CertificateRequest(Certificate::parse(&mut reader)?),
            payload::AUTH => Self::Auth(Authentication::parse(&mut reader)?),
            payload::NONCE => Self::Nonce(nonce(body)?),
            payload::NOTIFY => Self::Notify(Notify::parse(&mut reader)?),
            payload::DELETE => Self::Delete(Delete::parse(&mut reader)?),
            payload::VENDOR_ID => Self::VendorId(body),
            payload::TSI => Self::TsI(selectors::parse(body)?),
            payload::TSR => Self::TsR(selectors::parse(body)?),
            payload::CP => Self::Configuration(body),
            payload::EAP => Self::Eap(body),
            _ => return Ok(None),
        }))
    }

    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Sa(_) => payload::SA,
            Self::Ke(_) => payload::KE,
            Self::IdI(_) => payload::IDI,
            Self::IdR(_) => payload::IDR,
            Self::Certificate(_) => payload::CERT,
            Self::CertificateRequest(_) => payload::CERTREQ,
            Self::Auth(_) => payload::AUTH,
            Self::Nonce(_) => payload::NONCE,
            Self::Notify(_) => payload::NOTIFY,
            Self::Delete(_) => payload::DELETE,
            Self::VendorId(_) => payload::VENDOR_ID,
            Self::TsI(_) => payload::TSI,
            Self::TsR(_) => payload::TSR,
            Self::Configuration(_) => payload::CP,
            Self::Eap(_) => payload::EAP,
        }
    }

    /// Writes the body.
    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        match self {
            Self::Sa(proposals) => proposal::emit(proposals, out),
            Self::Ke(exchange) => exchange.emit(out),
            Self::IdI(identification) | Self::IdR(identification) => out.extend(identification.body),
            Self::Certificate(Certificate { encoding, data })
            | Self::CertificateRequest(Certificate { encoding, data }) => {
                out.push(*encoding);
                out.extend(*data);
            }
            Self::Auth(authentication) => authentication.emit(out),
            Self::Notify(notify) => notify.emit(out),
            Self::Delete(delete) => delete.emit(out),
            Self::TsI(list) | Self::TsR(list) => selectors::emit(list, out),
            Self::Nonce(bytes) | Self::VendorId(bytes) | Self::Configuration(bytes) | Self::Eap(bytes) => {
                out.extend(*bytes);
            }
        }
    }
}

impl<'a> KeyExchange<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, ParseError> {
        let (group, _reserved) = (reader.u16()?, reader.u16()?);
        Ok(Self { group, public: reader.rest() })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend(self.group.to_be_bytes());
        out.extend([0; 2]);
        out.extend(self.public);
    }
}

impl<'a> Identification<'a> {
    /// Reads the body of a payload: type, three reserved bytes, data.
    pub fn parse(body: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(body);
        let kind = reader.u8()?;
        reader.take(3)?;
        Ok(Self { kind, data: reader.rest(), body })
    }
}

impl<'a> Certificate<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, ParseError> {
        Ok(Self { encoding: reader.u8()?, data: reader.rest() })
    }
}

impl<'a> Authentication<'a> {
    fn parse(reader: &mut Reader<'a>) -> Result<Self, ParseError> {
        let method = reader.u8()?;
        reader.take(3)?;
        Ok(Self { method, data: reader.rest() })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        out.extend([self.method, 0, 0, 0]);
        out.extend(self.data);
    }
}

impl<'a> Notify<'a> {
    /// A notification without a Child SA.
    pub fn new(kind: u16, data: &'a [u8]) -> Self {
        Self { kind, spi: None, data }
    }

    fn parse(reader: &mut Reader<'a>) -> Result<Self, ParseError> {
        let (protocol, spi_size, kind) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let spi = reader.take(spi_size.into())?;
        let spi = match (protocol, spi.len()) {
            (protocol::AH | protocol::ESP, 4) => Some((protocol, Reader::new(spi).u32()?)),
            // Section 3.10: without an SPI, the protocol is sent as zero and ignored. SPIs of other protocols are
            // ignored as well.
            _ => None,
        };
        Ok(Self { kind, spi, data: reader.rest() })
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let (protocol, size) = self.spi.map_or((protocol::NONE, 0), |(protocol, _)| (protocol, 4));
        out.extend([protocol, size]);
        out.extend(self.kind.to_be_bytes());
        if let Some((_, spi)) = self.spi {
            out.extend(spi.to_be_bytes());
        }
        out.extend(self.data);
    }
}

impl Delete {
    fn parse(reader: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (protocol, size, count) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let rest = reader.rest();
        match (protocol, size) {
            (protocol::IKE, 0) if count == 0 && rest.is_empty() => Ok(Self::Ike),
            (protocol::ESP | protocol::AH, 4) if rest.len() == usize::from(count) * 4 => {
                let spis = rest.as_chunks().0.iter().map(|&spi| u32::from_be_bytes(spi)).collect();
                Ok(if protocol == protocol::ESP { Self::Esp(spis) } else { Self::Ah(spis) })
            }
            _ => Err(ParseError::Malformed),
        }
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let (protocol, size, spis): (u8, u8, &[u32]) = match self {
            Self::Ike => (protocol::IKE, 0, &[]),
            Self::Esp(spis) => (protocol::ESP, 4, spis),
            Self::Ah(spis) => (protocol::AH, 4, spis),
        };
        out.extend([protocol, size]);
        out.extend(u16::try_from(spis.len()).expect("we delete few at once").to_be_bytes());
        out.extend(spis.iter().flat_map(|spi| spi.to_be_bytes()));
    }
}

/// Section 2.10 requires at least 16 bytes, section 3.9 allows up to 256.
fn nonce(body: &[u8]) -> Result<&[u8], ParseError> {
    if (16..=256).contains(&body.len()) { Ok(body) } else { Err(ParseError::Malformed) }
}
