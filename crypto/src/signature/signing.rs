//! Private keys, read from files.

use super::key::{self, KeyError, KeyKind};
use super::{Scheme, VerifyingKey, raw};
use crate::SecretBytes;
use crate::engine::rsa_sha1;
use crate::pem::{self, Section};
use aws_lc_rs::digest;
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaEncoding};
use der::asn1::{AnyRef, ObjectIdentifier, OctetStringRef, UintRef};
use der::{Decode, SliceReader, Tag, Tagged};
use std::fmt;
use x509_cert::spki::AlgorithmIdentifierRef;

/// Why signing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The key's algorithm, or its curve, does not allow the scheme.
    #[error("a key of {key} does not sign with {scheme}", scheme = scheme.name())]
    Scheme {
        /// The kind of the key.
        key: KeyKind,
        /// The requested scheme.
        scheme: Scheme,
    },
    /// The crypto library failed.
    #[error("signing failed")]
    Failed,
}

/// A private key.
pub struct SigningKey {
    secret: SecretKey,
    public: VerifyingKey,
}

enum SecretKey {
    /// With the DER of the RSAPrivateKey, for SHA-1 signatures, which the safe interface of AWS-LC does not make.
    Rsa(rsa::KeyPair, SecretBytes),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// Reads the first private key of a file: PEM, DER or bare base64, of PKCS#8 (RFC 5958), PKCS#1 (RFC 8017) or SEC 1
    /// (RFC 5915), not encrypted.
    pub fn from_file(bytes: &[u8]) -> Result<Self, KeyError> {
        let sections = pem::read(bytes).map_err(|_| KeyError::NotAKey)?;
        let is_private =
            |section: &&Section| section.label.is_empty() || section.label.ends_with("PRIVATE KEY");
        let Some(section) = sections.iter().find(is_private) else {
            let labels: Vec<&str> = sections.iter().map(|section| section.label.as_str()).collect();
            return Err(KeyError::OtherContent(labels.join(", ")));
        };
        if section.encrypted { Err(KeyError::Encrypted) } else { Self::from_der(section.der.expose()) }
    }

    /// Reads a private key in DER. The element after the version tells PKCS#8, PKCS#1 and SEC 1 apart.
    pub fn from_der(bytes: &[u8]) -> Result<Self, KeyError> {
        let mut reader = body(bytes).map_err(|_| KeyError::NotAKey)?;
        let mut next = || AnyRef::decode(&mut reader).map(|any| any.tag()).map_err(|_| KeyError::NotAKey);
        match (next()?, next()?) {
            (Tag::Integer, Tag::Sequence) => Self::from_pkcs8(bytes),
            (Tag::Integer, Tag::Integer) => Self::from_pkcs1(bytes),
            (Tag::Integer, Tag::OctetString) => Self::from_sec1(bytes),
            (Tag::Sequence, Tag::OctetString) => Err(KeyError::Encrypted),
            _ => Err(KeyError::NotAKey),
        }
    }

