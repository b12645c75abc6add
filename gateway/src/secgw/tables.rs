//! What the worker looks up: policies, SAs and routes of a plan.

use super::depart::NOWHERE;
use super::frame::Address;
use super::lifetimes::{Ends, Spent};
use super::modes::{self, Modes};
use super::plan::Plan;
use super::policies::Policies;
use super::routes::{RouteIndex, Routes};
use super::spi_map::BySpi;
use super::used_keys::UsedKeys;
use crate::clock::Clock;
use crate::datapath::protocol::{PeerState, Protocol, Tunnel};
use crate::datapath::staging::Budget;
use crate::datapath::tables::{Peer, Session, Tables};
use config::secgw::settings::{Action, Direction, Mode, Policy, Route, Sa};
use config::settings::ipsec::Peer as IkePeer;
use crypto::engine::{Engine, LoadError};
use crypto::{SecretBytes, random};
use packet::header::esp::UDP_PORT;
use packet::{DropCounters, Endpoint};
use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tunnel::esp::{SaKeys, Transform};
use tunnel::sa::Volume;
use tunnel::{InboundSa, OutboundSa, PeerId, Time};

/// In transport mode, packets of both families are encrypted by an SA that is fitted as one of IPv4: how much longer a header of IPv6 is,
/// and padding to the next block may be.
const LARGER_HEADER: usize = 24;

/// An SA in the data path.
pub struct Installed {
    /// Its SPI.
    pub spi: u32,
    /// Its direction.
    pub direction: Direction,
    /// Its line of the file.
    pub line: u32,
    /// The algorithms.
    pub algorithms: String,
    /// Its tunnel, with counters of its own.
    pub peer: Arc<Peer>,
    /// Packets that it dropped.
    pub drops: Arc<DropCounters>,
    /// What it was made from.
    settings: Arc<Sa>,
    /// Where it ends.
    pub(super) ends: Ends,
    pub(super) numbers: Numbers,
}

/// The SA that has the sequence numbers.
#[derive(Clone)]
pub(super) enum Numbers {
    Outbound(Arc<OutboundSa>),
    Inbound(Arc<InboundSa>),
}

impl Numbers {
    /// The number that follows those that were sent or received.
    fn next(&self) -> u64 {
        match self {
            Self::Outbound(sa) => sa.next(),
            Self::Inbound(sa) => sa.window().next(),
        }
    }

    /// Whether the SA may be used.
    pub(super) fn is_usable(&self, now: Time) -> bool {
        match self {
            Self::Outbound(sa) => sa.is_usable(now),
            Self::Inbound(sa) => sa.check_age(now).is_ok(),
        }
    }

    /// Its counters, if it has a limit.
    pub(super) fn volume(&self) -> Option<&Volume> {
        match self {
            Self::Outbound(sa) => sa.volume(),
            Self::Inbound(sa) => sa.volume(),
        }
    }

    /// Says whether one worker alone uses it. The workers of `-l` are those of the whole run: others start when these have ended.
    fn set_one_user(&self, has_one_user: bool) {
        match self {
            Self::Outbound(sa) => sa.set_one_user(has_one_user),
            Self::Inbound(sa) => sa.set_one_user(has_one_user),
        }
    }

    /// Tells it from others while there are both.
    fn address(&self) -> usize {
        match self {
            Self::Outbound(sa) => Arc::as_ptr(sa).addr(),
            Self::Inbound(sa) => Arc::as_ptr(sa).addr(),
        }
    }
}

/// Why there are no tables for a plan.
#[derive(Debug, thiserror::Error)]
pub enum TablesError {
    /// No engine has an algorithm.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// An SA would begin with the key of another one.
    #[error(
        "sa {direction} {spi}: another SA has its key, or has it until this change, and nonces would repeat\n  \
         fix: write a new key at both ends"
    )]
    UsedKey {
        /// The line of the file.
        line: u32,
        /// The word for the direction.
        direction: &'static str,
        /// The SPI.
        spi: u32,
    },
}

