//! What a key exchange hands over: a pair of SAs, with which packets they are for.

use super::selector::TrafficSelector;
use crypto::SecretBytes;
use crypto::cipher::{Cipher, Encryption, Pair};

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
