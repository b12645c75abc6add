//! Ports whose interface was deleted: a thread that may open ports waits for a new interface of the name, and gives the open port to the
//! workers. The other ports go on meanwhile. It also logs when the link of a port of DPDK goes up and down, and keeps NAPI of interfaces
//! deferred.

use super::plan::PortPlan;
use super::ports::{BUSY, FramePort, PortError, open};
use super::stopper::Stopper;
use crate::rights::Rights;
use ::dpdk::port::LinkState;
use config::secgw::Driver;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use port::xdp::Deferral;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often interfaces are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Why ports are not watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// NAPI cannot be deferred.
    #[error(transparent)]
    Port(#[from] PortError),
    /// There is no thread.
    #[error("a thread for ports: {0}")]
    Thread(#[from] io::Error),
}

/// Ports that were opened again, for each worker.
pub struct Reopened(Vec<Given>);

/// What was given to a worker.
#[derive(Default)]
struct Given {
    is_any: AtomicBool,
    ports: Mutex<Vec<FramePort>>,
}

/// The thread that opens ports again. It ends when this is dropped, and puts back what it has set.
pub struct Watch {
    /// Taken when it ends.
    end: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end = None;
        // A thread that has panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Reopened {
    /// Starts the thread, for `ports` that are open, and defers NAPI of those that want it. It keeps the rights to open them, so it must be
    /// started while the process has them.
    ///
    /// # Errors
    /// No thread can be started, or NAPI cannot be deferred.
    pub fn watch(
        plans: &[PortPlan],
        ports: &[Vec<FramePort>],
        stopper: Stopper,
    ) -> Result<(Arc<Self>, Watch), WatchError> {
        let workers = stopper.workers();
        let reopened = Arc::new(Self((0..workers).map(|_| Given::default()).collect()));
        // DPDK cannot open a port again, and files have no interface.
        let plans = plans.iter().filter(|plan| !matches!(plan.driver, Driver::Dpdk | Driver::Pcap));
        let mut watched = plans.cloned().map(Watched::new).collect::<Result<Vec<_>, _>>()?;
        let mut links: Vec<Link> = ports.first().into_iter().flatten().filter_map(Link::of).collect();
        let give = Arc::clone(&reopened);
        let (end, ended) = bounded(0);
        let thread = std::thread::Builder::new().name("secgw ports".to_owned()).spawn(move || {
            Rights::Ports.keep();
            if watched.is_empty() {
                Rights::None.keep();
            }
            loop {
                links.iter_mut().for_each(Link::look);
                if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                for ports in watched.iter_mut().filter_map(|watched| watched.look(workers)) {
                    for (given, port) in give.0.iter().zip(ports) {
                        given.add(port);
                    }
                    stopper.wake();
                }
            }
        })?;
        Ok((reopened, Watch { end: Some(end), thread: Some(thread) }))
    }

    /// The ports of a worker that have been opened since its last call.
    #[inline]
    pub fn take(&self, worker: usize) -> Vec<FramePort> {
        self.0[worker].take()
    }
}

impl Given {
    fn add(&self, port: FramePort) {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner).push(port);
        self.is_any.store(true, Ordering::Release);
    }

    #[inline]
    fn take(&self) -> Vec<FramePort> {
        if !self.is_any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.is_any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *self.ports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The link of a port of DPDK.
struct Link {
    port: String,
    state: LinkState,
    was_up: Option<bool>,
}

impl Link {
    fn of(port: &FramePort) -> Option<Self> {
        let state = port.link.clone()?;
        Some(Self { port: format!("port {} ({})", port.number, port.name), state, was_up: None })
    }

    /// Logs a change.
    fn look(&mut self) {
        let is_up = self.state.is_up();
        if is_up == std::mem::replace(&mut self.was_up, is_up) {
            return;
        }
        match is_up {
            Some(true) => tracing::info!("{} is up", self.port),
            Some(false) => {
                tracing::warn!("{} is down: frames that leave by it are dropped as send-failed", self.port);
            }
            // It is closed: the gateway ends.
            None => {}
        }
    }
}

/// A port, and the interface that it was opened with.
struct Watched {
    plan: PortPlan,
    index: Option<u32>,
    /// Put back when it is dropped.
    deferral: Option<Deferral>,
    /// What was said last about why it is not open.
    said: Option<String>,
}

impl Watched {
    fn new(plan: PortPlan) -> Result<Self, PortError> {
        let (index, deferral) = (index(&plan.interface), defer(&plan)?);
        Ok(Self { plan, index, deferral, said: None })
    }

    /// The port for each worker, if it has just been opened again.
    fn look(&mut self, workers: usize) -> Option<Vec<FramePort>> {
        let there = index(&self.plan.interface);
        if there.is_some() && there == self.index {
            return None;
        }
        // What was set went with the interface: nothing is put back at another one of its name.
        self.deferral = None;
        let opened = open(&self.plan, workers, BUSY).and_then(|ports| Ok((ports, defer(&self.plan)?)));
        match opened {
            Ok((ports, deferral)) => {
                self.deferral = deferral;
                self.index = index(&self.plan.interface);
                self.said = None;
                tracing::info!("port {} ({}) is open again", self.plan.number, self.plan.interface);
                Some(ports)
            }
            Err(error) => {
                let error = error.to_string();
                if self.said.as_ref() != Some(&error) {
                    tracing::warn!(
                        "the interface of a port was deleted: it is opened again when it is there; the other ports go on: {error}"
                    );
                }
                self.said = Some(error);
                None
            }
        }
    }
}

/// Defers NAPI of a port that wants it.
fn defer(plan: &PortPlan) -> Result<Option<Deferral>, PortError> {
    let name = &plan.interface;
    let deferral = plan.defers_napi.then(|| Deferral::set(name)).transpose();
    deferral.map_err(|error| PortError::Defer(plan.number, name.clone(), error))
}

/// The number of an interface, up or down.
fn index(name: &str) -> Option<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(&socket, name).ok()
}
