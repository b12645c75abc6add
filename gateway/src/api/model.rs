//! The answers of the API that are of no protocol, as `postern show` reads them and prints them with `--json`.
//!
//! Those of a protocol are in its folder: `model.rs`.

mod bottleneck;
mod configuration;

pub use bottleneck::*;
pub use configuration::*;

use super::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a request was refused: the body of every answer with an error status.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Problem {
    /// What is wrong.
    pub error: String,
    /// What to do.
    pub fix: Option<String>,
}

/// A warning: something works, but not as it should.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Advice {
    /// What it is.
    pub what: String,
    /// What to type.
    pub fix: String,
}

/// `GET /v1/status`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Seconds since 1970 of its start.
    pub started: u64,
    /// Its configuration file; none for an interface that `wg` configures.
    pub configuration: Option<Configuration>,
    /// The parts of the configuration that are not in force.
    pub refused: Vec<Refused>,
    /// Warnings.
    pub warnings: Vec<Advice>,
}

/// The configuration file of a daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Configuration {
    /// Where it is.
    pub file: String,
    /// Seconds since 1970.
    pub in_force_since: u64,
    /// The result of the last reload, if there was one.
    pub last_reload: Option<Reloaded>,
}

/// A part of the configuration that is not in force.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Refused {
    /// Which part.
    pub place: String,
    /// Why.
    pub why: String,
    /// Whether it is tried again.
    pub is_temporary: bool,
}

/// `POST /v1/reload`: the result of reading the configuration again.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Reloaded {
    /// Seconds since 1970.
    pub at: u64,
    /// Whether all, part or nothing of it is in force.
    pub outcome: ReloadOutcome,
    /// The changes of the file, a line each, without secrets.
    pub changes: Vec<String>,
    /// What is wrong.
    pub errors: Vec<String>,
}

/// `GET /v1/drops`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Drops {
    /// Every reason of every interface.
    pub drops: Vec<Drop>,
}

/// How many packets an interface dropped for one reason.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Drop {
    /// The interface.
    pub interface: String,
    /// The reason's name.
    pub reason: String,
    /// What it means.
    pub meaning: String,
    /// Packets from inside.
    pub outbound: u64,
    /// Packets from outside.
    pub inbound: u64,
    /// Handshake messages, and packets that waited for one.
    pub handshake: u64,
}

/// `GET /v1/workers`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Workers {
    /// The workers of every interface that carry packets between TUN and UDP.
    pub workers: Vec<Worker>,
}

/// What a worker's calls of the kernel brought.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Worker {
    /// The interface.
    pub interface: String,
    /// The worker: `out`, from inside to outside, or `in`; with several receiving threads also `out 1`, `in 1`, and so on.
    pub worker: String,
    /// Calls that waited, and have ended.
    pub wake_ups: u64,
    /// Calls that received.
    pub receives: u64,
    /// Those of them that found nothing (EAGAIN).
    pub empty_receives: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Calls that sent.
    pub sends: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bursts by their size.
    pub bursts: Vec<Bursts>,
}

impl Worker {
    /// All calls.
    pub fn calls(&self) -> u64 {
        self.wake_ups + self.receives + self.sends
    }
}

/// The bursts of more packets than in the class before, and of at most so many.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Bursts {
    /// The most packets; none for the last class.
    pub packets: Option<u64>,
    /// The number of bursts.
    pub bursts: u64,
}

/// `GET /v1/offloads`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Offloads {
    /// Every offload of every interface.
    pub offloads: Vec<Offload>,
}

/// An offload of an interface.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Offload {
    /// The interface.
    pub interface: String,
    /// The offload's name.
    pub offload: String,
    /// What it does.
    pub does: String,
    /// Whether it is in use, and if not, why.
    pub state: OffloadState,
    /// Calls that carried more than one packet.
    pub calls: u64,
    /// Packets in them.
    pub packets: u64,
    /// Calls that the kernel refused and that were repeated without the offload.
    pub fallbacks: u64,
}

/// `GET /v1/threads`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Threads {
    /// The threads that carry packets.
    pub threads: Vec<Thread>,
    /// What the workers of each interface with crypto threads hand off to them.
    pub handoffs: Vec<Handoff>,
}

/// A thread that carries packets.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Thread {
    /// Its number in the kernel.
    pub id: u32,
    /// Its name: the interface, and what it does.
    pub name: String,
    /// Nanoseconds that it was on a processor.
    pub nanoseconds: u64,
    /// Nanoseconds that it waited for a processor.
    #[serde(default)]
    pub waited: u64,
    /// The processors that it may run on, such as `0-3`.
    #[serde(default)]
    pub processors: String,
}

/// What the workers of an interface have handed off.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Handoff {
    /// The interface.
    pub interface: String,
    /// Its crypto threads.
    pub crypto_threads: usize,
    /// Bursts that were handed off.
    pub handed_off: u64,
    /// Those of them that a worker took back, as no crypto thread had begun them.
    pub taken_back: u64,
    /// Bursts that wait for a crypto thread now.
    pub waiting: usize,
}

/// `GET /v1/crypto`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Crypto {
    /// The engines that this program knows.
    pub engines: Vec<CryptoEngine>,
    /// The ciphers that were measured.
    pub ciphers: Vec<CryptoCipher>,
    /// What happened to engines, the oldest first.
    pub events: Vec<CryptoEvent>,
}

