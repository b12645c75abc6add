//! The entry point of the protocol: all connections of one host.
//!
//! The caller passes in datagrams, timeouts and commands, and carries out the returned [`Action`](super::Action)s in
//! order. Nothing here blocks, reads a clock or touches a socket.

mod commands;
mod datagrams;
mod phase;
mod status;
mod timeouts;
mod update;

pub use datagrams::Ignored;
pub use status::{ChildState, ChildStatus, Details, IkeStatus, Load, SessionStatus, State};

use super::action::{Action, Outbox};
use super::config::{Connection, Patience, Start, WhenLost};
use super::connections::Connections;
use super::context::{Context, Registry, Worn};
use super::event::{CloseReason, Event};
use super::half_open_table::HalfOpenTable;
use super::identity::Identity;
use super::ids::ConnectionId;
use super::ids::SessionId;
use super::limits::{CROSSING_TIME, DOUBT_TIME, PEER_SESSIONS, RECONNECT_DELAY};
use super::receivers::Receivers;
use super::session::{Session, Task};
use super::setup::half_open::HalfOpen;
use crate::timers::Timers;
use crate::{Now, Time};
use crypto::Random;

use phase::Phase;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub use commands::CannotInitiate;

/// Returns the local source address for a remote address, if there is a route.
pub type Source = Box<dyn Fn(IpAddr) -> Option<IpAddr> + Send>;

/// The protocol, for all connections of one host.
pub struct Endpoint {
    random: Box<dyn Random>,
    patience: Patience,
    source: Source,
    worn: Worn,
    connections: Connections,
    registry: Registry,
    phases: HashMap<SessionId, Phase>,
    /// The phases whose connection is known, by connection.
    by_connection: HashMap<ConnectionId, BTreeSet<SessionId>>,
    half_open: HalfOpenTable,
    timers: Timers<SessionId>,
    /// When a connection is to be set up again.
    plans: Timers<ConnectionId>,
    /// When connections last failed to come up.
    failed: HashMap<ConnectionId, Time>,
    /// The established sessions, by connection and identity of the peer.
    by_peer: HashMap<(ConnectionId, Identity), BTreeSet<SessionId>>,
    /// New sessions, each with the old one that it replaces as soon as all its Child SAs are installed.
    successions: HashMap<SessionId, SessionId>,
    /// The old ones of them.
    succeeded: HashSet<SessionId>,
    /// See [`compared`](Self::compared).
    compared: u64,
    last_id: u64,
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(random: Box<dyn Random>) -> Self {
        Self {
            random,
            patience: Patience::default(),
            source: Box::new(|_| None),
            worn: Box::new(|_| false),
            connections: Connections::default(),
            registry: Registry::default(),
            phases: HashMap::new(),
            by_connection: HashMap::new(),
            half_open: HalfOpenTable::default(),
            timers: Timers::default(),
            plans: Timers::default(),
            failed: HashMap::new(),
            by_peer: HashMap::new(),
            successions: HashMap::new(),
            succeeded: HashSet::new(),
            compared: 0,
            last_id: 0,
        }
    }

    /// Sets the retransmission timers of later requests.
    pub fn set_patience(&mut self, patience: Patience) {
        self.patience = patience;
    }

    /// Spreads the peers over so many receiving threads, at least one, before any is added: the first byte of the inbound SPIs of a
    /// peer, modulo their number, is the thread of the peer.
    pub fn set_receivers(&mut self, threads: u8) {
        self.registry.receivers = Receivers::new(threads);
    }

    /// Sets the function that chooses the local address of a connection configured without one.
    pub fn set_source(&mut self, source: Source) {
        self.source = source;
    }

    /// Sets the function that tells whether a Child SA is near its limits. A peer may rekey such an SA at any rate;
    /// other rekeyings are rate-limited.
    pub fn set_worn(&mut self, worn: Worn) {
        self.worn = worn;
    }

