//! A session with an authenticated peer (RFC 7296 sections 1.3, 1.4 and 2.8).
//!
//! ```text
//! datagram ──> IkeSa::channel ──> requests.rs    requests of the peer
//!                            └──> responses.rs   answers to local requests: a Procedure
//! task     ──> queue, one at a time: a procedure begins when the one before has ended
//! ```
//! The Child SAs belong to the session, not to an IKE SA: a rekeying only changes which IKE SA is current. Each file
//! in this folder holds both sides of one subject: `child` creates and rekeys Child SAs, `rekey` the IKE SA, and
//! `teardown` deletes both.

mod adopt;
mod agreement;
mod ask;
mod child;
mod entry;
mod jobs;
mod quota;
mod reauthentication;
mod rekey;
mod rekeying;
mod request;
mod requests;
mod responses;
mod rival;
mod status;
mod teardown;
mod timers;
mod translate;

pub(super) use request::Request;

use super::action::Action;
use super::auth::rounds::Authenticated;
use super::channel::{Channel, Incoming, Received};
use super::config::Connection;
use super::context::Context;
use super::event::{CloseReason, Event};
use super::identity::Identity;
use super::ids::ConnectionId;
use super::ids::SessionId;
use super::inbound::Inbound;
use super::keys::{Role, Root};
use super::limits::{NAT_KEEPALIVE, TEMPORARY_FAILURE_DELAY};
use super::message::{Body, Payload};
use super::nat::{Nat, Path};
use super::proposal::IkeSuite;
use crate::Time;
use entry::{ChildEntry, ChildStanding, IkeSa, Procedure, Standing, Succession};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// The parameters of a new session.
pub(super) struct Beginning {
    pub(super) id: SessionId,
    pub(super) connection: ConnectionId,
    pub(super) config: Arc<Connection>,
    pub(super) path: Path,
    pub(super) nat: Nat,
    pub(super) channel: Channel,
    pub(super) root: Root,
    pub(super) suite: IkeSuite,
}

/// A task that is started when no procedure is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Create the configured Child SA with this index.
    Child(usize),
    /// Rekey the Child SA with this inbound SPI.
    RekeyChild(u32),
    /// Delete the Child SA with this inbound SPI.
    DeleteChild(u32),
    /// Delete a Child SA that the peer has created and that is not installed here.
    Disown(u32),
    /// Rekey the IKE SA.
    RekeyIke,
    /// Send a liveness check.
    Liveness,
}

/// See the module documentation.
pub(super) struct Session {
    id: SessionId,
    connection: ConnectionId,
    config: Arc<Connection>,
    identity: Identity,
    initiated: bool,
    initiator_spi: u64,
    /// Both addresses at the time of authentication. Selectors are bound to them, as the peer can choose later source
    /// addresses at will.
    authenticated: Path,
    /// Local and remote address of datagrams.
    path: Path,
    nat: Nat,
    ikes: Vec<IkeSa>,
    children: Vec<ChildEntry>,
    /// When children were last refused, by index.
    refused: HashMap<usize, Time>,
    /// Since when every request was answered with TEMPORARY_FAILURE, and when the last one was.
    put_off: Option<(Time, Time)>,
    queue: VecDeque<Task>,
    delayed: Vec<(Time, Task)>,
    since: Time,
    last_heard: Time,
    /// Since when packets are sent without any packet from the peer.
    unanswered: Option<Time>,
    /// The source of authentic packets, if it differs from the remote address.
    stray: Option<SocketAddr>,
    next_keepalive: Time,
    /// Key exchanges refused by the rate limit.
    refused_exchanges: u64,
    initial_contact: bool,
    succession: Succession,
    closing: Option<CloseReason>,
    over: Option<CloseReason>,
}

impl Session {
    /// A session without Child SAs.
    pub(super) fn new(beginning: Beginning, peer: Authenticated, context: &mut Context<'_>) -> Self {
        let Beginning { id, connection, config, path, nat, channel, root, suite } = beginning;
        let identity = peer.identity().clone();
        context.report(Event::Established {
            connection,
            session: id,
            identity: identity.clone(),
            suite,
            path,
        });
        let (initiated, initiator_spi) = (channel.role() == Role::Initiator, channel.spis().initiator);
        let ike = IkeSa::new(channel, (root, suite), Standing::Current, config.lifetime, context);
        let mut this = Self {
            id,
            connection,
            config,
            identity,
            initiated,
            initiator_spi,
            authenticated: path,
            path,
            nat,
            ikes: vec![ike],
            children: Vec::new(),
            refused: HashMap::new(),
            put_off: None,
            queue: VecDeque::new(),
            delayed: Vec::new(),
            since: context.now,
            last_heard: context.now,
            unanswered: None,
            stray: None,
            next_keepalive: context.now + NAT_KEEPALIVE,
            refused_exchanges: 0,
            initial_contact: false,
            succession: Succession::default(),
            closing: None,
            over: None,
        };
        this.begin_later(context);
        this
    }

