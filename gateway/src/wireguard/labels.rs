//! What the configuration calls an interface and its peers, for those who read about them.

use super::names::Known;
use config::settings::WireGuard;
use crypto::PublicKey;
use std::collections::HashMap;

/// What is known of an interface beyond what the interface itself knows.
#[derive(Default, Clone)]
pub struct Labels {
    /// What it is for.
    pub description: Option<String>,
    /// What the configuration calls its peers.
    pub peers: HashMap<PublicKey, PeerLabels>,
    /// What is known of names.
    pub known: Known,
}

/// What the configuration calls a peer.
#[derive(Default, Clone)]
pub struct PeerLabels {
    /// Its name.
    pub name: String,
    /// Who it is.
    pub description: Option<String>,
    /// The domain name that it is found by.
    pub host: Option<String>,
}

impl Labels {
    /// The labels that a configuration gives.
    pub fn new(settings: &WireGuard, known: Known) -> Self {
        let peers = settings.peers.iter().map(|(name, peer)| {
            let (description, host) =
                (peer.description.clone(), peer.host.as_ref().map(|host| host.name.clone()));
            (peer.public_key, PeerLabels { name: name.clone(), description, host })
        });
        Self { description: settings.description.clone(), peers: peers.collect(), known }
    }
}
