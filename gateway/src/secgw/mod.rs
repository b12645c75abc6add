//! The gateway of DPDK's ipsec-secgw: Ethernet frames in, Ethernet frames out, with policies, SAs and routes from a file.
//!
//! ```text
//! protected    frame → strip → protect (SP out) ─┬─> fit → assign → encrypt → outer header ─┬─> depart (RT, NEIGH) → port
//!                                                └─ bypass ─────────────────────────────────┤
//! unprotected  frame → strip → split ─┬─ ESP ──> classify → check → decrypt → accept → SP in ┤
//!                                     └─ clear ──> SP in ────────────────────────────────────┘
//! ```
//! The stages between are those of [`datapath`](crate::datapath). A packet leaves only by the port that `depart` has chosen for it.
//! TTL and hop limit stay as they are: the gateway is a bump in the wire.

pub mod access;
mod acquire;
mod answer;
pub mod api;
pub mod bed;
mod configured;
mod depart;
pub mod dpdk;
mod files;
mod frame;
pub mod headers;
mod ike;
mod inbound;
mod large;
mod lcores;
mod leaving;
mod lifetimes;
mod lists;
pub mod model;
mod modes;
mod opener;
mod outbound;
mod plan;
mod policies;
mod ports;
mod prefix_trie;
pub mod reassembly;
mod reload;
mod reopen;
pub mod routes;
pub mod service;
mod spi_map;
mod statistics;
mod stopper;
mod tables;
#[cfg(test)]
mod tests;
mod used_keys;
mod worker;

pub use files::Files;
pub use ike::{Ike, IkeError, IkeSockets, Peers, check_ike};
pub use lcores::Queues;
pub use opener::{OpenError, Opener};
pub use plan::{Plan, PortPlan};
pub use ports::{BUSY, FramePort, PortError, Queue, open_all};
pub use reload::{Control, ReloadError};
pub use reopen::{Reopened, Watch, WatchError};
pub use statistics::Statistics;
pub use stopper::Stopper;
pub use tables::{SecgwTables, TablesError};
pub use worker::Worker;
