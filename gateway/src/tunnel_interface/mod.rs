//! The devices and threads that carry an interface's packets, for every protocol: TUN inside, UDP outside, a worker each way, and who
//! follows the interface. The protocol has a thread of its own beside it, its slow path.
//!
//! With several receiving threads, each has a worker each way, a queue of TUN and sockets of its own:
//!
//! ```text
//! TUN ── hash of the flow ──> queue n ── out n ──> socket n
//! UDP ── byte of the receiver index ──> socket n ── in n ──> TUN, without a change of a flow's queue
//! ```
//! A peer's packets from outside stay with one thread, as its receiver indices lead there, and so do the packets of a flow from inside.
//! Two flows to one peer may be sent by two threads, which share the counter of the key.
//!
//! An interface with one sender, of IPsec, has one queue of TUN and one worker from inside. Only what comes from outside is spread:
//!
//! ```text
//! TUN ── out ──> socket 0
//! UDP ── first byte of the SPI ──> socket n ──────── in n ──> TUN
//! raw sockets ── the same byte ──> raw socket n ── raw n ──> TUN
//! ```
//! A peer of IPsec takes packets that are late by 32 numbers of its SA, if it has the default of strongSwan or Linux. Two threads that send
//! on one SA would exceed that: even if they sent in the order of the numbers, each sends from a processor of its own, and the queues of
//! the network card, or of the kernel for a virtual link, are one a processor. One burst has up to 64 numbers.

pub mod binding;
mod counters;
mod crypto_threads;
pub mod link;
mod options;
mod pinning;
pub mod sender;
mod workers;

pub use counters::{Counters, Drops, Stages, Tallies};
pub use options::{
    InterfaceError, MOST_RECEIVING, Options, check_processors, check_receive_threads, receive_threads,
};

use crate::datapath::capture::Captures;
use crate::datapath::handoff::CryptoThreadsSlot;
use crate::datapath::punt::Punt;
use crate::datapath::worker::Shared;
use crate::host;
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::occupied;
use crate::rights::Rights;
use crate::thread_name::thread_name;
use arc_swap::ArcSwapOption;
use binding::Binding;
use link::Follower;
use options::Counts;
use pinning::Pinning;
use port::offload::State;
use port::raw::{self, EspTransmit, RawReceive};
use port::schedule::yield_to_packets;
use port::shaper::Shaper;
use port::tcp::{self, TcpConnections, TcpReceive, TcpTransmit};
use port::tun::{TunDevice, TunError, TunTransmit};
use port::udp::{self, SocketSlot, Steering, UdpReceive, UdpTransmit};
use port::{Offloads, Tally, Transmit, Wake};
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The MTU of an interface that was told none: what fits into 1500 bytes over IPv6.
pub const DEFAULT_MTU: u32 = 1420;
/// Packets that may wait in the kernel for us: its default drops in bursts.
pub const QUEUE_LENGTH: u32 = 1000;
/// Messages of a slow path that may wait on a TCP connection, beyond the limit of data: OpenVPN sends six at once.
const SPARE: usize = 16;
/// How long a query of an interface that is to end may wait for its answer.
const ANSWER: Duration = Duration::from_secs(10);

/// What the sockets of an interface carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// All of WireGuard; of IPsec, ESP in UDP and IKE beside it.
    Tunnel,
    /// ESP without UDP.
    Esp,
    /// IKE on its first port.
    Ike,
}

/// The interface was deleted by another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed(pub String);

/// Ports and workers of an interface. Dropping it ends them and removes the interface; its slow path must have been told before.
pub struct TunnelInterface {
    device: Arc<TunDevice>,
    offloads: Arc<Offloads>,
    slot: SocketSlot,
    /// For ESP without UDP, if that is wanted.
    raw: Option<SocketSlot>,
    /// TCP connections, if the protocol has any.
    tcp: Option<Arc<TcpConnections>>,
    /// The limit of what is sent, if there is one.
    shaper: Option<Arc<Shaper>>,
    drops: Drops,
    tallies: Tallies,
    stages: Stages,
    captures: Option<Arc<Captures>>,
    stop: Arc<AtomicBool>,
    /// Of each receiving thread.
    outbound_wakes: Vec<Arc<Wake>>,
    inbound_wakes: Vec<Arc<Wake>>,
    raw_wakes: Vec<Arc<Wake>>,
    tcp_wake: Arc<Wake>,
    link_wake: Arc<Wake>,
    threads: Vec<JoinHandle<()>>,
    pinning: Arc<Pinning>,
    /// Workers that were started.
    workers: usize,
    crypto_threads: CryptoThreadsSlot,
    hands_off_always: bool,
    /// Those that run, and those before them that end.
    crypto_handles: Mutex<Vec<JoinHandle<()>>>,
}

