//! The answers of the API about WireGuard.

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/interfaces/wireguard`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Interfaces {
    /// All interfaces of a daemon.
    pub interfaces: Vec<Interface>,
}

/// A WireGuard interface.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its description in the configuration.
    pub description: Option<String>,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Whether it is up.
    pub up: bool,
    /// Its MTU.
    pub mtu: usize,
    /// Our public key, in base64.
    pub public_key: Option<String>,
    /// The UDP port; 0 while none was chosen.
    pub listen_port: u16,
    /// The mark on outer packets; 0 for none.
    pub fwmark: u32,
    /// The peers.
    pub peers: Vec<Peer>,
}

/// A peer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Peer {
    /// Its name in the configuration.
    pub name: Option<String>,
    /// Its description in the configuration.
    #[serde(default)]
    pub description: Option<String>,
    /// Its key, in base64.
    pub public_key: String,
    /// Whether it has a pre-shared key.
    pub has_preshared_key: bool,
    /// The domain name that it is found by.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Its endpoint.
    pub endpoint: Option<String>,
    /// Its configured addresses, the preferred one first.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Why it is called at its endpoint; none unless it has several addresses.
    #[serde(default)]
    pub endpoint_reason: Option<String>,
    /// Its allowed prefixes.
    pub allowed_ips: Vec<String>,
    /// Seconds since 1970 of the last handshake.
    pub latest_handshake: Option<u64>,
    /// Whether the last handshake is at most five minutes old.
    pub active: bool,
    /// Outside bytes received.
    pub received_bytes: u64,
    /// Outside bytes sent.
    pub sent_bytes: u64,
    /// Packets for it that were dropped as `peer-congested` or `send-failed`.
    #[serde(default)]
    pub unsent_packets: u64,
    /// Seconds between keepalives; 0 for none.
    pub persistent_keepalive: u16,
    /// Why it is down, as `explain` says it; none if it is up, idle or waiting.
    #[serde(default)]
    pub failure: Option<String>,
}

/// `GET /v1/interfaces/wireguard/NAME/explain`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Explanations {
    /// The interface, if the daemon has it.
    pub interfaces: Vec<Explanation>,
}

/// Why the peers of a WireGuard interface are up or not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Explanation {
    /// The interface.
    pub interface: String,
    /// Our public key, in base64.
    pub public_key: Option<String>,
    /// The peers.
    pub peers: Vec<Explained>,
    /// Unknown sources of handshake messages; nothing in these is authenticated.
    pub callers: Vec<Caller>,
}

/// Why a WireGuard peer is up or not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Explained {
    /// Its name in the configuration.
    pub name: Option<String>,
    /// Its key, in base64.
    pub public_key: String,
    /// Its endpoint.
    pub endpoint: Option<String>,
    /// Its allowed prefixes.
    pub allowed_ips: Vec<String>,
    /// Whether it has a pre-shared key.
    pub has_preshared_key: bool,
    /// Whether it is up.
    pub state: PeerState,
    /// The findings, the most important first.
    pub findings: Vec<Finding>,
}

/// A finding about a peer, and its fix.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Finding {
    /// The finding.
    pub what: String,
    /// What to type or to do, a line each; empty if nothing is wrong.
    pub fix: Vec<String>,
}

/// An unknown source of handshake messages.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Caller {
    /// The public key that it claims, in base64; none if its messages are for another public key than ours.
    pub public_key: Option<String>,
    /// Where its last message came from.
    pub address: String,
    /// Its messages.
    pub count: u64,
    /// Seconds since 1970 of the last one.
    pub latest: u64,
}

words! {
    /// Whether a WireGuard peer is up.
    #[derive(Default)]
    PeerState {
        /// It has keys, and answers.
        Up = "up",
        /// It had keys, and there is no traffic.
        Idle = "idle",
        /// There was no handshake yet, and no failed one.
        #[default]
        Waiting = "waiting",
        /// It does not answer, or cannot be reached as configured.
        Down = "down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_state_has_its_json_word() {
        use PeerState as P;
        check(&[(P::Up, "up"), (P::Idle, "idle"), (P::Waiting, "waiting"), (P::Down, "down")]);
    }
}
