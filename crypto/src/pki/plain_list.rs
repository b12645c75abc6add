//! Certificate revocation lists without extensions: those of version 1, which rustls-webpki does not take (RFC 5280, section 5.1).
//!
//! `openssl ca -gencrl` makes them unless its configuration names extensions.

use super::signed::Signed;
use super::trust::RevocationListError;
use super::{Certificate, DistinguishedName};
use der::asn1::AnyRef;
use der::{Decode, Encode, Reader, SliceReader, Tag, Tagged};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use x509_cert::time::Time;

/// A list without extensions.
pub struct PlainList {
    issuer: DistinguishedName,
    this_update: Duration,
    next_update: Option<Duration>,
    /// Serial numbers without leading zeros.
    revoked: BTreeSet<Vec<u8>>,
    signed: Signed,
    /// The last key whose signature was checked, and the result: a list may be long, and is needed often.
    checked: Mutex<Option<(Vec<u8>, bool)>>,
}

impl std::fmt::Debug for PlainList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PlainList({}, {} certificates)", self.issuer, self.revoked.len())
    }
}

/// A number without its leading zeros.
fn number(bytes: &[u8]) -> &[u8] {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    &bytes[zeros..]
}

impl PlainList {
    /// Parses a list. One with extensions is refused: they may change what it means.
    pub fn from_der(der: &[u8]) -> Result<Self, RevocationListError> {
        Self::parse(der).map_err(|error| RevocationListError::Unusable(error.to_string()))
    }

    fn parse(der: &[u8]) -> der::Result<Self> {
        let signed = Signed::from_der(der)?;
        let body = AnyRef::from_der(signed.body())?;
        let mut reader = SliceReader::new(body.value())?;
        let mut algorithm = AnyRef::decode(&mut reader)?;
        if algorithm.tag() == Tag::Integer {
            // The version, which those of version 1 leave out.
            algorithm = AnyRef::decode(&mut reader)?;
        }
        algorithm.tag().assert_eq(Tag::Sequence)?;
        let issuer = AnyRef::decode(&mut reader)?.to_der()?;
        let issuer = DistinguishedName::from_der(&issuer)
            .map_err(|_| der::Error::from(Tag::Sequence.value_error()))?;
        let this_update = Time::decode(&mut reader)?.to_unix_duration();
        let (mut next_update, mut revoked) = (None, BTreeSet::new());
        while !reader.is_finished() {
            let part = AnyRef::decode(&mut reader)?;
            match part.tag() {
                Tag::UtcTime | Tag::GeneralizedTime => {
                    next_update = Some(Time::from_der(&part.to_der()?)?.to_unix_duration());
                }
                Tag::Sequence => revoked = serial_numbers(part.value())?,
                other => return Err(other.unexpected_error(Some(Tag::Sequence)).into()),
            }
        }
        let checked = Mutex::default();
        Ok(Self { issuer, this_update, next_update, revoked, signed, checked })
    }

    /// Whether the key of `issuer` has signed it, and is allowed to.
    pub fn is_by(&self, issuer: &Certificate) -> bool {
        if self.issuer != *issuer.subject() || !issuer.may_sign_lists() {
            return false;
        }
        let key = issuer.key().info();
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        match &*checked {
            Some((known, is_by)) if known == key => *is_by,
            _ => {
                let is_by = self.signed.is_by(issuer.key());
                *checked = Some((key.to_vec(), is_by));
                is_by
            }
        }
    }

    /// When it was made, as time since 1970.
    pub fn this_update(&self) -> Duration {
        self.this_update
    }

    /// When the next one is due, if it says so.
    pub fn next_update(&self) -> Option<Duration> {
        self.next_update
    }

    /// Whether it lists a certificate of its issuer.
    pub fn has(&self, certificate: &Certificate) -> bool {
        self.revoked.contains(number(certificate.serial()))
    }
}

/// The serial numbers of revoked certificates.
fn serial_numbers(entries: &[u8]) -> der::Result<BTreeSet<Vec<u8>>> {
    let mut entries = SliceReader::new(entries)?;
    let mut found = BTreeSet::new();
    while !entries.is_finished() {
        let entry = AnyRef::decode(&mut entries)?;
        entry.tag().assert_eq(Tag::Sequence)?;
        let mut parts = SliceReader::new(entry.value())?;
        let serial = AnyRef::decode(&mut parts)?;
        serial.tag().assert_eq(Tag::Integer)?;
        Time::decode(&mut parts)?;
        // Extensions of an entry, which only lists of version 2 have, may name another issuer.
        parts.finish()?;
        found.insert(number(serial.value()).to_vec());
    }
    Ok(found)
}
