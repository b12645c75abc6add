//! A valid IKE_AUTH message that is held while the revocation status of its certificate is queried.
//!
//! ```text
//! proof valid, status awaited ──> Held ──new status────> verified again ──> accepted, refused or still held
//!                                      ──time limit────> verified again, and refused if the status is still unknown
//! ```

use crate::Time;
use crate::ikev2::cause::{Cause, Unproved};
use crate::ikev2::channel::Incoming;
use crate::ikev2::config::{Authentication, Connection};
use crate::ikev2::limits::{HELD_LOOK, HELD_TIME};
use std::sync::Arc;

/// See the module documentation.
pub(super) struct Held {
    incoming: Arc<Incoming>,
    config: Arc<Connection>,
    /// The [`generation`] at the time of verification.
    seen: u64,
    until: Time,
    next: Time,
}

impl Held {
    /// Holds a message until its status is known or the time limit is reached. `until` is the limit if the message
    /// was held before, and `seen` the [`generation`] in which it was verified. Returns the message if the limit has
    /// passed.
    pub(super) fn new(
        incoming: Arc<Incoming>,
        config: Arc<Connection>,
        seen: u64,
        until: Option<Time>,
        now: Time,
    ) -> Result<Self, Arc<Incoming>> {
        let until = until.unwrap_or(now + HELD_TIME);
        if until <= now {
            return Err(incoming);
        }
        Ok(Self { incoming, config, seen, until, next: until.min(now + HELD_LOOK) })
    }

    /// The time limit.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// When it is checked next.
    pub(super) fn next(&self) -> Time {
        self.next
    }

    /// Whether to verify it again: the status may be known, or the time limit has passed.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.next = self.until.min(now + HELD_LOOK);
        now >= self.until || generation(&self.config) != self.seen
    }

    /// The message.
    pub(super) fn release(self) -> Arc<Incoming> {
        self.incoming
    }
}

/// A number that changes with each revocation status received. It must be read before the verification.
pub(super) fn generation(config: &Connection) -> u64 {
    let generations = config.rounds().map(|round| match round.authentication {
        Authentication::Certificate(credentials) => credentials.trust.generation(),
        _ => 0,
    });
    generations.sum()
}

/// Whether the only obstacle is a revocation status that is being queried.
pub(super) fn is_awaited(cause: &Cause) -> bool {
    matches!(cause, Cause::NotAuthentic { why: Unproved::Awaited(_), .. })
}
