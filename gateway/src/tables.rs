//! What the workers look up, and who may change it.
//!
//! The handshake lane is the only writer of [`Tables`]; workers read. The route table is replaced whole, so that a
//! prefix moves from one peer to another in one step. Of a [`Peer`], the workers themselves write what they observe:
//! its endpoint, its counters, its activity.

use arc_swap::{ArcSwap, ArcSwapOption};
use crypto::PublicKey;
use packet::Endpoint;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tunnel::wireguard::limits::STAGED_PACKETS;
use tunnel::wireguard::{Activity, AllowedIps, PeerId};
use tunnel::{InboundSa, OutboundSa, Time};

/// All packets that wait for keys may take this many bytes together.
const STAGED_BYTES: usize = 32 << 20;

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
    /// What was sent to it.
    pub sent: Traffic,
    /// What authentic came from it.
    pub received: Traffic,
    has_staged: AtomicBool,
    staged: Mutex<VecDeque<Vec<u8>>>,
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
    pub fn new(id: PeerId, public: PublicKey, activity: Arc<Activity>) -> Self {
        Self {
            id,
            public,
            sending: ArcSwapOption::empty(),
            endpoint: ArcSwapOption::empty(),
            activity,
            sent: Traffic::default(),
            received: Traffic::default(),
            has_staged: AtomicBool::new(false),
            staged: Mutex::default(),
        }
    }

    /// The key to send with at `now`, if packets need not wait for another, or for packets that came before them.
    #[inline]
    pub fn key(&self, now: Time) -> Option<Arc<OutboundSa>> {
        if self.has_staged.load(Ordering::Acquire) {
            return None;
        }
        self.sending.load_full().filter(|sa| sa.is_usable(now))
    }

    /// The packets that wait, locked: nobody sends to this peer meanwhile.
    pub fn staged(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
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
    sessions: RwLock<HashMap<u32, Arc<Session>>>,
    staged_bytes: AtomicUsize,
}

impl Tables {
    /// Empty tables for an interface with this MTU.
    pub fn new(mtu: usize) -> Self {
        Self {
            routes: ArcSwap::default(),
            mtu: AtomicUsize::new(mtu),
            sessions: RwLock::default(),
            staged_bytes: AtomicUsize::new(0),
        }
    }

    /// The session whose packets carry `index`.
    #[inline]
    pub fn session(&self, index: u32) -> Option<Arc<Session>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(&index).cloned()
    }

    /// Accepts packets of a session.
    pub fn install(&self, session: Session) {
        let index = session.sa.index;
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).insert(index, Arc::new(session));
    }

    /// Accepts them no more.
    pub fn retire(&self, index: u32) {
        self.sessions.write().unwrap_or_else(PoisonError::into_inner).remove(&index);
    }

    /// Sets packets of a peer aside until there is a key; tells whether they are the first, and how many older ones
    /// had to give way.
    pub fn stage<'a>(&self, peer: &Peer, packets: impl Iterator<Item = &'a [u8]>) -> (bool, usize) {
        let mut staged = peer.staged();
        let first = staged.is_empty();
        let mut dropped = 0;
        for packet in packets {
            while staged.len() >= STAGED_PACKETS {
                dropped += usize::from(self.unstage(&mut staged).is_some());
            }
            if self.staged_bytes.load(Ordering::Relaxed) + packet.len() > STAGED_BYTES {
                dropped += 1;
                continue;
            }
            self.staged_bytes.fetch_add(packet.len(), Ordering::Relaxed);
            staged.push_back(packet.to_vec());
        }
        peer.has_staged.store(!staged.is_empty(), Ordering::Release);
        (first && !staged.is_empty(), dropped)
    }

    /// Takes the oldest waiting packet out of a locked queue.
    pub fn unstage(&self, staged: &mut VecDeque<Vec<u8>>) -> Option<Vec<u8>> {
        let packet = staged.pop_front()?;
        self.staged_bytes.fetch_sub(packet.len(), Ordering::Relaxed);
        Some(packet)
    }

    /// No packet waits any more; the queue is still locked.
    pub fn all_unstaged(&self, peer: &Peer, staged: &mut VecDeque<Vec<u8>>) {
        debug_assert!(staged.is_empty(), "the caller has taken all");
        staged.shrink_to_fit();
        peer.has_staged.store(false, Ordering::Release);
    }

    /// Drops all waiting packets of a peer; tells how many.
    pub fn purge(&self, peer: &Peer) -> usize {
        let mut staged = peer.staged();
        let mut dropped = 0;
        while self.unstage(&mut staged).is_some() {
            dropped += 1;
        }
        self.all_unstaged(peer, &mut staged);
        dropped
    }
}
