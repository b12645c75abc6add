//! The ciphers that protect packets, and their names.

use std::fmt;

/// An AEAD cipher for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cipher {
    /// ChaCha20-Poly1305 (RFC 8439).
    ChaCha20Poly1305,
    /// AES-128-GCM (NIST SP 800-38D).
    Aes128Gcm,
    /// AES-192-GCM.
    Aes192Gcm,
    /// AES-256-GCM.
    Aes256Gcm,
    /// AES-128-CCM (RFC 3610, with nonces of 11 bytes as in RFC 4309).
    Aes128Ccm,
    /// AES-192-CCM.
    Aes192Ccm,
    /// AES-256-CCM.
    Aes256Ccm,
}

impl Cipher {
    /// All AEAD ciphers.
    pub const ALL: &[Self] = &[
        Self::ChaCha20Poly1305,
        Self::Aes128Gcm,
        Self::Aes192Gcm,
        Self::Aes256Gcm,
        Self::Aes128Ccm,
        Self::Aes192Ccm,
        Self::Aes256Ccm,
    ];

    /// The name used in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::ChaCha20Poly1305 => "chacha20-poly1305",
            Self::Aes128Gcm => "aes-128-gcm",
            Self::Aes192Gcm => "aes-192-gcm",
            Self::Aes256Gcm => "aes-256-gcm",
            Self::Aes128Ccm => "aes-128-ccm",
            Self::Aes192Ccm => "aes-192-ccm",
            Self::Aes256Ccm => "aes-256-ccm",
        }
    }

    /// The cipher with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cipher| cipher.name() == name)
    }

    /// Key length in bytes.
    pub fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes128Ccm => 16,
            Self::Aes192Gcm | Self::Aes192Ccm => 24,
            Self::ChaCha20Poly1305 | Self::Aes256Gcm | Self::Aes256Ccm => 32,
        }
    }

    /// The supported tag lengths in bytes, in ascending order.
    pub fn tag_lengths(self) -> &'static [usize] {
        match self {
            Self::ChaCha20Poly1305 => &[16],
            _ => &[8, 12, 16],
        }
    }

    /// Whether the mode is CCM.
    pub fn is_ccm(self) -> bool {
        matches!(self, Self::Aes128Ccm | Self::Aes192Ccm | Self::Aes256Ccm)
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The encryption algorithm of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encryption {
    /// NULL encryption (RFC 2410).
    Null,
    /// AES-CBC (RFC 3602) with a key of 16, 24 or 32 bytes.
    AesCbc(usize),
    /// AES-CTR (RFC 3686) with a key of 16, 24 or 32 bytes, without the nonce.
    AesCtr(usize),
    /// Triple DES in CBC mode (RFC 2451). Weak: 64-bit blocks.
    TripleDesCbc,
}

impl Encryption {
    /// All encryption algorithms.
    pub const ALL: &[Self] = &[
        Self::Null,
        Self::AesCbc(16),
        Self::AesCbc(24),
        Self::AesCbc(32),
        Self::AesCtr(16),
        Self::AesCtr(24),
        Self::AesCtr(32),
        Self::TripleDesCbc,
    ];

    /// The name used in commands and reports.
    pub fn name(self) -> String {
        match self {
            Self::Null => String::from("null"),
            Self::AesCbc(key) => format!("aes-{}-cbc", key * 8),
            Self::AesCtr(key) => format!("aes-{}-ctr", key * 8),
            Self::TripleDesCbc => String::from("3des-cbc"),
        }
    }

    /// Key length in bytes, without a nonce.
    pub fn key_length(self) -> usize {
        match self {
            Self::Null => 0,
            Self::AesCbc(key) | Self::AesCtr(key) => key,
            Self::TripleDesCbc => 24,
        }
    }

    /// Block size in bytes: the length of the text must be a multiple of it.
    pub fn block(self) -> usize {
        match self {
            Self::Null | Self::AesCtr(_) => 1,
            Self::AesCbc(_) => 16,
            Self::TripleDesCbc => 8,
        }
    }
}

/// The integrity algorithm of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Integrity {
    /// HMAC-SHA1-96 (RFC 2404). Weak: SHA-1.
    HmacSha1,
    /// HMAC-SHA256-128 (RFC 4868).
    HmacSha256,
    /// HMAC-SHA384-192 (RFC 4868).
    HmacSha384,
    /// HMAC-SHA512-256 (RFC 4868).
    HmacSha512,
    /// AES-XCBC-MAC-96 (RFC 3566).
    AesXcbc,
}

impl Integrity {
    /// All integrity algorithms.
    pub const ALL: &[Self] =
        &[Self::HmacSha1, Self::HmacSha256, Self::HmacSha384, Self::HmacSha512, Self::AesXcbc];

    /// The name used in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::HmacSha1 => "hmac-sha1-96",
            Self::HmacSha256 => "hmac-sha256-128",
            Self::HmacSha384 => "hmac-sha384-192",
            Self::HmacSha512 => "hmac-sha512-256",
            Self::AesXcbc => "aes-xcbc-96",
        }
    }

    /// Key length in bytes.
    pub fn key_length(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
            Self::AesXcbc => 16,
        }
    }

    /// Tag length in bytes, after truncation.
    pub fn tag_length(self) -> usize {
        match self {
            Self::HmacSha1 | Self::AesXcbc => 12,
            Self::HmacSha256 => 16,
            Self::HmacSha384 => 24,
            Self::HmacSha512 => 32,
        }
    }
}

/// Encrypt-then-MAC from two algorithms: how ESP protects packets without an AEAD cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The encryption algorithm.
    pub encryption: Encryption,
    /// The integrity algorithm.
    pub integrity: Integrity,
}

impl Pair {
    /// The name used in commands and reports.
    pub fn name(self) -> String {
        format!("{}+{}", self.encryption.name(), self.integrity.name())
    }

    /// The pair with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        let (encryption, integrity) = name.split_once('+')?;
        Some(Self {
            encryption: Encryption::ALL.iter().copied().find(|it| it.name() == encryption)?,
            integrity: Integrity::ALL.iter().copied().find(|it| it.name() == integrity)?,
        })
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_found_by_its_name() {
        for &encryption in Encryption::ALL {
            for &integrity in Integrity::ALL {
                let pair = Pair { encryption, integrity };
                assert_eq!(Pair::by_name(&pair.name()), Some(pair));
            }
        }
        assert_eq!(Pair::by_name("aes-256-cbc"), None);
        assert_eq!(Pair::by_name("aes-256-cbc+hmac-sha256"), None);
    }
}
