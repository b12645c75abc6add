//! Ports that carry frames: their drivers, and the state of each.

use super::dpdk;
use super::files;
use super::frame::Address;
use super::plan::PortPlan;
use ::dpdk::DeviceError;
use ::dpdk::port::LinkState;
use config::secgw::Driver;
use port::frame_files::FileError;
use port::link::{self, Channels, LinkError, hardware_address};
use port::tun::TunError;
use port::xdp::{self, QUEUES, Take, XdpOptions, XdpTransmit};
use port::{Receive, Transmit, af_packet, tap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tunnel::Time;

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Of an interface that is there.
    #[error("port {0}: {1}")]
    Link(u16, LinkError),
    /// Of a TAP interface.
    #[error("port {0}: {1}")]
    Tap(u16, TunError),
    /// Of DPDK.
    #[error("port {0}: {1}")]
    Dpdk(u16, DeviceError),
    /// DPDK does not run.
    #[error(
        "port {0}: DPDK does not run: it starts with the daemon, if the configuration has a port of DPDK then; the log says why if it could not\n  \
         fix: restart the daemon"
    )]
    NoDpdk(u16),
    /// Of a capture file.
    #[error("port {0}: {1}")]
    File(u16, FileError),
    /// NAPI of an interface cannot be deferred.
    #[error(
        "port {0}: NAPI of {1} cannot be deferred: {2}\n  \
         fix: leave out defer_napi (defer-napi), or start it as root with the sysfs of the network namespace at /sys, writable, as ip \
         netns exec mounts it; under systemd, that takes a drop-in with ProtectKernelTunables=no and User=root: see docs/secgw.md"
    )]
    Defer(u16, String, std::io::Error),
    /// A file that would be emptied while another port has it, or the same.
    #[error(
        "port {number} writes {}, which port {other} has too\n  fix: give each tx_pcap a file of its own",
        path.display()
    )]
    SameFile {
        /// The port that writes it.
        number: u16,
        /// The port that reads it, or writes it too.
        other: u16,
        /// The file.
        path: std::path::PathBuf,
    },
    /// Other queues than are received from: the kernel would have the frames of some.
    #[error(
        "port {number}: {interface} has {queues} queues{from}, and frames are received from {wanted}\n  \
         fix: ethtool -L {interface} {words} (with postern secgw: or name its queues in --config)"
    )]
    Queues {
        /// The port.
        number: u16,
        /// Its interface.
        interface: String,
        /// How many it has.
        queues: usize,
        /// From which one on, if that is not the first.
        from: String,
        /// How many it should have.
        wanted: usize,
        /// The words that set it so.
        words: String,
    },
    /// An interface whose MTU is too short.
    #[error(
        "port {number}: {interface} has an MTU of {mtu}, and packets are up to {wanted} bytes long\n  \
         fix: ip link set dev {interface} mtu {wanted}"
    )]
    Mtu {
        /// The port.
        number: u16,
        /// Its interface.
        interface: String,
        /// The MTU that it has.
        mtu: u32,
        /// The MTU that it should have.
        wanted: u16,
    },
}

/// How long a TAP interface that another process has open is waited for: one that was killed may still be closing it.
pub const BUSY: Duration = Duration::from_secs(2);
/// How often it is tried meanwhile.
const RETRY: Duration = Duration::from_millis(10);
/// The MTU of all interfaces of Ethernet, unless another is set.
const USUAL_MTU: u16 = 1500;

/// An open port, as one worker has it.
pub struct FramePort {
    /// Its number.
    pub number: u16,
    /// The name of its interface, or another one.
    pub name: String,
    /// Whether its packets are in clear.
    pub is_protected: bool,
    /// Its Ethernet address, if frames for other stations are dropped.
    pub station: Option<Address>,
    /// Its Ethernet address.
    pub address: Address,
    /// The IP addresses that it answers ARP and neighbour discovery for.
    pub own: Arc<[IpAddr]>,
    /// Where frames come from: the queues of this worker.
    pub queues: Vec<Queue>,
    /// Where frames go.
    pub transmit: Box<dyn Transmit>,
    /// Whether frames are received.
    pub is_received: bool,
    /// Whether its link is up, of a port that does not say so when it is read.
    pub link: Option<LinkState>,
}

/// A queue that a worker receives from.
pub struct Queue {
    /// Where frames come from.
    pub receive: Box<dyn Receive>,
    /// Whether its last read failed.
    pub is_failing: bool,
    /// Until when it is not read and not waited for: the port is down.
    pub rests_until: Option<Time>,
}

