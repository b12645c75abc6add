//! What puts something in force without a commit: the file, the confirmation of a commit, or the end of the time for that.

use super::super::archive::Entry;
use super::super::archive::revision::{Deadline, Header, digest};
use super::super::provisional::Provisional;
use super::super::rejected::Rejected;
use super::super::running::Running;
use super::{Transactions, apart, prepare, publish};
use crate::api::model::{Confirmed, Problem, Via};
use crate::clock::since_boot;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How often the time until a commit must be confirmed is looked at: the machine may sleep.
const WATCHED: Duration = Duration::from_secs(5);

/// A configuration that is in force without a commit.
pub(in crate::daemon) struct Change {
    /// What put it in force.
    pub(in crate::daemon) via: Via,
    pub(in crate::daemon) running: Running,
    /// How many revisions are kept.
    pub(in crate::daemon) kept: usize,
    /// What a person should know about it.
    pub(in crate::daemon) warnings: Vec<String>,
    /// The commit of which this is a rest that could not be undone.
    pub(in crate::daemon) provisional: Option<Provisional>,
}

impl Transactions {
    /// Keeps a commit that must be confirmed, if it is this one.
    pub(in crate::daemon) async fn confirm(&self, revision: u64) -> Result<Confirmed, Rejected> {
        if let Some(problem) = self.ledger.unconfirmable() {
            return Err(Rejected::Unconfirmed(problem));
        }
        let (Some(open), Ok(archive)) = (self.ledger.provisional(), self.ledger.archive()) else {
            return Err(unconfirmed("no commit waits to be confirmed: its time may have passed".to_owned()));
        };
        if open.revision != revision {
            let other = open.revision;
            return Err(unconfirmed(format!(
                "revision {revision} does not wait to be confirmed, but revision {other} does: it is not confirmed"
            )));
        }
        let archive = Arc::clone(archive);
        let confirmed = apart(move || match archive.read(revision) {
            Ok(_) => archive.confirm(revision).map(|()| true),
            Err(error) => {
                tracing::error!("{error}");
                Ok(false)
            }
        });
        let revision = if confirmed.await? { revision } else { self.written_again(revision).await? };
        self.ledger.put_in_force(self.ledger.running(), revision, None);
        tracing::info!("revision {revision} is confirmed");
        Ok(Confirmed { revision })
    }

    /// A new revision of what is in force, of which that one was damaged.
    async fn written_again(&self, damaged: u64) -> Result<u64, Rejected> {
        match self.revision_of(Via::Confirm, &self.ledger.running(), usize::MAX, None).await {
            0 => {
                let error = format!("revision {damaged} is damaged, and could not be written again");
                let fix = Some("see the log: journalctl -u postern".to_owned());
                Err(Rejected::Unavailable(Problem { error, fix }))
            }
            revision => Ok(revision),
        }
    }

    /// Returns when a commit must be undone that was not confirmed in time, or that could not be undone before.
    pub(in crate::daemon) async fn overdue(&self) {
        loop {
            match self.ledger.provisional().map(|it| it.due().saturating_sub(since_boot())) {
                Some(0) => return,
                Some(left) => sleep(WATCHED.min(Duration::from_secs(left))).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Takes over what is in force without a commit. It is a revision too, unless it is that of the newest.
    pub(in crate::daemon) async fn record(&mut self, change: Change) {
        let Change { via, running, kept, warnings, provisional } = change;
        self.warned = warnings.into_iter().collect();
        // After a restart, it is undone then.
        let confirm = provisional.as_ref().map(|it| Deadline { minutes: 0, ..it.deadline });
        let revision = self.revision_of(via, &running, kept, confirm).await;
        self.ledger.put_in_force(running, revision, provisional);
    }

    /// The revision of what is in force: the newest if that is the same, else a new one. If that cannot be written, one with the same
    /// lines, or 0.
    async fn revision_of(&self, via: Via, running: &Running, kept: usize, confirm: Option<Deadline>) -> u64 {
        let Ok(archive) = self.ledger.archive() else { return 0 };
        let (newest, text) = (archive.newest(), digest(running.text().bytes()));
        // One that was not confirmed, or was replaced, does not count on.
        if let Some(Entry::Whole { header, is_confirmed, is_replaced: false }) = archive.entry(newest)
            && header.text == text
            && confirm.is_none()
            && (is_confirmed || header.confirm.is_none())
        {
            return newest;
        }
        let recorded = match prepare(archive, Header { confirm, ..self.header_of(via) }, running).await {
            Ok(pending) => publish(archive, pending, kept).await,
            Err(error) => Err(error),
        };
        match recorded {
            Ok(header) => header.revision,
            Err(error) => {
                tracing::warn!("the configuration in force is not in the archive: {error}");
                if matches!(via, Via::Start | Via::Reload) {
                    self.replace_newest().await;
                }
                archive.of_text(&text).unwrap_or(0)
            }
        }
    }

    /// The file is in force and could not be recorded: the newest revision must not come back at the next start.
    async fn replace_newest(&self) {
        let Ok(archive) = self.ledger.archive() else { return };
        let (archive, newest) = (Arc::clone(archive), archive.newest());
        if let Err(error) = apart(move || archive.replace_newest()).await {
            tracing::error!(
                "after a restart revision {newest} may be in force again, although the file was loaded since: {error}"
            );
        }
    }
}

fn unconfirmed(error: String) -> Rejected {
    Rejected::Unconfirmed(Problem { error, fix: Some("see: show system commit".to_owned()) })
}
