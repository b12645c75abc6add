//! What the daemon and the thread share: orders one way, results the other, and the sockets.

use super::model::Paths;
use super::thread::{Place, Thread};
use crate::rights::Rights;
use config::settings::{PathMonitor, PathProtocol, PathTarget};
use port::Wake;
use port::probe::ProbeSocket;
use port::schedule::yield_to_packets;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long the thread may take to take over orders.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why paths are not measured.
#[derive(Debug, thiserror::Error)]
pub(super) enum MonitorError {
    /// The sockets of probes.
    #[error(
        "service path-monitor: no socket for {what}: {error}\n  fix: the daemon needs CAP_NET_RAW for ICMP; set service path-monitor protocol stamp needs none"
    )]
    Probes { what: &'static str, error: Errno },
    /// A socket of the reflector.
    #[error(
        "service path-monitor reflector listen-address {at}: {error}\n  fix: another program has the port, as ss -lunp says; or set service path-monitor reflector port"
    )]
    Reflector { at: SocketAddr, error: Errno },
    /// There is no thread.
    #[error("service path-monitor: its thread cannot be started: {0}")]
    Thread(#[from] io::Error),
}

/// The sockets: of IPv4 and IPv6, and those of the reflector.
#[derive(Clone, Default)]
pub(super) struct Sockets {
    pub(super) echo: [Option<Arc<ProbeSocket>>; 2],
    pub(super) senders: [Option<Arc<ProbeSocket>>; 2],
    pub(super) reflectors: BTreeMap<SocketAddr, Arc<ProbeSocket>>,
}

impl Sockets {
    /// Opens the sockets that these settings need, and keeps those of `before` that serve the same addresses.
    fn open(wanted: &PathMonitor, before: &Self) -> Result<Self, MonitorError> {
        let mut sockets = Self::default();
        for PathTarget { address, protocol, .. } in wanted.targets.values() {
            let (is_v4, place) = (address.is_ipv4(), usize::from(!address.is_ipv4()));
            let (now, then, open, what): (_, _, fn(bool) -> _, _) = match protocol {
                PathProtocol::Icmp => (&mut sockets.echo, &before.echo, ProbeSocket::echo, "ICMP echo"),
                PathProtocol::Stamp(_) => {
                    (&mut sockets.senders, &before.senders, ProbeSocket::sender, "STAMP")
                }
            };
            if now[place].is_none() {
                now[place] = match &then[place] {
                    Some(known) => Some(Arc::clone(known)),
                    None => opened(open(is_v4)).map_err(|error| MonitorError::Probes { what, error })?,
                };
            }
        }
        for at in wanted.reflector.iter().flat_map(|reflector| &reflector.listen) {
            let known = before.reflectors.get(at).cloned();
            let open = || ProbeSocket::reflector(*at).map(Arc::new);
            let socket = known.map_or_else(open, Ok);
            let socket = socket.map_err(|error| MonitorError::Reflector { at: *at, error })?;
            sockets.reflectors.insert(*at, socket);
        }
        Ok(sockets)
    }