    /// Notes that the peer sent INITIAL_CONTACT.
    pub(super) fn set_initial_contact(&mut self) {
        self.initial_contact = true;
    }

    /// Whether the peer sent INITIAL_CONTACT.
    pub(super) fn initial_contact(&self) -> bool {
        self.initial_contact
    }

    pub(super) fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// The identity of the peer.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether the local side initiated the session.
    pub(super) fn initiated(&self) -> bool {
        self.initiated
    }

    /// When the session was established.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// The initiator's SPI of the first IKE SA, which both sides know.
    pub(super) fn initiator_spi(&self) -> u64 {
        self.initiator_spi
    }

    /// When the last authentic packet of the peer arrived.
    pub(super) fn last_heard(&self) -> Time {
        self.last_heard
    }

    /// The indexes of the children in use.
    pub(super) fn live_children(&self) -> Vec<usize> {
        let live = self.children.iter().filter(|child| child.standing == ChildStanding::Live);
        live.map(|child| child.child).collect()
    }

    /// When a child was last refused.
    pub(super) fn refused(&self, child: usize) -> Option<Time> {
        self.refused.get(&child).copied()
    }

    /// Whether no procedure is pending and no child is queued: each child is installed or was refused.
    pub(super) fn is_settled(&self) -> bool {
        let is_waiting = self.delayed.iter().any(|(_, task)| matches!(task, Task::Child(_)));
        !is_waiting && self.queue.is_empty() && self.current().is_some_and(|ike| !ike.is_busy())
    }

    /// Takes over from a session with these children. Children that the peer refused while the old session held them
    /// are requested again.
    pub(super) fn inherit(&mut self, children: &[usize], context: &mut Context<'_>) {
        let live = self.live_children();
        for child in children.iter().filter(|child| !live.contains(child)) {
            let at = context.after_about(TEMPORARY_FAILURE_DELAY);
            self.delay(at, Task::Child(*child));
        }
    }

    /// Why the session has ended, if it has.
    pub(super) fn over(&self) -> Option<CloseReason> {
        self.over
    }

