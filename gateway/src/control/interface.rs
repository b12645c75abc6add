//! One WireGuard interface: its ports, its workers, its lane, and how to talk to it.

use super::binding::Binding;
use super::lane::{Command, Inbox, Lane};
use super::link::Follower;
use super::netlink::{LinkChange, Netlink, NetlinkError};
use super::update::{Snapshot, Update, UpdateError};
use crate::clock::Clock;
use crate::datapath::punt::Punt;
use crate::tables::{Protocol, Tables};
use crate::worker::{Egress, Inbound, Outbound, Shared};
use arc_swap::ArcSwapOption;
use caps::{CapSet, Capability};
use crossbeam_channel::{Sender, unbounded};
use crypto::{Engine, random};
use packet::{DropCounters, DropReason};
use port::fault::{Fault, Faults};
use port::offload::State;
use port::pcap::{Capture, Captured};
use port::schedule::run_when_idle;
use port::tun::{self, TunDevice, TunError, TunTransmit};
use port::udp::{self, SocketSlot, UdpReceive, UdpTransmit};
use port::{Offloads, Receive, Transmit, Wake};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, oneshot};

/// The MTU of an interface that was told none: what fits into 1500 bytes over IPv6.
pub const DEFAULT_MTU: u32 = 1420;
/// Packets that may wait in the kernel for us: its default drops in bursts.
const QUEUE_LENGTH: u32 = 1000;

/// How to make an interface.
#[derive(Default)]
pub struct Options {
    /// Offloads not to be used, by name.
    pub without: Vec<String>,
    /// Faults to inject into what arrives from outside.
    pub faults: Option<Faults>,
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

/// The interface is gone: somebody has deleted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed(pub String);

/// Where drops are counted: one set a worker.
#[derive(Clone, Default)]
pub struct Drops {
    pub(super) outbound: Arc<DropCounters>,
    pub(super) inbound: Arc<DropCounters>,
    pub(super) lane: Arc<DropCounters>,
}

impl Drops {
    /// How many packets were dropped for `reason`, outbound, inbound and by the lane.
    pub fn read(&self, reason: DropReason) -> [u64; 3] {
        [&self.outbound, &self.inbound, &self.lane].map(|counters| counters.read(reason))
    }
}

/// A running interface. Dropping it ends everything and removes the interface.
pub struct Interface {
    device: Arc<TunDevice>,
    tables: Arc<Tables>,
    offloads: Arc<Offloads>,
    slot: SocketSlot,
    drops: Drops,
    commands: Sender<Command>,
    stop: Arc<AtomicBool>,
    wakes: Vec<Arc<Wake>>,
    threads: Vec<JoinHandle<()>>,
}

impl Interface {
    /// Makes the interface `name`, down and without peers. Its end is told to `events`.
    pub fn create(
        name: &str,
        engine: Arc<dyn Engine>,
        options: Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> Result<Self, InterfaceError> {
        let (device, offloads) = prepare(name, &options.without)?;
        let resources = |error| InterfaceError::Resources(name.to_owned(), error);
        let parts = Parts::new(device, offloads, engine).map_err(resources)?;
        parts.start(options, events).map_err(resources)
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

    /// Its MTU.
    pub fn mtu(&self) -> usize {
        self.tables.mtu.load(Ordering::Relaxed)
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

    /// Changes keys, peers, port or mark.
    pub async fn update(&self, update: Update) -> Result<(), UpdateError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Update(update, reply));
        answer.await.expect("the lane lives as long as the interface")
    }

    /// Shows keys and peers.
    pub async fn snapshot(&self) -> Snapshot {
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Snapshot(reply));
        answer.await.expect("the lane lives as long as the interface")
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for wake in &self.wakes {
            wake.ring();
        }
        let _ = self.commands.send(Command::Stop);
        for thread in self.threads.drain(..) {
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }
}

/// Makes the TUN device of an interface, down, without these offloads.
pub(super) fn prepare(
    name: &str,
    without: &[String],
) -> Result<(Arc<TunDevice>, Arc<Offloads>), InterfaceError> {
    let offloads = Arc::new(Offloads::default());
    for unwanted in without {
        let offload = offloads.by_name(unwanted).ok_or_else(|| InterfaceError::Offload(unwanted.clone()))?;
        offload.set(State::SwitchedOff);
    }
    let device = Arc::new(TunDevice::create(name, &offloads)?);
    set_defaults(name).map_err(|error| InterfaceError::Link(name.to_owned(), error))?;
    Ok((device, offloads))
}

/// Switches off what is named, and lets everything else be probed anew.
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
    let mut netlink = Netlink::open().map_err(|error| NetlinkError {
        what: "rtnetlink".to_owned(),
        error: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO),
    })?;
    let link = netlink.link(name)?;
    let change =
        LinkChange { mtu: Some(DEFAULT_MTU), queue_length: Some(QUEUE_LENGTH), ..LinkChange::default() };
    netlink.set_link(link.index, change)?;
    // No peer could be told where such an address is. A kernel without IPv6 gives none anyway.
    let _ = netlink.set_link(link.index, LinkChange { link_local: Some(false), ..LinkChange::default() });
    Ok(())
}

