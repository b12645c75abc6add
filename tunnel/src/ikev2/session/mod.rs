//! A session: both sides have shown who they are (RFC 7296 sections 1.3, 1.4 and 2.8).
//!
//! ```text
//! datagram ──> IkeSa::channel ──> requests.rs    what the other side asks for
//!                            └──> responses.rs   what has become of what we asked for: a Procedure
//! task     ──> queue, one at a time: a procedure begins when the one before has ended
//! ```
//! The Child SAs belong to the session, not to an IKE SA: rekeying changes which IKE SA is current, and nothing is
//! moved. Each file beside this one holds both sides of one matter: `child` makes and rekeys Child SAs, `rekey` the IKE
//! SA, `teardown` ends either.

mod adopt;
mod agreement;
mod anew;
mod ask;
mod child;
mod entry;
mod quota;
mod rekey;
mod request;
mod requests;
mod responses;
mod status;
mod teardown;
mod timers;
mod translate;

pub(super) use request::Request;

use super::action::{Action, CloseReason, Event, SessionId};
use super::channel::{Channel, Incoming, Received};
use super::config::{Connection, ConnectionId};
use super::context::Context;
use super::identity::Identity;
use super::keys::{Role, Root};
use super::limits::{NAT_KEEPALIVE, TEMPORARY_FAILURE_DELAY};
use super::message::{Body, Payload};
use super::nat::{Nat, Path};
use super::proposal::IkeSuite;
use super::setup::{Inbound, Verified};
use crate::Time;
use anew::Succession;
use entry::{ChildEntry, ChildStanding, IkeSa, Procedure, Standing};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

/// What a session is made of.
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

/// Something that is to be done when nothing else is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Make the Child SA of this number in the configuration.
    Child(usize),
    /// Replace the Child SA that we receive with under this SPI.
    RekeyChild(u32),
    /// Delete it.
    DeleteChild(u32),
    /// Delete one that the other side has made and we have not.
    Disown(u32),
    /// Replace the IKE SA.
    RekeyIke,
    /// Ask for a sign of life.
    Liveness,
}

/// See the module.
pub(super) struct Session {
    id: SessionId,
    connection: ConnectionId,
    config: Arc<Connection>,
    identity: Identity,
    initiated: bool,
    initiator_spi: u64,
    /// Both ends as they were when the other side showed who it is. Selectors are bound to these addresses: where its
    /// datagrams come from later, it can choose as it likes.
    authenticated: Path,
    /// Where its datagrams go from and to.
    path: Path,
    nat: Nat,
    ikes: Vec<IkeSa>,
    children: Vec<ChildEntry>,
    /// When children were last refused.
    refused: HashMap<usize, Time>,
    /// Since when all that was asked for was refused as a temporary failure.
    put_off: Option<Time>,
    queue: VecDeque<Task>,
    delayed: Vec<(Time, Task)>,
    since: Time,
    last_heard: Time,
    /// Since when we send, and nothing comes back from there.
    unanswered: Option<Time>,
    /// Where authentic packets came from that is not where we send to.
    stray: Option<SocketAddr>,
    next_keepalive: Time,
    /// Key exchanges that were too many.
    refused_exchanges: u64,
    initial_contact: bool,
    succession: Succession,
    closing: Option<CloseReason>,
    over: Option<CloseReason>,
}

impl Session {
    /// A session without Child SAs.
    pub(super) fn new(beginning: Beginning, verified: Verified, context: &mut Context<'_>) -> Self {
        let Beginning { id, connection, config, path, nat, channel, root, suite } = beginning;
        let identity = verified.identity().clone();
        context.report(Event::Established {
            connection,
            session: id,
            identity: identity.clone(),
            suite: suite.to_string(),
            path,
        });
        let (initiated, initiator_spi) = (channel.role() == Role::Initiator, channel.spis().initiator);
        let ike = IkeSa::new(channel, (root, suite), Standing::Current, config.lifetime, context);
        Self {
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
        }
    }

    /// The other side says that it knows of no other session with us.
    pub(super) fn set_initial_contact(&mut self) {
        self.initial_contact = true;
    }

    /// Whether the other side said so.
    pub(super) fn initial_contact(&self) -> bool {
        self.initial_contact
    }

    pub(super) fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Who the other side is.
    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether we began it.
    pub(super) fn initiated(&self) -> bool {
        self.initiated
    }

    /// Since when it is there.
    pub(super) fn since(&self) -> Time {
        self.since
    }

    /// What both sides call the first IKE SA.
    pub(super) fn initiator_spi(&self) -> u64 {
        self.initiator_spi
    }

    /// When something authentic last came from the other side.
    pub(super) fn last_heard(&self) -> Time {
        self.last_heard
    }

