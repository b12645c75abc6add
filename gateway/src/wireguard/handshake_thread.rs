//! The handshake thread: one thread an interface that owns the protocol.
//!
//! It serves, in this order: commands, data path events, timers, and handshake messages from the network.
//! The network can only fill the bounded queue of these messages. The thread has a lower priority than the data path,
//! so that handshakes take little CPU time from it.
//!
//! ```text
//! commands ──> update, link, show ──┐
//! events, timers, messages ─────────┴──> device ──> actions (send, install, flush) and reports (the log)
//! ```

mod actions;
mod commands;
mod report;
mod show;

use super::callers::{Allowances, Callers};
use super::update::{Snapshot, Update, UpdateError};
use crate::datapath::DataPathEvent;
use crate::datapath::punt::{Datagram, Punt, QUEUE};
use crate::datapath::staging::Budget;
use crate::datapath::tables::Peer;
use crate::datapath::worker::Shared;
use crate::tunnel_interface::binding::Binding;
use crate::tunnel_interface::sender::Sender;
use crossbeam_channel::{Receiver, Select, TryRecvError};
use crypto::{Engine, PublicKey, Random};
use ipnet::IpNet;
use packet::DropCounters;
use port::{Transmit, Wake};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tunnel::Time;
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::{AllowedIps, Device, PeerId};

/// From this many waiting handshake messages on, senders must prove their addresses, and for a while after.
const UNDER_LOAD: usize = QUEUE / 8;
const UNDER_LOAD_FOR: Duration = Duration::from_secs(1);
/// Handshake messages served before anything else gets its turn.
const TURN: usize = 16;
/// How often binding a port is tried again after a failure when the interface came up.
const REBIND: Duration = Duration::from_secs(1);

/// A request of control.
pub enum Command {
    /// Apply an update; the reply says whether it was applied.
    Update(Update, Reply<Result<(), UpdateError>>),
    /// Show the interface and its peers.
    Snapshot(Reply<Snapshot>),
    /// Say of each of these peers whether it is not where it is called.
    Lost(Vec<PublicKey>, Reply<Vec<bool>>),
    /// The interface went up or down, or has another MTU.
    Link {
        /// Whether it is up.
        up: bool,
        /// Its MTU.
        mtu: usize,
    },
    /// Stop the thread.
    Stop,
}

/// The receiver of an answer.
pub type Reply<T> = tokio::sync::oneshot::Sender<T>;

/// The queues that the handshake thread serves.
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

/// The handshake thread.
pub struct HandshakeThread<T> {
    device: Device,
    shared: Shared,
    drops: Arc<DropCounters>,
    sender: Sender<T>,
    /// Wakes the worker that sends staged packets.
    outbound_wake: Arc<Wake>,
    binding: Binding,
    inbox: Inbox,
    peers: BTreeMap<PeerId, Entry>,
    routes: AllowedIps<PeerId>,
    /// Whether `routes` has changed since it was published.
    rerouted: bool,
    /// The budget for staged packets.
    budget: Budget,
    running: bool,
    /// When to try to bind again.
    rebind: Option<Time>,
    loaded_until: Option<Time>,
    /// The name of the interface, for the log.
    name: String,
    /// The names of peers, for the log.
    names: BTreeMap<PublicKey, String>,
    /// Sources of handshake messages that are not peers.
    callers: Callers,
    allowances: Allowances,
}

/// The parts of a handshake thread.
pub struct Parts<T> {
    /// The name of the interface.
    pub name: String,
    /// Makes keys for the data path.
    pub engine: Arc<dyn Engine>,
    /// Makes keys, indices and cookies.
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
    /// The queues to serve.
    pub inbox: Inbox,
    /// Receiving threads, over which peers are spread.
    pub receivers: u8,
}

struct Entry {
    peer: Arc<Peer>,
    /// Why the kernel refused the last handshake message to it, if it did.
    refusal: Option<Errno>,
    allowed: BTreeSet<IpNet>,
}