/// Says what has the name, if that is why there is no interface: the kernel has one number for many reasons.
fn refused(name: &str, error: TunError) -> InterfaceError {
    match error {
        TunError::Busy(_) | TunError::Other(_, Errno::INVAL) => match occupied::interface(name) {
            Some(what) => InterfaceError::Taken(name.to_owned(), what),
            None => error.into(),
        },
        error => error.into(),
    }
}

impl TunnelInterface {
    /// Makes the interface `name`, down, and nothing that would carry its packets yet.
    pub fn create(name: &str, options: &Options) -> Result<Self, InterfaceError> {
        let offloads = Arc::new(Offloads::default());
        switch_off(&offloads, &options.without)?;
        let counts = Counts::of(options);
        let device =
            TunDevice::create(name, counts.senders, &offloads).map_err(|error| refused(name, error))?;
        set_defaults(name).map_err(|error| InterfaceError::Link(name.to_owned(), error))?;
        Self::new(device, offloads, counts).map_err(|error| InterfaceError::Resources(name.to_owned(), error))
    }

    /// Stands for an interface that is not there: packets from outside vanish, and none come from inside.
    pub fn null(name: &str, options: &Options) -> Result<Self, InterfaceError> {
        let resources = |error| InterfaceError::Resources(name.to_owned(), error);
        let offloads = Arc::new(Offloads::default());
        switch_off(&offloads, &options.without)?;
        let device = TunDevice::null(name).map_err(|error| resources(error.into()))?;
        Self::new(device, offloads, Counts { receivers: 1, senders: 1 }).map_err(resources)
    }

    fn new(device: TunDevice, offloads: Arc<Offloads>, counts: Counts) -> io::Result<Self> {
        let wakes = |count| (0..count).map(|_| Wake::new().map(Arc::new)).collect::<io::Result<Vec<_>>>();
        Ok(Self {
            device: Arc::new(device),
            offloads,
            slot: Arc::new(ArcSwapOption::empty()),
            raw: None,
            tcp: None,
            shaper: None,
            drops: Drops::default(),
            tallies: Tallies::of_threads(counts),
            stages: Stages::default(),
            captures: None,
            stop: Arc::default(),
            outbound_wakes: wakes(counts.senders)?,
            inbound_wakes: wakes(counts.receivers)?,
            raw_wakes: Vec::new(),
            tcp_wake: Arc::new(Wake::new()?),
            link_wake: Arc::new(Wake::new()?),
            threads: Vec::new(),
            pinning: Arc::default(),
            workers: 0,
            crypto_threads: CryptoThreadsSlot::default(),
            hands_off_always: false,
            crypto_handles: Mutex::default(),
        })
    }

    /// Also carries ESP without UDP, in packets with this mark, and spreads it like that in UDP.
    pub fn open_raw(&mut self, mark: u32, steering: Steering) -> Result<(), Errno> {
        let sockets = raw::open(mark, Some(steering))?;
        let wakes = self.inbound_wakes.iter().map(|_| Wake::new().map(Arc::new)).collect::<io::Result<_>>();
        self.raw_wakes = wakes.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        self.raw = Some(Arc::new(ArcSwapOption::from_pointee(sockets)));
        Ok(())
    }

    /// Also carries packets on TCP connections.
    pub fn open_tcp(&mut self, connections: Arc<TcpConnections>) {
        self.tcp = Some(connections);
    }

    /// Limits what is read from inside and sent outside, in bytes a second.
    pub fn shape(&mut self, bytes_per_second: NonZeroU32) {
        self.shaper = Some(Arc::new(Shaper::new(bytes_per_second)));
    }

