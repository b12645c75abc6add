//! The answers of the API about SNMP.

use crate::machine::model::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/service/snmp`
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Snmp {
    /// Whether `service snmp` is configured.
    pub is_configured: bool,
    /// Whether the sub-agent runs: it has reported within the last seconds.
    pub is_running: bool,
    /// What the sub-agent has reported last.
    pub agent: Option<SubAgent>,
    /// What does not work of snmpd's file and its service.
    pub findings: Vec<Finding>,
}

/// What the sub-agent reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct SubAgent {
    /// The socket of snmpd.
    pub socket: String,
    /// When the sub-agent was started, in seconds since 1970.
    pub started: u64,
    /// Since when it is connected to snmpd, in seconds since 1970; none if it is not.
    pub connected: Option<u64>,
    /// How many requests of snmpd it has answered since it was started.
    pub requests: u64,
    /// How many traps it has given to snmpd since it was started.
    pub traps: u64,
    /// What went wrong last.
    pub problem: Option<Problem>,
}

/// What went wrong.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema, PartialEq, Eq)]
pub struct Problem {
    /// When, in seconds since 1970.
    pub at: u64,
    /// What it was.
    pub why: String,
    /// What to do.
    pub fix: String,
}
