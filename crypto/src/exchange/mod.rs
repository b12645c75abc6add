//! Diffie-Hellman key exchange, with the groups of IKEv2's key exchange method transform (RFC 7296, section 3.3.2).
//!
//! [`Group::generate`] makes a private share, [`PrivateShare::public`] is sent to the peer, and [`PrivateShare::agree`]
//! computes the shared secret from the peer's public value, after the checks of RFC 6989.

mod comb;
mod curve;
mod modp;

use crate::{PrivateKey, Random, SecretBytes};
use curve::Ecp;
use modp::{Exponent, Modp};
use std::fmt;

/// A Diffie-Hellman group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Group {
    /// Group 2 (RFC 7296, appendix B). Weak: close to sizes that have been broken.
    Modp1024 = 2,
    /// Group 5 (RFC 3526). Weak.
    Modp1536 = 5,
    /// Group 14 (RFC 3526).
    Modp2048 = 14,
    /// Group 15 (RFC 3526).
    Modp3072 = 15,
    /// Group 16 (RFC 3526).
    Modp4096 = 16,
    /// Group 17 (RFC 3526).
    Modp6144 = 17,
    /// Group 18 (RFC 3526).
    Modp8192 = 18,
    /// Group 19, P-256 (RFC 5903).
    Ecp256 = 19,
    /// Group 20, P-384 (RFC 5903).
    Ecp384 = 20,
    /// Group 21, P-521 (RFC 5903).
    Ecp521 = 21,
    /// Group 31, Curve25519 (RFC 8031).
    X25519 = 31,
}

/// Why a peer's public value was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// Its length is not that of the group's public values.
    #[error("a public value of {group} has {expected} bytes, the peer's has {found}")]
    Length {
        /// The group.
        group: Group,
        /// The length of the group's public values.
        expected: usize,
        /// The length of the received value.
        found: usize,
    },
    /// The value is not in 1 < y < p - 1, not on the curve, or of low order.
    #[error("the peer's public value is invalid for {group}")]
    Invalid {
        /// The group.
        group: Group,
    },
}

/// The arithmetic of a group.
enum Family {
    Modp(Modp),
    Ecp(Ecp),
    X25519,
}

impl Group {
    /// All groups.
    pub const ALL: &[Self] = &[
        Self::Modp1024,
        Self::Modp1536,
        Self::Modp2048,
        Self::Modp3072,
        Self::Modp4096,
        Self::Modp6144,
        Self::Modp8192,
        Self::Ecp256,
        Self::Ecp384,
        Self::Ecp521,
        Self::X25519,
    ];

    /// The group with this transform ID.
    pub fn from_id(id: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|group| group.id() == id)
    }

    /// The transform ID.
    pub fn id(self) -> u16 {
        self as u16
    }

    /// The name used in proposals.
    pub fn name(self) -> &'static str {
        match self {
            Self::Modp1024 => "modp1024",
            Self::Modp1536 => "modp1536",
            Self::Modp2048 => "modp2048",
            Self::Modp3072 => "modp3072",
            Self::Modp4096 => "modp4096",
            Self::Modp6144 => "modp6144",
            Self::Modp8192 => "modp8192",
            Self::Ecp256 => "ecp256",
            Self::Ecp384 => "ecp384",
            Self::Ecp521 => "ecp521",
            Self::X25519 => "x25519",
        }
    }

    /// Length of a public value in bytes; fixed for each group.
    pub fn public_length(self) -> usize {
        match self.family() {
            Family::Modp(modp) => modp.length(),
            Family::Ecp(ecp) => 2 * ecp.coordinate(),
            Family::X25519 => 32,
        }
    }

    /// Whether the group is weak: it is used only if configured by name.
    pub fn is_weak(self) -> bool {
        matches!(self, Self::Modp1024 | Self::Modp1536)
    }

    /// Generates a private share.
    pub fn generate(self, random: &mut dyn Random) -> PrivateShare {
        let (key, public) = match self.family() {
            Family::Modp(modp) => {
                let (exponent, public) = modp.generate(random);
                (SecretKey::Modp(modp, exponent), public)
            }
            Family::Ecp(ecp) => {
                let (key, public) = ecp.generate(random);
                (SecretKey::Ecp(ecp, key), public)
            }
            Family::X25519 => {
                let key = PrivateKey::generate(random);
                let public = key.public().0.to_vec();
                (SecretKey::X25519(key), public)
            }
        };
        PrivateShare { group: self, key, public }
    }

    fn family(self) -> Family {
        match self {
            Self::Modp1024 => Family::Modp(Modp::Bits1024),
            Self::Modp1536 => Family::Modp(Modp::Bits1536),
            Self::Modp2048 => Family::Modp(Modp::Bits2048),
            Self::Modp3072 => Family::Modp(Modp::Bits3072),
            Self::Modp4096 => Family::Modp(Modp::Bits4096),
            Self::Modp6144 => Family::Modp(Modp::Bits6144),
            Self::Modp8192 => Family::Modp(Modp::Bits8192),
            Self::Ecp256 => Family::Ecp(Ecp::P256),
            Self::Ecp384 => Family::Ecp(Ecp::P384),
            Self::Ecp521 => Family::Ecp(Ecp::P521),
            Self::X25519 => Family::X25519,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

enum SecretKey {
    Modp(Modp, Exponent),
    Ecp(Ecp, aws_lc_rs::agreement::PrivateKey),
    X25519(PrivateKey),
}

/// The private value of a key exchange, with its public value.
pub struct PrivateShare {
    group: Group,
    key: SecretKey,
    public: Vec<u8>,
}

impl PrivateShare {
    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The public value as in a KE payload: a number in network byte order, x followed by y of a point, or 32 bytes.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Computes the shared secret from the peer's public value: g^ir of RFC 7296, padded to the group's length.
    pub fn agree(&self, peer: &[u8]) -> Result<SecretBytes, ExchangeError> {
        let (group, expected, found) = (self.group, self.group.public_length(), peer.len());
        if found != expected {
            return Err(ExchangeError::Length { group, expected, found });
        }
        let shared = match &self.key {
            SecretKey::Modp(modp, exponent) => modp.agree(exponent, peer),
            SecretKey::Ecp(ecp, key) => ecp.agree(key, peer),
            SecretKey::X25519(key) => curve::agree_x25519(key, peer),
        };
        shared.ok_or(ExchangeError::Invalid { group })
    }
}
