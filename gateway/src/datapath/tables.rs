//! The lookup tables of the workers, with their writers.
//!
//! The handshake thread or IKE thread is the only writer of [`Tables`]; workers read. The route table is replaced as
//! a whole, so that a prefix moves from one peer to another atomically. In a [`Peer`], workers write what they
//! observe: endpoint, counters and activity.

use super::capture::Captures;
use super::endpoint_cell::EndpointCell;
use super::indexed::{Indexed, Table};
use super::pre_sa_queue::PreSaQueue;
use super::protocol::{PeerState, Protocol, Tunnel};
use super::staging::{Budget, Staging};
use super::traffic::Traffic;
use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_channel::{Receiver, Sender, unbounded};
use crossbeam_utils::CachePadded;
use packet::{DropCounters, Endpoint};
use port::Wake;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tunnel::esp::{Policies, Selectors, Transport};
use tunnel::wireguard::AllowedIps;
use tunnel::wireguard::limits::{REJECT_AFTER_TIME, SILENCE_TIMEOUT};
use tunnel::{InboundSa, OutboundSa, PeerId, Time};

/// How long a key of WireGuard lasts at least while it is new: for the time after which a silent peer is called.
const NEW_KEY_LASTS: Duration = Duration::from_secs(REJECT_AFTER_TIME.as_secs() - SILENCE_TIMEOUT.as_secs());

/// A peer in the data path: the remote end of a tunnel.
pub struct Peer {
    /// Its ID in the protocol.
    pub id: PeerId,
    /// The protocol-specific part.
    pub state: PeerState,
    /// The SA to send with.
    pub sending: ArcSwapOption<OutboundSa>,
    /// The SA to send with once a packet has arrived under this local index.
    next: Mutex<Option<(u32, Arc<OutboundSa>)>>,
    /// Its endpoint.
    pub endpoint: EndpointCell,
    /// Packets that are staged for lack of a key.
    pub staging: Staging,
    /// Traffic sent to it.
    pub sent: CachePadded<Traffic>,
    /// Packets for it that the kernel refused.
    pub unsent: AtomicU64,
    /// Authentic traffic received from it.
    pub received: CachePadded<Traffic>,
    /// Where drops of its packets are counted; `None` for among all.
    drops: Option<Arc<DropCounters>>,
    /// What the configuration or its certificate calls it, for captures.
    name: ArcSwapOption<String>,
}

impl Peer {
    /// Creates a peer without key and endpoint.
    pub fn new(id: PeerId, state: PeerState, budget: Budget) -> Self {
        Self {
            id,
            state,
            sending: ArcSwapOption::empty(),
            next: Mutex::default(),
            endpoint: EndpointCell::default(),
            staging: Staging::new(budget),
            sent: CachePadded::default(),
            unsent: AtomicU64::new(0),
            received: CachePadded::default(),
            drops: None,
            name: ArcSwapOption::empty(),
        }
    }

    /// The same with a name.
    #[must_use]
    pub fn with_name(self, name: &str) -> Self {
        self.set_name(name);
        self
    }

