//! The state that the gateway keeps in the kernel: addresses, routes, rules and the guard. One owner has the wanted state.
//! One thread compares it with the actual state whenever that changes, and restores it.
//!
//! ```text
//! owners ──> wanted ──> restore (addresses, routes, rules), guard and arriving (nf_tables)
//! kernel ──> watch (links, addresses, our routes and rules, our table) ──> restore, guard
//! ```
//!
//! Each owner hands in the wanted state of its interface, as [`Wants`](wants::Wants). This module does not know its protocol.
//! Only this module changes addresses, routes, rules and nf_tables tables. The creator of a link sets it up with
//! [`change_link`]. The follower of an interface may be in another network namespace, and sets its segment sizes itself.
//!
//! Other modules open a [`Netlink`] only to read the current state without a lock of the host: losses and MTUs for the API,
//! path MTU and source addresses for peers. Functions that change the kernel's state are private to this module.
//!
//! A protected prefix has an unreachable route in addition to the route into its tunnel. That route, the rules and the
//! guard need no daemon: they stay when it ends, and the next one takes them over.

mod arriving;
mod guard;
mod kept;
mod leases;
mod left;
mod links;
mod matching;
pub mod netlink;
pub mod networks;
mod nft;
pub mod occupied;
mod own_table;
mod present;
mod restore;
pub mod rules;
pub mod sharing;
mod translation;
pub mod wants;
mod watch;
mod zones;

use crate::dhcp::lease::Lease;
use crate::rights::Rights;
use arriving::{Arriving, Tunnels};
use config::settings::{Firewall, Nat};
use guard::Guard;
pub use leases::LeaseError;
use leases::TunnelNetworks;
use links::Links;
pub use links::{Compared, Router};
use netlink::{LinkChange, Netlink, NetlinkError};
pub use nft::Count;
use own_table::OwnTable;
use port::Wake;
use present::Kernel;
pub use restore::Own;
use restore::{Outcome, Wanted};
use rules::ValidMark;
use sharing::Sharing;
use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
pub use translation::Translated;
use translation::Translator;
use wants::Wants;
use watch::Watch;
use zones::ZoneFilter;
pub use zones::{FilterError, Filtered};

/// What the log calls the table of the zone firewall.
const ZONES: &str = "the table inet postern-firewall";

/// Called when links, addresses or routes of this machine have changed.
pub type Follower = Arc<dyn Fn() + Send + Sync>;

/// The wanted state, and the known actual state.
#[derive(Default)]
struct State {
    wanted: Wanted,
    /// Also kept closed while a configuration is applied: a prefix may move from one tunnel to another.
    held: Option<Wanted>,
    /// What is kept closed beside it afterwards: a prefix has left a tunnel, and the one that it was to go to was refused.
    kept: Wanted,
    /// Networks behind several tunnels.
    sharing: Sharing,
    /// By the names of their interfaces.
    followers: BTreeMap<String, Follower>,
    /// What it is compared with; opened when it is needed.
    kernel: Option<Kernel>,
    guard: Guard,
    /// Whether the log has reported a kernel that cannot guard.
    guard_failed: bool,
    /// Whether the last comparison was refused something.
    is_refused: bool,
    /// Ends the wait of the watching thread, if there is one.
    wake: Option<Arc<Wake>>,
    valid_mark: ValidMark,
    translator: Translator,
    zones: ZoneFilter,
    links: Links,
    /// Unprotected packets are dropped as long as this lives.
    arriving: Option<Arriving>,
    /// Of a process for one interface.
    own: Option<Own>,
}

/// The packets that rules of ours in nf_tables have dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Outbound packets that would have left outside their tunnel; `None` without a guard.
    pub leaving: Option<u64>,
    /// Inbound packets that were unprotected although a tunnel is for them; `None` if that is not checked.
    pub arriving: Option<u64>,
}

/// Reads [`Held`] of a host, as long as that is there.
#[derive(Clone)]
pub struct HeldReader(Weak<Mutex<State>>);

impl HeldReader {
    /// The kernel's counters.
    pub fn read(&self) -> Held {
        let Some(state) = self.0.upgrade() else { return Held::default() };
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        Held {
            leaving: state.guard.held_back(),
            arriving: state.arriving.as_ref().and_then(Arriving::refused),
        }
    }
}

/// Reads what rules of `nat` have translated, as long as the host is there.
#[derive(Clone)]
pub struct TranslatedReader(Weak<Mutex<State>>);

impl TranslatedReader {
    /// The kernel's counters.
    pub fn read(&self) -> Translated {
        let Some(state) = self.0.upgrade() else { return Translated::default() };
        state.lock().unwrap_or_else(PoisonError::into_inner).translator.translated()
    }
}

