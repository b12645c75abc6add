//! One peer: its keys, its sessions and its timers.

use super::activity::Activity;
use super::cookie::CookieJar;
use super::failover::Failover;
use super::limits::{
    ERASE_AFTER_TIME, KEEPALIVE_TIMEOUT, REJECT_AFTER_MESSAGES, REJECT_AFTER_TIME, REKEY_AFTER_MESSAGES,
    REKEY_AFTER_TIME, REKEY_ON_RECEIVE_AFTER_TIME, REKEY_TIMEOUT, REKEY_TIMEOUT_JITTER, SILENCE_TIMEOUT,
};
use super::noise::{AwaitingResponse, SessionKeys};
use super::report::Trouble;
use super::tai64n::Tai64n;
use crate::sa::Lifetime;
use crate::{InboundSa, OutboundSa, Time};
use crypto::{Cipher, Engine, PublicKey, Random, Secret};
use std::sync::Arc;
use std::time::Duration;

/// The local role in a handshake; only the initiator renews a session because of its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The local side sent the initiation.
    Initiator,
    /// The local side sent the response.
    Responder,
}

/// A pair of SAs, ready for the data path.
pub struct Session {
    /// The SA to send with.
    pub outbound: Arc<OutboundSa>,
    /// The SA to receive with.
    pub inbound: Arc<InboundSa>,
}

impl Session {
    /// Loads the keys of a finished handshake.
    pub fn new(keys: &SessionKeys, role: Role, now: Time, engine: &dyn Engine) -> Self {
        let load = |secret: &Secret| {
            // Sections 5.4.6 and 6: there is one cipher, with 32-byte keys, and every engine supports it.
            engine
                .load(Cipher::ChaCha20Poly1305, secret.expose())
                .expect("every engine has ChaCha20-Poly1305")
        };
        let lifetime = |renew: Duration| Lifetime {
            renew: (role == Role::Initiator).then_some(now + renew),
            renew_sequence: REKEY_AFTER_MESSAGES,
            expires: now + REJECT_AFTER_TIME,
            end_sequence: REJECT_AFTER_MESSAGES,
        };
        let outbound = OutboundSa::new(load(&keys.sending), keys.remote_index, lifetime(REKEY_AFTER_TIME));
        let inbound = InboundSa::new(
            load(&keys.receiving),
            keys.local_index,
            lifetime(REKEY_ON_RECEIVE_AFTER_TIME),
            role == Role::Responder,
        );
        Self { outbound: Arc::new(outbound), inbound: Arc::new(inbound) }
    }
}

/// The sessions of a peer (section 6.2). Packets in flight may use the previous one. The next one must not be used to
/// send before the initiator has proven that it has the keys.
#[derive(Default)]
pub struct Sessions {
    previous: Option<Session>,
    current: Option<Session>,
    next: Option<Session>,
}

impl Sessions {
    /// Adds a session initiated by the local side, ready for use; returns the sessions that end.
    pub fn initiated(&mut self, session: Session) -> Vec<Session> {
        let mut ended: Vec<Session> = self.previous.take().into_iter().collect();
        let replaced = self.current.replace(session);
        if let Some(unconfirmed) = self.next.take() {
            // The peer initiated at the same time, and may already send under its keys.
            self.previous = Some(unconfirmed);
            ended.extend(replaced);
        } else {
            self.previous = replaced;
        }
        ended
    }

    /// Adds a session initiated by the peer, which must be confirmed before use; returns the sessions that end.
    pub fn responded(&mut self, session: Session) -> Vec<Session> {
        self.next.replace(session).into_iter().chain(self.previous.take()).collect()
    }

    /// Notes a packet under the session with the local `index`; returns the sessions that end, or `None` if it was
    /// not the next one.
    pub fn confirmed(&mut self, index: u32) -> Option<Vec<Session>> {
        let next = self.next.take_if(|next| next.inbound.index == index)?;
        let ended = self.previous.take().into_iter().collect();
        self.previous = self.current.replace(next);
        Some(ended)
    }

    /// Ends all sessions.
    pub fn clear(&mut self) -> Vec<Session> {
        [self.previous.take(), self.current.take(), self.next.take()].into_iter().flatten().collect()
    }

    /// The session to send with once it is confirmed.
    pub fn next(&self) -> Option<&Session> {
        self.next.as_ref()
    }

    /// The session to send with.
    pub fn current(&self) -> Option<&Session> {
        self.current.as_ref()
    }
}

