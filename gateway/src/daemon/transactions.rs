//! Commits, one after the other.
//!
//! ```text
//! edits ── merged with what is in force, checked ──> candidate ── written and synced ──> pending
//!       ──> applied, or all undone ──> published: from here on it counts, also after a loss of power
//! ```
//!
//! What waits for the disk does so in a thread beside the runtime.

mod recording;

pub(super) use recording::Change;

use super::Daemon;
use super::archive::revision::{Deadline, Header};
use super::archive::{Archive, ArchiveError, Pending};
use super::candidate::{self, Candidate, Others, Wrong};
use super::ledger::Ledger;
use super::order::Stop;
use super::provisional::Provisional;
use super::rejected::{Rejected, invalid, problem};
use super::running::Running;
use super::{fault, steps::Terms};
use crate::api::model::{Commit, Committed, SecretText, Via};
use crate::clock::{since_boot, utc};
use crate::service::{Policy, Refusal, Refused};
use config::{Path, Settings, Tree, diff};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest comment and name of a user, in bytes: the first line of a revision has an end.
const LONGEST_WORDS: usize = 4096;
/// The longest time until a commit must be confirmed: 45 days.
const LONGEST_MINUTES: u32 = 65_535;

/// Does what waits for the disk in a thread beside the runtime.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// The revisions of a daemon, and what it knows of the configuration in force.
pub(super) struct Transactions {
    pub(super) ledger: Arc<Ledger>,
    /// The boot of the machine.
    boot: String,
    /// What was warned of already.
    warned: BTreeSet<String>,
    /// What is tried again by itself, and why it is not in force: this was told already.
    waiting: BTreeMap<Path, String>,
}

/// A commit that may be applied.
struct Ready {
    candidate: Candidate,
    changes: Vec<String>,
    /// Whether it is in force already. Values in another order are no change that is shown, and one that counts.
    is_same: bool,
    /// What was not warned of before.
    warnings: Vec<String>,
}

impl Transactions {
    pub(super) fn new(ledger: Arc<Ledger>, boot: String, warnings: Vec<String>) -> Self {
        Self { ledger, boot, warned: warnings.into_iter().collect(), waiting: BTreeMap::new() }
    }

    /// Puts a commit in force, or says why not. `None` if the daemon is to stop: then it is not in force.
    pub(super) async fn commit(
        &mut self,
        request: Commit,
        daemon: &mut Daemon,
        stop: &Stop,
    ) -> Option<Result<Committed, Rejected>> {
        fault::point("commit-begun");
        let ready = match stop.unless_ordered(self.ready(&request)).await? {
            Ok(ready) => ready,
            Err(rejected) => return Some(Err(rejected)),
        };
        if ready.is_same || request.check_only {
            // It holds copies of all settings.
            return Box::pin(self.check(ready, daemon, stop)).await;
        }
        let archive = match self.ledger.archive() {
            Ok(archive) => Arc::clone(archive),
            Err(problem) => return Some(Err(Rejected::Unavailable(problem.clone()))),
        };
        let header = self.header(&request, &ready.candidate);
        let Ready { candidate: Candidate { tree, text, settings, warnings: all, .. }, .. } = ready;
        let before = self.ledger.running();
        let known = before.refused_in(&tree);
        let terms = Terms::AllBut(known.clone());
        let new = Running::printed(tree, text);
        let pending = match prepare(&archive, header, &new).await {
            Ok(pending) => pending,
            Err(error) => return Some(Err(error.into())),
        };
        let kept = settings.commit_revisions;
        let open_at_exit = daemon.open_at_exit;
        let applied = stop.unless_ordered(Box::pin(daemon.apply_on(&terms, settings))).await;
        let Some(refused) = applied else {
            // It is not in force, and does not say what is open now.
            daemon.open_at_exit = open_at_exit;
            return None;
        };
        fault::point("applied");
        if !terms.allow(&refused) {
            drop(pending);
            return Some(Err(Rejected::Errors(candidate::refused(&terms.faults(refused)))));
        }
        let header = match publish(&archive, pending, kept).await {
            Ok(header) => header,
            Err(error) => {
                self.undo(before, &new.tree(), daemon).await;
                return Some(Err(error.into()));
            }
        };
        self.warned = all.into_iter().collect();
        let provisional = header.confirm.map(|confirm| Provisional::new(header.revision, confirm, before));
        let confirm = provisional.as_ref().map(|it| it.shown(since_boot()));
        let new = new.but(&refused);
        // Why they are not in force may be something else now.
        let again = new.refused().values().filter(|why| !known.values().any(|known| known == *why));
        let again: Vec<String> = again.map(|why| format!("{why}\n  it was refused before")).collect();
        self.ledger.put_in_force(new, header.revision, provisional);
        tell(&header, &ready.changes);
        let warnings = ready.warnings.into_iter().chain(self.not_told(&refused)).chain(again).collect();
        self.now_waits(&refused, daemon);
        Some(Ok(Committed { revision: header.revision, changes: ready.changes, warnings, confirm }))
    }

