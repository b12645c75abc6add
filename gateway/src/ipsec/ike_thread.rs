//! The IKE thread: it owns the protocol, and carries out its actions.
//!
//! It serves, in this order: commands, data path events, jobs that are done, timers, and IKE messages from the network.
//! The network can only fill bounded queues, and the IKE thread has a lower priority than the data path.
//! `commands` handles requests of the control thread, `actions` carries out the actions of IKE, `report` logs its events, and
//! `children` keeps the tunnels of the data path.

mod actions;
mod children;
mod commands;
mod report;
mod trace;

use super::NAME;
use super::connections::{Plan, address_towards};
use super::jobs::Jobs;
use crate::datapath::DataPathEvent;
use crate::datapath::punt::{Datagram, Punt};
use crate::datapath::tables::Session;
use crate::datapath::worker::Shared;
use crate::ipsec::model;
use crate::tunnel_interface::sender::Sender;
use crate::wireguard::handshake_thread::Reply;
use children::{Children, Passed};
use crossbeam_channel::{Receiver, Select, TryRecvError};
use crypto::{Engine, Random};
use packet::{DropCounters, DropReason, Endpoint};
use port::udp::UdpTransmit;
use port::{Transmit, Wake};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};
use tunnel::ikev2::{
    CannotInitiate, ConnectionId, Endpoint as Ike, Finished, Ignored, Outbox, Path, Patience,
};
use tunnel::timers::Timers;
use tunnel::{Now, PeerId, Time};

/// The number of IKE messages that are handled in a row.
const TURN: usize = 16;
/// How often the packet counters of the Child SAs are read.
const LISTEN: Duration = Duration::from_secs(2);
/// How long jobs and answers are waited for at the end.
const ENDING: Duration = Duration::from_secs(2);
/// Distinguishes IKE from ESP on port 4500 (RFC 3948 section 2.2).
const MARKER: [u8; 4] = [0; 4];
/// The NAT keepalive (RFC 3948 section 2.3).
const KEEPALIVE: [u8; 1] = [0xff];
/// The DS field of IKE messages: CS6, as that of other protocols that networks are run by (RFC 4594 section 3.2).
const DS_FIELD: u8 = 48 << 2;

/// Requests of other threads.
pub enum Command {
    /// Serve these peers; others of the same names are ended first.
    Add(Vec<Plan>),
    /// End the connections to the peers of these names.
    Remove(Vec<String>),
    /// Wait so long for answers.
    SetPatience(Patience),
    /// Reply when all commands before this one are done.
    Settle(Reply<()>),
    /// Show everything.
    Status(Reply<Vec<model::IpsecPeer>>),
    /// Re-establish the connection to this peer, or only this tunnel of it. The reply tells whether it exists.
    Reset(String, Option<u32>, Reply<bool>),
    /// The interface went up or down, or has another MTU.
    Link {
        /// Whether it is up.
        up: bool,
        /// Its MTU.
        mtu: usize,
    },
    /// Routes to peers may have changed: their path MTUs are looked up again.
    Measure,
    /// End.
    Stop,
}

/// The queues that the IKE thread reads.
pub struct Inbox {
    /// From control.
    pub commands: Receiver<Command>,
    /// From the data path.
    pub datapath_events: Receiver<DataPathEvent>,
    /// From port 4500, by way of the data path.
    pub floated: Receiver<Datagram>,
    /// From port 500.
    pub initial: Receiver<Datagram>,
    /// The other ends of both, which keep them open when their threads end first.
    pub punts: [Punt; 2],
}

/// The IKE thread.
pub struct IkeThread {
    ike: Ike,
    children: Children,
    shared: Shared,
    /// On port 4500.
    sender: Sender<Box<dyn Transmit>>,
    /// On port 500.
    initial: Sender<UdpTransmit>,
    has_raw: bool,
    inbox: Inbox,
    jobs: Jobs,
    /// Whether the interface is up.
    running: bool,
    /// Connections that failed while packets wait, until they may be tried again.
    postponed: Timers<ConnectionId>,
    /// When the packet counters were last read.
    listened: Time,
    drops: Arc<DropCounters>,
}

/// The parts of an IKE thread.
pub struct Parts {
    /// Makes keys for the data path.
    pub engine: Arc<dyn Engine>,
    /// Makes nonces and SPIs: two, as IKE keeps one.
    pub random: [Box<dyn Random>; 2],
    /// What the workers share.
    pub shared: Shared,
    /// Sends on port 4500.
    pub outside: Box<dyn Transmit>,
    /// Sends on port 500.
    pub initial: UdpTransmit,
    /// Wakes each worker that receives from outside: as many as SPIs are spread over.
    pub inbound_wakes: Vec<Arc<Wake>>,
    /// Wakes the worker that sends outside.
    pub outbound_wake: Arc<Wake>,
    /// Whether ESP may go without UDP.
    pub has_raw: bool,
    /// Where drops are counted.
    pub drops: Arc<DropCounters>,
    /// Where work comes from.
    pub inbox: Inbox,
}