impl Queue {
    /// A queue that was not read yet.
    pub fn new(receive: impl Receive + 'static) -> Self {
        Self { receive: Box::new(receive), is_failing: false, rests_until: None }
    }
}

/// Opens ports for so many workers: for each worker, all ports, with the queues that it receives from. TAP interfaces that another process has
/// open are waited for with this patience, such as [`BUSY`].
///
/// # Errors
/// See [`open`].
pub fn open_all(
    plans: &[PortPlan],
    workers: usize,
    patience: Duration,
) -> Result<Vec<Vec<FramePort>>, PortError> {
    files::check(plans)?;
    let mut of_workers: Vec<Vec<FramePort>> = (0..workers).map(|_| Vec::new()).collect();
    for plan in plans {
        for (ports, port) in of_workers.iter_mut().zip(open(plan, workers, patience)?) {
            ports.push(port);
        }
    }
    Ok(of_workers)
}

/// Opens a port for each of so many workers; needs CAP_NET_RAW, and CAP_BPF and CAP_NET_ADMIN by its driver. Each worker has a sending half
/// of its own.
///
/// # Errors
/// The interface is missing, down or used, has not the right number of queues, or a right is missing.
pub fn open(plan: &PortPlan, workers: usize, patience: Duration) -> Result<Vec<FramePort>, PortError> {
    let (number, name) = (plan.number, plan.interface.as_str());
    let link = |error| PortError::Link(number, error);
    check_mtu(plan)?;
    let (queues, transmits) = match plan.driver {
        Driver::AfXdp => open_xdp(plan, workers)?,
        Driver::Tap => open_tap(plan, workers, patience).map_err(|error| PortError::Tap(number, error))?,
        Driver::Dpdk => return Ok(of_workers(plan, workers, dpdk::open(plan, workers)?)),
        Driver::Pcap => return Ok(of_workers(plan, workers, files::open(plan, workers)?)),
        // Crypto devices are no ports.
        Driver::AfPacket | Driver::Crypto => open_packet(plan, workers).map_err(link)?,
    };
    let address = hardware_address(name).map_err(link)?;
    let opened = Opened { name: name.to_owned(), address, queues, transmits, link: None };
    Ok(of_workers(plan, workers, opened))
}

/// What a driver has opened.
pub(super) struct Opened {
    /// The name of its interface, or another one.
    pub name: String,
    /// Its Ethernet address.
    pub address: Address,
    /// Its queues.
    pub queues: Vec<Queue>,
    /// A sending half for each worker.
    pub transmits: Vec<Box<dyn Transmit>>,
    /// See [`FramePort::link`].
    pub link: Option<LinkState>,
}

/// A port for each worker.
fn of_workers(plan: &PortPlan, workers: usize, opened: Opened) -> Vec<FramePort> {
    let Opened { name, address, queues, transmits, link } = opened;
    let own: Arc<[IpAddr]> = plan.own.as_slice().into();
    let port = |transmit| FramePort {
        number: plan.number,
        name: name.clone(),
        is_protected: plan.is_protected,
        station: (!plan.is_promiscuous).then_some(address),
        address,
        own: Arc::clone(&own),
        queues: Vec::new(),
        transmit,
        is_received: plan.is_received(),
        link: link.clone(),
    };
    let mut ports: Vec<FramePort> = transmits.into_iter().map(port).collect();
    for (queue, receive) in queues.into_iter().enumerate() {
        ports[plan.queues.receiver(queue, workers)].queues.push(receive);
    }
    ports
}

/// Refuses an interface that is too short for a `--mtu` above that of Ethernet. TAP interfaces and ports of DPDK are given this MTU when they
/// are opened, and capture files have none.
fn check_mtu(plan: &PortPlan) -> Result<(), PortError> {
    if plan.mtu <= USUAL_MTU || matches!(plan.driver, Driver::Tap | Driver::Dpdk | Driver::Pcap) {
        return Ok(());
    }
    let PortPlan { number, mtu: wanted, .. } = *plan;
    let mtu = link::mtu(&plan.interface).map_err(|error| PortError::Link(number, error))?;
    if mtu >= u32::from(wanted) {
        return Ok(());
    }
    Err(PortError::Mtu { number, interface: plan.interface.clone(), mtu, wanted })
}

/// The queues of a port, and a sending half for each worker.
type Halves = (Vec<Queue>, Vec<Box<dyn Transmit>>);

