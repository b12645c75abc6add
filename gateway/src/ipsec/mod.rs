//! IPsec: the peers of the configuration, IKE with them, and one interface for the packets of all.
//!
//! ```text
//! settings ──> connections (what IKE and the data path must know of a peer)
//!         └──> network     (routes and rules for the networks behind peers) ──> host (sees that they stay)
//!                        host ──> unprotected (what the kernel is not to let in)
//! UDP 500 ──> port ──┐
//! UDP 4500 ─> worker ┴──> ike_thread           ──> tables (SAs, policies) ──> workers
//!                         └<─> jobs (key exchanges, signatures)
//! ```

pub mod api;
pub mod connections;
pub mod explain;
mod facts;
pub mod gateway;
pub mod handle;
mod identity;
pub mod ike_thread;
mod jobs;
mod look_up;
pub mod model;
pub mod network;
pub mod peer_error;
mod port;
pub mod proof;
mod requirements;
pub(crate) mod resolver;
mod revocation;
mod served;
pub mod service;

pub use gateway::Gateway;
pub(crate) use port::IkePort;
pub(crate) use requirements::ciphers;
pub(crate) use revocation::is_needed as needs_revocations;

use config::Path;

/// The interface for the packets of all IPsec peers.
pub const NAME: &str = config::settings::ipsec::INTERFACE;
/// The MTU of tunnels that set none, and the least of the interface.
pub const MTU: u32 = config::settings::ipsec::MTU as u32;

/// Where IPsec is configured, or these words of it.
fn path_of<'a>(words: impl IntoIterator<Item = &'a str>) -> Path {
    Path::new(["vpn", "ipsec"].into_iter().chain(words))
}