impl IkeThread {
    /// An IKE thread without peers, for an interface that is down. Its jobs are done as the calling thread runs.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            engine,
            random: [ike, random],
            shared,
            outside,
            initial,
            inbound_wakes,
            outbound_wake,
            has_raw,
            drops,
            inbox,
        } = parts;
        let mut ike = Ike::new(ike);
        ike.set_receivers(inbound_wakes.len() as u8);
        ike.set_source(Box::new(address_towards));
        let tables = Arc::clone(&shared.tables);
        ike.set_worn(Box::new(move |[inbound, outbound]| {
            let worn = |session: Arc<Session>| {
                // What is sent may still go by the SA before it.
                let sending = session.peer.sending.load_full().filter(|sa| sa.receiver == outbound);
                session.sa.is_worn() || sending.is_some_and(|sa| sa.is_worn())
            };
            tables.session(inbound).is_some_and(worn)
        }));
        Self {
            ike,
            children: Children::new(engine, random, shared.clone(), inbound_wakes, outbound_wake),
            sender: Sender::new(shared.clone(), outside, Arc::clone(&drops)),
            initial: Sender::new(shared.clone(), initial, Arc::clone(&drops)),
            has_raw,
            listened: shared.clock.monotonic(),
            shared,
            inbox,
            jobs: Jobs::start(NAME),
            running: false,
            postponed: Timers::default(),
            drops,
        }
    }

    /// Runs until it gets the command to stop, or until the sender of commands is gone.
    pub fn run(mut self) {
        loop {
            loop {
                match self.inbox.commands.try_recv() {
                    Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return self.teardown(),
                    Ok(command) => self.command(command),
                    Err(TryRecvError::Empty) => break,
                }
            }
            for datapath_event in self.inbox.datapath_events.clone().try_iter() {
                self.datapath_event(datapath_event);
            }
            self.take_finished();
            self.timers();
            if self.datagrams() == 0 {
                match self.jobs.help() {
                    Some(finished) => self.finished(finished),
                    None => self.wait(),
                }
            }
        }
    }

    /// Waits for anything to do; may return without it.
    fn wait(&self) {
        let next = [self.ike.next_timeout(), self.children.next_timeout()].into_iter().flatten().min();
        let next = next.into_iter().chain(self.postponed.first()).min();
        let listen = self.children.has_sas().then(|| self.listened + LISTEN);
        let next = next.into_iter().chain(listen).min();
        let mut select = Select::new();
        select.recv(&self.inbox.commands);
        select.recv(&self.inbox.datapath_events);
        select.recv(self.jobs.finished());
        select.recv(&self.inbox.floated);
        select.recv(&self.inbox.initial);
        match next {
            Some(at) => _ = select.ready_timeout(at - self.shared.clock.monotonic()),
            None => _ = select.ready(),
        }
    }

    /// Serves a few messages of each port; tells how many.
    fn datagrams(&mut self) -> usize {
        let mut served = 0;
        for (queue, port) in [(self.inbox.floated.clone(), NAT_PORT), (self.inbox.initial.clone(), IKE_PORT)]
        {
            for datagram in queue.try_iter().take(TURN) {
                self.datagram(&datagram, port);
                served += 1;
            }
        }
        served
    }

    fn datagram(&mut self, datagram: &Datagram, port: u16) {
        // The sockets stay open while the interface is down: opening them takes a capability that this thread, which parses
        // unauthenticated messages, must not have. Without a configuration no peer is refused: it retransmits.
        if !self.running || self.children.is_empty() {
            return self.drops.count(DropReason::IkeNotServed, 1);
        }
        let Endpoint { remote, local, .. } = datagram.endpoint;
        let local = SocketAddr::new(local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), port);
        self.trace("received from", remote, datagram.bytes());
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        if let Err(ignored) =
            self.ike.handle_datagram(now, Path { local, remote }, datagram.bytes(), &mut out)
        {
            tracing::debug!("from {remote}: {ignored}");
            let reason = match ignored {
                Ignored::Malformed(_) => DropReason::BadIkeMessage,
                Ignored::UnknownSpi => DropReason::UnknownIkeSa,
            };
            self.drops.count(reason, 1);
        }
        self.carry_out(out);
    }

    fn finished(&mut self, finished: Finished) {
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        self.ike.handle_finished(now, finished, &mut out);
        self.carry_out(out);
    }

    /// Handles the results of finished jobs.
    fn take_finished(&mut self) {
        let done = self.jobs.finished().clone();
        let is_late = !self.running && !done.is_empty();
        for finished in done.try_iter() {
            self.finished(finished);
        }
        // A job from before the interface went down may have established a session.
        if is_late {
            self.close_all();
        }
    }

    /// Ends all sessions; their connections stay.
    fn close_all(&mut self) {
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        for id in self.children.connections() {
            self.ike.close(now, id, &mut out);
        }
        self.carry_out(out);
    }

    fn datapath_event(&mut self, datapath_event: DataPathEvent) {
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        match datapath_event {
            DataPathEvent::NoKey(peer) => self.ask(peer, &mut out),
            DataPathEvent::Renewal(peer) => {
                if let Some(spi) = self.children.newest(peer) {
                    self.ike.rekey_child(now, spi, &mut out);
                }
            }
            DataPathEvent::Confirmed(spi) => self.children.use_sa(spi),
            // WireGuard's, and OpenVPN's.
            DataPathEvent::Activity(_) | DataPathEvent::Moved(_) | DataPathEvent::Exited(_) => {}
        }
        self.carry_out(out);
    }

    /// Requests an SA for waiting packets, or drops them if it cannot be set up.
    fn ask(&mut self, peer: PeerId, out: &mut Outbox) {
        let Some((connection, child)) = self.children.named(peer) else { return };
        let now = self.shared.clock.now();
        match self.ike.handle_traffic(now, connection, child, out) {
            Ok(()) => {}
            // The next packet after that asks again.
            Err(CannotInitiate::JustFailed(until)) => self.postponed.set(connection, Some(until)),
            Err(error) => {
                tracing::debug!("{}: {error}", self.children.child_name(connection, child));
                self.children.purge(connection);
            }
        }
    }

    /// Drops the packets that arrived too soon after a failure.
    fn purge_postponed(&mut self, now: Time) {
        while let Some(connection) = self.postponed.take_due(now) {
            self.children.purge(connection);
        }
    }

    fn timers(&mut self) {
        let now = self.shared.clock.now();
        if now.monotonic >= self.listened + LISTEN {
            self.listened = now.monotonic;
            let mut out = Outbox::new();
            for passed in self.children.passed() {
                self.note_passed(now, &passed, &mut out);
            }
            self.carry_out(out);
        }
        if self.ike.next_timeout().is_some_and(|at| at <= now.monotonic) {
            let mut out = Outbox::new();
            self.ike.handle_timeout(now, &mut out);
            self.carry_out(out);
        }
        self.children.handle_timeout(now.monotonic);
        self.purge_postponed(now.monotonic);
    }

    fn note_passed(&mut self, now: Now, passed: &Passed, out: &mut Outbox) {
        let spi = passed.spi;
        if passed.is_sent {
            self.ike.note_sent(now, spi);
        }
        // A peer that sends packets from where it is lives, and need not be asked.
        match passed.strayed {
            Some(from) => self.ike.note_strayed(now, spi, from),
            None if passed.is_received => self.ike.note_traffic(now, spi),
            None => {}
        }
        // IKE and its other tunnels go there as well.
        if let Some(Endpoint { remote, local, .. }) = passed.moved {
            let local = SocketAddr::new(local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), NAT_PORT);
            self.ike.note_moved(now, spi, Path { local, remote }, out);
        }
    }

    /// Deletes all sessions, at the end.
    ///
    /// An IKE SA that the peer has made already is deleted once its keys are known, so their jobs are waited for. A Delete
    /// behind another request waits for its answer (RFC 7296 section 2.3). The wait is short: a peer may be dead, and others
    /// may have asked for many key exchanges.
    fn teardown(mut self) {
        for id in self.children.connections() {
            let mut out = Outbox::new();
            self.ike.remove_connection(self.shared.clock.now(), id, &mut out);
            self.carry_out(out);
        }
        let deadline = Instant::now() + ENDING;
        while self.ike.owes_deletes() && Instant::now() < deadline {
            self.take_finished();
            self.timers();
            if self.datagrams() == 0 {
                self.wait_for_peers(deadline);
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        for finished in self.jobs.end(left) {
            self.finished(finished);
        }
    }

    /// Waits for a message, a job, or the next timer.
    fn wait_for_peers(&self, deadline: Instant) {
        let next = self.ike.next_timeout().map(|at| Instant::now() + (at - self.shared.clock.monotonic()));
        let mut select = Select::new();
        select.recv(self.jobs.finished());
        select.recv(&self.inbox.floated);
        select.recv(&self.inbox.initial);
        let _ = select.ready_deadline(next.map_or(deadline, |at| at.min(deadline)));
    }
}

/// Where a path leads to, and from which of our addresses.
fn outside(path: Path) -> Endpoint {
    let local = Some(path.local.ip()).filter(|address| !address.is_unspecified());
    Endpoint { local, ..Endpoint::new(path.remote) }
}

/// The same for ESP as a protocol of its own.
fn without_udp(path: Path) -> Endpoint {
    let Endpoint { remote, local, .. } = outside(path);
    Endpoint { local, ..Endpoint::new(SocketAddr::new(remote.ip(), 0)) }
}
