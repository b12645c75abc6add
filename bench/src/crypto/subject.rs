//! The subjects that can be measured, by name: ciphers, pairs of cipher and MAC, hashes, and operations of handshakes.

use super::operation::Operation;
use crypto::Cipher;
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::cbc::Cbc;

/// A hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Hash {
    const ALL: [Self; 3] = [Self::Sha1, Self::Sha256, Self::Sha512];

    fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// OpenSSL's name.
    pub(super) fn openssl_name(self) -> &'static str {
        match self {
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
        }
    }
}

/// A subject to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// An AEAD cipher.
    Cipher(Cipher),
    /// A cipher and a MAC.
    Pair(Pair),
    /// A block cipher without a MAC.
    Cbc(Cbc),
    /// A hash.
    Hash(Hash),
    /// An operation of handshakes.
    Operation(Operation),
}

/// The default pairs: each key length in each mode, and each MAC alone.
const PAIRS: [(Encryption, Integrity); 16] = [
    (Encryption::AesCbc(16), Integrity::HmacSha1),
    (Encryption::AesCbc(16), Integrity::HmacSha256),
    (Encryption::AesCbc(16), Integrity::AesXcbc),
    (Encryption::AesCbc(24), Integrity::HmacSha256),
    (Encryption::AesCbc(32), Integrity::HmacSha256),
    (Encryption::AesCbc(32), Integrity::HmacSha384),
    (Encryption::AesCbc(32), Integrity::HmacSha512),
    (Encryption::AesCtr(16), Integrity::HmacSha256),
    (Encryption::AesCtr(24), Integrity::HmacSha256),
    (Encryption::AesCtr(32), Integrity::HmacSha256),
    (Encryption::TripleDesCbc, Integrity::HmacSha1),
    (Encryption::Null, Integrity::HmacSha1),
    (Encryption::Null, Integrity::HmacSha256),
    (Encryption::Null, Integrity::HmacSha384),
    (Encryption::Null, Integrity::HmacSha512),
    (Encryption::Null, Integrity::AesXcbc),
];

impl Subject {
    /// The subjects that are measured by default.
    pub fn usual() -> Vec<Self> {
        let pairs = PAIRS.iter().map(|&(encryption, integrity)| Self::Pair(Pair { encryption, integrity }));
        Self::with(pairs)
    }

    /// All subjects.
    pub fn every() -> Vec<Self> {
        Self::with(crypto::choice::Subject::every().filter_map(|subject| match subject {
            crypto::choice::Subject::Pair(pair) => Some(Self::Pair(pair)),
            crypto::choice::Subject::Cipher(_) => None,
        }))
    }

    fn with(pairs: impl Iterator<Item = Self>) -> Vec<Self> {
        let ciphers = Cipher::ALL.iter().copied().map(Self::Cipher);
        let hashes = Hash::ALL.into_iter().map(Self::Hash);
        ciphers
            .chain(pairs)
            .chain(Cbc::ALL.map(Self::Cbc))
            .chain(hashes)
            .chain(Operation::ALL.iter().copied().map(Self::Operation))
            .collect()
    }

    /// The subjects whose names contain `part`: of the default ones, or of all if no default one matches. An exact name
    /// selects only that subject.
    pub fn named(part: &str) -> Vec<Self> {
        let among = |all: Vec<Self>| -> Vec<Self> {
            let exact: Vec<Self> = all.iter().copied().filter(|subject| subject.name() == part).collect();
            if exact.is_empty() {
                all.into_iter().filter(|subject| subject.name().contains(part)).collect()
            } else {
                exact
            }
        };
        let usual = among(Self::usual());
        if usual.is_empty() { among(Self::every()) } else { usual }
    }

    /// The name used in commands and reports.
    pub fn name(self) -> String {
        match self {
            Self::Cipher(cipher) => cipher.name().to_owned(),
            Self::Pair(pair) => pair.name(),
            Self::Cbc(cipher) => cipher.name().to_owned(),
            Self::Hash(hash) => hash.name().to_owned(),
            Self::Operation(operation) => operation.name(),
        }
    }

    /// The subject with exactly this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::every().into_iter().find(|subject| subject.name() == name)
    }

    /// The kind used in reports.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Cipher(_) => "cipher",
            Self::Pair(_) => "pair",
            Self::Cbc(_) => "block-cipher",
            Self::Hash(_) => "hash",
            Self::Operation(_) => "operation",
        }
    }

    /// Whether opening can be measured.
    pub fn opens(self) -> bool {
        matches!(self, Self::Cipher(_) | Self::Pair(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_has_its_own_name() {
        let mut names: Vec<String> = Subject::every().into_iter().map(Subject::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(Subject::every().into_iter().all(|it| Subject::by_name(&it.name()) == Some(it)));
    }

    #[test]
    fn subjects_are_selected_by_a_name_or_a_part_of_it() {
        let names = |part| Subject::named(part).into_iter().map(Subject::name).collect::<Vec<_>>();
        assert_eq!(names("sha256"), ["sha256"]);
        assert_eq!(names("aes-128-cbc"), ["aes-128-cbc"]);
        assert_eq!(names("aes-256-gcm"), ["aes-256-gcm"]);
        assert_eq!(names("3des"), ["3des-cbc+hmac-sha1-96"]);
        assert_eq!(names("3des-cbc+hmac-sha256-128"), ["3des-cbc+hmac-sha256-128"], "not a default subject");
        assert_eq!(names("blowfish"), Vec::<String>::new());
    }
}
