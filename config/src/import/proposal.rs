//! Algorithms by their names in strongSwan and libreswan, and proposals made of them.

use crate::schema::ENCRYPTIONS;

/// The maximum number of proposals that stand for one with several algorithms of a kind.
const MOST: usize = 64;

/// What a word of a proposal stands for, by its name here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Word {
    Encryption(String),
    Hash(&'static str),
    Prf(&'static str),
    Group(&'static str),
    Extended(bool),
    /// libreswan has it for no MAC, beside a cipher that authenticates.
    Nothing,
}

/// One proposal, in the words of the grammar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suite {
    pub(super) encryption: String,
    pub(super) hash: Option<&'static str>,
    pub(super) prf: Option<&'static str>,
    pub(super) group: Option<&'static str>,
}

/// A proposal for ESP: its suites, of which none names a group, the groups, and whether sequence numbers of 64 bits are
/// offered, and of 32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Esp {
    pub(super) suites: Vec<Suite>,
    pub(super) groups: Vec<&'static str>,
    pub(super) extended: Vec<bool>,
}

/// MACs, by their names in strongSwan and libreswan.
const HASHES: &[(&str, &str)] = &[
    ("md5", "md5"),
    ("md5_128", "md5_128"),
    ("sha", "sha1"),
    ("sha1", "sha1"),
    ("sha1_160", "sha1_160"),
    ("sha2", "sha256"),
    ("sha256", "sha256"),
    ("sha2_256", "sha256"),
    ("sha2_256_128", "sha256"),
    ("sha256_96", "sha256_96"),
    ("sha2_256_96", "sha256_96"),
    ("sha384", "sha384"),
    ("sha2_384", "sha384"),
    ("sha512", "sha512"),
    ("sha2_512", "sha512"),
    ("aesxcbc", "aesxcbc"),
    ("aes_xcbc", "aesxcbc"),
    ("aescmac", "aescmac"),
    ("aes_cmac", "aescmac"),
];

const PRFS: &[(&str, &str)] = &[
    ("prfmd5", "prfmd5"),
    ("prfsha1", "prfsha1"),
    ("prfaesxcbc", "prfaesxcbc"),
    ("prfaescmac", "prfaescmac"),
    ("prfsha256", "prfsha256"),
    ("prfsha2_256", "prfsha256"),
    ("prfsha384", "prfsha384"),
    ("prfsha2_384", "prfsha384"),
    ("prfsha512", "prfsha512"),
    ("prfsha2_512", "prfsha512"),
];

/// Diffie-Hellman groups, by number.
const GROUPS: &[(&str, &[&str])] = &[
    ("1", &["modp768", "dh1"]),
    ("2", &["modp1024", "dh2"]),
    ("5", &["modp1536", "dh5"]),
    ("14", &["modp2048", "dh14"]),
    ("15", &["modp3072", "dh15"]),
    ("16", &["modp4096", "dh16"]),
    ("17", &["modp6144", "dh17"]),
    ("18", &["modp8192", "dh18"]),
    ("19", &["ecp256", "ecp_256", "dh19"]),
    ("20", &["ecp384", "ecp_384", "dh20"]),
    ("21", &["ecp521", "ecp_521", "dh21"]),
    ("22", &["modp1024s160", "dh22"]),
    ("23", &["modp2048s224", "dh23"]),
    ("24", &["modp2048s256", "dh24"]),
    ("25", &["ecp192", "dh25"]),
    ("26", &["ecp224", "dh26"]),
    ("27", &["ecp224bp", "dh27"]),
    ("28", &["ecp256bp", "dh28"]),
    ("29", &["ecp384bp", "dh29"]),
    ("30", &["ecp512bp", "dh30"]),
    ("31", &["curve25519", "x25519", "dh31"]),
    ("32", &["curve448", "x448", "dh32"]),
];

/// Ciphers with other names than here; all others are called as they are here, or as [`sized`] reads them.
const CIPHERS: &[(&str, &str)] = &[
    ("aes", "aes128"),
    ("chacha20poly1305", "chacha20poly1305"),
    ("chacha20_poly1305", "chacha20poly1305"),
    ("blowfish", "blowfish128"),
    ("camellia", "camellia128"),
    ("serpent", "serpent128"),
    ("twofish", "twofish128"),
];

/// A cipher by its size and mode: `aes256gcm16`, `aes_gcm256`, `aes_cbc_256`, `aes_gcm_16_256`.
fn sized(text: &str) -> Option<String> {
    let rest = text.strip_prefix("aes")?;
    let letters: String = rest.chars().filter(char::is_ascii_alphabetic).collect();
    let mut numbers: Vec<&str> =
        rest.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty()).collect();
    let is_size = |number: &&str| matches!(*number, "128" | "192" | "256");
    // In strongSwan's names the size comes first and the tag last, in libreswan's the other way round.
    let is_size_last = text.contains('_');
    let position =
        if is_size_last { numbers.iter().rposition(is_size) } else { numbers.iter().position(is_size) };
    let size = numbers.remove(position?);
    let tag = match numbers[..] {
        ["8" | "64"] => "64",
        ["12" | "96"] => "96",
        [] | ["16" | "128"] => "128",
        _ => return None,
    };
    let name = match (letters.as_str(), numbers.is_empty()) {
        ("" | "cbc", true) => format!("aes{size}"),
        ("ctr", true) => format!("aes{size}ctr"),
        ("gmac", true) => format!("aes{size}gmac"),
        // strongSwan has no name without the length of the tag, libreswan has.
        ("gcm" | "ccm", is_short) if !is_short || is_size_last => format!("aes{size}{letters}{tag}"),
        _ => return None,
    };
    ENCRYPTIONS.contains(&name.as_str()).then_some(name)
}

