//! Types of public keys, and the checks that a key must pass.

use super::Scheme;
use der::asn1::{ObjectIdentifier, UintRef};
use der::{Decode, Sequence};
use std::fmt;
use x509_cert::spki::SubjectPublicKeyInfoRef;

/// The algorithm of a key, with modulus length or curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// RSA.
    Rsa {
        /// Length of the modulus in bits.
        bits: usize,
    },
    /// ECDSA on P-256.
    EcdsaP256,
    /// ECDSA on P-384.
    EcdsaP384,
    /// ECDSA on P-521.
    EcdsaP521,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// The schemes for signing with such a key, in order of preference. ECDSA uses only the hash that fits the curve.
    /// SHA-1 is never among them.
    pub fn schemes(self) -> &'static [Scheme] {
        match self {
            Self::Rsa { .. } => &[
                Scheme::RsaPssSha256,
                Scheme::RsaPssSha384,
                Scheme::RsaPssSha512,
                Scheme::RsaPkcs1Sha256,
                Scheme::RsaPkcs1Sha384,
                Scheme::RsaPkcs1Sha512,
            ],
            Self::EcdsaP256 => &[Scheme::EcdsaSha256],
            Self::EcdsaP384 => &[Scheme::EcdsaSha384],
            Self::EcdsaP521 => &[Scheme::EcdsaSha512],
            Self::Ed25519 => &[Scheme::Ed25519],
        }
    }

    /// Length in bytes of r and of s, and of a coordinate of the public point.
    pub(super) fn coordinate(self) -> Option<usize> {
        match self {
            Self::EcdsaP256 => Some(32),
            Self::EcdsaP384 => Some(48),
            Self::EcdsaP521 => Some(66),
            Self::Rsa { .. } | Self::Ed25519 => None,
        }
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa { bits } => write!(f, "RSA of {bits} bits"),
            Self::EcdsaP256 => f.write_str("ECDSA on P-256"),
            Self::EcdsaP384 => f.write_str("ECDSA on P-384"),
            Self::EcdsaP521 => f.write_str("ECDSA on P-521"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// Why a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The file is neither PEM nor DER.
    #[error("this is neither a PEM nor a DER key")]
    NotAKey,
    /// The file is PEM, but has no private key; the labels that it has.
    #[error("no private key found, only: {0}")]
    OtherContent(String),
    /// The key is encrypted, and a daemon cannot ask for the passphrase.
    #[error(
        "the private key is encrypted; decrypt it first, for example with `openssl pkey -in KEY -out PLAIN`"
    )]
    Encrypted,
    /// The DER is malformed, or its numbers do not make a valid key.
    #[error("the key is damaged")]
    Damaged,
    /// The algorithm or curve is not supported.
    #[error("keys of {0} are not supported, only RSA, ECDSA on P-256, P-384 and P-521, and Ed25519")]
    Unsupported(String),
    /// The RSA modulus is too short to be safe, or too long to be affordable.
    #[error("an RSA key must have 2048 to 8192 bits, this one has {0}")]
    RsaLength(usize),
    /// The RSA public exponent is even, or less than 3.
    #[error("an RSA key must have an odd public exponent of 3 or more")]
    RsaExponent,
}

pub(super) const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
pub(super) const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
pub(super) const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

/// RSAPublicKey (RFC 8017, appendix A.1.1).
#[derive(Sequence)]
struct RsaPublicKey<'a> {
    modulus: UintRef<'a>,
    exponent: UintRef<'a>,
}

/// Reads a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7): the key's kind, and its bytes as AWS-LC takes them.
pub(super) fn of_info(info: &[u8]) -> Result<(KeyKind, Vec<u8>), KeyError> {
    let info = SubjectPublicKeyInfoRef::from_der(info).map_err(|_| KeyError::Damaged)?;
    let bytes = info.subject_public_key.as_bytes().ok_or(KeyError::Damaged)?;
    let kind = match info.algorithm.oid {
        RSA => rsa(bytes)?,
        EC => of_curve(info.algorithm.parameters_oid().map_err(|_| KeyError::Damaged)?)?,
        ED25519 => KeyKind::Ed25519,
        other => return Err(KeyError::Unsupported(other.to_string())),
    };
    Ok((kind, bytes.to_vec()))
}

fn rsa(bytes: &[u8]) -> Result<KeyKind, KeyError> {
    let key = RsaPublicKey::from_der(bytes).map_err(|_| KeyError::Damaged)?;
    check_rsa(key.modulus, key.exponent)
}

/// The kind of an RSA key, if modulus and exponent are acceptable.
pub(super) fn check_rsa(modulus: UintRef<'_>, exponent: UintRef<'_>) -> Result<KeyKind, KeyError> {
    let bits = bits(modulus.as_bytes());
    if !(2048..=8192).contains(&bits) {
        return Err(KeyError::RsaLength(bits));
    }
    match exponent.as_bytes() {
        // Only zero itself begins with a zero byte.
        [] | [0..=2] => Err(KeyError::RsaExponent),
        [.., last] if last & 1 == 0 => Err(KeyError::RsaExponent),
        _ => Ok(KeyKind::Rsa { bits }),
    }
}

/// The kind of a key on a named curve.
pub(super) fn of_curve(curve: ObjectIdentifier) -> Result<KeyKind, KeyError> {
    match curve {
        P256 => Ok(KeyKind::EcdsaP256),
        P384 => Ok(KeyKind::EcdsaP384),
        P521 => Ok(KeyKind::EcdsaP521),
        other => Err(KeyError::Unsupported(format!("the curve {other}"))),
    }
}

fn bits(number: &[u8]) -> usize {
    let zeros = number.first().map_or(0, |first| first.leading_zeros() as usize);
    number.len() * 8 - zeros
}
