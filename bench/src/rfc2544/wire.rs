//! The wires: pairs of ports to a device, and the same ports connected to each other, by which the tester is calibrated.

use super::addresses::Addresses;
use super::dpdk;
use super::tester::TesterPort;
use crate::Outcome;
use lab::{Lab, pin_thread};
use packet::{Batch, DropCounters};
use port::memory::{RingReceive, RingTransmit, ring};
use port::xdp::{Deferral, XdpOptions, XdpReceive};
use port::{Receive, Transmit, Wake, af_packet, tap, xdp};
use serde::Serialize;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Frames in a ring in memory.
const SLOTS: usize = 4096;

/// How frames get to the device and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wire {
    /// Rings in memory; the device is a thread that copies frames from ring to ring.
    Memory,
    /// Packet sockets on two interfaces.
    Packet,
    /// AF_XDP on two interfaces.
    AfXdp,
    /// Two TAP interfaces: the device is this machine's kernel.
    Tap,
    /// Two ports of DPDK.
    Dpdk,
}

/// Open ports, and what has to live as long as they.
pub struct Opened {
    /// The ports of the tester.
    pub ports: [TesterPort; 2],
    /// How each port was opened.
    pub told: [String; 2],
    /// The device, the network namespace of a link, or settings of interfaces.
    pub held: Held,
}

impl Opened {
    /// Ports at rings whose other ends are a device's.
    pub(crate) fn in_memory(addresses: &Addresses, ends: [(RingTransmit, RingReceive); 2]) -> Self {
        in_memory(addresses, ends, Held::default())
    }
}

/// What lives as long as the ports; dropped, it ends or is put back.
#[derive(Default)]
pub struct Held {
    /// The device in memory.
    _forwarder: Option<Forwarder>,
    /// The link of a calibration.
    _link: Option<Lab>,
    /// Deferred NAPI.
    deferrals: Vec<Deferral>,
}

/// The two halves of a port, and how it was opened.
pub(super) type Halves = (Box<dyn Transmit>, Box<dyn Receive>, String);

impl Wire {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Packet => "packet",
            Self::AfXdp => "af-xdp",
            Self::Tap => "tap",
            Self::Dpdk => "dpdk",
        }
    }

    /// Whether the ports are those of interfaces, or of devices of DPDK.
    pub fn has_interfaces(self) -> bool {
        self != Self::Memory
    }

    /// Opens the ports to the device; `core` is that of a device in memory.
    pub fn open(
        self,
        interfaces: &[String; 2],
        addresses: &Addresses,
        core: usize,
        defer: bool,
    ) -> Outcome<Opened> {
        if self == Self::Memory {
            let (forwarder, ends) = Forwarder::start(core)?;
            let held = Held { _forwarder: Some(forwarder), ..Held::default() };
            return Ok(in_memory(addresses, ends, held));
        }
        if self == Self::Dpdk {
            return Ok(on_interfaces(addresses, dpdk::pair(interfaces)?, Held::default()));
        }
        let halves = [self.halves(&interfaces[0])?, self.halves(&interfaces[1])?];
        let mut held = Held::default();
        for interface in interfaces.iter().filter(|_| defer) {
            let failed = |error| format!("{interface}: NAPI cannot be deferred: {error}");
            held.deferrals.push(Deferral::set(interface).map_err(failed)?);
        }
        Ok(on_interfaces(addresses, halves, held))
    }

    /// Opens ports of the same kind that are connected to each other: in memory by rings, of DPDK by net_memif, else by a veth pair.
    pub fn open_loop(self, addresses: &Addresses) -> Outcome<Opened> {
        if self == Self::Memory {
            let ((to_second, from_first), (to_first, from_second)) = (ring(SLOTS), ring(SLOTS));
            let ends = [(to_second, from_second), (to_first, from_first)];
            return Ok(in_memory(addresses, ends, Held::default()));
        }
        if self == Self::Dpdk {
            return Ok(on_interfaces(addresses, dpdk::looped()?, Held::default()));
        }
        let lab = Lab::new(&["loop"])?;
        // TAP interfaces have no peer: a bridge connects them.
        let steps: &[&str] = match self {
            Self::Tap => &[
                "tuntap add near mode tap",
                "tuntap add far mode tap",
                "link add bridge type bridge",
                "link set bridge up",
                "link set near master bridge",
                "link set far master bridge",
            ],
            _ => &["link add near type veth peer name far"],
        };
        // Frames of 1518 bytes are longer with ESP.
        for step in steps.iter().copied().chain(["link set near mtu 1800 up", "link set far mtu 1800 up"]) {
            lab.ip("loop", step)?;
        }
        let halves = lab.enter("loop", || {
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>([self.halves("near")?, self.halves("far")?])
        })??;
        Ok(on_interfaces(addresses, halves, Held { _link: Some(lab), ..Held::default() }))
    }

    fn halves(self, interface: &str) -> Outcome<Halves> {
        if self == Self::Tap {
            let (receive, transmit) = tap::open(interface)?;
            return Ok((Box::new(transmit), Box::new(receive), "TAP".to_owned()));
        }
        if self == Self::Packet {
            let (receive, transmit) = af_packet::open(interface)?;
            return Ok((Box::new(transmit), Box::new(receive), "packet sockets".to_owned()));
        }
        let (receive, mut transmit): (Vec<_>, Vec<_>) = xdp::open(interface, XdpOptions::default())
            .map_err(|error| format!("{error}\n  or use --wire packet, which works on every interface"))?
            .into_iter()
            .unzip();
        let told = format!("{}, queues: {}", receive[0].mode().name(), receive.len());
        Ok((Box::new(transmit.remove(0)), Box::new(AllQueues(receive)), told))
    }
}