fn word(text: &str) -> Option<Word> {
    let text = text.to_lowercase();
    let of =
        |table: &[(&str, &'static str)]| table.iter().find(|(name, _)| *name == text).map(|(_, word)| *word);
    match text.as_str() {
        "esn" => return Some(Word::Extended(true)),
        "noesn" => return Some(Word::Extended(false)),
        "none" => return Some(Word::Nothing),
        _ => {}
    }
    if let Some(cipher) = of(CIPHERS) {
        return Some(Word::Encryption(cipher.to_owned()));
    }
    if let Some(hash) = of(HASHES) {
        return Some(Word::Hash(hash));
    }
    if let Some(prf) = of(PRFS) {
        return Some(Word::Prf(prf));
    }
    if let Some((number, _)) = GROUPS.iter().find(|(_, names)| names.contains(&text.as_str())) {
        return Some(Word::Group(number));
    }
    if let Some(cipher) = sized(&text) {
        return Some(Word::Encryption(cipher));
    }
    // Names of AES have been read above: those of the grammar count tags in bits, and 128 may be the size alone.
    let is_known = !text.starts_with("aes") && ENCRYPTIONS.contains(&text.as_str());
    is_known.then_some(Word::Encryption(text))
}

/// Whether a cipher, by its name here, authenticates by itself.
fn authenticates(encryption: &str) -> bool {
    ["gcm", "ccm", "gmac", "poly1305"].iter().any(|mode| encryption.contains(mode))
}

/// The pseudorandom function that is built like a MAC.
fn prf_of(hash: &str) -> Option<&'static str> {
    let hash = hash.split('_').next().unwrap_or_default();
    PRFS.iter().map(|(_, prf)| *prf).find(|prf| prf.strip_prefix("prf") == Some(hash))
}

/// The words of a proposal by their kinds.
#[derive(Default)]
struct Words {
    encryptions: Vec<String>,
    hashes: Vec<&'static str>,
    prfs: Vec<&'static str>,
    groups: Vec<&'static str>,
    extended: Vec<bool>,
}

fn words(text: &str) -> Result<Words, String> {
    let mut found = Words::default();
    for part in text.split(['-', '+', ';']) {
        let part = part.trim();
        match word(part) {
            Some(Word::Encryption(name)) if name == "null" && !found.encryptions.is_empty() => {
                if !found.encryptions.iter().all(|name| authenticates(name)) {
                    return Err("a cipher without a MAC is not served".to_owned());
                }
            }
            Some(Word::Encryption(name)) => found.encryptions.push(name),
            Some(Word::Hash(name)) => found.hashes.push(name),
            Some(Word::Prf(name)) => found.prfs.push(name),
            Some(Word::Group(number)) => found.groups.push(number),
            Some(Word::Extended(is_extended)) => found.extended.push(is_extended),
            Some(Word::Nothing) => {}
            None => return Err(format!("Postern has no {part:?}")),
        }
    }
    if found.encryptions.is_empty() {
        return Err("it names no cipher".to_owned());
    }
    Ok(found)
}

/// The values of a list, or none once.
fn each<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() { vec![None] } else { list.iter().copied().map(Some).collect() }
}

/// Reads a proposal for IKE: one for each combination of its algorithms, in their order.
pub(super) fn ike(text: &str) -> Result<Vec<Suite>, String> {
    let words = words(text)?;
    let from_hashes: Vec<&'static str> = words.hashes.iter().filter_map(|hash| prf_of(hash)).collect();
    let mut suites = Vec::new();
    for encryption in &words.encryptions {
        let is_aead = authenticates(encryption);
        let hashes = if is_aead { vec![None] } else { each(&words.hashes) };
        let prfs = if words.prfs.is_empty() && is_aead { each(&from_hashes) } else { each(&words.prfs) };
        for hash in hashes {
            for prf in &prfs {
                for group in each(&words.groups) {
                    suites.push(Suite { encryption: encryption.clone(), hash, prf: *prf, group });
                }
            }
        }
        if suites.len() > MOST {
            return Err(format!("it stands for more than {MOST} proposals"));
        }
    }
    Ok(suites)
}

