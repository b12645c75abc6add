//! OpenVPN sessions as facts.
//!
//! A client of a server is a peer while it is connected. A client, and each of two sites, has one peer, which is down without a
//! session.

use super::control_thread::{Session, Snapshot};
use super::model::Mode;
use crate::facts::model::{Protocol, State, Tunnel};
use std::collections::BTreeMap;

/// The peers of an interface. Sessions of one name are one peer.
pub(super) fn tunnels(interface: &str, mode: Mode, snapshot: &Snapshot) -> Vec<Tunnel> {
    let tunnel = |peer: &str, state| Tunnel {
        protocol: Protocol::OpenVpn,
        interface: interface.to_owned(),
        peer: peer.to_owned(),
        state,
        ..Tunnel::default()
    };
    let mut peers: BTreeMap<&str, Tunnel> = BTreeMap::new();
    if let Some(other) = other_side(mode) {
        peers.insert(other, tunnel(other, State::Down));
    }
    for session in &snapshot.sessions {
        let peer = other_side(mode).or(session.common_name.as_deref()).unwrap_or_default();
        add(peers.entry(peer).or_insert_with(|| tunnel(peer, State::Up)), session);
    }
    peers.into_values().collect()
}

/// The only peer of an interface, which has no name.
fn other_side(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Server => None,
        Mode::Client => Some("server"),
        Mode::SiteToSite => Some("site"),
    }
}

fn add(tunnel: &mut Tunnel, session: &Session) {
    tunnel.state = State::Up;
    tunnel.suite = Some(session.cipher.clone());
    tunnel.endpoint = session.address.map(|address| address.socket.to_string());
    tunnel.received_bytes += session.received_bytes;
    tunnel.sent_bytes += session.sent_bytes;
    tunnel.received_packets += session.received_packets;
    tunnel.sent_packets += session.sent_packets;
    tunnel.last_handshake = tunnel.last_handshake.max(Some(session.since.as_secs()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn session(common_name: Option<&str>, bytes: u64) -> Session {
        Session {
            number: 0,
            client_id: 0,
            user: None,
            since: Duration::from_secs(bytes),
            referred: Duration::ZERO,
            common_name: common_name.map(str::to_owned),
            address: None,
            local: None,
            prefixes: Vec::new(),
            cipher: "AES-256-GCM".to_owned(),
            duration: Duration::ZERO,
            received_bytes: bytes,
            sent_bytes: 2 * bytes,
            received_packets: 1,
            sent_packets: 2,
        }
    }

    fn snapshot(sessions: Vec<Session>) -> Snapshot {
        Snapshot { up: true, port: 1194, has_both: false, sessions, failed: Vec::new(), ended: (0, 0) }
    }

    #[test]
    fn sessions_of_one_name_are_one_peer() {
        let sessions = vec![session(Some("anna"), 10), session(Some("bert"), 1), session(Some("anna"), 5)];
        let peers = tunnels("vtun0", Mode::Server, &snapshot(sessions));
        let shown: Vec<_> = peers
            .iter()
            .map(|it| (&*it.peer, it.received_bytes, it.sent_packets, it.last_handshake))
            .collect();
        assert_eq!(shown, [("anna", 15, 4, Some(10)), ("bert", 1, 2, Some(1))]);
        assert!(tunnels("vtun0", Mode::Server, &snapshot(Vec::new())).is_empty());
    }

    #[test]
    fn a_client_has_one_peer_which_is_down_without_a_session() {
        let of = |mode, sessions| {
            let peers = tunnels("vtun0", mode, &snapshot(sessions));
            (peers.len(), peers[0].peer.clone(), peers[0].state)
        };
        assert_eq!(of(Mode::Client, Vec::new()), (1, "server".to_owned(), State::Down));
        assert_eq!(of(Mode::SiteToSite, vec![session(None, 3)]), (1, "site".to_owned(), State::Up));
    }
}