/// Receives from all queues of an interface.
struct AllQueues(Vec<XdpReceive>);

impl Receive for AllQueues {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        let mut count = 0;
        for queue in &mut self.0 {
            count += queue.receive(batch, drops)?;
        }
        Ok(count)
    }

    /// Does not wait: the tester polls.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([]).map(|[]| ())
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.0.iter_mut().flat_map(Receive::counters).collect()
    }
}

fn on_interfaces(addresses: &Addresses, halves: [Halves; 2], held: Held) -> Opened {
    let told = [0, 1].map(|port: usize| halves[port].2.clone());
    let [first, second] = halves;
    let port = |port, (transmit, receive, _): Halves| TesterPort {
        transmit,
        receive,
        neighbour: addresses.neighbour(port),
        refused_is_lost: false,
    };
    Opened { ports: [port(0, first), port(1, second)], told, held }
}

fn in_memory(addresses: &Addresses, ends: [(RingTransmit, RingReceive); 2], held: Held) -> Opened {
    let [first, second] = ends;
    let port = |port, (transmit, receive): (RingTransmit, RingReceive)| TesterPort {
        transmit: Box::new(transmit),
        receive: Box::new(receive),
        neighbour: addresses.neighbour(port),
        refused_is_lost: true,
    };
    let told = [0, 1].map(|_| format!("rings of {SLOTS} frames"));
    Opened { ports: [port(0, first), port(1, second)], told, held }
}

/// A device in memory: a thread that copies frames between two ports of it, and sleeps never.
pub struct Forwarder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts the thread on `core`; returns the other ends of its rings.
    fn start(core: usize) -> Outcome<(Self, [(RingTransmit, RingReceive); 2])> {
        let ends = || {
            let ((to_device, from_tester), (to_tester, from_device)) = (ring(SLOTS), ring(SLOTS));
            ((to_device, from_device), (to_tester, from_tester))
        };
        let ((first, first_far), (second, second_far)) = (ends(), ends());
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let forward = move || {
            // A machine with one core has no other.
            let _ = pin_thread(None, core);
            let (mut batch, drops) = (Batch::new(64 * 1024), DropCounters::default());
            let ((mut to_first, mut from_first), (mut to_second, mut from_second)) = (first_far, second_far);
            while !is_stopped.load(Ordering::Relaxed) {
                pass(&mut from_first, &mut to_second, &mut batch, &drops);
                pass(&mut from_second, &mut to_first, &mut batch, &drops);
            }
        };
        let thread = std::thread::Builder::new().name("device".to_owned()).spawn(forward)?;
        Ok((Self { stop, thread: Some(thread) }, [first, second]))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn pass(from: &mut dyn Receive, to: &mut dyn Transmit, batch: &mut Batch, drops: &DropCounters) {
    batch.clear();
    if from.receive(batch, drops).is_ok_and(|count| count > 0) {
        to.transmit(batch, drops);
    } else {
        std::hint::spin_loop();
    }
}
