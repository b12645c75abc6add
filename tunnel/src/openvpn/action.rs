//! What a core asks of its caller.

use super::activity::Activity;
use super::key_method::Credentials;
use super::keys::DataKeyError;
use super::negotiate::{DataCipher, NoCommonCipher};
use super::peer_address::PeerAddress;
use super::peer_info::PeerInfo;
use super::push::Unsupported;
use super::session;
use super::wrap::v2::Metadata;
use crate::{InboundSa, OutboundSa};
use rustls::pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;

/// A session, on our side: the peer ID of its data packets at a server, 0 at a client.
pub type SessionNumber = u32;

/// What the caller must do.
pub enum Action {
    /// Send this packet.
    Transmit {
        /// The session; `None` for an answer of a server that keeps no state about the client yet.
        session: Option<SessionNumber>,
        /// The receiver.
        to: PeerAddress,
        /// The datagram, or what follows the length on TCP.
        packet: Vec<u8>,
    },
    /// Server: decide about a client, and call `admit`. Its certificates are verified, if it was asked for any. It is not
    /// about a session that the same call has [closed](Self::Closed).
    Authenticate {
        /// The session.
        session: SessionNumber,
        /// Who asks.
        request: Box<Request>,
    },
    /// Client: the server has proved who it is. Its options follow.
    Found {
        /// Its address.
        address: SocketAddr,
        /// Its certificates, its own first.
        certificates: Vec<CertificateDer<'static>>,
    },
    /// Client: the server's options.
    Configure {
        /// All options of the push reply, in order.
        options: Vec<String>,
    },
    /// The session is up: its first SAs follow.
    Connected {
        /// The session.
        session: SessionNumber,
        /// Where data packets are sent, until the peer moves.
        address: PeerAddress,
        /// The cipher of its data packets.
        cipher: DataCipher,
        /// Where the data path notes its packets.
        activity: Arc<Activity>,
    },
    /// Accept packets under this SA; they are looked up by its index, the first word of packets.
    Install {
        /// The session.
        session: SessionNumber,
        /// The SA.
        sa: Arc<InboundSa>,
    },
    /// Send with this SA from now on.
    Use {
        /// The session.
        session: SessionNumber,
        /// The SA.
        sa: Arc<OutboundSa>,
    },
    /// Accept no more packets under this index.
    Retire {
        /// The index of an installed SA.
        index: u32,
    },
    /// Send this as an inner packet: a ping, or an exit message.
    SendInner {
        /// The session.
        session: SessionNumber,
        /// The inner packet.
        inner: Vec<u8>,
    },
    /// A command of the peer that the core does not handle, such as `INFO_PRE,...` or `CR_RESPONSE,...`.
    Command {
        /// The session.
        session: SessionNumber,
        /// The command.
        command: String,
    },
    /// Something that an operator should know.
    Report {
        /// The session.
        session: SessionNumber,
        /// What it is.
        report: Report,
    },
    /// The session has ended; its SAs are retired before.
    Closed {
        /// The session.
        session: SessionNumber,
        /// Where its peer was last.
        address: PeerAddress,
        /// Why.
        cause: Cause,
    },
}

/// What the core does not do, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Report {
    /// The peer sent a command with control characters.
    #[error("a command of the peer is ignored: it has control characters")]
    BadCommand,
    /// Options that a client cannot be told.
    #[error("these options are not pushed: they are too long, or have a comma or a control character: {0:?}")]
    NotPushed(Vec<String>),
}

/// A client that asks to be admitted, or whose new keys ask to be used.
#[derive(Clone, Debug)]
pub struct Request {
    /// The client's address.
    pub address: SocketAddr,
    /// The key that is asked about, which the verdict names.
    pub key_id: u8,
    /// Its certificates, its own first.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The user's.
    pub credentials: Credentials,
    /// What the client says about itself.
    pub info: PeerInfo,
    /// Whether the session is up, and only its keys are new.
    pub is_renewal: bool,
    /// What the client's key of tls-crypt-v2 was made for.
    pub key_metadata: Option<Metadata>,
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The negotiation took too long.
    #[error(
        "no answer within the handshake window: see the port, the firewall, and the tls-auth or tls-crypt key of both sides"
    )]
    HandshakeTimeout,
    /// Many clients begin at once, and another one needed the place.
    #[error("it has not authenticated yet, and another client needed the place")]
    Crowd,
    /// The negotiation failed.
    #[error(transparent)]
    Key(#[from] session::KeyError),
    /// Data keys cannot be made.
    #[error(transparent)]
    Data(#[from] DataKeyError),
    /// The client and we have no cipher in common.
    #[error(transparent)]
    NoCommonCipher(#[from] NoCommonCipher),
    /// The server pushed an option that we cannot serve.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The server's push reply is malformed.
    #[error("the server's push reply is malformed or endless")]
    BadPushReply,
    /// The server refused us.
    #[error("the server refused the authentication: {0}")]
    Refused(String),
    /// We do not take an option of the server.
    #[error("pull-filter rejects the server's option {0:?}")]
    Rejected(String),
    /// We refused the client.
    #[error("refused: {0}")]
    RefusedByUs(String),
    /// Nothing came for the time of `ping-restart`.
    #[error("nothing was received for {0} seconds")]
    Gone(u64),
    /// The same for the time of `ping-exit`: the program is to end.
    #[error("nothing was received for {0} seconds (ping-exit)")]
    PingExit(u64),
    /// The TCP connection of the session has ended.
    #[error("its TCP connection has ended")]
    ConnectionEnded,
    /// The peer has said that it exits.
    #[error("the peer has exited")]
    Exited,
    /// The server told us to connect again, or to stop.
    #[error("the server sent {0}")]
    Told(String),
    /// The caller has not decided about the client in time.
    #[error(
        "no decision about the client within the handshake window: see the scripts and the management interface"
    )]
    NoVerdict,
    /// The client began a new session from the same address.
    #[error("the client connected again")]
    Replaced,
    /// The caller ended the session.
    #[error("ended here")]
    Stopped,
}

/// Receives actions.
pub type Outbox = Vec<Action>;
