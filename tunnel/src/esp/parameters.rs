//! What a key exchange hands over: a pair of SAs, with which packets they are for.

use super::selector::TrafficSelector;
use crypto::SecretBytes;
use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
use std::net::IpAddr;

/// How packets of an SA are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// An authenticated cipher, with a tag of so many bytes (RFC 4106, RFC 4309, RFC 7634).
    Aead(Cipher, usize),
    /// A cipher and a MAC.
    Pair(Pair),
    /// AES-GMAC (RFC 4543): only a MAC, made with the key of this cipher, which is one of GCM.
    Gmac(Cipher),
}

impl Transform {
    /// Every one.
    pub fn all() -> impl Iterator<Item = Self> {
        let aeads = Cipher::ALL
            .iter()
            .flat_map(|&cipher| cipher.tag_lengths().iter().map(move |&tag| Self::Aead(cipher, tag)));
        let pairs = Encryption::ALL.iter().flat_map(|&encryption| {
            Integrity::ALL.iter().map(move |&integrity| Self::Pair(Pair { encryption, integrity }))
        });
        let gmacs = [Cipher::Aes128Gcm, Cipher::Aes192Gcm, Cipher::Aes256Gcm].map(Self::Gmac);
        aeads.chain(pairs).chain(gmacs)
    }

    /// The name used in commands and reports; a tag that is not the longest is part of it, in bits.
    pub fn name(self) -> String {
        match self {
            Self::Aead(cipher, 16) => cipher.name().to_owned(),
            Self::Aead(cipher, tag) => format!("{}-{}", cipher.name(), tag * 8),
            Self::Pair(pair) => pair.name(),
            Self::Gmac(cipher) => cipher.name().replace("gcm", "gmac"),
        }
    }

    /// The transform of a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::all().find(|transform| transform.name() == name)
    }

    /// Bytes of key material for one direction: key and salt, or the keys of cipher and MAC.
    pub fn key_material_length(self) -> usize {
        match self {
            Self::Aead(cipher, _) if cipher.is_ccm() => cipher.key_length() + 3,
            Self::Aead(cipher, _) | Self::Gmac(cipher) => cipher.key_length() + 4,
            Self::Pair(pair) => {
                let nonce = if matches!(pair.encryption, Encryption::AesCtr(_)) { 4 } else { 0 };
                pair.encryption.key_length() + nonce + pair.integrity.key_length()
            }
        }
    }
}

/// What an SA carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Whole packets, in a new outer header.
    Tunnel,
    /// What follows the IP header.
    Transport,
}

/// The packets of a transport mode SA, whose IP header does not travel inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Our address in them.
    pub local: IpAddr,
    /// The other side's.
    pub remote: IpAddr,
    /// Whether the other side sees other addresses, so that its checksums are wrong for ours (RFC 3948 section 3.1.2).
    pub translated: bool,
}

/// One of the two SAs of a pair.
pub struct Half {
    /// By what its receiver finds it.
    pub spi: u32,
    /// [`Transform::key_material_length`] bytes, in the order in which RFC 7296 section 2.17 takes them.
    pub keys: SecretBytes,
}

/// A pair of SAs, one for each direction, as IKE agrees on them.
pub struct ChildSa {
    /// How packets are protected.
    pub transform: Transform,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// What is carried.
    pub mode: Mode,
    /// What we send with.
    pub outbound: Half,
    /// What we receive with. We have chosen its SPI.
    pub inbound: Half,
    /// The packets of our side.
    pub local: Vec<TrafficSelector>,
    /// The packets of the other side.
    pub remote: Vec<TrafficSelector>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_transforms() {
        for transform in Transform::all() {
            assert_eq!(Transform::by_name(&transform.name()), Some(transform), "{}", transform.name());
        }
        assert_eq!(Transform::by_name("aes-128-gmac"), Some(Transform::Gmac(Cipher::Aes128Gcm)));
        assert_eq!(Transform::by_name("aes-256-ccm-64"), Some(Transform::Aead(Cipher::Aes256Ccm, 8)));
    }
}
