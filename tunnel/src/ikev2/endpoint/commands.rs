//! Requests of the configuration, of operators and of the data path.

use super::{Endpoint, Phase};
use crate::ikev2::action::Outbox;
use crate::ikev2::cause::Cause;
use crate::ikev2::config::{Connection, Start};
use crate::ikev2::event::{CloseReason, Event};
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::ids::SessionId;
use crate::ikev2::limits::{IKE_PORT, TRAFFIC_DELAY};
use crate::ikev2::nat::Path;
use crate::ikev2::session::{Session, Task};
use crate::ikev2::setup::initiating::{Initiating, Wanted};
use crate::{Now, Time};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The reason why a connection cannot be initiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotInitiate {
    /// The connection does not exist.
    #[error("no such connection")]
    NoConnection,
    /// One of the addresses is not configured.
    #[error("both addresses must be known to initiate")]
    NoAddress,
    /// No algorithms are configured.
    #[error("no algorithms are configured")]
    NoProposal,
    /// Only the peer may initiate.
    #[error("only the peer may initiate: connection-type is none")]
    NotOurs,
    /// It was refused or failed recently, and is not tried again before this time.
    #[error("the last attempt failed moments ago")]
    JustFailed(Time),
}

impl Endpoint {
    /// Adds a connection. One that we initiate starts at the next timeout.
    pub fn add_connection(&mut self, now: Now, config: impl Into<Arc<Connection>>) -> ConnectionId {
        let config = config.into();
        let id = ConnectionId(self.next_id());
        if !config.is_profile() {
            self.registry.receivers.enter(id);
        }
        if config.start == Start::Initiate {
            self.plans.set(id, Some(now.monotonic));
        }
        self.connections.insert(id, config);
        id
    }

    /// Removes a connection and ends its sessions.
    pub fn remove_connection(&mut self, now: Now, id: ConnectionId, out: &mut Outbox) {
        self.connections.remove(id);
        self.failed.remove(&id);
        self.close(now, id, out);
        self.registry.forget(id);
        self.registry.receivers.forget(id);
    }

    /// Initiates a connection with all its children; existing ones stay.
    pub fn initiate(&mut self, now: Now, id: ConnectionId, out: &mut Outbox) -> Result<(), CannotInitiate> {
        let config = self.config(id).ok_or(CannotInitiate::NoConnection)?;
        let children = (0..config.children.len()).collect();
        self.want(now, id, children, out)
    }

    /// Requests an SA for a packet that matched a child without one. Repeated calls have no effect while the SA is
    /// being set up. A child that was refused is not requested again for a while, as packets would repeat the request
    /// without end.
    pub fn handle_traffic(
        &mut self,
        now: Now,
        id: ConnectionId,
        child: usize,
        out: &mut Outbox,
    ) -> Result<(), CannotInitiate> {
        if self.config(id).is_some_and(|config| config.start == Start::Respond) {
            return Err(CannotInitiate::NotOurs);
        }
        let session = self.session_of(id).and_then(|session| self.phases.get(&session));
        let refused = match session {
            Some(Phase::Established(session)) => session.refused(child),
            _ => None,
        };
        let failed = self.failed.get(&id).copied().max(refused);
        let not_before = failed.map(|at| at + TRAFFIC_DELAY).filter(|at| *at > now.monotonic);
        if let Some(at) = not_before {
            return Err(CannotInitiate::JustFailed(at));
        }
        self.want(now, id, vec![child], out)
    }

    fn want(
        &mut self,
        now: Now,
        connection: ConnectionId,
        children: Vec<usize>,
        out: &mut Outbox,
    ) -> Result<(), CannotInitiate> {
        let config = self.config(connection).cloned().ok_or(CannotInitiate::NoConnection)?;
        if let Some(id) = self.session_of(connection) {
            self.step(now, id, out, |mut phase, context| {
                for child in children {
                    match &mut phase {
                        Phase::Initiating(state) => state.want(child),
                        Phase::Authenticating(state) => state.want(child),
                        Phase::Agreeing(state) => state.want(child),
                        Phase::Established(session) => session.ask(Task::Child(child), context),
                        Phase::Answering(_) | Phase::HalfOpen(_) => {}
                    }
                }
                Some(phase)
            });
            return Ok(());
        }
        let initial_contact = self.is_first_contact(&config);
        let wanted = Wanted { connection, config, children, initial_contact };
        self.begin(now, wanted, out).map(|_| ())
    }

    /// Whether there is no other session between these identities, in any connection: on INITIAL_CONTACT the peer
    /// deletes all others (section 2.4).
    fn is_first_contact(&self, config: &Connection) -> bool {
        let mut alike = self.connections.alike(config).flat_map(|id| self.of_connection(id));
        !alike.any(|(_, phase)| phase.counts())
    }

    /// Initiates a session that replaces `old`.
    pub(super) fn succeed(&mut self, now: Now, old: SessionId, children: Vec<usize>, out: &mut Outbox) {
        let connection = self.phases.get(&old).and_then(Phase::connection);
        let known = connection.and_then(|id| self.connections.get(id).map(|config| (id, Arc::clone(config))));
        let Some((connection, config)) = known else { return };
        let wanted = Wanted { connection, config, children, initial_contact: false };
        if let Ok(new) = self.begin(now, wanted, out) {
            self.successions.insert(new, old);
            self.succeeded.insert(old);
        } else if let Some(Phase::Established(session)) = self.phases.get_mut(&old) {
            // There may be a route later.
            session.postpone_reauthentication(now.monotonic);
        }
    }

