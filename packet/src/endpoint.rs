//! The endpoint of an outer path: the source of received datagrams, and the destination of sent ones.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Both ends of an outer path: the address of the peer and, if known, the local address.
///
/// A host with several addresses must answer from the address that it was reached at, or a stateful firewall drops
/// the answer. So the local address is kept with the remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The peer's address and UDP port.
    pub remote: SocketAddr,
    /// The local address; `None` lets the kernel's routing choose it.
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
