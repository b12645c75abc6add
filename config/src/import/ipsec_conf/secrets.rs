//! The syntax of ipsec.secrets: entries that begin in the first column, `IDS : KIND VALUE`; as the section `secrets` of swanctl.conf.

use crate::import::files::{Files, include, too_many};
use crate::import::place::{Origin, Place, Reader, SyntaxError, error};
use crate::import::section::{Section, Setting};
use base64ct::{Base64, Encoding};
use std::path::Path;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The maximum number of files.
const MOST_FILES: usize = 64;

/// Kinds of secrets, and the sections of swanctl.conf that they are.
const KINDS: [(&str, &str); 12] = [
    ("PSK", "ike"),
    ("RSA", "private"),
    ("ECDSA", "private"),
    ("PKCS8", "private"),
    ("BLISS", "other"),
    ("P12", "pkcs12"),
    ("PIN", "token"),
    ("EAP", "eap"),
    ("XAUTH", "xauth"),
    ("NTLM", "ntlm"),
    ("PPK", "ppk"),
    ("PPKS", "ppk"),
];

/// A word of an entry.
struct Word {
    text: Zeroizing<String>,
    is_quoted: bool,
    place: Place,
}

/// Reads files of secrets.
pub(super) struct Parser<'a> {
    files: &'a dyn Files,
    order: usize,
    pub(super) section: Section,
}

impl<'a> Parser<'a> {
    pub(super) fn new(files: &'a dyn Files, order: usize) -> Self {
        let place = Place { order, file: "ipsec.secrets".into(), line: 0, column: 0, last_line: 0 };
        let section = Section::new("secrets", Origin { place, option: "ipsec.secrets".to_owned() });
        Self { files, order, section }
    }

    pub(super) fn file(&mut self, name: &str, text: &str) -> Result<(), SyntaxError> {
        let file: Arc<str> = name.into();
        let mut reader = Reader::new(self.order, &file, text);
        self.order += 1;
        let mut entry: Vec<Word> = Vec::new();
        while reader.peek().is_some() {
            let is_indented = matches!(reader.peek(), Some(' ' | '\t'));
            reader.pass(|c| matches!(c, ' ' | '\t' | '\r'));
            match reader.peek() {
                None => break,
                Some('\n') => _ = reader.next(),
                Some('#') => _ = reader.pass(|c| c != '\n'),
                Some(_) => {
                    if !is_indented {
                        self.entry(std::mem::take(&mut entry))?;
                    }
                    while !matches!(reader.peek(), None | Some('\n' | '#')) {
                        entry.push(word(&mut reader)?);
                        reader.pass(|c| matches!(c, ' ' | '\t' | '\r'));
                    }
                }
            }
        }
        self.entry(entry)
    }

    fn entry(&mut self, mut words: Vec<Word>) -> Result<(), SyntaxError> {
        let Some(first) = words.first() else { return Ok(()) };
        let place = first.place.clone();
        if *first.text == "include" {
            let pattern = words.get(1).map(|word| word.text.to_string()).unwrap_or_default();
            return self.include(&place, Path::new(&pattern));
        }
        let kind = |word: &Word| {
            let name = word.text.trim_start_matches(':').to_uppercase();
            KINDS.iter().find(|(known, _)| *known == name && !word.is_quoted).map(|(_, kind)| *kind)
        };
        let found = words.iter().enumerate().find_map(|(index, word)| {
            let is_behind = word.text.starts_with(':')
                || index > 0 && words.get(index - 1).is_some_and(|before| before.text.ends_with(':'));
            Some((index, kind(word)?)).filter(|_| is_behind)
        });
        let Some((index, kind)) = found else {
            let fix = "write IDENTITIES : PSK \"SECRET\", or : RSA FILE; indent lines that go on";
            return Err(error(place, "this is no secret", fix));
        };
        let values = words.split_off(index + 1);
        words.truncate(index);
        let number = self.section.sections.len() + 1;
        let option = format!("secret {number}");
        let mut section = Section::new(format!("{kind}-{number}"), Origin { place, option });
        let ids = words.into_iter().map(|word| (word.text.trim_end_matches(':').to_owned(), word.place));
        for ((id, place), number) in ids.filter(|(id, _)| !id.is_empty()).zip(1..) {
            let origin = Origin { place, option: format!("{} id {number}", section.origin.option) };
            let (name, value) = (format!("id-{number}"), Zeroizing::new(identity(&id)));
            section.settings.push(Setting { name, value, origin });
        }
        let names = if kind == "private" { ["file", "secret"] } else { ["secret", "more"] };
        for (word, name) in values.into_iter().zip(names) {
            let option = format!("{} {}", section.origin.option, name);
            let origin = Origin { place: word.place, option };
            let value = if kind == "ike" && word.is_quoted { literal(&word.text) } else { word.text };
            section.settings.push(Setting { name: name.to_owned(), value, origin });
            // A key of libreswan in braces is not a file.
            if kind == "private" && section.value("file") == Some("{") {
                section.settings.clear();
                section.name = format!("other-{number}");
                break;
            }
        }
        self.section.sections.push(section);
        Ok(())
    }

    fn include(&mut self, place: &Place, pattern: &Path) -> Result<(), SyntaxError> {
        let files = self.files;
        include(files, place, pattern, |name, text| {
            if self.order >= MOST_FILES { Err(too_many(place)) } else { self.file(name, text) }
        })
    }
}

/// An identity as strongSwan spells it: `@[text]` is the ID_KEY_ID of libreswan.
pub(super) fn identity(text: &str) -> String {
    let key = text.strip_prefix("@[").and_then(|rest| rest.strip_suffix(']'));
    key.map_or_else(|| text.to_owned(), |key| format!("keyid:{key}"))
}

/// A secret in quotes, which is text also if it begins like another encoding.
fn literal(text: &str) -> Zeroizing<String> {
    if text.starts_with("0s") || text.starts_with("0x") {
        let encoded = Zeroizing::new(Base64::encode_string(text.as_bytes()));
        let mut marked = Zeroizing::new(String::with_capacity(encoded.len() + 2));
        marked.push_str("0s");
        marked.push_str(&encoded);
        return marked;
    }
    Zeroizing::new(text.to_owned())
}

/// A word, or text in quotes, which may have several lines.
fn word(reader: &mut Reader<'_>) -> Result<Word, SyntaxError> {
    let place = reader.place();
    let quote = reader.peek().filter(|c| matches!(c, '"' | '\''));
    let Some(quote) = quote else {
        let text = Zeroizing::new(reader.pass(|c| !c.is_whitespace()).to_owned());
        return Ok(Word { text, is_quoted: false, place });
    };
    reader.next();
    let text = Zeroizing::new(reader.pass(|c| c != quote).to_owned());
    match reader.next() {
        Some(_) => Ok(Word { text, is_quoted: true, place }),
        None => Err(error(place, "the closing quote is missing", "add it")),
    }
}