impl<T: Transmit> HandshakeThread<T> {
    /// A handshake thread without key and peers, for an interface that is down.
    pub fn new(parts: Parts<T>) -> Self {
        let Parts { name, engine, random, shared, outside, outbound_wake, drops, binding, inbox, receivers } =
            parts;
        let mut device = Device::new(engine, random);
        device.set_receivers(receivers);
        Self {
            device,
            sender: Sender::new(shared.clone(), outside, Arc::clone(&drops)),
            shared,
            outbound_wake,
            drops,
            binding,
            inbox,
            peers: BTreeMap::new(),
            routes: AllowedIps::default(),
            rerouted: false,
            budget: Budget::default(),
            running: false,
            rebind: None,
            loaded_until: None,
            name,
            names: BTreeMap::new(),
            callers: Callers::default(),
            allowances: Allowances::default(),
        }
    }

    /// Serves until a command stops it, or until the senders of commands are gone.
    pub fn run(mut self) {
        loop {
            loop {
                match self.inbox.commands.try_recv() {
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                    Ok(command) => self.command(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            for datapath_event in self.inbox.datapath_events.clone().try_iter() {
                self.datapath_event(datapath_event);
            }
            self.timers();
            let mut served = 0;
            while served < TURN {
                let waiting = self.inbox.datagrams.len();
                let Ok(datagram) = self.inbox.datagrams.try_recv() else { break };
                self.datagram(&datagram, waiting);
                served += 1;
            }
            if served == 0 {
                self.wait();
            }
        }
    }

    /// Waits for work; may return without any.
    fn wait(&self) {
        let next = [self.device.next_timeout(), self.rebind].into_iter().flatten().min();
        let mut select = Select::new();
        select.recv(&self.inbox.commands);
        select.recv(&self.inbox.datapath_events);
        select.recv(&self.inbox.datagrams);
        match next {
            Some(at) => _ = select.ready_timeout(at - self.shared.clock.monotonic()),
            None => _ = select.ready(),
        }
    }

    fn datapath_event(&mut self, datapath_event: DataPathEvent) {
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        match datapath_event {
            DataPathEvent::NoKey(peer) => self.device.handle_no_key(now, peer, &mut out),
            DataPathEvent::Activity(peer) => self.device.handle_activity(now, peer),
            DataPathEvent::Renewal(peer) => self.device.handle_renewal(now, peer, &mut out),
            DataPathEvent::Confirmed(index) => self.device.handle_confirmed(now, index, &mut out),
            // Handshake messages name their session by an index.
            DataPathEvent::Moved(_) | DataPathEvent::Exited(_) => {}
        }
        self.carry_out(out, None);
    }

    fn timers(&mut self) {
        let now = self.shared.clock.now();
        if self.device.next_timeout().is_some_and(|at| at <= now.monotonic) {
            let mut out = Outbox::new();
            self.device.handle_timeout(now, &mut out);
            self.carry_out(out, None);
        }
        if self.rebind.is_some_and(|at| at <= now.monotonic) {
            self.start(now);
        }
    }

    fn datagram(&mut self, datagram: &Datagram, waiting: usize) {
        let now = self.shared.clock.now();
        if waiting >= UNDER_LOAD {
            self.loaded_until = Some(now.monotonic + UNDER_LOAD_FOR);
        }
        let under_load = self.loaded_until.is_some_and(|until| now.monotonic < until);
        let mut out = Outbox::new();
        let source = datagram.endpoint.remote;
        match self.device.handle_datagram(now, source, datagram.bytes(), under_load, &mut out) {
            Ok(id) => {
                self.trace(Some(id), "received from", Some(source), datagram.bytes());
                if let Some(entry) = self.peers.get(&id) {
                    entry.peer.received.count(1, datagram.bytes().len() as u64);
                }
            }
            Err(reason) => {
                self.trace(None, reason.name(), Some(source), datagram.bytes());
                self.drops.count(reason, 1);
            }
        }
        self.carry_out(out, Some(datagram.endpoint));
    }
}
