//! All peers of one private key: the protocol's door to the outside.
//!
//! The caller hands in datagrams, moments and what the data path noticed, and carries out the [`Action`]s that come
//! back, in their order. Nothing here blocks, reads a clock or touches a socket.

use super::activity::Activity;
use super::cookie::{Authenticated, CookieChecker, Proof};
use super::limiter::RateLimiter;
use super::limits::{ERASE_AFTER_TIME, HANDSHAKE_ATTEMPTS, INITIATION_INTERVAL, KEEPALIVE_TIMEOUT};
use super::noise::{self, SessionKeys};
use super::peer::{Due, Peer, Role, Session};
use super::tai64n::Tai64n;
use crate::{InboundSa, Now, OutboundSa, Time};
use crypto::{Engine, PrivateKey, PublicKey, Random, Secret};
use packet::DropReason;
use packet::header::wireguard::{CookieReply, Initiation, Message, Response};
use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Names a peer for the lifetime of its [`Device`]; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u64);

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
    peers: BTreeMap<PeerId, Peer>,
    by_key: HashMap<PublicKey, PeerId>,
    /// Who owns an index of ours, be it of a session or of a handshake under way.
    indices: HashMap<u32, PeerId>,
    timers: BTreeSet<(Time, PeerId)>,
    limiter: RateLimiter,
    newest: Option<Tai64n>,
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
}

impl Device {
    /// A device without a key and without peers.
    pub fn new(engine: Arc<dyn Engine>, random: Box<dyn Random>) -> Self {
        Self {
            engine,
            random,
            identity: None,
            running: false,
            peers: BTreeMap::new(),
            by_key: HashMap::new(),
            indices: HashMap::new(),
            timers: BTreeSet::new(),
            limiter: RateLimiter::default(),
            newest: None,
            last_id: 0,
        }
    }

    /// Our private key.
    pub fn private_key(&self) -> Option<&PrivateKey> {
        self.identity.as_ref().map(|identity| &identity.key)
    }

    /// Sets our private key; all sessions end, and a peer with the same key is removed and returned.
    pub fn set_private_key(&mut self, key: Option<Secret>, out: &mut Outbox) -> Option<PeerId> {
        let key = key.map(PrivateKey::new);
        if self.private_key().map(PrivateKey::public) == key.as_ref().map(PrivateKey::public) {
            return None;
        }
        self.end_all_sessions(out);
        for peer in self.peers.values_mut() {
            peer.static_static = None;
        }
        self.identity = key.map(|key| Identity { checker: CookieChecker::new(&key.public()), key });
        let ourselves = self.private_key().and_then(|key| self.peer(&key.public()))?;
        self.remove_peer(ourselves, out);
        Some(ourselves)
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
        let id = PeerId(self.last_id);
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
    pub fn set_reachable(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.reachable = true;
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
        now: Now,
        id: PeerId,
        every: Option<Duration>,
        out: &mut Outbox,
    ) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let switched_on = peer.persistent_keepalive.is_none() && every.is_some();
        peer.persistent_keepalive = every;
        if switched_on {
            self.send_keepalive(now, id, out);
        }
        self.reschedule(now.monotonic, id);
    }

    /// The interface came up: whoever is to be kept alive is called.
    pub fn start(&mut self, now: Now, out: &mut Outbox) {
        self.running = true;
        for id in self.peers() {
            if self.peers[&id].persistent_keepalive.is_some() {
                self.send_keepalive(now, id, out);
            }
            self.reschedule(now.monotonic, id);
        }
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
    pub fn status(&self, id: PeerId) -> Option<PeerStatus> {
        self.peers.get(&id).map(|peer| PeerStatus {
            public: peer.public,
            preshared: peer.preshared.clone(),
            last_handshake: peer.last_handshake,
            persistent_keepalive: peer.persistent_keepalive,
        })
    }
}

/// Datagrams.
impl Device {
    /// Handles a handshake message or cookie reply that came from `source`; tells whose it was.
    ///
    /// `under_load`: more messages wait than we care to answer, so senders must first prove their addresses.
    pub fn handle_datagram(
        &mut self,
        now: Now,
        source: SocketAddr,
        bytes: &[u8],
        under_load: bool,
        out: &mut Outbox,
    ) -> Result<PeerId, DropReason> {
        let message = Message::parse(bytes).filter(|_| self.running).ok_or(DropReason::NotOurs)?;
        let peer = match message {
            Message::Initiation(message) => {
                self.admit(now, source, message, under_load, out)?;
                self.handle_initiation(now, message, out)
            }
            Message::Response(message) => {
                self.admit(now, source, message, under_load, out)?;
                self.handle_response(now, message, out)
            }
            Message::CookieReply(message) => self.handle_cookie_reply(now, message),
            Message::Data(..) => Err(DropReason::NotOurs),
        }?;
        self.reschedule(now.monotonic, peer);
        Ok(peer)
    }

