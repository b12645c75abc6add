//! A configuration as a list of statements: a path, and the value that is set there.

use crate::schema::{Cursor, Node};
use crate::tree::Tree;
use std::fmt::{self, Write};

/// What stands in the place of a secret.
pub const HIDDEN: &str = "********";

/// One line of a configuration, without its verb.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Statement<'a> {
    path: Vec<&'a str>,
    value: Option<&'a str>,
    place: Option<Cursor>,
}

impl<'a> Statement<'a> {
    pub(crate) fn path(&self) -> &[&'a str] {
        &self.path
    }

    pub(crate) fn value(&self) -> Option<&'a str> {
        self.value
    }

    /// The node whose value it sets.
    pub(crate) fn node(&self) -> Option<&'static Node> {
        self.place?.node()
    }

    /// Whether it has a value that must not be shown. A value without a known name may be anything.
    pub(crate) fn is_secret(&self) -> bool {
        self.value.is_some() && self.node().is_none_or(|node| node.secret)
    }

    /// Writes it, leaving no copy of its value anywhere else.
    pub(crate) fn write(&self, secrets: bool, out: &mut impl Write) -> fmt::Result {
        let hidden = !secrets && self.is_secret();
        let value = self.value.map(|value| if hidden { HIDDEN } else { value });
        write_words(self.path.iter().copied().chain(value), out)
    }

    /// Writes it for a log, which others read than the configuration: names and values that are passwords are hidden, too.
    pub(crate) fn write_public(&self, out: &mut impl Write) -> fmt::Result {
        let mut cursor = Some(Cursor::root());
        let path = self.path.iter().map(|word| {
            cursor = cursor.and_then(|place| place.down(word));
            let tag = cursor.and_then(Cursor::tag);
            if tag.is_some_and(|tag| tag.kind.is_private()) { HIDDEN } else { word }
        });
        let hidden = self.is_secret() || self.node().is_some_and(Node::is_private);
        write_words(path.chain(self.value.map(|value| if hidden { HIDDEN } else { value })), out)
    }
}

/// A branch with its path, and what the user has noted of it.
pub(crate) struct Comment<'a> {
    pub(crate) path: Vec<&'a str>,
    pub(crate) text: &'a str,
}

impl fmt::Display for Comment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("comment ")?;
        write_words(self.path.iter().copied().chain([self.text]), f)
    }
}

/// The comments of the branch at a path, and of all below it.
pub(crate) fn comments_at<'a>(branch: &'a Tree, path: &[&'a str]) -> Vec<Comment<'a>> {
    let own = branch.comment().map(|text| Comment { path: path.to_vec(), text });
    let below = branch.children().flat_map(|(word, child)| comments_at(child, &[path, &[word]].concat()));
    own.into_iter().chain(below).collect()
}

/// Writes words so that they are read as the same words.
pub(crate) fn write_words<'a>(words: impl Iterator<Item = &'a str>, out: &mut impl Write) -> fmt::Result {
    for (index, word) in words.enumerate() {
        out.write_str(if index == 0 { "" } else { " " })?;
        write_quoted(word, out)?;
    }
    Ok(())
}

/// All lines of a configuration, in order.
pub(crate) fn statements(tree: &Tree) -> Vec<Statement<'_>> {
    statements_at(tree, &[], Some(Cursor::root()))
}

/// All lines of the branch at a path.
pub(crate) fn statements_at<'a>(
    branch: &'a Tree,
    path: &[&'a str],
    place: Option<Cursor>,
) -> Vec<Statement<'a>> {
    let mut found = Vec::new();
    collect(branch, place, &mut path.to_vec(), &mut found);
    found
}

/// The lines of a branch itself, without those of what follows it.
pub(crate) fn own_statements<'a>(
    tree: &'a Tree,
    path: &[&'a str],
    place: Option<Cursor>,
) -> Vec<Statement<'a>> {
    let of = |value| Statement { path: path.to_vec(), value, place };
    if tree.is_empty() && !path.is_empty() {
        return vec![of(None)];
    }
    tree.own_values().into_iter().map(|value| of(Some(value))).collect()
}

fn collect<'a>(
    tree: &'a Tree,
    place: Option<Cursor>,
    path: &mut Vec<&'a str>,
    found: &mut Vec<Statement<'a>>,
) {
    found.extend(own_statements(tree, path, place));
    for (word, child) in tree.children() {
        path.push(word);
        collect(child, place.and_then(|cursor| cursor.down(word)), path, found);
        path.pop();
    }
}

/// A value as it must be written to be read as one word.
pub fn quoted(value: &str) -> String {
    let mut text = String::new();
    write_quoted(value, &mut text).expect("a string takes whatever is written");
    text
}

/// Writes a value so that it is read as one word.
fn write_quoted(value: &str, out: &mut impl Write) -> fmt::Result {
    let plain = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || "'\"#".contains(c));
    if plain {
        return out.write_str(value);
    }
    // Quotations that touch are one word: a single quote goes into double ones, everything else into single ones.
    for (index, part) in value.split('\'').enumerate() {
        out.write_str(if index == 0 { "" } else { "\"'\"" })?;
        write!(out, "'{part}'")?;
    }
    Ok(())
}
