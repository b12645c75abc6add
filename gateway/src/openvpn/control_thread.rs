//! The control thread: one thread an interface that owns the protocol, with TLS and the admission of clients.
//!
//! It serves, in this order: commands, data path events, timers, and control packets from the network. The network can only
//! fill the bounded queue of these packets. The thread has a lower priority than the data path.
//!
//! ```text
//! commands ──> link, show, stop ────┐
//! events, timers, packets ──────────┴──> side: server or client ──> actions (send, install, admit, report)
//! ```

mod actions;
mod client;
mod connections;
mod control_bytes;
mod gates;
mod history;
mod limits;
mod lines;
mod managed;
mod messages;
mod server;
mod show;
mod side;

use super::limits::{Limits, Watch};
use super::scripts::Hook;
use super::settings::{Role, Settings};
use super::tcp::Tcp;
use crate::datapath::DataPathEvent;
use crate::datapath::protocol::PeerState;
use crate::datapath::punt::{Datagram, Punt};
use crate::datapath::staging::Budget;
use crate::datapath::tables::Peer;
use crate::datapath::worker::Shared;
use crate::tunnel_interface::binding::Binding;
use crate::tunnel_interface::sender::Sender;
use client::ClientSide;
use control_bytes::ControlBytes;
use crossbeam_channel::{Receiver, Select, TryRecvError};
use crypto::{Engine, Random};
pub use history::Failed;
use history::History;
use ipnet::IpNet;
use lines::Lines;
pub use messages::{Chosen, ClientEvent, Command, Report, Stage, Victim};
use packet::{DropCounters, DropReason, Endpoint};
use port::{Transmit, Wake};
pub use server::Decision;
use server::{Answered, Answers, ServerSide};
pub use show::{Session, Snapshot};
use side::Side;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc;
use tunnel::openvpn::action::SessionNumber;
use tunnel::openvpn::activity::Activity;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::{Cause, Outbox, PeerAddress};
use tunnel::wireguard::AllowedIps;
use tunnel::{Now, PeerId, Time};

/// Control packets served before anything else gets its turn.
const TURN: usize = 16;
/// How often binding a port is tried again after a failure when the interface came up.
const REBIND: Duration = Duration::from_secs(1);

/// The queues that the control thread serves.
pub struct Inbox {
    /// From control.
    pub commands: Receiver<Command>,
    /// From the data path.
    pub datapath_events: Receiver<DataPathEvent>,
    /// From the network, by way of the data path.
    pub datagrams: Receiver<Datagram>,
    /// The sending end of `datagrams`, which keeps it open when the worker ends first.
    pub punt: Punt,
}

/// The parts of a control thread.
pub struct Parts<T> {
    /// The name of the interface.
    pub name: String,
    /// What it is to do.
    pub settings: Settings,
    /// Makes keys for the data path.
    pub engine: Arc<dyn Engine>,
    /// Makes session IDs.
    pub random: Box<dyn Random>,
    /// The tables and queues of the workers.
    pub shared: Shared,
    /// Sends outside.
    pub outside: T,
    /// Wakes the worker that sends outside.
    pub outbound_wake: Arc<Wake>,
    /// The drop counters.
    pub drops: Arc<DropCounters>,
    /// Binds the sockets.
    pub binding: Binding,
    /// TCP, if it is used.
    pub tcp: Option<Arc<Tcp>>,
    /// The queues to serve.
    pub inbox: Inbox,
    /// The sending end of the commands, for answers of programs.
    pub own: crossbeam_channel::Sender<Command>,
    /// Where the owner of the interface is told what a server has given us.
    pub reports: mpsc::UnboundedSender<Report>,
}

/// The control thread.
pub struct ControlThread<T> {
    side: Side,
    shared: Shared,
    drops: Arc<DropCounters>,
    sender: Sender<T>,
    outbound_wake: Arc<Wake>,
    binding: Binding,
    tcp: Option<Arc<Tcp>>,
    inbox: Inbox,
    reports: mpsc::UnboundedSender<Report>,
    /// The sessions that are connected.
    sessions: BTreeMap<SessionNumber, Entry>,
    routes: AllowedIps<SessionNumber>,
    /// Whether `routes` has changed since it was published.
    is_rerouted: bool,
    /// See [`Snapshot::ended`].
    ended: (u64, u64),
    control_bytes: ControlBytes,
    /// The budget for staged packets.
    budget: Budget,
    is_running: bool,
    /// Whether a server waits for its programs, and the state of its interface then.
    held: Option<(bool, usize)>,
    /// When to look at [`limits`].
    look_at: Option<Time>,
    limits: Limits,
    /// `passtos`.
    copies_dscp: bool,
    /// When to try to bind again.
    rebind: Option<Time>,
    /// See [`Settings::mssfix`].
    fitting: Option<usize>,
    /// The name of the interface, for the log.
    name: String,
    unauthenticated: Lines,
    history: History,
}

