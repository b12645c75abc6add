//! Commands that put the candidate in force, and that go back.

use super::api::Refusal;
use super::session::{Line, Reply, Session, read};
use crate::Failure;
use config::Path;
use config::compare::Comparison;
use gateway::api::model::{Commit, CommitErrors, Committed, Conflicts, Revision, SecretText, Via};
use std::fmt::Write as _;

/// The answer to a commit without changes.
const NOTHING: &str = "No configuration changes to commit\n";

pub(super) fn commit(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let asked = Asked::read(&line.words)?;
    put_in_force(session, &asked)
}

pub(super) fn commit_confirm(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let mut asked = Asked::read(line.words.get(1..).unwrap_or_default())?;
    asked.minutes = Some(minutes(line.words.first().copied())?);
    put_in_force(session, &asked)
}

/// What a commit is to do.
#[derive(Default)]
struct Asked {
    only_check: bool,
    minutes: Option<u32>,
    comment: Option<String>,
}

impl Asked {
    fn read(words: &[&str]) -> Result<Self, Failure> {
        let mut asked = Self::default();
        let mut left = words.iter().copied();
        while let Some(word) = left.next() {
            match word {
                "check" => asked.only_check = true,
                "confirm" => asked.minutes = Some(minutes(left.next())?),
                "comment" => {
                    let text = left.by_ref().collect::<Vec<_>>().join(" ");
                    if text.is_empty() {
                        return Err("the text is missing\n  fix: commit comment 'the new office'".into());
                    }
                    asked.comment = Some(text);
                }
                _ => {
                    return Err(format!(
                        "unknown word {word:?}\n  fix: commit, or commit check, comment TEXT or confirm MINUTES"
                    )
                    .into());
                }
            }
        }
        Ok(asked)
    }
}

/// The number of minutes after which a commit is undone.
fn minutes(word: Option<&str>) -> Result<u32, Failure> {
    let word = word.ok_or("after how many minutes shall the change be undone?\n  fix: commit-confirm 10")?;
    let number = word.parse().ok().filter(|minutes| (1..=1440).contains(minutes));
    Ok(number.ok_or_else(|| format!("{word:?} is not a number of minutes from 1 to 1440"))?)
}

fn put_in_force(session: &mut Session, asked: &Asked) -> Result<Reply, Failure> {
    if !session.is_changed() && !asked.only_check {
        return Ok(Reply::says(NOTHING));
    }
    let edits = config::edits::between(&session.base, &session.candidate);
    let commit = Commit {
        base: session.revision,
        edits: edits.iter().map(|line| SecretText::from(line.as_str())).collect(),
        comment: asked.comment.clone(),
        user: session.user.clone(),
        via: Via::Cli,
        confirm_minutes: asked.minutes,
        check_only: asked.only_check,
    };
    let Committed { warnings, .. } = session.router.commit(&commit).map_err(|refusal| refused(&refusal))?;
    let mut text: String = warnings.iter().map(|warning| format!("Warning: {warning}\n")).collect();
    if asked.only_check {
        text.push_str("The candidate is valid\n");
        return Ok(Reply::says(text));
    }
    session.refresh()?;
    if let Some(minutes) = asked.minutes {
        let _ = writeln!(text, "This change will be undone in {minutes} minutes unless you type: confirm");
    }
    Ok(Reply::says(text))
}

/// Why a commit is not in force: all of it.
fn refused(refusal: &Refusal) -> Failure {
    let mut text = match refusal {
        Refusal::Conflicts(Conflicts { conflicts }) => {
            let lines = conflicts.iter().map(|found| {
                format!(
                    "[{}]\n  another session has set this meanwhile\n  yours: {}\n  in force: {}\n",
                    found.path,
                    or_nothing(&found.ours),
                    or_nothing(&found.theirs)
                )
            });
            let fix =
                "  fix: discard, and make the change again; or rollback 0, to look at what is in force\n";
            lines.chain([fix.to_owned()]).collect::<String>()
        }
        Refusal::Wrong(CommitErrors { errors }) => errors
            .iter()
            .map(|error| {
                let place = if error.path.is_empty() { String::new() } else { format!("[{}]\n", error.path) };
                let fix = error.fix.as_ref().map(|fix| format!("  fix: {fix}\n")).unwrap_or_default();
                format!("{place}  {}\n{fix}", error.why)
            })
            .collect(),
        Refusal::Other(error) => format!("  {error}\n"),
    };
    text.push_str("Commit failed");
    text.into()
}

fn or_nothing(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

pub(super) fn confirm(session: &mut Session, _: &Line<'_>) -> Result<Reply, Failure> {
    session.router.confirm()?;
    Ok(Reply::says("The last change stays in force\n"))
}

pub(super) fn rollback(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let [number] = line.words[..] else {
        return Err("which revision?\n  fix: rollback 1; run show system commit lists them".into());
    };
    let revision = numbered(&session.router.revisions()?, number)?;
    let tree = read(session.router.revision(revision)?.text.as_str())?;
    let shown = Comparison { before: &session.base, after: &tree, secrets: false }.changes(&Path::default());
    session.candidate = tree;
    if shown.is_empty() {
        return Ok(Reply::says("This revision is the same as what is in force\n"));
    }
    Ok(Reply::says(format!("{shown}Loaded revision {number}: commit puts it in force, discard drops it\n")))
}

/// The own number of a revision that is counted from the newest, which is 0.
pub(crate) fn numbered(revisions: &[Revision], number: &str) -> Result<u64, Failure> {
    let last = revisions.len().saturating_sub(1);
    let at: usize = number.parse().map_err(|_| format!("{number:?} is not the number of a revision"))?;
    let found = revisions.get(at).ok_or_else(|| {
        format!("there is no revision {at}\n  fix: write a number from 0, the newest, to {last}; run show system commit lists them")
    })?;
    match &found.corrupt {
        Some(file) => Err(format!(
            "revision {at} cannot be read, and was set aside as {file}\n  fix: take another; run show system commit lists them"
        )
        .into()),
        None => Ok(found.revision),
    }
}