    /// Gives it another name.
    pub fn set_name(&self, name: &str) {
        self.name.store(Some(Arc::new(name.to_owned())));
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<Arc<String>> {
        self.name.load_full()
    }

    /// The same, with drop counters of its own.
    #[must_use]
    pub fn with_drops(self, drops: Arc<DropCounters>) -> Self {
        Self { drops: Some(drops), ..self }
    }

    /// The same, whose packets one thread alone sends and receives.
    #[must_use]
    pub fn of_one_worker(self) -> Self {
        let traffic = || CachePadded::new(Traffic::of_one_thread());
        Self { sent: traffic(), received: traffic(), ..self }
    }

    /// Where drops of its packets are counted: with the peer, or among `all`.
    #[inline]
    pub fn drops<'a>(&'a self, all: &'a DropCounters) -> &'a DropCounters {
        self.drops.as_deref().unwrap_or(all)
    }

    /// The SA to send with at `now`, unless packets must be staged for a new key or behind others.
    #[inline]
    pub fn key(&self, now: Time) -> Option<Arc<OutboundSa>> {
        if self.staging.is_occupied() {
            return None;
        }
        self.sending.load_full().filter(|sa| sa.is_usable(now))
    }

    /// Sends with this SA from now on; an unconfirmed SA is dropped.
    pub fn use_key(&self, sa: Option<Arc<OutboundSa>>) {
        let mut next = self.next();
        *next = None;
        self.sending.store(sa);
    }

    /// Sends with `sa` as soon as a packet under `index` has proven that the peer has the keys.
    pub fn use_when_confirmed(&self, index: u32, sa: Arc<OutboundSa>) {
        *self.next() = Some((index, sa));
    }

    /// Handles the first packet under `index`: the answer must use the new key, as a restarted peer does not have the
    /// older one.
    #[cold]
    pub fn confirmed(&self, index: u32) {
        // If the handshake thread holds the lock, it is about to change the key. A worker does not wait for it.
        let Ok(mut next) = self.next.try_lock() else { return };
        if let Some((_, sa)) = next.take_if(|(waits_for, _)| *waits_for == index) {
            self.sending.store(Some(sa));
        }
    }

    fn next(&self) -> MutexGuard<'_, Option<(u32, Arc<OutboundSa>)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tunnel parameters, for IPsec.
    pub fn tunnel(&self) -> Option<&Tunnel> {
        match &self.state {
            PeerState::Ipsec(tunnel) => Some(tunnel),
            PeerState::WireGuard(_) | PeerState::OpenVpn(_) => None,
        }
    }

    /// Whether its endpoint is where its last authentic packet came from, or a port of the same address.
    pub fn is_followed(&self) -> bool {
        self.state.is_followed()
    }

    /// Handles an authentic packet under `sa` from another address than the endpoint; returns whether the protocol must be told.
    #[cold]
    pub fn note_elsewhere(&self, from: Endpoint, sa: &InboundSa, now: Time) -> bool {
        if !self.state.follows(self.endpoint.load().as_ref(), &from) || self.is_late(sa, now) {
            return false;
        }
        // A client must not lead its packets to another one's address.
        if let PeerState::OpenVpn(link) = &self.state {
            return link.note_moved(from);
        }
        self.endpoint.store(Some(from));
        false
    }

    /// WireGuard: whether a packet under `sa` may have been sent before the last handshake, which has set the endpoint. It would move
    /// the endpoint back to the address that the peer has just left. This holds for a short time only: a peer that never got our
    /// confirmation, or whose initiation crossed ours, goes on with the older key, and may move meanwhile.
    fn is_late(&self, sa: &InboundSa, now: Time) -> bool {
        let is_wireguard = matches!(self.state, PeerState::WireGuard(_));
        let is_new = |key: &OutboundSa| now + NEW_KEY_LASTS < key.expires();
        is_wireguard && self.sending.load().as_ref().is_some_and(|key| sa.is_older_than(key) && is_new(key))
    }

    /// Lets the kernel select the local address again.
    pub fn forget_source(&self) {
        if let Some(endpoint) = self.endpoint.load() {
            self.forget_source_of(&endpoint);
        }
    }

    /// Lets the kernel select the local address again, after it has refused the current one; a newer endpoint of the peer is kept.
    pub fn forget_source_of(&self, used: &Endpoint) {
        if used.local.is_some() {
            self.endpoint.replace(used, Endpoint { local: None, ..*used });
        }
    }
}

/// The security association of a received packet, with its peer.
pub struct Session {
    /// The SA.
    pub sa: Arc<InboundSa>,
    /// The peer that sends with it.
    pub peer: Arc<Peer>,
    /// The selectors of the SA; `None` leaves the check to cryptokey routing.
    pub selectors: Option<Selectors>,
    /// In transport mode, the addresses of its packets; `None` for those of the outer header.
    pub transport: Option<Transport>,
}

impl Indexed for Session {
    fn index(&self) -> u32 {
        self.sa.index
    }
}

/// The configuration of the inside interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The largest packet.
    pub mtu: usize,
    /// WireGuard: the largest TCP segment that may be announced over IPv4 and over IPv6. 0 for any, the largest number for
    /// what fits the MTU.
    pub segment_sizes: [u16; 2],
    /// Whether an IPv6 packet that is longer than the tunnel usually carries is fragmented outside, and not answered.
    pub cuts_v6: bool,
}