/// The tables of a gateway.
pub struct SecgwTables {
    /// Tells the tables from those before and after them.
    pub(super) generation: u64,
    /// The inbound SAs, as the stages of the data path look them up.
    pub sessions: Arc<Tables>,
    /// All SAs, by the number of their peer.
    pub sas: Vec<Installed>,
    /// The keys of these SAs, of all before them, and of other gateways.
    used_keys: UsedKeys,
    /// The SAs to send with, by SPI.
    pub(super) outbound: BySpi<(Arc<Peer>, Arc<OutboundSa>)>,
    /// The inbound SAs of the file, by SPI, which are found before those of IKE. They are among `sessions` too.
    pub(super) inbound: BySpi<Arc<Session>>,
    /// The outbound policies.
    pub(super) policies_out: Policies,
    /// The inbound policies.
    pub(super) policies_in: Policies,
    /// Routes to ports, by their place in the list of ports.
    pub(super) routes: Routes,
    /// The longest IP packet that leaves.
    pub(super) mtu: usize,
    /// Whether one worker carries all packets: then counters of SAs are its own.
    has_one_worker: bool,
    /// What few SAs ask for.
    pub(super) modes: Modes,
    /// The lines of routes, without their places in the file.
    pub(super) lines: Vec<String>,
    /// The Ethernet address of the station behind each port.
    pub(super) neighbours: Vec<Address>,
    /// The names of the peers of IKE, as policies count them.
    pub(super) ike_peers: Vec<String>,
    /// Those that are served, with their settings.
    pub(super) ike: Vec<(String, Arc<IkePeer>)>,
    /// Our addresses for IKE.
    pub(super) ike_addresses: Vec<IpAddr>,
}

impl SecgwTables {
    /// Loads the keys of a plan.
    ///
    /// # Errors
    /// No engine has an algorithm.
    pub fn new(plan: &Plan, engine: &dyn Engine) -> Result<Self, TablesError> {
        Self::with_keys(UsedKeys::default(), plan, engine)
    }

    /// Loads the keys of a plan. SAs whose keys were used go on after the numbers of those that had them.
    ///
    /// # Errors
    /// No engine has an algorithm, or another gateway has a key.
    pub(super) fn with_keys(
        used_keys: UsedKeys,
        plan: &Plan,
        engine: &dyn Engine,
    ) -> Result<Self, TablesError> {
        let (tables, sessions) = Self::build(None, used_keys, plan, engine)?;
        for session in sessions {
            tables.sessions.install_shared(session);
        }
        tables.begin(None);
        Ok(tables)
    }

    /// The tables of a gateway that takes the place of one that has ended, with other ports. SAs that are the same go on.
    ///
    /// # Errors
    /// As [`after`](Self::after).
    pub(super) fn taking_over(before: &Self, plan: &Plan, engine: &dyn Engine) -> Result<Self, TablesError> {
        let (tables, sessions) = Self::after(before, plan, engine)?;
        for session in sessions {
            tables.sessions.install_shared(session);
        }
        tables.retire_others(before);
        tables.begin(Some(before));
        tables.end_others(before);
        Ok(tables)
    }

    /// Notes that the SAs which `before` does not have use their keys from now on.
    pub(super) fn begin(&self, before: Option<&Self>) {
        let known: HashSet<usize> = before.map_or_else(HashSet::new, Self::addresses);
        for sa in self.sas.iter().filter(|sa| !known.contains(&sa.numbers.address())) {
            self.used_keys.begin(&sa.settings);
        }
    }

    /// Notes where the SAs of `before` have ended that do not go on here. No thread may use `before` any more.
    pub(super) fn end_others(&self, before: &Self) {
        before.end_but(&self.addresses());
    }

    /// Notes where all SAs have ended. No thread may use them any more.
    pub(super) fn end(&self) {
        self.end_but(&HashSet::new());
    }