    /// Starts the workers, and the thread that follows the interface and calls `tell` with whether it is up, and its MTU.
    /// The end of the interface is told to `events`.
    ///
    /// `overhead`: bytes that the protocol adds to a packet.
    pub fn start(
        &mut self,
        shared: &Shared,
        options: Options,
        punt: Punt,
        events: mpsc::UnboundedSender<Removed>,
        overhead: usize,
        tell: impl Fn(bool, usize) + Send + 'static,
    ) -> io::Result<()> {
        if self.device.is_null() {
            tell(true, shared.tables.mtu.load(Ordering::Relaxed));
        }
        self.captures = Some(Arc::clone(&shared.tables.captures));
        self.hands_off_always = options.hands_off_always;
        self.set_threads(options.threads, &options.processors)?;
        let follower = Follower {
            device: Arc::clone(&self.device),
            overhead,
            tell: Box::new(tell),
            wake: Arc::clone(&self.link_wake),
            stop: Arc::clone(&self.stop),
        };
        for number in 0..self.receive_threads() {
            self.start_receiving(number, shared, &options, punt.clone(), events.clone())?;
        }
        if let Some(connections) = &self.tcp {
            let outside = Box::new(TcpReceive::new(Arc::clone(connections)));
            let (bytes, inside) = (tcp::BATCH_BYTES, self.inside());
            let inbound = self.inbound(shared, (outside, inside), bytes, &self.tcp_wake, &options, punt);
            self.spawn_worker("tcp", inbound)?;
        }
        if self.device.is_null() {
            Ok(())
        } else {
            self.spawn("link", Rights::Namespaces, move || follower.run())
        }
    }

    /// Starts a receiving thread: its workers.
    fn start_receiving(
        &mut self,
        number: usize,
        shared: &Shared,
        options: &Options,
        punt: Punt,
        events: mpsc::UnboundedSender<Removed>,
    ) -> io::Result<()> {
        if number < self.outbound_wakes.len() {
            let outbound = self.outbound(number, shared, options, events);
            self.spawn_worker(&worker_name("out", number), outbound)?;
        }
        let tally = &self.tallies.inbound[number];
        let outside = UdpReceive::new(Arc::clone(&self.slot), Arc::clone(&self.offloads)).of_thread(number);
        let outside = Box::new(outside.counted(Arc::clone(tally)));
        let inside = self.inside().of_queue(number).counted(Arc::clone(tally));
        let (bytes, wake) = (udp::BATCH_BYTES, &self.inbound_wakes[number]);
        let inbound = self.inbound(shared, (outside, inside), bytes, wake, options, punt.clone());
        self.spawn_worker(&worker_name("in", number), inbound)?;
        if let Some(raw) = &self.raw {
            let outside = Box::new(RawReceive::new(Arc::clone(raw)).of_thread(number));
            let (inside, wake) = (self.inside().of_queue(number), &self.raw_wakes[number]);
            let inbound = self.inbound(shared, (outside, inside), bytes, wake, options, punt);
            self.spawn_worker(&worker_name("raw", number), inbound)?;
        }
        Ok(())
    }

    /// The number of its receiving threads.
    pub fn receive_threads(&self) -> usize {
        self.inbound_wakes.len()
    }

    /// Starts the protocol's thread, with a lower priority than the workers.
    pub(crate) fn start_slow_path(
        &mut self,
        rights: Rights,
        slow_path: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.spawn("control", rights, move || {
            if let Err(error) = yield_to_packets() {
                tracing::debug!("handshakes may delay packets: {error}");
            }
            slow_path();
        })
    }

    /// The name it was made with.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Its offloads.
    pub fn offloads(&self) -> &Offloads {
        &self.offloads
    }

    /// Its drop counters.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// The tallies of its workers.
    pub fn tallies(&self) -> &Tallies {
        &self.tallies
    }

    /// The times of its stages.
    pub fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Where its packets are captured, once it has workers.
    pub fn captures(&self) -> Option<Arc<Captures>> {
        self.captures.clone()
    }

    /// Where its sockets are, and what they carry.
    pub fn sockets(&self) -> Vec<(SocketKind, SocketSlot)> {
        let raw = self.raw.iter().map(|slot| (SocketKind::Esp, Arc::clone(slot)));
        std::iter::once((SocketKind::Tunnel, Arc::clone(&self.slot))).chain(raw).collect()
    }

    /// A port that sends outside.
    pub fn outside(&self) -> Box<dyn Transmit> {
        self.outside_counted(0, Arc::default())
    }

    /// The same of a receiving thread, which counts its calls on UDP sockets.
    fn outside_counted(&self, number: usize, tally: Arc<Tally>) -> Box<dyn Transmit> {
        let in_udp = UdpTransmit::new(Arc::clone(&self.slot), Arc::clone(&self.offloads));
        let in_udp = in_udp.of_thread(number).counted(tally);
        match (&self.raw, &self.tcp) {
            (Some(raw), _) => Box::new(EspTransmit::new(in_udp, Arc::clone(raw))),
            (None, Some(tcp)) => Box::new(TcpTransmit::new(Arc::clone(tcp), in_udp, 0)),
            (None, None) => Box::new(in_udp),
        }
    }

