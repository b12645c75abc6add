//! What a session asks of the daemon.

use crate::client::{self, Answered};
use crate::{Failure, run};
use gateway::api::model::{
    Commit, CommitErrors, Committed, Confirmed, Conflicts, InForce, Revision, RevisionText, Saved,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;

/// The daemon, as a session sees it.
pub(crate) trait Router {
    /// What is in force.
    fn in_force(&self) -> Result<InForce, Failure>;
    /// All revisions, the newest first.
    fn revisions(&self) -> Result<Vec<Revision>, Failure>;
    /// One of them, by its own number.
    fn revision(&self, number: u64) -> Result<RevisionText, Failure>;
    fn commit(&self, commit: &Commit) -> Result<Committed, Refusal>;
    fn confirm(&self) -> Result<Confirmed, Failure>;
    /// Notes that the file was written.
    fn saved(&self, saved: &Saved) -> Result<(), Failure>;
}

/// Why a commit is not in force.
#[derive(Debug)]
pub(crate) enum Refusal {
    Conflicts(Conflicts),
    Wrong(CommitErrors),
    Other(Failure),
}

/// The daemon at a socket.
pub(crate) struct Socket(PathBuf);

impl Socket {
    pub(crate) fn new(api: Option<PathBuf>) -> Self {
        Self(api.unwrap_or_else(|| PathBuf::from(run::API)))
    }

    fn tell<T: DeserializeOwned>(&self, order: &str, details: &impl Serialize) -> Result<T, Failure> {
        client::tell(&self.0, order, details)
    }
}

impl Router for Socket {
    fn in_force(&self) -> Result<InForce, Failure> {
        client::ask_running(&self.0, "/v1/configuration")
    }

    fn revisions(&self) -> Result<Vec<Revision>, Failure> {
        client::ask_running(&self.0, "/v1/configuration/revisions")
    }

    fn revision(&self, number: u64) -> Result<RevisionText, Failure> {
        client::ask_running(&self.0, &format!("/v1/configuration/revisions/{number}"))
    }

    fn commit(&self, commit: &Commit) -> Result<Committed, Refusal> {
        let answered =
            client::tell_any(&self.0, "/v1/configuration/commit", commit).map_err(Refusal::Other)?;
        let read = |answered: &Answered| -> Result<Result<Committed, Refusal>, Failure> {
            Ok(match answered.status {
                409 => Err(Refusal::Conflicts(serde_json::from_slice(&answered.body)?)),
                422 => Err(Refusal::Wrong(serde_json::from_slice(&answered.body)?)),
                _ => answered.read().map_err(Refusal::Other),
            })
        };
        read(&answered).unwrap_or_else(|error| Err(Refusal::Other(error)))
    }

    fn confirm(&self) -> Result<Confirmed, Failure> {
        self.tell("/v1/configuration/confirm", &())
    }

    fn saved(&self, saved: &Saved) -> Result<(), Failure> {
        self.tell::<serde_json::Value>("/v1/configuration/saved", saved).map(|_| ())
    }
}
