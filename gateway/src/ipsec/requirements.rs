//! What the IPsec peers of a configuration need of the machine.

use super::{NAME, path_of};
use crate::daemon::needs::Needs;
use crate::service::Requirements;
use config::Settings;
use config::settings::ipsec::{Encryption, EspProposal, Peer};
use crypto::choice::Subject;
use crypto::cipher::Pair;
use std::sync::Arc;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// Of all peers.
pub fn requirements(settings: &Settings) -> Requirements {
    let peers = &settings.ipsec.peers;
    let tunnels = || peers.values().flat_map(|peer| peer.tunnels.values());
    let local = tunnels().flat_map(|tunnel| &tunnel.local.prefixes);
    let networks = local.filter(|prefix| prefix.prefix_len() != prefix.max_prefix_len());
    let own = |(name, peer): (&String, &Arc<Peer>)| {
        Some((peer.local_address?, path_of(["site-to-site", "peer", name, "local-address"])))
    };
    Requirements {
        served: vec![(peers.len(), "IPsec peer")],
        ports: if peers.is_empty() { Vec::new() } else { ports().to_vec() },
        ciphers: tunnels().flat_map(|tunnel| &tunnel.esp.proposals).flat_map(ciphers).collect(),
        needs: Needs {
            forwarded: networks.map(|prefix| (NAME.to_owned(), *prefix)).collect(),
            local: peers.iter().filter_map(own).collect(),
        },
    }
}

/// The UDP ports of a gateway.
pub fn ports() -> [u16; 2] {
    [IKE_PORT, NAT_PORT]
}

/// The algorithms that protect the packets of a tunnel under this proposal.
pub(crate) fn ciphers(proposal: &EspProposal) -> Vec<Subject> {
    match proposal.encryption {
        Encryption::Aead(cipher, _) | Encryption::Gmac(cipher) => vec![cipher.into()],
        Encryption::Plain(encryption) => {
            proposal.integrity.iter().map(|&integrity| Pair { encryption, integrity }.into()).collect()
        }
    }
}
