//! What a branch and head office say to each other: JSON.

use gateway::api::model::SecretText;
use serde::{Deserialize, Serialize};

/// The version of these messages.
pub const VERSION: u32 = 1;

/// A branch asks to join: `POST /v1/enroll`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
pub struct Request {
    /// Of the messages.
    pub version: u32,
    /// Its name, as the token has it.
    pub branch: String,
    /// The secret of the token, in base64.
    pub secret: SecretText,
    /// Its public key of WireGuard, in base64.
    pub public_key: String,
}

/// It has joined: what its side of the tunnel is to be.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Granted {
    /// Of the messages.
    pub version: u32,
    /// Its address inside the tunnel.
    pub address: String,
    /// The networks behind it, as head office knows them.
    pub behind: Vec<String>,
    /// Head office's public key of WireGuard, in base64.
    pub public_key: String,
    /// Where head office's WireGuard is: an address and a port each.
    pub endpoints: Vec<String>,
    /// Where it is by name: a domain name.
    #[serde(default)]
    pub host_name: Option<String>,
    /// The UDP port at that name.
    #[serde(default)]
    pub port: u16,
    /// What head office is asked to carry: its networks, and its address inside the tunnel.
    pub networks: Vec<String>,
    /// The MTU inside the tunnel.
    pub mtu: u32,
}

/// It may not join.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub error: String,
    /// What to do.
    pub fix: String,
}
