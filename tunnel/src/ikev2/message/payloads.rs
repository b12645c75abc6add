//! The payloads of a whole message.

use super::numbers::payload;
use super::payload::{Authentication, Certificate, Delete, Identification, KeyExchange, Notify, Payload};
use super::proposal::Proposal;
use super::reader::Reader;
use super::{Length, ParseError};
use crate::esp::TrafficSelector;

/// The maximum number of payloads in a message.
const PAYLOADS: usize = 128;

/// The critical bit: the payload must not be skipped if its type is unknown (section 2.5).
const CRITICAL: u8 = 0x80;

/// The payloads of a message by type. Their order carries no meaning, and payloads that may occur only once do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payloads<'a> {
    /// Security Association.
    pub sa: Option<Vec<Proposal>>,
    /// Key Exchange.
    pub ke: Option<KeyExchange<'a>>,
    /// Identification of the initiator.
    pub id_i: Option<Identification<'a>>,
    /// Identification of the responder.
    pub id_r: Option<Identification<'a>>,
    /// Certificates, the sender's own first.
    pub certificates: Vec<Certificate<'a>>,
    /// Certificate requests.
    pub certificate_requests: Vec<Certificate<'a>>,
    /// Authentication.
    pub auth: Option<Authentication<'a>>,
    /// Nonce.
    pub nonce: Option<&'a [u8]>,
    /// Notifications.
    pub notifies: Vec<Notify<'a>>,
    /// Deletions.
    pub deletes: Vec<Delete>,
    /// Vendor IDs.
    pub vendor_ids: Vec<&'a [u8]>,
    /// Traffic selectors of the initiator.
    pub ts_i: Option<Vec<TrafficSelector>>,
    /// Traffic selectors of the responder.
    pub ts_r: Option<Vec<TrafficSelector>>,
    /// Configuration.
    pub configuration: Option<&'a [u8]>,
    /// Extensible Authentication.
    pub eap: Option<&'a [u8]>,
}

impl<'a> Payloads<'a> {
    /// Reads a chain of payloads, the first of which is of type `first`.
    pub fn parse(first: u8, bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (mut kind, mut reader, mut payloads) = (first, Reader::new(bytes), Self::default());
        for _ in 0..PAYLOADS {
            if kind == payload::NONE {
                return if reader.is_empty() { Ok(payloads) } else { Err(ParseError::Malformed) };
            }
            let (next, flags, length) = (reader.u8()?, reader.u8()?, reader.u16()?);
            let body = reader.body(length, 4)?.rest();
            match Payload::parse(kind, body)? {
                Some(payload) => payloads.add(payload)?,
                // An encrypted payload is the last one, and must not be inside another.
                None if matches!(kind, payload::SK | payload::SKF) => return Err(ParseError::Misplaced),
                None if flags & CRITICAL != 0 => return Err(ParseError::UnsupportedCritical(kind)),
                None => {}
            }
            kind = next;
        }
        Err(ParseError::TooMany)
    }

    fn add(&mut self, payload: Payload<'a>) -> Result<(), ParseError> {
        match payload {
            Payload::Sa(value) => once(&mut self.sa, value)?,
            Payload::Ke(value) => once(&mut self.ke, value)?,
            Payload::IdI(value) => once(&mut self.id_i, value)?,
            Payload::IdR(value) => once(&mut self.id_r, value)?,
            Payload::Certificate(value) => self.certificates.push(value),
            Payload::CertificateRequest(value) => self.certificate_requests.push(value),
            Payload::Auth(value) => once(&mut self.auth, value)?,
            Payload::Nonce(value) => once(&mut self.nonce, value)?,
            Payload::Notify(value) => self.notifies.push(value),
            Payload::Delete(value) => self.deletes.push(value),
            Payload::VendorId(value) => self.vendor_ids.push(value),
            Payload::TsI(value) => once(&mut self.ts_i, value)?,
            Payload::TsR(value) => once(&mut self.ts_r, value)?,
            Payload::Configuration(value) => once(&mut self.configuration, value)?,
            Payload::Eap(value) => once(&mut self.eap, value)?,
        }
        Ok(())
    }

    /// The payloads one by one, in the order of their types.
    pub fn into_list(self) -> Vec<Payload<'a>> {
        let mut list = Vec::new();
        list.extend(self.sa.map(Payload::Sa));
        list.extend(self.ke.map(Payload::Ke));
        list.extend(self.id_i.map(Payload::IdI));
        list.extend(self.id_r.map(Payload::IdR));
        list.extend(self.certificates.into_iter().map(Payload::Certificate));
        list.extend(self.certificate_requests.into_iter().map(Payload::CertificateRequest));
        list.extend(self.auth.map(Payload::Auth));
        list.extend(self.nonce.map(Payload::Nonce));
        list.extend(self.notifies.into_iter().map(Payload::Notify));
        list.extend(self.deletes.into_iter().map(Payload::Delete));
        list.extend(self.vendor_ids.into_iter().map(Payload::VendorId));
        list.extend(self.ts_i.map(Payload::TsI));
        list.extend(self.ts_r.map(Payload::TsR));
        list.extend(self.configuration.map(Payload::Configuration));
        list.extend(self.eap.map(Payload::Eap));
        list
    }

    /// The first notification of a type.
    pub fn notify(&self, kind: u16) -> Option<&Notify<'a>> {
        self.notifies.iter().find(|notify| notify.kind == kind)
    }

    /// The type of the first notification that reports an error.
    pub fn error(&self) -> Option<u16> {
        let mut kinds = self.notifies.iter().map(|notify| notify.kind);
        kinds.find(|&kind| super::numbers::notify::is_error(kind))
    }
}

fn once<T>(place: &mut Option<T>, value: T) -> Result<(), ParseError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ParseError::Misplaced),
    }
}

/// Writes a chain of payloads; also returns the type of the first.
pub fn emit(payloads: &[Payload<'_>]) -> (u8, Vec<u8>) {
    let mut out = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        out.extend([payloads.get(index + 1).map_or(payload::NONE, Payload::kind), 0]);
        let length = Length::begin(&mut out, 2);
        payload.emit(&mut out);
        length.end(&mut out);
    }
    (payloads.first().map_or(payload::NONE, Payload::kind), out)
}
