//! The handshake thread: one thread an interface that owns the protocol.
//!
//! It serves, in this order: commands, data path events, timers, and handshake messages from the network.
//! Whatever the network sends, it can only fill the bounded queue of the last kind; and the handshake thread has a lower priority than
//! the data path, so that handshakes take little from it.

use super::callers::{About, Allowances, Callers};
use super::update::{PeerSnapshot, PeerUpdate, Snapshot, Update, UpdateError};
use crate::datapath::DataPathEvent;
use crate::datapath::protocol::PeerState;
use crate::datapath::punt::{Datagram, Punt, QUEUE};
use crate::datapath::staging::Budget;
use crate::datapath::tables::{Order, Peer, Session};
use crate::datapath::worker::Shared;
use crate::tunnel_interface::binding::Binding;
use crate::tunnel_interface::sender::Sender;
use crossbeam_channel::{Receiver, Select, TryRecvError};
use crypto::{Engine, PublicKey, Random};
use ipnet::IpNet;
use packet::{DropCounters, Endpoint};
use port::{Transmit, Wake};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::limits::HANDSHAKE_DS_FIELD;
use tunnel::wireguard::{Action, AllowedIps, Device, Event, PeerId};
use tunnel::{Now, Time};

/// From this many waiting handshake messages on, senders must prove their addresses, and for a while after.
const UNDER_LOAD: usize = QUEUE / 8;
const UNDER_LOAD_FOR: Duration = Duration::from_secs(1);
/// Handshake messages served before anything else gets its turn.
const TURN: usize = 16;
/// How often a port is tried again that could not be bound when the interface came up.
const REBIND: Duration = Duration::from_secs(1);

/// What the handshake thread is asked by others.
pub enum Command {
    /// Change something, and say whether it was done.
    Update(Update, Reply<Result<(), UpdateError>>),
    /// Show everything.
    Snapshot(Reply<Snapshot>),
    /// The interface went up or down, or has another MTU.
    Link {
        /// Whether it is up.
        up: bool,
        /// Its MTU.
        mtu: usize,
    },
    /// End.
    Stop,
}

/// Where an answer goes.
pub type Reply<T> = tokio::sync::oneshot::Sender<T>;

/// Where the handshake thread's work comes from.
pub struct Inbox {
    /// From control.
    pub commands: Receiver<Command>,
    /// From the data path.
    pub datapath_events: Receiver<DataPathEvent>,
    /// From the network, by way of the data path.
    pub datagrams: Receiver<Datagram>,
    /// The other end of `datagrams`, which keeps it open when the worker ends first.
    pub punt: Punt,
}

/// The handshake thread.
pub struct HandshakeThread<T> {
    device: Device,
    shared: Shared,
    drops: Arc<DropCounters>,
    sender: Sender<T>,
    /// Wakes the worker that sends what waited for a key.
    outbound_wake: Arc<Wake>,
    binding: Binding,
    inbox: Inbox,
    peers: BTreeMap<PeerId, Entry>,
    routes: AllowedIps<PeerId>,
    /// Whether the workers have yet to see `routes` as they are.
    rerouted: bool,
    /// Of the packets that wait for keys.
    budget: Budget,
    running: bool,
    /// When to try again to bind.
    rebind: Option<Time>,
    loaded_until: Option<Time>,
    /// The interface, for the log.
    name: String,
    /// Peers, for the log.
    names: BTreeMap<PublicKey, String>,
    /// Callers that are not peers.
    callers: Callers,
    allowances: Allowances,
}

/// What a handshake thread is made of.
pub struct Parts<T> {
    /// The name of the interface.
    pub name: String,
    /// Makes keys for the data path.
    pub engine: Arc<dyn Engine>,
    /// Makes keys, indices and cookies.
    pub random: Box<dyn Random>,
    /// What the workers share.
    pub shared: Shared,
    /// Sends outside.
    pub outside: T,
    /// Wakes the worker that sends outside.
    pub outbound_wake: Arc<Wake>,
    /// Where drops are counted.
    pub drops: Arc<DropCounters>,
    /// Binds the sockets.
    pub binding: Binding,
    /// Where work comes from.
    pub inbox: Inbox,
}

struct Entry {
    peer: Arc<Peer>,
    allowed: BTreeSet<IpNet>,
}

