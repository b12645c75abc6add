//! X25519 key agreement (RFC 7748).

use crate::{Random, Secret};
use aws_lc_rs::agreement;
use base64ct::{Base64, Encoding};
use std::fmt;
use zeroize::Zeroize;

/// An X25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey(pub [u8; 32]);

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Base64::encode_string(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The peer's public key is a point of low order: the shared secret would not depend on our private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the public key is a point of low order")]
pub struct LowOrder;

/// An X25519 private key with its public key.
pub struct PrivateKey {
    secret: Secret,
    key: agreement::PrivateKey,
    public: PublicKey,
}

impl PrivateKey {
    /// Generates a key.
    pub fn generate(random: &mut dyn Random) -> Self {
        let mut bytes = [0; 32];
        random.fill(&mut bytes);
        let key = Self::new(Secret::new(bytes));
        bytes.zeroize();
        key
    }

    /// Clamps these 32 bytes and uses them as the private key (RFC 7748, section 5).
    pub fn new(secret: Secret) -> Self {
        let mut bytes = *secret.expose();
        bytes[0] &= 0xf8;
        bytes[31] = (bytes[31] & 0x7f) | 0x40;
        let key = agreement::PrivateKey::from_private_key(&agreement::X25519, &bytes)
            .expect("any 32 bytes are an X25519 private key");
        let public = key.compute_public_key().expect("every X25519 private key has a public key");
        let public = PublicKey(public.as_ref().try_into().expect("an X25519 public key has 32 bytes"));
        let secret = Secret::new(bytes);
        bytes.zeroize();
        Self { secret, key, public }
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The private key's bytes, clamped.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The secret shared with the owner of `public`.
    pub fn agree(&self, public: &PublicKey) -> Result<Secret, LowOrder> {
        let public = agreement::UnparsedPublicKey::new(&agreement::X25519, &public.0);
        agreement::agree(&self.key, public, LowOrder, |shared| {
            Ok(Secret::new(shared.try_into().expect("an X25519 secret has 32 bytes")))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> [u8; 32] {
        base16ct::lower::decode_vec(hex).expect("hex").try_into().expect("32 bytes")
    }

    #[test]
    fn example_of_rfc_7748_section_6_1() {
        let bob = PrivateKey::new(Secret::new(bytes(
            "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
        )));
        let alice = PublicKey(bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"));
        let public = bytes("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
        let shared = bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
        assert_eq!(bob.public(), PublicKey(public));
        assert_eq!(bob.agree(&alice), Ok(Secret::new(shared)));
    }

    #[test]
    fn a_low_order_point_is_refused() {
        let key = PrivateKey::new(Secret::new([7; 32]));
        assert_eq!(key.agree(&PublicKey([0; 32])), Err(LowOrder));
    }
}
