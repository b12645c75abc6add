//! The tunnels of all peers, as the data path has them: a [`Peer`] each that outlives its SAs.

mod events;
mod instances;
mod lookup;
mod path;
mod policies;
mod sessions;
mod show;
mod told;
mod unsent;
mod update;

use crate::datapath::protocol::{PeerState, Tunnel};
use crate::datapath::staging::Budget;
use crate::datapath::tables::{Order, Peer, Session};
use crate::datapath::worker::Shared;
use crate::ipsec::MTU;
use crate::ipsec::connections::{Child, Names, address_towards};
use crate::ipsec::model::IpsecFailure;
use crypto::{Engine, Random};
use packet::Endpoint;
use path::PathMtuCache;
use policies::Published;
use port::Wake;
use sessions::Sessions;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use told::Told;
use tunnel::esp::{Selectors, TrafficSelector};
use tunnel::ikev2::proposal::EspSuite;
use tunnel::ikev2::receivers::receiver_of;
use tunnel::ikev2::{Connection, ConnectionId, Follows, Install, SessionId};
use tunnel::timers::Timers;
use tunnel::{OutboundSa, PeerId, Time};
use unsent::Unsent;

/// How long packets under an SA that was replaced are accepted: until those that the peer sent before it took the newer
/// one have arrived. charon goes on for as long as our answer to its deletion takes.
const LINGER: Duration = Duration::from_secs(2);

/// A peer of the configuration, or an instance of one that is a profile.
pub struct Connected {
    /// The name in reports: that of the configuration, and for an instance the identity after it.
    name: String,
    settings: Arc<Connection>,
    names: Names,
    /// The profile that it is an instance of.
    profile: Option<ConnectionId>,
    tunnels: Vec<Carried>,
    sessions: Sessions,
    failure: Option<IpsecFailure>,
    /// The failure that was logged last.
    told: Option<Told>,
}

/// The packets that something is for.
#[derive(Clone, Default, PartialEq, Eq)]
struct Traffic {
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
}

impl Traffic {
    fn selectors(&self) -> Selectors {
        Selectors::new(&self.local, &self.remote)
    }
}

/// A tunnel.
struct Carried {
    plan: Child,
    peer: Arc<Peer>,
    /// The packets that it is for, until the peer has agreed to fewer.
    configured: Traffic,
    /// The oldest first.
    sas: Vec<Installed>,
    /// SPIs of SAs that were replaced, of which some linger.
    late: Vec<u32>,
    /// Packets received and sent when it was last looked.
    counted: [u64; 2],
    /// The address of the peer whose path MTU is known.
    measured: Option<IpAddr>,
    /// Whether it is one of an instance.
    is_of_instance: bool,
}

/// No packets.
static NOTHING: Traffic = Traffic { local: Vec::new(), remote: Vec::new() };

impl Carried {
    /// The packets that it is for: what the newest SAs are for, or what is configured. An instance without SAs leaves its
    /// packets to its profile, which drops them.
    fn traffic(&self) -> &Traffic {
        let without_sa = if self.is_of_instance { &NOTHING } else { &self.configured };
        self.sas.last().map_or(without_sa, |sa| &sa.traffic)
    }
}

/// A pair of SAs.
struct Installed {
    /// The SPI that we receive with.
    spi: u32,
    session: SessionId,
    /// Where the other side was when it was last heard of.
    endpoint: Endpoint,
    outbound: Arc<OutboundSa>,
    traffic: Traffic,
    /// Known from the event that follows the installation.
    suite: Option<EspSuite>,
    since: Time,
}

/// What has passed through a tunnel since it was last looked.
pub(super) struct Passed {
    /// An SPI of the tunnel.
    pub(super) spi: u32,
    pub(super) is_received: bool,
    pub(super) is_sent: bool,
    /// Where its peer is, if that is not where it was.
    pub(super) moved: Option<Endpoint>,
    /// Where packets came from to which the peer is not followed.
    pub(super) strayed: Option<SocketAddr>,
}