    /// The profile of an instance; `None` for a configured connection.
    pub fn profile(&self, instance: ConnectionId) -> Option<ConnectionId> {
        self.registry.instances.profile(instance)
    }

    /// The settings of a connection, or of the profile of an instance.
    fn config(&self, id: ConnectionId) -> Option<&Arc<Connection>> {
        self.connections.get(self.registry.instances.configured(id))
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Splits `self` into the context for the states and the states themselves.
    fn split<'a>(
        &'a mut self,
        now: Now,
        out: &'a mut Outbox,
    ) -> (Context<'a>, &'a mut HashMap<SessionId, Phase>, &'a mut HalfOpenTable) {
        let Self { random, connections, worn, registry, phases, half_open, compared, .. } = self;
        let (Now { monotonic: now, wall }, patience) = (now, self.patience);
        let random = &mut **random;
        let (may_hold, room) = (half_open.may_hold(), half_open.room());
        let context = Context {
            now,
            wall,
            patience,
            random,
            registry,
            connections,
            worn,
            compared,
            may_hold,
            room,
            out,
        };
        (context, phases, half_open)
    }

    /// Runs one step of a phase.
    fn step(
        &mut self,
        now: Now,
        id: SessionId,
        out: &mut Outbox,
        step: impl FnOnce(Phase, &mut Context<'_>) -> Option<Phase>,
    ) {
        let (mut context, phases, half_open) = self.split(now, out);
        let Some(phase) = phases.remove(&id) else { return };
        let (connection, was_established) = (phase.connection(), matches!(phase, Phase::Established(_)));
        let was_abandoned = phase.is_abandoned();
        let entry = phase.entry();
        if let Some(entry) = entry {
            half_open.leave(now.monotonic, id, entry);
        }
        let mut next = step(phase, &mut context);
        if let Some(Phase::HalfOpen(state)) = &mut next {
            make_room(now, state, phases, half_open);
        }
        if let Some(entry) = next.as_ref().and_then(Phase::entry) {
            half_open.enter(now.monotonic, id, entry);
        }
        match next {
            Some(Phase::Established(session)) if session.over().is_some() => {
                self.forget(now, id, connection);
                self.remove_ended(now, id, *session, out);
            }
            Some(phase) => {
                let is_new = !was_established && matches!(phase, Phase::Established(_));
                if let Some(entry) = entry.filter(|_| is_new) {
                    half_open.credit(entry);
                }
                if let Phase::Established(session) = &phase
                    && is_new
                {
                    let peer = (session.connection(), session.identity().clone());
                    self.by_peer.entry(peer).or_default().insert(id);
                }
                self.keep(id, phase);
                if is_new {
                    self.resolve_duplicates(now, id, out);
                }
                self.hand_over(now, id, out);
            }
            None => {
                self.forget(now, id, connection);
                let connection = connection.filter(|_| !was_abandoned);
                let kept = connection.filter(|connection| self.connections.get(*connection).is_some());
                self.failed.extend(kept.map(|connection| (connection, now.monotonic)));
                self.plan(now, connection, None);
            }
        }
        self.reschedule(id);
        self.ask_doubtful(now, out);
    }

    /// Sends a liveness check to peers that hold packets of another peer: they may be gone.
    fn ask_doubtful(&mut self, now: Now, out: &mut Outbox) {
        for id in std::mem::take(&mut self.registry.doubtful) {
            let is_silent = match self.phases.get(&id) {
                Some(Phase::Established(session)) => now.monotonic - session.last_heard() >= DOUBT_TIME,
                _ => false,
            };
            if is_silent {
                self.step(now, id, out, |mut phase, context| {
                    if let Phase::Established(session) = &mut phase {
                        session.prove_alive(context);
                    }
                    Some(phase)
                });
            }
        }
    }

    fn keep(&mut self, id: SessionId, phase: Phase) {
        if let Some(connection) = phase.connection() {
            self.by_connection.entry(connection).or_default().insert(id);
        }
        self.phases.insert(id, phase);
    }

    fn forget(&mut self, now: Now, id: SessionId, connection: Option<ConnectionId>) {
        if let Some(old) = self.take_predecessor(id)
            && let Some(Phase::Established(session)) = self.phases.get_mut(&old)
        {
            // The new session failed; another one is tried later.
            session.postpone_reauthentication(now.monotonic);
            self.reschedule(old);
        }
        let Some(connection) = connection else { return };
        if let Some(ids) = self.by_connection.get_mut(&connection) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_connection.remove(&connection);
            }
        }
    }

    /// The session that `new` is to replace, which it does now or never.
    fn take_predecessor(&mut self, new: SessionId) -> Option<SessionId> {
        let old = self.successions.remove(&new)?;
        self.succeeded.remove(&old);
        Some(old)
    }

    /// The established sessions with the peer of a session, the oldest first.
    fn with_peer_of(&self, session: &Session) -> impl Iterator<Item = (SessionId, &Session)> {
        let peer = (session.connection(), session.identity().clone());
        let ids = self.by_peer.get(&peer).into_iter().flatten();
        ids.filter_map(|id| match self.phases.get(id) {
            Some(Phase::Established(session)) => Some((*id, &**session)),
            _ => None,
        })
    }

    /// The phases of a connection, the oldest first.
    fn of_connection(
        &self,
        connection: ConnectionId,
    ) -> impl DoubleEndedIterator<Item = (SessionId, &Phase)> {
        let ids = self.by_connection.get(&connection).into_iter().flatten();
        ids.filter_map(|id| self.phases.get(id).map(|phase| (*id, phase)))
    }

    /// The phases of a connection and of its instances.
    fn with_instances(&self, connection: ConnectionId) -> impl Iterator<Item = (SessionId, &Phase)> {
        self.registry.instances.with_all_of(connection).flat_map(|id| self.of_connection(id))
    }

    /// Completes a reauthentication: the new session replaces the old one when all its Child SAs are installed
    /// (section 2.8.3).
    fn hand_over(&mut self, now: Now, id: SessionId, out: &mut Outbox) {
        let Some(Phase::Established(session)) = self.phases.get_mut(&id) else { return };
        let is_settled = session.is_settled();
        if session.wants_reauthentication() && !self.succeeded.contains(&id) {
            let children = session.wanted_children();
            self.succeed(now, id, children, out);
        }
        if is_settled && let Some(old) = self.take_predecessor(id) {
            let children = match self.phases.get(&old) {
                Some(Phase::Established(old)) => old.live_children(),
                _ => Vec::new(),
            };
            self.close_session(now, old, CloseReason::Replaced, out);
            self.step(now, id, out, |mut phase, context| {
                if let Phase::Established(session) = &mut phase {
                    session.inherit(&children, context);
                }
                Some(phase)
            });
        }
    }

    /// Removes a session that has ended.
    fn remove_ended(&mut self, now: Now, id: SessionId, session: Session, out: &mut Outbox) {
        let (connection, reason) = (session.connection(), session.over().unwrap_or(CloseReason::Asked));
        let peer = (connection, session.identity().clone());
        if let Some(ids) = self.by_peer.get_mut(&peer) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
        let (mut context, ..) = self.split(now, out);
        session.dismantle(&mut context);
        context.report(Event::Closed { connection, session: id, reason });
        // The session was its last one.
        if !self.by_connection.contains_key(&connection) && self.registry.instances.leave(connection) {
            self.registry.receivers.forget(connection);
            out.push(Action::RemoveInstance { instance: connection });
        }
        self.plan(now, Some(connection), Some(reason));
    }

    /// Plans when a connection that is down is set up again, if configured.
    fn plan(&mut self, now: Now, connection: Option<ConnectionId>, reason: Option<CloseReason>) {
        let Some((connection, config)) =
            connection.and_then(|id| self.connections.get(id).map(|config| (id, config)))
        else {
            return;
        };
        let is_lost = matches!(
            reason,
            Some(CloseReason::Dead | CloseReason::ByPeer | CloseReason::Expired | CloseReason::Misbehaved)
        );
        let restarts = is_lost && config.when_lost == WhenLost::Restart;
        let persists = config.start == Start::Initiate && (is_lost || reason.is_none());
        if restarts || persists {
            // A connection to a dead peer is set up again at once; a failed set-up after a delay.
            let delay = if reason == Some(CloseReason::Dead) { Duration::ZERO } else { RECONNECT_DELAY };
            let at = now.monotonic + delay;
            self.plans.set(connection, Some(at));
        }
    }

    /// Handles a new session. Other sessions with the same peer may have to end.
    fn resolve_duplicates(&mut self, now: Now, id: SessionId, out: &mut Outbox) {
        let Some(Phase::Established(new)) = self.phases.get(&id) else { return };
        let new: &Session = new;
        // It was abandoned before it was established.
        if new.is_closing() {
            return;
        }
        self.plans.set(new.connection(), None);
        self.failed.remove(&new.connection());
        let (mut losers, mut doubtful) = (self.surplus(new), Vec::new());
        for (other, old) in self.with_peer_of(new) {
            // The old one goes once the new one has its children.
            if other == id || old.is_closing() || self.successions.get(&id) == Some(&other) {
                continue;
            }
            let crossed = old.initiated() != new.initiated() && now.monotonic - old.since() < CROSSING_TIME;
            // Both sides initiated at once, and INITIAL_CONTACT was true when each sent it. Both know the same
            // SPIs: the initiator of the session with the lower SPI closes that session.
            let lower = if old.initiator_spi() < new.initiator_spi() { old } else { new };
            if new.initial_contact() && !crossed {
                // Section 2.4: the peer has lost the old session.
                losers.push(other);
            } else if crossed && lower.initiated() {
                losers.push(if std::ptr::eq(lower, new) { id } else { other });
            } else if !new.initiated() {
                // The peer will close one of the two, or it has lost the old one, with or without INITIAL_CONTACT,
                // and will not answer in it.
                doubtful.push(other);
            }
        }
        for loser in losers {
            self.close_session(now, loser, CloseReason::Replaced, out);
        }
        for session in doubtful {
            self.ask(now, session, Task::Liveness, out);
        }
    }

    /// The oldest session that this peer has initiated, if there are too many: the peer has forgotten the old ones.
    fn surplus(&self, new: &Session) -> Vec<SessionId> {
        let sessions = self.with_peer_of(new).filter(|(_, one)| !one.initiated() && !one.is_closing());
        let mut ids: Vec<SessionId> = sessions.map(|(id, _)| id).collect();
        ids.truncate(ids.len().saturating_sub(PEER_SESSIONS));
        ids
    }

    fn close_session(&mut self, now: Now, id: SessionId, reason: CloseReason, out: &mut Outbox) {
        self.step(now, id, out, |phase, context| phase.close(reason, context));
    }

    fn reschedule(&mut self, id: SessionId) {
        let next = self.phases.get(&id).and_then(Phase::next_timeout);
        self.timers.set(id, next);
    }
}

/// Makes room for the fragments of a half-open SA, or has it drop them.
fn make_room(
    now: Now,
    state: &mut HalfOpen,
    phases: &mut HashMap<SessionId, Phase>,
    half_open: &mut HalfOpenTable,
) {
    while !half_open.has_room(&state.entry()) {
        let other = half_open.to_make_room(&state.entry()).and_then(|id| Some((id, phases.get_mut(&id)?)));
        let Some((id, Phase::HalfOpen(other))) = other else { return state.forget_fragments() };
        half_open.leave(now.monotonic, id, other.entry());
        other.forget_fragments();
        half_open.enter(now.monotonic, id, other.entry());
    }
}