/// A peer.
pub struct Peer {
    pub(super) public: PublicKey,
    pub(super) preshared: Secret,
    /// The shared secret of both static keys. It is computed on first use, as it costs as much as a handshake.
    pub(super) static_static: Option<Secret>,
    pub(super) sessions: Sessions,
    pub(super) cookies: CookieJar,
    pub(super) activity: Arc<Activity>,
    pub(super) awaiting: Option<AwaitingResponse>,
    /// When the last initiation or response was sent.
    pub(super) initiated: Option<Time>,
    /// Initiations sent in a row without an answer.
    pub(super) attempts: u32,
    /// Failures since the last completed handshake.
    pub(super) trouble: Trouble,
    /// Whether the log shows the peer as up.
    pub(super) is_up: bool,
    /// The newest timestamp accepted.
    pub(super) newest: Option<Tai64n>,
    /// The newest timestamp sent.
    stamped: Option<Tai64n>,
    /// When an initiation was last consumed.
    pub(super) consumed: Option<Time>,
    /// The time since 1970 of the last completed handshake.
    pub(super) last_handshake: Option<Duration>,
    /// Completed handshakes.
    pub(super) handshakes: u64,
    pub(super) persistent_keepalive: Option<Duration>,
    pub(super) retransmit: Option<Time>,
    pub(super) erase: Option<Time>,
    /// Whether the endpoint is known.
    pub(super) reachable: bool,
    /// The addresses that it is configured with.
    pub(super) failover: Failover,
    jitter: Duration,
}

/// A timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// No response to an initiation.
    Retransmit,
    /// Data was sent, and nothing was received.
    Silence,
    /// Data was received, and nothing was sent.
    Keepalive,
    /// Nothing was sent or received for the configured interval.
    PersistentKeepalive,
    /// Another address than the first is in use, and the first has not been asked for some time.
    Probe,
    /// No handshake for so long that the keys must be erased.
    Erase,
}

impl Peer {
    pub(super) fn new(public: PublicKey, random: &mut dyn Random) -> Self {
        Self {
            public,
            preshared: Secret::zero(),
            static_static: None,
            sessions: Sessions::default(),
            cookies: CookieJar::new(&public),
            activity: Arc::default(),
            awaiting: None,
            initiated: None,
            attempts: 0,
            trouble: Trouble::default(),
            is_up: false,
            newest: None,
            stamped: None,
            consumed: None,
            last_handshake: None,
            handshakes: 0,
            persistent_keepalive: None,
            retransmit: None,
            erase: None,
            reachable: false,
            failover: Failover::default(),
            jitter: jitter(random),
        }
    }

    /// Whether the current session can be used to send.
    pub(super) fn has_key(&self, now: Time) -> bool {
        self.sessions.current().is_some_and(|session| session.outbound.is_usable(now))
    }

    /// A timestamp later than all earlier ones to this peer, even if the wall clock went back.
    pub(super) fn new_timestamp(&mut self, wall: Duration) -> Tai64n {
        let timestamp = Tai64n::new(wall);
        let timestamp = self.stamped.map_or(timestamp, |newest| timestamp.max(newest.successor()));
        self.stamped = Some(timestamp);
        timestamp
    }

    /// Whether a handshake message was sent so recently that no other may follow yet.
    pub(super) fn initiated_recently(&self, now: Time) -> bool {
        self.initiated.is_some_and(|sent| now - sent < REKEY_TIMEOUT)
    }

    /// Starts the retransmission timer, with a random part that differs from the peer's.
    pub(super) fn arm_retransmit(&mut self, now: Time, random: &mut dyn Random) {
        self.jitter = jitter(random);
        self.retransmit = Some(now + REKEY_TIMEOUT + self.jitter);
    }

    /// Whether a handshake is under way, or was a moment ago.
    pub(super) fn is_busy(&self, now: Time) -> bool {
        self.retransmit.is_some() || self.awaiting.is_some() || self.initiated_recently(now)
    }

    /// Notes an authentic handshake message: the peer is reachable at its source.
    pub(super) fn learned(&mut self, now: Time) {
        self.reachable = true;
        // It carried no data, so no timer is armed that the protocol must be woken for.
        let _ = self.activity.received(now, false);
    }

    /// Notes a completed handshake.
    pub(super) fn handshake_finished(&mut self, now: Time, wall: Duration) {
        self.retransmit = None;
        self.attempts = 0;
        self.last_handshake = Some(wall);
        self.handshakes += 1;
        self.trouble = Trouble::default();
        self.erase = Some(now + ERASE_AFTER_TIME);
    }