/// All of them.
pub struct Children {
    engine: Arc<dyn Engine>,
    random: Box<dyn Random>,
    shared: Shared,
    inbound_wakes: Vec<Arc<Wake>>,
    outbound_wake: Arc<Wake>,
    budget: Budget,
    path_mtus: PathMtuCache,
    published: Published,
    connections: BTreeMap<ConnectionId, Connected>,
    by_name: BTreeMap<String, ConnectionId>,
    /// The instances of profiles, by their names.
    instances: BTreeMap<String, ConnectionId>,
    /// By the configured address of the peer.
    by_remote: HashMap<IpAddr, BTreeSet<ConnectionId>>,
    /// Connections that were removed, until they have ended.
    past: BTreeMap<ConnectionId, String>,
    names: BTreeMap<PeerId, (ConnectionId, usize)>,
    /// Whose an SA is, by the SPI that we receive with.
    owners: HashMap<u32, (ConnectionId, usize)>,
    /// SPIs of SAs that were replaced, under which late packets are still accepted.
    lingering: Timers<u32>,
    last_peer: u64,
    /// Where nothing can be sent to now.
    pub(super) unsent: Unsent,
    /// The last call that no peer is configured for: its source, and when it came, in seconds since 1970.
    pub(super) unknown_caller: Option<(IpAddr, u64)>,
}

impl Children {
    pub(super) fn new(
        engine: Arc<dyn Engine>,
        random: Box<dyn Random>,
        shared: Shared,
        inbound_wakes: Vec<Arc<Wake>>,
        outbound_wake: Arc<Wake>,
    ) -> Self {
        Self {
            inbound_wakes,
            outbound_wake,
            engine,
            random,
            shared,
            budget: Budget::default(),
            path_mtus: PathMtuCache::default(),
            published: Published::default(),
            connections: BTreeMap::new(),
            by_name: BTreeMap::new(),
            instances: BTreeMap::new(),
            by_remote: HashMap::new(),
            past: BTreeMap::new(),
            names: BTreeMap::new(),
            owners: HashMap::new(),
            lingering: Timers::default(),
            last_peer: 0,
            unsent: Unsent::default(),
            unknown_caller: None,
        }
    }

    pub(super) fn add(
        &mut self,
        id: ConnectionId,
        settings: Arc<Connection>,
        names: Names,
        plans: Vec<Child>,
    ) {
        let name = settings.name.clone();
        self.by_name.insert(name.clone(), id);
        self.insert((id, None), name, settings, names, plans);
    }

    fn insert(
        &mut self,
        (id, profile): (ConnectionId, Option<ConnectionId>),
        name: String,
        settings: Arc<Connection>,
        names: Names,
        plans: Vec<Child>,
    ) {
        let tunnel = |(child, plan)| self.carry((id, child), &name, &settings, plan, profile.is_some());
        let tunnels = plans.into_iter().enumerate().map(tunnel).collect();
        self.enter(id, settings.remote);
        let (sessions, failure, told) = (Sessions::default(), None, None);
        self.connections
            .insert(id, Connected { name, settings, names, profile, tunnels, sessions, failure, told });
        self.set_policies(id);
    }

    /// A tunnel without SAs.
    fn carry(
        &mut self,
        (id, child): (ConnectionId, usize),
        name: &str,
        settings: &Connection,
        plan: Child,
        is_of_instance: bool,
    ) -> Carried {
        self.last_peer += 1;
        let peer_id = PeerId::new(self.last_peer);
        let peer = Peer::new(peer_id, PeerState::Ipsec(carried(&plan)), self.budget.clone());
        let peer = Arc::new(peer.with_name(name));
        // Packets may wait for a key as soon as it is known where they would go.
        peer.endpoint.store(settings.remote.map(|remote| Endpoint::new((remote, 4500).into())));
        self.names.insert(peer_id, (id, child));
        let configured = traffic(settings, child);
        let mut carried = Carried {
            plan,
            peer,
            configured,
            sas: Vec::new(),
            late: Vec::new(),
            counted: [0; 2],
            measured: None,
            is_of_instance,
        };
        self.path_mtus.measure(&mut carried);
        carried
    }

    /// The caller then stores the policies.
    pub(super) fn remove(&mut self, id: ConnectionId) {
        let tunnels = self.connections.get(&id).into_iter().flat_map(|connected| &connected.tunnels);
        let spis: Vec<u32> = tunnels.flat_map(|tunnel| &tunnel.sas).map(|sa| sa.spi).collect();
        for spi in spis {
            self.retire(spi);
        }
        self.purge(id);
        if let Some(connected) = self.connections.remove(&id) {
            let names = if connected.profile.is_some() { &mut self.instances } else { &mut self.by_name };
            names.remove(&connected.name);
            self.leave(id, connected.settings.remote);
            // The other side is told, and answers later.
            if connected.sessions.newest().is_some() {
                self.past.insert(id, connected.name);
            }
            for tunnel in &connected.tunnels {
                self.names.remove(&tunnel.peer.id);
                self.published.remove(tunnel.peer.id);
            }
        }
    }

