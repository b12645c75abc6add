//! Signature schemes, and the DER that names them in an AUTH payload (RFC 7427, section 3 and appendix A).

use der::asn1::{AnyRef, ObjectIdentifier};
use der::{Decode, Sequence};
use x509_cert::spki::AlgorithmIdentifierRef;

/// A signature algorithm with its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5 with SHA-1. Weak: only for peers without RFC 7427; never used with RFC 7427.
    RsaPkcs1Sha1,
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RsaPkcs1Sha256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RsaPkcs1Sha384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RsaPkcs1Sha512,
    /// RSASSA-PSS with SHA-256, also in MGF1, and a salt of 32 bytes.
    RsaPssSha256,
    /// RSASSA-PSS with SHA-384, also in MGF1, and a salt of 48 bytes.
    RsaPssSha384,
    /// RSASSA-PSS with SHA-512, also in MGF1, and a salt of 64 bytes.
    RsaPssSha512,
    /// ECDSA with SHA-256.
    EcdsaSha256,
    /// ECDSA with SHA-384.
    EcdsaSha384,
    /// ECDSA with SHA-512.
    EcdsaSha512,
    /// Ed25519, which includes its hash (RFC 8420).
    Ed25519,
}

/// Why an AlgorithmIdentifier is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// Not the DER of an AlgorithmIdentifier.
    #[error("the signature's algorithm is malformed")]
    Malformed,
    /// The algorithm is unknown or too weak.
    #[error("the signature algorithm {0} is not supported")]
    Unsupported(String),
    /// The algorithm's parameters are not acceptable.
    #[error("the signature algorithm has the wrong parameters: {0}")]
    Parameters(&'static str),
}

const PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");
const MGF1: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.8");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
const SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.2");
const SHA512: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.3");

impl Scheme {
    /// All schemes.
    pub const ALL: &[Self] = &[
        Self::RsaPkcs1Sha1,
        Self::RsaPkcs1Sha256,
        Self::RsaPkcs1Sha384,
        Self::RsaPkcs1Sha512,
        Self::RsaPssSha256,
        Self::RsaPssSha384,
        Self::RsaPssSha512,
        Self::EcdsaSha256,
        Self::EcdsaSha384,
        Self::EcdsaSha512,
        Self::Ed25519,
    ];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::RsaPkcs1Sha1 => "rsa-pkcs1-sha1",
            Self::RsaPkcs1Sha256 => "rsa-pkcs1-sha256",
            Self::RsaPkcs1Sha384 => "rsa-pkcs1-sha384",
            Self::RsaPkcs1Sha512 => "rsa-pkcs1-sha512",
            Self::RsaPssSha256 => "rsa-pss-sha256",
            Self::RsaPssSha384 => "rsa-pss-sha384",
            Self::RsaPssSha512 => "rsa-pss-sha512",
            Self::EcdsaSha256 => "ecdsa-sha256",
            Self::EcdsaSha384 => "ecdsa-sha384",
            Self::EcdsaSha512 => "ecdsa-sha512",
            Self::Ed25519 => "ed25519",
        }
    }

    /// The hash's number in SIGNATURE_HASH_ALGORITHMS (RFC 7427, section 7); 5, "Identity", for Ed25519 (RFC 8420).
    pub fn hash_id(self) -> u16 {
        match self {
            Self::RsaPkcs1Sha1 => 1,
            Self::RsaPkcs1Sha256 | Self::RsaPssSha256 | Self::EcdsaSha256 => 2,
            Self::RsaPkcs1Sha384 | Self::RsaPssSha384 | Self::EcdsaSha384 => 3,
            Self::RsaPkcs1Sha512 | Self::RsaPssSha512 | Self::EcdsaSha512 => 4,
            Self::Ed25519 => 5,
        }
    }

    /// Whether the algorithm is RSASSA-PKCS1-v1_5.
    pub fn is_pkcs1(self) -> bool {
        matches!(
            self,
            Self::RsaPkcs1Sha1 | Self::RsaPkcs1Sha256 | Self::RsaPkcs1Sha384 | Self::RsaPkcs1Sha512
        )
    }

    /// The DER of the AlgorithmIdentifier, as in RFC 7427, appendix A.
    pub fn to_der(self) -> Vec<u8> {
        match self {
            Self::RsaPkcs1Sha1 => rsa_pkcs1(0x05),
            Self::RsaPkcs1Sha256 => rsa_pkcs1(0x0b),
            Self::RsaPkcs1Sha384 => rsa_pkcs1(0x0c),
            Self::RsaPkcs1Sha512 => rsa_pkcs1(0x0d),
            Self::RsaPssSha256 => rsa_pss(1, 32),
            Self::RsaPssSha384 => rsa_pss(2, 48),
            Self::RsaPssSha512 => rsa_pss(3, 64),
            Self::EcdsaSha256 => ecdsa(2),
            Self::EcdsaSha384 => ecdsa(3),
            Self::EcdsaSha512 => ecdsa(4),
            Self::Ed25519 => vec![0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70],
        }
    }

    /// The scheme for an AlgorithmIdentifier in DER. SHA-1 is refused.
    pub fn from_der(bytes: &[u8]) -> Result<Self, SchemeError> {
        let identifier = AlgorithmIdentifierRef::from_der(bytes).map_err(|_| SchemeError::Malformed)?;
        if identifier.oid == PSS {
            return pss(&identifier);
        }
        let (scheme, may_be_null) = match identifier.oid.to_string().as_str() {
            "1.2.840.113549.1.1.11" => (Self::RsaPkcs1Sha256, true),
            "1.2.840.113549.1.1.12" => (Self::RsaPkcs1Sha384, true),
            "1.2.840.113549.1.1.13" => (Self::RsaPkcs1Sha512, true),
            "1.2.840.10045.4.3.2" => (Self::EcdsaSha256, false),
            "1.2.840.10045.4.3.3" => (Self::EcdsaSha384, false),
            "1.2.840.10045.4.3.4" => (Self::EcdsaSha512, false),
            "1.3.101.112" => (Self::Ed25519, false),
            other => return Err(SchemeError::Unsupported(other.to_owned())),
        };
        match identifier.parameters {
            None => Ok(scheme),
            Some(any) if may_be_null && any.is_null() => Ok(scheme),
            Some(_) => Err(SchemeError::Parameters("there must be none")),
        }
    }
}

