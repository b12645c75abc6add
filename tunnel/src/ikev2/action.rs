//! The actions that the protocol asks its caller to carry out.

use super::event::Event;
use super::identity::Identity;
use super::ids::{ConnectionId, SessionId};
use super::job::Job;
use super::nat::{Follows, Path};
use crate::esp::{ChildSa, Transport};
use std::fmt;

/// An action that the caller carries out for the protocol.
pub enum Action {
    /// Send a datagram; on every local port but 500 it is preceded by the non-ESP marker.
    Send {
        /// Local and remote address.
        path: Path,
        /// The datagram.
        message: Vec<u8>,
    },
    /// Send one byte 0xff, without a marker, to keep the translation of our address alive (RFC 3948 section 4).
    KeepNat {
        /// Local and remote address.
        path: Path,
    },
    /// Queue packets with this SPI: their SA may follow, and the peer may use it already.
    Expect {
        /// The SPI that we would receive with.
        spi: u32,
    },
    /// Drop the queued packets: their SA will not be installed.
    ExpectNoMore {
        /// The SPI.
        spi: u32,
    },
    /// Accept packets under this SA, the queued ones first, and send with it.
    Install(Box<Install>),
    /// Keep the SAs of this connection apart from those of others: it is an instance of a profile.
    AddInstance {
        /// The profile, which was added to the endpoint.
        profile: ConnectionId,
        /// The instance, to which later actions and events refer.
        instance: ConnectionId,
        /// The identity of its peer.
        identity: Identity,
    },
    /// Forget an instance: its last session has ended.
    RemoveInstance {
        /// The instance.
        instance: ConnectionId,
    },
    /// Send with this SA instead of the older one for the same packets.
    Use {
        /// The SPI that we receive with, of an SA installed before.
        spi: u32,
    },
    /// Neither accept nor send packets under this SA any more; the newest remaining SA for the same packets is used
    /// to send.
    Retire {
        /// The SPI that we receive with.
        spi: u32,
    },
    /// Send ESP of this session over another path from now on.
    Follow {
        /// The connection of the session.
        connection: ConnectionId,
        /// The session whose SAs change their path.
        session: SessionId,
        /// Local and remote address.
        path: Path,
    },
    /// Run this job on any worker thread, and pass its result to
    /// [`Endpoint::handle_finished`](super::Endpoint::handle_finished).
    Work(Job),
    /// An event to report.
    Report(Box<Event>),
}

/// A Child SA that is ready to be installed.
pub struct Install {
    /// The connection that the SA belongs to.
    pub connection: ConnectionId,
    /// The index of the child in the connection.
    pub child: usize,
    /// The session that the SA belongs to.
    pub session: SessionId,
    /// Keys and selectors.
    pub sa: ChildSa,
    /// Local and remote address of ESP.
    pub path: Path,
    /// Whether ESP is encapsulated in UDP.
    pub encapsulation: bool,
    /// In transport mode, the addresses of the packets.
    pub transport: Option<Transport>,
    /// Whether the path follows the source of the last authentic packet (RFC 7296 section 2.23). The caller reports
    /// such moves to [`Endpoint::note_moved`](super::Endpoint::note_moved), and packets from any other source to
    /// [`Endpoint::note_strayed`](super::Endpoint::note_strayed).
    pub follows: Follows,
    /// Whether to go on sending with the older SA, as the peer may not have installed this one yet. [`Action::Use`]
    /// ends this, and so does the first packet received under this SA.
    pub hold: bool,
}

/// Actions, in the order in which they must be carried out.
pub type Outbox = Vec<Action>;

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Send { path, message } => write!(f, "Send({path:?}, {} bytes)", message.len()),
            Self::KeepNat { path } => write!(f, "KeepNat({path:?})"),
            Self::Expect { spi } => write!(f, "Expect({spi:x})"),
            Self::ExpectNoMore { spi } => write!(f, "ExpectNoMore({spi:x})"),
            Self::Install(install) => write!(f, "Install({:x})", install.sa.inbound.spi),
            Self::AddInstance { instance, identity, .. } => {
                write!(f, "AddInstance({instance:?}, {identity})")
            }
            Self::RemoveInstance { instance } => write!(f, "RemoveInstance({instance:?})"),
            Self::Use { spi } => write!(f, "Use({spi:x})"),
            Self::Retire { spi } => write!(f, "Retire({spi:x})"),
            Self::Follow { path, .. } => write!(f, "Follow({path:?})"),
            Self::Work(job) => write!(f, "Work({job:?})"),
            Self::Report(event) => write!(f, "Report({event:?})"),
        }
    }
}