/// A connected session.
struct Entry {
    peer: Arc<Peer>,
    cipher: DataCipher,
    since: Time,
    /// The same, since 1970.
    since_wall: Duration,
    activity: Arc<Activity>,
    /// The prefixes that lead to it.
    prefixes: Vec<IpNet>,
    watch: Watch,
    /// The last endpoint that the protocol has accepted.
    endpoint: Endpoint,
}

/// The number of a session, as the data path knows it.
fn peer_id(session: SessionNumber) -> PeerId {
    PeerId::new(session.into())
}

impl<T: Transmit> ControlThread<T> {
    /// A control thread without sessions, for an interface that is down.
    pub fn new(parts: Parts<T>) -> Self {
        let Parts { name, settings, engine, random, shared, outside, .. } = parts;
        let Parts { outbound_wake, drops, mut binding, tcp, inbox, own, reports, .. } = parts;
        // Nothing is bound yet, so that nothing can be refused.
        let _ = binding.set_port(settings.port);
        binding.set_addresses(settings.udp);
        let waits = matches!(settings.role, Role::Server(_)) && settings.scripts.has(Hook::Up);
        let held = waits.then_some((false, settings.mtu as usize));
        let side = match settings.role {
            Role::Server(server) => {
                let answers = Answers { scripts: settings.scripts, own, reports: reports.clone() };
                Side::Server(Box::new(ServerSide::new(&name, *server, answers, engine, random)))
            }
            Role::Client(client) => {
                let (reports, tcp) = (reports.clone(), tcp.clone());
                Side::Client(Box::new(ClientSide::new(*client, engine, random, reports, tcp)))
            }
        };
        Self {
            side,
            sender: Sender::new(shared.clone(), outside, Arc::clone(&drops)),
            shared,
            drops,
            outbound_wake,
            binding,
            tcp,
            inbox,
            reports,
            sessions: BTreeMap::new(),
            routes: AllowedIps::default(),
            is_rerouted: false,
            ended: (0, 0),
            control_bytes: ControlBytes::default(),
            budget: Budget::default(),
            is_running: false,
            held,
            look_at: None,
            limits: settings.limits,
            copies_dscp: settings.copies_dscp,
            rebind: None,
            fitting: settings.mssfix.map(usize::from),
            name,
            unauthenticated: Lines::default(),
            history: History::default(),
        }
    }

