//! Algorithms by their names in VyOS.

use crypto::Cipher;
use crypto::cipher::{self, Integrity};
use crypto::prf::Prf;
use std::fmt;

/// A cipher of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Encryption {
    /// One that authenticates, with a tag of so many bytes.
    Aead(Cipher, usize),
    /// AES-GMAC (RFC 4543), which authenticates and does not encrypt, with the key of this cipher.
    Gmac(Cipher),
    /// One that goes with a MAC.
    Plain(cipher::Encryption),
}

impl Encryption {
    /// The cipher of a name; `None` if it is not supported.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "null" => return Some(Self::Plain(cipher::Encryption::Null)),
            "3des" => return Some(Self::Plain(cipher::Encryption::TripleDesCbc)),
            "chacha20poly1305" => return Some(Self::Aead(Cipher::ChaCha20Poly1305, 16)),
            _ => {}
        }
        let (bits, mode) = name.strip_prefix("aes")?.split_at_checked(3)?;
        let bytes = bits.parse::<usize>().ok()? / 8;
        if mode.is_empty() {
            return Some(Self::Plain(cipher::Encryption::AesCbc(bytes)));
        }
        let (mode, tag) = mode.split_at(mode.find(|c: char| c.is_ascii_digit()).unwrap_or(mode.len()));
        let cipher = |mode: &str| Cipher::by_name(&format!("aes-{bits}-{mode}"));
        match mode {
            "ctr" => Some(Self::Plain(cipher::Encryption::AesCtr(bytes))),
            "gmac" => Some(Self::Gmac(cipher("gcm")?)),
            "gcm" | "ccm" => Some(Self::Aead(cipher(mode)?, tag_length(tag)?)),
            _ => None,
        }
    }

    /// Whether it authenticates, so that no MAC goes with it.
    pub fn authenticates(self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Whether what it carries can be read by anyone.
    pub fn is_readable(self) -> bool {
        matches!(self, Self::Gmac(_) | Self::Plain(cipher::Encryption::Null))
    }

    /// Whether it should not be used any more.
    pub fn is_weak(self) -> bool {
        self.weakness().is_some()
    }

    /// Why it should not be used any more.
    pub(super) fn weakness(self) -> Option<&'static str> {
        match self {
            _ if self.is_readable() => Some("does not encrypt"),
            Self::Plain(cipher::Encryption::TripleDesCbc) => Some("is weak: its blocks have 64 bits"),
            Self::Aead(_, 8) => Some("is weak: its tags have 64 bits"),
            _ => None,
        }
    }
}

/// Bytes of a tag: VyOS counts it in bits, strongSwan in bytes.
fn tag_length(text: &str) -> Option<usize> {
    match text {
        "64" | "8" => Some(8),
        "96" | "12" => Some(12),
        "128" | "16" => Some(16),
        _ => None,
    }
}

/// The MAC of a name; `None` if it is not supported.
pub(super) fn integrity(hash: &str) -> Option<Integrity> {
    match hash {
        "sha1" => Some(Integrity::HmacSha1),
        "sha256" => Some(Integrity::HmacSha256),
        "sha384" => Some(Integrity::HmacSha384),
        "sha512" => Some(Integrity::HmacSha512),
        "aesxcbc" => Some(Integrity::AesXcbc),
        _ => None,
    }
}

/// The MACs for a proposal that names none.
pub(super) const INTEGRITY: &[Integrity] =
    &[Integrity::HmacSha256, Integrity::HmacSha384, Integrity::HmacSha512];

/// The function of a name, `prfsha256`, or of the MAC that is built like it, `sha256`; `None` if it is not supported.
pub fn prf_by_name(name: &str) -> Option<Prf> {
    let hash = |name| str::strip_prefix(name, "prf");
    Prf::ALL.iter().copied().find(|prf| hash(prf.name()) == hash(name).or(Some(name)))
}

