//! The first packet of two peers that begin at once.

use super::packet::SessionId;
use super::wrap::Opened;

/// The reset of a server of TLS that began at the same time as this end: it does not prove that the peer has received our packet.
/// The peer's next packet does.
#[derive(Default)]
pub(super) enum EarlyReset {
    /// Not expected: the other end does not begin.
    #[default]
    Refused,
    /// It is kept if it comes.
    Awaited,
    /// It has come.
    Kept(Opened),
}

impl EarlyReset {
    /// Keeps a reset; returns whether it does.
    pub(super) fn keep(&mut self, reset: &Opened) -> bool {
        let keeps = !matches!(self, Self::Refused);
        if keeps {
            *self = Self::Kept(reset.clone());
        }
        keeps
    }

    /// The reset that began this session of the peer.
    pub(super) fn take_of(&mut self, session: SessionId) -> Option<Opened> {
        match std::mem::replace(self, Self::Refused) {
            Self::Kept(reset) if reset.session == session => Some(reset),
            other => {
                *self = other;
                None
            }
        }
    }
}
