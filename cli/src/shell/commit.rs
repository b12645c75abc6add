//! Commands that put the candidate in force, and that go back.

use super::api::Refusal;
use super::numbering::numbered;
use super::session::{Line, Reply, Session, read};
use super::showing;
use crate::Failure;
use config::compare::Comparison;
use config::{Path, Tree};
use gateway::api::model::{
    Commit, CommitErrors, Committed, Conflicts, Revision, SecretText, Unconfirmed, Via,
};
use std::fmt::Write as _;

/// The answer to a commit without changes.
const NOTHING: &str = "No configuration changes to commit\n";

pub(super) fn commit(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let asked = Asked::read(&line.words)?;
    put_in_force(session, &asked)
}

pub(super) fn commit_confirm(session: &mut Session, line: &Line<'_>) -> Result<Reply, Failure> {
    let (minutes, words) = minutes(&line.words)?;
    let asked = Asked { minutes: Some(minutes), ..Asked::read(words)? };
    put_in_force(session, &asked)
}

/// Minutes until an unconfirmed commit is undone, unless the command gives another number. VyOS has the same default.
const MINUTES: u32 = 10;
/// What may follow a command, and a comment.
const COMMENT: &str = "comment";

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
        let mut left = words;
        while let Some((word, rest)) = left.split_first() {
            left = rest;
            match *word {
                "check" => asked.only_check = true,
                "confirm" => {
                    let (minutes, rest) = minutes(left)?;
                    asked.minutes = Some(minutes);
                    left = rest;
                }
                COMMENT => {
                    let text = std::mem::take(&mut left).join(" ");
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

/// The number of minutes after which a commit is undone, and the words behind it.
fn minutes<'a, 'b>(words: &'a [&'b str]) -> Result<(u32, &'a [&'b str]), Failure> {
    let Some((word, rest)) = words.split_first().filter(|(word, _)| **word != COMMENT) else {
        return Ok((MINUTES, words));
    };
    let number = word.parse().ok().filter(|minutes| (1..=1440).contains(minutes));
    let number = number.ok_or_else(|| format!("{word:?} is not a number of minutes from 1 to 1440"))?;
    Ok((number, rest))
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
    let committed = session.router.commit(&commit).map_err(|refusal| refused(&refusal))?;
    let Committed { revision, warnings, confirm, .. } = committed;
    let mut text: String = warnings.iter().map(|warning| format!("Warning: {warning}\n")).collect();
    if asked.only_check {
        text.push_str("The candidate is valid\n");
        return Ok(Reply::says(text));
    }
    // It is in force, whatever comes next.
    session.base = session.candidate.clone();
    session.revision = revision;
    session.confirms = confirm.as_ref().map(|open| open.revision);
    if let Some(open) = confirm {
        let minutes = open.seconds_left.div_ceil(60);
        let _ = writeln!(text, "This change will be undone in {minutes} minutes unless you type: confirm");
    }
    if let Err(error) = session.refresh() {
        let _ = writeln!(
            text,
            "Warning: the change is in force, and the daemon does not answer any more: {error}"
        );
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
        Refusal::Unanswered => {
            return "the daemon ended before it answered: the change may be in force, or not\n  \
                    fix: when it runs again, type commit again, which changes nothing if it is in force already"
                .into();
        }
        Refusal::Other(error) => format!("  {error}\n"),
    };
    text.push_str("Commit failed");
    text.into()
}

fn or_nothing(text: &str) -> &str {
    if text.is_empty() { "nothing" } else { text }
}

pub(super) fn confirm(session: &mut Session, _: &Line<'_>) -> Result<Reply, Failure> {
    let open = session.router.in_force()?.confirm.filter(|open| open.failed.is_none());
    let Some(open) = open else {
        session.confirms = None;
        return Err(
            "no commit waits to be confirmed: its time may have passed\n  fix: see: run show system commit"
                .into(),
        );
    };
    let is_ours = session.confirms == Some(open.revision);
    let shown = if is_ours { String::new() } else { shown(session, &open)? };
    let who = session.router.revision(open.revision).map(|it| it.revision.user).unwrap_or_default();
    // This session's commit was undone meanwhile, or another user made this one.
    if !is_ours && (session.confirms.is_some() || who != session.user) {
        session.confirms = Some(open.revision);
        return Err(format!(
            "{shown}This is not the change of this session\n  fix: if it is to stay in force: type confirm again"
        )
        .into());
    }
    session.router.confirm(open.revision)?;
    session.confirms = None;
    Ok(Reply::says(format!("{shown}The last change stays in force\n")))
}

/// A commit that waits to be confirmed: whose it is, and what it changed.
fn shown(session: &Session, open: &Unconfirmed) -> Result<String, Failure> {
    let now = session.router.revision(open.revision)?;
    let before = match open.back_to {
        0 => Tree::default(),
        back_to => read(session.router.revision(back_to)?.text.as_str())?,
    };
    let after = read(now.text.as_str())?;
    let changes = Comparison { before: &before, after: &after, secrets: false }.changes(&Path::default());
    let Revision { user, time, .. } = now.revision;
    Ok(format!("Committed by {user}, {}:\n{changes}", showing::time(&time)))
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