    /// Lets in what is cheap to check: the MACs, and under load the proof of address and the source's allowance.
    fn admit(
        &mut self,
        now: Now,
        source: SocketAddr,
        message: &impl Authenticated,
        under_load: bool,
        out: &mut Outbox,
    ) -> Result<(), DropReason> {
        let identity = self.identity.as_mut().ok_or(DropReason::BadMac)?;
        match identity.checker.check(message, source, now.monotonic) {
            Proof::Nothing => Err(DropReason::BadMac),
            _ if !under_load => Ok(()),
            Proof::OwnsAddress if self.limiter.allow(source.ip(), now.monotonic) => Ok(()),
            Proof::OwnsAddress => Err(DropReason::RateLimited),
            Proof::KnowsKey => {
                let reply = identity.checker.create_reply(message, source, now.monotonic, &mut *self.random);
                out.push(Action::Reply { message: reply.as_bytes().to_vec() });
                Err(DropReason::CookieRequired)
            }
        }
    }

    fn handle_initiation(
        &mut self,
        now: Now,
        message: &Initiation,
        out: &mut Outbox,
    ) -> Result<PeerId, DropReason> {
        let identity = self.identity.as_ref().ok_or(DropReason::BadMac)?;
        let received =
            noise::consume_initiation(&identity.key, message).map_err(|_| DropReason::BadHandshake)?;
        let id = *self.by_key.get(&received.claimed).ok_or(DropReason::BadHandshake)?;
        let peer = self.peers.get_mut(&id).expect("every key in by_key has its peer");
        let static_static = static_static(peer, &identity.key)?;
        let initiation = received.authenticate(static_static).map_err(|_| DropReason::BadHandshake)?;
        if peer.newest.is_some_and(|newest| initiation.timestamp <= newest) {
            return Err(DropReason::ReplayedHandshake);
        }
        if peer.consumed.is_some_and(|last| now.monotonic - last < INITIATION_INTERVAL) {
            return Err(DropReason::RateLimited);
        }
        peer.newest = Some(initiation.timestamp);
        peer.consumed = Some(now.monotonic);
        peer.learned(now.monotonic);
        out.push(Action::Learn { peer: id });

        let index = new_index(&mut self.indices, &mut *self.random, id);
        let (mut response, keys) = initiation
            .create_response(&peer.preshared, index, &mut *self.random)
            .map_err(|_| DropReason::BadHandshake)
            .inspect_err(|_| _ = self.indices.remove(&index))?;
        peer.cookies.stamp(&mut response, now.monotonic);
        peer.activity.sent(now.monotonic);
        self.install(now, id, &keys, Role::Responder, out);
        out.push(Action::Reply { message: response.as_bytes().to_vec() });
        Ok(id)
    }

    fn handle_response(
        &mut self,
        now: Now,
        message: &Response,
        out: &mut Outbox,
    ) -> Result<PeerId, DropReason> {
        let identity = self.identity.as_ref().ok_or(DropReason::BadMac)?;
        let index = message.receiver.get();
        let id = *self.indices.get(&index).ok_or(DropReason::UnknownSa)?;
        let peer = self.peers.get_mut(&id).expect("every index has its peer");
        let awaiting = peer.awaiting.as_ref().filter(|awaiting| awaiting.local_index() == index);
        let awaiting = awaiting.ok_or(DropReason::BadHandshake)?;
        let keys = awaiting
            .consume_response(&identity.key, &peer.preshared, message)
            .map_err(|_| DropReason::BadHandshake)?;
        // The index lives on as that of the session.
        peer.awaiting = None;
        peer.handshake_finished(now.monotonic, now.wall);
        peer.learned(now.monotonic);
        out.push(Action::Learn { peer: id });
        self.install(now, id, &keys, Role::Initiator, out);
        out.push(Action::Flush { peer: id, confirm: true });
        Ok(id)
    }

