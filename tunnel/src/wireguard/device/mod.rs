//! All peers of one private key: the entry point of the protocol.
//!
//! The caller passes in datagrams, timeouts and data path events, and carries out the returned [`DeviceAction`]s in order.
//! Nothing here blocks, reads a clock or touches a socket.

mod calls;
mod datagrams;
mod timers;

use super::activity::Activity;
use super::cookie::CookieChecker;
use super::failover::Reason;
use super::limiter::RateLimiter;
use super::peer::{Peer, Session};
use super::report::{Event, Trouble};
use crate::timers::Timers;
use crate::{InboundSa, Now, OutboundSa, PeerId, Time};
use crypto::{Engine, PrivateKey, PublicKey, Random, Secret};
use packet::DropReason;
use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// An action that the caller carries out for the protocol.
pub enum DeviceAction {
    /// Send a handshake message to the peer's endpoint.
    Send {
        /// The receiver.
        peer: PeerId,
        /// The datagram.
        message: Vec<u8>,
    },
    /// Send a handshake message to the source of the datagram being handled.
    Reply {
        /// The peer, if the datagram being handled is authentic.
        peer: Option<PeerId>,
        /// The datagram.
        message: Vec<u8>,
    },
    /// Send a handshake message to an address of the peer that is not its endpoint.
    Probe {
        /// The receiver.
        peer: PeerId,
        /// The address.
        remote: SocketAddr,
        /// The datagram.
        message: Vec<u8>,
    },
    /// The peer is called at another of its addresses from now on.
    Redirect {
        /// The peer.
        peer: PeerId,
        /// Its new endpoint.
        remote: SocketAddr,
    },
    /// The datagram being handled is authentic: its source is the peer's new endpoint.
    Learn {
        /// The peer.
        peer: PeerId,
    },
    /// Accept packets under this SA.
    Install {
        /// The peer of the SA.
        peer: PeerId,
        /// The SA; packets are looked up by its index.
        sa: Arc<InboundSa>,
        /// The SA to send with as soon as a packet has arrived under `sa`, if that must be waited for.
        next: Option<Arc<OutboundSa>>,
    },
    /// Accept no more packets under this index.
    Retire {
        /// The index of an installed SA.
        index: u32,
    },
    /// Send with this SA from now on; with `None`, packets are staged.
    Use {
        /// The peer.
        peer: PeerId,
        /// The SA.
        sa: Option<Arc<OutboundSa>>,
    },
    /// Send the staged packets. With `confirm`, send a keepalive if none is staged: it proves possession of the key.
    Flush {
        /// The peer.
        peer: PeerId,
        /// Whether a packet must be sent in any case.
        confirm: bool,
    },
    /// Send a keepalive.
    Keepalive {
        /// The peer.
        peer: PeerId,
    },
    /// Drop the staged packets: there will be no key.
    Purge {
        /// The peer.
        peer: PeerId,
    },
    /// The peer does not answer: let the kernel select the source address again.
    ForgetSource {
        /// The peer.
        peer: PeerId,
    },
    /// Log this.
    Report(Event),
}

/// Actions, in the order in which they must be carried out.
pub type Outbox = Vec<DeviceAction>;

/// The local private key and values derived from it.
struct Identity {
    key: PrivateKey,
    checker: CookieChecker,
}

/// The protocol without its data messages.
pub struct Device {
    engine: Arc<dyn Engine>,
    random: Box<dyn Random>,
    identity: Option<Identity>,
    /// Whether the interface is up; while it is down, no message is sent or answered.
    running: bool,
    /// Whether handshakes are initiated as soon as the endpoint is known, or only for a packet.
    eager: bool,
    peers: BTreeMap<PeerId, Peer>,
    by_key: HashMap<PublicKey, PeerId>,
    /// The peers by local index, of a session or of a pending handshake.
    indices: HashMap<u32, PeerId>,
    timers: Timers<PeerId>,
    limiter: RateLimiter,
    last_id: u64,
    /// Receiving threads, which local indices lead to.
    receivers: u8,
}