    fn enter(&mut self, id: ConnectionId, remote: Option<IpAddr>) {
        self.unsent.enter(remote);
        if let Some(remote) = remote {
            self.by_remote.entry(remote).or_default().insert(id);
        }
    }

    fn leave(&mut self, id: ConnectionId, remote: Option<IpAddr>) {
        self.unsent.leave(remote);
        if let Some(remote) = remote
            && let Some(ids) = self.by_remote.get_mut(&remote)
        {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_remote.remove(&remote);
            }
        }
    }

    fn tunnel(&self, id: ConnectionId, child: usize) -> Option<&Carried> {
        self.connections.get(&id)?.tunnels.get(child)
    }

    fn tunnel_mut(&mut self, (id, child): (ConnectionId, usize)) -> Option<&mut Carried> {
        self.connections.get_mut(&id)?.tunnels.get_mut(child)
    }

    /// The tunnel of an SA, and which of its SAs it is.
    fn find(&self, spi: u32) -> Option<(&Carried, usize)> {
        let &(id, child) = self.owners.get(&spi)?;
        let tunnel = self.tunnel(id, child)?;
        Some((tunnel, tunnel.sas.iter().position(|sa| sa.spi == spi)?))
    }
}

/// Installation and removal of SAs.
impl Children {
    pub(super) fn install(&mut self, install: Install) {
        let Install { connection, child, session, sa, path, encapsulation, transport, follows, hold } =
            install;
        let place = (connection, child);
        let endpoint = if encapsulation {
            crate::ipsec::ike_thread::outside(path)
        } else {
            crate::ipsec::ike_thread::without_udp(path)
        };
        let Some(tunnel) = self.connections.get(&connection).and_then(|it| it.tunnels.get(child)) else {
            return;
        };
        let now = self.shared.clock.monotonic();
        let (outbound, inbound) = match sa.load(&tunnel.plan.options, &*self.engine, &mut *self.random, now) {
            Ok(loaded) => loaded,
            Err(error) => return tracing::error!("{}: {error}", self.child_name(connection, child)),
        };
        let peer = Arc::clone(&tunnel.peer);
        if let Some(tunnel) = peer.tunnel() {
            tunnel.in_udp.store(encapsulation, Ordering::Relaxed);
            tunnel.follows.store(follows == Follows::Anywhere, Ordering::Relaxed);
            tunnel.follows_port.store(follows == Follows::Port, Ordering::Relaxed);
        }
        let traffic = Traffic { local: sa.local, remote: sa.remote };
        let spi = inbound.index;
        let (sa, selectors) = (Arc::new(inbound), Some(traffic.selectors()));
        let session_entry = Session { sa, peer: Arc::clone(&peer), selectors, transport };
        self.lingering.set(spi, None);
        self.shared.tables.install(session_entry);
        if self.shared.tables.pre_sa.release(spi) {
            // The worker to which its later packets are steered.
            self.inbound_wakes[receiver_of(spi, self.inbound_wakes.len())].notify();
        }
        if peer.sending.load().is_none() {
            peer.endpoint.store(Some(endpoint));
        }
        let outbound = Arc::new(outbound);
        let is_other = *tunnel.traffic() != traffic;
        let installed = Installed { spi, session, endpoint, outbound, traffic, suite: None, since: now };
        self.owners.insert(spi, place);
        let tunnel = self.connections.get_mut(&connection).and_then(|it| it.tunnels.get_mut(child));
        if let Some(tunnel) = tunnel {
            // Routes may have changed since the keys before.
            tunnel.measured.take_if(|_| !tunnel.sas.is_empty());
            self.path_mtus.measure(tunnel);
            // Most have one, and a vector begins with room for four.
            tunnel.sas.reserve_exact(1);
            tunnel.sas.push(installed);
        }
        if is_other {
            self.publish(place);
        }
        if !hold || peer.sending.load().is_none() {
            self.use_sa(spi);
        }
    }

    /// Sends with an SA from now on, the waiting packets first.
    pub(super) fn use_sa(&mut self, spi: u32) {
        let Some((tunnel, at)) = self.find(spi) else { return };
        let sending = tunnel.peer.sending.load_full();
        let is_used = |sa: &Installed| sending.as_ref().is_some_and(|it| Arc::ptr_eq(it, &sa.outbound));
        // The first packet under an old SA may come late.
        if tunnel.sas[at + 1..].iter().any(is_used) {
            return;
        }
        let (used, next) = (tunnel.sas.iter().find(|sa| is_used(sa)), &tunnel.sas[at]);
        // Two sessions of one peer can have different endpoints.
        if used.is_some_and(|used| used.session != next.session) {
            tunnel.peer.endpoint.store(Some(next.endpoint));
        }
        tunnel.peer.sending.store(Some(Arc::clone(&next.outbound)));
        self.shared.tables.orders.give(&tunnel.peer, Order::Send, &self.outbound_wake);
    }

