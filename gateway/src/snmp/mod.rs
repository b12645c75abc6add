//! SNMP: what a sub-agent of the machine's snmpd answers, without I/O and clock. `cli/src/agentx/` has the sockets,
//! and `process` what the daemon knows of the sub-agent.
//!
//! ```text
//! snmpd ──> agentx: Request ──> session: answer ──> mib: get, next ──> agentx: Response ──> snmpd
//! facts, health ──> Mib::new, once a second at most ──┘
//! facts, health ──> changes: tunnels that fail, alerts that fire ──> agentx: Notify ──> snmpd ──> receivers of traps
//! ```
//! The objects are those of `docs/POSTERN-MIB.txt`.

pub mod agentx;
pub mod changes;
pub mod mib;
pub mod model;
mod process;
pub mod session;
#[cfg(test)]
mod tests;

pub(crate) use process::snmp;
pub use process::{OFF, ON, REPORTED, SubAgent};

/// The socket of snmpd for sub-agents, in the file that is written for `service snmp`.
pub const MASTER: &str = "/run/postern-agentx/master";
