//! All peers of one private key: the entry point of the protocol.
//!
//! The caller hands in datagrams, moments and what the data path noticed, and carries out the [`Action`]s that come
//! back, in their order. Nothing here blocks, reads a clock or touches a socket.

mod calls;
mod datagrams;
mod timers;

use super::activity::Activity;
use super::cookie::CookieChecker;
use super::limiter::RateLimiter;
use super::peer::{Peer, Session};
use super::report::{Event, Trouble};
use crate::{InboundSa, Now, OutboundSa, PeerId, Time};
use crypto::{Engine, PrivateKey, PublicKey, Random, Secret};
use packet::DropReason;
use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// What the protocol wants done.
pub enum Action {
    /// Send a handshake message to the peer's endpoint.
    Send {
        /// To whom.
        peer: PeerId,
        /// The datagram.
        message: Vec<u8>,
    },
    /// Send a handshake message back to where the datagram being handled came from.
    Reply {
        /// To whom, if the datagram being handled is authentic.
        peer: Option<PeerId>,
        /// The datagram.
        message: Vec<u8>,
    },
    /// The datagram being handled is authentic: its source is where the peer is now.
    Learn {
        /// Who has moved.
        peer: PeerId,
    },
    /// Accept packets under this SA.
    Install {
        /// Whose packets they are.
        peer: PeerId,
        /// The key, and the index by which it is found.
        sa: Arc<InboundSa>,
        /// The key to send with as soon as a packet has come under this SA, if that is what must be waited for.
        next: Option<Arc<OutboundSa>>,
    },
    /// Accept no more packets under this index.
    Retire {
        /// The index of an SA installed before.
        index: u32,
    },
    /// Send with this SA from now on; with none, packets wait.
    Use {
        /// To whom.
        peer: PeerId,
        /// The key.
        sa: Option<Arc<OutboundSa>>,
    },
    /// Send the packets that wait for a key; if none waits and we must show that we have the key, send a keepalive.
    Flush {
        /// To whom.
        peer: PeerId,
        /// Whether something must be sent.
        confirm: bool,
    },
    /// Send a keepalive.
    Keepalive {
        /// To whom.
        peer: PeerId,
    },
    /// Drop the packets that wait for a key: there will be none.
    Purge {
        /// Whose.
        peer: PeerId,
    },
    /// The peer does not answer: let the kernel choose our address anew.
    ForgetSource {
        /// Whose path.
        peer: PeerId,
    },
    /// Log this.
    Report(Event),
}

/// Actions, in the order in which they are to be carried out.
pub type Outbox = Vec<Action>;

/// Our private key, and what belongs to it.
struct Identity {
    key: PrivateKey,
    checker: CookieChecker,
}

/// The protocol, but for data messages.
pub struct Device {
    engine: Arc<dyn Engine>,
    random: Box<dyn Random>,
    identity: Option<Identity>,
    /// Whether the interface is up; while it is down nothing is sent and nothing is answered.
    running: bool,
    /// Whether peers are called as soon as it is known where they are, or only when there is something to send.
    eager: bool,
    peers: BTreeMap<PeerId, Peer>,
    by_key: HashMap<PublicKey, PeerId>,
    /// Who owns an index of ours, be it of a session or of a handshake under way.
    indices: HashMap<u32, PeerId>,
    timers: BTreeSet<(Time, PeerId)>,
    limiter: RateLimiter,
    last_id: u64,
}

/// What a person may know about a peer.
pub struct PeerStatus {
    /// Its public key.
    pub public: PublicKey,
    /// The key both sides share beforehand; zero for none.
    pub preshared: Secret,
    /// Time since 1970 of the last finished handshake.
    pub last_handshake: Option<Duration>,
    /// The interval of the persistent keepalive.
    pub persistent_keepalive: Option<Duration>,
    /// Whether there is a key to send with.
    pub has_key: bool,
    /// What went wrong since the last finished handshake.
    pub trouble: Trouble,
}

impl Device {
    /// A device without a key and without peers.
    pub fn new(engine: Arc<dyn Engine>, random: Box<dyn Random>) -> Self {
        Self {
            engine,
            random,
            identity: None,
            running: false,
            eager: false,
            peers: BTreeMap::new(),
            by_key: HashMap::new(),
            indices: HashMap::new(),
            timers: BTreeSet::new(),
            limiter: RateLimiter::default(),
            last_id: 0,
        }
    }

    /// Our private key.
    pub fn private_key(&self) -> Option<&PrivateKey> {
        self.identity.as_ref().map(|identity| &identity.key)
    }

    /// Calls peers as soon as it is known where they are, so that they need not find out by their timers that we have been
    /// restarted and have no keys.
    pub fn set_eager(&mut self, now: Time, eager: bool) {
        if !std::mem::replace(&mut self.eager, eager) && eager {
            self.call_all(now);
        }
    }

    /// Sets our private key; all sessions end, and a peer with the same key is removed and returned. Peers that are to be kept
    /// alive are called.
    pub fn set_private_key(&mut self, now: Time, key: Option<Secret>, out: &mut Outbox) -> Option<PeerId> {
        let key = key.map(PrivateKey::new);
        if self.private_key().map(PrivateKey::public) == key.as_ref().map(PrivateKey::public) {
            return None;
        }
        self.end_all_sessions(out);
        for peer in self.peers.values_mut() {
            peer.static_static = None;
        }
        self.identity = key.map(|key| Identity { checker: CookieChecker::new(&key.public()), key });
        let ourselves = self.private_key().and_then(|key| self.peer(&key.public()));
        if let Some(ourselves) = ourselves {
            self.remove_peer(ourselves, out);
        }
        self.call_all(now);
        ourselves
    }