/// The status of a peer, for operators.
pub struct PeerStatus {
    /// Its public key.
    pub public: PublicKey,
    /// The preshared key; zero for none.
    pub preshared: Secret,
    /// The time since 1970 of the last completed handshake.
    pub last_handshake: Option<Duration>,
    /// Completed handshakes.
    pub handshakes: u64,
    /// The interval of the persistent keepalive.
    pub persistent_keepalive: Option<Duration>,
    /// Whether there is a key to send with.
    pub has_key: bool,
    /// Failures since the last completed handshake.
    pub trouble: Trouble,
}

impl Device {
    /// Creates a device without key and peers.
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
            timers: Timers::default(),
            limiter: RateLimiter::default(),
            last_id: 0,
            receivers: 1,
        }
    }

    /// Spreads the peers over so many receiving threads, at least one: [`packet::header::wireguard::STEERING_BYTE`] of a data
    /// message, modulo their number, is the thread of its peer, for all sessions of the peer.
    pub fn set_receivers(&mut self, receivers: u8) {
        self.receivers = receivers.max(1);
    }

    /// The local private key.
    pub fn private_key(&self) -> Option<&PrivateKey> {
        self.identity.as_ref().map(|identity| &identity.key)
    }

    /// Sets whether handshakes are initiated as soon as an endpoint is known. After a restart, peers then learn at
    /// once that the old keys are gone, and not from their timers.
    pub fn set_eager(&mut self, now: Time, eager: bool) {
        if !std::mem::replace(&mut self.eager, eager) && eager {
            self.call_all(now);
        }
    }

    /// Sets the local private key. All sessions end; a peer with the same key is removed and returned. Peers with a
    /// persistent keepalive get a handshake.
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

    /// The peer with this public key.
    pub fn peer(&self, public: &PublicKey) -> Option<PeerId> {
        self.by_key.get(public).copied()
    }

    /// All peers, in the order in which they were added.
    pub fn peers(&self) -> Vec<PeerId> {
        self.peers.keys().copied().collect()
    }

    /// Adds the peer with this public key, which must not exist, and returns the activity notes for the data path.
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
            self.timers.set(id, None);
        }
    }

    /// Notes that the peer has an endpoint; without one no handshake can be sent.
    pub fn set_reachable(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !std::mem::replace(&mut peer.reachable, true)
            && (self.eager || peer.persistent_keepalive.is_some())
        {
            self.call_soon(now, id);
        }
    }

    /// Sets the addresses at which the peer may be called, the preferred one first.
    pub fn set_addresses(&mut self, now: Time, id: PeerId, addresses: Vec<SocketAddr>, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(remote) = peer.failover.set(now, addresses) {
            out.push(DeviceAction::Redirect { peer: id, remote });
        }
        self.reschedule(now, id);
    }

    /// Whether a peer is not where it is called: it has not answered, and not only because its key is being renewed.
    pub fn is_lost(&self, now: Time, id: PeerId) -> bool {
        self.peers.get(&id).is_some_and(|peer| {
            let unanswered = peer.trouble.unanswered;
            !peer.reachable || unanswered > 1 || (unanswered == 1 && !peer.has_key(now))
        })
    }

    /// Takes the addresses that the name of a peer has now, and its others. A peer that is called elsewhere from now on is called at once,
    /// unless only traffic begins handshakes.
    pub fn set_found(
        &mut self,
        now: Time,
        id: PeerId,
        endpoint: Option<SocketAddr>,
        (found, others): (&[SocketAddr], &[SocketAddr]),
        out: &mut Outbox,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(remote) = peer.failover.found(now, endpoint, found, others) {
            out.push(DeviceAction::Redirect { peer: id, remote });
            peer.reachable = true;
            if !peer.has_key(now) && (self.eager || peer.persistent_keepalive.is_some()) {
                self.call_soon(now, id);
            }
        }
        self.reschedule(now, id);
    }

    /// The addresses of a peer, and why `endpoint` is in use.
    pub fn addresses(&self, id: PeerId, endpoint: Option<SocketAddr>) -> (Vec<SocketAddr>, Option<Reason>) {
        let Some(failover) = self.peers.get(&id).map(|peer| &peer.failover) else {
            return (Vec::new(), None);
        };
        (failover.addresses().to_vec(), endpoint.map(|endpoint| failover.reason(endpoint)))
    }

    /// Sets the preshared key; zero for none. It is used from the next handshake on.
    pub fn set_preshared_key(&mut self, id: PeerId, preshared: Secret) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.preshared = preshared;
        }
    }

    /// Sets the interval of the persistent keepalive. When it is switched on, the first one is sent at once.
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
            out.push(DeviceAction::Keepalive { peer: id });
            self.reschedule(now, id);
        } else {
            self.call_soon(now, id);
        }
    }

    /// Notes that the interface is up: handshakes with peers that have a persistent keepalive are initiated.
    pub fn start(&mut self, now: Time) {
        self.running = true;
        self.call_all(now);
    }

    /// Notes that the interface is down: all sessions and handshakes end.
    pub fn stop(&mut self, out: &mut Outbox) {
        self.running = false;
        self.end_all_sessions(out);
        self.timers.clear();
    }

    /// The status of a peer.
    pub fn status(&self, now: Time, id: PeerId) -> Option<PeerStatus> {
        self.peers.get(&id).map(|peer| PeerStatus {
            public: peer.public,
            preshared: peer.preshared.clone(),
            last_handshake: peer.last_handshake,
            handshakes: peer.handshakes,
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
        peer.failover.stop_probing();
        peer.activity.reset();
        retire(&mut self.indices, peer.sessions.clear(), out);
        out.push(DeviceAction::Use { peer: id, sa: None });
        out.push(DeviceAction::Purge { peer: id });
    }

    /// Completes a handshake with a peer.
    fn finished(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.handshake_finished(now.monotonic, now.wall);
        if !std::mem::replace(&mut peer.is_up, true) {
            out.push(DeviceAction::Report(Event::Up(id)));
        }
    }

    fn end_all_sessions(&mut self, out: &mut Outbox) {
        for id in self.peers() {
            self.end_sessions(id, out);
        }
    }
}

/// The shared secret of both static keys.
fn static_static<'a>(peer: &'a mut Peer, key: &PrivateKey) -> Result<&'a Secret, DropReason> {
    if peer.static_static.is_none() {
        peer.static_static = Some(key.agree(&peer.public).map_err(|_| DropReason::BadHandshake)?);
    }
    Ok(peer.static_static.as_ref().expect("just made"))
}

