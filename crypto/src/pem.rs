//! Reads files with keys, certificates and revocation lists: PEM (RFC 7468) among other text, DER, or bare base64.

use crate::SecretBytes;
use crate::engine::private_key;
use base64ct::{Base64, Encoding};
use der::{Decode, Header, Reader, SliceReader};
use zeroize::Zeroizing;

/// One DER object of a file.
#[derive(Debug)]
pub struct Section {
    /// The PEM label; empty if the file is not PEM.
    pub label: String,
    /// Whether PEM headers mark the section as encrypted (RFC 1421). `der` is empty then.
    pub encrypted: bool,
    /// The DER, which may be that of a private key.
    pub der: SecretBytes,
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// The file is neither PEM, DER nor base64.
    #[error("this is neither PEM nor DER")]
    Neither,
    /// A BEGIN line without the matching END line.
    #[error("the section {0} does not end")]
    Unterminated(String),
    /// The body of a section is not base64.
    #[error("the section {0} is damaged")]
    Damaged(String),
}

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";

/// Characters of a line of base64 (RFC 7468, section 2).
const LINE: usize = 64;

/// A section of a file.
pub fn write(label: &str, bytes: &[u8]) -> Zeroizing<String> {
    let text = Zeroizing::new(Base64::encode_string(bytes));
    // No copy of a key is left behind by growth.
    let mut section = Zeroizing::new(String::with_capacity(2 * text.len() + 200));
    let mut line = |parts: [&str; 3]| {
        for part in parts {
            section.push_str(part);
        }
        section.push('\n');
    };
    line([BEGIN, label, DASHES]);
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (start, after) = rest.split_at(LINE.min(rest.len()));
        line([start, "", ""]);
        rest = after;
    }
    line([END, label, DASHES]);
    section
}

/// A private key in PEM without the password that it has in this file. `None` if the password is wrong, or if the file has no key
/// in a form that AWS-LC reads.
pub fn unlock(file: &[u8], password: &[u8]) -> Option<Zeroizing<String>> {
    private_key::open(file, password).map(|der| write("PRIVATE KEY", der.expose()))
}

/// The DER objects of a file.
pub fn read(bytes: &[u8]) -> Result<Vec<Section>, PemError> {
    if is_der(bytes) {
        return Ok(vec![unlabeled(SecretBytes::new(bytes.to_vec()))]);
    }
    // Comments around the sections may have any encoding; the sections themselves are ASCII. Allocated in full: text that
    // moves would leave a copy of a key behind.
    let mut text = Zeroizing::new(String::with_capacity(bytes.len()));
    text.extend(bytes.iter().map(|&byte| if byte.is_ascii() { char::from(byte) } else { '?' }));
    if text.contains(BEGIN) {
        return sections(&text);
    }
    let der = decode(&text.lines().collect::<Vec<_>>())
        .filter(|der| is_der(der.expose()))
        .ok_or(PemError::Neither)?;
    Ok(vec![unlabeled(der)])
}

fn unlabeled(der: SecretBytes) -> Section {
    Section { label: String::new(), encrypted: false, der }
}

/// Whether the bytes are exactly one DER SEQUENCE.
fn is_der(bytes: &[u8]) -> bool {
    let Ok(mut reader) = SliceReader::new(bytes) else { return false };
    let Ok(header) = Header::decode(&mut reader) else { return false };
    header.tag() == der::Tag::Sequence && reader.remaining_len() == header.length()
}

fn sections(text: &str) -> Result<Vec<Section>, PemError> {
    let mut sections = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some(label) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(DASHES)) else {
            continue;
        };
        sections.push(section(label, &mut lines)?);
    }
    Ok(sections)
}

fn section<'a>(label: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<Section, PemError> {
    let mut body = Vec::new();
    let mut encrypted = false;
    loop {
        let line = lines.next().ok_or_else(|| PemError::Unterminated(label.to_owned()))?;
        if let Some(end) = line.strip_prefix(END) {
            if end.strip_suffix(DASHES) != Some(label) {
                return Err(PemError::Unterminated(label.to_owned()));
            }
            break;
        }
        // RFC 1421 headers. The only one of interest is "Proc-Type: 4,ENCRYPTED".
        match line.split_once(':') {
            Some((_, value)) => encrypted |= value.contains("ENCRYPTED"),
            None => body.push(line),
        }
    }
    let der = if encrypted { Some(SecretBytes::new(Vec::new())) } else { decode(&body) };
    let der = der.ok_or_else(|| PemError::Damaged(label.to_owned()))?;
    Ok(Section { label: label.to_owned(), encrypted, der })
}

