//! The word that was probably meant: by edits, and by what algorithms are called in RFCs, by OpenSSL, libreswan, strongSwan
//! and routers.
//!
//! Edits mislead among algorithms: `aes-256-gcm` is nearer to `aes256gcm8`, with its weak tag, than to `aes256gcm128`.

use super::algorithm::{DH_GROUPS, ENCRYPTIONS, HASHES, PFS, PRFS};
use std::cmp::Reverse;

/// The word of `words` that another spelling stands for.
pub(crate) fn meant(text: &str, words: &[&'static str]) -> Option<&'static str> {
    let plain = plain(text);
    let known = |name: &str| words.iter().copied().find(|word| *word == name);
    if let Some(same) = words.iter().copied().find(|word| self::plain(word) == plain) {
        return Some(same);
    }
    if words == ENCRYPTIONS {
        known(&encryption(&plain)?)
    } else if words == HASHES {
        known(&hash(&plain)?)
    } else if words == PRFS {
        known(&format!("prf{}", hash(&plain)?))
    } else if words == DH_GROUPS {
        known(&group(&plain)?.to_string())
    } else if words == PFS {
        known(&pfs(&plain)?)
    } else {
        None
    }
}

/// The maximum edit distance of a suggestion.
pub(crate) const NEAR: usize = 3;

/// The valid word nearest to `text`; among equals the one of the same length, as swapped letters are more frequent
/// than missing ones, and then the one that begins like it.
pub fn nearest<'a>(text: &str, valid: &[&'a str]) -> Option<&'a str> {
    // No shorter way than the difference of their lengths; and a word of megabytes is not compared letter by letter.
    let length = text.chars().count();
    let is_near = |valid: &&&str| valid.chars().count().abs_diff(length) <= NEAR;
    let words = valid.iter().filter(|valid| !valid.starts_with('<')).filter(is_near);
    let common =
        |valid: &str| text.chars().zip(valid.chars()).take_while(|(one, other)| one == other).count();
    let rated = words.map(|valid| {
        let (distance, longer) = (strsim::damerau_levenshtein(text, valid), valid.len().abs_diff(text.len()));
        (distance, longer, Reverse(common(valid)), *valid)
    });
    let (distance, _, _, nearest) = rated.min()?;
    (distance <= NEAR && distance < nearest.chars().count()).then_some(nearest)
}

/// The letters and digits alone, as they are written small.
fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// The numbers in a text.
fn numbers(text: &str) -> Vec<u16> {
    let runs = text.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    runs.map(|run| run.parse().unwrap_or(0)).collect()
}

/// A cipher: what it is, the bits of its key, its mode, and the length of its tag, in any order.
fn encryption(plain: &str) -> Option<String> {
    if plain.contains("chacha") {
        return Some("chacha20poly1305".to_owned());
    }
    if plain.contains("3des") || plain.contains("des3") || plain.contains("tripledes") || plain == "desede3" {
        return Some("3des".to_owned());
    }
    if plain.contains("null") {
        return Some("null".to_owned());
    }
    let letters: String = plain.chars().filter(char::is_ascii_alphabetic).collect();
    let (is_aes, letters) = ["aes", "rijndael"]
        .into_iter()
        .find_map(|name| Some((true, letters.replacen(letters.contains(name).then_some(name)?, "", 1))))
        .unwrap_or((false, letters));
    let mode = mode(&letters);
    if !(is_aes && (letters.is_empty() || mode.is_some()) || mode == Some("gcm")) {
        return None;
    }
    let mut numbers = numbers(plain);
    // Another length of a key is a mistyped one. A tag and a length may stand together: aes_gcm_16_256.
    if numbers.iter().any(|number| (100..1000).contains(number) && ![128, 192, 256].contains(number)) {
        return None;
    }
    let bits = numbers.iter().position(|number| [128, 192, 256].contains(number));
    let bits = bits.map_or(if mode.is_some() { 256 } else { 128 }, |index| numbers.remove(index));
    let tag = match numbers.first() {
        Some(8 | 64) => 64,
        Some(12 | 96) => 96,
        _ => 128,
    };
    Some(match mode {
        Some(mode @ ("gcm" | "ccm")) => format!("aes{bits}{mode}{tag}"),
        Some("cbc") | None => format!("aes{bits}"),
        Some(mode) => format!("aes{bits}{mode}"),
    })
}

