//! What the control thread is told, and what it tells the owner of the interface.

use super::server::Decision;
use super::show::Snapshot;
use crate::openvpn::login::Question;
use crate::openvpn::options::Network;
use crate::openvpn::scripts::{Answer, Environment};
use crate::openvpn::settings::Remote;
use std::net::SocketAddr;
use tunnel::openvpn::action::SessionNumber;
use tunnel::openvpn::key_method::Credentials;

/// A request of control.
pub enum Command {
    /// Show the sessions.
    Snapshot(tokio::sync::oneshot::Sender<Snapshot>),
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
    /// The user has answered the question of [`Report::Asks`].
    Answer(Credentials),
    /// End the sessions; a client connects again.
    Restart,
    /// End the sessions of clients with this common name; how many there were.
    Disconnect(String, tokio::sync::oneshot::Sender<usize>),
    /// A program has answered a question about a client.
    Answered {
        /// The session.
        session: SessionNumber,
        /// The question.
        ticket: u64,
        /// The answer.
        answer: Answer,
    },
    /// The revocation list was looked at.
    Revocations(Answer),
    /// The management interface has decided about a client, after [`Report::Asked`]. It is ignored if that is not asked any more.
    Verdict {
        /// The session.
        session: SessionNumber,
        /// The key that was asked about.
        key_id: u8,
        /// The decision.
        verdict: Decision,
    },
    /// Tell the peers, and stop the thread.
    Stop,
}

/// A client about which the management interface is asked (`management-client-auth`).
#[derive(Debug)]
pub struct Asked {
    /// The session.
    pub session: SessionNumber,
    /// Its key, which the verdict names.
    pub key_id: u8,
    /// Whether the session is up, and only its keys are new.
    pub is_renewal: bool,
    /// What is known about it, with the password.
    pub environment: Environment,
}

/// What the thread tells the owner of the interface.
#[derive(Debug)]
pub enum Report {
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
    /// An attempt has failed or a session has ended: the names of servers may have other addresses.
    Reconnects,
    /// All servers were tried as often as they may be.
    GaveUp,
    /// The user must be asked before the next attempt to connect.
    Asks(Question),
    /// The server has refused us for good, with this reason.
    Refused(String),
    /// A client waits for a verdict of the management interface.
    Asked(Asked),
}
