//! Elliptic curve Diffie-Hellman: the NIST curves (ECP, RFC 5903) and Curve25519 (RFC 8031).

use crate::{PrivateKey, PublicKey, Random, SecretBytes};
use aws_lc_rs::agreement::{self, ECDH_P256, ECDH_P384, ECDH_P521, UnparsedPublicKey};
use zeroize::Zeroizing;

/// A NIST curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ecp {
    P256,
    P384,
    P521,
}

/// The byte before x and y of an uncompressed point in X9.62. RFC 5903 omits it.
const UNCOMPRESSED: u8 = 4;

impl Ecp {
    /// Length in bytes of a coordinate. The shared secret is the x coordinate (RFC 5903, section 7).
    pub(super) fn coordinate(self) -> usize {
        match self {
            Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    fn algorithm(self) -> &'static agreement::Algorithm {
        match self {
            Self::P256 => &ECDH_P256,
            Self::P384 => &ECDH_P384,
            Self::P521 => &ECDH_P521,
        }
    }

    /// Generates a private key and its public point, x followed by y.
    pub(super) fn generate(self, random: &mut dyn Random) -> (agreement::PrivateKey, Vec<u8>) {
        let mut scalar = Zeroizing::new(vec![0; self.coordinate()]);
        let key = loop {
            random.fill(&mut scalar);
            if self == Self::P521 {
                // The group order has 521 bits.
                scalar[0] &= 1;
            }
            // AWS-LC refuses zero and numbers not below the order: about one in 2^32 for P-256, fewer for the other
            // curves.
            if let Ok(key) = agreement::PrivateKey::from_private_key(self.algorithm(), &scalar) {
                break key;
            }
        };
        let point = key.compute_public_key().expect("every private key has a public key");
        let public = point.as_ref()[1..].to_vec();
        (key, public)
    }

    /// The shared secret; `None` if the peer's point is not on the curve.
    pub(super) fn agree(self, key: &agreement::PrivateKey, public: &[u8]) -> Option<SecretBytes> {
        let point = [&[UNCOMPRESSED], public].concat();
        let point = UnparsedPublicKey::new(self.algorithm(), &point);
        agreement::agree(key, point, (), |shared| Ok(SecretBytes::new(shared.to_vec()))).ok()
    }
}

/// The shared secret of X25519; `None` if the peer's public key is a point of low order.
pub(super) fn agree_x25519(key: &PrivateKey, public: &[u8]) -> Option<SecretBytes> {
    let public = PublicKey(public.try_into().ok()?);
    Some(SecretBytes::new(key.agree(&public).ok()?.expose().to_vec()))
}
