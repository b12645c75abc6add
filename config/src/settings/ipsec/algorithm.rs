//! Algorithms by their names in VyOS.

use crate::schema;
use crypto::Cipher;
use crypto::cipher::{self, Integrity};
use crypto::exchange::Group;
use crypto::prf::Prf;
use tunnel::ikev2::proposal::Encryption;

/// The cipher of a name; `None` if it is not supported.
pub fn encryption_by_name(name: &str) -> Option<Encryption> {
    match name {
        "null" => return Some(Encryption::Plain(cipher::Encryption::Null)),
        "3des" => return Some(Encryption::Plain(cipher::Encryption::TripleDesCbc)),
        "chacha20poly1305" => return Some(Encryption::Aead(Cipher::ChaCha20Poly1305, 16)),
        _ => {}
    }
    let (bits, mode) = name.strip_prefix("aes")?.split_at_checked(3)?;
    let bytes = bits.parse::<usize>().ok()? / 8;
    if mode.is_empty() {
        return Some(Encryption::Plain(cipher::Encryption::AesCbc(bytes)));
    }
    let (mode, tag) = mode.split_at(mode.find(|c: char| c.is_ascii_digit()).unwrap_or(mode.len()));
    let cipher = |mode: &str| Cipher::by_name(&format!("aes-{bits}-{mode}"));
    match mode {
        "ctr" => Some(Encryption::Plain(cipher::Encryption::AesCtr(bytes))),
        "gmac" => Some(Encryption::Gmac(cipher("gcm")?)),
        "gcm" | "ccm" => Some(Encryption::Aead(cipher(mode)?, tag_length(tag)?)),
        _ => None,
    }
}

/// Why a cipher should not be used any more.
pub fn weakness(encryption: Encryption) -> Option<&'static str> {
    match encryption {
        _ if !encryption.hides() => Some("does not encrypt"),
        Encryption::Plain(cipher::Encryption::TripleDesCbc) => Some("is weak: its blocks have 64 bits"),
        Encryption::Aead(_, 8) => Some("is weak: its tags have 64 bits"),
        _ => None,
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

/// The group of a number in IKE; `None` if it is not supported.
pub(super) fn group_by_number(number: &str) -> Option<Group> {
    Group::from_id(number.parse().ok()?)
}

/// Why a group should not be used any more.
pub(super) fn group_weakness(group: Group) -> Option<&'static str> {
    group.is_weak().then_some("is weak: its numbers are too short")
}

/// The groups for a proposal that names none: the fast first.
pub(super) const GROUPS: &[Group] = &[
    Group::X25519,
    Group::Ecp256,
    Group::Ecp384,
    Group::Ecp521,
    Group::Modp2048,
    Group::Modp3072,
    Group::Modp4096,
];

/// The ciphers of a group without a proposal.
pub(super) const ENCRYPTIONS: &[Encryption] = &[
    Encryption::Aead(Cipher::Aes256Gcm, 16),
    Encryption::Aead(Cipher::Aes128Gcm, 16),
    Encryption::Aead(Cipher::ChaCha20Poly1305, 16),
    Encryption::Plain(cipher::Encryption::AesCbc(32)),
    Encryption::Plain(cipher::Encryption::AesCbc(16)),
];

/// Whether a word of the grammar names what is served, so that it may be offered: VyOS has more algorithms.
pub(crate) fn is_served(words: &[&str], name: &str) -> bool {
    let is_group = |number| group_by_number(number).is_some();
    if words == schema::ENCRYPTIONS {
        encryption_by_name(name).is_some()
    } else if words == schema::HASHES {
        integrity(name).is_some()
    } else if words == schema::PRFS {
        prf_by_name(name).is_some()
    } else if words == schema::DH_GROUPS {
        is_group(name)
    } else if words == schema::KEY_EXCHANGES {
        name != "ikev1"
    } else {
        name.strip_prefix("dh-group").is_none_or(is_group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_the_grammar_is_served_or_known_not_to_be() {
        let unsupported = ["blowfish", "camellia", "cast", "serpent", "twofish"];
        for name in schema::ENCRYPTIONS {
            let expected = !unsupported.iter().any(|prefix| name.starts_with(prefix));
            assert_eq!(encryption_by_name(name).is_some(), expected, "{name}");
        }
        let served = |names: &[&'static str], by_name: &dyn Fn(&str) -> bool| {
            names.iter().copied().filter(|name| by_name(name)).collect::<Vec<_>>()
        };
        let hashes = served(schema::HASHES, &|name| integrity(name).is_some());
        assert_eq!(hashes, ["aesxcbc", "sha1", "sha256", "sha384", "sha512"]);
        let prfs = served(schema::PRFS, &|name| prf_by_name(name).is_some());
        assert_eq!(prfs, ["prfaesxcbc", "prfsha1", "prfsha256", "prfsha384", "prfsha512"]);
        let groups = served(schema::DH_GROUPS, &|number| group_by_number(number).is_some());
        assert_eq!(groups.len(), Group::ALL.len());
    }

    #[test]
    fn both_spellings_of_a_tag_are_one_cipher() {
        for (bits, bytes) in [("64", "8"), ("96", "12"), ("128", "16")] {
            for cipher in ["aes128gcm", "aes192gcm", "aes256gcm", "aes128ccm", "aes256ccm"] {
                let [ours, theirs] =
                    [bits, bytes].map(|tag| encryption_by_name(&format!("{cipher}{tag}")).expect("served"));
                assert_eq!(ours, theirs);
            }
        }
        assert_eq!(encryption_by_name("aes256gcm128"), Some(Encryption::Aead(Cipher::Aes256Gcm, 16)));
    }

    #[test]
    fn nothing_weak_is_a_default() {
        assert!(ENCRYPTIONS.iter().all(|encryption| weakness(*encryption).is_none()));
        assert!(!GROUPS.iter().any(|group| group.is_weak()));
        assert!(!INTEGRITY.contains(&Integrity::HmacSha1));
        assert_eq!(PRFS.last(), Some(&Prf::HmacSha1), "last of all");
    }
}