    fn begin(&mut self, now: Now, wanted: Wanted, out: &mut Outbox) -> Result<SessionId, CannotInitiate> {
        let config = &wanted.config;
        let remote = config.remote.ok_or(CannotInitiate::NoAddress)?;
        let at = |address| SocketAddr::new(address, IKE_PORT);
        let Some(local) = config.local.or_else(|| (self.source)(remote)) else {
            let unknown =
                if remote.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            let (path, connection) = (Path { local: at(unknown), remote: at(remote) }, wanted.connection);
            let (mut context, ..) = self.split(now, out);
            context.fail_sometimes(connection, path, Cause::NoRoute);
            return Err(CannotInitiate::NoAddress);
        };
        let path = Path { local: at(local), remote: at(remote) };
        let (id, connection) = (SessionId(self.next_id()), wanted.connection);
        let (mut context, ..) = self.split(now, out);
        let state = Initiating::begin(id, wanted, path, &mut context).ok_or(CannotInitiate::NoProposal)?;
        context.report(Event::Calling { connection, path });
        self.keep(id, Phase::Initiating(state));
        self.reschedule(id);
        Ok(id)
    }

    /// Whether the connection is up or being set up.
    pub fn is_under_way(&self, id: ConnectionId) -> bool {
        self.session_of(id).is_some()
    }

    /// The session that represents a connection.
    fn session_of(&self, connection: ConnectionId) -> Option<SessionId> {
        // An established session is preferred to one that may fail; among equals, the younger. Thousands of peers may
        // use one connection, and almost all of their sessions are established.
        let mut of = self.of_connection(connection).rev().filter(|(_, phase)| phase.counts());
        let is_established = |(_, phase): &(SessionId, &Phase)| matches!(phase, Phase::Established(_));
        let youngest = of.next()?;
        let established = if is_established(&youngest) { None } else { of.find(is_established) };
        Some(established.unwrap_or(youngest).0)
    }

    /// Ends the sessions of a connection and of its instances, and tells the peers.
    pub fn close(&mut self, now: Now, connection: ConnectionId, out: &mut Outbox) {
        let ids: Vec<SessionId> = self.with_instances(connection).map(|(id, _)| id).collect();
        for id in ids {
            self.close_session(now, id, CloseReason::Asked, out);
        }
        // A connection closed on request is not restarted, as it would be after a loss.
        self.plans.set(connection, None);
    }

    /// Whether a Delete of a closed session waits for the peer's answer to an earlier request, or for a job.
    pub fn owes_deletes(&self) -> bool {
        self.phases.values().any(Phase::owes_delete)
    }

    /// Replaces the IKE SA of a connection.
    pub fn rekey(&mut self, now: Now, id: ConnectionId, out: &mut Outbox) {
        if let Some(session) = self.session_of(id) {
            self.ask(now, session, Task::RekeyIke, out);
        }
    }

    /// Rekeys the Child SA that is received under `spi`, as it has reached its soft limit.
    pub fn rekey_child(&mut self, now: Now, spi: u32, out: &mut Outbox) {
        self.ask_owner(now, spi, Task::RekeyChild(spi), out);
    }

    /// Deletes the Child SA that is received under `spi`, as it must not be used any more.
    pub fn delete_child(&mut self, now: Now, spi: u32, out: &mut Outbox) {
        self.ask_owner(now, spi, Task::DeleteChild(spi), out);
    }

    fn ask_owner(&mut self, now: Now, spi: u32, task: Task, out: &mut Outbox) {
        if let Some(session) = self.registry.child_owner(spi) {
            self.ask(now, session, task, out);
        }
    }

    pub(super) fn ask(&mut self, now: Now, id: SessionId, task: Task, out: &mut Outbox) {
        self.step(now, id, out, |mut phase, context| {
            if let Phase::Established(session) = &mut phase {
                session.ask(task, context);
            }
            Some(phase)
        });
    }

    /// Notes that authentic packets under `spi` have arrived from the known address of the peer, which is therefore
    /// alive.
    pub fn note_traffic(&mut self, now: Now, spi: u32) {
        self.note(spi, |session| session.note_traffic(now.monotonic));
    }

    /// Notes that packets were sent under the Child SA that is received under `spi`.
    pub fn note_sent(&mut self, now: Now, spi: u32) {
        self.note(spi, |session| session.note_sent(now.monotonic));
    }

    /// Notes that authentic packets under `spi` have arrived from an address to which the session does not move.
    pub fn note_strayed(&mut self, now: Now, spi: u32, from: SocketAddr) {
        self.note(spi, |session| session.note_strayed(now.monotonic, from));
    }

    fn note(&mut self, spi: u32, note: impl FnOnce(&mut Session)) {
        let Some(id) = self.registry.child_owner(spi) else { return };
        if let Some(Phase::Established(session)) = self.phases.get_mut(&id) {
            note(session);
            self.reschedule(id);
        }
    }

    /// Notes that authentic packets under `spi` have arrived over another path than before.
    pub fn note_moved(&mut self, now: Now, spi: u32, path: Path, out: &mut Outbox) {
        let Some(id) = self.registry.child_owner(spi) else { return };
        self.step(now, id, out, |mut phase, context| {
            if let Phase::Established(session) = &mut phase {
                session.note_moved(path, context);
            }
            Some(phase)
        });
    }
}
