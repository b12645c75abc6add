//! The server: many clients on one socket.
//!
//! ```text
//! first packet → answer with a cookie, no state → third packet → Session → TLS, key exchange → Authenticate
//!   → admit → PUSH_REPLY → Install, Use, Connected
//! ```
//! A session is found by the client's address and session ID. What clients that have not authenticated occupy is bounded, for
//! each source and in total.

mod admission;
mod begins;
mod first;
mod frequency;
mod session;

pub use frequency::Rate;
pub use session::Verdict;

use super::action::{Action, Cause, Outbox, SessionNumber};
use super::channel::PacketError;
use super::cookie::CookieKey;
use super::keepalive::Keepalive;
use super::limits::{AUTHENTIC_RESET_ANSWERS, LAST_PEER_ID, LONGEST_PACKET, RESET_ANSWERS};
use super::negotiate::DataCipher;
use super::packet::{Lead, Malformed, Opcode, SessionId};
use super::peer::Timing;
use super::peer_address::PeerAddress;
use super::push;
use super::tls::{TlsConfig, WallClock};
use super::verify::{PeerCheck, Refusal};
use super::wrap::v2::ServerKey;
use super::wrap::{WrapError, WrapKeys};
use crate::bucket::Bucket;
use crate::timers::Timers;
use crate::{Now, Time};
use begins::Begins;
use crypto::cipher::Integrity;
use crypto::{Engine, Random};
use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use session::Session;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The server's wrap of control packets.
pub enum ServerWrap {
    /// None, tls-auth or tls-crypt.
    Shared(WrapKeys),
    /// tls-crypt-v2.
    PerClient {
        /// The key with which clients' keys are wrapped.
        key: ServerKey,
        /// Whether clients before 2.6 are served, which cannot answer a cookie.
        allow_without_cookie: bool,
        /// `tls-crypt-v2-max-age`: a client's key must say when it was made, and not be older.
        max_age: Option<Duration>,
    },
}

impl ServerWrap {
    /// Whether a first packet shows that its sender has a key.
    fn authenticates(&self) -> bool {
        match self {
            Self::Shared(keys) => keys.authenticates(),
            Self::PerClient { .. } => true,
        }
    }
}

/// What a server needs to know.
pub struct ServerConfiguration {
    /// TLS, with the verifier of clients.
    pub tls: ServerConfig,
    /// The wrap of control packets.
    pub wrap: ServerWrap,
    /// Data ciphers, the preferred first.
    pub ciphers: Vec<DataCipher>,
    /// The cipher for clients that do not negotiate.
    pub fallback: Option<DataCipher>,
    /// The HMAC beside ciphers in CBC mode.
    pub auth: Integrity,
    /// `compress migrate`: clients with compression in their configuration are told to end it.
    pub ends_compression: bool,
    /// Send something to each client at least this often.
    pub ping: Option<Duration>,
    /// A client is gone after this time without a packet.
    pub ping_restart: Option<Duration>,
    /// Clients that are connected at once.
    pub max_clients: usize,
    /// Features to use: bits of [`peer_info::proto`](super::peer_info::proto), usually
    /// [`peer_info::OURS`](super::peer_info::OURS).
    pub features: u32,
    /// The times.
    pub timing: Timing,
    /// The longest control packet that is sent, with its UDP and IP header (`max-packet-size`).
    pub control_packet: usize,
    /// New sessions of all clients (`connect-freq`).
    pub new_sessions: Option<Rate>,
    /// Answers to first packets of clients that do not go on (`connect-freq-initial`); in place of
    /// [`RESET_ANSWERS`] and [`AUTHENTIC_RESET_ANSWERS`].
    pub answers: Option<Rate>,
    /// The only peer, site to site: nothing is pushed to it.
    pub only: Option<OnlyPeer>,
}

/// The peer of a server of TLS that is no server for clients.
#[derive(Clone, Debug)]
pub struct OnlyPeer {
    /// Where it is (`remote`); `None` if it may be anywhere (`float`, or no `remote`). Port 0 stands for any.
    pub addresses: Option<Vec<SocketAddr>>,
    /// The MTU of the tunnel interface, which it is told.
    pub mtu: u16,
}