fn rsa_pkcs1(last: u8) -> Vec<u8> {
    vec![0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, last, 0x05, 0x00]
}

fn ecdsa(last: u8) -> Vec<u8> {
    vec![0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, last]
}

/// The trailer field has its default value, which DER omits.
fn rsa_pss(hash: u8, salt: u8) -> Vec<u8> {
    let hash = [0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, hash, 0x05, 0x00];
    [
        &[0x30, 0x41, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0a, 0x30, 0x34][..],
        &[0xa0, 0x0f],
        &hash,
        &[0xa1, 0x1c, 0x30, 0x1a, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x08],
        &hash,
        &[0xa2, 0x03, 0x02, 0x01, salt],
    ]
    .concat()
}

/// RSASSA-PSS-params (RFC 8017, appendix A.2.3). The defaults are SHA-1 and a salt of 20 bytes.
#[derive(Sequence)]
struct PssParameters<'a> {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", optional = "true")]
    hash: Option<AlgorithmIdentifierRef<'a>>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", optional = "true")]
    mask: Option<AlgorithmIdentifierRef<'a>>,
    #[asn1(context_specific = "2", tag_mode = "EXPLICIT", optional = "true")]
    salt: Option<u32>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    trailer: Option<u32>,
}

fn pss(identifier: &AlgorithmIdentifierRef<'_>) -> Result<Scheme, SchemeError> {
    let parameters = identifier.parameters.ok_or(SchemeError::Parameters("SHA-1 is not supported"))?;
    let parameters: PssParameters<'_> =
        parameters.decode_as().map_err(|_| SchemeError::Parameters("they are malformed"))?;
    let hash = parameters.hash.ok_or(SchemeError::Parameters("SHA-1 is not supported"))?;
    let mask = parameters.mask.ok_or(SchemeError::Parameters("MGF1 with SHA-1 is not supported"))?;
    let mask_hash = mask.parameters.and_then(|any| any.decode_as::<AlgorithmIdentifierRef<'_>>().ok());
    let same = mask_hash.is_some_and(|mask_hash| mask_hash.oid == hash.oid && is_plain(&mask_hash));
    if mask.oid != MGF1 || !same || !is_plain(&hash) {
        return Err(SchemeError::Parameters("the mask generation function must be MGF1 with the same hash"));
    }
    let (scheme, length) = match hash.oid {
        SHA256 => (Scheme::RsaPssSha256, 32),
        SHA384 => (Scheme::RsaPssSha384, 48),
        SHA512 => (Scheme::RsaPssSha512, 64),
        other => return Err(SchemeError::Unsupported(other.to_string())),
    };
    if parameters.salt != Some(length) {
        return Err(SchemeError::Parameters("the salt must be as long as the hash"));
    }
    if parameters.trailer.unwrap_or(1) != 1 {
        return Err(SchemeError::Parameters("the trailer must be 1"));
    }
    Ok(scheme)
}

/// Whether the parameters of a hash algorithm are absent or NULL.
fn is_plain(hash: &AlgorithmIdentifierRef<'_>) -> bool {
    hash.parameters.is_none_or(AnyRef::is_null)
}