/// The lookup tables of the workers.
pub struct Tables {
    /// The protocol of the interface.
    pub protocol: Protocol,
    /// WireGuard and OpenVPN: from inner addresses to peers.
    pub routes: ArcSwap<AllowedIps<Arc<Peer>>>,
    /// IPsec: from inner packets to peers.
    pub policies: ArcSwap<Policies<Arc<Peer>>>,
    /// The MTU of the inside interface.
    pub mtu: AtomicUsize,
    /// See [`Inside::segment_sizes`].
    pub segment_sizes: [AtomicU16; 2],
    /// IPsec: the pre-SA queue.
    pub pre_sa: PreSaQueue,
    /// OpenVPN's `client-to-client`: packets between clients are relayed, but not those to these addresses, of the server. Set before the
    /// workers start.
    pub relayed_beside: OnceLock<Vec<IpAddr>>,
    /// Orders to the outbound worker about staged packets.
    pub orders: Orders,
    /// Who captures packets.
    pub captures: Arc<Captures>,
    /// Without locks: a worker never waits for the writer, which runs at a lower priority.
    sessions: Table<Session>,
}

impl Tables {
    /// Empty tables for an interface with this MTU.
    pub fn new(protocol: Protocol, mtu: usize) -> Self {
        Self {
            protocol,
            routes: ArcSwap::default(),
            policies: ArcSwap::default(),
            mtu: AtomicUsize::new(mtu),
            segment_sizes: Default::default(),
            pre_sa: PreSaQueue::default(),
            relayed_beside: OnceLock::new(),
            orders: Orders::default(),
            captures: Arc::default(),
            sessions: Table::default(),
        }
    }

    /// What the inside interface asks for at the moment.
    #[inline]
    pub fn inside(&self) -> Inside {
        Inside {
            mtu: self.mtu.load(Ordering::Relaxed),
            segment_sizes: self.segment_sizes.each_ref().map(|size| size.load(Ordering::Relaxed)),
            cuts_v6: false,
        }
    }

    /// The session whose packets carry `index`.
    #[inline]
    pub fn session(&self, index: u32) -> Option<Arc<Session>> {
        self.sessions.get(index)
    }

    /// Accepts packets of a session.
    pub fn install(&self, session: Session) {
        self.install_shared(Arc::new(session));
    }

    /// Accepts packets of a session that other tables have too.
    pub fn install_shared(&self, session: Arc<Session>) {
        drop(self.sessions.insert(session));
    }

    /// Whether there is a session whose packets carry `index`: a new one must have another.
    pub fn has_session(&self, index: u32) -> bool {
        self.sessions.get(index).is_some()
    }

    /// Accepts them no more. The key is erased now, or when a worker is done with the packets that it has.
    pub fn retire(&self, index: u32) {
        drop(self.sessions.remove(index));
    }
}

/// What the outbound worker does with the staged packets of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// There is a key: send them.
    Send,
    /// There will be none: drop them.
    Drop,
}

/// Orders about staged packets, for the outbound worker.
pub struct Orders {
    sender: Sender<(Arc<Peer>, Order)>,
    receiver: Receiver<(Arc<Peer>, Order)>,
}

impl Default for Orders {
    fn default() -> Self {
        let (sender, receiver) = unbounded();
        Self { sender, receiver }
    }
}

impl Orders {
    /// Has the packets of a peer sent or dropped by the worker that `wake` wakes; tells whether there are some.
    pub fn give(&self, peer: &Arc<Peer>, order: Order, wake: &Wake) -> bool {
        let some = peer.staging.is_occupied();
        if some {
            // We have the receiver.
            let _ = self.sender.send((Arc::clone(peer), order));
            wake.notify();
        }
        some
    }

    /// The next order.
    #[inline]
    pub fn next(&self) -> Option<(Arc<Peer>, Order)> {
        if self.receiver.is_empty() { None } else { self.receiver.try_recv().ok() }
    }
}
