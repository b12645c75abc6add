//! IPsec tunnels as facts.

use super::NAME;
use super::model::{ConnectionType, IpsecPeer, IpsecTunnel};
use crate::facts::model::{Protocol, State, Tunnel};

/// The tunnels of all peers. A profile that has instances is none itself.
pub(super) fn tunnels(peers: &[IpsecPeer], now: u64) -> Vec<Tunnel> {
    let peers = peers.iter().filter(|peer| !peer.has_instances());
    peers.flat_map(|peer| peer.tunnels.iter().map(move |it| tunnel(peer, it, now))).collect()
}

fn tunnel(peer: &IpsecPeer, tunnel: &IpsecTunnel, now: u64) -> Tunnel {
    Tunnel {
        protocol: Protocol::Ipsec,
        interface: NAME.to_owned(),
        peer: peer.name.clone(),
        tunnel: Some(tunnel.number),
        state: if tunnel.sas.is_empty() { missing(peer) } else { State::Up },
        endpoint: peer.ike.as_ref().map(|ike| ike.remote.clone()).or_else(|| peer.remote_address.clone()),
        public_key: None,
        allowed_ips: Vec::new(),
        suite: tunnel.sas.last().map(|sa| sa.suite.clone()),
        received_bytes: tunnel.received_bytes,
        sent_bytes: tunnel.sent_bytes,
        received_packets: tunnel.received_packets,
        sent_packets: tunnel.sent_packets,
        unsent_packets: Some(tunnel.unsent_packets),
        handshakes: None,
        last_handshake: peer.uptime.map(|uptime| now.saturating_sub(uptime)),
        path: None,
    }
}

/// The state of a tunnel without keys: waiting, unless it should have keys or its negotiation has failed.
fn missing(peer: &IpsecPeer) -> State {
    let waits = matches!(peer.connection_type, ConnectionType::None | ConnectionType::Trap);
    if waits && peer.failure.is_none() { State::Waiting } else { State::Down }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipsec::model::{IpsecFailure, IpsecSa};

    fn peer(connection_type: ConnectionType, sas: usize) -> IpsecPeer {
        let sas = vec![IpsecSa { suite: "aes128gcm16".to_owned(), ..IpsecSa::default() }; sas];
        let tunnel = IpsecTunnel { number: 2, received_bytes: 7, sas, ..IpsecTunnel::default() };
        IpsecPeer {
            name: "berlin".to_owned(),
            connection_type,
            tunnels: vec![tunnel],
            ..IpsecPeer::default()
        }
    }

    #[test]
    fn a_tunnel_without_keys_is_down_only_if_it_should_have_some() {
        let state = |peer: IpsecPeer| tunnels(&[peer], 100)[0].state;
        assert_eq!(state(peer(ConnectionType::Initiate, 1)), State::Up);
        assert_eq!(state(peer(ConnectionType::Initiate, 0)), State::Down);
        assert_eq!(state(peer(ConnectionType::Trap, 0)), State::Waiting);
        let failure = Some(IpsecFailure::default());
        assert_eq!(state(IpsecPeer { failure, ..peer(ConnectionType::None, 0) }), State::Down);
    }

    #[test]
    fn a_tunnel_is_named_by_peer_and_number_and_a_profile_is_its_instances() {
        let up = IpsecPeer { uptime: Some(40), ..peer(ConnectionType::Initiate, 2) };
        let shown = tunnels(std::slice::from_ref(&up), 100).remove(0);
        assert_eq!((&*shown.peer, shown.tunnel, shown.last_handshake), ("berlin", Some(2), Some(60)));
        assert_eq!((shown.suite.as_deref(), shown.received_bytes), (Some("aes128gcm16"), 7));
        assert!(tunnels(&[IpsecPeer { instances: Some(1), ..up }], 100).is_empty());
    }
}
