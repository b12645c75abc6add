//! The facts, typed: what every view reads.

use crate::api::model::{CryptoEngine, Handoff, Offload, Segments, StageTime, Thread, Worker};
use crate::api::words::words;
use crate::failover::model::Group;
use crate::health::model::Rule;
use crate::path::model::Path;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/facts`: what is known of a daemon at one moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Facts {
    /// Seconds since 1970.
    pub at: u64,
    /// The same moment on a clock that is never set, in milliseconds: rates are over differences of it.
    #[serde(default)]
    pub moment: u64,
    /// The daemon.
    pub daemon: Daemon,
    /// Its process.
    pub process: Process,
    /// The tunnels of all protocols, by interface and peer.
    pub tunnels: Vec<Tunnel>,
    /// Tunnels that stand in for each other.
    #[serde(default)]
    pub failover: Vec<Group>,
    /// Every drop reason of every interface.
    pub drops: Vec<Drop>,
    /// The workers that carry packets between TUN and UDP.
    pub workers: Vec<Worker>,
    /// The threads that carry packets.
    pub threads: Vec<Thread>,
    /// What workers hand off to crypto threads.
    pub handoffs: Vec<Handoff>,
    /// The times of stages.
    #[serde(default)]
    pub stages: Vec<StageTime>,
    /// TCP segments that were looked at.
    #[serde(default)]
    pub segments: Vec<Segments>,
    /// The offloads of the interfaces.
    pub offloads: Vec<Offload>,
    /// The crypto engines.
    pub engines: Vec<CryptoEngine>,
    /// What the rules of health said of the snapshot before.
    #[serde(default)]
    pub health: Vec<Rule>,
}

/// A daemon and its configuration.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Daemon {
    /// Its version.
    pub version: String,
    /// Seconds since 1970 of its start.
    pub started: u64,
    /// The revision of the configuration in force; none for a daemon without a configuration file.
    pub revision: Option<u64>,
    /// The parts of the configuration that are not in force.
    pub refused_parts: usize,
}

/// The process of a daemon, as proc(5) shows it. What cannot be read is missing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Process {
    /// Seconds of processor time, of the user and the system.
    pub cpu_seconds: Option<f64>,
    /// Bytes of memory that are resident.
    pub resident_bytes: Option<u64>,
    /// Bytes of address space.
    pub virtual_bytes: Option<u64>,
    /// Threads.
    pub threads: Option<u64>,
    /// Open file descriptors.
    pub open_files: Option<u64>,
    /// The limit of those.
    pub most_files: Option<u64>,
}

/// A tunnel to a peer, named as the configuration names it: nothing here that identifies it changes when keys do.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Tunnel {
    /// Its protocol.
    pub protocol: Protocol,
    /// Its interface.
    pub interface: String,
    /// The peer: its name; without one, its public key or its side.
    pub peer: String,
    /// The number of the tunnel, where a peer may have several.
    pub tunnel: Option<u32>,
    /// Whether it is up.
    pub state: State,
    /// Where the peer is: an address, with its port where the protocol has one.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// The public key of a WireGuard peer, in base64.
    pub public_key: Option<String>,
    /// The prefixes of a WireGuard peer.
    pub allowed_ips: Vec<String>,
    /// The algorithms in use.
    pub suite: Option<String>,
    /// Outside bytes received.
    pub received_bytes: u64,
    /// Outside bytes sent.
    pub sent_bytes: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that were dropped as `peer-congested` or `send-failed`, where that is counted.
    pub unsent_packets: Option<u64>,
    /// Completed handshakes since the interface has the peer, where they are counted.
    pub handshakes: Option<u64>,
    /// Seconds since 1970 of the last completed handshake, if there was one.
    pub last_handshake: Option<u64>,
    /// What probes measure of its path, if it is probed.
    #[serde(default)]
    pub path: Option<Box<Path>>,
}

/// How many packets an interface dropped for one reason.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Drop {
    /// The interface.
    pub interface: String,
    /// The reason's name.
    pub reason: String,
    /// Packets from inside.
    pub outbound: u64,
    /// Packets from outside.
    pub inbound: u64,
    /// Handshake messages, and packets that waited for one.
    pub handshake: u64,
}

/// `GET /v1/facts/history`: what interfaces carried and lost in the last ten minutes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct History {
    /// Seconds between two points.
    pub step: u64,
    /// Seconds since 1970 of each point, the oldest first.
    pub at: Vec<u64>,
    /// The interfaces.
    pub interfaces: Vec<InterfaceHistory>,
}

/// What an interface carried and lost: one value for each point, none where it was not there.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct InterfaceHistory {
    /// Its name.
    pub interface: String,
    /// Outside bits received.
    pub received_bits_per_second: Vec<Option<f32>>,
    /// Outside bits sent.
    pub sent_bits_per_second: Vec<Option<f32>>,
    /// Packets dropped for any reason.
    pub dropped_per_second: Vec<Option<f32>>,
}

words! {
    /// The protocol of a tunnel.
    #[derive(Default, Hash, PartialOrd, Ord)]
    Protocol {
        /// WireGuard.
        #[default]
        WireGuard = "wireguard",
        /// IPsec.
        Ipsec = "ipsec",
        /// OpenVPN.
        OpenVpn = "openvpn",
    }

    /// Whether a tunnel is up, as `postern status` says it.
    #[derive(Default, Hash, PartialOrd, Ord)]
    State {
        /// It carries packets.
        Up = "up",
        /// It has no keys, and needs none: there is no traffic, or the peer has not called.
        #[default]
        Waiting = "waiting",
        /// It should be up, and is not.
        Down = "down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_protocol_and_state_has_its_json_word() {
        use Protocol as P;
        check(&[(P::WireGuard, "wireguard"), (P::Ipsec, "ipsec"), (P::OpenVpn, "openvpn")]);
        check(&[(State::Up, "up"), (State::Waiting, "waiting"), (State::Down, "down")]);
    }
}