    /// Whether the session is being closed.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some() || self.over.is_some()
    }

    /// Whether the Delete for the peer waits for the answer to an earlier request: the window is one (RFC 7296 section 2.3).
    pub(super) fn owes_delete(&self) -> bool {
        let is_deleted = |ike: &IkeSa| matches!(ike.procedure, Some(Procedure::DeleteIke));
        self.closing.is_some() && self.over.is_none() && !self.current().is_some_and(is_deleted)
    }

    /// Handles a message of the IKE SA with the local SPI `spi`.
    pub(super) fn handle(&mut self, spi: u64, inbound: &Inbound<'_>, context: &mut Context<'_>) {
        let Some(ike) = self.ike_mut(spi) else { return };
        // Two rekeyings have collided, and the surviving IKE SA is not known yet. Requests in this one are ignored
        // until then; the peer retransmits them.
        if ike.standing == Standing::Candidate && !inbound.message.header.is_response {
            return;
        }
        match ike.channel.receive(&inbound.message) {
            // An attacker on the path can copy a request and repeat it from any address.
            Received::Again(datagrams) => {
                if let Some(path) = ike.answered_on {
                    context.send(path, datagrams);
                }
            }
            Received::Nothing => {}
            // The peer sends it again, as its answer takes a while.
            Received::Request(_) if ike.answering.is_some() => {}
            Received::Request(incoming) => {
                self.take_request(spi, incoming, inbound.path, context);
                self.heard(inbound, context);
            }
            Received::Response(incoming) => {
                self.handle_response(spi, &incoming, context);
                self.heard(inbound, context);
            }
        }
        self.pump(context);
    }

    /// Handles the source of an authentic, new message in sequence: the peer is alive, and its address may have
    /// changed.
    fn heard(&mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) {
        // The fragments of one message may have come from several addresses.
        if self.over.is_none() && matches!(inbound.message.body, Body::Encrypted(_)) {
            self.note_moved(inbound.path, context);
        }
        // The sender of a response can be reached at its address. The sender of a request, at another address, may
        // not.
        if inbound.message.header.is_response || inbound.path.remote == self.path.remote {
            self.note_traffic(context.now);
        } else {
            self.note_strayed(context.now, inbound.path.remote);
        }
    }

    /// Notes an authentic, new message over this path.
    pub(super) fn note_moved(&mut self, path: Path, context: &mut Context<'_>) {
        if path != self.path && self.nat.follows().allows(self.path.remote, path.remote) {
            self.path = path;
            // Section 2.23: retransmissions go to the new address as well.
            for ike in self.ikes.iter_mut().filter(|ike| ike.answered_on.is_some()) {
                ike.answered_on = Some(path);
            }
            context.out.push(Action::Follow { connection: self.connection, session: self.id, path });
        }
    }

    /// Notes an authentic packet from the remote address: the peer is alive.
    pub(super) fn note_traffic(&mut self, now: Time) {
        self.last_heard = self.last_heard.max(now);
        (self.unanswered, self.stray) = (None, None);
    }

    /// Notes that ESP was sent. Section 2.4: without packets in return, the peer may be dead.
    pub(super) fn note_sent(&mut self, now: Time) {
        self.unanswered.get_or_insert(now);
    }

    /// Notes an authentic packet from another address: a liveness check shows whether the peer is still at the known
    /// one.
    pub(super) fn note_strayed(&mut self, now: Time, from: SocketAddr) {
        self.unanswered.get_or_insert(now);
        self.stray = Some(from);
    }

    /// Queues a task until no procedure is pending.
    pub(super) fn ask(&mut self, task: Task, context: &mut Context<'_>) {
        self.enqueue(task);
        self.pump(context);
    }

    fn enqueue(&mut self, task: Task) {
        if self.closing.is_none() && !self.queue.contains(&task) {
            self.queue.push_back(task);
        }
    }

    fn delay(&mut self, at: Time, task: Task) {
        if !self.delayed.iter().any(|(_, other)| *other == task) {
            self.delayed.push((at, task));
        }
    }

    /// Starts the next task, if possible.
    fn pump(&mut self, context: &mut Context<'_>) {
        while self.over.is_none() {
            let Some(current) = self.current() else { return };
            if current.is_busy() {
                return;
            }
            if self.closing.is_some() {
                let spi = current.spi();
                return self.request_delete_ike(spi, context);
            }
            let Some(task) = self.queue.pop_front() else { return };
            match task {
                Task::Child(child) => self.request_child(child, context),
                Task::RekeyChild(_) | Task::RekeyIke if self.succession.is_final => self.reauthenticate(),
                Task::RekeyChild(spi) => self.request_rekey_child(spi, context),
                Task::DeleteChild(spi) => self.request_delete(spi, context),
                Task::Disown(spi) => self.request_disown(spi, context),
                Task::RekeyIke => self.request_rekey(context),
                Task::Liveness => self.request_liveness(context),
            }
        }
    }

    fn current(&self) -> Option<&IkeSa> {
        self.ikes.iter().find(|ike| ike.standing == Standing::Current)
    }

    fn ike(&self, spi: u64) -> Option<&IkeSa> {
        self.ikes.iter().find(|ike| ike.spi() == spi)
    }

    fn ike_mut(&mut self, spi: u64) -> Option<&mut IkeSa> {
        self.ikes.iter_mut().find(|ike| ike.spi() == spi)
    }

    fn child(&self, spi: u32) -> Option<&ChildEntry> {
        self.children.iter().find(|child| child.inbound == spi)
    }

    fn child_mut(&mut self, spi: u32) -> Option<&mut ChildEntry> {
        self.children.iter_mut().find(|child| child.inbound == spi)
    }

    /// Sends a request in the current IKE SA.
    fn send_request(
        &mut self,
        exchange: super::message::Exchange,
        payloads: &[Payload<'_>],
        procedure: Procedure,
        context: &mut Context<'_>,
    ) {
        let Some(spi) = self.current().map(IkeSa::spi) else { return };
        self.send_request_in(spi, exchange, payloads, procedure, context);
    }

    fn send_request_in(
        &mut self,
        spi: u64,
        exchange: super::message::Exchange,
        payloads: &[Payload<'_>],
        procedure: Procedure,
        context: &mut Context<'_>,
    ) {
        let path = self.path;
        let Some(ike) = self.ike_mut(spi) else { return };
        let datagrams =
            ike.channel.request((context.now, context.patience), exchange, payloads, context.random);
        ike.procedure = Some(procedure);
        context.send(path, datagrams);
    }

    /// Answers a request.
    fn respond(
        &mut self,
        spi: u64,
        incoming: &Incoming,
        path: Path,
        payloads: &[Payload<'_>],
        context: &mut Context<'_>,
    ) {
        let Some(ike) = self.ike_mut(spi) else { return };
        let datagrams = ike.channel.respond(incoming, payloads, context.random);
        ike.answered_on = Some(path);
        context.send(path, datagrams);
    }
}