impl OnlyPeer {
    /// Whether it may be at this address.
    fn may_be_at(&self, from: SocketAddr) -> bool {
        let is_it = |address: &SocketAddr| {
            address.ip().to_canonical() == from.ip().to_canonical()
                && [0, from.port()].contains(&address.port())
        };
        self.addresses.as_ref().is_none_or(|all| all.iter().any(is_it))
    }
}

/// A server.
pub struct Server {
    tls: TlsConfig,
    clock: Arc<WallClock>,
    wrap: ServerWrap,
    ciphers: Vec<DataCipher>,
    fallback: Option<DataCipher>,
    auth: Integrity,
    ends_compression: bool,
    keepalive: Keepalive,
    max_clients: usize,
    features: u32,
    timing: Timing,
    control_packet: usize,
    only: Option<OnlyPeer>,
    engine: Arc<dyn Engine>,
    random: Box<dyn Random>,
    cookie: CookieKey,
    /// Answers to first packets.
    answers: Option<Bucket>,
    /// The size and the interval of that bucket.
    answers_limit: (u32, Duration),
    sessions: BTreeMap<SessionNumber, Session>,
    by_remote: BTreeMap<(PeerAddress, SessionId), SessionNumber>,
    /// Sessions of clients that were admitted, connected or not.
    admitted: usize,
    begins: Begins,
    timers: Timers<SessionNumber>,
}

impl Server {
    /// A server without clients.
    pub fn new(
        configuration: ServerConfiguration,
        engine: Arc<dyn Engine>,
        mut random: Box<dyn Random>,
    ) -> Self {
        let clock = Arc::new(WallClock::default());
        let cookie = CookieKey::random(&mut *random);
        let is_authentic = configuration.wrap.authenticates();
        let begins = Begins::new(is_authentic, configuration.new_sessions);
        let ServerConfiguration {
            tls,
            wrap,
            ciphers,
            fallback,
            auth,
            ends_compression,
            ping,
            ping_restart,
            max_clients,
            features,
            timing,
            control_packet,
            answers,
            only,
            new_sessions: _,
        } = configuration;
        let usual = if is_authentic { AUTHENTIC_RESET_ANSWERS } else { RESET_ANSWERS };
        Self {
            tls: TlsConfig::server(tls, Arc::clone(&clock)),
            clock,
            wrap,
            ciphers,
            fallback,
            auth,
            ends_compression,
            keepalive: Keepalive::restarting(ping, ping_restart),
            max_clients,
            features,
            timing,
            control_packet,
            only,
            engine,
            random,
            cookie,
            answers: None,
            answers_limit: answers.map_or(usual, |rate| (rate.most, rate.period / rate.most.max(1))),
            sessions: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            admitted: 0,
            begins,
            timers: Timers::default(),
        }
    }

    /// Replaces the configuration of TLS, such as after a change of the revocation list. Sessions stay; the next
    /// negotiation of their keys uses it.
    pub fn set_tls(&mut self, config: ServerConfig) {
        self.tls = TlsConfig::server(config, Arc::clone(&self.clock));
        for session in self.sessions.values_mut() {
            session.peer.channel.set_tls(self.tls.clone());
        }
    }

    /// Checks the certificates of all clients again, such as after a change of the revocation list, and ends the sessions
    /// whose certificates are now refused.
    pub fn check_again(&mut self, now: Now, check: &PeerCheck, out: &mut Outbox) {
        let time = UnixTime::since_unix_epoch(now.wall);
        let refused: Vec<(SessionNumber, Refusal)> = self
            .sessions
            .iter()
            .filter_map(|(number, session)| {
                let (own, between) = session.certificates().split_first()?;
                Some((*number, check.check(own, between, time).err()?))
            })
            .collect();
        for (number, refusal) in refused {
            self.end(now, number, Cause::RefusedByUs(refusal.to_string()), out);
        }
    }

