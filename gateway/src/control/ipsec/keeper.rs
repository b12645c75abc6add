//! Keeps the kernel's routes what they should be, while links and addresses come and go and others clear up.

use super::gateway::{Gateway, NAME};
use super::network::Network;
use super::unprotected::Unprotected;
use crate::control::netlink::{Netlink, NetlinkError, subscribe};
use crate::control::rights::Rights;
use crate::control::rules::{self, Rules};
use netlink_sys::Socket;
use port::Wake;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The multicast groups of changes of links and addresses (linux/rtnetlink.h).
const GROUPS: [u32; 3] = [1, 5, 9];
/// Changes come in bursts.
const SETTLE: Duration = Duration::from_millis(100);

/// What is kept, and who is told of changes, if it is there.
#[derive(Default)]
struct Kept {
    network: Network,
    gateway: Weak<Gateway>,
}

/// Keeps the routes. Dropping it ends that and leaves them.
pub struct Keeper {
    kept: Arc<Mutex<Kept>>,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// What arrives in clear is refused as long as this lives.
    _unprotected: Option<Unprotected>,
}

impl Keeper {
    /// Keeps nothing yet.
    pub fn start() -> io::Result<Self> {
        let kept = Arc::new(Mutex::new(Kept::default()));
        let (wake, stop) = (Arc::new(Wake::new()?), Arc::new(AtomicBool::new(false)));
        let socket = subscribe(&GROUPS)?;
        socket.set_non_blocking(true)?;
        let watch = Watch { socket, kept: kept.clone(), wake: wake.clone(), stop: stop.clone() };
        let thread = thread::Builder::new().name(format!("{NAME} routes")).spawn(move || {
            Rights::Network.keep();
            watch.run();
        })?;
        Ok(Self { kept, wake, stop, thread: Some(thread), _unprotected: refuse_unprotected() })
    }

    /// Keeps these routes from now on, and tells the gateway when links or addresses have changed.
    pub fn keep(&self, network: Network, gateway: &Arc<Gateway>) -> Result<(), NetlinkError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Kept { network, gateway: Arc::downgrade(gateway) };
        restore(&kept.network)
    }

    /// Ends, and takes the routes away; before them the rules, without which they are nothing.
    pub fn end(self, rules: &mut Rules) -> Result<(), NetlinkError> {
        drop(self);
        let mut netlink = Netlink::open().map_err(failed)?;
        let without_rules = rules.change(&mut netlink, NAME, &BTreeSet::new());
        without_rules.and(Network::default().keep(&mut netlink, None))
    }
}

/// Not every kernel can.
fn refuse_unprotected() -> Option<Unprotected> {
    let refused = Unprotected::refuse();
    if let Err(error) = &refused {
        tracing::warn!(
            "vpn ipsec: packets that arrive in clear from networks behind peers are not refused: {error}\n  \
             fix: modprobe nft_fib_inet, with Linux 5.12 or later, and restart; or, if no tunnel has 0.0.0.0/0 or no prefix, sysctl -w net.ipv4.conf.all.rp_filter=1"
        );
    }
    refused.ok()
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so already.
            let _ = thread.join();
        }
    }
}

/// Takes away what a daemon that was killed has left, if there is no other that needs it.
pub fn clear_stale() -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open().map_err(failed)?;
    if netlink.link(NAME).is_ok() || !Network::is_present(&mut netlink)? {
        return Ok(());
    }
    tracing::info!("a daemon that was killed has left routes for IPsec: removed");
    Network::default().keep(&mut netlink, None)?;
    rules::remove_stale(&mut netlink)
}

/// What notices changes.
struct Watch {
    socket: Socket,
    kept: Arc<Mutex<Kept>>,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
}

impl Watch {
    fn run(self) {
        while !self.stop.load(Ordering::Relaxed) {
            match self.wake.wait([Some(self.socket.as_fd())]) {
                Ok([true]) => self.changed(),
                Ok([false]) => {}
                Err(error) => return tracing::error!("routes for IPsec are kept no more: {error}"),
            }
        }
    }

    fn changed(&self) {
        thread::sleep(SETTLE);
        // What they say does not matter, nor whether some were lost: all is compared.
        while may_have_more(self.socket.recv_from_full()) {}
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = restore(&kept.network) {
            tracing::warn!("vpn ipsec: {error}");
        }
        let gateway = kept.gateway.upgrade();
        drop(kept);
        if let Some(gateway) = gateway {
            gateway.measure();
        }
    }
}

/// Whether there may be more to read.
fn may_have_more<T>(received: io::Result<T>) -> bool {
    received.err().is_none_or(|error| Errno::from_io_error(&error) == Some(Errno::NOBUFS))
}

/// Gives the kernel the routes and rules that it lacks, and takes routes that it should not have.
fn restore(network: &Network) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open().map_err(failed)?;
    // Nothing can lead to a link that is down, or to none.
    let index = netlink.link(NAME).ok().filter(|link| link.up).map(|link| link.index);
    let mut outcome = network.keep(&mut netlink, index);
    for rule in network.rules() {
        outcome = outcome.and(netlink.add_rule(rule));
    }
    outcome
}

fn failed(error: io::Error) -> NetlinkError {
    NetlinkError { what: "rtnetlink".to_owned(), error: Errno::from_io_error(&error).unwrap_or(Errno::IO) }
}
