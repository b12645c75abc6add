//! Operational commands, such as `status`, `show`, `explain` and `reset`, from one table.
//!
//! ```text
//! words ──> table (which entry?) ──> Request ──> the entry's effect ──> Answer ──> text or JSON
//! ```
//! The table gives the command line (`command_line.rs`), with its help, man pages and reference, and completion
//! (`complete.rs`).

mod command_line;
pub(crate) mod complete;
mod expand;
mod names;
mod table;

pub(crate) use command_line::Command;
use command_line::verbs;
pub(crate) use command_line::verbs as verb_names;
pub(crate) use expand::{expand, is_command, is_verb};

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use names::Names;
use std::path::PathBuf;
use table::all_entries;

/// An operational command.
pub(crate) struct Entry {
    /// The words to type; those in capitals are arguments.
    path: &'static str,
    /// What it does, on one line.
    about: &'static str,
    /// What else to know, such as its exit status.
    more: Option<&'static str>,
    /// The arguments, in the order in which they stand in the path.
    arguments: &'static [Argument],
    options: &'static [Flag],
    /// What it asks of the API of each daemon; empty if it asks nothing.
    asks: &'static str,
    effect: fn(&Request) -> Result<Answer, Failure>,
    /// Whether help and completion leave it out: an older spelling of another entry.
    is_hidden: bool,
}

/// An argument of an operational command.
pub(crate) struct Argument {
    /// Its name in the path.
    name: &'static str,
    about: &'static str,
    names: Names,
}

/// An option of one operational command: `--all`, or `--count N`.
pub(crate) struct Flag {
    name: &'static str,
    about: &'static str,
    /// What its value is called, if it has one.
    value: Option<&'static str>,
}

impl Flag {
    const fn new(name: &'static str, about: &'static str) -> Self {
        Self { name, about, value: None }
    }

    /// An option with a value.
    const fn with_value(name: &'static str, value: &'static str, about: &'static str) -> Self {
        Self { name, about, value: Some(value) }
    }
}

/// The options that were typed.
#[derive(Default)]
pub(crate) struct Options {
    /// Those without a value.
    pub(crate) flags: Vec<&'static str>,
    /// Those with one.
    pub(crate) values: Vec<(&'static str, String)>,
}

/// A command without arguments and options that asks nothing.
const fn entry(
    path: &'static str,
    about: &'static str,
    effect: fn(&Request) -> Result<Answer, Failure>,
) -> Entry {
    Entry { path, about, more: None, arguments: &[], options: &[], asks: "", effect, is_hidden: false }
}

impl Entry {
    const fn arguments(self, arguments: &'static [Argument]) -> Self {
        Self { arguments, ..self }
    }

    const fn options(self, options: &'static [Flag]) -> Self {
        Self { options, ..self }
    }

    const fn asks(self, asks: &'static str) -> Self {
        Self { asks, ..self }
    }

    const fn more(self, more: &'static str) -> Self {
        Self { more: Some(more), ..self }
    }

    const fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }

    fn words(&self) -> impl Iterator<Item = &'static str> {
        self.path.split(' ')
    }

    /// Runs it with the values of its arguments, in their order.
    pub(crate) fn run(
        &self,
        values: Vec<String>,
        options: Options,
        api: Option<PathBuf>,
    ) -> Result<Answer, Failure> {
        let names = self.arguments.iter().map(|argument| argument.name);
        let values = names.zip(values).chain(options.values).collect();
        let request = Request::new(api, self.asks, values).with_flags(options.flags);
        (self.effect)(&request)
    }
}

/// Whether a word of a path stands for an argument.
fn is_argument(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
}

/// The entries whose path begins with these typed words, each with the values of its arguments so far. A word of a path goes
/// before an argument.
fn beginning_with<'a>(words: &[&'a str]) -> Vec<(&'static Entry, Vec<&'a str>)> {
    let mut found: Vec<(&Entry, Vec<&str>)> = all_entries().map(|entry| (entry, Vec::new())).collect();
    for (at, &word) in words.iter().enumerate() {
        let is_literal = found.iter().any(|(entry, _)| entry.words().nth(at) == Some(word));
        found.retain_mut(|(entry, values)| match entry.words().nth(at) {
            Some(known) if is_argument(known) => {
                values.push(word);
                !is_literal
            }
            known => known == Some(word),
        });
    }
    found
}

/// The entry that these words are, with the values of its arguments.
pub(crate) fn find(words: &[&str]) -> Option<(&'static Entry, Vec<String>)> {
    let mut found = beginning_with(words).into_iter();
    let (entry, values) = found.find(|(entry, _)| entry.words().count() == words.len())?;
    Some((entry, values.into_iter().map(str::to_owned).collect()))
}

/// How many of these words are the beginning of an operational command.
pub(crate) fn known_words(words: &[&str]) -> usize {
    (0..=words.len()).rev().find(|&length| !beginning_with(&words[..length]).is_empty()).unwrap_or_default()
}

/// The help for the words of a path that are no entry themselves.
fn about_words(words: &[&str]) -> Option<&'static str> {
    let path = words.join(" ");
    table::WORDS.iter().find(|(known, _)| *known == path).map(|(_, about)| *about)
}

#[cfg(test)]
mod tests;
