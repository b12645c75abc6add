//! The names of connections and sessions.

/// Identifies a connection for the lifetime of its [`Endpoint`](super::Endpoint); never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(super) u64);

/// Identifies a session with a peer. It survives rekeying of the IKE SA and is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub(super) u64);

impl SessionId {
    /// The ID of this number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of the session, as shown to users.
    pub fn number(self) -> u64 {
        self.0
    }
}