/// Allocates a local index for `id`: random, but for what leads to one of the receiving threads.
fn new_index(indices: &mut HashMap<u32, PeerId>, random: &mut dyn Random, id: PeerId, receivers: u8) -> u32 {
    loop {
        let mut bytes = [0; 4];
        random.fill(&mut bytes);
        // The most significant byte: tables hash by the least significant ones.
        let thread = (id.number() % u64::from(receivers)) as u8;
        let Some(steering) = (bytes[3] - bytes[3] % receivers).checked_add(thread) else { continue };
        bytes[3] = steering;
        let index = u32::from_le_bytes(bytes);
        if let Entry::Vacant(entry) = indices.entry(index) {
            entry.insert(id);
            return index;
        }
    }
}

/// Removes ended sessions from the data path.
fn retire(indices: &mut HashMap<u32, PeerId>, ended: Vec<Session>, out: &mut Outbox) {
    for session in ended {
        let index = session.inbound.index;
        indices.remove(&index);
        out.push(DeviceAction::Retire { index });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::random::System;
    use packet::header::wireguard::{DATA, DataHeader, STEERING_BYTE};
    use std::collections::HashSet;
    use zerocopy::IntoBytes;

    #[test]
    fn all_indices_of_a_peer_lead_to_its_receiving_thread_and_differ_otherwise() {
        let (mut indices, mut random) = (HashMap::new(), System::default());
        for receivers in 1..=16u8 {
            for number in 1..=32 {
                let id = PeerId::new(number);
                let mut first_bytes = HashSet::new();
                for _ in 0..64 {
                    let index = new_index(&mut indices, &mut random, id, receivers);
                    let header = DataHeader { kind: DATA.into(), receiver: index.into(), counter: 0.into() };
                    let steering = header.as_bytes()[STEERING_BYTE];
                    assert_eq!(u64::from(steering % receivers), number % u64::from(receivers));
                    first_bytes.insert(header.as_bytes()[4]);
                }
                assert!(first_bytes.len() > 16, "tables hash by the least significant bits");
            }
        }
    }
}
