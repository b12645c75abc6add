//! A directive of a file or of the command line: its words, its inline block, and where it stands.

use super::lexer::Word;
use crate::text::Text;
use std::fmt;
use std::sync::Arc;

/// The place of a directive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The file, or `command line`.
    pub file: Arc<str>,
    /// The line, from 1; 0 for none.
    pub line: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            line => write!(f, "{}:{line}", self.file),
        }
    }
}

/// A directive.
#[derive(Clone)]
pub(super) struct Directive {
    /// Its name, without the dashes of the command line.
    pub(super) name: String,
    /// Its arguments.
    pub(super) arguments: Vec<Word>,
    /// The content of its inline block.
    pub(super) block: Option<Arc<Text>>,
    /// The directives of a block `<connection>`.
    pub(super) inner: Vec<Directive>,
    /// Where it stands.
    pub(super) position: Position,
    /// Whether it may be unknown: `setenv opt`.
    pub(super) is_optional: bool,
}

/// The longest name of a directive that is repeated in an error; the longest known has 33 characters.
const LONGEST_NAME: usize = 40;

/// Whether a word can be the name of a directive. A part of a key, which is no such word, is never repeated.
pub(super) fn is_name(word: &str) -> bool {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    // Words are known by their hyphens, and keys by the digits between letters.
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    (1..=LONGEST_NAME).contains(&word.len())
        && word.starts_with(|first: char| first.is_ascii_lowercase())
        && word.bytes().all(is_part)
        && digits <= 3
}