    fn handle_cookie_reply(&mut self, now: Now, message: &CookieReply) -> Result<PeerId, DropReason> {
        let id = *self.indices.get(&message.receiver.get()).ok_or(DropReason::UnknownSa)?;
        let peer = self.peers.get_mut(&id).expect("every index has its peer");
        // The handshake is begun again when its time comes, then with the cookie.
        if peer.cookies.consume_reply(message, now.monotonic) {
            Ok(id)
        } else {
            Err(DropReason::BadHandshake)
        }
    }

    /// Makes a session of the keys and hands it to the data path.
    fn install(&mut self, now: Now, id: PeerId, keys: &SessionKeys, role: Role, out: &mut Outbox) {
        let session = Session::new(keys, role, now.monotonic, &*self.engine);
        let (inbound, outbound) = (Arc::clone(&session.inbound), Arc::clone(&session.outbound));
        let peer = self.peers.get_mut(&id).expect("the caller holds its id");
        peer.erase = Some(now.monotonic + ERASE_AFTER_TIME);
        out.push(Action::Install { peer: id, sa: inbound });
        let ended = match role {
            Role::Initiator => {
                out.push(Action::Use { peer: id, sa: Some(outbound) });
                peer.sessions.initiated(session)
            }
            Role::Responder => peer.sessions.responded(session),
        };
        retire(&mut self.indices, ended, out);
    }
}

/// What the data path noticed.
impl Device {
    /// Packets wait, and there is no key for them.
    pub fn handle_no_key(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        if self.peers.get(&id).is_some_and(|peer| !peer.has_key(now.monotonic)) {
            self.begin_handshake(now, id, out);
        } else {
            // The key came while the packets were put aside.
            out.push(Action::Flush { peer: id, confirm: false });
        }
        self.reschedule(now.monotonic, id);
    }

    /// The first timer of a peer was armed.
    pub fn handle_activity(&mut self, now: Now, id: PeerId) {
        self.reschedule(now.monotonic, id);
    }

    /// The first packet came under the SA with our `index`: the peer has the keys, so we may use them too.
    pub fn handle_confirmed(&mut self, now: Now, index: u32, out: &mut Outbox) {
        let Some(&id) = self.indices.get(&index) else { return };
        let peer = self.peers.get_mut(&id).expect("every index has its peer");
        let Some(ended) = peer.sessions.confirmed(index) else { return };
        peer.handshake_finished(now.monotonic, now.wall);
        let outbound = peer.sessions.current().map(|session| Arc::clone(&session.outbound));
        if let Some(awaiting) = peer.awaiting.take() {
            self.indices.remove(&awaiting.local_index());
        }
        retire(&mut self.indices, ended, out);
        out.push(Action::Use { peer: id, sa: outbound });
        out.push(Action::Flush { peer: id, confirm: false });
        self.reschedule(now.monotonic, id);
    }

    /// The key in use is old.
    pub fn handle_renewal(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        self.begin_handshake(now, id, out);
        self.reschedule(now.monotonic, id);
    }
}

/// Timers.
impl Device {
    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Serves all timers that have run out at `now`.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        while let Some((at, id)) = self.timers.pop_first() {
            if at > now.monotonic {
                self.timers.insert((at, id));
                return;
            }
            let peer = self.peers.get_mut(&id).expect("a removed peer leaves no timer");
            peer.scheduled = None;
            if let Some(due) = peer.due(now.monotonic) {
                self.serve(now, id, due, out);
            }
            self.reschedule(now.monotonic, id);
        }
    }