impl<T: Transmit> HandshakeThread<T> {
    /// A handshake thread without key and peers, for an interface that is down.
    pub fn new(parts: Parts<T>) -> Self {
        let Parts { name, engine, random, shared, outside, outbound_wake, drops, binding, inbox } = parts;
        Self {
            device: Device::new(engine, random),
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

    /// Serves until it is told to stop, or until nobody is left who could tell.
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

    /// Waits for anything to do; may return without it.
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

    fn command(&mut self, command: Command) {
        // Whoever asked may have gone: then nobody misses the answer.
        match command {
            Command::Update(update, reply) => _ = reply.send(self.update(update)),
            Command::Snapshot(reply) => _ = reply.send(self.snapshot()),
            Command::Link { up, mtu } => self.link(up, mtu),
            Command::Stop => {}
        }
    }

    fn datapath_event(&mut self, datapath_event: DataPathEvent) {
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        match datapath_event {
            DataPathEvent::NoKey(peer) => self.device.handle_no_key(now, peer, &mut out),
            DataPathEvent::Activity(peer) => self.device.handle_activity(now, peer),
            DataPathEvent::Renewal(peer) => self.device.handle_renewal(now, peer, &mut out),
            DataPathEvent::Confirmed(index) => self.device.handle_confirmed(now, index, &mut out),
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
                if let Some(entry) = self.peers.get(&id) {
                    entry.peer.received.count(1, datagram.bytes().len());
                }
            }
            Err(reason) => self.drops.count(reason, 1),
        }
        self.carry_out(out, Some(datagram.endpoint));
    }
}

/// What the protocol wants done.
impl<T: Transmit> HandshakeThread<T> {
    fn carry_out(&mut self, out: Outbox, source: Option<Endpoint>) {
        for action in out {
            match action {
                Action::Reply { peer: id, message } => {
                    if let Some(peer) = id.and_then(|id| self.peer(id)) {
                        peer.sent.count(1, message.len());
                    }
                    self.send_message(source, &message);
                }
                Action::Retire { index } => self.shared.tables.retire(index),
                Action::Send { peer: id, message } => {
                    let Some(peer) = self.peer(id) else { continue };
                    peer.sent.count(1, message.len());
                    self.send_message(peer.endpoint.load().as_deref().copied(), &message);
                }
                Action::Learn { peer: id } => {
                    if let (Some(peer), Some(source)) = (self.peer(id), source) {
                        peer.endpoint.store(Some(Arc::new(source)));
                    }
                }
                Action::Install { peer: id, sa, next } => {
                    if let Some(peer) = self.peer(id) {
                        if let Some(next) = next {
                            peer.use_when_confirmed(sa.index, next);
                        }
                        self.shared.tables.install(Session { sa, peer, selectors: None, transport: None });
                    }
                }
                Action::Use { peer: id, sa } => {
                    if let Some(peer) = self.peer(id) {
                        peer.use_key(sa);
                    }
                }
                Action::Flush { peer: id, confirm } => self.flush(id, confirm),
                Action::Keepalive { peer: id } => self.keepalive(id),
                Action::Purge { peer: id } => {
                    if let Some(peer) = self.peer(id) {
                        self.shared.tables.orders.give(&peer, Order::Drop, &self.outbound_wake);
                    }
                }
                Action::ForgetSource { peer: id } => {
                    if let Some(peer) = self.peer(id) {
                        peer.forget_source();
                    }
                }
                Action::Report(event) => self.report(event, source),
            }
        }
    }

    /// Logs what an operator must know, in bounds: unauthenticated sources and ten thousand peers may cause it.
    fn report(&mut self, event: Event, source: Option<Endpoint>) {
        let now = self.shared.clock.now();
        let (about, text) = match event {
            Event::Up(id) => (About::Peer, format!("{} is up", self.described(id))),
            Event::Silent(id) => (About::Peer, format!("{} does not answer", self.described(id))),
            Event::Idle(id) => (About::Peer, format!("{} is idle: its keys are erased", self.described(id))),
            Event::UnknownPeer(public) => {
                let Some(source) = source.filter(|it| self.callers.note(Some(public), it.remote, now)) else {
                    return;
                };
                let from = source.remote;
                (About::Caller, format!("{from} calls with the public key {public}, which no peer has"))
            }
            Event::NotForUs => {
                let Some(source) = source.filter(|it| self.callers.note(None, it.remote, now)) else {
                    return;
                };
                (About::Caller, format!("{} calls another public key than ours", source.remote))
            }
        };
        if let Some(left_out) = self.allowances.take(about, now.monotonic) {
            let (name, of) = (&self.name, about.plural());
            if left_out > 0 {
                tracing::info!("interface {name}: {left_out} lines about {of} were left out");
            }
            tracing::info!("interface {name}: {text}");
        }
    }

