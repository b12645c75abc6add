//! Where a datagram came from, and where the answer must go.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The two ends of an outside path: the peer's address and, once it is known, ours.
///
/// A host with several addresses must answer from the one that was asked, or a stateful firewall on the way drops
/// the answer; so the local address travels with the remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The peer's address and UDP port.
    pub remote: SocketAddr,
    /// Our address on this path; `None` leaves the choice to the kernel's routing.
    pub local: Option<IpAddr>,
}

impl Endpoint {
    /// An endpoint whose local address the kernel chooses.
    pub fn new(remote: SocketAddr) -> Self {
        Self { remote, local: None }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}
