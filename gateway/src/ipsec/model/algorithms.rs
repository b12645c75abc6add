//! The algorithms of an SA, in the words of the IANA registry and of swanctl.

use crate::api::words::words;
use crypto::cipher::{self, Cipher, Pair};
use crypto::exchange;
use crypto::prf;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tunnel::esp::Transform;
use tunnel::ikev2::proposal::{EspSuite, IkeSuite, MessageCipher};

/// The algorithms of an IKE SA or of a pair of ESP SAs.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Algorithms {
    /// The cipher.
    pub encryption: Encryption,
    /// Bits of its key; none for ciphers with one key size.
    pub key_bits: Option<u16>,
    /// The MAC; none for ciphers that authenticate.
    pub integrity: Option<Integrity>,
    /// The pseudorandom function; IKE only.
    pub prf: Option<Prf>,
    /// The Diffie-Hellman group; none for ESP keys without a key exchange of their own.
    pub group: Option<Group>,
    /// Whether sequence numbers have 64 bits; ESP only.
    pub extended_sequence: bool,
}

words! {
    /// A cipher; the number behind GCM and CCM is the length of the tag in bytes.
    Encryption {
        /// No encryption.
        Null = "NULL",
        /// Triple DES.
        TripleDesCbc = "3DES_CBC",
        /// AES in CBC mode.
        AesCbc = "AES_CBC",
        /// AES in counter mode.
        AesCtr = "AES_CTR",
        /// AES-GCM.
        AesGcm8 = "AES_GCM_8",
        /// AES-GCM.
        AesGcm12 = "AES_GCM_12",
        /// AES-GCM.
        AesGcm16 = "AES_GCM_16",
        /// AES-CCM.
        AesCcm8 = "AES_CCM_8",
        /// AES-CCM.
        AesCcm12 = "AES_CCM_12",
        /// AES-CCM.
        AesCcm16 = "AES_CCM_16",
        /// AES-GMAC: authentication only.
        NullAesGmac = "NULL_AES_GMAC",
        /// ChaCha20-Poly1305.
        ChaCha20Poly1305 = "CHACHA20_POLY1305",
    }

    /// A MAC; the last number is the length of its tag in bits.
    Integrity {
        /// HMAC-SHA-1.
        HmacSha1 = "HMAC_SHA1_96",
        /// HMAC-SHA-256.
        HmacSha256 = "HMAC_SHA2_256_128",
        /// HMAC-SHA-384.
        HmacSha384 = "HMAC_SHA2_384_192",
        /// HMAC-SHA-512.
        HmacSha512 = "HMAC_SHA2_512_256",
        /// AES-XCBC.
        AesXcbc = "AES_XCBC_96",
    }

    /// A pseudorandom function.
    Prf {
        /// HMAC-SHA-1.
        HmacSha1 = "PRF_HMAC_SHA1",
        /// HMAC-SHA-256.
        HmacSha256 = "PRF_HMAC_SHA2_256",
        /// HMAC-SHA-384.
        HmacSha384 = "PRF_HMAC_SHA2_384",
        /// HMAC-SHA-512.
        HmacSha512 = "PRF_HMAC_SHA2_512",
        /// AES-XCBC.
        AesXcbc = "PRF_AES128_XCBC",
    }

    /// A Diffie-Hellman group.
    Group {
        /// Group 2.
        Modp1024 = "MODP_1024",
        /// Group 5.
        Modp1536 = "MODP_1536",
        /// Group 14.
        Modp2048 = "MODP_2048",
        /// Group 15.
        Modp3072 = "MODP_3072",
        /// Group 16.
        Modp4096 = "MODP_4096",
        /// Group 17.
        Modp6144 = "MODP_6144",
        /// Group 18.
        Modp8192 = "MODP_8192",
        /// Group 19.
        Ecp256 = "ECP_256",
        /// Group 20.
        Ecp384 = "ECP_384",
        /// Group 21.
        Ecp521 = "ECP_521",
        /// Group 31.
        Curve25519 = "CURVE_25519",
    }
}

impl From<&IkeSuite> for Algorithms {
    fn from(suite: &IkeSuite) -> Self {
        let protected = match suite.protection {
            MessageCipher::Aead(cipher, tag) => aead(cipher, tag),
            MessageCipher::Pair(pair) => paired(pair),
        };
        Self { prf: Some(prf(suite.prf)), group: Some(group(suite.group)), ..protected }
    }
}

impl From<&EspSuite> for Algorithms {
    fn from(suite: &EspSuite) -> Self {
        let protected = match suite.transform {
            Transform::Aead(cipher, tag) => aead(cipher, tag),
            Transform::Pair(pair) => paired(pair),
            Transform::Gmac(cipher) => alone(Encryption::NullAesGmac, Some(cipher.key_length())),
            Transform::Null => alone(Encryption::Null, None),
        };
        Self { group: suite.group.map(group), extended_sequence: suite.extended_sequence, ..protected }
    }
}

