//! `postern monitor vpn`: the rates of all peers.

use super::rates::{Reading, watch};
use crate::answer::Answer;
use crate::request::Request;
use crate::{Failure, client, show_vpn};
use config::tree::natural_order;
use gateway::ipsec::model::{Ipsec, IpsecPeer};
use gateway::wireguard::model::{Interfaces, Peer};
use std::path::PathBuf;

pub(crate) fn follow(request: &Request) -> Result<Answer, Failure> {
    let request = request.clone();
    watch("Peer", move || read(&request))
}

fn read(request: &Request) -> Result<Vec<Reading>, Failure> {
    let wireguard: Vec<(PathBuf, Interfaces)> = client::ask_each(request.api(), "/v1/interfaces/wireguard")?;
    if wireguard.is_empty() {
        return Err(client::no_daemon().into());
    }
    let ipsec: Vec<(PathBuf, Ipsec)> = client::ask_each(request.api(), "/v1/vpn/ipsec")?;
    let ipsec = ipsec.into_iter().flat_map(|(_, answer)| answer.peers).map(|peer| of_ipsec(&peer));
    let interfaces = wireguard.into_iter().flat_map(|(_, answer)| answer.interfaces);
    let wireguard = interfaces.flat_map(|interface| {
        interface.peers.into_iter().map(move |peer| of_wireguard(&interface.name, peer))
    });
    let mut found: Vec<Reading> = ipsec.chain(wireguard).collect();
    found.sort_by(|a, b| a.kind.cmp(b.kind).then_with(|| natural_order(&a.name, &b.name)));
    Ok(found)
}

fn of_ipsec(peer: &IpsecPeer) -> Reading {
    let down = || peer.tunnels.iter().any(|tunnel| tunnel.sas.is_empty());
    let trouble = match peer.silent {
        Some(seconds) => Some(show_vpn::no_answer(seconds)),
        None => (!peer.up || down()).then(|| show_vpn::reason(peer)),
    };
    let sum = |of: fn(&gateway::ipsec::model::IpsecTunnel) -> u64| peer.tunnels.iter().map(of).sum();
    Reading {
        name: peer.name.clone(),
        kind: "ipsec",
        state: show_vpn::state(peer).to_owned(),
        bytes: [sum(|tunnel| tunnel.received_bytes), sum(|tunnel| tunnel.sent_bytes)],
        trouble,
    }
}

fn of_wireguard(interface: &str, peer: Peer) -> Reading {
    let state = match (&peer.failure, peer.active) {
        (Some(_), _) => "down",
        (None, true) => "up",
        (None, false) => "idle",
    };
    Reading {
        name: format!("{interface} {}", peer.name.unwrap_or(peer.public_key)),
        kind: "wireguard",
        state: state.to_owned(),
        bytes: [peer.received_bytes, peer.sent_bytes],
        trouble: peer.failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vpn::samples::{down, up};

    #[test]
    fn a_peer_is_read_with_the_sum_of_its_tunnels_and_what_is_wrong() {
        let mut peer = up();
        peer.tunnels.push(peer.tunnels[0].clone());
        let reading = of_ipsec(&peer);
        assert_eq!((reading.bytes, reading.trouble), ([2 * 235_520, 14 << 20], None));
        let reading = of_ipsec(&down());
        assert_eq!(
            (reading.state.as_str(), reading.trouble.as_deref()),
            ("down", Some("no common proposal for IKE"))
        );
    }
}
