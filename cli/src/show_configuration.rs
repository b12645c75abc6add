//! `show configuration` and `show system commit`: what is in force, and what was.

use crate::answer::Answer;
use crate::request::Request;
use crate::shell::api::{Router, Socket};
use crate::shell::numbering::numbered;
use crate::shell::session::read;
use crate::shell::showing::{json, time};
use crate::{Failure, archiver, place};
use config::compare::Comparison;
use config::settings::CommitArchive;
use config::{Path, Tree, canonical, print};
use gateway::api::model::{InForce, Revision, Unconfirmed};
use std::path::Path as File;

fn router(request: &Request) -> Socket {
    Socket::new(request.api().map(File::to_owned))
}

fn in_force(request: &Request) -> Result<Tree, Failure> {
    let InForce { text, .. } = router(request).in_force()?;
    read(text.as_str())
}

/// A configuration in one of its forms; as JSON it is always the same.
fn answer(
    request: &Request,
    tree: &Tree,
    text: impl FnOnce(&Tree, bool) -> String,
) -> Result<Answer, Failure> {
    let secrets = request.has("secrets");
    let text = text(tree, secrets);
    let value: serde_json::Value = serde_json::from_str(&json(tree, secrets)?)?;
    Ok(Answer::new(value, move |_| text.clone()))
}

pub(crate) fn braces(request: &Request) -> Result<Answer, Failure> {
    answer(request, &in_force(request)?, |tree, secrets| {
        let same = Comparison { before: tree, after: tree, secrets };
        same.marked(&Path::default())
            .lines()
            .map(|line| format!("{}\n", line.get(1..).unwrap_or_default()))
            .collect()
    })
}

pub(crate) fn commands(request: &Request) -> Result<Answer, Failure> {
    answer(request, &in_force(request)?, print::commands)
}

pub(crate) fn as_json(request: &Request) -> Result<Answer, Failure> {
    answer(request, &in_force(request)?, |tree, secrets| json(tree, secrets).unwrap_or_default())
}

pub(crate) fn in_one_dialect(request: &Request) -> Result<Answer, Failure> {
    let tree = canonical::canonical(&in_force(request)?);
    answer(request, &tree, print::commands)
}

pub(crate) fn revisions(request: &Request) -> Result<Answer, Failure> {
    let revisions = router(request).revisions()?;
    let api = request.api().unwrap_or(File::new(place::API));
    let copies = archiver::shown(api, &revisions, &CommitArchive::new(&in_force(request)?));
    Ok(Answer::new(revisions, move |revisions| listed(revisions) + &copies))
}

/// As VyOS lists them: counted from the newest.
fn listed(revisions: &[Revision]) -> String {
    let lines = revisions.iter().enumerate().map(|(number, revision)| {
        let waits = revision.confirm.as_ref().map(waits);
        if let Some(file) = &revision.corrupt {
            let waits = waits.unwrap_or_default();
            return format!("{number:<3} cannot be read, and was set aside as {file}{waits}\n");
        }
        let comment = revision.comment.as_ref().map(|text| format!("    {}\n", text.replace('\n', "\n    ")));
        format!(
            "{number:<3} {} by {} via {}{}\n{}",
            time(&revision.time),
            revision.user,
            revision.via,
            waits.unwrap_or_default(),
            comment.unwrap_or_default()
        )
    });
    lines.collect()
}

/// What becomes of a commit that must be confirmed.
fn waits(open: &Unconfirmed) -> String {
    match &open.failed {
        None => format!(", undone in {} s unless confirmed", open.seconds_left),
        Some(why) => {
            let why = why.replace('\n', "\n    ");
            format!(", going back has failed, and is tried again in {} s:\n    {why}", open.seconds_left)
        }
    }
}

/// What a revision changed.
pub(crate) fn changes(request: &Request) -> Result<Answer, Failure> {
    let router = router(request);
    let revisions = router.revisions()?;
    let number = request.value("REVISION").unwrap_or_default();
    let after = read(router.revision(numbered(&revisions, number)?)?.text.as_str())?;
    let older = number.parse::<usize>().ok().and_then(|at| revisions.get(at + 1));
    let before = match older.filter(|it| it.corrupt.is_none()) {
        Some(older) => read(router.revision(older.revision)?.text.as_str())?,
        None => Tree::default(),
    };
    let text = Comparison { before: &before, after: &after, secrets: false }.changes(&Path::default());
    let lines: Vec<String> = config::diff::diff(&before, &after).iter().map(ToString::to_string).collect();
    Ok(Answer::new(lines, move |_| text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::api::model::Via;

    #[test]
    fn revisions_are_listed_as_vyos_does() {
        let revision = |revision, comment: Option<&str>| Revision {
            revision,
            time: "2026-11-23T02:12:58Z".to_owned(),
            user: "root".to_owned(),
            via: Via::Cli,
            comment: comment.map(str::to_owned),
            ..Revision::default()
        };
        let waits = Revision {
            confirm: Some(Unconfirmed { seconds_left: 90, ..Unconfirmed::default() }),
            ..revision(9, Some("a larger MTU"))
        };
        let failed = Some("UDP port 7 is in use\n  fix: stop it".to_owned());
        let stuck = Revision {
            confirm: Some(Unconfirmed { seconds_left: 20, failed, ..Unconfirmed::default() }),
            ..revision(10, None)
        };
        assert_eq!(
            listed(&[stuck]),
            "0   2026-11-23 02:12:58 by root via cli, going back has failed, and is tried again in 20 s:\n    \
             UDP port 7 is in use\n      fix: stop it\n"
        );
        let corrupt = Revision { corrupt: Some("00000007.conf.corrupt".to_owned()), ..Revision::default() };
        assert_eq!(
            listed(&[waits, revision(8, None), corrupt]),
            "0   2026-11-23 02:12:58 by root via cli, undone in 90 s unless confirmed\n    a larger MTU\n\
             1   2026-11-23 02:12:58 by root via cli\n\
             2   cannot be read, and was set aside as 00000007.conf.corrupt\n"
        );
    }
}