/// Reads a proposal for ESP.
pub(super) fn esp(text: &str) -> Result<Esp, String> {
    let words = words(text)?;
    let mut suites = Vec::new();
    for encryption in &words.encryptions {
        let hashes = if authenticates(encryption) { vec![None] } else { each(&words.hashes) };
        let suite = |hash| Suite { encryption: encryption.clone(), hash, prf: None, group: None };
        suites.extend(hashes.into_iter().map(suite));
    }
    if suites.len() > MOST {
        return Err(format!("it stands for more than {MOST} proposals"));
    }
    Ok(Esp { suites, groups: words.groups, extended: words.extended })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{DH_GROUPS, HASHES as KNOWN_HASHES, PRFS as KNOWN_PRFS};

    #[test]
    fn every_word_of_the_tables_is_one_of_the_grammar() {
        assert!(HASHES.iter().all(|(_, word)| KNOWN_HASHES.contains(word)));
        assert!(PRFS.iter().all(|(_, word)| KNOWN_PRFS.contains(word)));
        assert!(CIPHERS.iter().all(|(_, word)| ENCRYPTIONS.contains(word)));
        assert_eq!(GROUPS.iter().map(|(number, _)| *number).collect::<Vec<_>>(), DH_GROUPS);
    }

    #[test]
    fn ciphers_have_the_names_of_strongswan_and_of_libreswan() {
        for (text, name) in [
            ("aes", "aes128"),
            ("aes256", "aes256"),
            ("aes192ctr", "aes192ctr"),
            ("aes128gcm16", "aes128gcm128"),
            ("aes128gcm128", "aes128gcm128"),
            ("aes256gcm64", "aes256gcm64"),
            ("aes256ccm12", "aes256ccm96"),
            ("aes256gmac", "aes256gmac"),
            ("aes_gcm256", "aes256gcm128"),
            ("aes_gcm_256", "aes256gcm128"),
            ("aes_gcm_16_128", "aes128gcm128"),
            ("aes_gcm_8_256", "aes256gcm64"),
            ("aes_cbc256", "aes256"),
            ("aes_ctr_128", "aes128ctr"),
            ("chacha20_poly1305", "chacha20poly1305"),
            ("3des", "3des"),
            ("camellia256", "camellia256"),
            ("null", "null"),
        ] {
            assert_eq!(word(text), Some(Word::Encryption(name.to_owned())), "{text}");
        }
        for unknown in ["des", "aes255", "aes256gcm", "aes256gcm7", "aes256xts", "ke1_mlkem768", "", "gcm"] {
            assert_eq!(word(unknown), None, "{unknown}");
        }
    }

    /// What a proposal stands for, as words.
    fn shown(suites: Result<Vec<Suite>, String>) -> Vec<String> {
        let suites = suites.expect("right").into_iter();
        let words = |suite: Suite| {
            [Some(suite.encryption.as_str()), suite.hash, suite.prf, suite.group]
                .map(|word| word.unwrap_or("-").to_owned())
                .join(" ")
        };
        suites.map(words).collect()
    }

    #[test]
    fn a_proposal_for_ike_is_one_for_each_combination() {
        assert_eq!(shown(ike("aes256-sha256-modp2048")), ["aes256 sha256 - 14"]);
        assert_eq!(shown(ike("aes256gcm16-prfsha384-ecp384")), ["aes256gcm128 - prfsha384 20"]);
        // As VyOS writes it: the hash is the pseudorandom function.
        assert_eq!(shown(ike("aes256gcm128-sha256-modp2048")), ["aes256gcm128 - prfsha256 14"]);
        assert_eq!(
            shown(ike("aes128-aes256-sha1-sha2_256-x25519-ecp256")),
            [
                "aes128 sha1 - 31",
                "aes128 sha1 - 19",
                "aes128 sha256 - 31",
                "aes128 sha256 - 19",
                "aes256 sha1 - 31",
                "aes256 sha1 - 19",
                "aes256 sha256 - 31",
                "aes256 sha256 - 19",
            ]
        );
        assert_eq!(
            shown(ike("aes_gcm256-sha2_512+sha2_256-dh20")),
            ["aes256gcm128 - prfsha512 20", "aes256gcm128 - prfsha256 20"]
        );
        assert_eq!(shown(ike("aes256-sha2_256;modp2048")), ["aes256 sha256 - 14"]);
        assert_eq!(ike("aes256-sha256-ke1_mlkem768"), Err("Postern has no \"ke1_mlkem768\"".to_owned()));
        assert!(ike("sha256-modp2048").is_err() && ike("").is_err());
        let all = ["aes128", "aes192", "aes256", "3des"].join("-")
            + "-sha1-sha256-sha384-sha512-aesxcbc-modp2048-modp3072-modp4096-ecp256";
        assert!(ike(&all).expect_err("80").contains("more than 64"));
    }

    #[test]
    fn a_proposal_for_esp_names_its_groups_apart() {
        let read = esp("aes256gcm16-aes128gcm16-ecp256-noesn").expect("right");
        assert_eq!((read.suites.len(), read.groups, read.extended), (2, vec!["19"], vec![false]));
        assert_eq!(esp("aes256-sha256").expect("right").suites[0].hash, Some("sha256"));
        assert_eq!(esp("aes_gcm256-null").expect("no MAC").suites.len(), 1);
        assert!(esp("aes256-null").is_err(), "no MAC");
        assert_eq!(esp("null-sha256").expect("no cipher").suites[0].encryption, "null");
    }
}
