//! Algorithms: their numbers on the wire and their names.

use crate::ikev2::message::numbers::{encryption, esn, group, integrity, prf, transform};
use crate::ikev2::message::{Attribute, Transform};
use crypto::cipher::{self, Cipher, Integrity};
use crypto::exchange::Group;
use crypto::prf::Prf;

/// An encryption algorithm: alone if it also authenticates, otherwise together with an [`Integrity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encryption {
    /// An authenticated cipher, with its tag length in bytes.
    Aead(Cipher, usize),
    /// A cipher that needs a separate MAC.
    Plain(cipher::Encryption),
    /// AES-GMAC with the key of this GCM cipher: authentication without encryption. ESP only.
    Gmac(Cipher),
}

/// An algorithm that a transform can contain.
pub trait Algorithm: Copy + PartialEq {
    /// The type of its transforms.
    const KIND: u8;

    /// The algorithm of a transform of that type.
    fn from_wire(id: u16, attribute: Attribute) -> Option<Self>;

    /// Its number and key length.
    fn to_wire(self) -> (u16, Attribute);

    /// Its transform.
    fn transform(self) -> Transform {
        let (id, attribute) = self.to_wire();
        Transform { kind: Self::KIND, id, attribute }
    }

    /// The name used in configurations and reports.
    fn name(self) -> String;
}

impl Encryption {
    /// Whether it needs no separate MAC.
    pub fn authenticates(self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Whether it encrypts: IKE itself needs encryption.
    pub fn hides(self) -> bool {
        !matches!(self, Self::Plain(cipher::Encryption::Null) | Self::Gmac(_))
    }
}

/// The cipher of a family with this key size.
fn sized(bits: u16, ciphers: [Cipher; 3]) -> Option<Cipher> {
    ciphers.into_iter().find(|cipher| cipher.key_length() * 8 == usize::from(bits))
}

const GCM: [Cipher; 3] = [Cipher::Aes128Gcm, Cipher::Aes192Gcm, Cipher::Aes256Gcm];
const CCM: [Cipher; 3] = [Cipher::Aes128Ccm, Cipher::Aes192Ccm, Cipher::Aes256Ccm];

impl Algorithm for Encryption {
    const KIND: u8 = transform::ENCRYPTION;

    fn from_wire(id: u16, attribute: Attribute) -> Option<Self> {
        // RFC 7296 section 3.3.5: the key length is required for ciphers with several, and forbidden for the others.
        let bits = match attribute {
            Attribute::None => None,
            Attribute::KeyLength(bits) => Some(bits),
            Attribute::Unknown => return None,
        };
        let aes = |bits: u16| matches!(bits, 128 | 192 | 256).then_some(usize::from(bits) / 8);
        let aead = |bits, ciphers, tag| sized(bits, ciphers).map(|cipher| Self::Aead(cipher, tag));
        match (id, bits) {
            (encryption::TRIPLE_DES, None) => Some(Self::Plain(cipher::Encryption::TripleDesCbc)),
            (encryption::NULL, None) => Some(Self::Plain(cipher::Encryption::Null)),
            (encryption::CHACHA20_POLY1305, None) => Some(Self::Aead(Cipher::ChaCha20Poly1305, 16)),
            (encryption::AES_CBC, Some(bits)) => {
                aes(bits).map(|key| Self::Plain(cipher::Encryption::AesCbc(key)))
            }
            (encryption::AES_CTR, Some(bits)) => {
                aes(bits).map(|key| Self::Plain(cipher::Encryption::AesCtr(key)))
            }
            (encryption::AES_GCM_8, Some(bits)) => aead(bits, GCM, 8),
            (encryption::AES_GCM_12, Some(bits)) => aead(bits, GCM, 12),
            (encryption::AES_GCM_16, Some(bits)) => aead(bits, GCM, 16),
            (encryption::AES_CCM_8, Some(bits)) => aead(bits, CCM, 8),
            (encryption::AES_CCM_12, Some(bits)) => aead(bits, CCM, 12),
            (encryption::AES_CCM_16, Some(bits)) => aead(bits, CCM, 16),
            (encryption::NULL_AES_GMAC, Some(bits)) => sized(bits, GCM).map(Self::Gmac),
            _ => None,
        }
    }