    /// What is tried again by itself, and did not have to be before.
    fn not_told(&self, refused: &Refused) -> Vec<String> {
        let is_new = |(path, refusal): &(&Path, &Refusal)| {
            self.waiting.get(*path).is_none_or(|told| *told != refusal.to_string())
        };
        let new = refused.iter().filter(|(_, refusal)| refusal.is_temporary()).filter(is_new);
        new.map(|(_, refusal)| format!("{refusal}\n  it is tried again")).collect()
    }

    /// This is not in force, and what is tried again of it was told.
    pub(super) fn now_waits(&mut self, refused: &Refused, daemon: &Daemon) {
        let pending = daemon.pending();
        self.waiting.retain(|path, _| pending.contains(path));
        let retried = refused.iter().filter(|(_, refusal)| refusal.is_temporary());
        self.waiting.extend(retried.map(|(path, refusal)| (path.clone(), refusal.to_string())));
    }

    /// Goes back to what was in force before a commit that could not be recorded. What cannot is tried again.
    async fn undo(&self, before: Running, now: &Tree, daemon: &mut Daemon) {
        let Some((_, settings, _)) = checked(before.tree()) else { return };
        let terms = Terms::AllBut(before.refused_in(now));
        let refused = daemon.apply(settings, Policy::EachPath).await;
        if terms.allow(&refused) {
            return;
        }
        let refused = terms.faults(refused);
        let back_to = self.ledger.revision();
        let deadline = Deadline { minutes: 0, deadline: 0, back_to };
        let mut undone = Provisional::new(back_to, deadline, before);
        undone.cannot_be_undone(&refused);
        self.ledger.set_provisional(Some(undone));
    }

    /// What would be refused of it, while nothing is changed.
    async fn check(
        &mut self,
        ready: Ready,
        daemon: &mut Daemon,
        stop: &Stop,
    ) -> Option<Result<Committed, Rejected>> {
        let Ready { candidate, changes, is_same, warnings, .. } = ready;
        let terms = Terms::AllBut(self.ledger.running().refused_in(&candidate.tree));
        let refused = if is_same {
            Refused::new()
        } else {
            stop.unless_ordered(Box::pin(daemon.would_refuse(candidate.settings))).await?
        };
        if !terms.allow(&refused) {
            return Some(Err(Rejected::Errors(candidate::refused(&terms.faults(refused)))));
        }
        let warnings = warnings.into_iter().chain(self.not_told(&refused)).collect();
        Some(Ok(Committed { revision: self.ledger.revision(), changes, warnings, confirm: None }))
    }

    /// Merges and checks what is to be committed.
    async fn ready(&self, request: &Commit) -> Result<Ready, Rejected> {
        valid(request)?;
        if let Some(problem) = self.ledger.locked().filter(|_| !request.check_only) {
            return Err(Rejected::Unconfirmed(problem));
        }
        if request.confirm_minutes.is_some() && self.ledger.revision() == 0 {
            let why = "what is in force is not in the archive: there is no revision to come back\n  fix: commit without \
                       confirm; or make room on the disk, then postern reload";
            return Err(Rejected::Unavailable(problem(why)));
        }
        let in_force = self.ledger.running();
        let running = in_force.tree();
        let candidate = if request.base == self.ledger.revision() {
            merged(running.clone(), &request.edits, None).await?
        } else {
            let archive = self.ledger.archive().map_err(|problem| Rejected::Unavailable(problem.clone()))?;
            let base = read(archive, request.base).await?;
            let deleted = archive.deleted_after(request.base);
            merged(base, &request.edits, Some((running.clone(), deleted))).await?
        };
        let changes: Vec<String> =
            diff::diff(&running, &candidate.tree).iter().map(ToString::to_string).collect();
        let settings = &candidate.settings;
        let empty = (settings.is_empty() && !settings.allows_empty).then(|| EMPTY.to_owned());
        let warnings: Vec<String> =
            candidate.warnings.iter().cloned().chain(super::warnings(settings)).chain(empty).collect();
        let new = warnings.iter().filter(|warning| !self.warned.contains(*warning)).cloned().collect();
        let candidate = Candidate { warnings, ..candidate };
        let is_same = candidate.text.bytes() == in_force.text().bytes();
        Ok(Ready { candidate, changes, is_same, warnings: new })
    }