    /// Stops sending with an SA; the newest remaining one is used.
    pub(super) fn retire(&mut self, spi: u32) {
        let Some((_, at)) = self.find(spi) else { return };
        let Some(place) = self.owners.remove(&spi) else { return };
        let tunnel = self.connections.get_mut(&place.0).and_then(|it| it.tunnels.get_mut(place.1));
        let Some(tunnel) = tunnel else { return };
        let before = tunnel.traffic().clone();
        let gone = tunnel.sas.remove(at);
        let next = tunnel.sas.last();
        let (is_replaced, is_other) = (next.is_some(), *tunnel.traffic() != before);
        if tunnel.peer.sending.load().as_ref().is_some_and(|sa| Arc::ptr_eq(sa, &gone.outbound)) {
            if let Some(other) = next.filter(|next| next.session != gone.session) {
                tunnel.peer.endpoint.store(Some(other.endpoint));
            }
            tunnel.peer.sending.store(next.map(|sa| Arc::clone(&sa.outbound)));
        }
        let until = self.shared.clock.monotonic() + LINGER;
        self.lingering.set(spi, Some(until));
        if is_replaced {
            tunnel.late.retain(|late| self.lingering.at(*late).is_some());
            tunnel.late.push(spi);
        } else {
            // Nothing is left that late packets could belong to.
            for late in tunnel.late.drain(..).chain([spi]) {
                if self.lingering.at(late).is_some() {
                    self.lingering.set(late, None);
                    self.shared.tables.retire(late);
                }
            }
        }
        if is_other {
            self.publish(place);
        }
    }

    /// Accepts nothing more under SAs that were replaced a while ago.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(spi) = self.lingering.take_due(now) {
            self.shared.tables.retire(spi);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.lingering.first()
    }

    pub(super) fn follow(&mut self, connection: ConnectionId, session: SessionId, endpoint: Endpoint) {
        let Some(connected) = self.connections.get_mut(&connection) else { return };
        for tunnel in &mut connected.tunnels {
            let Carried { peer, sas, .. } = tunnel;
            let (sending, mut is_moved) = (peer.sending.load_full(), false);
            for sa in sas.iter_mut().filter(|sa| sa.session == session) {
                sa.endpoint = endpoint;
                is_moved |= sending.as_ref().is_some_and(|it| Arc::ptr_eq(it, &sa.outbound));
            }
            if is_moved {
                peer.endpoint.store(Some(endpoint));
                self.path_mtus.measure(tunnel);
            }
        }
        if let Some(established) = connected.sessions.get_mut(session) {
            established.endpoint = endpoint;
        }
    }

    /// Drops the packets that wait for keys of a connection: there will be none.
    pub(super) fn purge(&self, id: ConnectionId) {
        for tunnel in self.connections.get(&id).into_iter().flat_map(|it| &it.tunnels) {
            self.shared.tables.orders.give(&tunnel.peer, Order::Drop, &self.outbound_wake);
        }
    }
}

/// How the packets of a tunnel are carried.
fn carried(plan: &Child) -> Tunnel {
    let mtu = plan.mtu.map_or(MTU as usize, usize::from);
    // A configured mtu implies that path MTU discovery is broken: clamp the MSS too.
    Tunnel { mtu, clamps_mss: plan.mtu.is_some(), ike_peer: plan.ike_peer, ..Tunnel::default() }
}

/// What a child is for before its peer has agreed to it: an empty side is the gateway's own address, if that is known.
fn traffic(settings: &Connection, child: usize) -> Traffic {
    let Some(child) = settings.children.get(child) else { return Traffic::default() };
    let side = |selectors: &[TrafficSelector], address: Option<IpAddr>| match selectors {
        [] => address
            .map(|it| TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses: it..=it })
            .into_iter()
            .collect(),
        selectors => selectors.to_vec(),
    };
    let local = match child.local[..] {
        [] => settings.local.or_else(|| settings.remote.and_then(address_towards)),
        _ => None,
    };
    Traffic { local: side(&child.local, local), remote: side(&child.remote, settings.remote) }
}
