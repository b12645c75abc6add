//! What people may know about the sessions.

use super::{Endpoint, Phase};
use crate::Time;
use crate::ikev2::action::SessionId;
use crate::ikev2::config::ConnectionId;
use crate::ikev2::keys::Spis;
use crate::ikev2::nat::{Nat, Path};

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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// Its name.
    pub session: SessionId,
    /// The connection, where it is known already.
    pub connection: Option<ConnectionId>,
    /// How far it has come.
    pub state: State,
    /// IKE SAs and Child SAs: more than one of the same while they are being replaced.
    pub sas: (usize, usize),
    /// The IKE SA that we ask in, once there is one.
    pub ike: Option<IkeStatus>,
    /// The Child SAs.
    pub children: Vec<ChildStatus>,
}

/// An IKE SA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IkeStatus {
    /// Whether we began the session.
    pub initiated: bool,
    /// What both sides call it.
    pub spis: Spis,
    /// Where it goes from and to.
    pub path: Path,
    /// Who is behind a NAT, or says so for the sake of ESP in UDP.
    pub nat: Nat,
    /// When we replace it, if the other side has not done so before.
    pub rekey_at: Option<Time>,
    /// When it ends.
    pub expires: Time,
}

/// A Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildStatus {
    /// The SPI that we receive with.
    pub spi: u32,
    /// When we replace it, if the other side has not done so before.
    pub rekey_at: Option<Time>,
    /// When it ends.
    pub expires: Time,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// SPIs of IKE SAs.
    pub ike_spis: usize,
    /// SPIs of Child SAs.
    pub child_spis: usize,
    /// Half-open SAs.
    pub half_open: usize,
}

impl Endpoint {
    /// All sessions, the oldest first.
    pub fn sessions(&self) -> Vec<SessionStatus> {
        let mut sessions: Vec<SessionStatus> =
            self.phases.iter().map(|(id, phase)| status(*id, phase)).collect();
        sessions.sort_by_key(|status| status.session);
        sessions
    }

    /// How much is kept.
    pub fn load(&self) -> Load {
        let (ike_spis, child_spis) = self.registry.sizes();
        Load { ike_spis, child_spis, half_open: self.door.len() }
    }
}

fn status(session: SessionId, phase: &Phase) -> SessionStatus {
    let connection = phase.connection();
    let Phase::Established(established) = phase else {
        let is_abandoned = matches!(phase, Phase::Authenticating(state) if state.is_abandoned());
        let state = if is_abandoned { State::Closing } else { State::Connecting };
        return SessionStatus { session, connection, state, sas: (1, 0), ike: None, children: Vec::new() };
    };
    SessionStatus {
        session,
        connection,
        state: if established.is_closing() { State::Closing } else { State::Established },
        sas: established.sizes(),
        ike: established.ike_status(),
        children: established.child_statuses(),
    }
}