    /// The number of sessions, of which some have not authenticated.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Handles a control packet.
    pub fn handle_packet(
        &mut self,
        now: Now,
        from: impl Into<PeerAddress>,
        packet: &[u8],
        out: &mut Outbox,
    ) -> Result<(), PacketError> {
        self.clock.set(now);
        let from = from.into();
        if packet.len() > LONGEST_PACKET {
            return Err(Malformed.into());
        }
        if self.only.as_ref().is_some_and(|only| !only.may_be_at(from.socket)) && !self.is_known(from) {
            return Err(PacketError::OtherAddress);
        }
        let (first, rest) = packet.split_first().ok_or(Malformed)?;
        let lead = Lead::parse(*first).ok_or(Malformed)?;
        let remote = SessionId(*rest.first_chunk().ok_or(Malformed)?);
        let Some(&number) = self.by_remote.get(&(from, remote)) else {
            return self.handle_unknown(now, from, lead, packet, out);
        };
        let packet = self.without_key(lead, packet)?;
        let Some(session) = self.sessions.get_mut(&number) else { return Err(PacketError::OtherSession) };
        let mut events = Vec::new();
        session.peer.handle(now, packet, &mut *self.random, &mut events)?;
        self.handle_events(now, number, events, out);
        Ok(())
    }

    /// Whether a session has this address.
    fn is_known(&self, address: PeerAddress) -> bool {
        self.sessions.values().any(|session| session.peer.address == address)
    }

    /// The only peer has these addresses now, unless it may be anywhere. A session goes on at its own.
    pub fn set_addresses(&mut self, addresses: Vec<SocketAddr>) {
        if let Some(known) = self.only.as_mut().and_then(|only| only.addresses.as_mut()) {
            *known = addresses;
        }
    }