/// Reads what rules of `firewall` have counted, as long as the host is there.
#[derive(Clone)]
pub struct FilteredReader(Weak<Mutex<State>>);

impl FilteredReader {
    /// The kernel's counters.
    pub fn read(&self) -> Filtered {
        let Some(state) = self.0.upgrade() else { return Filtered::default() };
        state.lock().unwrap_or_else(PoisonError::into_inner).zones.filtered()
    }
}

/// Keeps the wanted state in the kernel. Dropping it ends the thread, and leaves the state as it is.
pub struct Host {
    state: Arc<Mutex<State>>,
    wake: Arc<Wake>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Changes what is wanted for interfaces, beside the owner of the host.
#[derive(Clone)]
pub struct HostHandle(Arc<Mutex<State>>);

impl HostHandle {
    /// Sets the wanted state of an interface, or none. The error is what the kernel refused for it.
    pub fn set(&self, name: &str, wants: Option<Wants>) -> Result<(), NetlinkError> {
        let mut state = self.lock();
        match wants {
            Some(wants) => state.want(name, wants),
            None => state.forget(name),
        }
        state.restore()?.of(name)
    }

    /// Sets the wanted state of an existing interface, and removes the addresses that it no longer has.
    /// With an address the kernel removes the later ones of its network, and with the last IPv4 address the routes: they
    /// are restored.
    pub fn change(&self, name: &str, before: &Wants, after: &Wants) -> Result<(), NetlinkError> {
        let mut state = self.lock();
        // First, so that the watching thread does not put back what is removed below.
        state.want(name, after.clone());
        let mut netlink = Netlink::open().map_err(|error| NetlinkError::new("rtnetlink", &error))?;
        let index = netlink.link(name)?.index;
        for &address in before.addresses.difference(&after.addresses) {
            netlink.remove_address(index, address)?;
        }
        state.restore()?.of(name)
    }