/// A cipher with a key of so many bytes, and nothing else.
fn alone(encryption: Encryption, key: Option<usize>) -> Algorithms {
    Algorithms {
        encryption,
        key_bits: key.map(|bytes| bytes as u16 * 8),
        integrity: None,
        prf: None,
        group: None,
        extended_sequence: false,
    }
}

fn aead(cipher: Cipher, tag: usize) -> Algorithms {
    let encryption = match (cipher, cipher.is_ccm(), tag) {
        (Cipher::ChaCha20Poly1305, ..) => return alone(Encryption::ChaCha20Poly1305, None),
        (_, false, 8) => Encryption::AesGcm8,
        (_, false, 12) => Encryption::AesGcm12,
        (_, false, _) => Encryption::AesGcm16,
        (_, true, 8) => Encryption::AesCcm8,
        (_, true, 12) => Encryption::AesCcm12,
        (_, true, _) => Encryption::AesCcm16,
    };
    alone(encryption, Some(cipher.key_length()))
}

fn paired(Pair { encryption, integrity }: Pair) -> Algorithms {
    let cipher = match encryption {
        cipher::Encryption::Null => alone(Encryption::Null, None),
        cipher::Encryption::TripleDesCbc => alone(Encryption::TripleDesCbc, None),
        cipher::Encryption::AesCbc(key) => alone(Encryption::AesCbc, Some(key)),
        cipher::Encryption::AesCtr(key) => alone(Encryption::AesCtr, Some(key)),
    };
    let integrity = match integrity {
        cipher::Integrity::HmacSha1 => Integrity::HmacSha1,
        cipher::Integrity::HmacSha256 => Integrity::HmacSha256,
        cipher::Integrity::HmacSha384 => Integrity::HmacSha384,
        cipher::Integrity::HmacSha512 => Integrity::HmacSha512,
        cipher::Integrity::AesXcbc => Integrity::AesXcbc,
    };
    Algorithms { integrity: Some(integrity), ..cipher }
}

fn prf(prf: prf::Prf) -> Prf {
    match prf {
        prf::Prf::HmacSha1 => Prf::HmacSha1,
        prf::Prf::HmacSha256 => Prf::HmacSha256,
        prf::Prf::HmacSha384 => Prf::HmacSha384,
        prf::Prf::HmacSha512 => Prf::HmacSha512,
        prf::Prf::AesXcbc => Prf::AesXcbc,
    }
}

fn group(group: exchange::Group) -> Group {
    use exchange::Group as G;
    match group {
        G::Modp1024 => Group::Modp1024,
        G::Modp1536 => Group::Modp1536,
        G::Modp2048 => Group::Modp2048,
        G::Modp3072 => Group::Modp3072,
        G::Modp4096 => Group::Modp4096,
        G::Modp6144 => Group::Modp6144,
        G::Modp8192 => Group::Modp8192,
        G::Ecp256 => Group::Ecp256,
        G::Ecp384 => Group::Ecp384,
        G::Ecp521 => Group::Ecp521,
        G::X25519 => Group::Curve25519,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_negotiated_algorithm_keeps_its_name_and_key_size() {
        for transform in Transform::all() {
            let suite = EspSuite { transform, group: None, extended_sequence: true };
            let algorithms = Algorithms::from(&suite);
            assert!(algorithms.extended_sequence && algorithms.prf.is_none(), "{suite}");
            // The names of the configuration have the same parts: `aes256gcm128`, AES_GCM_16 with 256 bits.
            let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
            let (name, text) = (plain(algorithms.encryption.name()), plain(&suite.to_string()));
            assert!(algorithms.key_bits.is_none_or(|bits| text.contains(&bits.to_string())), "{text}");
            let mode = ["gcm", "ccm", "ctr", "gmac", "3des", "null", "chacha20"]
                .iter()
                .find(|mode| text.contains(**mode));
            assert!(name.contains(mode.unwrap_or(&"cbc")), "{text}: {name}");
        }
        for group in exchange::Group::ALL {
            let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
            assert_eq!(digits(group.name()), digits(super::group(*group).name()));
        }
    }

    #[test]
    fn algorithms_travel_one_by_one() {
        let protection = MessageCipher::Pair(Pair {
            encryption: cipher::Encryption::AesCbc(32),
            integrity: cipher::Integrity::HmacSha256,
        });
        let suite = IkeSuite { protection, prf: prf::Prf::HmacSha256, group: exchange::Group::X25519 };
        let json = serde_json::to_value(Algorithms::from(&suite)).expect("JSON");
        assert_eq!(
            json,
            serde_json::json!({
                "encryption": "AES_CBC",
                "key_bits": 256,
                "integrity": "HMAC_SHA2_256_128",
                "prf": "PRF_HMAC_SHA2_256",
                "group": "CURVE_25519",
                "extended_sequence": false,
            })
        );
        assert_eq!(serde_json::from_value::<Algorithms>(json).expect("the same"), (&suite).into());
    }
}
