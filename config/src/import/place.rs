//! Where an option of a source is, and what it is called there.

use std::fmt;
use std::sync::Arc;

/// A place in a source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The number of the file, in the order in which files are read.
    pub(super) order: usize,
    /// The name of the file.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The last line of what is there: a block may have many.
    pub last_line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// An option of a source.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) place: Place,
    /// The option by its name there, without its value, which may be a secret.
    pub(super) option: String,
}

/// A source that cannot be read: the place, the reason and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where it is.
    pub place: Place,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

/// Without the line itself, which may hold a secret.
impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n  fix: {}", self.place, self.reason, self.fix)
    }
}

impl std::error::Error for SyntaxError {}

/// The characters of a file, with the place of the next one.
pub(super) struct Reader<'a> {
    rest: std::str::Chars<'a>,
    at: Place,
}

impl<'a> Reader<'a> {
    pub(super) fn new(order: usize, file: &Arc<str>, text: &'a str) -> Self {
        let at = Place { order, file: Arc::clone(file), line: 1, column: 1, last_line: 1 };
        Self { rest: text.chars(), at }
    }

    /// The place of the next character.
    pub(super) fn place(&self) -> Place {
        self.at.clone()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest.as_str()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' {
            self.at.line += 1;
            self.at.column = 1;
        } else {
            self.at.column += 1;
        }
        self.at.last_line = self.at.line;
        Some(next)
    }

    /// Goes on while `wanted` holds; the characters passed.
    pub(super) fn pass(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let before = self.rest();
        while self.peek().is_some_and(&wanted) {
            self.next();
        }
        &before[..before.len() - self.rest().len()]
    }

    pub(super) fn error(&self, reason: impl Into<String>, fix: impl Into<String>) -> SyntaxError {
        SyntaxError { place: self.place(), reason: reason.into(), fix: fix.into() }
    }
}

/// An error at this place.
pub(super) fn error(place: Place, reason: &str, fix: &str) -> SyntaxError {
    SyntaxError { place, reason: reason.to_owned(), fix: fix.to_owned() }
}
