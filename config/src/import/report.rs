//! What becomes of each option of a source, and the lines that come of them.

use super::names::Names;
use super::place::{Origin, Place};
use crate::schema::Cursor;
use crate::statement::{HIDDEN, quoted};
use crate::text::Text;
use crate::{Settings, Tree, parse, print};
use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use zeroize::Zeroizing;

/// What became of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It means the same here.
    Taken,
    /// It was translated to other words or values, for this reason.
    Translated(String),
    /// It is not in the result.
    Left {
        /// Why not.
        why: String,
        /// What to do instead.
        fix: String,
        /// Whether leaving it out weakens security: what is protected, against whom, or how well.
        security: bool,
    },
}

/// An option of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub place: Place,
    /// Its name, without its value.
    pub option: String,
    /// The lines that came of it, without secrets.
    pub lines: Vec<String>,
    /// What became of it.
    pub outcome: Outcome,
}

/// Something for which the result would be refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The option that it comes of.
    pub place: Option<Place>,
    /// What is wrong.
    pub reason: String,
    /// What to do.
    pub fix: Option<String>,
}

/// A configuration, and what became of each option of its sources.
#[derive(Debug)]
pub struct Imported {
    /// The lines, with secrets.
    pub text: Text,
    /// What became of each option, in the order of the sources.
    pub entries: Vec<Entry>,
    /// Why the result would be refused; empty if it would not.
    pub problems: Vec<Problem>,
    /// What the result is warned of.
    pub warnings: Vec<String>,
}

impl Imported {
    /// Makes problems of the options that were left and matter for security.
    pub(super) fn refuse_what_is_left(&mut self) {
        let left = self.entries.iter().filter_map(|entry| match &entry.outcome {
            Outcome::Left { why, fix, security: true } => Some(Problem {
                place: Some(entry.place.clone()),
                reason: format!("{}: {why}", entry.option),
                fix: Some(fix.clone()),
            }),
            _ => None,
        });
        self.problems.extend(left);
    }
}

/// A line of the result: the words, and where it comes from.
struct Line {
    text: Zeroizing<String>,
    place: Place,
}

/// A path and its value, if it has one.
pub(super) type Set<'a> = (String, Option<&'a str>);

/// The result, as far as it is.
#[derive(Default)]
pub(super) struct Draft {
    lines: Vec<Line>,
    /// The lines by their hashes.
    known: HashMap<u64, Vec<usize>>,
    entries: Vec<Entry>,
    /// The names that were given. All parts of an import share them, as they share the lines.
    pub(super) names: Names,
}

