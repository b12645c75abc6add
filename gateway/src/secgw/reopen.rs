//! Ports whose interface was deleted: a thread that may open ports waits for a new interface of the name, and gives the open port to the
//! workers. The other ports go on meanwhile. It also logs when the link of a port of DPDK goes up and down.

use super::plan::PortPlan;
use super::ports::{BUSY, FramePort, open};
use super::stopper::Stopper;
use crate::rights::Rights;
use ::dpdk::port::LinkState;
use config::secgw::Driver;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often interfaces are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Ports that were opened again, for each worker.
pub struct Reopened(Vec<Given>);

/// What was given to a worker.
#[derive(Default)]
struct Given {
    is_any: AtomicBool,
    ports: Mutex<Vec<FramePort>>,
}

impl Reopened {
    /// Starts the thread, for `ports` that are open. It keeps the rights to open them, so it must be started while the process has them.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(plans: &[PortPlan], ports: &[Vec<FramePort>], stopper: Stopper) -> io::Result<Arc<Self>> {
        let workers = stopper.workers();
        let reopened = Arc::new(Self((0..workers).map(|_| Given::default()).collect()));
        // DPDK cannot open a port again, and files have no interface.
        let plans = plans.iter().filter(|plan| !matches!(plan.driver, Driver::Dpdk | Driver::Pcap));
        let mut watched: Vec<Watched> = plans.cloned().map(Watched::new).collect();
        let mut links: Vec<Link> = ports.first().into_iter().flatten().filter_map(Link::of).collect();
        let give = Arc::clone(&reopened);
        std::thread::Builder::new().name("secgw ports".to_owned()).spawn(move || {
            Rights::Ports.keep();
            if watched.is_empty() {
                Rights::None.keep();
            }
            loop {
                links.iter_mut().for_each(Link::look);
                std::thread::sleep(LOOK);
                // The workers have ended.
                if Arc::strong_count(&give) == 1 {
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
        Ok(reopened)
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
    /// What was said last about why it is not open.
    said: Option<String>,
}

impl Watched {
    fn new(plan: PortPlan) -> Self {
        let index = index(&plan.interface);
        Self { plan, index, said: None }
    }

    /// The port for each worker, if it has just been opened again.
    fn look(&mut self, workers: usize) -> Option<Vec<FramePort>> {
        let there = index(&self.plan.interface);
        if there.is_some() && there == self.index {
            return None;
        }
        match open(&self.plan, workers, BUSY) {
            Ok(ports) => {
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

/// The number of an interface, up or down.
fn index(name: &str) -> Option<u32> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    netdevice::name_to_index(&socket, name).ok()
}
