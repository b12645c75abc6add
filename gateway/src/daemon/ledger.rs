//! The configuration in force and its revisions, as the daemon changes them and the API shows them.

use super::archive::revision::{Deadline, Header, digest};
use super::archive::{Archive, ArchiveError, Entry};
use super::running::Running;
use crate::api::model::{self, Confirm, Problem, Saved};
use crate::clock::{since_boot, utc};
use config::Text;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where the configuration in force is kept, and what is known of it.
pub struct Ledger {
    file: PathBuf,
    /// The archive, or why there is none.
    archive: Result<Arc<Archive>, Problem>,
    state: Mutex<State>,
}

struct State {
    running: Running,
    /// The revision in force; 0 for none.
    revision: u64,
    /// SHA-256 of the file as it was last loaded or saved, and of the lines that it stands for.
    file: String,
    saved: String,
}

impl Ledger {
    /// What is in force at the start: a revision, or 0; and what the file has.
    pub(super) fn new(
        file: PathBuf,
        archive: Result<Arc<Archive>, Problem>,
        running: Running,
        revision: u64,
        loaded: (String, &Text),
    ) -> Self {
        let saved = digest(loaded.1.bytes());
        Self { file, archive, state: Mutex::new(State { running, revision, file: loaded.0, saved }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The archive, or why there is none.
    pub(super) fn archive(&self) -> Result<&Arc<Archive>, &Problem> {
        self.archive.as_ref()
    }

    /// The configuration in force.
    pub(super) fn running(&self) -> Running {
        self.state().running.clone()
    }

    /// The revision in force; 0 for none.
    pub(super) fn revision(&self) -> u64 {
        self.state().revision
    }

    /// SHA-256 of the file as it was last loaded or saved.
    pub(super) fn file(&self) -> String {
        self.state().file.clone()
    }

    /// Another configuration is in force.
    pub(super) fn set_running(&self, running: Running) {
        self.state().running = running;
    }

    /// It is this revision.
    pub(super) fn set_revision(&self, revision: u64) {
        self.state().revision = revision;
    }

    /// The file was loaded, and has these lines.
    pub(super) fn has_loaded(&self, file: String, lines: &Text) {
        let mut state = self.state();
        state.file = file;
        state.saved = digest(lines.bytes());
    }

    /// The file was written from a revision.
    pub fn has_saved(&self, saved: Saved) {
        let of = |archive: &Arc<Archive>| {
            archive.entry(saved.revision).and_then(|entry| entry.header().map(|header| header.text.clone()))
        };
        let mut state = self.state();
        if let Some(text) = self.archive.as_ref().ok().and_then(of) {
            state.saved = text;
        }
        state.file = saved.hash;
    }

    /// What must be confirmed of what is in force.
    pub(super) fn unconfirmed(&self) -> Option<Deadline> {
        match self.archive.as_ref().ok()?.entry(self.revision())? {
            Entry::Whole { header, is_confirmed: false } => header.confirm,
            _ => None,
        }
    }

    /// Why nothing may be changed now, if a commit must be confirmed first.
    pub fn locked(&self) -> Option<Problem> {
        let left = self.unconfirmed()?.deadline.saturating_sub(since_boot());
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let until = utc(wall + left);
        let error = format!("revision {} must be confirmed first", self.revision());
        Some(Problem { error, fix: Some(format!("type confirm, or wait until {} UTC", &until[11..16])) })
    }

    /// What is in force.
    pub fn in_force(&self) -> model::InForce {
        let confirm = self.unconfirmed().map(left);
        let state = self.state();
        let text = state.running.text();
        model::InForce {
            revision: state.revision,
            // A client may be in another folder.
            file: std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone()).display().to_string(),
            saved: digest(text.bytes()) == state.saved,
            confirm,
            read_only: self.archive.as_ref().err().cloned(),
            text: text.as_str().unwrap_or_default().into(),
        }
    }

    /// All revisions, the newest first.
    pub fn revisions(&self) -> Vec<model::Revision> {
        let Ok(archive) = &self.archive else { return Vec::new() };
        archive.list().into_iter().map(|(number, entry)| self.shown(number, entry)).collect()
    }

    /// A revision with its lines. Waits for the disk.
    pub fn read(&self, number: u64) -> Result<model::RevisionText, ArchiveError> {
        let Ok(archive) = &self.archive else { return Err(ArchiveError::Unknown(number)) };
        let (_, text) = archive.read(number)?;
        let entry = archive.entry(number).ok_or(ArchiveError::Unknown(number))?;
        Ok(model::RevisionText {
            revision: self.shown(number, entry),
            text: text.as_str().unwrap_or_default().into(),
        })
    }

    /// What the API shows of a revision. Only the one in force can still be confirmed.
    fn shown(&self, number: u64, entry: Entry) -> model::Revision {
        match entry {
            Entry::Corrupt(path) => model::Revision {
                revision: number,
                corrupt: Some(path.display().to_string()),
                ..model::Revision::default()
            },
            Entry::Whole {
                header: Header { revision, time, user, via, comment, confirm, .. },
                is_confirmed,
            } => {
                let is_open = !is_confirmed && revision == self.revision();
                let confirm = confirm.filter(|_| is_open).map(left);
                model::Revision { revision, time, user, via, comment, confirm, corrupt: None }
            }
        }
    }
}

fn left(Deadline { deadline, back_to }: Deadline) -> Confirm {
    Confirm { seconds_left: deadline.saturating_sub(since_boot()), back_to }
}
