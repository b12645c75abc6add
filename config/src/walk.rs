//! Follows words through the grammar, and tells what is wrong with the first that it does not have.

use crate::error::{ConfigError, Location};
use crate::schema::{self, Cursor, Kind, Place, Type, Unsupported, nearest};
use crate::token::Token;

/// The maximum number of words listed in an error.
const LISTED: usize = 20;

/// Follows the words through the grammar; returns the place, the path, and the remaining words.
pub(crate) fn walk(words: &[Token]) -> Result<(Cursor, &[Token], &[Token]), ConfigError> {
    let mut cursor = Cursor::root();
    for (index, word) in words.iter().enumerate() {
        if cursor.node().is_some_and(|node| node.kind != Kind::Branch) {
            let (path, rest) = words.split_at(index);
            return Ok((cursor, path, rest));
        }
        let next = cursor.down(&word.text).ok_or_else(|| unknown_after(word, cursor))?;
        match next.place() {
            Place::Unsupported(known) => return Err(unsupported(word, known)),
            Place::Tag(tag) => check(tag.kind, word)?,
            Place::Node(_) | Place::Inner(_) => {}
        }
        cursor = next;
    }
    Ok((cursor, words, &[]))
}

/// A value, or a name that the user chooses.
pub(crate) fn check(kind: Type, word: &Token) -> Result<(), ConfigError> {
    kind.check(&word.text).map_err(|reason| {
        let error = ConfigError::new(word.location, reason);
        match kind {
            Type::Word(words) => match schema::meant(&word.text, words) {
                Some(meant) => error.fix(format!("did you mean {meant}?")),
                None => suggest(error, nearest(&word.text, words), words),
            },
            // It may have a password.
            Type::Location => error.secret().fix(kind.advice(&word.text).unwrap_or_default()),
            _ => match kind.advice(&word.text) {
                Some(advice) => error.fix(advice),
                None => error,
            },
        }
    })
}

pub(crate) fn unsupported(word: &Token, known: &Unsupported) -> ConfigError {
    let reason = format!("VyOS has {:?}, but Postern does not support it", word.text.as_str());
    ConfigError::new(word.location, reason).fix(known.instead)
}

pub(crate) fn more_words(last: &Token, cursor: Cursor) -> ConfigError {
    ConfigError::new(end_of(last), "the line is not complete")
        .fix(format!("add one of {}", cursor.words().join(", ")))
}

/// The error for a word that may not stand at a place.
fn unknown_after(word: &Token, before: Cursor) -> ConfigError {
    let (near, valid) = (before.nearest(&word.text), before.words());
    let begun = before.abbreviated(&word.text);
    if begun.len() > 1 && !word.text.is_empty() {
        return ConfigError::new(word.location, format!("ambiguous word {:?}", word.text.as_str()))
            .fix(format!("write one of {}", begun.join(", ")));
    }
    let unknown = || {
        let error = ConfigError::new(word.location, format!("unknown word {:?}", word.text.as_str()));
        suggest(error, near, &valid)
    };
    if near.is_some() {
        return unknown();
    }
    // If the name of a secret was forgotten, the secret stands in its place.
    let secrets: Vec<Type> = before.secrets().collect();
    if secrets.is_empty() {
        return unknown();
    }
    if secrets.iter().all(|kind| *kind == Type::Key) && is_no_key(&word.text) {
        return unknown().names_secret();
    }
    suggest(ConfigError::new(word.location, "unknown word").secret(), near, &valid)
}

/// Whether a word can be neither a key nor part of one: it is short, of lower-case letters and hyphens, with an
/// optional digit at its end.
fn is_no_key(word: &str) -> bool {
    let stem = word.strip_suffix(|c: char| c.is_ascii_digit()).unwrap_or(word);
    word.len() <= 24 && stem.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

/// Adds the word that was probably meant, or a list of all, to an error.
pub(crate) fn suggest(error: ConfigError, near: Option<&str>, valid: &[&str]) -> ConfigError {
    match near {
        Some(near) => error.fix(format!("did you mean {near}?")),
        None if valid.is_empty() => error,
        None => {
            let more = if valid.len() > LISTED { ", ..." } else { "" };
            let listed: Vec<&str> = valid.iter().copied().take(LISTED).collect();
            error.fix(format!("write one of {}{more}", listed.join(", ")))
        }
    }
}

/// The location after a word.
pub(crate) fn end_of(word: &Token) -> Location {
    Location { column: word.location.column + word.location.width, width: 1, ..word.location }
}
