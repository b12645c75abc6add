//! A message that shows who has sent it, but for one thing: it is still being asked whether the certificate is revoked.
//!
//! ```text
//! proof right, status awaited ──> Held ──something was answered──> checked anew ──> believed, refused, or held on
//!                                      ──time is over────────────> checked anew, and refused if still nothing is known
//! ```

use crate::Time;
use crate::ikev2::action::{Cause, Unproved};
use crate::ikev2::channel::Incoming;
use crate::ikev2::config::{Authentication, Connection};
use crate::ikev2::limits::{HELD_LOOK, HELD_TIME};
use std::sync::Arc;

/// See the module.
pub(super) struct Held {
    incoming: Incoming,
    config: Arc<Connection>,
    /// What was known when it was checked.
    seen: u64,
    until: Time,
    next: Time,
}

impl Held {
    /// Holds a message until its status is known, or the time is over; `until` is when that is, if it was held before, and
    /// `seen` is the [`generation`] in which it was checked. Gives it back if the time is over.
    pub(super) fn new(
        incoming: Incoming,
        config: Arc<Connection>,
        seen: u64,
        until: Option<Time>,
        now: Time,
    ) -> Result<Self, Incoming> {
        let until = until.unwrap_or(now + HELD_TIME);
        if until <= now {
            return Err(incoming);
        }
        Ok(Self { incoming, config, seen, until, next: until.min(now + HELD_LOOK) })
    }

    /// Until when it may be held.
    pub(super) fn until(&self) -> Time {
        self.until
    }

    /// When it is looked at next.
    pub(super) fn next(&self) -> Time {
        self.next
    }

    /// Whether it is to be checked anew: more is known, or its time is over.
    pub(super) fn is_due(&mut self, now: Time) -> bool {
        if now < self.next {
            return false;
        }
        self.next = self.until.min(now + HELD_LOOK);
        now >= self.until || generation(&self.config) != self.seen
    }

    /// The message.
    pub(super) fn release(self) -> Incoming {
        self.incoming
    }
}

/// Changes when more is known about revocation. To be read before something is checked.
pub(super) fn generation(config: &Connection) -> u64 {
    match &config.authentication {
        Authentication::Certificate(credentials) => credentials.trust.generation(),
        _ => 0,
    }
}

/// Whether nothing is wrong but that a status is being asked for.
pub(super) fn is_awaited(cause: &Cause) -> bool {
    matches!(cause, Cause::NotAuthentic { why: Unproved::Awaited(_), .. })
}
