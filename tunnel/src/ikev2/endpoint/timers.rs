//! What is done as time passes.

use super::Endpoint;
use crate::ikev2::action::{Outbox, SessionId};
use crate::ikev2::config::ConnectionId;
use crate::{Now, Time};

impl Endpoint {
    /// When [`Endpoint::handle_timeout`] is to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let plan = self.plans.values().min().copied();
        timer.into_iter().chain(plan).min()
    }

    /// Does what has become due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        let due: Vec<SessionId> =
            self.timers.iter().take_while(|(at, _)| *at <= now.monotonic).map(|(_, id)| *id).collect();
        for id in due {
            self.step(now, id, out, super::Phase::handle_timeout);
        }
        let planned = self.plans.iter().filter(|(_, at)| **at <= now.monotonic);
        let planned: Vec<ConnectionId> = planned.map(|(id, _)| *id).collect();
        for connection in planned {
            self.plans.remove(&connection);
            // It may have come up meanwhile, or not be ours to begin.
            let _ = self.initiate(now, connection, out);
        }
    }
}
