//! Commits, one after the other.
//!
//! ```text
//! edits ── merged with what is in force, checked ──> candidate ── written and synced ──> pending
//!       ──> applied, or all undone ──> published: from here on it counts, also after a loss of power
//! ```
//!
//! What waits for the disk does so in a thread beside the runtime.

use super::Daemon;
use super::archive::revision::{Deadline, Header};
use super::archive::{Archive, ArchiveError, Entry, Pending};
use super::candidate::{self, Candidate, Others};
use super::ledger::Ledger;
use super::order::Stop;
use super::rejected::{Rejected, invalid, problem};
use super::running::Running;
use super::{fault, is_in_force};
use crate::api::model::{Commit, Committed, Confirmed, Problem, Via};
use crate::clock::{since_boot, utc};
use crate::service::{Policy, Refusal, Refused};
use config::{Path, Settings, Tree, diff};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::sleep;

/// The longest comment and name of a user, in bytes: the first line of a revision has an end.
const LONGEST_WORDS: usize = 4096;
/// The longest time until a commit must be confirmed: 45 days.
const LONGEST_MINUTES: u32 = 65_535;
/// How often the time until a commit must be confirmed is looked at: the machine may sleep.
const WATCHED: Duration = Duration::from_secs(5);

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
}

/// A commit that may be applied.
struct Ready {
    candidate: Candidate,
    /// What is in force.
    running: Tree,
    changes: Vec<String>,
    /// Whether it is in force already. Values in another order are no change that is shown, and one that counts.
    is_same: bool,
    /// What was not warned of before.
    warnings: Vec<String>,
}

impl Transactions {
    pub(super) fn new(ledger: Arc<Ledger>, boot: String, warnings: Vec<String>) -> Self {
        Self { ledger, boot, warned: warnings.into_iter().collect() }
    }

    /// Puts a commit in force, or says why not. `None` if the daemon is to stop: then it is not in force.
    pub(super) async fn commit(
        &mut self,
        request: Commit,
        daemon: &mut Daemon,
        stop: &Stop,
    ) -> Option<Result<Committed, Rejected>> {
        fault::point("commit-begun");
        let ready = match self.ready(&request).await {
            Ok(ready) => ready,
            Err(rejected) => return Some(Err(rejected)),
        };
        if ready.is_same || request.check_only {
            return self.check(ready, daemon, stop).await;
        }
        let archive = match self.ledger.archive() {
            Ok(archive) => Arc::clone(archive),
            Err(problem) => return Some(Err(Rejected::Unavailable(problem.clone()))),
        };
        let header = self.header(&request, &ready.candidate);
        let Ready { candidate: Candidate { tree, text, settings, warnings: all, .. }, running, .. } = ready;
        let new = Running::printed(tree, text);
        let pending = match prepare(&archive, header, &new).await {
            Ok(pending) => pending,
            Err(error) => return Some(Err(error.into())),
        };
        let kept = settings.commit_revisions;
        let refused = stop.unless_ordered(daemon.apply(settings, Policy::AllOrNothing)).await?;
        fault::point("applied");
        if !is_in_force(&refused) {
            drop(pending);
            return Some(Err(Rejected::Errors(candidate::refused(&refused))));
        }
        let header = match publish(&archive, pending, kept).await {
            Ok(header) => header,
            Err(error) => {
                undo(&running, daemon).await;
                return Some(Err(error.into()));
            }
        };
        self.warned = all.into_iter().collect();
        self.ledger.set_running(new);
        self.ledger.set_revision(header.revision);
        tell(&header, &ready.changes);
        let warnings = ready.warnings.into_iter().chain(refused.values().map(retried)).collect();
        Some(Ok(Committed { revision: header.revision, changes: ready.changes, warnings }))
    }

    /// What would be refused of it, while nothing is changed.
    async fn check(
        &mut self,
        ready: Ready,
        daemon: &mut Daemon,
        stop: &Stop,
    ) -> Option<Result<Committed, Rejected>> {
        let Ready { candidate, changes, is_same, warnings, .. } = ready;
        let refused = if is_same {
            Refused::new()
        } else {
            stop.unless_ordered(daemon.would_refuse(candidate.settings)).await?
        };
        if !is_in_force(&refused) {
            return Some(Err(Rejected::Errors(candidate::refused(&refused))));
        }
        let warnings = warnings.into_iter().chain(refused.values().map(retried)).collect();
        Some(Ok(Committed { revision: self.ledger.revision(), changes, warnings }))
    }

