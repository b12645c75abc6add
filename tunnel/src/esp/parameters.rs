//! A negotiated Child SA: the parameters and selectors of a pair of SAs.

use super::selector::TrafficSelector;
use crypto::SecretBytes;
use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
use packet::Endpoint;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The cryptographic protection of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// An authenticated cipher, with its tag length in bytes (RFC 4106, RFC 4309, RFC 7634).
    Aead(Cipher, usize),
    /// A cipher and a MAC.
    Pair(Pair),
    /// AES-GMAC (RFC 4543): only a MAC, with the key of this GCM cipher.
    Gmac(Cipher),
    /// Neither a cipher nor a MAC: only files of ipsec-secgw ask for it, for tests. It has no name for a configuration.
    Null,
}

impl Transform {
    /// All supported transforms that protect packets.
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

    /// The name in commands and reports; a truncated tag is part of it, in bits.
    pub fn name(self) -> String {
        match self {
            Self::Aead(cipher, 16) => cipher.name().to_owned(),
            Self::Aead(cipher, tag) => format!("{}-{}", cipher.name(), tag * 8),
            Self::Pair(pair) => pair.name(),
            Self::Gmac(cipher) => cipher.name().replace("gcm", "gmac"),
            Self::Null => "null".to_owned(),
        }
    }

    /// The transform with this name.
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
            Self::Null => 0,
        }
    }
}

/// The mode of an SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Tunnel mode: whole packets, in a new outer header.
    Tunnel,
    /// Transport mode: the part after the IP header.
    Transport,
    /// Transport mode of a bump in the wire (RFC 4301 section 3.3): packets keep their IP header, which the caller takes off and puts
    /// back. A packet that was opened has one byte before its payload: the next header.
    BumpInTheWire,
}

/// The addresses of a transport mode SA, whose IP header is not encapsulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// The local address.
    pub local: IpAddr,
    /// The remote address.
    pub remote: IpAddr,
    /// Whether the peer uses other addresses, so that its transport checksums do not match the local ones (RFC 3948
    /// section 3.1.2).
    pub translated: bool,
}

/// The outer header of an SA batch, from which transport mode makes the inner IP headers.
pub struct Outer<'a> {
    /// The addresses of the outer header.
    pub endpoint: &'a Endpoint,
    /// Its DS field.
    pub ds_field: u8,
    /// The addresses of the SA, in place of those of the outer header.
    pub transport: Option<Transport>,
}

impl Outer<'_> {
    /// The addresses of the inner headers.
    pub(super) fn addresses(&self) -> Transport {
        self.transport.unwrap_or_else(|| {
            let remote = self.endpoint.remote.ip();
            let any =
                if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            Transport { local: self.endpoint.local.unwrap_or(any), remote, translated: false }
        })
    }
}

/// One SA of a pair.
pub struct Half {
    /// The SPI, which the receiver finds the SA by.
    pub spi: u32,
    /// [`Transform::key_material_length`] bytes, in the order of RFC 7296 section 2.17.
    pub keys: SecretBytes,
}

/// A pair of SAs, one for each direction, as negotiated by IKE.
pub struct ChildSa {
    /// The cryptographic protection.
    pub transform: Transform,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence: bool,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// The SA to send with.
    pub outbound: Half,
    /// The SA to receive with; its SPI was chosen locally.
    pub inbound: Half,
    /// The local traffic selectors.
    pub local: Vec<TrafficSelector>,
    /// The remote traffic selectors.
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
        assert_eq!(Transform::by_name("null"), None, "no configuration can name it");
        assert_eq!(Transform::by_name("aes-128-gmac"), Some(Transform::Gmac(Cipher::Aes128Gcm)));
        assert_eq!(Transform::by_name("aes-256-ccm-64"), Some(Transform::Aead(Cipher::Aes256Ccm, 8)));
    }
}