    fn to_wire(self) -> (u16, Attribute) {
        let bits = |bytes: usize| Attribute::KeyLength(bytes as u16 * 8);
        match self {
            Self::Aead(Cipher::ChaCha20Poly1305, _) => (encryption::CHACHA20_POLY1305, Attribute::None),
            Self::Aead(cipher, tag) => {
                let first = if cipher.is_ccm() { encryption::AES_CCM_8 } else { encryption::AES_GCM_8 };
                (first + (tag as u16 - 8) / 4, bits(cipher.key_length()))
            }
            Self::Plain(cipher::Encryption::Null) => (encryption::NULL, Attribute::None),
            Self::Plain(cipher::Encryption::TripleDesCbc) => (encryption::TRIPLE_DES, Attribute::None),
            Self::Plain(cipher::Encryption::AesCbc(key)) => (encryption::AES_CBC, bits(key)),
            Self::Plain(cipher::Encryption::AesCtr(key)) => (encryption::AES_CTR, bits(key)),
            Self::Gmac(cipher) => (encryption::NULL_AES_GMAC, bits(cipher.key_length())),
        }
    }

    fn name(self) -> String {
        match self {
            Self::Aead(Cipher::ChaCha20Poly1305, _) => "chacha20poly1305".to_owned(),
            Self::Aead(cipher, tag) => {
                let mode = if cipher.is_ccm() { "ccm" } else { "gcm" };
                format!("aes{}{mode}{}", cipher.key_length() * 8, tag * 8)
            }
            Self::Plain(cipher::Encryption::Null) => "null".to_owned(),
            Self::Plain(cipher::Encryption::TripleDesCbc) => "3des".to_owned(),
            Self::Plain(cipher::Encryption::AesCbc(key)) => format!("aes{}", key * 8),
            Self::Plain(cipher::Encryption::AesCtr(key)) => format!("aes{}ctr", key * 8),
            Self::Gmac(cipher) => format!("aes{}gmac", cipher.key_length() * 8),
        }
    }
}

impl Algorithm for Integrity {
    const KIND: u8 = transform::INTEGRITY;

    fn from_wire(id: u16, attribute: Attribute) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.to_wire() == (id, attribute))
    }

    fn to_wire(self) -> (u16, Attribute) {
        let id = match self {
            Self::HmacSha1 => integrity::HMAC_SHA1_96,
            Self::HmacSha256 => integrity::HMAC_SHA256_128,
            Self::HmacSha384 => integrity::HMAC_SHA384_192,
            Self::HmacSha512 => integrity::HMAC_SHA512_256,
            Self::AesXcbc => integrity::AES_XCBC_96,
        };
        (id, Attribute::None)
    }

    fn name(self) -> String {
        let name = match self {
            Self::HmacSha1 => "sha1",
            Self::HmacSha256 => "sha256",
            Self::HmacSha384 => "sha384",
            Self::HmacSha512 => "sha512",
            Self::AesXcbc => "aesxcbc",
        };
        name.to_owned()
    }
}

impl Algorithm for Prf {
    const KIND: u8 = transform::PRF;

    fn from_wire(id: u16, attribute: Attribute) -> Option<Self> {
        Self::ALL.iter().copied().find(|algorithm| algorithm.to_wire() == (id, attribute))
    }

    fn to_wire(self) -> (u16, Attribute) {
        let id = match self {
            Self::HmacSha1 => prf::HMAC_SHA1,
            Self::HmacSha256 => prf::HMAC_SHA256,
            Self::HmacSha384 => prf::HMAC_SHA384,
            Self::HmacSha512 => prf::HMAC_SHA512,
            Self::AesXcbc => prf::AES_XCBC,
        };
        (id, Attribute::None)
    }

    fn name(self) -> String {
        Prf::name(self).to_owned()
    }
}

impl Algorithm for Group {
    const KIND: u8 = transform::GROUP;

    fn from_wire(id: u16, attribute: Attribute) -> Option<Self> {
        Self::from_id(id).filter(|_| attribute == Attribute::None)
    }

    fn to_wire(self) -> (u16, Attribute) {
        (self.id(), Attribute::None)
    }

    fn name(self) -> String {
        Group::name(self).to_owned()
    }
}

/// The size of an ESP sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sequence {
    /// 32 bits.
    Short,
    /// 64 bits.
    Extended,
}

impl Algorithm for Sequence {
    const KIND: u8 = transform::ESN;

    fn from_wire(id: u16, attribute: Attribute) -> Option<Self> {
        match (id, attribute) {
            (esn::NO, Attribute::None) => Some(Self::Short),
            (esn::YES, Attribute::None) => Some(Self::Extended),
            _ => None,
        }
    }

    fn to_wire(self) -> (u16, Attribute) {
        let id = if self == Self::Extended { esn::YES } else { esn::NO };
        (id, Attribute::None)
    }

