//! What the control thread is told, and what it tells the owner of the interface.

use super::server::Decision;
use super::show::Snapshot;
use crate::openvpn::login::Question;
use crate::openvpn::options::Network;
use crate::openvpn::scripts::{Answer, Environment};
use crate::openvpn::settings::{ForClients, Remote};
use config::openvpn::settings::AuthRetry;
use ipnet::IpNet;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;
use tunnel::openvpn::action::SessionNumber;
use tunnel::openvpn::key_method::Credentials;
use zeroize::Zeroizing;

/// A request of control.
pub enum Command {
    /// Show the sessions.
    Snapshot(oneshot::Sender<Snapshot>),
    /// The interface went up or down, or has another MTU.
    Link {
        /// Whether it is up.
        up: bool,
        /// Its MTU.
        mtu: usize,
    },
    /// A server that waits for its programs may serve clients.
    Release,
    /// The servers of a client have these addresses now.
    Servers(Vec<Remote>),
    /// New clients are told this from now on, and clients with other settings than before connect again.
    ForClients(ForClients),
    /// The user has answered the question of [`Report::Asks`].
    Answer(Credentials),
    /// End the sessions; a client connects again.
    Restart,
    /// End sessions of clients.
    Disconnect {
        /// Which ones.
        victim: Victim,
        /// What they are told.
        told: String,
        /// How many there were.
        reply: oneshot::Sender<usize>,
    },
    /// A program has answered a question about a client.
    Answered {
        /// The session.
        session: SessionNumber,
        /// The question.
        ticket: u64,
        /// The answer.
        answer: Answer,
    },
    /// A password was compared with the hash of its user.
    Checked {
        /// The session.
        session: SessionNumber,
        /// The question.
        ticket: u64,
        /// Whether it is the right one.
        is_right: bool,
    },
    /// The file of hashes of passwords was looked at.
    PasswordHashes(Answer),
    /// The revocation list was looked at.
    Revocations(Answer),
    /// The management interface has decided about a client, after [`ClientEvent::Asked`].
    Decide {
        /// The number of the client.
        client: u64,
        /// The key that was asked about.
        key: u64,
        /// The decision.
        decision: Decision,
        /// Whether it is asked about still.
        reply: oneshot::Sender<bool>,
    },
    /// The management interface decides later: the user of the client is needed.
    Pending {
        /// The number of the client.
        client: u64,
        /// The key that was asked about.
        key: u64,
        /// What the client is told, in the words of `INFO_PRE`.
        text: String,
        /// How long it may take.
        wait: Duration,
        /// Whether it is asked about still.
        reply: oneshot::Sender<bool>,
    },
    /// A client answers a challenge of its server (`cr-response`); whether it is connected.
    Respond(String, oneshot::Sender<bool>),
    /// What a client does when its password is refused.
    AuthRetry(AuthRetry),
    /// Forget passwords that the user has entered.
    Forget,
    /// An attempt to connect may go on, after [`Report::Holds`].
    LeaveHold,
    /// Where to connect to, after [`Report::Connects`].
    Remote(Chosen),
    /// Tell the peers, and stop the thread.
    Stop,
}

/// Clients that are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Those with this common name.
    Name(String),
    /// Those at this address.
    Address {
        /// The address and the port.
        socket: SocketAddr,
        /// The protocol, TCP or UDP; both if none is named.
        is_tcp: Option<bool>,
    },
    /// The one with this number.
    Client(u64),
}

/// Where to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// To the server that is next.
    Next,
    /// To one after it: so many are left out.
    Skip(u32),
    /// To this one.
    Other(Remote),
}

/// What the management interface is told about clients of a server (`management-client-auth`).
#[derive(Debug)]
pub enum ClientEvent {
    /// A client waits for a decision.
    Asked {
        /// The number of the client.
        client: u64,
        /// Its key, which the decision names.
        key: u64,
        /// Whether the session is up, and only its keys are new.
        is_renewal: bool,
        /// What is known about it, with the password.
        environment: Environment,
    },
    /// Its session is up.
    Established {
        /// The number of the client.
        client: u64,
        /// What is known about it.
        environment: Environment,
    },
    /// Its session has ended.
    Disconnected {
        /// The number of the client.
        client: u64,
        /// What is known about it.
        environment: Environment,
    },
    /// An address leads to it.
    Address {
        /// The number of the client.
        client: u64,
        /// The address, or a network.
        prefix: IpNet,
        /// Whether it is its own address.
        is_primary: bool,
    },
    /// It has answered a challenge.
    Response {
        /// The number of the client.
        client: u64,
        /// Its last key.
        key: u64,
        /// The answer.
        text: String,
        /// What is known about it.
        environment: Environment,
    },
}

/// What a client is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for the first answer of its server, which is there.
    Waiting(SocketAddr),
    /// It negotiates keys.
    Authenticating,
    /// It asks for its options.
    Configuring,
    /// The server waits for the user, for so long if it has said so.
    Pending(Option<Duration>),
}

/// What the thread tells the owner of the interface.
#[derive(Debug)]
pub enum Report {
    /// The sockets are bound.
    Listens,
    /// A server has proved who it is.
    Found {
        /// Its address.
        server: SocketAddr,
        /// Variables about it.
        about: Environment,
    },
    /// A session that was up has ended; OpenVPN's name of the reason.
    Disconnected(&'static str),
    /// A client is to end, for this reason in OpenVPN's words.
    Over(&'static str),
    /// A server has given us this network.
    Configured(Box<Network>),
    /// An attempt has failed or a session has ended, for this reason: the names of servers may have other addresses.
    Reconnects(&'static str),
    /// All servers were tried as often as they may be.
    GaveUp,
    /// The user must be asked before the next attempt to connect.
    Asks(Question),
    /// The server has refused us for good, with this reason.
    Refused(String),
    /// Something happened to a client of a server.
    Client(ClientEvent),
    /// A client goes on to this.
    Stage(Stage),
    /// An attempt to connect waits for [`Command::LeaveHold`].
    Holds,
    /// An attempt to connect waits for [`Command::Remote`]: this server is next.
    Connects(Remote),
    /// The server has refused the password, for this reason.
    Failed(String),
    /// The server has given us a token.
    Token(Zeroizing<String>),
    /// A message of the server for the user.
    Info(String),
    /// A text of `echo` of the server.
    Echo(String),
}
