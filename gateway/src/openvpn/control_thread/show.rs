//! What the interface is at the moment.

use super::{ControlThread, Failed, Side};
use crate::datapath::tables::Peer;
use ipnet::IpNet;
use port::Transmit;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// An interface.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Whether it is up.
    pub up: bool,
    /// The UDP port that is bound.
    pub port: u16,
    /// The sessions that are connected.
    pub sessions: Vec<Session>,
    /// The last sessions that were refused or failed, the newest first.
    pub failed: Vec<Failed>,
}

/// A connected session.
#[derive(Clone, Debug)]
pub struct Session {
    /// The common name of a client.
    pub common_name: Option<String>,
    /// Where the peer is.
    pub address: Option<SocketAddr>,
    /// Our address that it sends to, if that is known.
    pub local: Option<IpAddr>,
    /// What leads to it.
    pub prefixes: Vec<IpNet>,
    /// The data cipher.
    pub cipher: String,
    /// For how long it has been connected.
    pub duration: Duration,
    /// Outside bytes received from it.
    pub received_bytes: u64,
    /// Outside bytes sent to it.
    pub sent_bytes: u64,
}

impl<T: Transmit> ControlThread<T> {
    pub(super) fn snapshot(&self) -> Snapshot {
        let now = self.shared.clock.monotonic();
        let sessions = self.sessions.iter().map(|(number, entry)| {
            let common_name = match &self.side {
                Side::Server(server) => server.common_name(*number).map(str::to_owned),
                Side::Client(_) => None,
            };
            let Peer { endpoint, received, sent, .. } = &*entry.peer;
            Session {
                common_name,
                address: endpoint.load().as_ref().map(|endpoint| endpoint.remote),
                local: endpoint.load().as_ref().and_then(|endpoint| endpoint.local),
                prefixes: entry.prefixes.clone(),
                cipher: entry.cipher.to_string(),
                duration: now - entry.since,
                received_bytes: received.bytes(),
                sent_bytes: sent.bytes(),
            }
        });
        Snapshot {
            up: self.is_running,
            port: self.binding.port(),
            sessions: sessions.collect(),
            failed: self.history.all(),
        }
    }
}
