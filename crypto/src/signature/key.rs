//! What kinds of keys there are, and what is wrong with a key.

use super::Scheme;
use der::asn1::{ObjectIdentifier, UintRef};
use der::{Decode, Sequence};
use std::fmt;
use x509_cert::spki::SubjectPublicKeyInfoRef;

/// What a key is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyKind {
    /// RSA, with a modulus of so many bits.
    Rsa {
        /// Bits of the modulus.
        bits: usize,
    },
    /// The curve P-256.
    EcdsaP256,
    /// The curve P-384.
    EcdsaP384,
    /// The curve P-521.
    EcdsaP521,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// What its keys can sign with, the best first: on a curve only with the hash that fits it, and never with SHA-1.
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

    /// Bytes of each of the two numbers of a signature, and of a coordinate of the public point.
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

/// Why a key is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is no PEM, or its base64 is damaged.
    #[error("this is neither PEM nor DER of a key")]
    NotAKey,
    /// There is PEM, but no private key in it.
    #[error("there is no private key in it, but: {0}")]
    OtherContent(String),
    /// The key has a passphrase, which a daemon cannot ask for.
    #[error(
        "the private key is encrypted; decrypt it first, for example with `openssl pkey -in KEY -out PLAIN`"
    )]
    Encrypted,
    /// The DER is damaged, or its numbers do not belong together.
    #[error("the key is damaged")]
    Damaged,
    /// An algorithm or a curve that is not known.
    #[error("keys of {0} are not supported, only RSA, ECDSA on P-256, P-384 and P-521, and Ed25519")]
    Unsupported(String),
    /// An RSA modulus of a length that is not safe, or too costly.
    #[error("an RSA key must have 2048 to 8192 bits, this one has {0}")]
    RsaLength(usize),
    /// An RSA exponent that encrypts nothing.
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

/// The kind of a key and the bytes that AWS-LC takes, of a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
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

/// The kind of an RSA key, if it is safe to use.
pub(super) fn check_rsa(modulus: UintRef<'_>, exponent: UintRef<'_>) -> Result<KeyKind, KeyError> {
    let bits = bits(modulus.as_bytes());
    if !(2048..=8192).contains(&bits) {
        return Err(KeyError::RsaLength(bits));
    }
    match exponent.as_bytes() {
        // There are no leading zeros, but for zero itself.
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
