//! Commands that change the candidate, and that move in it.

use super::session::{Line, Reply, Session, full_line};
use crate::Failure;
use config::error::ConfigError;
use config::schema::{Cursor, Place};
use config::{Path, edit as changes};

pub(super) fn set(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    change(session, line, "set", "Set failed")
}

pub(super) fn delete(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    change(session, line, "delete", "Delete failed")
}

fn change(session: &mut Session, line: &Line<'_>, verb: &str, failed: &str) -> Result<Reply, Failure> {
    let text = full_line(verb, line.rest);
    match config::parse::execute(&text, &session.level, &mut session.candidate) {
        Ok(()) => Ok(Reply::default()),
        Err(error) => {
            let why = explained(session, line, verb, &text, &error);
            Err(format!("{why}\n\n  {failed}").into())
        }
    }
}

/// What is wrong with a line, in the words that scripts look for, and then in ours.
fn explained(session: &Session, line: &Line<'_>, verb: &str, text: &str, error: &ConfigError) -> String {
    let masked = error.masked(text);
    let shown = masked.split_whitespace().skip(1).collect::<Vec<_>>().join(" ");
    let path = format!("{} {shown}", session.level);
    let path = path.trim();
    let own = error.to_string().replace('\n', "\n  ");
    match wrong_part(session, &line.words) {
        Part::Value => format!("  {own}\n  Value validation failed"),
        Part::Nothing if verb == "delete" => {
            format!("  Nothing to delete (the specified node does not exist)\n  Configuration path: [{path}]")
        }
        Part::Path | Part::Nothing => format!("  Configuration path: [{path}] is not valid\n  {own}"),
    }
}

/// The part of a line that is wrong.
enum Part {
    Path,
    Value,
    Nothing,
}

fn wrong_part(session: &Session, words: &[&str]) -> Part {
    let mut cursor = Cursor::at(session.level.words()).unwrap_or(Cursor::root());
    for word in words {
        let Some(next) = cursor.expand(word) else {
            return if cursor.value_type().is_some_and(|kind| kind.check(word).is_err())
                && cursor.node().is_some()
            {
                Part::Value
            } else if cursor.node().is_some_and(|node| node.kind.value_type().is_some()) {
                Part::Nothing
            } else {
                Part::Path
            };
        };
        match next.place() {
            Place::Tag(tag) if tag.kind.check(word).is_err() => return Part::Value,
            Place::Unsupported(_) => return Part::Path,
            _ => cursor = next,
        }
    }
    Part::Nothing
}

pub(super) fn comment(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let text = full_line("comment", line.rest);
    config::parse::execute(&text, &session.level, &mut session.candidate)
        .map(|()| Reply::default())
        .map_err(|error| format!("{error}\n\n  Comment failed").into())
}

/// The caller runs operational commands: it knows where they print.
pub(super) fn run(_: &mut Session, _: &Line<'_>) -> Result<Reply, Failure> {
    Err(which_command())
}

/// The error for `run` alone.
pub(super) fn which_command() -> Failure {
    "which command?\n  fix: run show vpn ipsec sa".into()
}

pub(super) fn copy(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let (path, new) = renamed(session, line, "copy")?;
    changes::copy(&mut session.candidate, &path, &new).map_err(|error| error.to_string())?;
    Ok(Reply::default())
}

pub(super) fn rename(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let (path, new) = renamed(session, line, "rename")?;
    changes::rename(&mut session.candidate, &path, &new).map_err(|error| error.to_string())?;
    Ok(Reply::default())
}

/// `PATH OLD to PATH NEW`, in which the words before the new name may be left out.
fn renamed(session: &Session, line: &Line<'_>, verb: &str) -> Result<(Path, String), Failure> {
    let usage = || -> Failure {
        format!("what to {verb}, and its new name?\n  fix: {verb} interfaces wireguard wg0 to wg1").into()
    };
    let at = line.words.iter().rposition(|word| *word == "to").ok_or_else(usage)?;
    let (old, new) = (&line.words[..at], &line.words[at + 1..]);
    let new = new.last().filter(|_| !old.is_empty()).ok_or_else(usage)?;
    Ok((session.path_of(old)?, (*new).to_owned()))
}

pub(super) fn discard(session: &mut Session) -> Reply {
    if !session.is_changed() {
        return Reply::says("No changes have been discarded\n");
    }
    session.candidate = session.base.clone();
    Reply::says("Changes have been discarded\n")
}

pub(super) fn edit(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    if line.words.is_empty() {
        return Err("which level?\n  fix: edit vpn ipsec".into());
    }
    let path = session.path_of(&line.words)?;
    let cursor = Cursor::at(path.words()).unwrap_or(Cursor::root());
    if cursor.next().next().is_none() {
        return Err(format!("The \"edit\" command cannot be issued at the \"{}\" level", path.last()).into());
    }
    if let Some(tag) = cursor.tag() {
        tag.kind.check(path.last())?;
    }
    session.level = path;
    Ok(Reply::default())
}

pub(super) fn top(session: &mut Session) -> Reply {
    session.level = Path::default();
    Reply::default()
}

/// Goes up; a word with the name that follows it is one level.
pub(super) fn up(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let count: usize = match line.words[..] {
        [] => 1,
        [count] => count.parse().map_err(|_| format!("{count:?} is not a number of levels"))?,
        _ => return Err("how many levels?\n  fix: up, or up 2".into()),
    };
    for _ in 0..count {
        let mut words = session.level.words();
        if words.is_empty() {
            return Err("Already at the top level".into());
        }
        let is_named = Cursor::at(words.iter().copied()).is_some_and(|cursor| cursor.tag().is_some());
        words.truncate(words.len() - if is_named { 2 } else { 1 });
        session.level = Path::new(words);
    }
    Ok(Reply::default())
}

pub(super) fn exit(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let discards = match line.words[..] {
        [] => false,
        [word] if "discard".starts_with(word) => true,
        _ => return Err("fix: exit, or exit discard".into()),
    };
    if !discards && session.level != Path::default() {
        session.level = Path::default();
        return Ok(Reply::default());
    }
    if !discards && session.is_changed() {
        return Err("Cannot exit: configuration modified.\n\
            Use 'exit discard' to discard the changes and exit."
            .into());
    }
    let text = if session.is_saved { "" } else { "Warning: configuration changes have not been saved.\n" };
    Ok(Reply { text: text.to_owned(), is_end: true })
}
