//! What the API says of the path of tunnels.

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/path`: what probes have measured of each target, and what the reflector has answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Paths {
    /// The targets, by name.
    pub targets: Vec<Path>,
    /// The reflector, if there is one.
    pub reflector: Option<Reflector>,
}

/// The path of a tunnel, both ways, as probes of the last minute find it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Path {
    /// The name of the target.
    pub target: String,
    /// The interface of the tunnel.
    pub interface: String,
    /// Its peer.
    pub peer: String,
    /// The number of the tunnel, for IPsec.
    pub tunnel: Option<u32>,
    /// The address inside the tunnel that is probed.
    pub address: String,
    /// How it is probed.
    pub protocol: Protocol,
    /// Seconds between two probes.
    pub interval_seconds: u32,
    /// Whether it answers.
    pub state: State,
    /// Probes sent, without those of the MTU.
    pub sent: u64,
    /// Probes answered in time.
    pub answered: u64,
    /// The part of the last 60 probes that was lost: 0 to 1; none before the first one is answered or lost.
    pub loss_ratio: Option<f64>,
    /// The round-trip time, smoothed (RFC 6298); none if the last 60 probes had no answer.
    pub rtt_seconds: Option<f64>,
    /// The least of the last 60 probes.
    pub rtt_least_seconds: Option<f64>,
    /// The most of the last 60 probes.
    pub rtt_most_seconds: Option<f64>,
    /// How much the round-trip time changes: its mean deviation, smoothed.
    pub rtt_deviation_seconds: Option<f64>,
    /// The MTU of the interface, or less where the tunnel has one of its own.
    pub tunnel_mtu_bytes: Option<u32>,
    /// The largest packet that comes to the peer and back; none if that is not known.
    pub path_mtu_bytes: Option<u32>,
    /// What is known of the MTU.
    pub mtu: Mtu,
    /// What sets the MTU of the tunnel to that size, for a black hole.
    pub mtu_remedy: Option<String>,
    /// What is wrong, in a sentence.
    pub problem: Option<String>,
    /// What to type.
    pub remedy: Option<String>,
}

/// What the reflector has answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Reflector {
    /// The addresses and ports that it listens on.
    pub listen: Vec<String>,
    /// Probes answered.
    pub answered: u64,
    /// Datagrams that were no probes, or whose answer would be a probe of another reflector.
    pub malformed: u64,
    /// Probes above the rate.
    pub limited: u64,
    /// Answers that the kernel did not take.
    pub unsent: u64,
}

words! {
    /// How a target is probed.
    #[derive(Default)]
    Protocol {
        /// ICMP echo.
        #[default]
        Icmp = "icmp",
        /// STAMP (RFC 8762).
        Stamp = "stamp",
    }

    /// Whether a target answers.
    #[derive(Default)]
    State {
        /// No probe was sent yet.
        #[default]
        New = "new",
        /// The interface is not there, or takes no probes.
        Unsent = "unsent",
        /// The last probe was answered, or one of the last few.
        Answers = "answers",
        /// The last few probes were lost.
        Silent = "silent",
    }

    /// What is known of the MTU.
    #[derive(Default)]
    Mtu {
        /// It is not searched.
        #[default]
        Unknown = "unknown",
        /// It is being searched.
        Searching = "searching",
        /// Packets of the tunnel's MTU come through.
        Fits = "fits",
        /// Larger packets are answered with ICMP errors, so that senders know.
        Told = "told",
        /// Larger packets are lost without an ICMP error.
        BlackHole = "black-hole",
    }
}

/// A time as text in milliseconds, with at least three digits.
pub fn milliseconds(seconds: f64) -> String {
    match 1000.0 * seconds {
        time if time < 10.0 => format!("{time:.2} ms"),
        time if time < 100.0 => format!("{time:.1} ms"),
        time => format!("{time:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_protocol_and_state_has_its_json_word() {
        check(&[(Protocol::Icmp, "icmp"), (Protocol::Stamp, "stamp")]);
        check(&[(State::New, "new"), (State::Unsent, "unsent")]);
        check(&[(State::Answers, "answers"), (State::Silent, "silent")]);
        check(&[(Mtu::Unknown, "unknown"), (Mtu::Searching, "searching"), (Mtu::Fits, "fits")]);
        check(&[(Mtu::Told, "told"), (Mtu::BlackHole, "black-hole")]);
    }
}
