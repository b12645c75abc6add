//! The configuration in force and its revisions, as the daemon changes them and the API shows them.

use super::archive::revision::{Header, digest};
use super::archive::{Archive, ArchiveError, Entry};
use super::candidate::split;
use super::provisional::Provisional;
use super::running::Running;
use crate::api::model::{self, Advice, Problem, Saved, Unconfirmed};
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
    /// The commit that must be confirmed, or is being undone.
    provisional: Option<Provisional>,
}

impl Ledger {
    /// What is in force at the start: a revision, or 0; and what the file has.
    pub(super) fn new(
        file: PathBuf,
        archive: Result<Arc<Archive>, Problem>,
        running: Running,
        (revision, provisional): (u64, Option<Provisional>),
        loaded: (String, &Text),
    ) -> Self {
        let saved = digest(loaded.1.bytes());
        let state = State { running, revision, file: loaded.0, saved, provisional };
        Self { file, archive, state: Mutex::new(state) }
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
    pub(crate) fn revision(&self) -> u64 {
        self.state().revision
    }

    /// SHA-256 of the file as it was last loaded or saved.
    pub(super) fn file(&self) -> String {
        self.state().file.clone()
    }

    /// Less is in force than was thought.
    pub(super) fn set_running(&self, running: Running) {
        self.state().running = running;
    }

    /// Another configuration is in force. All of it at once: a session that begins gets what belongs together.
    pub(super) fn put_in_force(&self, running: Running, revision: u64, provisional: Option<Provisional>) {
        let mut state = self.state();
        (state.running, state.revision, state.provisional) = (running, revision, provisional);
    }

    /// The commit that must be confirmed, or is being undone.
    pub(super) fn provisional(&self) -> Option<Provisional> {
        self.state().provisional.clone()
    }

    /// What became of it.
    pub(super) fn set_provisional(&self, provisional: Option<Provisional>) {
        self.state().provisional = provisional;
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

    /// Why nothing may be committed now, if a commit must be confirmed first. One that could not be undone blocks no commit.
    pub(super) fn locked(&self) -> Option<Problem> {
        let open = self.provisional().filter(Provisional::is_open)?.shown(since_boot());
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let until = utc(wall + open.seconds_left);
        let error = format!("revision {} must be confirmed first", open.revision);
        Some(Problem { error, fix: Some(format!("type confirm, or wait until {} UTC", &until[11..16])) })
    }

    /// Why what is in force must not be saved now.
    pub fn unsavable(&self) -> Option<Problem> {
        self.locked()
            .or_else(|| self.undoing().map(|Advice { what, fix }| Problem { error: what, fix: Some(fix) }))
    }

    /// Why a commit that must be confirmed cannot be any more.
    pub fn unconfirmable(&self) -> Option<Problem> {
        let undone = self.provisional().filter(|it| !it.is_open())?;
        let error = format!("revision {} was not confirmed in time, and is being undone", undone.revision);
        Some(Problem { error, fix: Some("see: show system commit; then commit it again".to_owned()) })
    }

    /// The warning about a commit that could not be undone yet.
    pub fn undoing(&self) -> Option<Advice> {
        let Unconfirmed { back_to, seconds_left, failed, .. } = self.provisional()?.shown(since_boot());
        let (why, fix) = split(&failed?);
        Some(Advice {
            what: format!(
                "going back to revision {back_to} has failed, and is tried again in {seconds_left} s: {why}"
            ),
            fix: fix.unwrap_or_else(|| "commit what is to be in force; or postern reload".to_owned()),
        })
    }

    /// What is in force.
    pub fn in_force(&self) -> model::InForce {
        let state = self.state();
        let confirm = state.provisional.as_ref().map(|it| it.shown(since_boot()));
        let text = state.running.text();
        model::InForce {
            revision: state.revision,
            // A client may be in another folder.
            file: std::path::absolute(&self.file).unwrap_or_else(|_| self.file.clone()).display().to_string(),
            saved: digest(text.bytes()) == state.saved,
            confirm,
            read_only: self.archive.as_ref().err().cloned(),
            refused: state.running.refused().keys().map(ToString::to_string).collect(),
            text: text.as_str().unwrap_or_default().into(),
        }
    }

    /// All revisions, the newest first.
    pub fn revisions(&self) -> Vec<model::Revision> {
        let Ok(archive) = &self.archive else { return Vec::new() };
        let open = self.open();
        archive.list().into_iter().map(|(number, entry)| shown(number, entry, open.as_ref())).collect()
    }

    /// A revision with its lines. Waits for the disk.
    pub fn read(&self, number: u64) -> Result<model::RevisionText, ArchiveError> {
        let Ok(archive) = &self.archive else { return Err(ArchiveError::Unknown(number)) };
        let (_, text) = archive.read(number)?;
        let entry = archive.entry(number).ok_or(ArchiveError::Unknown(number))?;
        Ok(model::RevisionText {
            revision: shown(number, entry, self.open().as_ref()),
            text: text.as_str().unwrap_or_default().into(),
        })
    }

    /// The commit that must be confirmed, or is being undone, with the revision in force.
    fn open(&self) -> Option<(u64, Unconfirmed)> {
        let state = self.state();
        let open = state.provisional.as_ref()?.shown(since_boot());
        // What is left of one that is being undone has a revision of its own.
        let shown_at =
            if open.failed.is_some() && state.revision > 0 { state.revision } else { open.revision };
        Some((shown_at, open))
    }
}

/// What the API shows of a revision.
fn shown(number: u64, entry: Entry, open: Option<&(u64, Unconfirmed)>) -> model::Revision {
    let confirm = open.filter(|(at, _)| *at == number).map(|(_, open)| open.clone());
    match entry {
        Entry::Corrupt(path) => model::Revision {
            revision: number,
            confirm,
            corrupt: Some(path.display().to_string()),
            ..model::Revision::default()
        },
        Entry::Whole { header: Header { revision, time, user, via, comment, .. }, .. } => {
            model::Revision { revision, time, user, via, comment, confirm, corrupt: None }
        }
    }
}