/// Which of the process's capabilities a thread keeps.
#[derive(Clone, Copy)]
pub(super) enum Rights {
    /// None: it carries packets, between descriptors that are open.
    None,
    /// Those that concern the network namespace it is in, to bind and to mark sockets.
    OwnNamespace,
    /// Also that of going to another namespace.
    All,
}

impl Rights {
    pub(super) fn keep(self) -> Result<(), caps::errors::CapsError> {
        match self {
            Self::None => {
                caps::clear(None, CapSet::Effective)?;
                caps::clear(None, CapSet::Permitted)
            }
            Self::OwnNamespace => {
                caps::drop(None, CapSet::Effective, Capability::CAP_SYS_ADMIN)?;
                caps::drop(None, CapSet::Permitted, Capability::CAP_SYS_ADMIN)
            }
            Self::All => Ok(()),
        }
    }
}

/// What an interface is made of, before it runs.
struct Parts {
    device: Arc<TunDevice>,
    offloads: Arc<Offloads>,
    engine: Arc<dyn Engine>,
    slot: SocketSlot,
    drops: Drops,
    stop: Arc<AtomicBool>,
    outbound_wake: Arc<Wake>,
    inbound_wake: Arc<Wake>,
    link_wake: Arc<Wake>,
}

impl Parts {
    fn new(device: Arc<TunDevice>, offloads: Arc<Offloads>, engine: Arc<dyn Engine>) -> io::Result<Self> {
        Ok(Self {
            device,
            offloads,
            engine,
            slot: Arc::new(ArcSwapOption::empty()),
            drops: Drops::default(),
            stop: Arc::default(),
            outbound_wake: Arc::new(Wake::new()?),
            inbound_wake: Arc::new(Wake::new()?),
            link_wake: Arc::new(Wake::new()?),
        })
    }

    fn start(self, options: Options, events: mpsc::UnboundedSender<Removed>) -> io::Result<Interface> {
        let (notices, notices_out) = unbounded();
        let (commands, commands_out) = unbounded();
        let (punt, datagrams) = Punt::new();
        let shared = Shared {
            tables: Arc::new(Tables::new(Protocol::WireGuard, DEFAULT_MTU as usize)),
            notices,
            clock: Clock,
        };
        let tables = Arc::clone(&shared.tables);
        let inbox = Inbox { commands: commands_out, notices: notices_out, datagrams, punt: punt.clone() };
        let follower = Follower {
            device: Arc::clone(&self.device),
            commands: commands.clone(),
            wake: Arc::clone(&self.link_wake),
            stop: Arc::clone(&self.stop),
        };
        let threads = vec![
            self.spawn("out", Rights::None, self.outbound(&shared, &options, events))?,
            self.spawn("in", Rights::None, self.inbound(&shared, options, punt))?,
            self.spawn("lane", Rights::OwnNamespace, self.lane(shared, inbox))?,
            self.spawn("link", Rights::All, move || follower.run())?,
        ];
        Ok(Interface {
            device: self.device,
            tables,
            offloads: self.offloads,
            slot: self.slot,
            drops: self.drops,
            commands,
            stop: self.stop,
            wakes: vec![self.outbound_wake, self.inbound_wake, self.link_wake],
            threads,
        })
    }

