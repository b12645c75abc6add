//! Addresses that interfaces get by DHCP, from a client of the machine: udhcpc of busybox.
//!
//! ```text
//! router ──> Orders ══ socket ══> supervisor ──> udhcpc, one for each interface ──> this program again, at each event
//! host <── Report ══ socket ══════════╯ checked <── pipe: what the server said, as JSON ──────╯
//! ```
//!
//! udhcpc changes nothing: it says what it was given, and the [`Host`](crate::host::Host) sets address and route, as it does those of
//! the configuration. What servers say is text from the network. It passes through no shell, and is parsed by the supervisor, a
//! process without rights to configure networks. udhcpc and what it calls are confined besides (`cli/src/confine.rs`).

mod api;
mod client;
pub mod lease;
pub mod model;
pub mod supervisor;

pub use client::Clients;
