//! What the workers look up, and who may change it.
//!
//! The slow path of a protocol is the only writer of [`Tables`]; workers read. The route table is replaced whole, so that a
//! prefix moves from one peer to another in one step. Of a [`Peer`], the workers themselves write what they observe:
//! its endpoint, its counters, its activity.

use super::indexed::{Indexed, Table};
use super::pre_sa_queue::PreSaQueue;
use super::staging::{Budget, Staging};
use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_channel::{Receiver, Sender, unbounded};
use crossbeam_utils::CachePadded;
use packet::Endpoint;
use port::Wake;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tunnel::esp::{Policies, Selectors, Transport};
use tunnel::wireguard::{Activity, AllowedIps};
use tunnel::{InboundSa, OutboundSa, PeerId, Time};

/// What an interface speaks: how its packets are told apart, and how the way of one is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// WireGuard, with cryptokey routing.
    WireGuard,
    /// ESP, with policies.
    Ipsec,
}

/// A peer, as the data path sees it: the other end of a tunnel.
pub struct Peer {
    /// Its name in the protocol.
    pub id: PeerId,
    /// What only one protocol has.
    pub kind: Kind,
    /// The key to send with.
    pub sending: ArcSwapOption<OutboundSa>,
    /// The key to send with once a packet has come under this index of ours.
    next: Mutex<Option<(u32, Arc<OutboundSa>)>>,
    /// Where it is.
    pub endpoint: ArcSwapOption<Endpoint>,
    /// Packets that wait for a key.
    pub staging: Staging,
    /// What was sent to it.
    pub sent: CachePadded<Traffic>,
    /// Packets for it that the kernel did not take.
    pub unsent: AtomicU64,
    /// What authentic came from it.
    pub received: CachePadded<Traffic>,
}

/// What a peer has by its protocol.
pub enum Kind {
    /// What the protocol must know about its traffic.
    WireGuard(Arc<Activity>),
    /// How packets are carried.
    Ipsec(Tunnel),
}

/// How the packets of one pair of policies are carried: what is the same for all SAs that follow each other.
pub struct Tunnel {
    /// Whether the endpoint is that of the last authentic packet. RFC 7296 section 2.23: only for a peer behind a NAT.
    pub follows: AtomicBool,
    /// Whether it is that if only the port is another: both sides are behind NATs.
    pub follows_port: AtomicBool,
    /// The last source of authentic packets that the endpoint does not follow; cleared when read.
    pub strayed: ArcSwapOption<Endpoint>,
    /// The largest outer packet that reaches the peer, as far as is known.
    pub path_mtu: AtomicUsize,
    /// The largest inner packet that is wanted.
    pub mtu: usize,
    /// Whether ESP packets are in UDP datagrams.
    pub in_udp: AtomicBool,
    /// Whether the DSCP is shown outside (RFC 4301 section 5.1.2.1).
    pub shows_dscp: bool,
    /// Whether TCP is told to send no segments that would not fit.
    pub clamps_mss: bool,
}

impl Default for Tunnel {
    fn default() -> Self {
        Self {
            follows: AtomicBool::new(false),
            follows_port: AtomicBool::new(false),
            strayed: ArcSwapOption::empty(),
            path_mtu: AtomicUsize::new(usize::MAX),
            mtu: usize::MAX,
            in_udp: AtomicBool::new(true),
            shows_dscp: true,
            clamps_mss: false,
        }
    }
}

/// Outside bytes and packets in one direction.
#[derive(Default)]
pub struct Traffic {
    bytes: AtomicU64,
    packets: AtomicU64,
}

impl Traffic {
    /// Counts packets.
    #[inline]
    pub fn count(&self, packets: usize, bytes: usize) {
        self.packets.fetch_add(packets as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }
}

impl Peer {
    /// A peer without key and endpoint.
    pub fn new(id: PeerId, kind: Kind, budget: Budget) -> Self {
        Self {
            id,
            kind,
            sending: ArcSwapOption::empty(),
            next: Mutex::default(),
            endpoint: ArcSwapOption::empty(),
            staging: Staging::new(budget),
            sent: CachePadded::default(),
            unsent: AtomicU64::new(0),
            received: CachePadded::default(),
        }
    }

    /// The key to send with at `now`, if packets need not wait for another, or for packets that came before them.
    #[inline]
    pub fn key(&self, now: Time) -> Option<Arc<OutboundSa>> {
        if self.staging.is_occupied() {
            return None;
        }
        self.sending.load_full().filter(|sa| sa.is_usable(now))
    }

    /// Sends with this key from now on; one that waited for its confirmation is not used any more.
    pub fn use_key(&self, sa: Option<Arc<OutboundSa>>) {
        let mut next = self.next();
        *next = None;
        self.sending.store(sa);
    }

    /// Sends with `sa` as soon as the peer has shown, by a packet under `index`, that it has the keys.
    pub fn use_when_confirmed(&self, index: u32, sa: Arc<OutboundSa>) {
        *self.next() = Some((index, sa));
    }

