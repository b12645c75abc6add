//! A commit that is undone unless it is confirmed in time: open → confirmed, or → going back → undone.
//!
//! All that undoes it is kept in memory: no damage of the disk keeps it in force.

use super::archive::revision::Deadline;
use super::running::Running;
use crate::api::model;
use crate::clock::since_boot;
use crate::service::Refused;

/// Seconds until undoing a commit is tried again, after the first failure. They double with each further one.
const FIRST_DELAY: u64 = 5;
/// The longest of them.
const LONGEST_DELAY: u64 = 300;

/// A commit that is undone unless it is confirmed.
#[derive(Clone)]
pub(super) struct Provisional {
    /// Its revision.
    pub(super) revision: u64,
    /// Until when it must be confirmed.
    pub(super) deadline: Deadline,
    /// What comes back.
    pub(super) before: Running,
    /// What became of undoing it; none while it can be confirmed.
    undoing: Option<Undoing>,
}

/// How undoing a commit goes.
#[derive(Clone, Default)]
struct Undoing {
    failures: u32,
    /// Why it failed last.
    why: Option<String>,
    /// When it is tried again, in seconds since the machine booted.
    next: u64,
}

impl Provisional {
    /// A commit that is in force.
    pub(super) fn new(revision: u64, deadline: Deadline, before: Running) -> Self {
        Self { revision, deadline, before, undoing: None }
    }

    /// Whether it can be confirmed: undoing it has not begun.
    pub(super) fn is_open(&self) -> bool {
        self.undoing.is_none()
    }

    /// When it must be undone, or tried again, in seconds since the machine booted.
    pub(super) fn due(&self) -> u64 {
        self.undoing.as_ref().map_or(self.deadline.deadline, |undoing| undoing.next)
    }

    /// From now on it cannot be confirmed.
    pub(super) fn begin_undoing(&mut self) {
        self.undoing.get_or_insert_default();
    }

    /// It could not be undone: returns in how many seconds it is tried again.
    pub(super) fn fails(&mut self, why: String, now: u64) -> u64 {
        let undoing = self.undoing.get_or_insert_default();
        let delay = FIRST_DELAY.saturating_mul(1 << undoing.failures.min(16)).min(LONGEST_DELAY);
        *undoing = Undoing { failures: undoing.failures + 1, why: Some(why), next: now + delay };
        delay
    }

    /// The machine refuses some of what comes back: logs that, and when it is tried again.
    pub(super) fn cannot_be_undone(&mut self, refused: &Refused) {
        let refused = refused.values().filter(|refusal| !refusal.is_temporary());
        let why: Vec<String> = refused.map(ToString::to_string).collect();
        let why = why.join("\n");
        let back_to = self.deadline.back_to;
        let delay = self.fails(why.clone(), since_boot());
        tracing::error!(
            "going back to revision {back_to} has failed, and is tried again in {delay} s: {why}"
        );
    }

    /// What the API shows of it.
    pub(super) fn shown(&self, now: u64) -> model::Unconfirmed {
        model::Unconfirmed {
            revision: self.revision,
            seconds_left: self.due().saturating_sub(now),
            back_to: self.deadline.back_to,
            failed: self.undoing.as_ref().and_then(|undoing| undoing.why.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Tree;

    #[test]
    fn undoing_is_tried_again_with_growing_delays_and_cannot_be_confirmed_meanwhile() {
        let deadline = Deadline { minutes: 1, deadline: 160, back_to: 6 };
        let mut commit = Provisional::new(7, deadline, Running::new(&Tree::default()));
        assert!(commit.is_open() && commit.due() == 160 && commit.shown(100).seconds_left == 60);
        commit.begin_undoing();
        assert!(!commit.is_open() && commit.shown(160).failed.is_none());
        let delays: Vec<u64> = (0..9).map(|_| commit.fails("taken".to_owned(), 200)).collect();
        assert_eq!(delays, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert!(!commit.is_open() && commit.due() == 500);
        let shown = commit.shown(450);
        assert_eq!((shown.seconds_left, shown.failed.as_deref(), shown.back_to), (50, Some("taken"), 6));
    }
}