/// A worker sends by a queue that it receives from. One without a queue sends by a packet socket: two do not send by one queue.
fn open_xdp(plan: &PortPlan, workers: usize) -> Result<Halves, PortError> {
    let (number, name, wanted) = (plan.number, plan.interface.as_str(), plan.queues.receivers.len());
    let first = plan.queues.first;
    // Without words about queues, all those of the interface are of the port.
    let most_queues = if plan.queues.is_chosen { wanted.max(1) as u32 } else { QUEUES };
    let usual = XdpOptions::default();
    let frame = plan.frame().max(usual.frame);
    // Without addresses of its own, the kernel answers ARP and neighbour discovery.
    let take = if plan.own.is_empty() { Take::Ip } else { Take::All };
    let shares_memory = plan.queues.shares_memory;
    let options = XdpOptions { take, first_queue: first, most_queues, frame, shares_memory, ..usual };
    let link = |error| PortError::Link(number, error);
    let opened = xdp::open(name, options).map_err(link)?;
    let channels = Channels::of(name);
    if opened.is_empty() || (plan.is_received() && opened.len() != wanted) {
        let words =
            channels.map_or_else(|| format!("combined {wanted}"), |it| it.words(first as usize + wanted));
        let from = if first == 0 { String::new() } else { format!(" from queue {first} on") };
        let (interface, queues) = (name.to_owned(), opened.len());
        return Err(PortError::Queues { number, interface, queues, from, wanted, words });
    }
    if plan.is_received()
        && let Some(others) = channels.map(|it| it.receiving() as usize).filter(|&all| all > wanted)
    {
        tracing::warn!(
            "port {number}: {name} has {others} queues: the kernel has the frames of those that are not of the port"
        );
    }
    // A queue may be one that only receives.
    let sending = channels.map_or(QUEUES, Channels::sending).saturating_sub(first) as usize;
    let (mut queues, mut halves) = (Vec::new(), Vec::new());
    for (queue, (receive, transmit)) in opened.into_iter().enumerate() {
        queues.push(Queue::new(receive));
        halves.push((plan.queues.receiver(queue, workers), Some(transmit).filter(|_| queue < sending)));
    }
    let mut own = |worker: usize| -> Option<XdpTransmit> {
        halves.iter_mut().find_map(|(of, half)| half.take_if(|_| *of == worker))
    };
    let transmits = (0..workers).map(|worker| -> Result<Box<dyn Transmit>, LinkError> {
        match own(worker) {
            Some(transmit) => Ok(Box::new(transmit)),
            None => Ok(Box::new(af_packet::open_transmit(name)?)),
        }
    });
    let transmits = transmits.collect::<Result<_, _>>().map_err(link)?;
    Ok((queues, transmits))
}

/// All workers send by all queues: the kernel takes frames of one queue from any thread.
fn open_tap(plan: &PortPlan, workers: usize, patience: Duration) -> Result<Halves, TunError> {
    let count = plan.queues.receivers.len().max(1);
    let opened = when_free(patience, || tap::open_queues(&plan.interface, count, plan.frame()))?;
    tap::set_up(&plan.interface, plan.address, Some(plan.mtu).filter(|&mtu| mtu > USUAL_MTU))?;
    let transmits = (0..workers).map(|worker| -> Box<dyn Transmit> {
        let own = (0..opened.len()).find(|&queue| plan.queues.receiver(queue, workers) == worker);
        Box::new(opened[own.unwrap_or(worker % opened.len())].1.another())
    });
    let transmits = transmits.collect();
    Ok((opened.into_iter().map(|(receive, _)| Queue::new(receive)).collect(), transmits))
}

/// Opens a TAP interface once no other process has it open.
fn when_free<T>(patience: Duration, open: impl Fn() -> Result<T, TunError>) -> Result<T, TunError> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(TunError::Busy(_)) if begun.elapsed() < patience => std::thread::sleep(RETRY),
            outcome => return outcome,
        }
    }
}

fn open_packet(plan: &PortPlan, workers: usize) -> Result<Halves, LinkError> {
    let queues = af_packet::open_queues(&plan.interface, plan.queues.receivers.len().max(1), plan.frame())?;
    let transmits = (0..workers).map(|_| -> Result<Box<dyn Transmit>, LinkError> {
        Ok(Box::new(af_packet::open_transmit(&plan.interface)?))
    });
    let transmits = transmits.collect::<Result<_, _>>()?;
    Ok((queues.into_iter().map(Queue::new).collect(), transmits))
}