    /// The peer that owns `public`.
    pub fn peer(&self, public: &PublicKey) -> Option<PeerId> {
        self.by_key.get(public).copied()
    }

    /// All peers, the first added first.
    pub fn peers(&self) -> Vec<PeerId> {
        self.peers.keys().copied().collect()
    }

    /// Adds the owner of `public`, who must not be there yet, and returns the notes to be kept by the data path.
    pub fn add_peer(&mut self, public: PublicKey) -> (PeerId, Arc<Activity>) {
        self.last_id += 1;
        let id = PeerId::new(self.last_id);
        let peer = Peer::new(public, &mut *self.random);
        let activity = Arc::clone(&peer.activity);
        let replaced = self.by_key.insert(public, id);
        debug_assert!(replaced.is_none(), "the caller looks before it adds");
        self.peers.insert(id, peer);
        (id, activity)
    }

    /// Removes a peer and ends its sessions.
    pub fn remove_peer(&mut self, id: PeerId, out: &mut Outbox) {
        self.end_sessions(id, out);
        if let Some(peer) = self.peers.remove(&id) {
            self.by_key.remove(&peer.public);
            peer.scheduled.map(|at| self.timers.remove(&(at, id)));
        }
    }

    /// The peer has an endpoint now: before that there is nowhere to send a handshake to.
    pub fn set_reachable(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !std::mem::replace(&mut peer.reachable, true)
            && (self.eager || peer.persistent_keepalive.is_some())
        {
            self.call_soon(now, id);
        }
    }

    /// Sets the key shared beforehand; zero for none. It is used from the next handshake on.
    pub fn set_preshared_key(&mut self, id: PeerId, preshared: Secret) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.preshared = preshared;
        }
    }

    /// Sets the interval at which something is sent to keep the path open. When it is switched on, at once.
    pub fn set_persistent_keepalive(
        &mut self,
        now: Time,
        id: PeerId,
        every: Option<Duration>,
        out: &mut Outbox,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let switched_on = peer.persistent_keepalive.is_none() && every.is_some();
        peer.persistent_keepalive = every;
        if !switched_on {
            self.reschedule(now, id);
        } else if peer.has_key(now) {
            out.push(Action::Keepalive { peer: id });
            self.reschedule(now, id);
        } else {
            self.call_soon(now, id);
        }
    }

    /// The interface came up: whoever is to be kept alive is called.
    pub fn start(&mut self, now: Time) {
        self.running = true;
        self.call_all(now);
    }

    /// The interface went down: all sessions and handshakes end.
    pub fn stop(&mut self, out: &mut Outbox) {
        self.running = false;
        self.end_all_sessions(out);
        self.timers.clear();
        for peer in self.peers.values_mut() {
            peer.scheduled = None;
        }
    }

    /// What can be told about a peer.
    pub fn status(&self, now: Time, id: PeerId) -> Option<PeerStatus> {
        self.peers.get(&id).map(|peer| PeerStatus {
            public: peer.public,
            preshared: peer.preshared.clone(),
            last_handshake: peer.last_handshake,
            persistent_keepalive: peer.persistent_keepalive,
            has_key: peer.has_key(now),
            trouble: peer.trouble,
        })
    }

    fn end_sessions(&mut self, id: PeerId, out: &mut Outbox) {
        self.drop_handshake(id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.retransmit = None;
        peer.erase = None;
        peer.initiated = None;
        peer.is_up = false;
        peer.activity.reset();
        retire(&mut self.indices, peer.sessions.clear(), out);
        out.push(Action::Use { peer: id, sa: None });
        out.push(Action::Purge { peer: id });
    }

    /// A handshake with a peer is finished.
    fn finished(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.handshake_finished(now.monotonic, now.wall);
        if !std::mem::replace(&mut peer.is_up, true) {
            out.push(Action::Report(Event::Up(id)));
        }
    }

    fn end_all_sessions(&mut self, out: &mut Outbox) {
        for id in self.peers() {
            self.end_sessions(id, out);
        }
    }
}

/// What our static key and the peer's agree on.
fn static_static<'a>(peer: &'a mut Peer, key: &PrivateKey) -> Result<&'a Secret, DropReason> {
    if peer.static_static.is_none() {
        peer.static_static = Some(key.agree(&peer.public).map_err(|_| DropReason::BadHandshake)?);
    }
    Ok(peer.static_static.as_ref().expect("just made"))
}

/// A random index that nobody has, now owned by `id`.
fn new_index(indices: &mut HashMap<u32, PeerId>, random: &mut dyn Random, id: PeerId) -> u32 {
    loop {
        let mut bytes = [0; 4];
        random.fill(&mut bytes);
        let index = u32::from_le_bytes(bytes);
        if let Entry::Vacant(entry) = indices.entry(index) {
            entry.insert(id);
            return index;
        }
    }
}

/// Takes ended sessions away from the data path.
fn retire(indices: &mut HashMap<u32, PeerId>, ended: Vec<Session>, out: &mut Outbox) {
    for session in ended {
        let index = session.inbound.index;
        indices.remove(&index);
        out.push(Action::Retire { index });
    }
}