    fn header(&self, request: &Commit, candidate: &Candidate) -> Header {
        let back_to = self.ledger.revision();
        let confirm = request.confirm_minutes.map(|minutes| Deadline { minutes, deadline: 0, back_to });
        Header {
            user: request.user.clone(),
            comment: request.comment.clone(),
            confirm,
            deleted: candidate.deleted.iter().map(Path::to_string).collect(),
            ..self.header_of(request.via)
        }
    }

    /// What is the same for every revision that is made now.
    fn header_of(&self, via: Via) -> Header {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Header {
            time: utc(wall.as_secs()),
            user: "postern".to_owned(),
            via,
            boot: self.boot.clone(),
            file: self.ledger.file(),
            ..Header::default()
        }
    }
}

/// Merges and checks edits of a base beside the runtime, as those of a large configuration take seconds. `others` is what is in
/// force, if that is not the base, and what was deleted since.
async fn merged(
    base: Tree,
    edits: &[SecretText],
    others: Option<(Tree, Vec<Path>)>,
) -> Result<Candidate, Wrong> {
    let edits = edits.to_vec();
    apart(move || {
        let others = others.as_ref().map(|(running, deleted)| Others { running, deleted });
        Candidate::new(&base, &edits, others)
    })
    .await
}

/// A warning about a configuration that cannot be loaded from a file.
const EMPTY: &str = "nothing is served now: a file of this configuration is refused at the start\n  fix: before you save \
                     it: set system allow-empty";

/// A configuration that was in force once, if it can be still.
pub(super) fn checked(tree: Tree) -> Option<(Tree, Settings, Vec<String>)> {
    match Settings::new(&tree) {
        Ok((settings, warnings)) => {
            let warnings = warnings.into_iter().chain(super::warnings(&settings)).collect();
            Some((tree, settings, warnings))
        }
        Err(errors) => {
            let first = errors.first().map(ToString::to_string).unwrap_or_default();
            tracing::error!("a revision of another version of Postern cannot be used: {first}");
            None
        }
    }
}

/// Whether a text has characters that do something to a terminal.
fn has_control(text: impl AsRef<str>) -> bool {
    text.as_ref().contains(|character: char| character.is_control() && !matches!(character, '\n' | '\t'))
}

fn valid(request: &Commit) -> Result<(), Rejected> {
    let words = request.user.len() + request.comment.as_ref().map_or(0, String::len);
    if words > LONGEST_WORDS {
        return Err(invalid("the comment is too long", "shorten it to 4000 characters"));
    }
    if request.user.contains(char::is_control) || request.comment.as_ref().is_some_and(has_control) {
        return Err(invalid("the name or the comment has control characters", "leave them out"));
    }
    // A configuration is kept as lines, and read by them again.
    if request.edits.iter().any(|edit| has_control(edit.as_str()) || edit.as_str().contains('\n')) {
        return Err(invalid(
            "an edit has a line break or a control character",
            "send one line for each edit",
        ));
    }
    if !matches!(request.via, Via::Cli | Via::Api) {
        return Err(invalid("a commit comes by cli or api", "say so in via"));
    }
    match request.confirm_minutes {
        Some(minutes) if !(1..=LONGEST_MINUTES).contains(&minutes) => {
            Err(invalid("a commit must be confirmed within 1 to 65535 minutes", "say so in confirm_minutes"))
        }
        _ => Ok(()),
    }
}

/// The configuration of a revision.
pub(super) async fn read(archive: &Arc<Archive>, revision: u64) -> Result<Tree, ArchiveError> {
    let archive = Arc::clone(archive);
    let (_, text) = apart(move || archive.read(revision)).await?;
    config::parse(text.as_str().unwrap_or_default()).map_err(|errors| {
        ArchiveError::Foreign(revision, errors.first().map(ToString::to_string).unwrap_or_default())
    })
}

async fn prepare(archive: &Arc<Archive>, header: Header, new: &Running) -> Result<Pending, ArchiveError> {
    let (archive, new) = (Arc::clone(archive), new.clone());
    apart(move || archive.prepare(header, new.text())).await
}

async fn publish(archive: &Arc<Archive>, pending: Pending, kept: usize) -> Result<Header, ArchiveError> {
    let archive = Arc::clone(archive);
    apart(move || archive.publish(pending, kept, since_boot())).await
}

fn tell(header: &Header, changes: &[String]) {
    for change in changes {
        tracing::info!("{change}");
    }
    let Header { revision, user, via, .. } = header;
    let confirm =
        if header.confirm.is_some() { ", until it is confirmed or its time has passed" } else { "" };
    tracing::info!("revision {revision} is in force, committed by {user} ({via}){confirm}");
}
