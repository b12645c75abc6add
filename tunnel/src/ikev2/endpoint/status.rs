//! What people may know about the sessions.

use super::{Endpoint, Phase};
use crate::Time;
use crate::esp::{Mode, TrafficSelector};
use crate::ikev2::action::SessionId;
use crate::ikev2::config::ConnectionId;
use crate::ikev2::identity::Identity;
use crate::ikev2::keys::{Role, Spis};
use crate::ikev2::nat::{Nat, Path};
use crate::ikev2::proposal::{EspSuite, IkeSuite};
use std::net::SocketAddr;

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Keys are being agreed on.
    Connecting,
    /// Both sides have shown who they are.
    Established,
    /// It is being ended.
    Closing,
}

/// A session, or what is going to be one.
#[derive(Clone, Debug)]
pub struct SessionStatus {
    /// Its name.
    pub session: SessionId,
    /// The connection, where it is known already.
    pub connection: Option<ConnectionId>,
    /// How far it has come.
    pub state: State,
    /// What is known once both sides have shown who they are.
    pub details: Option<Details>,
}

/// A session whose sides have shown who they are.
#[derive(Clone, Debug)]
pub struct Details {
    /// Who the other side is.
    pub identity: Identity,
    /// Where it is.
    pub path: Path,
    /// Whose address is translated on the way.
    pub nat: Nat,
    /// Whether we began.
    pub initiated: bool,
    /// Since when it is there.
    pub since: Time,
    /// When something authentic last came from the other side.
    pub last_heard: Time,
    /// The same, if it was asked for something since then, again and again, and has not answered yet.
    pub silent_since: Option<Time>,
    /// Where authentic packets have come from, if that is not where it is as far as we know.
    pub stray: Option<SocketAddr>,
    /// Key exchanges that it asked for and were refused, because they were too many.
    pub refused_exchanges: u64,
    /// More than one while it is being replaced.
    pub ikes: Vec<IkeStatus>,
    /// More than one of the same while they are being replaced.
    pub children: Vec<ChildStatus>,
}

/// An IKE SA.
#[derive(Clone, Debug)]
pub struct IkeStatus {
    /// Both SPIs.
    pub spis: Spis,
    /// Which of them is ours.
    pub role: Role,
    /// The algorithms.
    pub suite: IkeSuite,
    /// Since when it is there.
    pub since: Time,
    /// When it is to be rekeyed.
    pub rekey_at: Option<Time>,
    /// When it ends.
    pub expires: Time,
    /// Whether it is the one in use.
    pub is_current: bool,
}

/// A Child SA.
#[derive(Clone, Debug)]
pub struct ChildStatus {
    /// Which of the connection's children.
    pub child: usize,
    /// The SPI that we receive with.
    pub inbound: u32,
    /// The SPI that we send with.
    pub outbound: u32,
    /// The algorithms.
    pub suite: EspSuite,
    /// What is carried.
    pub mode: Mode,
    /// The packets of our side.
    pub local: Vec<TrafficSelector>,
    /// The packets of the other side.
    pub remote: Vec<TrafficSelector>,
    /// Since when it is there.
    pub since: Time,
    /// When it is to be rekeyed.
    pub rekey_at: Option<Time>,
    /// When it ends.
    pub expires: Time,
    /// What becomes of it.
    pub state: ChildState,
}

/// What becomes of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It is in use.
    Installed,
    /// The other side has replaced it, and will delete it.
    Rekeyed,
    /// We are deleting it.
    Deleting,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// SPIs of IKE SAs.
    pub ike_spis: usize,
    /// SPIs of Child SAs.
    pub child_spis: usize,
    /// Child SAs that claim their packets against other peers.
    pub claims: usize,
    /// Half-open SAs.
    pub half_open: usize,
    /// Bytes of fragments that they hold.
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

    /// How many suites and connections were looked at for first messages so far: what they cost before their sender has shown
    /// who it is.
    pub fn compared(&self) -> u64 {
        self.compared
    }

    /// How much is kept.
    pub fn load(&self) -> Load {
        let (ike_spis, child_spis) = self.registry.sizes();
        let claims = self.registry.conflicts.len();
        Load {
            ike_spis,
            child_spis,
            claims,
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
