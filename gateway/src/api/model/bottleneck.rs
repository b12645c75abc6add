//! What limits the speed of interfaces.

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

words! {
    /// What limits the speed of an interface in one direction.
    #[derive(Default)]
    Limit {
        /// There is no traffic.
        NoTraffic = "no-traffic",
        /// Nothing in the gateway: the sender, the path or the peer.
        #[default]
        Elsewhere = "elsewhere",
        /// The cipher.
        Cipher = "cipher",
        /// What one thread must do alone.
        OneCore = "one-core",
        /// Other programs that use the processors.
        Host = "host",
        /// The hypervisor, which takes time of the processors.
        Hypervisor = "hypervisor",
        /// The link outside takes less than is sent.
        Path = "path",
        /// The queue of packets into the tunnel.
        TunQueue = "tun-queue",
        /// The receive buffer of the socket.
        SocketBuffer = "socket-buffer",
        /// Packets are longer than the tunnel carries.
        Mtu = "mtu",
        /// Packets are lost somewhere between both ends: TCP sends them again.
        Loss = "loss",
        /// The share of processor time that the daemon's control group may use.
        Quota = "quota",
        /// Packets are dropped for another reason.
        Drops = "drops",
    }
}

/// `GET /v1/stages`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Stages {
    /// The stages of every interface.
    pub stages: Vec<StageTime>,
}

/// What a stage took, of the bursts that were timed: one in 64.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct StageTime {
    /// The interface.
    pub interface: String,
    /// `out` or `in`.
    pub direction: String,
    /// The stage.
    pub stage: String,
    /// Its time.
    pub nanoseconds: u64,
    /// The packets that it was for.
    pub packets: u64,
}

/// TCP segments that carry data, of the bursts of one direction that were looked at: one a millisecond.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Segments {
    /// The interface.
    pub interface: String,
    /// `out` or `in`.
    pub direction: String,
    /// All of them.
    pub all: u64,
    /// Those that came again, or out of order: packets are lost or overtaken between both ends of their connection.
    pub resent: u64,
}

/// `GET /v1/bottleneck`: the daemon looks for a second, and answers then.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Bottlenecks {
    /// Every interface, in both directions.
    pub bottlenecks: Vec<Bottleneck>,
}

/// What limits an interface in one direction.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Bottleneck {
    /// The interface.
    pub interface: String,
    /// `out`, from inside to outside, or `in`.
    pub direction: String,
    /// The limit.
    pub limit: Limit,
    /// The limit in a sentence.
    pub sentence: String,
    /// What it was concluded from.
    pub evidence: Vec<String>,
    /// What to do about it.
    pub remedy: Option<String>,
    /// Packets a second that the worker received.
    pub packets_per_second: f64,
    /// Bits a second that the worker received.
    pub bits_per_second: f64,
    /// The part of one processor that the worker used.
    pub load: f64,
    /// The part of the time in which the worker waited for a processor.
    pub waited: f64,
    /// Nanoseconds a packet of each stage.
    pub stages: Vec<StageShare>,
}

/// What a stage takes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct StageShare {
    /// The stage.
    pub stage: String,
    /// For a packet.
    pub nanoseconds: f64,
    /// Of all stages of the direction.
    pub share: f64,
}