/// A crypto engine.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CryptoEngine {
    /// Its name.
    pub name: String,
    /// The version of its library, if it is here.
    pub version: Option<String>,
    /// Whether it is in use.
    pub state: EngineState,
    /// Why it is not used or absent, where the state does not say it.
    #[serde(default)]
    pub why: Option<String>,
    /// Seconds until a failed engine is tried again.
    #[serde(default)]
    pub retry_in: Option<u64>,
    /// Whether it is reached over a bus.
    pub accelerator: bool,
    /// How often it has failed.
    pub failures: u64,
    /// The traffic that it has encrypted; none of an engine on the processor, which is not counted.
    #[serde(default)]
    pub sealed: Option<CryptoTraffic>,
    /// The traffic that it has decrypted.
    #[serde(default)]
    pub opened: Option<CryptoTraffic>,
}

/// What an accelerator has encrypted or decrypted.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CryptoTraffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of their texts.
    pub bytes: u64,
}

/// The choice for one cipher.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CryptoCipher {
    /// Its name.
    pub name: String,
    /// The engine that the configuration wants for it.
    pub pinned: Option<String>,
    /// Why the pinned engine is not used.
    #[serde(default)]
    pub pin_refused: Option<String>,
    /// The engines that are not used for it.
    #[serde(default)]
    pub unused: Vec<CryptoUnused>,
    /// Whether the client measured it, since the daemon does not use it.
    #[serde(default)]
    pub measured_here: bool,
    /// The choice for each direction, burst and size.
    pub places: Vec<CryptoPlace>,
}

/// An engine that is not used for a cipher.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CryptoUnused {
    /// Its name.
    pub engine: String,
    /// Why.
    pub why: String,
}

/// The choice for one direction, burst and size.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CryptoPlace {
    /// Encryption or decryption.
    pub direction: CryptoDirection,
    /// Packets in one call.
    pub burst: usize,
    /// Bytes of text in a packet.
    pub size: usize,
    /// The engine that is used.
    pub chosen: String,
    /// What each engine costs, the fastest first.
    pub costs: Vec<CryptoCost>,
}

/// What an engine costs.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CryptoCost {
    /// Its name.
    pub engine: String,
    /// ns a packet.
    pub ns: f64,
}

/// Something that happened to an engine.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct CryptoEvent {
    /// Seconds since 1970.
    pub at: u64,
    /// The engine.
    pub engine: String,
    /// What it is.
    pub what: String,
}

/// `GET /v1/log`, `GET /v1/log/AFTER`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Log {
    /// The last lines, the oldest first.
    pub lines: Vec<LogLine>,
}

/// A line that the daemon has logged.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct LogLine {
    /// How many were logged up to this one.
    pub number: u64,
    /// The line, with its time and level.
    pub text: String,
    /// `error`, `warning`, `info` or `debug`.
    #[serde(default)]
    pub level: String,
    /// The part of the daemon: `wireguard`, `ipsec`, `openvpn`, `secgw`, `network`, `api` or `daemon`.
    #[serde(default)]
    pub subsystem: String,
    /// The interface that it is about, if it is known.
    #[serde(default)]
    pub interface: Option<String>,
    /// The peer that it is about, if it is known.
    #[serde(default)]
    pub peer: Option<String>,
}

words! {
    /// The result of reading the configuration again.
    #[derive(Default)]
    ReloadOutcome {
        /// All of the new configuration is in force.
        #[default]
        InForce = "in-force",
        /// Some of it is.
        PartlyInForce = "partly-in-force",
        /// Nothing of it is: the old one stays.
        Refused = "refused",
    }

    /// Whether an offload is in use.
    #[derive(Default)]
    OffloadState {
        /// Not asked for yet.
        #[default]
        Unprobed = "unprobed",
        /// In use.
        On = "on",
        /// Switched off by the configuration.
        SwitchedOff = "switched off",
        /// This kernel does not have it.
        Unsupported = "unsupported",
        /// The kernel offered it, and then refused it at run time.
        Failed = "failed",
    }

    /// Whether a crypto engine is in use.
    #[derive(Default)]
    EngineState {
        /// For at least one cipher and packet size.
        InUse = "in use",
        /// It works, and another is chosen everywhere.
        #[default]
        NotUsed = "not used",
        /// It is an accelerator, and the configuration does not allow accelerators.
        NotAllowed = "not allowed",
        /// It has failed, and is tried again later.
        Failed = "failed",
        /// Its library or device is not on this machine.
        Absent = "absent",
    }

    /// What an engine was measured for.
    #[derive(Default)]
    CryptoDirection {
        /// Encryption.
        #[default]
        Seal = "seal",
        /// Decryption.
        Open = "open",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_state_has_its_json_word() {
        use {EngineState as E, OffloadState as O};
        check(&[
            (ReloadOutcome::InForce, "in-force"),
            (ReloadOutcome::PartlyInForce, "partly-in-force"),
            (ReloadOutcome::Refused, "refused"),
        ]);
        check(&[
            (O::Unprobed, "unprobed"),
            (O::On, "on"),
            (O::SwitchedOff, "switched off"),
            (O::Unsupported, "unsupported"),
            (O::Failed, "failed"),
        ]);
        check(&[
            (E::InUse, "in use"),
            (E::NotUsed, "not used"),
            (E::NotAllowed, "not allowed"),
            (E::Failed, "failed"),
            (E::Absent, "absent"),
        ]);
        check(&[(CryptoDirection::Seal, "seal"), (CryptoDirection::Open, "open")]);
    }
}