fn decode(lines: &[&str]) -> Option<SecretBytes> {
    // Allocate the final size: a growing buffer would leave copies of the key in freed memory.
    let length = lines.iter().map(|line| line.len()).sum();
    let mut base64 = Zeroizing::new(String::with_capacity(length));
    for line in lines {
        base64.extend(line.split_ascii_whitespace());
    }
    Base64::decode_vec(&base64).ok().map(SecretBytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Bag Attributes\n-----BEGIN A B-----\r\nMAMC\nAQU=\n-----END A B-----\n\
                        -----BEGIN C-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES\n\nAAAA\n-----END C-----\n";

    #[test]
    fn sections_are_found_among_other_text() {
        let sections = read(TEXT.as_bytes()).expect("PEM");
        let labels: Vec<_> = sections.iter().map(|section| section.label.as_str()).collect();
        assert_eq!(labels, ["A B", "C"]);
        assert_eq!(sections[0].der.expose(), [0x30, 3, 2, 1, 5]);
        assert!(!sections[0].encrypted && sections[1].encrypted);
    }

    #[test]
    fn der_and_base64_alone_are_taken() {
        for bytes in [&[0x30, 3, 2, 1, 5][..], b"MAMC\nAQU=\n"] {
            let sections = read(bytes).expect("DER");
            assert_eq!((sections.len(), sections[0].der.expose()), (1, &[0x30, 3, 2, 1, 5][..]));
        }
    }

    #[test]
    fn errors_name_the_damaged_section() {
        let unterminated =
            |text: &str| assert_eq!(read(text.as_bytes()).unwrap_err(), PemError::Unterminated("A".into()));
        unterminated("-----BEGIN A-----\nMAMC\n");
        unterminated("-----BEGIN A-----\nMAMC\n-----END B-----\n");
        let damaged = read(b"-----BEGIN A-----\nMA*C\n-----END A-----\n").unwrap_err();
        assert_eq!(damaged, PemError::Damaged("A".into()));
        for neither in [&b""[..], b"hello", &[0x30, 4, 2, 1, 5]] {
            assert_eq!(read(neither).unwrap_err(), PemError::Neither);
        }
    }

    #[test]
    fn a_private_key_with_a_password_is_unlocked_in_both_forms() {
        // openssl ecparam -name prime256v1 -genkey; openssl pkcs8 -topk8; openssl ec -aes256.
        let plain = "-----BEGIN PRIVATE KEY-----\n\
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgaj0td8eoCWhQ//0v\n\
w4G6S/7/gwGWua4HU5M6UmJJ8KqhRANCAAR5p7WOEpxkB+Y/HTKG09aQNJjPf7sZ\n\
Er9VEYErsgVcPa6REV7Z+w+kfmWjDwESkPTnsyqgLKdNN/xBSZtFxHiJ\n\
-----END PRIVATE KEY-----\n\
";
        let new = include_str!("../tests/keys/locked.pem");
        let old = "-----BEGIN EC PRIVATE KEY-----\n\
Proc-Type: 4,ENCRYPTED\n\
DEK-Info: AES-256-CBC,9085721039A222C49FA1D19580E06D7C\n\
\n\
/4XGC+NjfZmV2nR2H3xo0AC8h0WHDzFaElfhxzDOrSEND7FPlJ6+Ae7NDHmTVlZb\n\
hRZYt2Vlqd/j/Hi2LFMeHWYxV2L4ua2Nh2cGSUYB/6S1g42QOrpBFKWS5z5FHV9w\n\
nbkFDvcuHv25pAuThXa4WYHVfRloWiG4gZwz8LHz+nI=\n\
-----END EC PRIVATE KEY-----\n\
";
        let public = |text: &str| {
            let key = crate::signature::SigningKey::from_file(text.as_bytes()).expect("a key");
            key.public().info().to_vec()
        };
        for file in [new, old] {
            let text = unlock(file.as_bytes(), b"hunter2").expect("the password is right");
            assert_eq!(public(&text), public(plain));
            assert!(unlock(file.as_bytes(), b"hunter3").is_none());
            assert!(unlock(file.as_bytes(), &[b'x'; 5000]).is_none());
        }
    }
}
