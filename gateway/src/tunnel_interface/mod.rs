//! The devices and threads that carry an interface's packets, for every protocol: TUN inside, UDP outside, a worker each way, and who
//! follows the interface. The protocol has a thread of its own beside it, its slow path.

pub mod binding;
pub mod link;
pub mod sender;

use crate::datapath::handoff::{CryptoThreads, CryptoThreadsSlot};
use crate::datapath::idle_cores::IdleCores;
use crate::datapath::punt::Punt;
use crate::datapath::stage_times::StageTimes;
use crate::datapath::worker::{Egress, Inbound, Outbound, Shared};
use crate::datapath::{INBOUND, OUTBOUND};
use crate::host;
use crate::host::netlink::{LinkChange, NetlinkError};
use crate::host::occupied;
use crate::rights::Rights;
use arc_swap::ArcSwapOption;
use binding::Binding;
use config::settings::Threads;
use link::Follower;
use packet::{DropCounters, DropReason};
use port::fault::{Fault, Faults};
use port::offload::State;
use port::pcap::{Capture, Captured};
use port::raw::{self, EspTransmit, RawReceive};
use port::schedule::yield_to_packets;
use port::shaper::{Counted, Held, Shaper};
use port::tcp::{self, TcpConnections, TcpReceive, TcpTransmit};
use port::tun::{self, TunDevice, TunError, TunTransmit};
use port::udp::{self, SocketSlot, UdpReceive, UdpTransmit};
use port::{Offloads, Receive, Tally, Transmit, Wake};
use rustix::io::Errno;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
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
/// The workers of an interface that most packets have: one a direction.
const WORKERS: usize = 2;
/// The threads of `auto`, at most.
const MOST_THREADS: usize = 64;
/// How long a query of an interface that is to end may wait for its answer.
const ANSWER: Duration = Duration::from_secs(10);

/// How to make an interface.
#[derive(Default)]
pub struct Options {
    /// Offloads not to be used, by name.
    pub without: Vec<String>,
    /// Faults to inject into what arrives from outside.
    pub faults: Option<Faults>,
    /// How many threads seal and open packets at once.
    pub threads: Threads,
    /// For tests: packets are handed off also when no processor is idle.
    pub hands_off_always: bool,
    /// Where to write down what passes inside and outside.
    pub capture_inside: Option<Capture>,
    /// See above.
    pub capture_outside: Option<Capture>,
}

/// Why an interface could not be made.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// TUN refused.
    #[error(transparent)]
    Tun(#[from] TunError),
    /// There is another interface of that name.
    #[error("interface {0} exists already: {1}")]
    Taken(String, String),
    /// The link could not be set up.
    #[error("interface {0}: {1}")]
    Link(String, NetlinkError),
    /// No such offload.
    #[error("there is no offload {0:?}: choose from {known}", known = Offloads::NAMES.join(", "))]
    Offload(String),
    /// The kernel gave no descriptor or thread.
    #[error("interface {0} cannot be served: {1}")]
    Resources(String, io::Error),
}

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

/// Where drops are counted: one set a worker.
#[derive(Clone, Default)]
pub struct Drops {
    outbound: Arc<DropCounters>,
    inbound: Arc<DropCounters>,
    /// Of the protocol.
    pub(crate) handshake: Arc<DropCounters>,
}

impl Drops {
    /// How many packets were dropped for `reason`, outbound, inbound and by the slow path.
    pub fn read(&self, reason: DropReason) -> [u64; 3] {
        [&self.outbound, &self.inbound, &self.handshake].map(|counters| counters.read(reason))
    }
}

/// What the workers on TUN and UDP count of their calls: one tally a worker.
#[derive(Clone, Default)]
pub struct Tallies {
    /// From inside to outside.
    pub outbound: Arc<Tally>,
    /// From outside to inside.
    pub inbound: Arc<Tally>,
}