    /// Which children of the connection are in use.
    pub(super) fn live_children(&self) -> Vec<usize> {
        let live = self.children.iter().filter(|child| child.standing == ChildStanding::Live);
        live.map(|child| child.child).collect()
    }

    /// When a child was last refused.
    pub(super) fn refused(&self, child: usize) -> Option<Time> {
        self.refused.get(&child).copied()
    }

    /// Whether nothing is under way and no child waits for its turn: each is there, or was refused for good.
    pub(super) fn is_settled(&self) -> bool {
        let is_waiting = self.delayed.iter().any(|(_, task)| matches!(task, Task::Child(_)));
        !is_waiting && self.queue.is_empty() && self.current().is_some_and(|ike| !ike.channel.is_busy())
    }

    /// Takes the place of a session that had these children: what the other side refused as long as that one had it is
    /// asked for again.
    pub(super) fn inherit(&mut self, children: &[usize], context: &mut Context<'_>) {
        let live = self.live_children();
        for child in children.iter().filter(|child| !live.contains(child)) {
            let at = context.after_about(TEMPORARY_FAILURE_DELAY);
            self.delay(at, Task::Child(*child));
        }
    }

    /// Why it is over, if it is.
    pub(super) fn over(&self) -> Option<CloseReason> {
        self.over
    }

    /// Whether it is being ended.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.is_some() || self.over.is_some()
    }

    /// Handles a message for the IKE SA of the SPI `spi`.
    pub(super) fn handle(&mut self, spi: u64, inbound: &Inbound<'_>, context: &mut Context<'_>) {
        let Some(ike) = self.ike_mut(spi) else { return };
        // Which of two IKE SAs survives is not known yet: what the other side wants of this one must wait, and comes
        // again.
        if ike.standing == Standing::Candidate && !inbound.message.header.is_response {
            return;
        }
        match ike.channel.receive(&inbound.message) {
            // Anyone on the way can copy a request and repeat it from an address of its choice.
            Received::Again(datagrams) => {
                if let Some(path) = ike.answered_on {
                    context.send(path, datagrams);
                }
            }
            Received::Nothing => {}
            Received::Request(incoming) => {
                self.handle_request(spi, &incoming, inbound.path, context);
                self.heard(inbound, context);
            }
            Received::Response(incoming) => {
                self.handle_response(spi, &incoming, context);
                self.heard(inbound, context);
            }
        }
        self.pump(context);
    }

    /// A message that is authentic, new and in its turn has been handled: the other side lives, and this is where it is.
    fn heard(&mut self, inbound: &Inbound<'_>, context: &mut Context<'_>) {
        // The pieces of one message can have come from several addresses.
        if self.over.is_none() && matches!(inbound.message.body, Body::Encrypted(_)) {
            self.note_moved(inbound.path, context);
        }
        // What answers us has been reached. What asks, and is not where we send to, may not be.
        if inbound.message.header.is_response || inbound.path.remote == self.path.remote {
            self.note_traffic(context.now);
        } else {
            self.note_strayed(context.now, inbound.path.remote);
        }
    }

    /// Something authentic and new came this way.
    pub(super) fn note_moved(&mut self, path: Path, context: &mut Context<'_>) {
        if path != self.path && self.nat.follows().allows(self.path.remote, path.remote) {
            self.path = path;
            // Section 2.23: what is sent again goes there as well.
            for ike in self.ikes.iter_mut().filter(|ike| ike.answered_on.is_some()) {
                ike.answered_on = Some(path);
            }
            context.out.push(Action::Follow { session: self.id, path });
        }
    }

    /// Something authentic came from where we send to: the other side lives.
    pub(super) fn note_traffic(&mut self, now: Time) {
        self.last_heard = self.last_heard.max(now);
        (self.unanswered, self.stray) = (None, None);
    }

    /// ESP of this session was sent. Section 2.4: if nothing comes back, it may lead nowhere.
    pub(super) fn note_sent(&mut self, now: Time) {
        self.unanswered.get_or_insert(now);
    }

    /// Something authentic came from where we do not send to: whether the other side is still there is to be seen.
    pub(super) fn note_strayed(&mut self, now: Time, from: SocketAddr) {
        self.unanswered.get_or_insert(now);
        self.stray = Some(from);
    }

    /// Has a task done as soon as nothing else is under way.
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

    /// Begins what can be begun.
    fn pump(&mut self, context: &mut Context<'_>) {
        while self.over.is_none() {
            let Some(current) = self.current() else { return };
            if current.channel.is_busy() {
                return;
            }
            if self.closing.is_some() {
                let spi = current.spi();
                return self.say_farewell(spi, context);
            }
            let Some(task) = self.queue.pop_front() else { return };
            match task {
                Task::Child(child) => self.request_child(child, context),
                Task::RekeyChild(_) | Task::RekeyIke if self.succession.is_final => self.begin_anew(),
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