    /// The first packet has come under `index`: what answers it must not leave under an older key, which a peer that was
    /// restarted does not have.
    #[cold]
    pub fn confirmed(&self, index: u32) {
        // If the protocol has the lock, it is about to use another key, or none. A worker does not wait for it.
        let Ok(mut next) = self.next.try_lock() else { return };
        if let Some((_, sa)) = next.take_if(|(waits_for, _)| *waits_for == index) {
            self.sending.store(Some(sa));
        }
    }

    fn next(&self) -> MutexGuard<'_, Option<(u32, Arc<OutboundSa>)>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How packets are carried, of IPsec.
    pub fn tunnel(&self) -> Option<&Tunnel> {
        match &self.kind {
            Kind::Ipsec(tunnel) => Some(tunnel),
            Kind::WireGuard(_) => None,
        }
    }

    /// Whether its endpoint is where its last authentic packet came from, or a port of the same address.
    pub fn is_followed(&self) -> bool {
        let follows = |tunnel: &Tunnel| {
            tunnel.follows.load(Ordering::Relaxed) || tunnel.follows_port.load(Ordering::Relaxed)
        };
        self.tunnel().is_none_or(follows)
    }

    /// An authentic packet came from elsewhere than its endpoint.
    #[cold]
    pub fn note_elsewhere(&self, from: Endpoint) {
        let known = self.endpoint.load().as_deref().map(|endpoint| endpoint.remote);
        let is_same_address = known.is_some_and(|known| known.ip() == from.remote.ip());
        let Some(tunnel) = self.tunnel() else { return self.endpoint.store(Some(Arc::new(from))) };
        let follows_port = || tunnel.follows_port.load(Ordering::Relaxed) && is_same_address;
        if tunnel.follows.load(Ordering::Relaxed) || follows_port() {
            return self.endpoint.store(Some(Arc::new(from)));
        }
        // Without UDP there are no ports.
        let has_ports = tunnel.in_udp.load(Ordering::Relaxed);
        let is_same = if has_ports { known == Some(from.remote) } else { is_same_address };
        if !is_same && tunnel.strayed.load().as_deref() != Some(&from) {
            tunnel.strayed.store(Some(Arc::new(from)));
        }
    }

    /// Lets the kernel select the local address again.
    pub fn forget_source(&self) {
        if let Some(endpoint) = self.endpoint.load_full() {
            self.forget_source_of(&endpoint);
        }
    }

    /// Lets the kernel select the local address again, after it has refused the current one; a newer endpoint of the peer is kept.
    pub fn forget_source_of(&self, used: &Endpoint) {
        let before = self.endpoint.load();
        if used.local.is_some() && before.as_deref() == Some(used) {
            self.endpoint.compare_and_swap(&before, Some(Arc::new(Endpoint::new(used.remote))));
        }
    }
}

/// The security association of a received packet, and whose it is.
pub struct Session {
    /// The key.
    pub sa: Arc<InboundSa>,
    /// The peer that sends with it.
    pub peer: Arc<Peer>,
    /// The packets that it is for; `None` leaves that to cryptokey routing.
    pub selectors: Option<Selectors>,
    /// In transport mode, the addresses of its packets; `None` for those of the outer header.
    pub transport: Option<Transport>,
}

impl Indexed for Session {
    fn index(&self) -> u32 {
        self.sa.index
    }
}

/// What the inside interface asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The largest packet.
    pub mtu: usize,
    /// WireGuard: the largest TCP segment that may be announced over IPv4 and over IPv6. 0 for any, the largest number for
    /// what fits the MTU.
    pub segment_sizes: [u16; 2],
}

/// What the workers look up.
pub struct Tables {
    /// What the interface speaks.
    pub protocol: Protocol,
    /// WireGuard: from inner addresses to peers.
    pub routes: ArcSwap<AllowedIps<Arc<Peer>>>,
    /// IPsec: from inner packets to peers.
    pub policies: ArcSwap<Policies<Arc<Peer>>>,
    /// The MTU of the inside interface.
    pub mtu: AtomicUsize,
    /// See [`Inside::segment_sizes`].
    pub segment_sizes: [AtomicU16; 2],
    /// IPsec: packets whose SA we have asked for.
    pub pre_sa: PreSaQueue,
    /// What the outbound worker is to do with packets that wait for keys.
    pub orders: Orders,
    /// Without locks: a worker never waits for the slow path, which runs at a lower priority.
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
            orders: Orders::default(),
            sessions: Table::default(),
        }
    }

    /// What the inside interface asks for at the moment.
    #[inline]
    pub fn inside(&self) -> Inside {
        Inside {
            mtu: self.mtu.load(Ordering::Relaxed),
            segment_sizes: self.segment_sizes.each_ref().map(|size| size.load(Ordering::Relaxed)),
        }
    }

    /// The session whose packets carry `index`.
    #[inline]
    pub fn session(&self, index: u32) -> Option<Arc<Session>> {
        self.sessions.get(index)
    }

    /// Accepts packets of a session.
    pub fn install(&self, session: Session) {
        drop(self.sessions.insert(Arc::new(session)));
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

/// What is to become of the packets that wait for a peer's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// There is a key: send them.
    Send,
    /// There will be none: drop them.
    Drop,
}

/// What the outbound worker is to do with packets that wait.
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
