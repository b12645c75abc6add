//! Commands that show the candidate, and compare it.

use super::numbering::numbered;
use super::session::{Form, Line, Reply, Session, read};
use crate::Failure;
use config::compare::Comparison;
use config::diff::Change;
use config::schema::{Cursor, Kind};
use config::{Path, Tree, print};
use serde_json::{Map, Value};

/// The word that shows secrets, too.
pub(crate) const SECRETS: &str = "--secrets";

pub(super) fn show(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let secrets = line.words.contains(&SECRETS);
    let words: Vec<&str> = line.words.iter().copied().filter(|word| *word != SECRETS).collect();
    let path = session.path_of(&words)?;
    let shown = Comparison { before: &session.base, after: &session.candidate, secrets };
    let text = match line.form {
        Form::Braces => shown.marked(&path),
        Form::Commands => print::commands(&only(&session.candidate, &path), secrets),
        Form::Json => json(&only(&session.candidate, &path), secrets)?,
    };
    if text.is_empty() {
        return Ok(Reply::says("Configuration under specified path is empty\n"));
    }
    Ok(Reply::says(text))
}

/// What of a configuration is at a path.
fn only(tree: &Tree, path: &Path) -> Tree {
    if *path == Path::default() {
        return tree.clone();
    }
    let mut only = Tree::default();
    only.take_over(path, tree);
    only
}

/// A configuration as JSON, with the types that the grammar gives: a list where there may be several values, an empty object for
/// what is only set.
pub(crate) fn json(tree: &Tree, secrets: bool) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(&value(tree, Cursor::root(), secrets))? + "\n")
}

fn value(tree: &Tree, cursor: Cursor, secrets: bool) -> Value {
    let node = cursor.node();
    let is_hidden = !secrets && node.is_some_and(|node| node.secret);
    let text = |text: &str| Value::from(if is_hidden { print::HIDDEN } else { text });
    let values = tree.own_values();
    match (node.map(|node| node.kind), &values[..]) {
        (Some(Kind::Values(_)), values) => values.iter().map(|value| text(value)).collect(),
        (_, [only]) => text(only),
        _ => {
            let below = tree.children().filter_map(|(word, branch)| {
                Some((word.to_owned(), value(branch, cursor.down(word)?, secrets)))
            });
            Value::Object(below.collect::<Map<_, _>>())
        }
    }
}

pub(super) fn compare(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let (before, after, level) = match line.words[..] {
        [] => (session.base.clone(), session.candidate.clone(), session.level.clone()),
        ["saved"] => (saved(session)?, session.candidate.clone(), Path::default()),
        [number] => (revision(session, number)?, session.candidate.clone(), Path::default()),
        [one, other] => {
            // What is newer is compared with what is older.
            let newer = one.parse::<u64>().ok() < other.parse().ok();
            let (old, new) = if newer { (other, one) } else { (one, other) };
            (revision(session, old)?, revision(session, new)?, Path::default())
        }
        _ => return Err("fix: compare, compare saved, compare 1, or compare 0 1".into()),
    };
    let text = match line.form {
        Form::Braces => Comparison { before: &before, after: &after, secrets: false }.changes(&level),
        Form::Commands => lines(&before, &after),
        Form::Json => return Err("a comparison cannot be shown as JSON\n  fix: compare | commands".into()),
    };
    if !text.is_empty() {
        return Ok(Reply::says(text));
    }
    Ok(Reply::says(match line.words[..] {
        [] => "No changes between working and active configurations.\n",
        ["saved"] => "No changes between working and saved configurations.\n",
        [_] => "No changes between working and revision configurations.\n",
        _ => "No changes between revisions.\n",
    }))
}

/// A difference as the lines that make it.
fn lines(before: &Tree, after: &Tree) -> String {
    let changes = config::diff::diff(before, after);
    let lines = changes.iter().map(|change| {
        let text = change.to_string();
        match (change, text.strip_prefix("+ ")) {
            (Change::Commented(path, text), _) => {
                format!("comment {path} {}\n", print::quoted(text.unwrap_or_default()))
            }
            (_, Some(line)) => format!("set {line}\n"),
            (_, None) => format!("delete {}\n", text.trim_start_matches("- ")),
        }
    });
    lines.collect()
}

/// A time in RFC 3339 as people read it.
pub(crate) fn time(text: &str) -> String {
    text.trim_end_matches('Z').replace('T', " ")
}

fn revision(session: &Session, number: &str) -> Result<Tree, Failure> {
    let number = numbered(&session.router.revisions()?, number)?;
    read(session.router.revision(number)?.text.as_str())
}

/// What the file of the daemon has.
fn saved(session: &Session) -> Result<Tree, Failure> {
    super::files::read_tree(&session.file)
}
