//! What the workers look up, and who may change it.
//!
//! The handshake lane is the only writer of [`Tables`]; workers read. The route table is replaced whole, so that a
//! prefix moves from one peer to another in one step. Of a [`Peer`], the workers themselves write what they observe:
//! its endpoint, its counters, its activity.

use crate::staging::{Budget, Staging};
use arc_swap::{ArcSwap, ArcSwapOption};
use crossbeam_utils::CachePadded;
use crypto::PublicKey;
use packet::Endpoint;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tunnel::wireguard::{Activity, AllowedIps, PeerId};
use tunnel::{InboundSa, OutboundSa, Time};

/// A peer, as the data path sees it.
pub struct Peer {
    /// Its name in the protocol.
    pub id: PeerId,
    /// Its name for people.
    pub public: PublicKey,
    /// The key to send with.
    pub sending: ArcSwapOption<OutboundSa>,
    /// Where it is.
    pub endpoint: ArcSwapOption<Endpoint>,
    /// What the protocol must know about its traffic.
    pub activity: Arc<Activity>,
    /// Packets that wait for a key.
    pub staging: Staging,
    /// What was sent to it.
    pub sent: CachePadded<Traffic>,
    /// What authentic came from it.
    pub received: CachePadded<Traffic>,
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
    pub fn new(id: PeerId, public: PublicKey, activity: Arc<Activity>, budget: Budget) -> Self {
        Self {
            id,
            public,
            sending: ArcSwapOption::empty(),
            endpoint: ArcSwapOption::empty(),
            activity,
            staging: Staging::new(budget),
            sent: CachePadded::default(),
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

    /// Lets the kernel choose our address anew; if the peer has moved meanwhile, that stands.
    pub fn forget_source(&self) {
        let before = self.endpoint.load();
        if let Some(endpoint) = before.as_deref().filter(|endpoint| endpoint.local.is_some()) {
            self.endpoint.compare_and_swap(&before, Some(Arc::new(Endpoint::new(endpoint.remote))));
        }
    }
}

/// The security association of a received packet, and whose it is.
pub struct Session {
    /// The key.
    pub sa: Arc<InboundSa>,
    /// The peer that sends with it.
    pub peer: Arc<Peer>,
}

/// What the workers look up.
pub struct Tables {
    /// From inner addresses to peers.
    pub routes: ArcSwap<AllowedIps<Arc<Peer>>>,
    /// The MTU of the inside interface.
    pub mtu: AtomicUsize,
    /// Without locks: a worker never waits for the lane, which runs at a lower priority.
    sessions: papaya::HashMap<u32, Arc<Session>>,
}

impl Tables {
    /// Empty tables for an interface with this MTU.
    pub fn new(mtu: usize) -> Self {
        Self { routes: ArcSwap::default(), mtu: AtomicUsize::new(mtu), sessions: papaya::HashMap::new() }
    }

    /// The session whose packets carry `index`.
    #[inline]
    pub fn session(&self, index: u32) -> Option<Arc<Session>> {
        self.sessions.pin().get(&index).cloned()
    }

    /// Accepts packets of a session.
    pub fn install(&self, session: Session) {
        let index = session.sa.index;
        self.sessions.pin().insert(index, Arc::new(session));
    }

    /// Accepts them no more.
    pub fn retire(&self, index: u32) {
        self.sessions.pin().remove(&index);
    }
}
