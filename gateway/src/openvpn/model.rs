//! The answers of the API about OpenVPN.

use crate::api::words::words;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/interfaces/openvpn`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Interfaces {
    /// All interfaces of a daemon.
    pub interfaces: Vec<Interface>,
}

/// An OpenVPN interface.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its description in the configuration.
    pub description: Option<String>,
    /// What it is.
    pub mode: Mode,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Whether it is up.
    pub up: bool,
    /// The port that is bound; 0 while there is none.
    pub port: u16,
    /// The sessions that are connected.
    pub sessions: Vec<Session>,
    /// Why it does nothing, if that is so.
    #[serde(default)]
    pub failure: Option<String>,
}

/// A connected session.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Session {
    /// The common name of a client.
    pub common_name: Option<String>,
    /// Where the peer is.
    pub remote_host: Option<String>,
    /// What carries its packets.
    #[serde(default)]
    pub protocol: Transport,
    /// Our address and port.
    pub local_host: Option<String>,
    /// Addresses of a client in the tunnel.
    pub tunnel_ips: Vec<String>,
    /// Networks behind a client.
    pub networks: Vec<String>,
    /// The data cipher.
    pub cipher: String,
    /// Seconds since 1970.
    pub connected_since: u64,
    /// Outside bytes received from it.
    pub received_bytes: u64,
    /// Outside bytes sent to it.
    pub sent_bytes: u64,
}

/// `POST /v1/interfaces/openvpn/reset`
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Reset {
    /// The interface; all servers if there is none.
    #[serde(default)]
    pub interface: Option<String>,
    /// The common name of a client; all sessions if there is none.
    #[serde(default)]
    pub client: Option<String>,
}

/// `GET /v1/interfaces/openvpn/NAME/explain`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Explanations {
    /// The interface, if the daemon has it.
    pub interfaces: Vec<Explanation>,
}

/// Why peers of an interface are connected or not.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Explanation {
    /// The interface.
    pub interface: String,
    /// What it is.
    pub mode: Mode,
    /// Whether it is up.
    pub up: bool,
    /// The sessions that are connected.
    pub sessions: Vec<Session>,
    /// Why it does nothing, if that is so.
    pub failure: Option<String>,
    /// The last sessions that were refused or failed, the newest first.
    pub failed: Vec<Failed>,
}

/// A peer whose session was refused or failed.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, PartialEq)]
pub struct Failed {
    /// Where it is.
    pub address: String,
    /// The common name of its certificate, if it has shown one that is accepted.
    pub common_name: Option<String>,
    /// What it said of itself: its version and ciphers.
    pub offered: Option<String>,
    /// The reason.
    pub reason: String,
    /// What to type or to do, a line each.
    pub fix: Vec<String>,
    /// How often.
    pub count: u64,
    /// Seconds since 1970 of the last time.
    pub latest: u64,
}

words! {
    /// What carries the packets of a session.
    #[derive(Default)]
    Transport {
        /// UDP.
        #[default]
        Udp = "udp",
        /// A TCP connection.
        Tcp = "tcp",
    }
}

words! {
    /// What an end of a tunnel is.
    #[derive(Default)]
    Mode {
        /// A server for many clients.
        #[default]
        Server = "server",
        /// A client.
        Client = "client",
        /// One of two peers.
        SiteToSite = "site-to-site",
    }
}

impl From<config::settings::openvpn::Mode> for Mode {
    fn from(mode: config::settings::openvpn::Mode) -> Self {
        match mode {
            config::settings::openvpn::Mode::Server => Self::Server,
            config::settings::openvpn::Mode::Client => Self::Client,
            config::settings::openvpn::Mode::SiteToSite => Self::SiteToSite,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::words::check;

    #[test]
    fn every_mode_and_transport_has_its_json_word() {
        use Mode as M;
        check(&[(Transport::Udp, "udp"), (Transport::Tcp, "tcp")]);
        check(&[(M::Server, "server"), (M::Client, "client"), (M::SiteToSite, "site-to-site")]);
    }
}
