//! The rounds of authentication that a peer has passed (RFC 4739).
//!
//! ```text
//! Verified ──> Passed ──another Verified──> Authenticated
//! ```
//! A session requires an [`Authenticated`], and only the last round of a connection makes one.

use super::proof::Verified;
use crate::ikev2::config::Connection;
use crate::ikev2::identity::Identity;

/// A peer that has passed all rounds of its connection.
pub(in crate::ikev2) struct Authenticated {
    identity: Identity,
}

impl Authenticated {
    /// The identity of the peer: that of the first round.
    pub(in crate::ikev2) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// The rounds that a peer has passed so far; none at first.
#[derive(Default)]
pub(in crate::ikev2) struct Passed {
    identity: Option<Identity>,
    count: usize,
}

/// What follows a round.
pub(in crate::ikev2) enum Progress {
    /// Another round.
    Another(Passed),
    /// The session.
    Complete(Authenticated),
}

impl Passed {
    /// The number of the next round.
    pub(in crate::ikev2) fn next(&self) -> usize {
        self.count
    }

    /// Adds a round; `None` if it is not the next one.
    pub(in crate::ikev2) fn add(self, verified: Verified, config: &Connection) -> Option<Progress> {
        if verified.round() != self.count {
            return None;
        }
        let identity = self.identity.unwrap_or_else(|| verified.identity().clone());
        let count = self.count + 1;
        Some(if count > config.further.len() {
            Progress::Complete(Authenticated { identity })
        } else {
            Progress::Another(Self { identity: Some(identity), count })
        })
    }
}