    /// The packet without the client's wrapped key, of a session that has that key.
    fn without_key<'a>(&self, lead: Lead, packet: &'a [u8]) -> Result<&'a [u8], WrapError> {
        match &self.wrap {
            ServerWrap::PerClient { key, .. }
                if matches!(lead.opcode, Opcode::ClientResetV3 | Opcode::ControlWithKey) =>
            {
                key.unwrap(packet).map(|(packet, _, _)| packet)
            }
            _ => Ok(packet),
        }
    }

    /// Handles what is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        self.clock.set(now);
        for number in self.timers.due(now.monotonic) {
            self.timers.set(number, None);
            let Some(session) = self.sessions.get_mut(&number) else { continue };
            if let Some((_, cause)) = session.stage.end().filter(|(at, _)| now.monotonic >= *at) {
                self.end(now, number, cause, out);
                continue;
            }
            match session.peer.handle_timeout(now, &mut *self.random, out) {
                Ok(()) => self.arm(number),
                Err(cause) => self.end(now, number, cause, out),
            }
        }
    }

    /// When something is due.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first()
    }

    fn arm(&mut self, number: SessionNumber) {
        let Some(session) = self.sessions.get(&number) else { return };
        let end = session.stage.end().map(|(at, _)| at);
        self.timers.set(number, session.peer.next_timeout().into_iter().chain(end).min());
    }

    /// New keys are needed: a number of data packets is high, or many bytes were sent.
    pub fn handle_renewal(&mut self, now: Now, number: SessionNumber, out: &mut Outbox) {
        self.clock.set(now);
        if let Some(session) = self.sessions.get_mut(&number) {
            session.peer.renew(now, &mut *self.random, out);
            self.arm(number);
        }
    }

    /// An authentic data packet has come under an SA that was not confirmed.
    pub fn handle_confirmed(&mut self, now: Now, number: SessionNumber, index: u32, out: &mut Outbox) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.peer.confirm(now.monotonic, index, out);
            self.arm(number);
        }
    }

    /// An authentic data packet, which is not a replay, has come from another address. Returns whether the session is at
    /// that address now: it is not if another client is there, whose data packets would otherwise be redirected by a
    /// client with a forged source address. The caller then goes on sending to the old address. A session never changes
    /// between UDP and TCP.
    pub fn handle_move(&mut self, number: SessionNumber, address: impl Into<PeerAddress>) -> bool {
        let address = address.into();
        let Some(session) = self.sessions.get(&number) else { return false };
        if session.peer.address.is_tcp != address.is_tcp {
            return false;
        }
        let Some(remote) = session.peer.channel.remote() else { return false };
        let is_taken = self.at(address).any(|((_, id), other)| {
            let is_same_client = || {
                let theirs = self.sessions.get(other).and_then(|other| other.identity.as_ref());
                session.identity.as_ref().zip(theirs).is_some_and(|(own, theirs)| own.is_same_client(theirs))
            };
            *other != number && (*id == remote || !is_same_client())
        });
        if is_taken {
            return false;
        }
        self.forget_address(number);
        self.by_remote.insert((address, remote), number);
        if let Some(session) = self.sessions.get_mut(&number) {
            session.peer.address = address;
        }
        true
    }

    /// The sessions at an address.
    fn at(&self, address: PeerAddress) -> impl Iterator<Item = (&(PeerAddress, SessionId), &SessionNumber)> {
        self.by_remote.range((address, SessionId([0; 8]))..=(address, SessionId([0xff; 8])))
    }

    /// Removes a session's entry by its address.
    fn forget_address(&mut self, number: SessionNumber) {
        let Some(peer) = self.sessions.get(&number).map(|session| &session.peer) else { return };
        let Some(remote) = peer.channel.remote() else { return };
        if let Entry::Occupied(entry) = self.by_remote.entry((peer.address, remote))
            && *entry.get() == number
        {
            entry.remove();
        }
    }

    /// The client has said in a data packet that it exits.
    pub fn handle_exit(&mut self, now: Now, number: SessionNumber, out: &mut Outbox) {
        self.end(now, number, Cause::Exited, out);
    }

    /// The TCP connection from an address has ended, and with it each session that it carried.
    pub fn handle_connection_end(&mut self, now: Now, address: SocketAddr, out: &mut Outbox) {
        let sessions: Vec<SessionNumber> =
            self.at(PeerAddress::tcp(address)).map(|(_, number)| *number).collect();
        for number in sessions {
            self.end(now, number, Cause::ConnectionEnded, out);
        }
    }

    /// Ends a session with a peer, site to site, and tells it.
    pub fn stop(&mut self, now: Now, number: SessionNumber, out: &mut Outbox) {
        if let Some(session) = self.sessions.get_mut(&number) {
            session.peer.exit(now, out);
            self.end(now, number, Cause::Stopped, out);
        }
    }

    /// Ends a session. `command`: what the client is told, such as `RESTART` or `HALT`.
    pub fn disconnect(&mut self, now: Now, number: SessionNumber, command: &str, out: &mut Outbox) {
        if let Some(session) = self.sessions.get_mut(&number) {
            // The session ends in any case.
            let _ = session.peer.channel.send_command(&push::one_command(command));
            self.end(now, number, Cause::Stopped, out);
        }
    }

    /// Ends a session without a word: its client has connected again, from another address.
    pub fn replace(&mut self, now: Now, number: SessionNumber, out: &mut Outbox) {
        self.end(now, number, Cause::Replaced, out);
    }

    /// A number that no session has. It is random, because the data path's table of keys hashes by its low bits.
    fn new_number(&mut self) -> SessionNumber {
        loop {
            let mut bytes = [0; 4];
            self.random.fill(&mut bytes[1..]);
            let number = SessionNumber::from_be_bytes(bytes);
            // Sessions are far fewer than numbers.
            if number <= LAST_PEER_ID && !self.sessions.contains_key(&number) {
                return number;
            }
        }
    }

    fn end(&mut self, now: Now, number: SessionNumber, cause: Cause, out: &mut Outbox) {
        self.forget_address(number);
        let Some(mut session) = self.sessions.remove(&number) else { return };
        self.begins.no_longer_pending(session.pending);
        self.admitted -= usize::from(session.is_admitted);
        self.timers.set(number, None);
        // One message can ask about a client and end its session.
        out.retain(|it| !matches!(it, Action::Authenticate { session, .. } if *session == number));
        // What was to be said last, or an alert of TLS, tells the client why.
        session.peer.flush(now, out);
        session.peer.close(cause, out);
    }

    fn may_answer(&mut self, now: Time) -> bool {
        let (size, interval) = self.answers_limit;
        self.answers.get_or_insert_with(|| Bucket::new(size, interval, now)).take(now)
    }
}
