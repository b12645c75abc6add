//! WireGuard peers as facts.

use super::api::ACTIVE;
use super::explain;
use super::labels::Labels;
use super::model::PeerState;
use super::update::{PeerSnapshot, Snapshot};
use crate::facts::model::{Protocol, State, Tunnel};
use ipnet::IpNet;
use std::time::Duration;

/// WireGuard has one cipher.
const SUITE: &str = "chacha20-poly1305";

/// The peers of an interface.
pub(super) fn tunnels(interface: &str, snapshot: &Snapshot, labels: &Labels, now: Duration) -> Vec<Tunnel> {
    let states = explain::states(snapshot, labels, now);
    let tunnel = |(peer, explained): (&PeerSnapshot, PeerState)| {
        let public_key = peer.public.to_string();
        Tunnel {
            protocol: Protocol::WireGuard,
            interface: interface.to_owned(),
            peer: labels.peers.get(&peer.public).map_or_else(|| public_key.clone(), |it| it.name.clone()),
            tunnel: None,
            state: state(peer, explained, now),
            endpoint: peer.endpoint.map(|endpoint| endpoint.remote.to_string()),
            public_key: Some(public_key),
            allowed_ips: peer.allowed_ips.iter().map(IpNet::to_string).collect(),
            suite: Some(SUITE.to_owned()),
            received_bytes: peer.received_bytes,
            sent_bytes: peer.sent_bytes,
            received_packets: peer.received_packets,
            sent_packets: peer.sent_packets,
            unsent_packets: Some(peer.unsent_packets),
            handshakes: Some(peer.handshakes),
            last_handshake: peer.last_handshake.map(|at| at.as_secs()),
            path: None,
        }
    };
    snapshot.peers.iter().zip(states).map(tunnel).collect()
}

/// WireGuard is silent without traffic: a peer is down only if its answer is overdue, or if handshakes have failed.
fn state(peer: &PeerSnapshot, explained: PeerState, now: Duration) -> State {
    let is_active = peer.last_handshake.is_some_and(|at| now.saturating_sub(at) < ACTIVE);
    match explained {
        PeerState::Down => State::Down,
        _ if is_active => State::Up,
        _ if peer.persistent_keepalive != 0 && peer.endpoint.is_some() => State::Down,
        _ => State::Waiting,
    }
}
