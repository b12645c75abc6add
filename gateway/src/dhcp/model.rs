//! What the daemon and the supervisor of DHCP clients say to each other, and the answer of the API.

use super::lease::Lease;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The clients that are to run: all of them, each time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// One for an interface.
    pub clients: Vec<Client>,
    /// Interfaces whose leases the daemon refuses: their clients are ended, and start again after a pause.
    pub refused: Vec<String>,
    /// The number of these orders.
    pub number: u64,
}

/// A client that is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its interface.
    pub interface: String,
    /// The client identifier, if it is not of the MAC address.
    pub client_id: Option<String>,
    /// The name of this machine.
    pub host_name: Option<String>,
    /// The vendor class identifier.
    pub vendor_class_id: Option<String>,
}

/// What the supervisor says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// It has started, and needs orders.
    Started,
    /// The orders of this number are carried out: clients that were to end have ended.
    Done(u64),
    /// What became of the client of an interface.
    Client(String, Event),
}

/// What has happened to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A server gave an address, or renewed it.
    Bound(Lease),
    /// A server gave what cannot be used, for this reason; what was given before counts until it expires.
    Unusable(String),
    /// No server answers; what was given before counts until it expires.
    Unanswered,
    /// There is no address any more, for this reason.
    Lost(String),
    /// The client does not run, for this reason; what it has got stays.
    Failed(String),
}

/// `GET /v1/dhcp/client`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Leases {
    /// One for each interface that gets its address by DHCP.
    pub leases: Vec<OfInterface>,
}

/// What an interface has got.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OfInterface {
    /// The interface.
    pub interface: String,
    /// What it has got; none while it has no address.
    pub lease: Option<Lease>,
    /// Seconds that are left of it, unless it is renewed.
    pub remaining_seconds: Option<u64>,
    /// What is wrong, if anything is.
    pub problem: Option<String>,
}