    /// Leads packets to networks behind several tunnels by those that are active. Routes that the kernel refuses are logged, and
    /// tried again with the next comparison.
    pub fn share(&self, sharing: Sharing) {
        let mut state = self.lock();
        if state.sharing == sharing {
            return;
        }
        state.sharing = sharing;
        state.check_arriving();
        match state.restore() {
            Ok(outcome) => outcome.log(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Gives a link what it has got by DHCP, or takes it away. The error is about this link alone.
    pub fn lease(&self, name: &str, lease: Option<&Lease>) -> Result<(), LeaseError> {
        let mut state = self.lock();
        state.links.lease(name, lease.map(|lease| (lease.address, lease.router)));
        let mut outcome = state.restore().map_err(LeaseError::Address)?;
        let Compared { mut links, mut leases, .. } = std::mem::take(&mut outcome.router);
        outcome.log();
        if let Some(refused) = links.remove(name) {
            let is_dropped = lease.is_some() && state.links.lacks_lease(name);
            return Err(if is_dropped { LeaseError::Refused } else { LeaseError::Address }(refused));
        }
        leases.remove(name).map_or(Ok(()), |refused| Err(LeaseError::Route(refused)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host {
    /// Takes over the state that an earlier daemon has left. What is `wanted`, by the names of interfaces that do not exist
    /// yet, is closed until it is served; and nothing else, but what an earlier daemon has left for them.
    pub fn start(wanted: BTreeMap<String, Wants>) -> Result<Self, NetlinkError> {
        let mut wanted = without_interfaces(&wanted);
        left::adopt(&mut wanted)?;
        Self::start_with(State { wanted, ..State::default() })
    }

    /// The same of a process for one interface: what daemons and other such processes have stays as it is.
    pub fn start_for_one(own: Own) -> Result<Self, NetlinkError> {
        netlink::be_of_one_interface();
        Self::start_with(State { own: Some(own), ..State::default() })
    }

    fn start_with(mut state: State) -> Result<Self, NetlinkError> {
        let failed = |error: io::Error| NetlinkError::new("rtnetlink", &error);
        // Opened first: no event is lost between reading the state and the first event.
        let sockets = watch::Sockets::open().map_err(failed)?;
        // A refusal for one tunnel does not stop the others; it is tried again with that tunnel.
        state.restore()?.log();
        let (wake, stop) = (Arc::new(Wake::new().map_err(failed)?), Arc::new(AtomicBool::new(false)));
        state.wake = Some(Arc::clone(&wake));
        let state = Arc::new(Mutex::new(state));
        let watch = Watch::new(sockets, Arc::clone(&state), Arc::clone(&wake), Arc::clone(&stop));
        let thread = thread::Builder::new().name("routes".to_owned()).spawn(move || {
            Rights::Network.keep();
            watch.run();
        });
        Ok(Self { state, wake, stop, thread: Some(thread.map_err(failed)?) })
    }

    /// Keeps closed what is closed now, until [`release`](Self::release), whatever is wanted in the meantime.
    pub fn hold(&self) {
        let mut state = self.lock();
        state.held = Some(without_interfaces(&merged(&state.wanted, &state.kept)));
    }

    /// Closes what parts of a configuration are to protect that were refused before anything was made of them.
    pub fn close_refused(&self, protected: &BTreeMap<String, Wants>) {
        let mut state = self.lock();
        for (name, wants) in protected {
            let closed = wants.without_interface();
            match state.wanted.entry(name.clone()) {
                Entry::Vacant(entry) => _ = entry.insert(closed),
                // What a former configuration closed, which has had no interface either. An earlier daemon may have left more.
                Entry::Occupied(mut entry) if entry.get().is_closed() && entry.get().left_in.is_none() => {
                    entry.insert(closed);
                }
                Entry::Occupied(_) => {}
            }
        }
    }

    /// Opens what was only held, but for what a configuration protects of which a part was refused: these are its wants, and the
    /// interfaces that may be as they were. Without a configuration, what was closed stays so.
    pub fn release(&self, configured: Option<(&BTreeMap<String, Wants>, &BTreeSet<String>)>) {
        let mut state = self.lock();
        let held = state.held.take().unwrap_or_default();
        if let Some((protected, unchanged)) = configured {
            // No service knows what was refused before anything was made of it.
            state.wanted.retain(|name, wants| protected.contains_key(name) || !wants.is_closed());
            // Interfaces that are served may protect a prefix in parts, around their server.
            let is_served = |name: &String| state.wanted.get(name).is_some_and(|wants| !wants.is_closed());
            let closed = protected.iter().filter(|(name, _)| unchanged.contains(*name) || !is_served(name));
            let closed: Wanted = closed.map(|(name, wants)| (name.clone(), wants.clone())).collect();
            state.kept = kept::left(&held, &closed, &state.wanted);
            kept::log(&state.kept);
        }
        match state.restore() {
            Ok(outcome) => outcome.log(),
            Err(error) => tracing::warn!("{error}"),
        }
    }

    /// Makes links, their addresses and static routes what the user has set; what the kernel refuses of it.
    pub fn route(&self, router: Router) -> Result<Compared, NetlinkError> {
        let mut state = self.lock();
        state.links.want(router);
        // Routes of tunnels depend on the addresses of the machine: all is compared.
        let mut outcome = state.restore()?;
        let compared = std::mem::take(&mut outcome.router);
        outcome.log();
        Ok(compared)
    }

    /// Translates addresses by these rules. If the kernel refuses them, the former ones stay.
    pub fn translate(&self, nat: &Nat) -> Result<(), NetlinkError> {
        let mut state = self.lock();
        let set = state.translator.set(nat);
        state.wake_if_unfinished();
        set.map_err(|error| NetlinkError {
            fix: "\n  fix: modprobe nft_nat nft_masq, with Linux 5.2 or later".to_owned(),
            ..NetlinkError::new("rules of nf_tables", &error)
        })
    }

    /// The reader of what rules have translated.
    pub fn translated(&self) -> TranslatedReader {
        TranslatedReader(Arc::downgrade(&self.state))
    }

    /// Filters packets between zones: they must pass each of these policies. If the kernel refuses one, the former ones stay.
    pub fn filter(&self, policies: &[Firewall]) -> Result<(), FilterError> {
        let mut state = self.lock();
        let set = state.zones.set(policies);
        state.wake_if_unfinished();
        set
    }

    /// The reader of what rules of `firewall` have counted.
    pub fn filtered(&self) -> FilteredReader {
        FilteredReader(Arc::downgrade(&self.state))
    }

    /// The reader of the nf_tables counters.
    pub fn held(&self) -> HeldReader {
        HeldReader(Arc::downgrade(&self.state))
    }

    /// What is wanted for an interface.
    pub fn wanted(&self, name: &str) -> Option<Wants> {
        self.lock().wanted.get(name).cloned()
    }

    /// Changes what is wanted for interfaces, beside the owner of the host.
    pub fn handle(&self) -> HostHandle {
        HostHandle(Arc::clone(&self.state))
    }

    /// As [`HostHandle::set`].
    pub fn set(&self, name: &str, wants: Option<Wants>) -> Result<(), NetlinkError> {
        self.handle().set(name, wants)
    }

    /// As [`HostHandle::set`], for an interface that is not there; what the kernel refuses is only logged.
    pub fn set_absent(&self, name: &str, wants: Option<Wants>) {
        if let Err(error) = self.set(name, wants) {
            tracing::warn!("{error}");
        }
    }

    /// As [`HostHandle::change`].
    pub fn change(&self, name: &str, before: &Wants, after: &Wants) -> Result<(), NetlinkError> {
        self.handle().change(name, before, after)
    }

    /// The interface is gone: what it is for is closed until something else is wanted.
    pub fn close(&self, name: &str) -> Result<(), NetlinkError> {
        let mut state = self.lock();
        state.followers.remove(name);
        if let Some(wants) = state.wanted.get_mut(name) {
            *wants = wants.without_interface();
        }
        state.restore()?.of(name)
    }

    /// Calls `follower` from now on, until the interface is closed or nothing is wanted for it.
    pub fn follow(&self, name: &str, follower: impl Fn() + Send + Sync + 'static) {
        self.lock().followers.insert(name.to_owned(), Arc::new(follower));
    }

    /// Ends; protected prefixes stay closed, or with `open` everything is removed.
    pub fn end(self, open: bool) {
        let mut state = self.lock();
        // A configuration may have been given up halfway.
        let all = merged(&merged(&state.wanted, &state.kept), &state.held.take().unwrap_or_default());
        state.kept = Wanted::default();
        state.sharing.clear();
        state.wanted = if open { Wanted::default() } else { without_interfaces(&all) };
        state.followers.clear();
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
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

/// What is wanted of this while no interface is there.
fn without_interfaces(wanted: &Wanted) -> Wanted {
    wanted.iter().map(|(name, wants)| (name.clone(), wants.without_interface())).collect()
}

/// What is wanted, with what is held closed.
fn merged(wanted: &Wanted, held: &Wanted) -> Wanted {
    let mut merged = wanted.clone();
    for (name, held) in held {
        let both = merged.get(name).map_or_else(|| held.clone(), |wants| held.and(wants));
        merged.insert(name.clone(), both);
    }
    merged
}

impl State {
    fn want(&mut self, name: &str, wants: Wants) {
        let networks = &wants.networks;
        if self.arriving.is_none() && networks.is_served && !networks.is_empty() {
            let (place, ports, sharing) = (networks.place, &networks.ports, &self.sharing);
            let tunnels = Tunnels { place, interface: name, ports, sharing };
            self.arriving = Arriving::refuse_or_say(tunnels);
        }
        self.wanted.insert(name.to_owned(), wants);
    }

    /// Networks behind several tunnels have changed.
    fn check_arriving(&mut self) {
        let (Some(arriving), sharing) = (&self.arriving, &self.sharing) else { return };
        let protecting = self.wanted.iter().find(|(_, wants)| !wants.networks.is_empty());
        let Some((name, Wants { networks, .. })) = protecting else { return };
        let (place, ports) = (networks.place, &networks.ports);
        if let Err(error) = arriving.replace(Tunnels { place, interface: name, ports, sharing }) {
            tracing::warn!(
                "{place}: packets that arrive in clear from networks of a group are not refused: {error}"
            );
        }
    }

    fn forget(&mut self, name: &str) {
        self.wanted.remove(name);
        self.followers.remove(name);
        if self.protecting().is_none() {
            self.arriving = None;
        }
    }

    /// The tables of nf_tables that stay when the daemon ends.
    fn tables(&mut self) -> [&mut OwnTable; 3] {
        [self.guard.table(), self.translator.table(), self.zones.table()]
    }

    /// Where the configuration has tunnels that protect networks, if there are some.
    fn protecting(&self) -> Option<&'static str> {
        let mut networks = self.wanted.values().map(|wants| &wants.networks);
        networks.find(|networks| !networks.is_empty()).map(|networks| networks.place)
    }

    /// Adds what the kernel lacks, and removes what it should not have.
    fn restore(&mut self) -> Result<Outcome, NetlinkError> {
        let outcome = self.restore_once();
        self.is_refused = !outcome.as_ref().is_ok_and(|outcome| !outcome.is_refused());
        self.wake_if_unfinished();
        outcome
    }

    /// Whether the kernel lacks something that the next comparison may put back.
    fn is_unfinished(&self) -> bool {
        let is_trusted = self.translator.is_trusted() && self.zones.is_trusted();
        self.is_refused || self.guard_failed || !is_trusted
    }

    /// Has the watching thread compare again after a pause, if the kernel lacks something. It may not tell of a change that it refuses.
    fn wake_if_unfinished(&self) {
        if let Some(wake) = self.wake.as_ref().filter(|_| self.is_unfinished()) {
            wake.notify();
        }
    }

    fn restore_once(&mut self) -> Result<Outcome, NetlinkError> {
        let failed = |error| NetlinkError::new("rtnetlink", &error);
        let mut kernel = self.kernel.take().map_or_else(Kernel::open, Ok).map_err(failed)?;
        let outcome = self.restore_in(&mut kernel)?;
        // What was refused is compared again with all that there is.
        if outcome.is_refused() {
            kernel.doubt();
        }
        self.kernel = Some(kernel);
        Ok(outcome)
    }

    /// The same; the first refusal is the error.
    fn restore_all(&mut self) -> Result<(), NetlinkError> {
        self.restore()?.errors.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// The same, unless the kernel has been told nothing by others since.
    fn restore_if_disturbed(&mut self) -> Result<Outcome, NetlinkError> {
        let is_undisturbed = self.kernel.as_mut().is_some_and(Kernel::is_undisturbed);
        let is_trusted = || self.guard.is_trusted() && !self.is_unfinished();
        if is_undisturbed && (self.own.is_some() || is_trusted()) {
            return Ok(Outcome::default());
        }
        let mut outcome = self.restore()?;
        outcome.tell_router();
        Ok(outcome)
    }

    fn restore_in(&mut self, kernel: &mut Kernel) -> Result<Outcome, NetlinkError> {
        // Of thousands of peers it is large, and only what is held needs a copy.
        let wanted = match &self.held {
            Some(held) => Cow::Owned(merged(&self.wanted, held)),
            None if self.kept.is_empty() => Cow::Borrowed(&self.wanted),
            None => Cow::Owned(merged(&self.wanted, &self.kept)),
        };
        let mut outcome = Outcome::default();
        // Packets pass unfiltered while the table is not there.
        outcome.note_table(ZONES, self.zones.restore());
        let plan = restore::plan(&wanted, &self.sharing, kernel, self.own)?;
        plan.close(&mut kernel.netlink, &mut outcome);
        self.valid_mark.set(&plan.rules());
        // The table is that of the daemon.
        let guarded =
            if self.own.is_some() { Ok(false) } else { self.guard.set(&restore::protected(&wanted)) };
        plan.open(&mut kernel.netlink, &mut outcome);
        drop(plan);
        let tunnels = || TunnelNetworks::of(&wanted);
        let router = self.links.restore(tunnels, &mut kernel.netlink);
        drop(wanted);
        match guarded {
            Ok(changed) => {
                self.guard_failed = false;
                outcome.restored.extend(changed.then(|| "the table inet postern-guard".to_owned()));
            }
            Err(error) => self.say_unguarded(&error),
        }
        outcome.router = router?;
        outcome.note_table("the table inet postern-nat", self.translator.restore());
        Ok(outcome)
    }

    fn say_unguarded(&mut self, error: &io::Error) {
        let Some(place) = self.protecting() else { return };
        if std::mem::replace(&mut self.guard_failed, true) {
            return;
        }
        tracing::warn!(
            "{place}: what policies protect is protected by routes and rules alone: nf_tables: {error}\n  \
             fix: modprobe nf_tables, and restart"
        );
    }
}

/// Changes an interface of ours, one step after the other.
pub fn change_link(name: &str, changes: &[LinkChange]) -> Result<(), NetlinkError> {
    let mut netlink = Netlink::open().map_err(|error| NetlinkError::new("rtnetlink", &error))?;
    let index = netlink.link(name)?.index;
    changes.iter().try_for_each(|change| netlink.set_link(index, *change))
}

/// Removes all that the daemon has left: routes, rules, and the guard.
pub fn open() -> Result<(), NetlinkError> {
    State::default().restore_all()
}

/// Removes the routes and rules of each `postern openvpn` and `postern wireguard`, also of those processes that run.
pub fn open_of_one_interface() -> Result<(), NetlinkError> {
    netlink::be_of_one_interface();
    State::default().restore_all()
}

/// Reads a notification of the kernel about links, routes, rules and tables of nf_tables, as the thread `routes` does: whether it
/// is about a change of ours, or of our table by another program.
pub fn read_notification(bytes: &[u8], tables: &[u32], table: &str) -> (bool, bool) {
    let own = bytes.get(12..16).map_or(0, |port| u32::from_ne_bytes([port[0], port[1], port[2], port[3]]));
    let disturbs = netlink::notices(bytes, tables, own).any(|notice| notice == netlink::Notice::Disturbed);
    (netlink::concern(bytes, tables).is_some() || disturbs, nft::is_change_by_another(bytes, table, 0))
}
