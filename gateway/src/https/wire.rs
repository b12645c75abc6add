//! The messages between the daemon and the server: one line of JSON each. Listening sockets go with the line that has
//! their addresses.

use crate::api::model::SecretText;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Bytes of a line.
pub const LONGEST: usize = 1 << 20;
/// Sockets that go with a line: the kernel passes 253 at most.
pub const MOST_SOCKETS: usize = 64;

/// Orders of the daemon to the server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Orders {
    /// Comes back in the report.
    pub number: u64,
    /// The API; none if it is off. The server ends when all is off.
    pub service: Option<Service>,
    /// Metrics; none if they are off. Their sockets follow those of the API.
    #[serde(default)]
    pub metrics: Option<Metrics>,
    /// The status page; none if it is off. Its sockets follow those of metrics.
    #[serde(default)]
    pub page: Option<Page>,
    /// Where branches join; none if it is off. Its sockets are the last.
    #[serde(default)]
    pub enrollment: Option<Enrollment>,
}

impl Orders {
    /// Whether nothing is served.
    pub fn is_off(&self) -> bool {
        self.service.is_none() && self.metrics.is_none() && self.page.is_none() && self.enrollment.is_none()
    }
}

/// The API.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Service {
    /// In the order of their sockets.
    pub listeners: Vec<Listener>,
    /// Mixed into the hashes of keys, in base64.
    pub salt: String,
    /// The keys.
    pub keys: Vec<Key>,
    /// The certificate; without one, the server signs its own.
    pub certificate: Option<Certificate>,
    /// Days for which such a certificate is valid.
    pub lifetime_days: u32,
    /// Names of this machine in such a certificate.
    pub names: Vec<String>,
    /// TLS 1.2 is accepted.
    pub tls12: bool,
    /// TLS 1.3 is accepted.
    pub tls13: bool,
    /// A request to delete what does not exist is refused.
    pub is_strict: bool,
}

/// Counters and states for Prometheus.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Metrics {
    /// In the order of their sockets.
    pub listeners: Vec<Listener>,
    /// Mixed into the hash of the token, in base64.
    pub salt: String,
    /// What clients must send: SHA-256 of the salt and the token, in base64.
    pub token: Option<String>,
    /// HTTPS instead of HTTP.
    pub tls: Option<MetricsTls>,
    /// Which peers have metrics of their own.
    pub peers: Peers,
    /// The names of other WireGuard exporters are there too.
    pub wireguard_names: bool,
}

/// The status page.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Page {
    /// In the order of their sockets.
    pub listeners: Vec<Listener>,
    /// Mixed into the hash of the token, in base64.
    pub salt: String,
    /// What readers log in with: SHA-256 of the salt and the token, in base64.
    pub token: String,
    /// The same for each start of the daemon, as long as the token is: sessions of another one do not count. In base64.
    #[serde(default)]
    pub sessions: String,
    /// HTTPS instead of HTTP.
    pub tls: Option<MetricsTls>,
    /// Names of this machine that browsers may use, beside addresses.
    pub names: Vec<String>,
}

/// Where branches join with a token.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Enrollment {
    /// In the order of their sockets.
    pub listeners: Vec<Listener>,
    /// The tokens of branches.
    pub tokens: Vec<Token>,
}

/// What is known of the token of a branch.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Token {
    /// The branch.
    pub branch: String,
    /// SHA-256 of the secret, in base64.
    pub hash: String,
}

/// How connections for metrics and the status page are secured.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct MetricsTls {
    /// The certificate; without one, the server signs its own.
    pub certificate: Option<Certificate>,
}

/// Peers that have metrics of their own.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, PartialEq, Eq)]
pub enum Peers {
    /// All.
    #[default]
    All,
    /// Those that are down.
    DownOnly,
    /// None.
    Off,
}

/// Where connections are accepted.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Listener {
    /// The address.
    pub address: SocketAddr,
    /// The prefixes that may connect; all if there is none.
    pub clients: Vec<String>,
}

/// A key of a client.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Key {
    /// Its name.
    pub id: String,
    /// SHA-256 of the salt and the key, in base64.
    pub hash: String,
}

/// A certificate with its private key, in base64.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Certificate {
    /// The certificate, and those of the authorities that are sent with it.
    pub chain: Vec<String>,
    /// Its private key.
    pub private_key: SecretText,
}

/// A report of the server to the daemon.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Report {
    /// Which orders it is about; 0 when it has started and has none.
    pub number: u64,
    /// About the API.
    pub api: PartReport,
    /// About metrics.
    #[serde(default)]
    pub metrics: PartReport,
    /// About the status page.
    #[serde(default)]
    pub page: PartReport,
    /// About branches that join.
    #[serde(default)]
    pub enrollment: PartReport,
}

/// A report about one part of the server.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct PartReport {
    /// SHA-256 of the certificate, in hexadecimal.
    pub fingerprint: Option<String>,
    /// Why the orders are not carried out; then the earlier ones are in force.
    pub error: Option<String>,
}

/// The hash of a key.
pub fn hash(salt: &[u8], key: &[u8]) -> [u8; 32] {
    crypto::hash::sha256(&[salt, key])
}
