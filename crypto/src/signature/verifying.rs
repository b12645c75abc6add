//! Public keys that verify signatures.

use super::key::{self, KeyError, KeyKind};
use super::{Scheme, raw};
use aws_lc_rs::signature::{self as lc, UnparsedPublicKey, VerificationAlgorithm};
use std::fmt;

/// The signature is invalid, or the key does not support the scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature is invalid")]
pub struct NotSigned;

/// A public key. Two keys are equal if kind and key bits are; other parts of the SubjectPublicKeyInfo are not compared.
#[derive(Clone)]
pub struct VerifyingKey {
    kind: KeyKind,
    /// The key as AWS-LC takes it: an RSAPublicKey, a point, or 32 bytes.
    bytes: Vec<u8>,
    info: Vec<u8>,
}

impl VerifyingKey {
    /// Reads a SubjectPublicKeyInfo in DER.
    pub fn from_info(info: &[u8]) -> Result<Self, KeyError> {
        let (kind, bytes) = key::of_info(info)?;
        let key = Self { kind, bytes, info: info.to_vec() };
        let scheme = kind.schemes()[0];
        let algorithm = key.algorithm(scheme).expect("a scheme of this kind");
        // Detect points that are not on the curve now, not at the first signature.
        UnparsedPublicKey::new(algorithm, &key.bytes).parse().map_err(|_| KeyError::Damaged)?;
        Ok(key)
    }

    /// The kind of the key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The SubjectPublicKeyInfo in DER.
    pub fn info(&self) -> &[u8] {
        &self.info
    }

    /// The key bits: an RSAPublicKey, a point, or 32 bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Verifies a signature over `message`. ECDSA signatures are in DER.
    pub fn verify(&self, scheme: Scheme, message: &[u8], signature: &[u8]) -> Result<(), NotSigned> {
        let algorithm = self.algorithm(scheme).ok_or(NotSigned)?;
        UnparsedPublicKey::new(algorithm, &self.bytes).verify(message, signature).map_err(|_| NotSigned)
    }

    /// Verifies r and s of an ECDSA signature over `message`, with the hash that fits the curve: authentication methods
    /// 9, 10 and 11 of IKEv2 (RFC 4754).
    pub fn verify_raw(&self, message: &[u8], signature: &[u8]) -> Result<(), NotSigned> {
        let coordinate = self.kind.coordinate().ok_or(NotSigned)?;
        let signature = raw::to_der(signature, coordinate).ok_or(NotSigned)?;
        self.verify(self.kind.schemes()[0], message, &signature)
    }

    fn algorithm(&self, scheme: Scheme) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self.kind, scheme) {
            (KeyKind::Rsa { .. }, Scheme::RsaPkcs1Sha1) => &lc::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            (KeyKind::Rsa { .. }, Scheme::RsaPkcs1Sha256) => &lc::RSA_PKCS1_2048_8192_SHA256,
            (KeyKind::Rsa { .. }, Scheme::RsaPkcs1Sha384) => &lc::RSA_PKCS1_2048_8192_SHA384,
            (KeyKind::Rsa { .. }, Scheme::RsaPkcs1Sha512) => &lc::RSA_PKCS1_2048_8192_SHA512,
            (KeyKind::Rsa { .. }, Scheme::RsaPssSha256) => &lc::RSA_PSS_2048_8192_SHA256,
            (KeyKind::Rsa { .. }, Scheme::RsaPssSha384) => &lc::RSA_PSS_2048_8192_SHA384,
            (KeyKind::Rsa { .. }, Scheme::RsaPssSha512) => &lc::RSA_PSS_2048_8192_SHA512,
            (KeyKind::EcdsaP256, Scheme::EcdsaSha256) => &lc::ECDSA_P256_SHA256_ASN1,
            (KeyKind::EcdsaP256, Scheme::EcdsaSha384) => &lc::ECDSA_P256_SHA384_ASN1,
            (KeyKind::EcdsaP256, Scheme::EcdsaSha512) => &lc::ECDSA_P256_SHA512_ASN1,
            (KeyKind::EcdsaP384, Scheme::EcdsaSha256) => &lc::ECDSA_P384_SHA256_ASN1,
            (KeyKind::EcdsaP384, Scheme::EcdsaSha384) => &lc::ECDSA_P384_SHA384_ASN1,
            (KeyKind::EcdsaP384, Scheme::EcdsaSha512) => &lc::ECDSA_P384_SHA512_ASN1,
            (KeyKind::EcdsaP521, Scheme::EcdsaSha256) => &lc::ECDSA_P521_SHA256_ASN1,
            (KeyKind::EcdsaP521, Scheme::EcdsaSha384) => &lc::ECDSA_P521_SHA384_ASN1,
            (KeyKind::EcdsaP521, Scheme::EcdsaSha512) => &lc::ECDSA_P521_SHA512_ASN1,
            (KeyKind::Ed25519, Scheme::Ed25519) => &lc::ED25519,
            _ => return None,
        })
    }
}

impl PartialEq for VerifyingKey {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.bytes) == (other.kind, &other.bytes)
    }
}

impl Eq for VerifyingKey {}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({})", self.kind)
    }
}
