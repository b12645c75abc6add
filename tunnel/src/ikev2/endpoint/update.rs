//! Configuration changes of a connection that is up.

use super::{Endpoint, Phase};
use crate::Now;
use crate::ikev2::action::Outbox;
use crate::ikev2::config::{Connection, Start};
use crate::ikev2::event::CloseReason;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::ids::SessionId;
use std::sync::Arc;

impl Endpoint {
    /// Replaces the configuration of a connection whose addresses, identities and credentials stay the same. Its
    /// sessions go on, and the new values apply from the next rekeying, or authentication. `places` maps each old child to its new
    /// index. Children without one are deleted; new children are set up if we initiate the connection.
    ///
    /// Returns false and changes nothing while a Child SA is being negotiated.
    pub fn update_connection(
        &mut self,
        now: Now,
        id: ConnectionId,
        config: impl Into<Arc<Connection>>,
        places: &[Option<usize>],
        out: &mut Outbox,
    ) -> bool {
        let is_busy =
            |phase: &Phase| matches!(phase, Phase::Established(session) if session.is_making_child());
        if self.connections.get(id).is_none() || self.with_instances(id).any(|(_, phase)| is_busy(phase)) {
            return false;
        }
        let config: Arc<Connection> = config.into();
        let begins = config.start == Start::Initiate;
        self.connections.insert(id, Arc::clone(&config));
        self.registry.forget(id);
        let sessions: Vec<SessionId> = self.with_instances(id).map(|(session, _)| session).collect();
        for session in sessions {
            if !matches!(self.phases.get(&session), Some(Phase::Established(_))) {
                // The set-up is not complete: it is restarted.
                self.close_session(now, session, CloseReason::Replaced, out);
                continue;
            }
            self.step(now, session, out, |mut phase, context| {
                if let Phase::Established(session) = &mut phase {
                    session.adopt(Arc::clone(&config), places, context);
                }
                Some(phase)
            });
        }
        self.failed.remove(&id);
        self.plans.set(id, begins.then_some(now.monotonic));
        true
    }
}