    fn spawn(
        &self,
        role: &str,
        rights: Rights,
        body: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        thread::Builder::new().name(format!("{} {role}", self.device.name())).spawn(move || {
            if let Err(error) = rights.keep() {
                tracing::warn!("a thread keeps more rights than it needs: {error}");
            }
            body();
        })
    }

    fn outside(&self) -> UdpTransmit {
        UdpTransmit::new(Arc::clone(&self.slot), Arc::clone(&self.offloads))
    }

    /// From the inside to the outside, until the interface is gone.
    fn outbound(
        &self,
        shared: &Shared,
        options: &Options,
        events: mpsc::UnboundedSender<Removed>,
    ) -> impl FnOnce() + Send + use<> {
        let (inside, answers) = tun::halves(Arc::clone(&self.device), Arc::clone(&self.offloads));
        let mut inside: Box<dyn Receive> = Box::new(inside);
        if let Some(capture) = &options.capture_inside {
            inside = Box::new(Captured::new(inside, capture.clone()));
        }
        let mut outside: Box<dyn Transmit> = Box::new(self.outside());
        if let Some(capture) = &options.capture_outside {
            outside = Box::new(Captured::new(outside, capture.clone()));
        }
        let egress = Egress::new(shared.clone(), outside, Arc::clone(&self.drops.outbound));
        let mut worker = Outbound::new(shared.clone(), inside, answers, egress, tun::BATCH_BYTES);
        let (stop, wake) = (Arc::clone(&self.stop), Arc::clone(&self.outbound_wake));
        let name = self.device.name().to_owned();
        move || {
            if let Err(error) = worker.serve(&stop, &wake) {
                tracing::info!("interface {name} is gone: {error}");
                // Nobody waits for the event any more when the daemon is about to end.
                let _ = events.send(Removed(name));
            }
        }
    }

    /// From the outside to the inside.
    fn inbound(&self, shared: &Shared, options: Options, punt: Punt) -> impl FnOnce() + Send + use<> {
        let drops = Arc::clone(&self.drops.inbound);
        let mut outside: Box<dyn Receive> =
            Box::new(UdpReceive::new(Arc::clone(&self.slot), Arc::clone(&self.offloads)));
        if let Some(capture) = options.capture_outside {
            outside = Box::new(Captured::new(outside, capture));
        }
        if let Some(faults) = options.faults {
            outside = Box::new(Fault::new(outside, faults, Arc::clone(&drops)));
        }
        let mut inside: Box<dyn Transmit> =
            Box::new(TunTransmit::new(Arc::clone(&self.device), Arc::clone(&self.offloads)));
        if let Some(capture) = options.capture_inside {
            inside = Box::new(Captured::new(inside, capture));
        }
        let mut worker = Inbound::new(shared.clone(), outside, inside, punt, drops, udp::BATCH_BYTES);
        let (stop, wake) = (Arc::clone(&self.stop), Arc::clone(&self.inbound_wake));
        let name = self.device.name().to_owned();
        move || {
            if let Err(error) = worker.serve(&stop, &wake) {
                tracing::error!("interface {name} receives nothing more from outside: {error}");
            }
        }
    }

    fn lane(&self, shared: Shared, inbox: Inbox) -> impl FnOnce() + Send + use<> {
        let binding =
            Binding::new(Arc::clone(&self.slot), Arc::clone(&self.offloads), Arc::clone(&self.inbound_wake));
        let random = Box::new(random::System::default());
        let (engine, drops) = (Arc::clone(&self.engine), Arc::clone(&self.drops.lane));
        let lane = Lane::new(engine, random, shared, self.outside(), drops, binding, inbox);
        move || {
            if let Err(error) = run_when_idle() {
                tracing::debug!("handshakes may delay packets: {error}");
            }
            lane.run();
        }
    }
}
