//! Revisions as users count them: from the newest.

use crate::Failure;
use gateway::api::model::Revision;

/// The own number of a revision that is counted from the newest, which is 0.
pub(crate) fn numbered(revisions: &[Revision], number: &str) -> Result<u64, Failure> {
    let last = revisions.len().saturating_sub(1);
    let at: usize = number.parse().map_err(|_| format!("{number:?} is not the number of a revision"))?;
    let found = revisions.get(at).ok_or_else(|| {
        format!("there is no revision {at}\n  fix: write a number from 0, the newest, to {last}; run show system commit lists them")
    })?;
    match &found.corrupt {
        Some(file) => Err(format!(
            "revision {at} cannot be read, and was set aside as {file}\n  fix: take another; run show system commit lists them"
        )
        .into()),
        None => Ok(found.revision),
    }
}
