//! What the configuration, people and the data path ask for.

use super::{Endpoint, Phase};
use crate::ikev2::action::{Cause, CloseReason, Event, Outbox, SessionId};
use crate::ikev2::config::{Connection, ConnectionId, Start};
use crate::ikev2::limits::{IKE_PORT, TRAFFIC_DELAY};
use crate::ikev2::nat::Path;
use crate::ikev2::session::{Session, Task};
use crate::ikev2::setup::{Initiating, Wanted};
use crate::{Now, Time};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Why a connection cannot be begun by us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotInitiate {
    /// There is no such connection.
    #[error("no such connection")]
    NoConnection,
    /// One of the addresses is any.
    #[error("the addresses of both sides must be known to begin")]
    NoAddress,
    /// No algorithms are configured.
    #[error("no algorithms are configured")]
    NoProposal,
    /// The other side must begin.
    #[error("the peer must call: connection-type is none")]
    NotOurs,
    /// It was refused, or failed, so short a time ago that it is not tried again before this moment.
    #[error("it has just failed")]
    JustFailed(Time),
}

impl Endpoint {
    /// Adds a connection; one that is to be begun by us is, at the next look at the timers.
    pub fn add_connection(&mut self, now: Now, config: impl Into<Arc<Connection>>) -> ConnectionId {
        let config = config.into();
        let id = ConnectionId(self.next_id());
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
    }

    /// Begins a connection with all its children; those that are there already stay.
    pub fn initiate(&mut self, now: Now, id: ConnectionId, out: &mut Outbox) -> Result<(), CannotInitiate> {
        let config = self.connections.get(id).ok_or(CannotInitiate::NoConnection)?;
        let children = (0..config.children.len()).collect();
        self.want(now, id, children, out)
    }

    /// A packet for a child of a connection found no SA: one is made. Asking again while it is being made does nothing.
    /// What was just refused is not asked for again: packets come faster than a peer changes its mind.
    pub fn handle_traffic(
        &mut self,
        now: Now,
        id: ConnectionId,
        child: usize,
        out: &mut Outbox,
    ) -> Result<(), CannotInitiate> {
        if self.connections.get(id).is_some_and(|config| config.start == Start::Respond) {
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
        let config = self.connections.get(connection).cloned().ok_or(CannotInitiate::NoConnection)?;
        if let Some(id) = self.session_of(connection) {
            self.step(now, id, out, |mut phase, context| {
                for child in children {
                    match &mut phase {
                        Phase::Initiating(state) => state.want(child),
                        Phase::Authenticating(state) => state.want(child),
                        Phase::Working(working) => working.want(child),
                        Phase::Established(session) => session.ask(Task::Child(child), context),
                        Phase::HalfOpen(_) => {}
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

    /// Section 2.4: whether there is no other session between these identities, of whatever connection: the other side
    /// ends all others when we say so.
    fn is_first_contact(&self, config: &Connection) -> bool {
        let mut alike = self.connections.alike(config).flat_map(|id| self.of_connection(id));
        !alike.any(|(_, phase)| phase.counts())
    }

    /// Begins a session that is to take the place of `old`.
    pub(super) fn succeed(&mut self, now: Now, old: SessionId, children: Vec<usize>, out: &mut Outbox) {
        let connection = self.phases.get(&old).and_then(Phase::connection);
        let known = connection.and_then(|id| self.connections.get(id).map(|config| (id, Arc::clone(config))));
        let Some((connection, config)) = known else { return };
        let wanted = Wanted { connection, config, children, initial_contact: false };
        if let Ok(new) = self.begin(now, wanted, out) {
            self.successions.insert(new, old);
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
        let phase = Initiating::begin(id, wanted, path, &mut context).ok_or(CannotInitiate::NoProposal)?;
        context.report(Event::Calling { connection, path });
        self.keep(id, phase);
        self.reschedule(id);
        Ok(id)
    }

    /// Whether a connection is there, or being made.
    pub fn is_under_way(&self, id: ConnectionId) -> bool {
        self.session_of(id).is_some()
    }

    /// The session that stands for a connection, or is going to.
    fn session_of(&self, connection: ConnectionId) -> Option<SessionId> {
        let of = self.of_connection(connection).filter(|(_, phase)| phase.counts());
        // One that is established serves better than one that may fail; of equals, the younger.
        of.max_by_key(|(id, phase)| (matches!(phase, Phase::Established(_)), *id)).map(|(id, _)| id)
    }

    /// Ends the sessions of a connection; the other side is told.
    pub fn close(&mut self, now: Now, connection: ConnectionId, out: &mut Outbox) {
        let ids: Vec<SessionId> = self.of_connection(connection).map(|(id, _)| id).collect();
        for id in ids {
            self.close_session(now, id, CloseReason::Asked, out);
        }
        // What is set up again after a loss is not after this.
        self.plans.set(connection, None);
    }

    /// Replaces the IKE SA of a connection.
    pub fn rekey(&mut self, now: Now, id: ConnectionId, out: &mut Outbox) {
        if let Some(session) = self.session_of(id) {
            self.ask(now, session, Task::RekeyIke, out);
        }
    }

    /// Replaces the Child SA that we receive with under `spi`: it has carried as much as it should.
    pub fn rekey_child(&mut self, now: Now, spi: u32, out: &mut Outbox) {
        self.ask_owner(now, spi, Task::RekeyChild(spi), out);
    }

    /// Deletes the Child SA that we receive with under `spi`: it must not be used any more.
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

    /// Authentic packets have arrived under the SPI `spi`, from where its peer is: it lives.
    pub fn note_traffic(&mut self, now: Now, spi: u32) {
        self.note(spi, |session| session.note_traffic(now.monotonic));
    }

    /// Packets have been sent under the Child SA that is received under the SPI `spi`.
    pub fn note_sent(&mut self, now: Now, spi: u32) {
        self.note(spi, |session| session.note_sent(now.monotonic));
    }

    /// Authentic packets have arrived under the SPI `spi` from an address to which its peer is not followed.
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

    /// Authentic packets under the SPI `spi` have come another way than before.
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
