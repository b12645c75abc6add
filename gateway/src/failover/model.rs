//! The answer of the API about tunnels that stand in for each other.

use crate::facts::model::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/failover`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Failover {
    /// The groups, by name.
    pub groups: Vec<Group>,
}

/// Tunnels that lead to the same networks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The networks.
    pub prefixes: Vec<String>,
    /// Seconds for which a tunnel is up before packets go back to it.
    pub hold_seconds: u64,
    /// The tunnels, the preferred one first.
    pub members: Vec<Member>,
    /// How often another tunnel was taken.
    pub switches: u64,
}

/// A tunnel of a group.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub number: u32,
    /// Its interface.
    pub interface: String,
    /// Its peer.
    pub peer: String,
    /// Whether it carries packets, as probes of its path say, too, if it is probed.
    pub state: State,
    /// For how many seconds it is up; none if it is not.
    pub up_seconds: Option<u64>,
    /// Whether packets take it.
    pub is_used: bool,
}
