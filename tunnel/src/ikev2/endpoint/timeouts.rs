//! Timeouts of the endpoint.

use super::{CannotInitiate, Endpoint, Phase};
use crate::ikev2::action::Outbox;
use crate::ikev2::limits::RECONNECT_DELAY;
use crate::{Now, Time};

impl Endpoint {
    /// When [`Endpoint::handle_timeout`] is to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().into_iter().chain(self.plans.first()).min()
    }

    /// Handles everything that is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        for id in self.timers.due(now.monotonic) {
            self.step(now, id, out, Phase::handle_timeout);
        }
        for connection in self.plans.due(now.monotonic) {
            self.plans.set(connection, None);
            // It may be up by now, not be ours to initiate, or have no route yet.
            let begun = self.initiate(now, connection, out);
            let is_known = self.connections.get(connection).is_some_and(|config| config.remote.is_some());
            if is_known && matches!(begun, Err(CannotInitiate::NoAddress)) {
                self.plans.set(connection, Some(now.monotonic + RECONNECT_DELAY));
            }
        }
    }
}
