//! The events that the protocol reports.

use super::cause::{AuthMessage, Cause};
use super::identity::Identity;
use super::ids::{ConnectionId, SessionId};
use super::nat::Path;
use super::proposal::{EspSuite, IkeSuite};
use std::fmt;
use std::time::Duration;

/// An event that is reported to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// We are initiating a connection.
    Calling {
        /// The connection.
        connection: ConnectionId,
        /// Local and remote address.
        path: Path,
    },
    /// Both sides are authenticated.
    Established {
        /// The connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// The identity of the peer.
        identity: Identity,
        /// The algorithms.
        suite: IkeSuite,
        /// Local and remote address.
        path: Path,
    },
    /// The IKE SA has new keys.
    Rekeyed {
        /// The connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// The algorithms.
        suite: IkeSuite,
    },
    /// The session has ended.
    Closed {
        /// The connection.
        connection: ConnectionId,
        /// The session.
        session: SessionId,
        /// Why.
        reason: CloseReason,
    },
    /// A Child SA is installed.
    ChildUp {
        /// The connection.
        connection: ConnectionId,
        /// The index of the child in the connection.
        child: usize,
        /// The SPI that we receive with.
        spi: u32,
        /// The algorithms.
        suite: EspSuite,
    },
    /// A Child SA is removed.
    ChildDown {
        /// The connection.
        connection: ConnectionId,
        /// The index of the child in the connection.
        child: usize,
        /// The SPI that we received with.
        spi: u32,
    },
    /// A request of a set-up is unanswered and is retransmitted.
    Unanswered {
        /// The connection.
        connection: ConnectionId,
        /// Local and remote address.
        path: Path,
        /// The message that is retransmitted.
        asked: Asked,
        /// How often it was sent before.
        sent: u32,
        /// The time since it was first sent.
        since: Duration,
    },
    /// An unauthenticated source refused a set-up of ours, which goes on: the genuine answer may follow. Reported once for
    /// each attempt.
    Doubted {
        /// The connection.
        connection: ConnectionId,
        /// Local and remote address.
        path: Path,
        /// The cause that it gives.
        cause: Cause,
    },
    /// IKE_SA_INIT of a peer was answered, and IKE_AUTH is overdue. Any source may have caused it.
    Unfinished {
        /// Local and remote address.
        path: Path,
    },
    /// A negotiation failed.
    Failed {
        /// The connection, if it is known.
        connection: Option<ConnectionId>,
        /// The address of the peer.
        path: Path,
        /// Whether the cause is certain: it is local, or the peer is authenticated. Otherwise an unauthenticated
        /// source may have caused the failure; such reports are rate-limited and do not count the failures.
        authentic: bool,
        /// The cause of the failure.
        cause: Cause,
    },
}

/// The message of a set-up that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// IKE_SA_INIT.
    Init,
    /// IKE_AUTH, which follows the answer to IKE_SA_INIT.
    Auth(AuthMessage),
}

/// The reason why a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// A local request.
    Asked,
    /// The peer deleted it.
    ByPeer,
    /// The peer does not answer.
    Dead,
    /// The keys expired and could not be replaced.
    Expired,
    /// Another session with the same peer has replaced it.
    Replaced,
    /// The peer violated the protocol.
    Misbehaved,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "it was closed here",
            Self::ByPeer => "the peer closed it",
            Self::Dead => "the peer does not answer",
            Self::Expired => "its keys expired and could not be replaced",
            Self::Replaced => "a newer session has replaced it",
            Self::Misbehaved => "the peer violated the protocol",
        })
    }
}