    /// Merges and checks what is to be committed.
    async fn ready(&self, request: &Commit) -> Result<Ready, Rejected> {
        valid(request)?;
        if let Some(problem) = self.ledger.locked().filter(|_| !request.check_only) {
            return Err(Rejected::Unconfirmed(problem));
        }
        if request.confirm_minutes.is_some() && self.ledger.revision() == 0 {
            let why = "what is in force is not in the archive: there is no revision to come back";
            return Err(Rejected::Unavailable(problem(why)));
        }
        let in_force = self.ledger.running();
        let running = in_force.tree();
        let candidate = if request.base == self.ledger.revision() {
            Candidate::new(&running, &request.edits, None)?
        } else {
            let archive = self.ledger.archive().map_err(|problem| Rejected::Unavailable(problem.clone()))?;
            let base = read(archive, request.base).await?;
            let deleted = archive.deleted_after(request.base);
            Candidate::new(&base, &request.edits, Some(Others { running: &running, deleted: &deleted }))?
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
        Ok(Ready { candidate, running, changes, is_same, warnings: new })
    }

    fn header(&self, request: &Commit, candidate: &Candidate) -> Header {
        let confirm = request.confirm_minutes.map(|minutes| Deadline {
            deadline: since_boot() + 60 * u64::from(minutes),
            back_to: self.ledger.revision(),
        });
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

    /// Keeps what was committed to be confirmed.
    pub(super) async fn confirm(&self) -> Result<Confirmed, Rejected> {
        let nothing = "no commit waits to be confirmed: its time may have passed";
        let waits = self.ledger.archive().ok().filter(|_| self.ledger.unconfirmed().is_some());
        let Some(archive) = waits else {
            let problem =
                Problem { error: nothing.to_owned(), fix: Some("see: show system commit".to_owned()) };
            return Err(Rejected::Unconfirmed(problem));
        };
        let (archive, revision) = (Arc::clone(archive), self.ledger.revision());
        apart(move || archive.confirm(revision)).await?;
        tracing::info!("revision {revision} is confirmed");
        Ok(Confirmed { revision })
    }

    /// Returns when the time has passed in which a commit must be confirmed.
    pub(super) async fn overdue(&self) {
        loop {
            let left = self.ledger.unconfirmed().map(|confirm| confirm.deadline.saturating_sub(since_boot()));
            match left {
                Some(0) => return,
                Some(left) => sleep(WATCHED.min(Duration::from_secs(left))).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Another configuration than that of a commit is in force: the file was loaded, or a commit was not confirmed. It is a
    /// revision too, unless it is that of the newest.
    pub(super) async fn record(&mut self, via: Via, kept: usize, warnings: Vec<String>) {
        self.warned = warnings.into_iter().collect();
        let Ok(archive) = self.ledger.archive() else { return };
        let running = self.ledger.running();
        let (newest, text) = (archive.newest(), super::archive::revision::digest(running.text().bytes()));
        let entry = archive.entry(newest);
        // One that was not confirmed does not count on.
        if let Some(Entry::Whole { header, is_confirmed }) = entry
            && header.text == text
            && (is_confirmed || header.confirm.is_none())
        {
            self.ledger.set_revision(newest);
            return;
        }
        let archive = Arc::clone(archive);
        let recorded = match prepare(&archive, self.header_of(via), &running).await {
            Ok(pending) => publish(&archive, pending, kept).await,
            Err(error) => Err(error),
        };
        match recorded {
            Ok(header) => self.ledger.set_revision(header.revision),
            Err(error) => {
                tracing::warn!("the configuration in force is not in the archive: {error}");
                self.ledger.set_revision(0);
            }
        }
    }
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

fn valid(request: &Commit) -> Result<(), Rejected> {
    let words = request.user.len() + request.comment.as_ref().map_or(0, String::len);
    if words > LONGEST_WORDS {
        return Err(invalid("the comment is too long", "shorten it to 4000 characters"));
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
    apart(move || archive.publish(pending, kept)).await
}

/// Goes back to what was in force before a commit that could not be recorded.
async fn undo(running: &Tree, daemon: &mut Daemon) {
    let Some((_, settings, _)) = checked(running.clone()) else { return };
    for refusal in daemon.apply(settings, Policy::EachPath).await.values() {
        tracing::error!("{refusal}");
    }
}

fn retried(refusal: &Refusal) -> String {
    format!("{refusal}\n  it is tried again")
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
