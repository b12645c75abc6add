//! The path of tunnels: round-trip time, loss and MTU, by probes that take the way of every other packet.
//!
//! ```text
//! targets ──> Session: which probe is due ──> socket, bound to nothing ──> TUN interface ──> the tunnel, as all packets
//!                ^                                                                                │
//!                └── answer, ICMP error <── socket <── TUN interface <────────────────────────────┘
//! probes of others ──> Reflector: rate ──> the same datagram back, by the interface that it came by
//! ```
//! One thread does all of it, on sockets that the daemon opens; it has no rights, and no part in the data path. An answer's time is
//! the kernel's, so that a busy machine does not look like a slow path.

pub mod model;
mod monitor;
mod reflector;
mod search;
pub mod service;
mod session;
#[cfg(test)]
mod tests;
mod thread;

use crate::facts::model::Tunnel;
use model::{Path, Paths};
use std::collections::HashMap;

/// Gives each tunnel what is known of its path: that of the first target by name.
pub(crate) fn attach(tunnels: &mut [Tunnel], paths: &Paths) {
    let mut by_tunnel: HashMap<(&str, &str), Vec<&Path>> = HashMap::new();
    for path in &paths.targets {
        by_tunnel.entry((&path.interface, &path.peer)).or_default().push(path);
    }
    if by_tunnel.is_empty() {
        return;
    }
    for tunnel in tunnels {
        let Some(paths) = by_tunnel.get(&(&*tunnel.interface, &*tunnel.peer)) else { continue };
        let first = paths.iter().find(|path| path.tunnel.is_none() || path.tunnel == tunnel.tunnel);
        tunnel.path = first.map(|&path| Box::new(path.clone()));
    }
}
