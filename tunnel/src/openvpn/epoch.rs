//! Epoch keys of OpenVPN 2.7: one negotiation gives a chain of data keys for each direction.
//!
//! ```text
//! E1  the first 32 bytes of the direction's data keys
//! Ei  ──> "data_key" ──> key of the cipher
//!     ──> "data_iv"  ──> implicit IV 12
//!     ──> "datakey upd" ──> Ei+1
//! ```
//! Each arrow is HKDF-Expand-Label of TLS 1.3 (RFC 8446, section 7.1) with SHA-256 and the prefix "ovpn ".

use crypto::engine::LoadError;
use crypto::prf::Prf;
use crypto::{Cipher, Engine, Key, SecretBytes};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of an epoch's secret.
pub const SECRET: usize = 32;
/// Bytes of the implicit IV.
pub const IV: usize = 12;
const PREFIX: &[u8] = b"ovpn ";

/// HKDF-Expand-Label without a context. Prf+ of IKEv2 with SHA-256 is HKDF-Expand (RFC 5869, section 2.3).
fn expand_label(secret: &[u8; SECRET], label: &[u8], length: u16) -> SecretBytes {
    let label_length = [(PREFIX.len() + label.len()) as u8];
    let info: &[&[u8]] = &[&length.to_be_bytes(), &label_length, PREFIX, label, &[0]];
    Prf::HmacSha256.expand(secret, info, length.into())
}

/// The secret of one epoch.
pub struct EpochSecret(Zeroizing<[u8; SECRET]>);

impl EpochSecret {
    /// The secret of epoch 1: the start of a direction's cipher key.
    pub fn first(cipher_key: &[u8]) -> Self {
        Self(Zeroizing::new(*cipher_key.first_chunk().expect("cipher keys have 64 bytes")))
    }

    /// The secret of the epoch after this one.
    #[must_use]
    pub fn next(&self) -> Self {
        let secret = expand_label(&self.0, b"datakey upd", SECRET as u16);
        Self(Zeroizing::new(secret.expose().try_into().expect("as long as it was asked for")))
    }

    /// The key of this epoch.
    pub fn load(&self, epoch: u16, engine: &dyn Engine, cipher: Cipher) -> Result<EpochKey, LoadError> {
        let key = expand_label(&self.0, b"data_key", cipher.key_length() as u16);
        let iv = expand_label(&self.0, b"data_iv", IV as u16);
        let iv = Zeroizing::new(iv.expose().try_into().expect("as long as it was asked for"));
        Ok(EpochKey { epoch, key: engine.load(cipher, key.expose())?, iv })
    }
}

/// The key of one epoch.
pub struct EpochKey {
    /// The epoch, from 1 on.
    pub epoch: u16,
    /// The key of the cipher.
    pub key: Arc<dyn Key>,
    iv: Zeroizing<[u8; IV]>,
}

impl EpochKey {
    /// The nonce of a packet: the implicit IV, XOR its number in front.
    #[inline]
    pub fn nonce(&self, number: &[u8; 8]) -> [u8; IV] {
        let mut nonce = *self.iv;
        nonce.iter_mut().zip(number).for_each(|(byte, number)| *byte ^= number);
        nonce
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::engine::aws_lc::AwsLc;

    /// The vector that OpenVPN 2.7 and OpenVPN 3 have in common.
    #[test]
    fn labels_are_expanded_as_by_openvpn() {
        let secret =
            [0x0777_0936_2c2e_32df_0ddc_3f0d_c47b_ba63_u128, 0x90b6_c73b_b50f_9c31_22ec_844a_d7c2_b3e5];
        let secret = secret.map(u128::to_be_bytes).concat();
        let secret = secret.as_slice().try_into().expect("32 bytes");
        let expected = 0x185e_aa1c_7f22_8ab8_eb29_7732_14d9_2046_u128;
        assert_eq!(expand_label(secret, b"unit test", 16).expose(), expected.to_be_bytes());
    }

    #[test]
    fn each_epoch_has_a_key_and_an_iv_of_its_own() {
        let first = EpochSecret::first(&[7; 64]);
        let second = first.next();
        assert_ne!(*first.0, *second.0);
        let load =
            |secret: &EpochSecret, epoch| secret.load(epoch, &AwsLc, Cipher::Aes256Gcm).expect("a key");
        let (one, two) = (load(&first, 1), load(&second, 2));
        let number = 1u64.to_be_bytes();
        assert_ne!(one.nonce(&number), two.nonce(&number));
        let changed = one.nonce(&number).iter().zip(*one.iv).filter(|(a, b)| **a != *b).count();
        assert_eq!((changed, one.nonce(&number)[8..] == one.iv[8..]), (1, true), "the number is in front");
    }
}