    fn name(self) -> String {
        let name = if self == Self::Extended { "esn" } else { "noesn" };
        name.to_owned()
    }
}

/// The name of a transform, for reports; an unknown one is shown by its numbers.
pub fn name(one: Transform) -> String {
    fn known<A: Algorithm>(one: Transform) -> Option<String> {
        A::from_wire(one.id, one.attribute).map(A::name)
    }
    let (label, name) = match one.kind {
        transform::ENCRYPTION => ("encryption", known::<Encryption>(one)),
        transform::PRF => ("prf", known::<Prf>(one)),
        transform::INTEGRITY if one.id == integrity::NONE => ("", Some("none".to_owned())),
        transform::INTEGRITY => ("integrity", known::<Integrity>(one)),
        transform::GROUP if one.id == group::NONE => ("", Some("nopfs".to_owned())),
        transform::GROUP => ("group", known::<Group>(one)),
        transform::ESN => ("esn", known::<Sequence>(one)),
        _ => ("", None),
    };
    name.unwrap_or_else(|| {
        let what = if label.is_empty() { format!("type {}", one.kind) } else { label.to_owned() };
        let number = format!("{what} transform {}", one.id);
        match one.attribute {
            Attribute::None => number,
            Attribute::KeyLength(bits) => format!("{number} ({bits} bits)"),
            Attribute::Unknown => format!("{number} (unknown attribute)"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encryptions() -> Vec<Encryption> {
        let plain = cipher::Encryption::ALL.iter().copied().map(Encryption::Plain);
        let aead = Cipher::ALL
            .iter()
            .flat_map(|&cipher| cipher.tag_lengths().iter().map(move |&tag| Encryption::Aead(cipher, tag)));
        plain.chain(aead).chain(GCM.map(Encryption::Gmac)).collect()
    }

    fn returns<A: Algorithm + std::fmt::Debug>(algorithms: &[A]) {
        for &algorithm in algorithms {
            let Transform { kind, id, attribute } = algorithm.transform();
            assert_eq!(kind, A::KIND);
            assert_eq!(A::from_wire(id, attribute), Some(algorithm));
            assert!(A::from_wire(id, Attribute::Unknown).is_none());
            assert!(!name(algorithm.transform()).contains(' '), "{algorithm:?} has a name");
        }
    }

    #[test]
    fn every_algorithm_returns_from_the_wire() {
        returns(&encryptions());
        returns(Integrity::ALL);
        returns(Prf::ALL);
        returns(Group::ALL);
        returns(&[Sequence::Short, Sequence::Extended]);
    }

    #[test]
    fn numbers_are_those_of_the_registry() {
        let wire = |encryption: Encryption| encryption.to_wire();
        assert_eq!(wire(Encryption::Aead(Cipher::Aes256Gcm, 16)), (20, Attribute::KeyLength(256)));
        assert_eq!(wire(Encryption::Aead(Cipher::Aes128Gcm, 12)), (19, Attribute::KeyLength(128)));
        assert_eq!(wire(Encryption::Aead(Cipher::Aes192Ccm, 8)), (14, Attribute::KeyLength(192)));
        assert_eq!(wire(Encryption::Aead(Cipher::ChaCha20Poly1305, 16)), (28, Attribute::None));
        assert_eq!(wire(Encryption::Gmac(Cipher::Aes128Gcm)), (21, Attribute::KeyLength(128)));
    }

    #[test]
    fn what_is_not_known_is_named_by_its_number() {
        let named = |kind, id, attribute| name(Transform { kind, id, attribute });
        assert_eq!(named(transform::ENCRYPTION, 65001, Attribute::None), "encryption transform 65001");
        let camellia = named(transform::ENCRYPTION, 23, Attribute::KeyLength(256));
        assert_eq!(camellia, "encryption transform 23 (256 bits)");
        assert_eq!(named(transform::GROUP, 99, Attribute::None), "group transform 99");
        assert_eq!(named(6, 35, Attribute::None), "type 6 transform 35");
    }

    #[test]
    fn a_key_length_is_told_where_there_are_several_and_only_there() {
        for (id, attribute) in [
            (encryption::AES_CBC, Attribute::None),
            (encryption::AES_CBC, Attribute::KeyLength(64)),
            (encryption::AES_GCM_16, Attribute::KeyLength(0)),
            (encryption::TRIPLE_DES, Attribute::KeyLength(192)),
            (encryption::CHACHA20_POLY1305, Attribute::KeyLength(256)),
            (encryption::NULL, Attribute::KeyLength(0)),
        ] {
            assert_eq!(Encryption::from_wire(id, attribute), None, "{id}");
        }
    }
}
