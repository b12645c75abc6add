//! WireGuard: interfaces, their peers, and the thread that owns the protocol of each.
//!
//! ```text
//! settings ──> service ──> plan (what differs) ──> interface ──> handshake_thread ──> tables (SAs, routes) ──> workers
//! wg, wg-quick ──> uapi_server ──> uapi ──────────────┤               ^ handshake messages from the workers
//! names of peers, looked up ──> names ────────────────┘
//! ```

pub mod api;
mod callers;
mod endpoint_reason;
pub(crate) mod explain;
mod facts;
pub mod handshake_thread;
pub mod interface;
mod known_routes;
pub mod labels;
pub mod model;
pub(crate) mod names;
pub mod plan;
mod requirements;
#[cfg(test)]
pub(crate) mod sample;
mod served;
pub mod service;
pub mod uapi;
pub mod uapi_server;
pub mod update;
