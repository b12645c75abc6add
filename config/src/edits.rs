//! Lines of `set` and `delete` that make one configuration out of another: written, and carried out.

use crate::error::{ConfigError, Location, MOST_ERRORS};
use crate::parse;
use crate::path::Path;
use crate::schema::{Cursor, Kind, Place};
use crate::statement::{statements_at, write_words};
use crate::token::split;
use crate::tree::Tree;
use std::fmt;
use zeroize::Zeroizing;

/// Carries out lines with whole paths and words. Returns the branches that were deleted by their names, or an error for each
/// wrong line, at most [`MOST_ERRORS`]; lines are numbered from 1.
pub fn carry_out<'a>(
    lines: impl IntoIterator<Item = &'a str>,
    tree: &mut Tree,
) -> Result<Vec<Path>, Vec<ConfigError>> {
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    for (index, line) in lines.into_iter().enumerate() {
        match parse::edit(line, index + 1, tree) {
            Ok(path) => deleted.extend(path),
            Err(error) => errors.push(error),
        }
        if errors.len() == MOST_ERRORS {
            break;
        }
    }
    if errors.is_empty() { Ok(deleted) } else { Err(errors) }
}

/// The words of a line that lead to a location in it, as far as the grammar knows them.
pub fn path_to(line: &str, location: Location) -> Path {
    let tokens = split(line, location.line).unwrap_or_default();
    let mut cursor = Cursor::root();
    let mut path = Vec::new();
    for token in tokens.iter().skip(1).take_while(|token| token.location.column <= location.column) {
        if cursor.node().is_some_and(|node| node.kind != Kind::Branch) {
            break;
        }
        let Some(next) = cursor.down(&token.text) else { break };
        cursor = next;
        path.push(token.text.as_str());
    }
    Path::new(path)
}

/// The lines that make `after` out of `before`: deletions first. They contain secrets.
pub fn between(before: &Tree, after: &Tree) -> Vec<Zeroizing<String>> {
    let mut lines = Lines::default();
    lines.branch(Some(before), Some(after), &mut Vec::new(), Some(Cursor::root()));
    lines.comments(Some(before), after, &mut Vec::new());
    lines.deletions.extend(lines.settings);
    lines.deletions
}

#[derive(Default)]
struct Lines {
    deletions: Vec<Zeroizing<String>>,
    settings: Vec<Zeroizing<String>>,
}

impl Lines {
    fn branch<'a>(
        &mut self,
        before: Option<&'a Tree>,
        after: Option<&'a Tree>,
        path: &mut Vec<&'a str>,
        place: Option<Cursor>,
    ) {
        let is_inner = matches!(place.map(Cursor::place), None | Some(Place::Inner(_)));
        match (before, after) {
            _ if before == after => {}
            (None, None) => {}
            (Some(_), None) if !is_inner => self.deletions.push(line("delete", path, None)),
            (None, Some(after)) => {
                let statements = statements_at(after, path, place);
                self.settings.extend(statements.iter().map(|it| line("set", it.path(), it.value())));
            }
            (Some(before), after) => {
                if let Some(after) = after {
                    self.values(before, after, path, place);
                }
                let unequal = Tree::unequal(Some(before), after);
                let (gone, kept): (Vec<_>, Vec<_>) = unequal.partition(|(_, below)| below[1].is_none());
                for (word, below) in gone.into_iter().chain(kept) {
                    path.push(word);
                    self.branch(below[0], below[1], path, place.and_then(|place| place.down(word)));
                    path.pop();
                }
            }
        }
    }

    /// The comments of what differs, which may go with what is deleted: behind all that they are about.
    fn comments<'a>(&mut self, before: Option<&'a Tree>, after: &'a Tree, path: &mut Vec<&'a str>) {
        if before == Some(after) {
            return;
        }
        if after.comment().is_some() || before.and_then(Tree::comment).is_some() {
            self.settings.push(line("comment", path, Some(after.comment().unwrap_or_default())));
        }
        for (word, below) in after.children() {
            path.push(word);
            self.comments(before.and_then(|before| before.at(&[word])), below, path);
            path.pop();
        }
    }

    fn values(&mut self, before: &Tree, after: &Tree, path: &[&str], place: Option<Cursor>) {
        let (before, after) = (before.own_values(), after.own_values());
        let node = place.and_then(Cursor::node);
        let mut kept: Vec<&str> = Vec::new();
        if node.is_some_and(|node| matches!(node.kind, Kind::Values(_))) {
            kept.extend(before.iter().filter(|value| after.contains(value)));
            if after.starts_with(&kept) {
                let gone = before.iter().filter(|value| !kept.contains(value));
                self.deletions.extend(gone.map(|value| line("delete", path, Some(value))));
            } else {
                // A new value comes last: another order is set anew.
                self.deletions.push(line("delete", path, None));
                kept.clear();
            }
        } else if before == after {
            return;
        } else if after.is_empty() {
            self.settings.push(line("set", path, None));
        }
        let new = after.iter().filter(|value| !kept.contains(value));
        self.settings.extend(new.map(|value| line("set", path, Some(value))));
    }
}

/// A line of `set`, `delete` or `comment`, with quotes where they are needed.
pub fn line(verb: &str, path: &[&str], value: Option<&str>) -> Zeroizing<String> {
    let words = || [verb].into_iter().chain(path.iter().copied()).chain(value);
    let mut length = Length(0);
    write_words(words(), &mut length).expect("lengths are added up");
    // Allocated in full: text that moves would leave a copy of a secret behind.
    let mut line = Zeroizing::new(String::with_capacity(length.0));
    write_words(words(), &mut *line).expect("a string has room for any text");
    line
}

/// Counts the bytes that are written.
struct Length(usize);

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

#[cfg(test)]
#[path = "edits/tests.rs"]
pub(crate) mod tests;
