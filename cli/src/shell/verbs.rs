//! The commands of a session of configuration. A further one is a line here, and its effect.

use super::session::{Form, Line, Reply, Session};
use super::{changing, commit, files, showing};
use crate::Failure;
use config::schema::nearest;
use std::fmt;

/// A command of a session.
pub(crate) struct Verb {
    pub(crate) name: &'static str,
    /// What may follow it.
    pub(crate) follows: Follows,
    /// What it does, on one line.
    pub(crate) about: &'static str,
    pub(crate) effect: fn(&mut Session, &Line<'_>) -> Result<Reply, Failure>,
}

/// What may follow a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follows {
    Nothing,
    /// A path, and a value.
    Setting,
    /// A path of what is set, and a value.
    Set,
    /// A path of a branch.
    Branch,
    /// A path of what is set, and words of its own.
    Renamed,
    /// The number of a revision, or these words.
    Revision(&'static [(&'static str, &'static str)]),
    /// These words.
    Words(&'static [(&'static str, &'static str)]),
    /// The name of a file or a URL.
    File,
    /// An operational command.
    Command,
}

const fn verb(
    name: &'static str,
    follows: Follows,
    about: &'static str,
    effect: fn(&mut Session, &Line<'_>) -> Result<Reply, Failure>,
) -> Verb {
    Verb { name, follows, about, effect }
}

const COMMIT: Follows = Follows::Words(&[
    ("check", "Validate the candidate, and change nothing"),
    ("comment", "Say what the change is for"),
    ("confirm", "Undo the change after so many minutes unless it is confirmed"),
]);
/// What may follow a commit that must be confirmed.
pub(crate) const COMMIT_CONFIRM: Follows = Follows::Words(&[
    ("<minutes>", "Minutes until the change is undone, 1 to 1440; 10 if none are given"),
    ("comment", "Say what the change is for"),
]);
const COMPARE: Follows = Follows::Revision(&[("saved", "Compare with the file of the daemon")]);

/// All commands, in the order of the alphabet.
pub(crate) static VERBS: &[Verb] = &[
    verb(
        "comment",
        Follows::Set,
        "Note something of a setting or a branch; '' removes it",
        changing::comment,
    ),
    verb("commit", COMMIT, "Put the candidate in force", commit::commit),
    verb(
        "commit-confirm",
        COMMIT_CONFIRM,
        "Put the candidate in force, and undo it after so many minutes unless it is confirmed",
        commit::commit_confirm,
    ),
    verb(
        "compare",
        COMPARE,
        "Show what the candidate changes, or what revisions differ in",
        showing::compare,
    ),
    verb("configure", Follows::Nothing, "Begin to configure; here it is done already", |_, _| {
        Ok(Reply::default())
    }),
    verb(
        "confirm",
        Follows::Nothing,
        "Keep the last change, which would be undone otherwise",
        commit::confirm,
    ),
    verb("copy", Follows::Renamed, "Set the same under another name", changing::copy),
    verb("delete", Follows::Set, "Delete a setting or a branch", changing::delete),
    verb("discard", Follows::Nothing, "Drop all changes that are not committed", |session, _| {
        Ok(changing::discard(session))
    }),
    verb("edit", Follows::Branch, "Go to a level of the configuration", changing::edit),
    verb(
        "exit",
        Follows::Words(&[("discard", "Drop all changes that are not committed")]),
        "Go to the highest level, or end",
        changing::exit,
    ),
    verb("load", Follows::File, "Replace the candidate by a file, a URL, or a revision", files::load),
    verb("merge", Follows::File, "Add a file, a URL, or a revision to the candidate", files::merge),
    verb("rename", Follows::Renamed, "Give a branch another name", changing::rename),
    verb("rollback", Follows::Revision(&[]), "Load an earlier revision into the candidate", commit::rollback),
    verb("rollback-soft", Follows::Revision(&[]), "The same as rollback", commit::rollback),
    verb("run", Follows::Command, "Run an operational command", changing::run),
    verb(
        "save",
        Follows::File,
        "Write what is in force to the file of the daemon, or to another",
        files::save,
    ),
    verb("set", Follows::Setting, "Set a value, or make a branch", changing::set),
    verb("show", Follows::Set, "Show the candidate", showing::show),
    verb("top", Follows::Nothing, "Go to the highest level", |session, _| Ok(changing::top(session))),
    verb("up", Follows::Nothing, "Go one level up, or several", changing::up),
];

/// Why a line is not a command: another program may know it.
#[derive(Debug)]
pub(crate) struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unknown {}

impl Session {
    /// Carries out one line.
    pub(crate) fn execute(&mut self, line: &str, form: Form) -> Result<Reply, Failure> {
        let words = config::words(line).map_err(|error| error.to_string())?;
        let words: Vec<&str> = words.iter().map(|word| word.as_str()).collect();
        let Some((&first, words)) = words.split_first() else { return Ok(Reply::default()) };
        let verb = find(first).map_err(|several| unknown(first, &several))?;
        let line = line.trim_start();
        let rest = line.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim());
        (verb.effect)(self, &Line { words: words.to_vec(), rest, form })
    }
}

fn unknown(first: &str, several: &[&str]) -> Failure {
    let text = if several.is_empty() {
        let names: Vec<&str> = VERBS.iter().map(|verb| verb.name).collect();
        let fix = nearest(first, &names).map_or_else(
            || format!("write one of {}", names.join(", ")),
            |near| format!("did you mean {near}?"),
        );
        format!("Invalid command: [{first}]\n  fix: {fix}")
    } else {
        format!("Ambiguous command: [{first}]\n  fix: write one of {}", several.join(", "))
    };
    Box::new(Unknown(text))
}

/// The command that a word is, or is the only beginning of.
pub(crate) fn find(word: &str) -> Result<&'static Verb, Vec<&'static str>> {
    if let Some(verb) = VERBS.iter().find(|verb| verb.name == word) {
        return Ok(verb);
    }
    let found: Vec<&Verb> = VERBS.iter().filter(|verb| verb.name.starts_with(word)).collect();
    match found[..] {
        [only] => Ok(only),
        _ => Err(found.into_iter().map(|verb| verb.name).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_may_be_abbreviated_as_long_as_one_is_meant() {
        let found = |word| find(word).map(|verb| verb.name);
        assert_eq!(
            (found("se"), found("commit"), found("rollback")),
            (Ok("set"), Ok("commit"), Ok("rollback"))
        );
        assert_eq!(found("co").map_err(|all| all.len()), Err(7));
        assert_eq!(found("frobnicate"), Err(vec![]));
    }

    #[test]
    fn the_commands_are_in_order_with_help() {
        assert!(VERBS.is_sorted_by_key(|verb| verb.name));
        assert!(VERBS.iter().all(|verb| !verb.about.is_empty() && !verb.about.ends_with('.')));
    }
}
