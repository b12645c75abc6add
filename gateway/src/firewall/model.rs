//! The answer of the API about the zone firewall.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/firewall`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Firewall {
    /// What becomes of packets of a state, before any rule set.
    pub states: Vec<StatePolicy>,
    /// The zones.
    pub zones: Vec<Zone>,
    /// The rule sets that zones name.
    pub rule_sets: Vec<RuleSet>,
}

/// What rules have counted since they were put in force.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

/// What becomes of packets of a state.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct StatePolicy {
    /// The state of the connection.
    pub state: String,
    /// `accept`, `drop` or `reject`.
    pub action: String,
    /// What it was for.
    pub count: Count,
}

/// A zone.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// Whether it is the machine itself.
    pub is_local: bool,
    /// Its interfaces.
    pub interfaces: Vec<String>,
    /// The rule sets for packets into the zone.
    pub from: Vec<From>,
    /// What becomes of packets between its interfaces.
    pub within: String,
    /// What becomes of packets into the zone that no rule set is for.
    pub default_action: String,
    /// These packets.
    pub default_count: Count,
}

/// The rule sets for packets from a zone.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct From {
    /// The zone that they come from.
    pub zone: String,
    /// The rule set for IPv4.
    pub name: Option<String>,
    /// The rule set for IPv6.
    pub ipv6_name: Option<String>,
}

/// A rule set.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct RuleSet {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Its name.
    pub name: String,
    /// Its rules, in the order in which they are looked at.
    pub rules: Vec<Rule>,
    /// What becomes of packets that no rule matches.
    pub default_action: String,
    /// These packets.
    pub default_count: Count,
}

/// A rule.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Rule {
    /// Its number.
    pub number: u32,
    /// `accept`, `drop` or `reject`.
    pub action: String,
    /// The protocols of its packets.
    pub protocol: String,
    /// Where they come from: addresses, and ports behind a colon.
    pub source: String,
    /// Where they are sent to.
    pub destination: String,
    /// What else they are told apart by, in the words of the configuration.
    pub conditions: String,
    /// Its packets.
    pub count: Count,
}
