//! What a session asks of the daemon.

use crate::client::{self, Answered, Broken};
use crate::{Failure, place};
use gateway::api::LONGEST_COMMIT;
use gateway::api::model::{
    Commit, CommitErrors, Committed, Confirm, Confirmed, Conflicts, InForce, Revision, RevisionText, Saved,
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
    /// Keeps the commit of this revision.
    fn confirm(&self, revision: u64) -> Result<Confirmed, Failure>;
    /// Notes that the file was written.
    fn saved(&self, saved: &Saved) -> Result<(), Failure>;
}

/// Why a commit is not in force.
#[derive(Debug)]
pub(crate) enum Refusal {
    Conflicts(Conflicts),
    Wrong(CommitErrors),
    /// The daemon ended meanwhile: it may be in force.
    Unanswered,
    Other(Failure),
}

impl From<Failure> for Refusal {
    fn from(error: Failure) -> Self {
        if error.is::<Broken>() { Self::Unanswered } else { Self::Other(error) }
    }
}

/// The daemon at a socket.
pub(crate) struct Socket(PathBuf);

impl Socket {
    pub(crate) fn new(api: Option<PathBuf>) -> Self {
        Self(api.unwrap_or_else(|| PathBuf::from(place::API)))
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
        // As much as is sent, but for a little around it.
        let length: usize = commit.edits.iter().map(|edit| edit.as_str().len() + 3).sum();
        if length > LONGEST_COMMIT - 65_536 {
            return Err(Refusal::Other(too_long(length)));
        }
        let answered = client::tell_any(&self.0, "/v1/configuration/commit", commit)?;
        let read = |answered: &Answered| -> Result<Result<Committed, Refusal>, Failure> {
            Ok(match answered.status {
                409 => Err(Refusal::Conflicts(serde_json::from_slice(&answered.body)?)),
                422 => Err(Refusal::Wrong(serde_json::from_slice(&answered.body)?)),
                _ => answered.read().map_err(Refusal::Other),
            })
        };
        read(&answered).unwrap_or_else(|error| Err(Refusal::Other(error)))
    }

    fn confirm(&self, revision: u64) -> Result<Confirmed, Failure> {
        self.tell("/v1/configuration/confirm", &Confirm { revision })
    }

    fn saved(&self, saved: &Saved) -> Result<(), Failure> {
        self.tell::<serde_json::Value>("/v1/configuration/saved", saved).map(|_| ())
    }
}

/// The error for a change that is too long for a commit.
fn too_long(bytes: usize) -> Failure {
    let mebibytes = |bytes: usize| bytes.div_ceil(1 << 20);
    format!(
        "the change has {} MiB, and a commit has at most {} MiB\n  fix: commit it in parts; or write the file of the daemon, and \
         type: run reload",
        mebibytes(bytes),
        mebibytes(LONGEST_COMMIT)
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::api::model::SecretText;

    #[test]
    fn a_change_that_is_too_long_is_refused_before_it_is_sent() {
        let edit =
            SecretText::from(&*format!("set interfaces wireguard wg0 description {}", "a".repeat(1 << 20)));
        let socket = Socket(PathBuf::from("/nonexistent/postern.sock"));
        let refusal = |edits: usize| {
            let commit = Commit { edits: vec![edit.clone(); edits], ..Commit::default() };
            match socket.commit(&commit).expect_err("no daemon answers") {
                Refusal::Other(error) => error.to_string(),
                other => panic!("{other:?}"),
            }
        };
        assert!(refusal(15).contains("no daemon answers"));
        let said = refusal(17);
        assert!(
            said.starts_with("the change has 18 MiB, and a commit has at most 16 MiB\n  fix: "),
            "{said}"
        );
    }
}
