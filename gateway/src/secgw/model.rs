//! The answer of the API about `postern secgw`.

use crate::ipsec::model::IpsecPeer;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET /v1/secgw`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Secgw {
    /// The file that is in force.
    pub file: String,
    /// How often another one has taken its place since the start.
    pub reloads: u64,
    /// The ports.
    pub ports: Vec<Port>,
    /// The lcores, each with a worker.
    #[serde(default)]
    pub lcores: Vec<Lcore>,
    /// Packets that were put together from fragments.
    #[serde(default)]
    pub reassembled: u64,
    /// The SAs, in the order of the file.
    pub sas: Vec<Sa>,
    /// The policies, those for outbound packets first.
    pub rules: Vec<Rule>,
    /// Drops of all packets, with those of SAs; only reasons that have occurred.
    pub drops: Vec<Drop>,
    /// The Ethernet addresses behind ports.
    pub neighbours: Vec<Neighbour>,
    /// The peers of IKE that policies name, with their IKE SAs and tunnels.
    #[serde(default)]
    pub ike: Vec<IpsecPeer>,
}

impl Secgw {
    /// What was put together, as a sentence.
    pub fn reassembled_text(&self) -> String {
        format!("{} packets were put together from fragments", self.reassembled)
    }
}

/// A port.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Its interface.
    pub interface: String,
    /// Whether its packets are in clear.
    pub is_protected: bool,
    /// Frames received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// What the driver and the kernel count since the port was opened, at most a second old.
    #[serde(default)]
    pub driver: BTreeMap<String, u64>,
}

/// The counters of drivers.
const DRIVER_COUNTERS: [(&str, &str); 9] = [
    ("checksums_completed", "checksums that the sender's kernel had left to a network card"),
    ("rx_dropped", "longer than the room for a frame, or no room: the kernel dropped them"),
    ("rx_errors", "received with errors"),
    ("rx_missed", "the receive ring was full: more arrives than the gateway carries"),
    ("rx_no_buffer", "no memory to receive into"),
    ("rx_ring_full", "the receive ring was full: more arrives than the gateway carries"),
    ("tx_errors", "not sent, because of errors"),
    ("tx_invalid_descs", "the kernel refused to send them"),
    ("tx_refused", "not taken: the port is down, its queue or its disk is full"),
];

impl Port {
    /// The counters of the driver that are not 0, with what they mean.
    pub fn counted(&self) -> impl Iterator<Item = (&str, u64, &'static str)> {
        let counted = self.driver.iter().filter(|(_, count)| **count > 0);
        counted.map(|(name, &count)| {
            let meaning = DRIVER_COUNTERS.iter().find(|(known, _)| known == name);
            (name.as_str(), count, meaning.map_or("a counter of the driver", |(_, meaning)| *meaning))
        })
    }
}

/// An lcore.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Lcore {
    /// Its number.
    pub number: u32,
    /// Frames that it received, from all ports.
    pub received: u64,
    /// Frames that it sent, by all ports.
    pub sent: u64,
}

/// An SA.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Sa {
    /// `out` or `in`.
    pub direction: String,
    /// Its SPI.
    pub spi: u32,
    /// Its algorithms.
    pub algorithms: String,
    /// Its line of the file.
    pub line: u32,
    /// Packets: sent, or received and authentic.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that the SA dropped; only reasons that have occurred.
    pub drops: Vec<Drop>,
    /// What is left until it ends, if it has a limit.
    #[serde(default)]
    pub lifetime: Option<SaLifetime>,
}

/// What is left until an SA ends.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct SaLifetime {
    /// Seconds.
    pub seconds: Option<u64>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: Option<u64>,
    /// Whether it has ended: its packets are dropped.
    pub has_ended: bool,
}

impl SaLifetime {
    /// As a phrase.
    pub fn text(&self) -> String {
        if self.has_ended {
            return "ended".to_owned();
        }
        let of = |left: Option<u64>, unit: &str| left.map(|left| format!("{left} {unit}"));
        let parts = [of(self.seconds, "s"), of(self.bytes, "bytes"), of(self.packets, "packets")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A policy.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Rule {
    /// `out` or `in`.
    pub direction: String,
    /// Its line of the file; none for packets that match no policy, which are dropped.
    pub line: Option<u32>,
    /// What happens to its packets.
    pub action: String,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes, as IP packets in clear.
    pub bytes: u64,
}

/// Packets dropped for a reason.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Drop {
    /// The name of the reason.
    pub reason: String,
    /// What it means.
    pub meaning: String,
    /// How many.
    pub packets: u64,
}

/// The station behind a port.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Neighbour {
    /// The number of the port.
    pub port: u16,
    /// Its interface.
    pub interface: String,
    /// The Ethernet address of the station, to which all packets of the port go.
    pub address: String,
}