    /// The same for a slow path, whose packets are few, and do not wait behind a limit of data.
    pub fn outside_of_slow_path(&self) -> Box<dyn Transmit> {
        let in_udp = UdpTransmit::new(Arc::clone(&self.slot), Arc::clone(&self.offloads));
        match &self.tcp {
            Some(tcp) => Box::new(TcpTransmit::new(Arc::clone(tcp), in_udp, SPARE)),
            None => self.outside(),
        }
    }

    /// A port that writes inside.
    fn inside(&self) -> TunTransmit {
        TunTransmit::new(Arc::clone(&self.device), Arc::clone(&self.offloads))
    }

    /// What wakes each worker that receives from outside.
    pub fn inbound_wakes(&self) -> Vec<Arc<Wake>> {
        self.inbound_wakes.clone()
    }

    /// What wakes the worker that sends outside, the first of several.
    pub fn outbound_wake(&self) -> Arc<Wake> {
        Arc::clone(&self.outbound_wakes[0])
    }

    /// Whether ESP may go without UDP.
    pub fn has_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// What the slow path binds the sockets with.
    pub fn binding(&self) -> Binding {
        Binding::new(Arc::clone(&self.slot), Arc::clone(&self.offloads), self.inbound_wakes.clone())
    }

    /// Uses all offloads but these.
    pub fn set_offloads(&self, without: &[String]) -> Result<(), InterfaceError> {
        switch_off(&self.offloads, without)?;
        self.device.probe(&self.offloads);
        if let Some(sockets) = self.slot.load().as_deref() {
            sockets.probe(&self.offloads);
        }
        Ok(())
    }

    fn wake_workers(&self) {
        let workers = self.outbound_wakes.iter().chain(&self.inbound_wakes).chain(&self.raw_wakes);
        workers.chain([&self.tcp_wake]).for_each(|wake| wake.notify());
    }

    /// Starts a worker. It has the next place in the order in which threads are pinned.
    fn spawn_worker(&mut self, role: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let (pinning, place) = (Arc::clone(&self.pinning), self.workers);
        self.workers += 1;
        let name = thread_name(self.device.name(), role);
        self.threads.push(thread::Builder::new().name(name).spawn(move || {
            let _pinned = pinning.enter(place);
            Rights::Packets.keep();
            body();
        })?);
        Ok(())
    }

    fn spawn(&mut self, role: &str, rights: Rights, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let name = thread_name(self.device.name(), role);
        self.threads.push(thread::Builder::new().name(name).spawn(move || {
            rights.keep();
            body();
        })?);
        Ok(())
    }
}

/// The name of a worker: its direction, and from the second on its number.
pub fn worker_name(direction: &str, number: usize) -> String {
    if number == 0 { direction.to_owned() } else { format!("{direction} {number}") }
}

/// Drops what only a query may still hold, as one of the API, once that has its answer: what it had, as a name and ports, is
/// free afterwards.
pub(crate) async fn end<T>(mut last: Arc<T>) {
    let deadline = Instant::now() + ANSWER;
    while let Err(held) = Arc::try_unwrap(last) {
        if Instant::now() >= deadline {
            return tracing::warn!("an interface is still read, and ends later");
        }
        last = held;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Drop for TunnelInterface {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake_workers();
        self.link_wake.notify();
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
        // They end when nobody can hand off to them any more.
        self.crypto_threads.store(None);
        let handles = self.crypto_handles.get_mut().unwrap_or_else(PoisonError::into_inner);
        handles.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Switches off the named offloads, and probes all others again.
fn switch_off(offloads: &Offloads, without: &[String]) -> Result<(), InterfaceError> {
    if let Some(unknown) = without.iter().find(|name| offloads.by_name(name).is_none()) {
        return Err(InterfaceError::Offload(unknown.clone()));
    }
    for (name, _, offload) in offloads.all() {
        if without.iter().any(|unwanted| unwanted == name) {
            offload.set(State::SwitchedOff);
        } else if !offload.is_wanted() {
            offload.set(State::Unprobed);
        }
    }
    Ok(())
}

/// MTU and queue of a new interface.
fn set_defaults(name: &str) -> Result<(), NetlinkError> {
    let change =
        LinkChange { mtu: Some(DEFAULT_MTU), queue_length: Some(QUEUE_LENGTH), ..LinkChange::default() };
    host::change_link(name, &[change])?;
    // No peer could be told where such an address is. A kernel without IPv6 gives none anyway.
    let _ = host::change_link(name, &[LinkChange { link_local: Some(false), ..LinkChange::default() }]);
    Ok(())
}
