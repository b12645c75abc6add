//! Saves what a commit has put in force, while others change it and write the file too.

use super::model::InForce;
use std::time::{Duration, Instant};

/// How long others may keep the file.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before it is tried again.
pub const PAUSE: Duration = Duration::from_millis(100);

/// Saves until nothing is left to save.
pub struct Saving {
    begun: Instant,
    patience: Duration,
    failed: Option<String>,
}

/// Why what is in force is not saved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSaved {
    /// The last commit may still be undone, and such a commit never gets into the file.
    #[error("the last commit is not confirmed")]
    Unconfirmed,
    /// The last reason, after it was tried for long enough.
    #[error("{0}")]
    Failed(String),
}

impl Saving {
    /// Begins to save; after `patience` it is given up.
    pub fn new(patience: Duration) -> Self {
        Self { begun: Instant::now(), patience, failed: None }
    }

    /// Whether the file must be written from this. Ask again after each writing: another program may have written an older state.
    pub fn is_due(&self, in_force: &InForce) -> Result<bool, NotSaved> {
        if in_force.saved {
            return Ok(false);
        }
        if in_force.confirm.is_some() {
            return Err(NotSaved::Unconfirmed);
        }
        if self.begun.elapsed() >= self.patience {
            let why = self.failed.as_deref().unwrap_or("others change it all the time");
            return Err(NotSaved::Failed(why.to_owned()));
        }
        Ok(true)
    }

    /// Notes the outcome of writing; whether to pause before it is tried again.
    pub fn note(&mut self, written: Result<(), String>) -> bool {
        self.failed = written.err();
        self.failed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::Unconfirmed;
    use super::*;

    fn in_force(saved: bool, is_confirmed: bool) -> InForce {
        let confirm = (!is_confirmed).then(Unconfirmed::default);
        InForce { saved, confirm, ..InForce::default() }
    }

    #[test]
    fn what_is_in_force_is_written_until_it_is_saved_and_never_if_it_may_be_undone() {
        let mut saving = Saving::new(Duration::from_secs(600));
        assert_eq!(saving.is_due(&in_force(true, true)), Ok(false));
        assert_eq!(saving.is_due(&in_force(false, false)), Err(NotSaved::Unconfirmed));
        assert_eq!(saving.is_due(&in_force(false, true)), Ok(true));
        assert!(saving.note(Err("it is busy".to_owned())) && !saving.note(Ok(())));
        let mut late = Saving::new(Duration::ZERO);
        late.note(Err("it is busy".to_owned()));
        assert_eq!(late.is_due(&in_force(false, true)), Err(NotSaved::Failed("it is busy".to_owned())));
        assert_eq!(late.is_due(&in_force(true, true)), Ok(false), "it was saved in the end");
    }
}
