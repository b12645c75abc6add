//! The algorithms of the format, with the lengths of their keys, and the transforms of ours that they are.

use crypto::Cipher as AeadCipher;
use crypto::cipher::{Encryption, Integrity, Pair};
use tunnel::esp::Transform;

/// An algorithm as the format names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// The bytes of its key, with the 4 of the salt if it has one.
    pub key_length: usize,
    /// What it is.
    pub is: T,
}

/// A cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// One that Postern has.
    Known(Encryption),
    /// DES, which has 56 bits.
    Des,
}

/// A MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mac {
    /// None: packets are not authenticated.
    Null,
    /// One that Postern has.
    Known(Integrity),
    /// AES-GMAC.
    Gmac,
}

/// The algorithms of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// An authenticated cipher.
    Aead(Named<AeadCipher>),
    /// A cipher and a MAC.
    Pair(Named<Cipher>, Named<Mac>),
}

const fn named<T>(name: &'static str, key_length: usize, is: T) -> Named<T> {
    Named { name, key_length, is }
}

/// `cipher_algo`.
pub const CIPHERS: &[Named<Cipher>] = &[
    named("null", 0, Cipher::Known(Encryption::Null)),
    named("aes-128-cbc", 16, Cipher::Known(Encryption::AesCbc(16))),
    named("aes-192-cbc", 24, Cipher::Known(Encryption::AesCbc(24))),
    named("aes-256-cbc", 32, Cipher::Known(Encryption::AesCbc(32))),
    named("aes-128-ctr", 20, Cipher::Known(Encryption::AesCtr(16))),
    named("aes-192-ctr", 28, Cipher::Known(Encryption::AesCtr(24))),
    named("aes-256-ctr", 36, Cipher::Known(Encryption::AesCtr(32))),
    named("3des-cbc", 24, Cipher::Known(Encryption::TripleDesCbc)),
    named("des-cbc", 8, Cipher::Des),
];

/// `auth_algo`.
pub const MACS: &[Named<Mac>] = &[
    named("null", 0, Mac::Null),
    named("sha1-hmac", 20, Mac::Known(Integrity::HmacSha1)),
    named("sha256-hmac", 32, Mac::Known(Integrity::HmacSha256)),
    named("sha384-hmac", 48, Mac::Known(Integrity::HmacSha384)),
    named("sha512-hmac", 64, Mac::Known(Integrity::HmacSha512)),
    named("aes-gmac", 20, Mac::Gmac),
    named("aes-xcbc-mac-96", 16, Mac::Known(Integrity::AesXcbc)),
];

/// `aead_algo`.
pub const AEADS: &[Named<AeadCipher>] = &[
    named("aes-128-gcm", 20, AeadCipher::Aes128Gcm),
    named("aes-192-gcm", 28, AeadCipher::Aes192Gcm),
    named("aes-256-gcm", 36, AeadCipher::Aes256Gcm),
    named("aes-128-ccm", 20, AeadCipher::Aes128Ccm),
    named("aes-192-ccm", 28, AeadCipher::Aes192Ccm),
    named("aes-256-ccm", 36, AeadCipher::Aes256Ccm),
    named("chacha20-poly1305", 36, AeadCipher::ChaCha20Poly1305),
];

/// The algorithm with this name.
pub(crate) fn find<T: Copy>(table: &[Named<T>], name: &str) -> Option<Named<T>> {
    table.iter().find(|algorithm| algorithm.name == name).copied()
}

impl Protection {
    /// The name in reports.
    pub fn name(self) -> String {
        match self {
            Self::Aead(cipher) => cipher.name.to_owned(),
            Self::Pair(cipher, mac) => format!("{} with {}", cipher.name, mac.name),
        }
    }

    /// The transform of ours, if Postern has it: it has neither DES nor other ciphers than `null` without a MAC.
    pub fn transform(self) -> Option<Transform> {
        match self {
            Self::Aead(cipher) => Some(Transform::Aead(cipher.is, 16)),
            Self::Pair(Named { is: Cipher::Known(Encryption::Null), .. }, Named { is: Mac::Gmac, .. }) => {
                Some(Transform::Gmac(AeadCipher::Aes128Gcm))
            }
            Self::Pair(
                Named { is: Cipher::Known(encryption), .. },
                Named { is: Mac::Known(integrity), .. },
            ) => Some(Transform::Pair(Pair { encryption, integrity })),
            Self::Pair(Named { is: Cipher::Known(Encryption::Null), .. }, Named { is: Mac::Null, .. }) => {
                Some(Transform::Null)
            }
            Self::Pair(..) => None,
        }
    }

    /// Whether ipsec-secgw has it without `-l`.
    pub fn is_in_legacy_path(self) -> bool {
        match self {
            Self::Aead(cipher) => {
                matches!(cipher.is, AeadCipher::Aes128Gcm | AeadCipher::Aes192Gcm | AeadCipher::Aes256Gcm)
            }
            Self::Pair(_, mac) => matches!(
                mac.is,
                Mac::Null | Mac::Known(Integrity::HmacSha1 | Integrity::HmacSha256 | Integrity::AesXcbc)
            ),
        }
    }

    /// Whether ipsec-secgw has it with `-l`.
    pub fn is_in_library(self) -> bool {
        !matches!(self, Self::Pair(Named { is: Cipher::Des, .. }, _))
    }

    /// Whether a counter with a key that two SAs share would repeat.
    pub fn counts(self) -> bool {
        match self {
            Self::Aead(_) => true,
            Self::Pair(cipher, mac) => {
                matches!(cipher.is, Cipher::Known(Encryption::AesCtr(_))) || mac.is == Mac::Gmac
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_long_as_those_of_our_transforms() {
        for &cipher in CIPHERS {
            for &mac in MACS {
                let pair = Protection::Pair(cipher, mac);
                if let Some(transform) = pair.transform() {
                    assert_eq!(
                        transform.key_material_length(),
                        cipher.key_length + mac.key_length,
                        "{}",
                        pair.name()
                    );
                }
            }
        }
        for &aead in AEADS {
            let transform = Protection::Aead(aead).transform().expect("it is known");
            // RFC 4309 has 3 bytes of salt; the format has 4, of which the last one is not used.
            let spare = usize::from(aead.is.is_ccm());
            assert_eq!(transform.key_material_length() + spare, aead.key_length, "{}", aead.name);
        }
    }

    #[test]
    fn des_and_a_cipher_without_a_mac_are_not_ours() {
        let pair = |cipher, mac| {
            Protection::Pair(find(CIPHERS, cipher).expect("known"), find(MACS, mac).expect("known"))
        };
        assert_eq!(pair("des-cbc", "sha1-hmac").transform(), None);
        assert_eq!(pair("aes-128-cbc", "null").transform(), None);
        assert_eq!(pair("null", "null").transform(), Some(Transform::Null));
        assert!(
            !pair("des-cbc", "sha1-hmac").is_in_library() && pair("des-cbc", "sha1-hmac").is_in_legacy_path()
        );
        assert!(!pair("null", "aes-gmac").is_in_legacy_path());
    }
}
