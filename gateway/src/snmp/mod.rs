//! SNMP: what a sub-agent of the machine's snmpd answers, without I/O and clock. `cli/src/agentx.rs` has the sockets.
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
pub mod session;
#[cfg(test)]
mod tests;
