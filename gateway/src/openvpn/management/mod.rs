//! OpenVPN's management interface: commands of programs on this machine, and what they are told.
//!
//! ```text
//! socket ──> connection ── line ──> Command ──> board, or Ask ──> loop of the process ──> answer
//!                └── messages, bounded <── board <── states, lines of the log, questions, clients
//! ```
//! One client is served at a time, by a task of the loop of the process. Its buffers are bounded: a client that does not read is closed.
//! The thread of the protocol and the threads of packets never wait for it.

mod board;
mod clients;
mod connection;
mod help;
mod history;
pub mod line;
mod listener;
mod query;
#[cfg(test)]
mod tests;

pub use board::Board;
pub use clients::told;
pub use listener::{BindError, Ends, Listener};

use super::control_thread::{Decision, Snapshot, Victim};
use super::status::Format;
use config::openvpn::settings::AuthRetry;
use line::RemoteChoice;
use std::time::Duration;
use tokio::sync::oneshot;

/// What the loop of the process does for a client. Without an interface, while the process waits for `hold release`, the answers
/// are `None` or `false`.
pub enum Ask {
    /// The status; `None` for the format of `status-version`.
    Status(Option<Format>, oneshot::Sender<Option<String>>),
    /// The sessions, and whether this is a server.
    Sessions(oneshot::Sender<Option<(Snapshot, bool)>>),
    /// End sessions, which are told this; answers how many, or `None` on a client.
    Kill(Victim, String, oneshot::Sender<Option<usize>>),
    /// Decide about a client; whether it was asked about. `None` unless the server asks.
    Decide(ClientKey, Decision, oneshot::Sender<Option<bool>>),
    /// Tell a client that its user is needed: this text, for so long.
    Pending(ClientKey, String, Duration, oneshot::Sender<Option<bool>>),
    /// A client answers a challenge of its server; `None` on a server.
    Respond(String, oneshot::Sender<Option<bool>>),
    /// A signal.
    Signal(Signal),
    /// Leave the hold.
    Release,
    /// Read `verb`, after it was set if there is a value.
    Verb(Option<u8>, oneshot::Sender<u8>),
    /// The same for `mute`.
    Mute(Option<u32>, oneshot::Sender<u32>),
    /// The same for `auth-retry`.
    AuthRetry(Option<AuthRetry>, oneshot::Sender<AuthRetry>),
    /// Forget passwords.
    Forget,
    /// Where to connect to; whether that was asked. `None` on a server.
    Remote(RemoteChoice, oneshot::Sender<Option<bool>>),
    /// The servers of a client: host, port and protocol.
    Remotes(oneshot::Sender<Option<Vec<String>>>),
}

/// A client and the key that is asked about: CID and KID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientKey {
    /// The number of the client.
    pub client: u64,
    /// The number of the question.
    pub key: u64,
}

/// The signals of the command `signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names of signals")]
pub enum Signal {
    Hangup,
    Terminate,
    User1,
    User2,
}