    fn end_but(&self, kept: &HashSet<usize>) {
        for sa in self.sas.iter().filter(|sa| !kept.contains(&sa.numbers.address())) {
            self.used_keys.end(&sa.settings, sa.numbers.next(), sa.ends.spent(&sa.numbers));
        }
    }

    fn addresses(&self) -> HashSet<usize> {
        self.sas.iter().map(|sa| sa.numbers.address()).collect()
    }

    /// Removes the inbound SAs of `before` that are no longer there.
    pub(super) fn retire_others(&self, before: &Self) {
        let inbound = |tables: &Self| -> HashSet<u32> {
            let sas = tables.sas.iter().filter(|sa| sa.direction == Direction::Inbound);
            sas.map(|sa| sa.spi).collect()
        };
        for &spi in inbound(before).difference(&inbound(self)) {
            self.sessions.retire(spi);
        }
    }

    /// Loads the keys of a plan. An SA that `before` has, and that is the same, goes on: its sequence numbers, its window and its counters.
    /// With other addresses, another MTU, or one worker in place of several or the reverse, it has new counters. Other inbound SAs are
    /// returned: they are not installed yet. IKE installs its own SAs in the same table, which stays.
    ///
    /// # Errors
    /// No engine has an algorithm, or another SA has a key.
    pub(super) fn after(
        before: &Self,
        plan: &Plan,
        engine: &dyn Engine,
    ) -> Result<(Self, Vec<Arc<Session>>), TablesError> {
        Self::build(Some(before), before.used_keys.clone(), plan, engine)
    }

    fn build(
        before: Option<&Self>,
        used_keys: UsedKeys,
        plan: &Plan,
        engine: &dyn Engine,
    ) -> Result<(Self, Vec<Arc<Session>>), TablesError> {
        let sessions = match before {
            Some(before) => {
                before.sessions.mtu.store(plan.mtu, Ordering::Relaxed);
                Arc::clone(&before.sessions)
            }
            None => Arc::new(Tables::new(Protocol::Ipsec, plan.mtu)),
        };
        let Sas { all: sas, outbound, inbound, arriving } = Sas::after(before, &used_keys, plan, engine)?;
        // A route by a port that is not of `-p` leads nowhere.
        let place = |number: u16| (0..NOWHERE).zip(&plan.ports).find(|(_, port)| port.number == number);
        let index = |port: u8| RouteIndex(place(port.into()).map_or(NOWHERE, |(place, _)| place).into());
        let routes = plan.routes.iter().filter_map(|route| Some((route.network()?, index(route.port))));
        let ike_peers = numbered(before.map_or(&[], |before| &before.ike_peers), &plan.ike_peers);
        let policies = renumbered(plan, &ike_peers);
        let tables = Self {
            generation: before.map_or(0, |before| before.generation + 1),
            sessions,
            sas,
            used_keys,
            outbound,
            inbound,
            policies_out: Policies::new(&policies, Direction::Outbound, plan.lcores.len()),
            policies_in: Policies::new(&policies, Direction::Inbound, plan.lcores.len()),
            routes: Routes::build(routes),
            mtu: plan.mtu,
            has_one_worker: plan.lcores.len() == 1,
            modes: Modes::new(plan),
            lines: plan.routes.iter().map(|route| format!("{:?}", Route { line: 0, ..*route })).collect(),
            neighbours: plan.ports.iter().map(|port| port.neighbour).collect(),
            ike_peers,
            ike: plan.ike.clone(),
            ike_addresses: plan.ike.iter().filter_map(|(_, peer)| peer.local_address).collect(),
        };
        Ok((tables, arriving))
    }
}

/// The SAs of a plan.
struct Sas {
    /// By the number of their peer.
    all: Vec<Installed>,
    outbound: BySpi<(Arc<Peer>, Arc<OutboundSa>)>,
    /// Inbound SAs to be installed.
    arriving: Vec<Arc<Session>>,
    /// All inbound SAs.
    inbound: BySpi<Arc<Session>>,
}