    /// A peer, and where it is, for the log.
    fn described(&self, id: PeerId) -> String {
        let now = self.shared.clock.monotonic();
        let public = self.device.status(now, id).map(|status| status.public);
        let name =
            public.map(|public| self.names.get(&public).cloned().unwrap_or_else(|| public.to_string()));
        let endpoint = self.peer(id).and_then(|peer| peer.endpoint.load_full());
        let at = endpoint.map_or_else(String::new, |endpoint| format!(" at {}", endpoint.remote));
        format!("peer {}{at}", name.unwrap_or_default())
    }

    fn peer(&self, id: PeerId) -> Option<Arc<Peer>> {
        self.peers.get(&id).map(|entry| Arc::clone(&entry.peer))
    }

    fn send_message(&mut self, to: Option<Endpoint>, message: &[u8]) {
        self.sender.message(to, message, HANDSHAKE_DS_FIELD);
    }

    fn keepalive(&mut self, id: PeerId) {
        if let Some(peer) = self.peer(id) {
            self.sender.keepalive(&peer);
        }
    }

    /// Has sent what waits for a key; if nothing does and we must show that we have it, a keepalive.
    fn flush(&mut self, id: PeerId, confirm: bool) {
        let Some(peer) = self.peer(id) else { return };
        let some = self.shared.tables.orders.give(&peer, Order::Send, &self.outbound_wake);
        if confirm && !some {
            self.keepalive(id);
        }
    }
}

/// What control wants done.
impl<T: Transmit> HandshakeThread<T> {
    fn link(&mut self, up: bool, mtu: usize) {
        self.shared.tables.mtu.store(mtu, Ordering::Relaxed);
        if up == self.running {
            return;
        }
        self.running = up;
        if up {
            self.start(self.shared.clock.now());
        } else {
            let mut out = Outbox::new();
            self.device.stop(&mut out);
            self.carry_out(out, None);
            self.binding.close();
            self.rebind = None;
        }
    }

    fn start(&mut self, now: Now) {
        match self.binding.open() {
            Ok(()) => {
                self.rebind = None;
                self.device.start(now.monotonic);
                // Packets that came before the interface was known to be up have asked for a key already, in vain.
                let waiting = self.peers.iter().filter(|(_, entry)| entry.peer.staging.is_occupied());
                for id in waiting.map(|(&id, _)| id).collect::<Vec<_>>() {
                    self.datapath_event(DataPathEvent::NoKey(id));
                }
            }
            Err(error) => {
                tracing::error!("{error}");
                self.rebind = Some(now.monotonic + REBIND);
            }
        }
    }

    /// Does the whole update or, when a socket cannot be had, nothing of it.
    fn update(&mut self, update: Update) -> Result<(), UpdateError> {
        let mark = self.binding.fwmark();
        self.binding.set_fwmark(update.fwmark.unwrap_or(mark))?;
        if let Some(port) = update.listen_port {
            self.binding.set_port(port).inspect_err(|_| _ = self.binding.set_fwmark(mark))?;
        }
        if update.fwmark.is_some() || update.listen_port.is_some() {
            self.forget_sources();
        }
        let (mut out, mut gone) = (Outbox::new(), Vec::new());
        if let Some(names) = update.names {
            self.names = names;
        }
        if let Some(eager) = update.eager {
            self.device.set_eager(self.shared.clock.monotonic(), eager);
        }
        if let Some(key) = update.private_key {
            let key = Some(key).filter(|key| !key.is_zero());
            let ourselves = self.device.set_private_key(self.shared.clock.monotonic(), key, &mut out);
            if ourselves.is_some() {
                self.say_own_key();
            }
            gone.extend(ourselves);
        }
        if update.replace_peers {
            for id in self.device.peers() {
                self.device.remove_peer(id, &mut out);
                gone.push(id);
            }
        }
        // Keys are taken from peers that are still known.
        self.carry_out(out, None);
        for id in gone {
            self.forget(id);
        }
        for peer in update.peers {
            self.update_peer(peer);
        }
        if std::mem::take(&mut self.rerouted) {
            self.publish();
        }
        Ok(())
    }