    fn from_pkcs8(bytes: &[u8]) -> Result<Self, KeyError> {
        let (algorithm, inner) = pkcs8(bytes).map_err(|_| KeyError::Damaged)?;
        match algorithm.oid {
            key::RSA => Self::from_pkcs1(inner),
            key::EC => {
                let curve = algorithm.parameters_oid().map_err(|_| KeyError::Damaged)?;
                Self::of_curve(curve, bytes)
            }
            key::ED25519 => {
                let pair =
                    Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes).map_err(|_| KeyError::Damaged)?;
                let info = pair.public_key().as_der();
                Self::new(info, SecretKey::Ed25519(pair))
            }
            other => Err(KeyError::Unsupported(other.to_string())),
        }
    }

    fn from_pkcs1(bytes: &[u8]) -> Result<Self, KeyError> {
        let (modulus, exponent) = pkcs1(bytes).map_err(|_| KeyError::Damaged)?;
        key::check_rsa(modulus, exponent)?;
        let pair = rsa::KeyPair::from_der(bytes).map_err(|_| KeyError::Damaged)?;
        let info = pair.public_key().as_der();
        Self::new(info, SecretKey::Rsa(pair, SecretBytes::new(bytes.to_vec())))
    }

    fn from_sec1(bytes: &[u8]) -> Result<Self, KeyError> {
        let curve = sec1(bytes).map_err(|_| KeyError::Damaged)?;
        Self::of_curve(curve, bytes)
    }

    fn of_curve(curve: ObjectIdentifier, bytes: &[u8]) -> Result<Self, KeyError> {
        let algorithm = match key::of_curve(curve)? {
            KeyKind::EcdsaP256 => &lc::ECDSA_P256_SHA256_ASN1_SIGNING,
            KeyKind::EcdsaP384 => &lc::ECDSA_P384_SHA384_ASN1_SIGNING,
            _ => &lc::ECDSA_P521_SHA512_ASN1_SIGNING,
        };
        let pair = EcdsaKeyPair::from_private_key_der(algorithm, bytes).map_err(|_| KeyError::Damaged)?;
        let info = pair.public_key().as_der();
        Self::new(info, SecretKey::Ecdsa(pair))
    }

    fn new(
        info: Result<PublicKeyX509Der<'_>, aws_lc_rs::error::Unspecified>,
        secret: SecretKey,
    ) -> Result<Self, KeyError> {
        let info = info.map_err(|_| KeyError::Damaged)?;
        Ok(Self { secret, public: VerifyingKey::from_info(info.as_ref())? })
    }

    /// The public key.
    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }

    /// The preferred scheme for a peer that announced `hashes`, its numbers in SIGNATURE_HASH_ALGORITHMS (RFC 7427,
    /// section 4), and that signed with `theirs`, if it has signed.
    ///
    /// The numbers do not tell RSA paddings apart, and some peers support only PKCS#1. So a peer that signs with PKCS#1
    /// gets PKCS#1.
    pub fn scheme_for(&self, hashes: &[u16], theirs: Option<Scheme>) -> Option<Scheme> {
        let wants_pkcs1 = theirs.is_some_and(Scheme::is_pkcs1);
        let schemes = self.public.kind().schemes().iter().copied();
        let common = schemes.filter(|scheme| hashes.contains(&scheme.hash_id()));
        // `min_by_key` returns the first of equal elements.
        common.min_by_key(|scheme| scheme.is_pkcs1() != wants_pkcs1)
    }

    /// Signs `message`. ECDSA signatures are in DER.
    pub fn sign(&self, scheme: Scheme, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let kind = self.public.kind();
        let ours = kind.schemes().contains(&scheme);
        let failed = |_| SignError::Failed;
        match (&self.secret, scheme) {
            (SecretKey::Rsa(_, secret), Scheme::RsaPkcs1Sha1) => {
                let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, message);
                rsa_sha1::sign(secret.expose(), digest.as_ref()).ok_or(SignError::Failed)
            }
            (SecretKey::Rsa(pair, _), _) if ours => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(rsa_encoding(scheme), &SystemRandom::new(), message, &mut signature)
                    .map_err(failed)?;
                Ok(signature)
            }
            (SecretKey::Ecdsa(pair), _) if ours => {
                let signature = pair.sign(&SystemRandom::new(), message).map_err(failed)?;
                Ok(signature.as_ref().to_vec())
            }
            (SecretKey::Ed25519(pair), _) if ours => {
                Ok(pair.try_sign(message).map_err(failed)?.as_ref().to_vec())
            }
            _ => Err(SignError::Scheme { key: kind, scheme }),
        }
    }

    /// Signs `message` with the hash that fits the curve, and returns r and s concatenated: authentication methods 9,
    /// 10 and 11 of IKEv2 (RFC 4754).
    pub fn sign_raw(&self, message: &[u8]) -> Result<Vec<u8>, SignError> {
        let kind = self.public.kind();
        let scheme = kind.schemes()[0];
        let coordinate =
            kind.coordinate().ok_or(SignError::Scheme { key: kind, scheme: Scheme::EcdsaSha256 })?;
        raw::from_der(&self.sign(scheme, message)?, coordinate).ok_or(SignError::Failed)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.kind())
    }
}

fn rsa_encoding(scheme: Scheme) -> &'static dyn RsaEncoding {
    match scheme {
        Scheme::RsaPkcs1Sha256 => &lc::RSA_PKCS1_SHA256,
        Scheme::RsaPkcs1Sha384 => &lc::RSA_PKCS1_SHA384,
        Scheme::RsaPkcs1Sha512 => &lc::RSA_PKCS1_SHA512,
        Scheme::RsaPssSha384 => &lc::RSA_PSS_SHA384,
        Scheme::RsaPssSha512 => &lc::RSA_PSS_SHA512,
        _ => &lc::RSA_PSS_SHA256,
    }
}

/// The contents of a SEQUENCE.
fn body(bytes: &[u8]) -> der::Result<SliceReader<'_>> {
    SliceReader::new(AnyRef::from_der(bytes)?.value())
}

/// Reads a PrivateKeyInfo: algorithm and private key.
fn pkcs8(bytes: &[u8]) -> der::Result<(AlgorithmIdentifierRef<'_>, &[u8])> {
    let mut reader = body(bytes)?;
    u8::decode(&mut reader)?;
    let algorithm = AlgorithmIdentifierRef::decode(&mut reader)?;
    Ok((algorithm, <&OctetStringRef>::decode(&mut reader)?.as_bytes()))
}

/// Reads an RSAPrivateKey: modulus and public exponent.
fn pkcs1(bytes: &[u8]) -> der::Result<(UintRef<'_>, UintRef<'_>)> {
    let mut reader = body(bytes)?;
    u8::decode(&mut reader)?;
    Ok((UintRef::decode(&mut reader)?, UintRef::decode(&mut reader)?))
}

/// Reads an ECPrivateKey: the curve.
fn sec1(bytes: &[u8]) -> der::Result<ObjectIdentifier> {
    let mut reader = body(bytes)?;
    u8::decode(&mut reader)?;
    <&OctetStringRef>::decode(&mut reader)?;
    let parameters = AnyRef::decode(&mut reader)?;
    parameters.tag().assert_eq(Tag::ContextSpecific { constructed: true, number: der::TagNumber(0) })?;
    ObjectIdentifier::from_der(parameters.value())
}
