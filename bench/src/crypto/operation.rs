//! The operations of handshakes: signatures and key agreements, by AWS-LC.

use aws_lc_rs::agreement::{self, UnparsedPublicKey};
use aws_lc_rs::kem::{Ciphertext, DecapsulationKey, ML_KEM_768};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1,
    ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, VerificationAlgorithm,
};
use std::sync::Arc;

/// A key type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// RSA with a modulus of 2048 bits.
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// ECDSA over P-256.
    EcdsaP256,
    /// ECDSA over P-384.
    EcdsaP384,
    /// Ed25519.
    Ed25519,
    /// X25519.
    X25519,
    /// ML-KEM-768.
    MlKem768,
}

/// An operation with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sign a message.
    Sign,
    /// Verify a signature.
    Verify,
    /// Generate a key pair.
    Generate,
    /// Compute a shared secret.
    Agree,
    /// KEM encapsulation.
    Encapsulate,
    /// KEM decapsulation.
    Decapsulate,
}

/// An operation of handshakes, with its key type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    key: KeyKind,
    action: Action,
}

const fn op(key: KeyKind, action: Action) -> Operation {
    Operation { key, action }
}

/// Runs the operation once; `None` if it failed.
pub(super) type Step = Arc<dyn Fn() -> Option<()> + Send + Sync>;

/// The message that is signed.
const MESSAGE: &[u8] = b"the octets that IKE_AUTH signs are about as many as these, once they are hashed";

impl Operation {
    /// All operations.
    pub const ALL: &[Self] = &[
        op(KeyKind::Rsa2048, Action::Sign),
        op(KeyKind::Rsa2048, Action::Verify),
        op(KeyKind::Rsa3072, Action::Sign),
        op(KeyKind::Rsa3072, Action::Verify),
        op(KeyKind::EcdsaP256, Action::Sign),
        op(KeyKind::EcdsaP256, Action::Verify),
        op(KeyKind::EcdsaP384, Action::Sign),
        op(KeyKind::EcdsaP384, Action::Verify),
        op(KeyKind::Ed25519, Action::Sign),
        op(KeyKind::Ed25519, Action::Verify),
        op(KeyKind::X25519, Action::Generate),
        op(KeyKind::X25519, Action::Agree),
        op(KeyKind::MlKem768, Action::Generate),
        op(KeyKind::MlKem768, Action::Encapsulate),
        op(KeyKind::MlKem768, Action::Decapsulate),
    ];

    /// The name used in commands and reports.
    pub fn name(self) -> String {
        let key = match self.key {
            KeyKind::Rsa2048 => "rsa-2048",
            KeyKind::Rsa3072 => "rsa-3072",
            KeyKind::EcdsaP256 => "ecdsa-p256",
            KeyKind::EcdsaP384 => "ecdsa-p384",
            KeyKind::Ed25519 => "ed25519",
            KeyKind::X25519 => "x25519",
            KeyKind::MlKem768 => "ml-kem-768",
        };
        let action = match self.action {
            Action::Sign => "sign",
            Action::Verify => "verify",
            Action::Generate => "generate",
            Action::Agree => "agree",
            Action::Encapsulate => "encapsulate",
            Action::Decapsulate => "decapsulate",
        };
        format!("{key} {action}")
    }

    /// Generates the keys; `None` if the library cannot.
    pub(super) fn prepare(self) -> Option<Step> {
        let signs = self.action == Action::Sign;
        match self.key {
            KeyKind::Rsa2048 => rsa(KeySize::Rsa2048, signs),
            KeyKind::Rsa3072 => rsa(KeySize::Rsa3072, signs),
            KeyKind::EcdsaP256 => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P256_SHA256_ASN1, signs),
            KeyKind::EcdsaP384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1, signs),
            KeyKind::Ed25519 => ed25519(signs),
            KeyKind::X25519 => x25519(self.action),
            KeyKind::MlKem768 => ml_kem(self.action),
        }
    }
}

fn verification(algorithm: &'static dyn VerificationAlgorithm, key: Vec<u8>, signed: Vec<u8>) -> Step {
    let key = signature::UnparsedPublicKey::new(algorithm, key);
    Arc::new(move || key.verify(MESSAGE, &signed).ok())
}

fn rsa(size: KeySize, signs: bool) -> Option<Step> {
    let key = RsaKeyPair::generate(size).ok()?;
    let sign = move |key: &RsaKeyPair| {
        let mut signed = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), MESSAGE, &mut signed).ok()?;
        Some(signed)
    };
    if signs {
        return Some(Arc::new(move || sign(&key).map(drop)));
    }
    let signed = sign(&key)?;
    Some(verification(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref().to_vec(), signed))
}

fn ecdsa(
    algorithm: &'static EcdsaSigningAlgorithm,
    verifies: &'static dyn VerificationAlgorithm,
    signs: bool,
) -> Option<Step> {
    let key = EcdsaKeyPair::generate(algorithm).ok()?;
    if signs {
        return Some(Arc::new(move || key.sign(&SystemRandom::new(), MESSAGE).ok().map(drop)));
    }
    let signed = key.sign(&SystemRandom::new(), MESSAGE).ok()?;
    Some(verification(verifies, key.public_key().as_ref().to_vec(), signed.as_ref().to_vec()))
}

fn ed25519(signs: bool) -> Option<Step> {
    let key = Ed25519KeyPair::generate().ok()?;
    if signs {
        return Some(Arc::new(move || {
            std::hint::black_box(key.sign(MESSAGE));
            Some(())
        }));
    }
    let signed = key.sign(MESSAGE).as_ref().to_vec();
    Some(verification(&signature::ED25519, key.public_key().as_ref().to_vec(), signed))
}

fn x25519(action: Action) -> Option<Step> {
    let generate = || agreement::PrivateKey::generate(&agreement::X25519).ok();
    if action == Action::Generate {
        return Some(Arc::new(move || generate()?.compute_public_key().ok().map(drop)));
    }
    let (key, other) = (generate()?, generate()?);
    let other = other.compute_public_key().ok()?.as_ref().to_vec();
    Some(Arc::new(move || {
        let other = UnparsedPublicKey::new(&agreement::X25519, &other);
        agreement::agree(&key, other, (), |secret| {
            std::hint::black_box(secret);
            Ok(())
        })
        .ok()
    }))
}

fn ml_kem(action: Action) -> Option<Step> {
    let generate = || DecapsulationKey::generate(&ML_KEM_768).ok();
    let key = generate()?;
    let public = key.encapsulation_key().ok()?;
    Some(match action {
        Action::Generate => Arc::new(move || generate()?.encapsulation_key().ok().map(drop)),
        Action::Encapsulate => Arc::new(move || public.encapsulate().ok().map(drop)),
        _ => {
            let (sealed, _) = public.encapsulate().ok()?;
            let sealed = sealed.as_ref().to_vec();
            Arc::new(move || key.decapsulate(Ciphertext::from(sealed.as_slice())).ok().map(drop))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_works() {
        for &operation in Operation::ALL {
            let step = operation.prepare().unwrap_or_else(|| panic!("{} is there", operation.name()));
            assert_eq!(step(), Some(()), "{}", operation.name());
        }
    }
}
