//! What the kernel is to have of us: addresses, routes, rules, and the guard. One owner knows it, one thread sees that it
//! stays: it compares what is wanted with what is there whenever something of it changes.
//!
//! ```text
//! settings ──> wanted ──> restore (addresses, routes, rules), guard (nf_tables)
//! kernel ──> watch (links, addresses, our routes and rules, our table) ──> restore, guard
//! ```
//!
//! What is to be protected has a route that leads nowhere beside the one that leads into its tunnel. That route, the rules
//! and the guard need no daemon: they stay when it ends, and the next one takes them over.

mod guard;
pub mod netlink;
pub(crate) mod nft;
pub mod occupied;
mod restore;
pub mod rules;
mod watch;

use crate::ipsec::network::Network as IpsecNetwork;
use crate::ipsec::unprotected::Unprotected;
use crate::ipsec::{Gateway, NAME};
use crate::rights::Rights;
use crate::wireguard::plan::Network;
use config::Settings;
use guard::Guard;
use netlink::{Netlink, NetlinkError};
use port::Wake;
use restore::Outcome;
use rules::ValidMark;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use watch::Watch;

/// What the kernel is to have.
#[derive(Clone, Default)]
struct Wanted {
    /// For WireGuard interfaces.
    links: BTreeMap<String, Network>,
    ipsec: IpsecNetwork,
}

/// What is wanted, and what is known of what is there.
#[derive(Default)]
struct State {
    wanted: Wanted,
    /// What is kept closed beside it while a configuration is applied: a prefix may go from one tunnel to another.
    held: Option<Wanted>,
    /// The owner of the IPsec interface, notified when links or addresses change.
    gateway: Weak<Gateway>,
    guard: Guard,
    /// Whether the kernel can guard is said once.
    guard_failed: bool,
    valid_mark: ValidMark,
    /// What arrives in clear is refused as long as this lives.
    unprotected: Option<Unprotected>,
}

/// The packets that rules of ours in nf_tables have dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Those that would have left outside the tunnel which is for them; nothing where none is guarded.
    pub leaving: Option<u64>,
    /// Those that came in clear, though a tunnel is for them; nothing where that is not looked at.
    pub arriving: Option<u64>,
}

/// Reads [`Held`] of a host, as long as that is there.
#[derive(Clone)]
pub struct HeldReader(Weak<Mutex<State>>);

impl HeldReader {
    /// What the kernel has counted.
    pub fn read(&self) -> Held {
        let Some(state) = self.0.upgrade() else { return Held::default() };
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        Held {
            leaving: state.guard.held_back(),
            arriving: state.unprotected.as_ref().and_then(Unprotected::refused),
        }
    }
}

/// Keeps what the kernel has of us. Dropping it ends that, and leaves what is there.
pub struct Host {
    state: Arc<Mutex<State>>,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    /// Takes over what an earlier daemon has left, so that what `settings` protect is closed until it is served, and
    /// nothing else.
    pub fn start(settings: &Settings) -> Result<Self, NetlinkError> {
        let failed = |error: io::Error| NetlinkError::new("rtnetlink", &error);
        let links = settings.wireguard.iter();
        let links =
            links.map(|(name, link)| (name.clone(), Network::new(link).without_interface())).collect();
        let wanted = Wanted { links, ipsec: IpsecNetwork::new(&settings.ipsec) };
        let mut state = State { wanted, ..State::default() };
        // Nothing is lost between the look at what is there and the first event.
        let sockets = watch::Sockets::open().map_err(failed)?;
        // What one tunnel is refused keeps no other back; it is tried again with that tunnel.
        state.restore()?.log();
        let state = Arc::new(Mutex::new(state));
        let (wake, stop) = (Arc::new(Wake::new().map_err(failed)?), Arc::new(AtomicBool::new(false)));
        let watch = Watch::new(sockets, Arc::clone(&state), Arc::clone(&wake), Arc::clone(&stop));
        let thread = thread::Builder::new().name("routes".to_owned()).spawn(move || {
            Rights::Network.keep();
            watch.run();
        });
        Ok(Self { state, wake, stop, thread: Some(thread.map_err(failed)?) })
    }

    /// Keeps closed what is closed now, whatever is wanted until [`release`](Self::release).
    pub fn hold(&self) {
        let mut state = self.lock();
        let links = state.wanted.links.iter();
        let links = links.map(|(name, link)| (name.clone(), link.without_interface())).collect();
        state.held = Some(Wanted { links, ipsec: state.wanted.ipsec.clone() });
    }