    /// Serves one timer, and puts it off or stops it: none may be due again at once.
    fn serve(&mut self, now: Now, id: PeerId, due: Due, out: &mut Outbox) {
        let peer = self.peers.get_mut(&id).expect("the caller has looked");
        match due {
            Due::Retransmit if peer.attempts >= HANDSHAKE_ATTEMPTS => {
                peer.retransmit = None;
                peer.activity.reset();
                peer.erase.get_or_insert(now.monotonic + ERASE_AFTER_TIME);
                self.drop_handshake(id);
                out.push(Action::Purge { peer: id });
            }
            Due::Retransmit => {
                peer.retransmit = None;
                out.push(Action::ForgetSource { peer: id });
                self.send_initiation(now, id, out);
            }
            Due::Silence => {
                peer.activity.stop_waiting();
                out.push(Action::ForgetSource { peer: id });
                self.begin_handshake(now, id, out);
            }
            Due::Keepalive | Due::PersistentKeepalive => {
                peer.activity.sent(now.monotonic);
                self.send_keepalive(now, id, out);
            }
            Due::Erase => self.end_sessions(id, out),
        }
    }

    /// Puts the peer where its next timer is. If no timer of the data path's runs, the data path is to tell of one.
    fn reschedule(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.activity.watch(false);
        let mut next = peer.next_timeout();
        if peer.activity.is_armed() {
            peer.activity.watch(true);
            // A timer that is armed while we do not look cannot run out before this.
            next = next.map(|next| next.min(now + KEEPALIVE_TIMEOUT));
        }
        let Some(next) = next else { return };
        // A timer that was put off is looked at when it would have run out, and then put where it belongs.
        if peer.scheduled.is_none_or(|scheduled| next < scheduled) {
            peer.scheduled.replace(next).map(|before| self.timers.remove(&(before, id)));
            self.timers.insert((next, id));
        }
    }
}

/// Handshakes of our own.
impl Device {
    /// Sends a keepalive, for which a key may first have to be made.
    fn send_keepalive(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        if self.peers.get(&id).is_some_and(|peer| peer.has_key(now.monotonic)) {
            out.push(Action::Keepalive { peer: id });
        } else {
            self.begin_handshake(now, id, out);
        }
    }

    /// Begins a handshake, unless one has just been begun.
    fn begin_handshake(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !self.running || peer.initiated_recently(now.monotonic) {
            return;
        }
        peer.attempts = 0;
        self.send_initiation(now, id, out);
    }

    fn send_initiation(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        self.drop_handshake(id);
        let timestamp = self.new_timestamp(now);
        let (Some(identity), Some(peer)) = (&self.identity, self.peers.get_mut(&id)) else { return };
        if !peer.reachable {
            return;
        }
        peer.attempts += 1;
        peer.initiated = Some(now.monotonic);
        peer.arm_retransmit(now.monotonic, &mut *self.random);
        // A peer whose key is of low order cannot be called; it is there because a person typed it.
        let Ok(static_static) = static_static(peer, &identity.key).cloned() else { return };
        let index = new_index(&mut self.indices, &mut *self.random, id);
        let (key, random) = (&identity.key, &mut *self.random);
        match noise::create_initiation(key, &peer.public, &static_static, index, timestamp, random) {
            Ok((mut message, awaiting)) => {
                peer.cookies.stamp(&mut message, now.monotonic);
                peer.awaiting = Some(awaiting);
                peer.activity.sent(now.monotonic);
                out.push(Action::Send { peer: id, message: message.as_bytes().to_vec() });
            }
            Err(_) => _ = self.indices.remove(&index),
        }
    }

    /// A timestamp later than all before, even if the clock on the wall went back.
    fn new_timestamp(&mut self, now: Now) -> Tai64n {
        let timestamp = Tai64n::new(now.wall);
        let timestamp = self.newest.map_or(timestamp, |newest| timestamp.max(newest.successor()));
        self.newest = Some(timestamp);
        timestamp
    }

    fn drop_handshake(&mut self, id: PeerId) {
        if let Some(awaiting) = self.peers.get_mut(&id).and_then(|peer| peer.awaiting.take()) {
            self.indices.remove(&awaiting.local_index());
        }
    }

    fn end_sessions(&mut self, id: PeerId, out: &mut Outbox) {
        self.drop_handshake(id);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.retransmit = None;
        peer.erase = None;
        peer.initiated = None;
        peer.activity.reset();
        retire(&mut self.indices, peer.sessions.clear(), out);
        out.push(Action::Use { peer: id, sa: None });
        out.push(Action::Purge { peer: id });
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
