//! What the interface is at the moment.

use super::{ControlThread, Failed, Side};
use crate::datapath::tables::Peer;
use ipnet::IpNet;
use port::Transmit;
use std::net::SocketAddr;
use std::time::Duration;
use tunnel::openvpn::PeerAddress;

/// An interface.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Whether it is up.
    pub up: bool,
    /// The UDP port that is bound.
    pub port: u16,
    /// Whether it serves UDP and TCP.
    pub has_both: bool,
    /// The sessions that are connected.
    pub sessions: Vec<Session>,
    /// The last sessions that were refused or failed, the newest first.
    pub failed: Vec<Failed>,
    /// Outside bytes of sessions that have ended: received, sent.
    pub ended: (u64, u64),
}

impl Snapshot {
    /// Outside bytes of all sessions so far: received, sent.
    pub fn bytes(&self) -> (u64, u64) {
        self.sessions.iter().fold(self.ended, |(received, sent), session| {
            (received + session.received_bytes, sent + session.sent_bytes)
        })
    }
}

/// A connected session.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its number: the peer ID of its data packets.
    pub number: u32,
    /// The number of the connection, which is never used again.
    pub client_id: u64,
    /// The common name of a client.
    pub common_name: Option<String>,
    /// The user name of a client.
    pub user: Option<String>,
    /// Where the peer is.
    pub address: Option<PeerAddress>,
    /// Our address and UDP port that it sends to, if the address is known.
    pub local: Option<SocketAddr>,
    /// What leads to it.
    pub prefixes: Vec<IpNet>,
    /// The data cipher.
    pub cipher: String,
    /// For how long it has been connected.
    pub duration: Duration,
    /// When it was connected, since 1970.
    pub since: Duration,
    /// When something was received from it, since 1970.
    pub referred: Duration,
    /// Outside bytes received from it.
    pub received_bytes: u64,
    /// Outside bytes sent to it.
    pub sent_bytes: u64,
    /// Data packets received from it.
    pub received_packets: u64,
    /// Data packets sent to it.
    pub sent_packets: u64,
}

impl<T: Transmit> ControlThread<T> {
    pub(super) fn snapshot(&self) -> Snapshot {
        let clock = self.shared.clock.now();
        let now = clock.monotonic;
        let sessions = self.sessions.iter().map(|(number, entry)| {
            let (client_id, common_name, user) = match &self.side {
                Side::Server(server) => (
                    server.client_of(*number),
                    server.common_name(*number).map(str::to_owned),
                    server.user(*number).map(str::to_owned),
                ),
                Side::Client(_) => (0, None, None),
            };
            let control = self.control_bytes.of(*number);
            let Peer { endpoint, received, sent, .. } = &*entry.peer;
            let received_at = entry.activity.gone(Some(Duration::ZERO)).unwrap_or(now).min(now);
            Session {
                number: *number,
                client_id,
                common_name,
                user,
                address: endpoint.load().as_ref().map(|endpoint| PeerAddress::from(*endpoint)),
                local: endpoint.load().as_ref().and_then(|endpoint| {
                    let ip = endpoint.local?.to_canonical();
                    Some(SocketAddr::new(ip, self.binding.port_of(endpoint.binding)))
                }),
                prefixes: entry.prefixes.clone(),
                cipher: entry.cipher.to_string(),
                duration: now - entry.since,
                since: entry.since_wall,
                referred: clock.wall.saturating_sub(now - received_at),
                received_bytes: received.bytes() + control[0],
                sent_bytes: sent.bytes() + control[1],
                received_packets: received.packets(),
                sent_packets: sent.packets(),
            }
        });
        Snapshot {
            up: self.is_running,
            port: self.binding.port(),
            has_both: matches!(self.side, Side::Server(_))
                && self.tcp.as_ref().is_some_and(|tcp| !tcp.is_alone()),
            sessions: sessions.collect(),
            failed: self.history.all(),
            ended: self.ended,
        }
    }
}