    fn update_peer(&mut self, update: PeerUpdate) {
        // An interface that is listed as its own peer is passed over, as the kernel's is.
        if self.device.private_key().is_some_and(|key| key.public() == update.public) {
            if !update.remove {
                self.say_own_key();
            }
            return;
        }
        let mut out = Outbox::new();
        let known = self.device.peer(&update.public);
        if update.remove {
            if let Some(id) = known {
                self.device.remove_peer(id, &mut out);
                self.carry_out(out, None);
                self.forget(id);
            }
            return;
        }
        let id = match known {
            Some(id) => id,
            None if update.update_only => return,
            None => self.add_peer(update.public),
        };
        if let Some(preshared) = update.preshared {
            self.device.set_preshared_key(id, preshared);
        }
        if let Some(remote) = update.endpoint {
            self.peers[&id].peer.endpoint.store(Some(Arc::new(Endpoint::new(remote))));
            self.device.set_reachable(self.shared.clock.monotonic(), id);
        }
        self.update_allowed_ips(id, update.replace_allowed_ips, &update.allowed_ips);
        if let Some(seconds) = update.persistent_keepalive {
            let every = (seconds != 0).then(|| Duration::from_secs(seconds.into()));
            self.device.set_persistent_keepalive(self.shared.clock.monotonic(), id, every, &mut out);
        }
        self.carry_out(out, None);
    }

    fn say_own_key(&self) {
        let (name, own) = (&self.name, self.device.private_key().map(crypto::PrivateKey::public));
        let own = own.map(|key| key.to_string()).unwrap_or_default();
        tracing::warn!(
            "interface {name}: there is no peer {own}: that is the public key of the interface itself\n  \
             fix: wg set {name} peer KEY ..., with the public key of the other side, which wg show says there"
        );
    }

    fn add_peer(&mut self, public: PublicKey) -> PeerId {
        self.callers.forget(&public);
        let (id, activity) = self.device.add_peer(public);
        let peer = Arc::new(Peer::new(id, PeerState::WireGuard(activity), self.budget.clone()));
        self.peers.insert(id, Entry { peer, allowed: BTreeSet::new() });
        id
    }

    fn update_allowed_ips(
        &mut self,
        id: PeerId,
        replace: bool,
        changes: &[crate::wireguard::update::AllowedIpUpdate],
    ) {
        self.rerouted |= replace || !changes.is_empty();
        if replace {
            for prefix in std::mem::take(&mut self.entry(id).allowed) {
                self.routes.remove(prefix);
            }
        }
        for change in changes {
            let prefix = change.prefix.trunc();
            if !change.remove {
                let before = self.routes.insert(prefix, id).filter(|&before| before != id);
                before.map(|before| self.entry(before).allowed.remove(&prefix));
                self.entry(id).allowed.insert(prefix);
            } else if self.entry(id).allowed.remove(&prefix) {
                self.routes.remove(prefix);
            }
        }
    }

    fn entry(&mut self, id: PeerId) -> &mut Entry {
        self.peers.get_mut(&id).expect("every peer of the device has its entry")
    }

    /// Removes what is ours of a peer that the device has no more.
    fn forget(&mut self, id: PeerId) {
        let Some(entry) = self.peers.remove(&id) else { return };
        for prefix in entry.allowed {
            self.routes.remove(prefix);
        }
        self.rerouted = true;
    }

    /// The kernel is to choose our addresses anew: another mark or another port may mean another way.
    fn forget_sources(&self) {
        for entry in self.peers.values() {
            entry.peer.forget_source();
        }
    }

    /// Shows the workers the prefixes as they are now, all in one step.
    fn publish(&self) {
        let routes = self.routes.map(|id| Arc::clone(&self.peers[id].peer));
        self.shared.tables.routes.store(Arc::new(routes));
    }

    fn snapshot(&self) -> Snapshot {
        let key = self.device.private_key();
        Snapshot {
            up: self.running,
            private_key: key.map(|key| key.secret().clone()),
            public: key.map(crypto::PrivateKey::public),
            listen_port: self.binding.port(),
            fwmark: self.binding.fwmark(),
            peers: self.peers.iter().filter_map(|(&id, entry)| self.peer_snapshot(id, entry)).collect(),
            callers: self.callers.all(),
        }
    }

    fn peer_snapshot(&self, id: PeerId, entry: &Entry) -> Option<PeerSnapshot> {
        let status = self.device.status(self.shared.clock.monotonic(), id)?;
        Some(PeerSnapshot {
            public: status.public,
            preshared: status.preshared,
            endpoint: entry.peer.endpoint.load().as_deref().copied(),
            last_handshake: status.last_handshake,
            sent_bytes: entry.peer.sent.bytes(),
            received_bytes: entry.peer.received.bytes(),
            unsent_packets: entry.peer.unsent.load(Ordering::Relaxed),
            persistent_keepalive: status.persistent_keepalive.map_or(0, |every| every.as_secs() as u16),
            has_key: status.has_key,
            trouble: status.trouble,
            allowed_ips: entry.allowed.iter().copied().collect(),
        })
    }
}
