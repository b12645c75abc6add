//! The vectors of the community for this format, and what is written here.

use super::*;
use crate::random;
use std::path::Path;

/// A vector: what is expected, its other fields, and the file.
struct Vector {
    name: String,
    fields: Vec<(String, String)>,
    file: Vec<u8>,
}

impl Vector {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn expected(&self) -> &str {
        self.field("expect").expect("each has one")
    }

    /// Whether this is the text that is expected.
    fn is_text(&self, text: &[u8]) -> bool {
        let hash = base16ct::lower::encode_string(&crate::hash::sha256(&[text]));
        self.field("payload") == Some(hash.as_str())
    }
}

fn vectors(prefix: &str) -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/age");
    let entries = std::fs::read_dir(folder).expect("it is committed").flatten();
    let names = entries.map(|entry| (entry.path(), entry.file_name().to_string_lossy().into_owned()));
    let found: Vec<Vector> = names
        .filter(|(_, name)| name.starts_with(prefix))
        .map(|(path, name)| {
            let bytes = std::fs::read(path).expect("it is there");
            let end = bytes.windows(2).position(|two| two == b"\n\n").expect("an empty line");
            let text = std::str::from_utf8(&bytes[..end]).expect("text");
            let fields = text.lines().filter_map(|line| line.split_once(": "));
            let fields = fields.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
            Vector { name, fields, file: bytes[end + 2..].to_vec() }
        })
        .collect();
    assert!(found.len() > 5, "{prefix}");
    found
}

fn secret(text: &str) -> SecretBytes {
    SecretBytes::new(text.as_bytes().to_vec())
}

#[test]
fn the_vectors_with_a_passphrase_give_what_they_must() {
    for vector in vectors("scrypt") {
        let opened = open(&secret(vector.field("passphrase").expect("one")), &vector.file);
        let name = &vector.name;
        match (vector.expected(), opened) {
            ("success", Ok(text)) => assert!(vector.is_text(&text), "{name}"),
            ("no match", Err(AgeError::Passphrase)) | ("header failure", Err(AgeError::Header)) => {}
            // Names of stanzas are compared exactly, and one that is not known may be for a key.
            ("no match", Err(AgeError::NoPassphrase)) if name == "scrypt_uppercase" => {}
            ("header failure", Err(AgeError::WorkFactor(23))) if name == "scrypt_work_factor_23" => {}
            // Whether a passphrase or a key comes first.
            ("header failure", Err(AgeError::NoPassphrase)) if name == "scrypt_and_x25519" => {}
            (expected, opened) => panic!("{name}: {expected}, and got {:?}", opened.map(|text| text.len())),
        }
    }
}

#[test]
fn the_vectors_of_the_payload_give_what_they_must() {
    for vector in vectors("stream_") {
        let file_key = vector.field("file key").expect("one");
        let file_key = SecretBytes::new(base16ct::lower::decode_vec(file_key).expect("hexadecimal"));
        let mac = vector.file.windows(5).position(|five| five == b"\n--- ").expect("a header") + 1;
        let end = mac + vector.file[mac..].iter().position(|&byte| byte == b'\n').expect("a line") + 1;
        let opened = match vector.file[end..].split_at_checked(NONCE) {
            Some((nonce, chunks)) => payload::open(&derive(&file_key, nonce, b"payload"), chunks),
            None => Err(AgeError::Damaged),
        };
        let name = &vector.name;
        match (vector.expected(), opened) {
            ("success", Ok(text)) => assert!(vector.is_text(&text), "{name}"),
            ("payload failure" | "header failure", Err(AgeError::Damaged)) => {}
            (expected, opened) => panic!("{name}: {expected}, and got {:?}", opened.map(|text| text.len())),
        }
    }
}

#[test]
fn a_sealed_file_opens_with_its_passphrase_only_and_whole_only() {
    let mut random = random::System::default();
    // Up to a chunk of 64 KiB, one of exactly that, and more.
    for length in [0, 1, 65_535, 65_536, 65_537, 200_000] {
        let text: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let file = seal(&secret("a passphrase"), 2, &text, &mut random).expect("there is memory");
        assert!(is_age(&file));
        assert_eq!(open(&secret("a passphrase"), &file).expect("right")[..], text);
        assert_eq!(open(&secret("another"), &file), Err(AgeError::Passphrase));
        for cut in [1, 16, 17, 65_552].into_iter().filter(|cut| *cut < file.len()) {
            assert!(open(&secret("a passphrase"), &file[..file.len() - cut]).is_err(), "{length} {cut}");
        }
    }
}

#[test]
fn no_changed_byte_goes_unnoticed() {
    let file = seal(&secret("p"), 1, b"keys", &mut random::System::default()).expect("there is memory");
    for at in 0..file.len() {
        let mut changed = file.clone();
        changed[at] ^= 1;
        assert!(open(&secret("p"), &changed).is_err(), "byte {at}");
        assert!(open(&secret("p"), &file[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn work_and_other_forms_are_refused_with_what_to_do() {
    let sealed = seal(&secret("p"), 1, b"", &mut random::System::default()).expect("there is memory");
    let text = String::from_utf8_lossy(&sealed).into_owned();
    let costly = text.replacen(" 1\n", " 19\n", 1).into_bytes();
    let error = open(&secret("p"), &costly).expect_err("512 MiB");
    assert_eq!(error, AgeError::WorkFactor(19));
    assert!(error.to_string().contains("\n  fix: age -d"));
    let refused = |text: &[u8]| open(&secret("p"), text).expect_err("refused");
    assert_eq!(refused(b"-----BEGIN AGE ENCRYPTED FILE-----\n"), AgeError::Armored);
    assert_eq!(refused(b"manifest.json"), AgeError::NotAge);
    assert_eq!(refused(b"age-encryption.org/v1\n-> X25519 abc\n"), AgeError::NoPassphrase);
    assert_eq!(refused(b"age-encryption.org/v2\n"), AgeError::Header);
    assert_eq!(
        refused(&[b"age-encryption.org/v1\n-> scrypt ".as_slice(), &[b'a'; 5000]].concat()),
        AgeError::Header
    );
}