    /// All running timers and the times at which they fire.
    fn timers(&self) -> [(Due, Option<Time>); 6] {
        let silence = self.activity.waiting_since().map(|since| since + SILENCE_TIMEOUT + self.jitter);
        let keepalive = self.activity.owing_since().map(|since| since + KEEPALIVE_TIMEOUT);
        let persistent =
            self.persistent_keepalive.zip(self.activity.traversed()).map(|(every, last)| last + every);
        [
            (Due::Retransmit, self.retransmit),
            (Due::Silence, silence),
            (Due::Keepalive, keepalive),
            (Due::PersistentKeepalive, persistent),
            (Due::Probe, self.failover.probe_at()),
            (Due::Erase, self.erase),
        ]
    }

    /// The timer to be served at `now`, if any.
    pub(super) fn due(&self, now: Time) -> Option<Due> {
        self.timers().into_iter().find(|(_, at)| at.is_some_and(|at| at <= now)).map(|(due, _)| due)
    }

    /// When the next timer fires.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers().into_iter().filter_map(|(_, at)| at).min()
    }
}

/// A random time below [`REKEY_TIMEOUT_JITTER`].
fn jitter(random: &mut dyn Random) -> Duration {
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    REKEY_TIMEOUT_JITTER.mul_f64(f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::engine::none::None as NoEngine;

    fn session(local_index: u32, role: Role) -> Session {
        let keys =
            SessionKeys { sending: Secret::zero(), receiving: Secret::zero(), local_index, remote_index: 0 };
        Session::new(&keys, role, Time::from_nanoseconds(1), &NoEngine)
    }

    fn indices(sessions: &[Session]) -> Vec<u32> {
        sessions.iter().map(|session| session.inbound.index).collect()
    }

    fn current(sessions: &Sessions) -> Option<u32> {
        sessions.current().map(|session| session.inbound.index)
    }

    #[test]
    fn an_initiated_session_is_used_at_once_and_keeps_one_predecessor() {
        let mut sessions = Sessions::default();
        assert!(sessions.initiated(session(1, Role::Initiator)).is_empty());
        assert!(sessions.initiated(session(2, Role::Initiator)).is_empty());
        assert_eq!(indices(&sessions.initiated(session(3, Role::Initiator))), [1]);
        assert_eq!(current(&sessions), Some(3));
    }

    #[test]
    fn a_responded_session_waits_for_its_confirmation() {
        let mut sessions = Sessions::default();
        sessions.initiated(session(1, Role::Initiator));
        sessions.responded(session(2, Role::Responder));
        assert_eq!(current(&sessions), Some(1));
        assert!(sessions.confirmed(1).is_none(), "not the next one");
        assert!(sessions.confirmed(2).is_some());
        assert_eq!(current(&sessions), Some(2));
        assert!(sessions.confirmed(2).is_none(), "already current");
    }

    #[test]
    fn an_unconfirmed_session_is_replaced_by_a_newer_one() {
        let mut sessions = Sessions::default();
        sessions.responded(session(1, Role::Responder));
        assert_eq!(indices(&sessions.responded(session(2, Role::Responder))), [1]);
        assert!(sessions.confirmed(1).is_none());
    }

    #[test]
    fn simultaneous_initiations_keep_the_one_that_the_peer_may_use() {
        let mut sessions = Sessions::default();
        sessions.initiated(session(1, Role::Initiator));
        sessions.responded(session(2, Role::Responder));
        assert_eq!(indices(&sessions.initiated(session(3, Role::Initiator))), [1]);
        assert_eq!(indices(&sessions.clear()), [2, 3]);
    }

    #[test]
    fn only_the_initiator_renews_by_age() {
        let late = Time::from_nanoseconds(1) + REKEY_ON_RECEIVE_AFTER_TIME;
        let (ours, theirs) = (session(1, Role::Initiator), session(2, Role::Responder));
        assert!(ours.outbound.wants_renewal(late) && ours.inbound.wants_renewal(late));
        assert!(!theirs.outbound.wants_renewal(late) && !theirs.inbound.wants_renewal(late));
        let expired = Time::from_nanoseconds(1) + REJECT_AFTER_TIME;
        assert!(!ours.outbound.is_usable(expired) && !theirs.outbound.is_usable(expired));
    }

    #[test]
    fn timestamps_follow_the_clock_and_never_go_back() {
        let mut random = crypto::random::System::default();
        let mut peer = Peer::new(PublicKey([9; 32]), &mut random);
        let noon = Duration::from_secs(1_700_000_000);
        let first = peer.new_timestamp(noon);
        assert_eq!(first, Tai64n::new(noon));
        let second = peer.new_timestamp(Duration::from_secs(1_699_999_940));
        assert!(second > first, "the clock went back");
        // Handshakes with other peers do not advance the timestamps of this one.
        let mut other = Peer::new(PublicKey([8; 32]), &mut random);
        assert_eq!(other.new_timestamp(noon), first);
    }
}
