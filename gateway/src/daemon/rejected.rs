//! Why commits are refused.

use super::archive::ArchiveError;
use super::candidate::{self, Wrong};
use crate::api::model::{CommitErrors, Conflicts, Problem};

/// Why a commit was refused: nothing of it is in force.
#[derive(Debug, PartialEq)]
pub enum Rejected {
    /// Others have changed the same.
    Conflicts(Conflicts),
    /// It is wrong, or the machine refuses it.
    Errors(CommitErrors),
    /// The request makes no sense.
    Invalid(Problem),
    /// Its base is not in the archive.
    NoBase(Problem),
    /// Another commit must be confirmed first, or none must be.
    Unconfirmed(Problem),
    /// The disk is full.
    Full(Problem),
    /// The archive cannot be used.
    Unavailable(Problem),
}

impl From<Wrong> for Rejected {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Conflicts(conflicts) => Self::Conflicts(conflicts),
            Wrong::Errors(errors) => Self::Errors(errors),
        }
    }
}

impl From<ArchiveError> for Rejected {
    fn from(error: ArchiveError) -> Self {
        let problem = problem(&error.to_string());
        match error {
            ArchiveError::Full { .. } => Self::Full(problem),
            ArchiveError::Unknown(_)
            | ArchiveError::Corrupt { .. }
            | ArchiveError::Aside(..)
            | ArchiveError::Foreign(..) => Self::NoBase(problem),
            ArchiveError::Io { .. } | ArchiveError::Busy(_) => Self::Unavailable(problem),
        }
    }
}

pub(super) fn problem(said: &str) -> Problem {
    let (error, fix) = candidate::split(said);
    Problem { error, fix }
}

pub(super) fn invalid(error: &str, fix: &str) -> Rejected {
    Rejected::Invalid(Problem { error: error.to_owned(), fix: Some(fix.to_owned()) })
}