/// The functions for a proposal that names neither one nor a hash.
///
/// A VyOS that is told as little offers PRF_HMAC_SHA1 alone, so it is accepted after all others: HMAC does not need the
/// hash to be free of collisions, and RFC 8247 keeps it.
pub(super) const PRFS: &[Prf] = &[Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512, Prf::HmacSha1];

/// A Diffie-Hellman group, by its number in IKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DhGroup(pub u16);

impl DhGroup {
    const SERVED: &[u16] = &[2, 5, 14, 15, 16, 17, 18, 19, 20, 21, 31];

    /// The group of a number; `None` if it is not supported.
    pub fn by_number(number: &str) -> Option<Self> {
        let number = number.parse().ok()?;
        Self::SERVED.contains(&number).then_some(Self(number))
    }

    /// Whether it should not be used any more.
    pub fn is_weak(self) -> bool {
        self.weakness().is_some()
    }

    /// Why it should not be used any more.
    pub(super) fn weakness(self) -> Option<&'static str> {
        matches!(self.0, 2 | 5).then_some("is weak: its numbers are too short")
    }
}

impl fmt::Display for DhGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The groups for a proposal that names none: the fast first.
pub(super) const GROUPS: &[DhGroup] =
    &[DhGroup(31), DhGroup(19), DhGroup(20), DhGroup(21), DhGroup(14), DhGroup(15), DhGroup(16)];

/// The ciphers of a group without a proposal.
pub(super) const ENCRYPTIONS: &[Encryption] = &[
    Encryption::Aead(Cipher::Aes256Gcm, 16),
    Encryption::Aead(Cipher::Aes128Gcm, 16),
    Encryption::Aead(Cipher::ChaCha20Poly1305, 16),
    Encryption::Plain(cipher::Encryption::AesCbc(32)),
    Encryption::Plain(cipher::Encryption::AesCbc(16)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn a_name_in_the_grammar_is_served_or_known_not_to_be() {
        let unsupported = ["blowfish", "camellia", "cast", "serpent", "twofish"];
        for name in schema::ENCRYPTIONS {
            let expected = !unsupported.iter().any(|prefix| name.starts_with(prefix));
            assert_eq!(Encryption::by_name(name).is_some(), expected, "{name}");
        }
        let served = |names: &[&'static str], by_name: &dyn Fn(&str) -> bool| {
            names.iter().copied().filter(|name| by_name(name)).collect::<Vec<_>>()
        };
        let hashes = served(schema::HASHES, &|name| integrity(name).is_some());
        assert_eq!(hashes, ["aesxcbc", "sha1", "sha256", "sha384", "sha512"]);
        let prfs = served(schema::PRFS, &|name| prf_by_name(name).is_some());
        assert_eq!(prfs, ["prfaesxcbc", "prfsha1", "prfsha256", "prfsha384", "prfsha512"]);
        let groups = served(schema::DH_GROUPS, &|number| DhGroup::by_number(number).is_some());
        assert_eq!(groups.len(), DhGroup::SERVED.len());
    }

    #[test]
    fn both_spellings_of_a_tag_are_one_cipher() {
        for (bits, bytes) in [("64", "8"), ("96", "12"), ("128", "16")] {
            for cipher in ["aes128gcm", "aes192gcm", "aes256gcm", "aes128ccm", "aes256ccm"] {
                let [ours, theirs] =
                    [bits, bytes].map(|tag| Encryption::by_name(&format!("{cipher}{tag}")).expect("served"));
                assert_eq!(ours, theirs);
            }
        }
        assert_eq!(Encryption::by_name("aes256gcm128"), Some(Encryption::Aead(Cipher::Aes256Gcm, 16)));
    }

    #[test]
    fn nothing_weak_is_a_default() {
        assert!(ENCRYPTIONS.iter().all(|encryption| encryption.weakness().is_none()));
        assert!(GROUPS.iter().all(|group| group.weakness().is_none()));
        assert!(!INTEGRITY.contains(&Integrity::HmacSha1));
        assert_eq!(PRFS.last(), Some(&Prf::HmacSha1), "last of all");
    }
}