    /// Serves until a command stops it, or until the senders of commands are gone.
    pub fn run(mut self) {
        loop {
            loop {
                match self.inbox.commands.try_recv() {
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => {
                        self.end_all();
                        if let Side::Server(server) = &mut self.side {
                            server.finish();
                        }
                        return;
                    }
                    Ok(command) => self.command(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            for datapath_event in self.inbox.datapath_events.clone().try_iter() {
                self.datapath_event(datapath_event);
            }
            self.timers();
            self.connections();
            let mut served = 0;
            while served < TURN {
                let Ok(datagram) = self.inbox.datagrams.try_recv() else { break };
                self.datagram(&datagram);
                served += 1;
            }
            if served == 0 {
                self.wait();
            }
        }
    }

    /// Waits for work; may return without any.
    fn wait(&self) {
        let next = [self.side.next_timeout(), self.rebind, self.look_at].into_iter().flatten().min();
        let mut select = Select::new();
        select.recv(&self.inbox.commands);
        select.recv(&self.inbox.datapath_events);
        select.recv(&self.inbox.datagrams);
        let mut waits = next.map(|at| at - self.shared.clock.monotonic());
        if let Some(tcp) = &self.tcp {
            select.recv(tcp.told());
            waits = waits.into_iter().chain(tcp.next_timeout()).min();
        }
        match waits {
            Some(waits) => _ = select.ready_timeout(waits),
            None => _ = select.ready(),
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            // An answer that cannot be delivered is dropped: the caller has given up.
            Command::Snapshot(reply) => _ = reply.send(self.snapshot()),
            Command::Link { up, mtu } => match &mut self.held {
                Some(held) => *held = (up, mtu),
                None => self.link(up, mtu),
            },
            Command::Release => {
                if let Some((up, mtu)) = self.held.take() {
                    self.link(up, mtu);
                }
            }
            Command::Servers(remotes) => self.side.set_remotes(remotes),
            Command::ForClients(change) => {
                self.answered(|server, now, out| server.adopt(now, change, out));
            }
            Command::Answer(credentials) => {
                let now = self.shared.clock.now();
                self.call(now, |side, out| side.answer(now, credentials, out));
            }
            Command::Answered { session, ticket, answer } => {
                self.answered(|server, now, out| {
                    server.answered(now, session, ticket, Answered::Program(answer), out);
                });
            }
            Command::Checked { session, ticket, is_right } => {
                self.answered(|server, now, out| {
                    server.answered(now, session, ticket, Answered::Password(is_right), out);
                });
            }
            Command::PasswordHashes(answer) => self.answered(|server, _, _| server.hashes(&answer)),
            Command::Revocations(answer) => {
                let now = self.shared.clock.now();
                self.call(now, |side, out| match side {
                    Side::Server(server) => server.revocations(now, &answer, out),
                    Side::Client(client) => client.revocations(now, &answer, out),
                });
            }
            Command::Decide { client, key, decision, reply } => {
                self.answered(|server, now, out| {
                    _ = reply.send(server.take_decision(now, client, key, decision, out));
                });
            }
            Command::Pending { client, key, text, wait, reply } => {
                self.answered(|server, now, out| {
                    _ = reply.send(server.take_pending(now, client, key, &text, wait, out));
                });
            }
            Command::Respond(text, reply) => {
                self.of_client(|client, now, out| _ = reply.send(client.core.respond(now, &text, out)));
            }
            Command::AuthRetry(retry) => self.of_client(|client, _, _| client.login.set_retry(retry)),
            Command::Forget => self.of_client(|client, _, _| client.login.forget_all()),
            Command::LeaveHold => self.of_client(ClientSide::leave_hold),
            Command::Remote(chosen) => self.of_client(|client, now, out| client.choose(now, chosen, out)),
            Command::Restart if self.is_running => {
                self.end_all();
                let now = self.shared.clock.now();
                self.call(now, |side, out| side.start(now, out));
            }
            Command::Disconnect { victim, told, reply } => _ = reply.send(self.disconnect(&victim, &told)),
            Command::Restart | Command::Stop => {}
        }
    }

    /// A question about a client is answered.
    fn answered(&mut self, act: impl FnOnce(&mut ServerSide, Now, &mut Outbox)) {
        let now = self.shared.clock.now();
        self.call(now, |side, out| {
            if let Side::Server(server) = side {
                act(server, now, out);
            }
        });
    }

    fn link(&mut self, up: bool, mtu: usize) {
        self.shared.tables.mtu.store(mtu, Ordering::Relaxed);
        if up == self.is_running {
            return;
        }
        self.is_running = up;
        if up {
            self.start(self.shared.clock.now());
        } else {
            self.end_all();
            self.binding.close();
            self.tcp.iter().for_each(|tcp| tcp.close());
            self.rebind = None;
        }
    }

    fn start(&mut self, now: Now) {
        match self.open() {
            Ok(()) => {
                self.rebind = None;
                // The owner may be about to end.
                let _ = self.reports.send(Report::Listens);
                self.call(now, |side, out| side.start(now, out));
            }
            Err(error) => {
                tracing::error!("interface {}: {error}", self.name);
                self.rebind = Some(now.monotonic + REBIND);
            }
        }
    }

    /// Ends all sessions, and tells the peers.
    fn end_all(&mut self) {
        let now = self.shared.clock.now();
        let sessions: Vec<SessionNumber> = self.sessions.keys().copied().collect();
        self.call(now, |side, out| side.stop(now, &sessions, out));
    }

    fn datapath_event(&mut self, datapath_event: DataPathEvent) {
        let now = self.shared.clock.now();
        match datapath_event {
            DataPathEvent::Renewal(peer) => {
                if let Some(session) = self.session(peer) {
                    self.call(now, |side, out| side.renew(now, session, out));
                }
            }
            DataPathEvent::Confirmed(index) => {
                let peer = self.shared.tables.session(index).map(|session| session.peer.id);
                if let Some(session) = peer.and_then(|peer| self.session(peer)) {
                    self.call(now, |side, out| side.confirm(now, session, index, out));
                }
            }
            DataPathEvent::Moved(peer) => self.moved(peer),
            DataPathEvent::Exited(peer) => {
                if let Some(session) = self.session(peer) {
                    self.call(now, |side, out| side.exited(now, session, out));
                }
            }
            // A session without a key has ended, or is about to have one. Timers look at the activity when they are due.
            DataPathEvent::NoKey(_) | DataPathEvent::Activity(_) => {}
        }
    }

    /// A client has moved: its control packets come from there, too.
    fn moved(&mut self, peer: PeerId) {
        let Some(session) = self.session(peer) else { return };
        let Some(entry) = self.sessions.get_mut(&session) else { return };
        let PeerState::OpenVpn(link) = &entry.peer.state else { return };
        let Some(endpoint) = link.moved().filter(|it| !entry.peer.endpoint.is(it)) else { return };
        if let Side::Server(server) = &mut self.side {
            let (name, whose) = (&self.name, server.name_of(session));
            if server.core.handle_move(session, endpoint) {
                tracing::info!("interface {name}: {whose} is at {endpoint} now");
                entry.endpoint = endpoint;
                entry.peer.endpoint.store(Some(endpoint));
                self.judge_again();
            } else {
                tracing::warn!(
                    "interface {name}: {whose} does not move to {endpoint}, the address of another client"
                );
            }
        } else if let Side::Client(client) = &mut self.side {
            tracing::info!("interface {}: the server is at {endpoint} now", self.name);
            client.core.handle_move(endpoint);
            entry.endpoint = endpoint;
            entry.peer.endpoint.store(Some(endpoint));
        }
    }

    /// An address has become free: a client that was refused it may be there.
    fn judge_again(&self) {
        for entry in self.sessions.values() {
            if let PeerState::OpenVpn(link) = &entry.peer.state {
                link.judge_again();
            }
        }
    }

    fn timers(&mut self) {
        let now = self.shared.clock.now();
        if self.side.next_timeout().is_some_and(|at| at <= now.monotonic) {
            self.call(now, |side, out| side.handle_timeout(now, out));
        }
        if self.look_at.is_some_and(|at| at <= now.monotonic) {
            self.look_at_limits(now);
        }
        if self.rebind.is_some_and(|at| at <= now.monotonic) {
            self.start(now);
        }
    }

    fn datagram(&mut self, datagram: &Datagram) {
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        let (from, packet) = (PeerAddress::from(datagram.endpoint), datagram.bytes());
        self.control_bytes.received(from, packet.len());
        let result = match &mut self.side {
            Side::Server(server) => server.core.handle_packet(now, from, packet, &mut out),
            Side::Client(client) => client.handle_packet(now, from, packet, &mut out),
        };
        if let Err(error) = result {
            tracing::debug!("interface {}: control packet of {from}: {error}", self.name);
            self.drops.count(DropReason::BadHandshake, 1);
        }
        self.carry_out(now, out, Some(datagram.endpoint));
    }

    /// Calls the protocol, and does what it asks.
    fn call(&mut self, now: Now, act: impl FnOnce(&mut Side, &mut Outbox)) {
        let mut out = Outbox::new();
        act(&mut self.side, &mut out);
        self.carry_out(now, out, None);
    }

    /// The session of a peer, if it has not ended.
    fn session(&self, peer: PeerId) -> Option<SessionNumber> {
        let session = SessionNumber::try_from(peer.number()).ok()?;
        self.sessions.contains_key(&session).then_some(session)
    }

    /// Logs the end of a session.
    fn say_closed(&mut self, session: SessionNumber, was_connected: bool, cause: &Cause) {
        let now = self.shared.clock.monotonic();
        let name = &self.name;
        let whose = self.side.name_of(session);
        let peer = self.side.peer_name(session);
        let (interface, peer) = (name.as_str(), Some(peer.as_str()).filter(|peer| !peer.is_empty()));
        let is_ours = matches!(self.side, Side::Client(_));
        if was_connected || is_ours {
            return tracing::info!(
                interface,
                peer,
                "interface {name}: the session with {whose} has ended: {cause}"
            );
        }
        if let Some(left_out) = self.unauthenticated.take(now) {
            tracing::info!(interface, peer, "interface {name}: {whose} is not connected: {cause}");
            if left_out > 0 {
                tracing::info!("interface {name}: {left_out} such lines were left out");
            }
        }
    }
}