/// What the stages of its workers take, by direction.
#[derive(Clone)]
pub struct Stages {
    /// From inside to outside.
    pub outbound: Arc<StageTimes>,
    /// From outside to inside.
    pub inbound: Arc<StageTimes>,
}

impl Default for Stages {
    fn default() -> Self {
        let [outbound, inbound] = [OUTBOUND, INBOUND].map(|stages| Arc::new(StageTimes::new(stages)));
        Self { outbound, inbound }
    }
}

/// The counters that interfaces of all protocols have.
pub trait Counters: Send + Sync {
    /// The name it was made with.
    fn name(&self) -> &str;
    /// Its drop counters.
    fn drops(&self) -> &Drops;
    /// The tallies of its workers.
    fn tallies(&self) -> &Tallies;
    /// The times of its stages.
    fn stages(&self) -> &Stages;
    /// Its offloads.
    fn offloads(&self) -> &Offloads;
    /// Where its sockets are, and what they carry.
    fn sockets(&self) -> Vec<(SocketKind, SocketSlot)>;
    /// Its crypto threads, if it has any.
    fn crypto_threads(&self) -> Option<Arc<CryptoThreads>>;
}

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
    stop: Arc<AtomicBool>,
    outbound_wake: Arc<Wake>,
    inbound_wake: Arc<Wake>,
    raw_wake: Arc<Wake>,
    tcp_wake: Arc<Wake>,
    link_wake: Arc<Wake>,
    threads: Vec<JoinHandle<()>>,
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
        let device = Arc::new(TunDevice::create(name, &offloads).map_err(|error| refused(name, error))?);
        set_defaults(name).map_err(|error| InterfaceError::Link(name.to_owned(), error))?;
        Self::new(device, offloads).map_err(|error| InterfaceError::Resources(name.to_owned(), error))
    }

    /// Stands for an interface that is not there: packets from outside vanish, and none come from inside.
    pub fn null(name: &str, options: &Options) -> Result<Self, InterfaceError> {
        let resources = |error| InterfaceError::Resources(name.to_owned(), error);
        let offloads = Arc::new(Offloads::default());
        switch_off(&offloads, &options.without)?;
        let device = TunDevice::null(name).map_err(|error| resources(error.into()))?;
        Self::new(Arc::new(device), offloads).map_err(resources)
    }

    fn new(device: Arc<TunDevice>, offloads: Arc<Offloads>) -> io::Result<Self> {
        Ok(Self {
            device,
            offloads,
            slot: Arc::new(ArcSwapOption::empty()),
            raw: None,
            tcp: None,
            shaper: None,
            drops: Drops::default(),
            tallies: Tallies::default(),
            stages: Stages::default(),
            stop: Arc::default(),
            outbound_wake: Arc::new(Wake::new()?),
            inbound_wake: Arc::new(Wake::new()?),
            raw_wake: Arc::new(Wake::new()?),
            tcp_wake: Arc::new(Wake::new()?),
            link_wake: Arc::new(Wake::new()?),
            threads: Vec::new(),
            crypto_threads: CryptoThreadsSlot::default(),
            hands_off_always: false,
            crypto_handles: Mutex::default(),
        })
    }

    /// Also carries ESP without UDP, in packets with this mark.
    pub fn open_raw(&mut self, mark: u32) -> Result<(), Errno> {
        self.raw = Some(Arc::new(ArcSwapOption::from_pointee(raw::open(mark)?)));
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
        self.hands_off_always = options.hands_off_always;
        self.set_threads(options.threads)?;
        let follower = Follower {
            device: Arc::clone(&self.device),
            overhead,
            tell: Box::new(tell),
            wake: Arc::clone(&self.link_wake),
            stop: Arc::clone(&self.stop),
        };
        let outbound = self.outbound(shared, &options, events);
        if let Some(raw) = &self.raw {
            let outside = Box::new(RawReceive::new(Arc::clone(raw)));
            let (bytes, inside) = (udp::BATCH_BYTES, self.inside());
            let inbound =
                self.inbound(shared, (outside, inside), bytes, &self.raw_wake, &options, punt.clone());
            self.spawn("raw", Rights::Packets, inbound)?;
        }
        if let Some(connections) = &self.tcp {
            let outside = Box::new(TcpReceive::new(Arc::clone(connections)));
            let (bytes, inside) = (tcp::BATCH_BYTES, self.inside());
            let inbound =
                self.inbound(shared, (outside, inside), bytes, &self.tcp_wake, &options, punt.clone());
            self.spawn("tcp", Rights::Packets, inbound)?;
        }
        let tally = &self.tallies.inbound;
        let outside = UdpReceive::new(Arc::clone(&self.slot), Arc::clone(&self.offloads));
        let outside = Box::new(outside.counted(Arc::clone(tally)));
        let (bytes, inside) = (udp::BATCH_BYTES, self.inside().counted(Arc::clone(tally)));
        let inbound = self.inbound(shared, (outside, inside), bytes, &self.inbound_wake, &options, punt);
        self.spawn("out", Rights::Packets, outbound)?;
        self.spawn("in", Rights::Packets, inbound)?;
        if self.device.is_null() {
            Ok(())
        } else {
            self.spawn("link", Rights::Namespaces, move || follower.run())
        }
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

    /// Where its sockets are, and what they carry.
    pub fn sockets(&self) -> Vec<(SocketKind, SocketSlot)> {
        let raw = self.raw.iter().map(|slot| (SocketKind::Esp, Arc::clone(slot)));
        std::iter::once((SocketKind::Tunnel, Arc::clone(&self.slot))).chain(raw).collect()
    }

    /// A port that sends outside.
    pub fn outside(&self) -> Box<dyn Transmit> {
        self.outside_counted(Arc::default())
    }

    /// The same, which counts its calls on UDP sockets.
    fn outside_counted(&self, tally: Arc<Tally>) -> Box<dyn Transmit> {
        let in_udp = UdpTransmit::new(Arc::clone(&self.slot), Arc::clone(&self.offloads)).counted(tally);
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

    /// What wakes the worker that receives from outside.
    pub fn inbound_wake(&self) -> Arc<Wake> {
        Arc::clone(&self.inbound_wake)
    }

    /// What wakes the worker that sends outside.
    pub fn outbound_wake(&self) -> Arc<Wake> {
        Arc::clone(&self.outbound_wake)
    }

    /// Whether ESP may go without UDP.
    pub fn has_raw(&self) -> bool {
        self.raw.is_some()
    }

    /// What the slow path binds the sockets with.
    pub fn binding(&self) -> Binding {
        Binding::new(Arc::clone(&self.slot), Arc::clone(&self.offloads), Arc::clone(&self.inbound_wake))
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

    /// Has packets sealed and opened by at most so many threads at once: the two workers, and crypto threads beside them.
    pub fn set_threads(&self, threads: Threads) -> io::Result<()> {
        let wanted = match threads {
            Threads::Auto => thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MOST_THREADS),
            Threads::Count(count) => count.into(),
        };
        let wanted = wanted.saturating_sub(WORKERS);
        if self.crypto_threads.load().as_ref().map_or(0, |threads| threads.count()) == wanted {
            return Ok(());
        }
        let idle_cores = if self.hands_off_always || wanted == 0 { None } else { Some(IdleCores::open()?) };
        let (crypto_threads, bodies) = CryptoThreads::new(wanted, idle_cores);
        let mut handles = self.crypto_handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.retain(|handle| !handle.is_finished());
        for body in bodies {
            let name = format!("{} crypto", self.device.name());
            handles.push(thread::Builder::new().name(name).spawn(move || {
                Rights::Packets.keep();
                body.serve();
            })?);
        }
        self.crypto_threads.store(Some(crypto_threads).filter(|threads| threads.count() > 0));
        // They let go of the threads that they had.
        for wake in [&self.outbound_wake, &self.inbound_wake, &self.raw_wake, &self.tcp_wake] {
            wake.notify();
        }
        Ok(())
    }

    /// Its crypto threads, if it has any.
    pub fn crypto_threads(&self) -> Option<Arc<CryptoThreads>> {
        self.crypto_threads.load_full()
    }

    fn spawn(&mut self, role: &str, rights: Rights, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let name = format!("{} {role}", self.device.name());
        self.threads.push(thread::Builder::new().name(name).spawn(move || {
            rights.keep();
            body();
        })?);
        Ok(())
    }

    /// From the inside to the outside, until the interface is gone.
    fn outbound(
        &self,
        shared: &Shared,
        options: &Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> impl FnOnce() + Send + use<> {
        let (mut inside, answers) = tun::halves(Arc::clone(&self.device), Arc::clone(&self.offloads));
        if self.shaper.as_ref().is_some_and(|shaper| shaper.is_slow()) {
            inside.take_singly();
        }
        let tally = &self.tallies.outbound;
        let mut inside: Box<dyn Receive> = Box::new(inside.counted(Arc::clone(tally)));
        if let Some(capture) = &options.capture_inside {
            inside = Box::new(Captured::new(inside, capture.clone()));
        }
        let mut outside = self.outside_counted(Arc::clone(tally));
        if let Some(capture) = &options.capture_outside {
            outside = Box::new(Captured::new(outside, capture.clone()));
        }
        if let Some(shaper) = &self.shaper {
            inside = Box::new(Held::new(inside, Arc::clone(shaper)));
            outside = Box::new(Counted::new(outside, Arc::clone(shaper)));
        }
        let egress = Egress::new(shared.clone(), outside, Arc::clone(&self.drops.outbound));
        let mut worker = Outbound::new(shared.clone(), inside, answers, egress, tun::BATCH_BYTES)
            .with_crypto_threads(Arc::clone(&self.crypto_threads), Arc::clone(&self.outbound_wake))
            .with_times(Arc::clone(&self.stages.outbound));
        let (stop, wake) = (Arc::clone(&self.stop), Arc::clone(&self.outbound_wake));
        let name = self.device.name().to_owned();
        move || {
            if let Err(error) = worker.serve(&stop, &wake) {
                tracing::info!("interface {name} is gone: {error}");
                // When the daemon ends, the event has no receiver.
                let _ = events.send(Removed(name));
            }
        }
    }

    /// From the outside to the inside.
    fn inbound(
        &self,
        shared: &Shared,
        (mut outside, inside): (Box<dyn Receive>, TunTransmit),
        batch_bytes: usize,
        wake: &Arc<Wake>,
        options: &Options,
        punt: Punt,
    ) -> impl FnOnce() + Send + use<> {
        let drops = Arc::clone(&self.drops.inbound);
        if let Some(capture) = &options.capture_outside {
            outside = Box::new(Captured::new(outside, capture.clone()));
        }
        if let Some(faults) = &options.faults {
            outside = Box::new(Fault::new(outside, *faults, Arc::clone(&drops)));
        }
        let mut inside: Box<dyn Transmit> = Box::new(inside);
        if let Some(capture) = &options.capture_inside {
            inside = Box::new(Captured::new(inside, capture.clone()));
        }
        let mut worker = Inbound::new(shared.clone(), outside, inside, punt, drops, batch_bytes)
            .with_crypto_threads(Arc::clone(&self.crypto_threads), Arc::clone(wake))
            .with_times(Arc::clone(&self.stages.inbound));
        if shared.tables.relayed_beside.get().is_some() {
            worker = worker.relaying(self.outside());
        }
        let (stop, wake) = (Arc::clone(&self.stop), Arc::clone(wake));
        let name = self.device.name().to_owned();
        move || {
            if let Err(error) = worker.serve(&stop, &wake) {
                tracing::error!("interface {name} receives nothing more from outside: {error}");
            }
        }
    }
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
        for wake in [&self.outbound_wake, &self.inbound_wake, &self.raw_wake, &self.tcp_wake, &self.link_wake]
        {
            wake.notify();
        }
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
