//! The status of the sessions, for operators.

use super::{Endpoint, Phase};
use crate::Time;
use crate::esp::{Mode, TrafficSelector};
use crate::ikev2::identity::Identity;
use crate::ikev2::ids::ConnectionId;
use crate::ikev2::ids::SessionId;
use crate::ikev2::keys::{Role, Spis};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{EspSuite, IkeSuite};
use std::net::SocketAddr;

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Keys are being negotiated.
    Connecting,
    /// Both sides are authenticated.
    Established,
    /// The session is being closed.
    Closing,
}

/// A session, or a set-up of one.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Its ID.
    pub session: SessionId,
    /// The connection, if it is known yet.
    pub connection: Option<ConnectionId>,
    /// The state.
    pub state: State,
    /// Details, once both sides are authenticated.
    pub details: Option<Details>,
}

/// A session with an authenticated peer.
#[derive(Clone, Debug)]
pub struct Details {
    /// The identity of the peer.
    pub identity: Identity,
    /// Local and remote address.
    pub path: Path,
    /// The sides that are behind a NAT.
    pub nat: Nat,
    /// Whether the local side initiated it.
    pub initiated: bool,
    /// When it was established.
    pub since: Time,
    /// When the last authentic packet arrived from the peer.
    pub last_heard: Time,
    /// The same, if requests were retransmitted since then and are still unanswered.
    pub silent_since: Option<Time>,
    /// The source of authentic packets, if it differs from the remote address.
    pub stray: Option<SocketAddr>,
    /// Key exchanges that the peer asked for and that the rate limit refused.
    pub refused_exchanges: u64,
    /// The IKE SAs; several during a rekeying.
    pub ikes: Vec<IkeStatus>,
    /// The Child SAs; several of one child during a rekeying.
    pub children: Vec<ChildStatus>,
}

/// An IKE SA.
#[derive(Clone, Debug)]
pub struct IkeStatus {
    /// Both SPIs.
    pub spis: Spis,
    /// Which of the SPIs is local.
    pub role: Role,
    /// The algorithms.
    pub suite: IkeSuite,
    /// When it was established.
    pub since: Time,
    /// When it is to be rekeyed.
    pub rekey_at: Option<Time>,
    /// When it ends.
    pub expires: Time,
    /// Whether it is the current one.
    pub is_current: bool,
}

/// A Child SA.
#[derive(Clone, Debug)]
pub struct ChildStatus {
    /// The index of the child in the connection.
    pub child: usize,
    /// The inbound SPI.
    pub inbound: u32,
    /// The outbound SPI.
    pub outbound: u32,
    /// The algorithms.
    pub suite: EspSuite,
    /// Tunnel or transport mode.
    pub mode: Mode,
    /// The local traffic selectors.
    pub local: Vec<TrafficSelector>,
    /// The remote traffic selectors.
    pub remote: Vec<TrafficSelector>,
    /// When it was installed.
    pub since: Time,
    /// When it is to be rekeyed.
    pub rekey_at: Option<Time>,
    /// When it ends.
    pub expires: Time,
    /// Its state.
    pub state: ChildState,
}

/// The state of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It is in use.
    Installed,
    /// The peer has replaced it and will delete it.
    Rekeyed,
    /// We are deleting it.
    Deleting,
}

/// The amount of state that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// SPIs of IKE SAs.
    pub ike_spis: usize,
    /// SPIs of Child SAs.
    pub child_spis: usize,
    /// Child SAs whose traffic selectors are claimed against other peers.
    pub claims: usize,
    /// Instances of profiles.
    pub instances: usize,
    /// Half-open SAs.
    pub half_open: usize,
    /// Bytes of fragments held by half-open SAs.
    pub fragments: usize,
}

impl Endpoint {
    /// All sessions, the oldest first.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let mut sessions: Vec<SessionStatus> =
            self.phases.iter().map(|(id, phase)| status(*id, phase)).collect();
        sessions.sort_by_key(|status| status.session);
        sessions
    }

    /// The number of suites and connections compared for first messages so far: the cost of messages before
    /// authentication.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// The amount of state that is kept.
    pub fn load(&self) -> Load {
        let (ike_spis, child_spis) = self.registry.sizes();
        let claims = self.registry.conflicts.len();
        Load {
            ike_spis,
            child_spis,
            claims,
            instances: self.registry.instances.len(),
            half_open: self.half_open.len(),
            fragments: self.half_open.held(),
        }
    }
}

fn status(session: SessionId, phase: &Phase) -> SessionStatus {
    let (state, details) = match phase {
        Phase::Established(session) if session.is_closing() => (State::Closing, Some(session.details())),
        Phase::Established(session) => (State::Established, Some(session.details())),
        phase if phase.is_abandoned() => (State::Closing, None),
        _ => (State::Connecting, None),
    };
    SessionStatus { session, connection: phase.connection(), state, details }
}