impl Sas {
    /// Loads the keys of a plan, and keeps what [`SecgwTables::after`] says.
    fn after(
        before: Option<&SecgwTables>,
        used_keys: &UsedKeys,
        plan: &Plan,
        engine: &dyn Engine,
    ) -> Result<Self, TablesError> {
        let (mut sas, mut outbound, mut inbound) = (Vec::new(), BySpi::default(), BySpi::default());
        let mut arriving = Vec::new();
        let last = before.and_then(|before| before.sas.last()).map_or(0, |sa| sa.peer.id.number());
        let known: BTreeMap<_, _> =
            before.iter().flat_map(|before| &before.sas).map(|sa| ((sa.direction, sa.spi), sa)).collect();
        for (id, settings) in (last + 1..).map(PeerId::new).zip(&plan.sas) {
            let Some(transform) = settings.protection.transform() else { continue };
            let (spi, direction, line) = (settings.spi, settings.direction, settings.line);
            let keyed = known.get(&(direction, spi)).filter(|sa| has_same_keys(&sa.settings, settings));
            let is_alike =
                |it: &SecgwTables| it.has_one_worker == (plan.lcores.len() == 1) && it.mtu == plan.mtu;
            let is_alike = before.is_some_and(is_alike);
            let same = keyed.filter(|sa| is_alike && is_addressed_alike(&sa.settings, settings));
            let (peer, drops) = if let Some(sa) = same {
                (Arc::clone(&sa.peer), Arc::clone(&sa.drops))
            } else {
                let drops = Arc::<DropCounters>::default();
                (Arc::new(peer(id, settings, plan).with_drops(Arc::clone(&drops))), drops)
            };
            let (numbers, ends) = if let Some(sa) = keyed {
                (sa.numbers.clone(), sa.ends.clone())
            } else {
                let used = used_keys.first(settings);
                let used = used.ok_or(TablesError::UsedKey { line, direction: direction.word(), spi })?;
                beginning(settings, transform, used, plan, engine)?
            };
            match &numbers {
                Numbers::Outbound(sa) => {
                    outbound.insert(spi, (Arc::clone(&peer), Arc::clone(sa)));
                }
                Numbers::Inbound(sa) => {
                    let installed = before.filter(|_| same.is_some()).and_then(|it| it.inbound.get(&spi));
                    let session = installed.cloned().unwrap_or_else(|| {
                        let (sa, peer) = (Arc::clone(sa), Arc::clone(&peer));
                        let session = Arc::new(Session { sa, peer, selectors: None, transport: None });
                        arriving.push(Arc::clone(&session));
                        session
                    });
                    inbound.insert(spi, session);
                }
            }
            numbers.set_one_user(plan.lcores.len() == 1);
            let (algorithms, settings) = (settings.protection.name(), Arc::clone(settings));
            sas.push(Installed { spi, direction, line, algorithms, peer, drops, settings, ends, numbers });
        }
        sas.sort_by_key(|sa| sa.peer.id);
        Ok(Self { all: sas, outbound, inbound, arriving })
    }
}

/// A new SA, with numbers from `used` on, or from the one of its line, and where it ends.
fn beginning(
    settings: &Sa,
    transform: Transform,
    (used, spent): (u64, Spent),
    plan: &Plan,
    engine: &dyn Engine,
) -> Result<(Numbers, Ends), TablesError> {
    let (first, is_extended) = modes::numbers(settings, plan);
    let first = first.max(used);
    let ends = Ends::new(settings.limits, spent, first, Clock.monotonic());
    let lifetime = ends.lifetime(is_extended);
    let keys = keys(settings, transform, is_extended, engine)?;
    let volume = ends.volume();
    let numbers = match settings.direction {
        Direction::Outbound => {
            let sa = OutboundSa::new(keys, settings.spi, lifetime).starting_at(first);
            Numbers::Outbound(Arc::new(match volume {
                Some(volume) => sa.with_volume(volume),
                None => sa,
            }))
        }
        Direction::Inbound => {
            let sa = InboundSa::new(keys, settings.spi, lifetime, false).with_window(plan.window);
            let sa = sa.starting_at(first);
            Numbers::Inbound(Arc::new(match volume {
                Some(volume) => sa.with_volume(volume),
                None => sa,
            }))
        }
    };
    Ok((numbers, ends))
}