/// A mode of AES, or what is one letter away from it.
fn mode(letters: &str) -> Option<&'static str> {
    const MODES: &[&str] = &["gcm", "ccm", "gmac", "ctr", "cbc"];
    let distance = |mode: &&str| strsim::damerau_levenshtein(mode, letters);
    MODES.iter().copied().min_by_key(distance).filter(|mode| distance(mode) <= 1)
}

/// A hash, and what is built of it.
fn hash(plain: &str) -> Option<String> {
    if plain.contains("md5") {
        return Some("md5".to_owned());
    }
    if plain.contains("xcbc") {
        return Some("aesxcbc".to_owned());
    }
    if plain.contains("cmac") {
        return Some("aescmac".to_owned());
    }
    // Of hmac-sha2-256-128 the first that is a length; sha2 alone is the usual one of its family.
    let (_, rest) = plain.split_once("sha")?;
    let known = ["256", "384", "512"].into_iter().filter_map(|bits| Some((rest.find(bits)?, bits)));
    match known.min() {
        Some((_, bits)) => Some(format!("sha{bits}")),
        None if rest.starts_with('2') => Some("sha256".to_owned()),
        None if rest.is_empty() || rest.starts_with('1') => Some("sha1".to_owned()),
        None => None,
    }
}

/// Diffie-Hellman groups by what RFCs, NIST and others call them, in letters and digits alone.
const GROUPS: &[(u16, &[&str])] = &[
    (1, &["modp768"]),
    (2, &["modp1024"]),
    (5, &["modp1536"]),
    (14, &["modp2048"]),
    (15, &["modp3072"]),
    (16, &["modp4096"]),
    (17, &["modp6144"]),
    (18, &["modp8192"]),
    (19, &["ecp256", "p256", "nistp256", "secp256r1", "prime256v1"]),
    (20, &["ecp384", "p384", "nistp384", "secp384r1"]),
    (21, &["ecp521", "p521", "nistp521", "secp521r1"]),
    (22, &["modp1024s160"]),
    (23, &["modp2048s224"]),
    (24, &["modp2048s256"]),
    (25, &["ecp192"]),
    (26, &["ecp224"]),
    (27, &["ecp224bp"]),
    (28, &["ecp256bp"]),
    (29, &["ecp384bp"]),
    (30, &["ecp512bp"]),
    (31, &["curve25519", "x25519", "ecdhx25519"]),
    (32, &["curve448", "x448", "ecdhx448"]),
];

/// A group by its name, or by its number behind letters: dh-group14, group14, g14.
fn group(plain: &str) -> Option<u16> {
    // What a name of a prefix in PFS leaves behind it is a name too.
    let name = plain.strip_prefix("dhgroup").unwrap_or(plain);
    if let Some((number, _)) = GROUPS.iter().find(|(_, names)| names.contains(&name)) {
        return Some(*number);
    }
    let digits = plain.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let letters = &plain[..plain.len() - digits.len()];
    ["", "g", "dh", "group", "grp", "dhgroup", "dhg", "modp", "ecp"].contains(&letters).then_some(())?;
    let number = digits.parse().ok()?;
    GROUPS.iter().any(|(known, _)| *known == number).then_some(number)
}