    /// Those that probes are sent from.
    pub(super) fn measuring(&self) -> Vec<(Place, Arc<ProbeSocket>)> {
        let echo = self.echo.iter().flatten().map(|socket| (Place::Echo, Arc::clone(socket)));
        echo.chain(self.senders.iter().flatten().map(|socket| (Place::Sender, Arc::clone(socket)))).collect()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<ProbeSocket>> {
        self.echo.iter().chain(&self.senders).flatten().chain(self.reflectors.values())
    }

    /// Any of them, to ask the kernel by.
    pub(super) fn any(&self) -> Option<&Arc<ProbeSocket>> {
        self.all().next()
    }
}

/// A machine without an IP version has no socket of it.
fn opened(socket: Result<ProbeSocket, Errno>) -> Result<Option<Arc<ProbeSocket>>, Errno> {
    match socket {
        Ok(socket) => Ok(Some(Arc::new(socket))),
        Err(Errno::AFNOSUPPORT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the thread is to do from now on.
pub(super) struct Orders {
    pub(super) targets: BTreeMap<String, PathTarget>,
    pub(super) sockets: Sockets,
    /// Answers of the reflector a second.
    pub(super) rate: u32,
    /// Is told once the thread has let go of sockets that are not in use any more.
    pub(super) taken: oneshot::Sender<()>,
}

/// What the daemon and the thread share.
pub(super) struct Shared {
    orders: Mutex<Option<Orders>>,
    wake: Wake,
    is_stopped: AtomicBool,
    shown: Results,
}

/// What is shown, also while there is no thread.
pub(super) type Results = Arc<Mutex<Arc<Paths>>>;

impl Shared {
    pub(super) fn new(shown: &Results) -> io::Result<Self> {
        Ok(Self {
            orders: Mutex::default(),
            wake: Wake::new()?,
            is_stopped: AtomicBool::new(false),
            shown: Arc::clone(shown),
        })
    }

    pub(super) fn wake(&self) -> &Wake {
        &self.wake
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    pub(super) fn take_orders(&self) -> Option<Orders> {
        lock(&self.orders).take()
    }

    pub(super) fn show(&self, paths: Paths) {
        *lock(&self.shown) = Arc::new(paths);
    }
}

/// The thread, and the sockets that it has.
#[derive(Default)]
pub(super) struct Monitor {
    running: Option<(Arc<Shared>, thread::JoinHandle<()>)>,
    sockets: Sockets,
    shown: Results,
}

impl Monitor {
    /// What has been measured.
    pub(super) fn results(&self) -> Results {
        Arc::clone(&self.shown)
    }

    /// Measures what these settings say from now on; without any, the thread ends.
    pub(super) async fn order(&mut self, wanted: Option<&PathMonitor>) -> Result<(), MonitorError> {
        let Some(wanted) = wanted else {
            self.stop();
            return Ok(());
        };
        let sockets = Sockets::open(wanted, &self.sockets)?;
        let (taken, is_taken) = oneshot::channel();
        let rate = wanted.reflector.as_ref().map_or(1, |reflector| reflector.rate);
        let orders = Orders { targets: wanted.targets.clone(), sockets: sockets.clone(), rate, taken };
        // A panic was logged already.
        if self.running.as_ref().is_none_or(|(_, thread)| thread.is_finished()) {
            self.running = Some(start(&self.shown)?);
        }
        if let Some((shared, _)) = &self.running {
            *lock(&shared.orders) = Some(orders);
            shared.wake.notify();
        }
        self.sockets = sockets;
        // It has closed the sockets before, so their ports are free.
        let _ = tokio::time::timeout(PATIENCE, is_taken).await;
        Ok(())
    }

    /// Ends the thread, and closes the sockets.
    pub(super) fn stop(&mut self) {
        if let Some((shared, thread)) = self.running.take() {
            shared.is_stopped.store(true, Ordering::Relaxed);
            shared.wake.notify();
            // It never waits for anything but its sockets. If it panicked, it has said so.
            let _ = thread.join();
        }
        self.sockets = Sockets::default();
        *lock(&self.shown) = Arc::default();
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn start(shown: &Results) -> io::Result<(Arc<Shared>, thread::JoinHandle<()>)> {
    let shared = Arc::new(Shared::new(shown)?);
    let of_thread = Arc::clone(&shared);
    let body = move || {
        if let Err(error) = yield_to_packets() {
            tracing::debug!("probes may delay packets: {error}");
        }
        // What it reads comes from unauthenticated sources; its sockets are open.
        Rights::Packets.keep();
        Thread::new(of_thread).run();
    };
    Ok((shared, thread::Builder::new().name("path".to_owned()).spawn(body)?))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::super::model::Path;
    use super::super::thread::Ending;
    use super::*;

    /// What the daemon and a thread share, with a result.
    fn shared(results: &Results) -> Arc<Shared> {
        let shared = Arc::new(Shared::new(results).expect("an event"));
        shared.show(Paths { targets: vec![Path::default()], ..Paths::default() });
        assert_eq!(lock(results).targets.len(), 1);
        shared
    }

    #[test]
    fn no_results_outlive_the_thread_however_it_ends() {
        let results = Results::default();
        let stopped = shared(&results);
        stopped.is_stopped.store(true, Ordering::Relaxed);
        Thread::new(stopped).run();
        assert!(lock(&results).targets.is_empty());
        let ending = Ending(shared(&results));
        let panics = move || {
            let _ending = ending;
            panic!("on purpose");
        };
        assert!(thread::spawn(panics).join().is_err());
        assert!(lock(&results).targets.is_empty());
    }
}