/// The names of the peers of IKE by their numbers. A number stands for one name as long as the gateway runs: SAs of IKE have it too.
fn numbered(before: &[String], names: &[String]) -> Vec<String> {
    let new = names.iter().filter(|name| !before.contains(name));
    before.iter().chain(new).cloned().collect()
}

/// The policies of a plan, with the numbers that its peers of IKE have among `names`.
fn renumbered(plan: &Plan, names: &[String]) -> Vec<Policy> {
    let number = |peer: u16| names.iter().position(|name| *name == plan.ike_peers[usize::from(peer)]);
    let action = |action| match action {
        // A number that does not fit is refused before.
        Action::Ike(peer) => {
            number(peer).and_then(|it| it.try_into().ok()).map_or(Action::Discard, Action::Ike)
        }
        other => other,
    };
    plan.policies.iter().map(|policy| Policy { action: action(policy.action), ..policy.clone() }).collect()
}

/// Whether an SA goes on with its sequence numbers or its window under the other line.
fn has_same_keys(one: &Sa, other: &Sa) -> bool {
    let fields =
        |sa: &Sa| (sa.direction, sa.spi, sa.mode == Mode::Transport, sa.extended_sequence, sa.limits);
    fields(one) == fields(other) && one.protection.name() == other.protection.name() && one.keys == other.keys
}

/// Whether packets of the SA have the same outer headers under both lines.
fn is_addressed_alike(one: &Sa, other: &Sa) -> bool {
    (one.mode, one.udp_encapsulation) == (other.mode, other.udp_encapsulation)
}

/// The tunnel of an SA. Its endpoint is how packets of the SA are addressed, or must be: remote and local address.
fn peer(id: PeerId, sa: &Sa, plan: &Plan) -> Peer {
    let (source, destination, mtu) = match sa.mode {
        Mode::Tunnel { source, destination } => (source, destination, plan.mtu),
        Mode::Transport => {
            let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            (any, any, plan.mtu.saturating_sub(LARGER_HEADER))
        }
    };
    let tunnel =
        Tunnel { in_udp: AtomicBool::new(sa.udp_encapsulation), path_mtu: mtu.into(), ..Tunnel::default() };
    let peer = Peer::new(id, PeerState::Ipsec(tunnel), Budget::default());
    // Without UDP there are no ports.
    let port = if sa.udp_encapsulation { UDP_PORT } else { 0 };
    let (remote, local) = match sa.direction {
        Direction::Outbound => (destination, source),
        Direction::Inbound => (source, destination),
    };
    let endpoint = Endpoint { local: Some(local), ..Endpoint::new(SocketAddr::new(remote, port)) };
    peer.endpoint.store(Some(endpoint));
    if plan.lcores.len() == 1 { peer.of_one_worker() } else { peer }
}

fn keys(sa: &Sa, transform: Transform, extended: bool, engine: &dyn Engine) -> Result<SaKeys, LoadError> {
    let bytes = sa.keys.expose();
    // RFC 4309 has 3 bytes of salt for CCM; the format has 4, of which the last one is not used.
    let keys = SecretBytes::new(bytes[..transform.key_material_length().min(bytes.len())].to_vec());
    let mode = match sa.mode {
        Mode::Tunnel { .. } => tunnel::esp::Mode::Tunnel,
        Mode::Transport => tunnel::esp::Mode::BumpInTheWire,
    };
    SaKeys::new(transform, extended, mode, &keys, engine, &mut random::System::default())
}