fn pfs(plain: &str) -> Option<String> {
    match plain {
        "yes" | "on" | "true" | "enabled" => Some("enable".to_owned()),
        "no" | "off" | "false" | "none" | "disabled" => Some("disable".to_owned()),
        name => group(name).map(|number| format!("dh-group{number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What people type, and the word that they mean.
    type Spelling = (&'static str, &'static str);

    /// Spellings, by the words of a node.
    const SPELLINGS: [(&[&str], &[Spelling]); 5] = [
        (
            ENCRYPTIONS,
            &[
                ("aes-256-gcm", "aes256gcm128"),
                ("aes256-gcm", "aes256gcm128"),
                ("AES256GCM", "aes256gcm128"),
                ("aes-128-gcm", "aes128gcm128"),
                ("aes-gcm-256", "aes256gcm128"),
                ("aes_gcm_16_256", "aes256gcm128"),
                ("aes_gcm256", "aes256gcm128"),
                ("aes-256-gcm-16", "aes256gcm16"),
                ("aes256gcm-12", "aes256gcm12"),
                ("gcm", "aes256gcm128"),
                ("aes256gmc", "aes256gcm128"),
                ("aes256gcn", "aes256gcm128"),
                ("aes-256-ccm", "aes256ccm128"),
                ("aes-256-cbc", "aes256"),
                ("AES-CBC-256", "aes256"),
                ("AES256", "aes256"),
                ("aes-128", "aes128"),
                ("aes", "aes128"),
                ("aes-128-ctr", "aes128ctr"),
                ("chacha20-poly1305", "chacha20poly1305"),
                ("chacha20", "chacha20poly1305"),
                ("3des-cbc", "3des"),
                ("des3", "3des"),
            ],
        ),
        (
            HASHES,
            &[
                ("sha-256", "sha256"),
                ("SHA256", "sha256"),
                ("sha2-256", "sha256"),
                ("sha2", "sha256"),
                ("sha2_512", "sha512"),
                ("hmac-sha2-256-128", "sha256"),
                ("hmac-sha384", "sha384"),
                ("sha256_128", "sha256"),
                ("sha-512", "sha512"),
                ("sha", "sha1"),
                ("sha-1", "sha1"),
                ("hmac-sha1-96", "sha1"),
                ("aes-xcbc", "aesxcbc"),
                ("MD5", "md5"),
            ],
        ),
        (PRFS, &[("sha256", "prfsha256"), ("prf-hmac-sha2-384", "prfsha384"), ("hmac-sha1", "prfsha1")]),
        (
            DH_GROUPS,
            &[
                ("modp2048", "14"),
                ("MODP4096", "16"),
                ("dh-group14", "14"),
                ("group19", "19"),
                ("ecp256", "19"),
                ("P-384", "20"),
                ("secp521r1", "21"),
                ("modp2048s256", "24"),
                ("curve25519", "31"),
                ("x25519", "31"),
            ],
        ),
        (
            PFS,
            &[
                ("14", "dh-group14"),
                ("group14", "dh-group14"),
                ("dh-group-19", "dh-group19"),
                ("modp2048", "dh-group14"),
                ("curve25519", "dh-group31"),
                ("no", "disable"),
                ("yes", "enable"),
            ],
        ),
    ];

    #[test]
    fn among_words_that_are_as_near_the_one_that_begins_alike_is_meant() {
        assert_eq!(nearest("aes255", ENCRYPTIONS), Some("aes256"));
        assert_eq!(nearest("b12", &["a12", "b13", "b1"]), Some("b13"));
    }

    #[test]
    fn what_people_type_leads_to_the_word_that_they_mean() {
        for (words, spellings) in SPELLINGS {
            for (text, word) in spellings {
                assert_eq!(meant(text, words), Some(*word), "{text}");
            }
        }
        for (text, words) in [
            ("sesame", ENCRYPTIONS),
            ("aes255", ENCRYPTIONS),
            ("aesop", ENCRYPTIONS),
            ("sesame", HASHES),
            ("13", DH_GROUPS),
            ("tunel", &["tunnel"][..]),
        ] {
            assert_eq!(meant(text, words), None, "{text}");
        }
    }
}
