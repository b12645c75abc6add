//! What people may know about the sessions.

use super::{Endpoint, Phase};
use crate::ikev2::action::SessionId;
use crate::ikev2::config::ConnectionId;

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
    let (state, sas) = match phase {
        Phase::Established(session) if session.is_closing() => (State::Closing, session.sizes()),
        Phase::Established(session) => (State::Established, session.sizes()),
        Phase::Authenticating(state) if state.is_abandoned() => (State::Closing, (1, 0)),
        _ => (State::Connecting, (1, 0)),
    };
    SessionStatus { session, connection: phase.connection(), state, sas }
}