impl Draft {
    /// An option that means the same here; without a line if that is how it always is.
    pub(super) fn take(&mut self, origin: &Origin, sets: &[Set<'_>]) {
        self.add(origin, sets, Outcome::Taken);
    }

    /// Reports an option that was translated to other words or values.
    pub(super) fn translate(&mut self, origin: &Origin, sets: &[Set<'_>], why: impl Into<String>) {
        self.add(origin, sets, Outcome::Translated(why.into()));
    }

    /// Reports an option that was left out.
    pub(super) fn leave(&mut self, origin: &Origin, why: impl Into<String>, fix: impl Into<String>) {
        self.left(origin, why.into(), fix.into(), false);
    }

    /// Reports an option that was left out, which weakens security.
    pub(super) fn leave_open(&mut self, origin: &Origin, why: impl Into<String>, fix: impl Into<String>) {
        self.left(origin, why.into(), fix.into(), true);
    }

    /// A line that is not what an option says, but follows from another one that is reported.
    pub(super) fn imply(&mut self, origin: &Origin, path: &str, value: Option<&str>) {
        let _ = self.line(origin, path, value);
    }

    /// A whole `set` line of ours, without the verb.
    pub(super) fn take_line(&mut self, origin: &Origin, line: &str) {
        let mut text = Zeroizing::new(String::with_capacity(line.len() + 4));
        let _ = write!(text, "set {line}");
        let tree = match Self::checked(&text, &text) {
            Ok(tree) => tree,
            Err((why, fix)) => return self.left(origin, why, fix, true),
        };
        let shown = print::commands(&tree, false).lines().map(str::to_owned).collect();
        self.push(text, origin);
        self.entry(origin, shown, Outcome::Taken);
    }

    /// A comment on a path that is in the result: `interfaces wireguard wg0 'to the office'`. It comes behind all lines.
    pub(super) fn comment(&mut self, origin: &Origin, line: &str) {
        let text = Zeroizing::new(format!("comment {line}"));
        let mut all = Zeroizing::new(String::with_capacity(
            self.lines.iter().map(|line| line.text.len() + 1).sum::<usize>() + text.len(),
        ));
        for line in &self.lines {
            let _ = writeln!(all, "{}", *line.text);
        }
        all.push_str(&text);
        match Self::checked(&text, &all) {
            Ok(_) => {
                self.push(text.clone(), origin);
                self.entry(origin, vec![text.to_string()], Outcome::Taken);
            }
            Err((why, fix)) => self.left(origin, why, fix, false),
        }
    }

    /// Whether a line begins with these words.
    pub(super) fn has(&self, words: &str) -> bool {
        self.lines.iter().any(|line| {
            line.text.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        })
    }

    /// Reads `all`, of which `line` is one line, or says why it is refused and what to do.
    fn checked(line: &str, all: &str) -> Result<Tree, (String, String)> {
        if line.contains(['\n', '\r']) {
            return Err((
                "it has several lines, and a line here is one".to_owned(),
                "write one line".to_owned(),
            ));
        }
        parse(all).map_err(|errors| {
            let error = errors.into_iter().next();
            let reason = error.as_ref().map(|error| error.reason.clone()).unwrap_or_default();
            (reason, error.and_then(|error| error.fix).unwrap_or_else(|| "correct the line".to_owned()))
        })
    }

    fn left(&mut self, origin: &Origin, why: String, fix: String, security: bool) {
        self.entry(origin, Vec::new(), Outcome::Left { why, fix, security });
    }

    fn entry(&mut self, origin: &Origin, lines: Vec<String>, outcome: Outcome) {
        let Origin { place, option } = origin.clone();
        self.entries.push(Entry { place, option, lines, outcome });
    }

    fn add(&mut self, origin: &Origin, sets: &[Set<'_>], outcome: Outcome) {
        let mut lines = Vec::new();
        for (path, value) in sets {
            match self.line(origin, path, *value) {
                Ok(shown) => lines.push(shown),
                Err((why, fix)) => self.left(origin, why, fix, true),
            }
        }
        if !lines.is_empty() || sets.is_empty() {
            self.entry(origin, lines, outcome);
        }
    }

    /// Adds a line that the grammar accepts; returns it without a secret, or why it is refused and what to do.
    fn line(&mut self, origin: &Origin, path: &str, value: Option<&str>) -> Result<String, (String, String)> {
        let is_secret = Cursor::at(path.split(' ')).and_then(Cursor::node).is_some_and(|node| node.secret);
        let shown = match value {
            Some(_) if is_secret => format!("set {path} {HIDDEN}"),
            Some(value) => format!("set {path} {}", quoted(value)),
            None => format!("set {path}"),
        };
        if value.is_some_and(|value| value.contains(['\n', '\r'])) {
            let why = "it has several lines, and a value here has one".to_owned();
            return Err((why, format!("set {path} yourself")));
        }
        let quoted = Zeroizing::new(value.map(quoted).unwrap_or_default());
        let mut text = Zeroizing::new(String::with_capacity(path.len() + quoted.len() + 8));
        // A string takes whatever is written.
        let _ = write!(text, "set {path}");
        if value.is_some() {
            text.push(' ');
            text.push_str(&quoted);
        }
        if let Err(errors) = parse(&text) {
            let error = errors.into_iter().next();
            let reason = error.as_ref().map(|error| error.reason.clone()).unwrap_or_default();
            let fix = error.and_then(|error| error.fix).unwrap_or_else(|| format!("set {path} yourself"));
            return Err((reason, fix));
        }
        self.push(text, origin);
        Ok(shown)
    }

    /// Adds a line that is not there yet.
    fn push(&mut self, text: Zeroizing<String>, origin: &Origin) {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let known = self.known.entry(hasher.finish()).or_default();
        if !known.iter().filter_map(|index| self.lines.get(*index)).any(|line| line.text == text) {
            known.push(self.lines.len());
            self.lines.push(Line { text, place: origin.place.clone() });
        }
    }

    /// Checks the result as the daemon would.
    pub(super) fn finish(self) -> Imported {
        let mut text = Text::default();
        for line in &self.lines {
            // It grows as it must.
            let _ = writeln!(text, "{}", *line.text);
        }
        let mut entries = self.entries;
        entries.sort_by(|a, b| (&a.place, &a.option).cmp(&(&b.place, &b.option)));
        entries.dedup();
        let checked = parse(text.as_str().unwrap_or_default()).and_then(|tree| Settings::new(&tree));
        let (problems, warnings) = match checked {
            Ok((_, warnings)) => (Vec::new(), warnings),
            Err(errors) => {
                let problems = errors.into_iter().map(|error| {
                    let line = error.location.line.checked_sub(1).and_then(|index| self.lines.get(index));
                    let place = line.map(|line| line.place.clone());
                    Problem { place, reason: error.reason, fix: error.fix }
                });
                (problems.collect(), Vec::new())
            }
        };
        Imported { text, entries, problems, warnings }
    }
}