    /// Opens what was only held.
    pub fn release(&self) {
        let mut state = self.lock();
        state.held = None;
        match state.restore() {
            Ok(outcome) => outcome.log(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// What reads the counters of nf_tables.
    pub fn held(&self) -> HeldReader {
        HeldReader(Arc::downgrade(&self.state))
    }

    /// The WireGuard interfaces that something is wanted for, whether they are there or not.
    pub fn links(&self) -> Vec<String> {
        self.lock().wanted.links.keys().cloned().collect()
    }

    /// Wants this for a WireGuard interface from now on, or nothing. The error is what was refused for it.
    pub fn set_link(&self, name: &str, network: Option<Network>) -> Result<(), NetlinkError> {
        let mut state = self.lock();
        match network {
            Some(network) => _ = state.wanted.links.insert(name.to_owned(), network),
            None => _ = state.wanted.links.remove(name),
        }
        state.restore()?.of(name)
    }

    /// Wants this for a WireGuard interface that is there, from now on, and takes away the addresses that it has no more.
    /// With an address the kernel takes the later ones of its network, and with the last IPv4 address the routes: they are
    /// put back.
    pub fn change_link(&self, name: &str, before: &Network, after: &Network) -> Result<(), NetlinkError> {
        let mut state = self.lock();
        // First, so that the watching thread does not put back what is removed below.
        state.wanted.links.insert(name.to_owned(), after.clone());
        let mut netlink = Netlink::open().map_err(|error| NetlinkError::new("rtnetlink", &error))?;
        let index = netlink.link(name)?.index;
        for &address in before.addresses.difference(&after.addresses) {
            netlink.remove_address(index, address)?;
        }
        state.restore()?.of(name)
    }

    /// Wants this for IPsec from now on.
    pub fn set_ipsec(
        &self,
        network: IpsecNetwork,
        gateway: Option<&Arc<Gateway>>,
    ) -> Result<(), NetlinkError> {
        let mut state = self.lock();
        state.wanted.ipsec = network;
        state.gateway = gateway.map(Arc::downgrade).unwrap_or_default();
        if state.wanted.ipsec.is_empty() {
            state.unprotected = None;
        } else if state.unprotected.is_none() && gateway.is_some() {
            state.unprotected = Unprotected::refuse_or_say();
        }
        state.restore()?.of(NAME)
    }

    /// Ends, and leaves what is to be protected closed, or `open`s it: then nothing is left.
    pub fn end(self, open: bool) {
        let mut state = self.lock();
        state.held = None;
        if open {
            state.wanted = Wanted::default();
        }
        state.gateway = Weak::new();
        match state.restore() {
            Ok(outcome) => outcome.log(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wake.notify();
        if let Some(thread) = self.thread.take() {
            // If it panicked, it has said so already.
            let _ = thread.join();
        }
    }
}

impl Wanted {
    /// What is wanted, with what is held closed.
    fn and(&self, held: &Self) -> Self {
        let mut links = self.links.clone();
        for (name, network) in &held.links {
            let both = links.get(name).map_or_else(|| network.clone(), |wanted| wanted.and(network));
            links.insert(name.clone(), both);
        }
        Self { links, ipsec: held.ipsec.clone().and(self.ipsec.clone()) }
    }
}

impl State {
    /// Gives the kernel what it lacks, and takes what it should not have.
    fn restore(&mut self) -> Result<Outcome, NetlinkError> {
        let mut netlink = Netlink::open().map_err(|error| NetlinkError::new("rtnetlink", &error))?;
        let is_served = self.gateway.strong_count() > 0;
        // Of thousands of peers it is large, and only what is held needs a copy.
        let wanted = match &self.held {
            Some(held) => Cow::Owned(self.wanted.and(held)),
            None => Cow::Borrowed(&self.wanted),
        };
        let plan = wanted.plan(&mut netlink, is_served)?;
        let mut outcome = Outcome::default();
        plan.close(&mut netlink, &mut outcome);
        self.valid_mark.set(&plan.rules());
        let guarded = self.guard.set(&wanted.protected());
        match guarded {
            Ok(changed) => {
                self.guard_failed = false;
                outcome.restored.extend(changed.then(|| "the table inet postern-guard".to_owned()));
            }
            Err(error) => self.say_unguarded(&error),
        }
        plan.open(&mut netlink, &mut outcome);
        Ok(outcome)
    }

    fn say_unguarded(&mut self, error: &io::Error) {
        if self.wanted.ipsec.is_empty() || std::mem::replace(&mut self.guard_failed, true) {
            return;
        }
        tracing::warn!(
            "vpn ipsec: what policies protect is protected by routes and rules alone: nf_tables: {error}\n  \
             fix: modprobe nf_tables, and restart"
        );
    }
}

/// Removes all that gateways have left: routes, rules, and the guard.
pub fn open() -> Result<(), NetlinkError> {
    let mut state = State::default();
    state.restore()?.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
}

/// Reads a notification of the kernel about links, routes, rules and tables of nf_tables, as the thread `routes` does: whether it
/// is about a change of ours, or of our table by another program.
pub fn read_notification(bytes: &[u8], tables: &[u32], table: &str) -> (bool, bool) {
    (netlink::is_ours(bytes, tables), nft::is_change_by_another(bytes, table, 0))
}
