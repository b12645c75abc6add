//! The signed structure of certificates, CRLs and OCSP responses: a body, an algorithm, a signature.

use crate::signature::{Scheme, VerifyingKey};
use der::asn1::{AnyRef, BitStringRef};
use der::{Decode, Encode, Header, Reader, SliceReader, Tag};
use std::time::Duration;

/// How far an issuer's clock may be ahead of ours.
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// A signed structure.
pub(super) struct Signed {
    body: Vec<u8>,
    algorithm: Vec<u8>,
    signature: Vec<u8>,
}

impl Signed {
    /// Splits a SEQUENCE into its parts and ignores elements after the signature.
    pub(super) fn from_der(der: &[u8]) -> der::Result<Self> {
        let mut reader = SliceReader::new(der)?;
        let header = Header::decode(&mut reader)?;
        header.tag().assert_eq(Tag::Sequence)?;
        let mut inside = SliceReader::new(reader.read_slice(header.length())?)?;
        Ok(Self {
            body: inside.tlv_bytes()?.to_vec(),
            algorithm: AnyRef::decode(&mut inside)?.to_der()?,
            signature: BitStringRef::decode(&mut inside)?.raw_bytes().to_vec(),
        })
    }

    /// The body, with its tag.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Whether `key` has made the signature, with an algorithm that is not weak.
    pub(super) fn is_by(&self, key: &VerifyingKey) -> bool {
        let scheme = Scheme::from_der(&self.algorithm).ok().filter(|scheme| *scheme != Scheme::RsaPkcs1Sha1);
        scheme.is_some_and(|scheme| key.verify(scheme, &self.body, &self.signature).is_ok())
    }
}
