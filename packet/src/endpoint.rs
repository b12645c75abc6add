//! The endpoint of an outer path: the source of received datagrams, and the destination of sent ones.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Both ends of an outer path: the address of the peer and, if known, the local address; or a TCP connection, by the peer's
/// address.
///
/// A host with several addresses must answer from the address that it was reached at, or a stateful firewall drops
/// the answer. So the local address is kept with the remote one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// The local address; `None` lets the kernel's routing choose it.
    pub local: Option<IpAddr>,
    /// Whether the port is one of TCP: a peer in UDP can have the same address and port.
    pub is_tcp: bool,
    /// Which of the UDP sockets of the interface has this path, where it has several ports or addresses of one IP version: an
    /// answer leaves from the port that the peer sent to.
    pub binding: u8,
}

impl Endpoint {
    /// An endpoint in UDP, or of ESP, whose local address the kernel chooses.
    #[inline]
    pub fn new(remote: SocketAddr) -> Self {
        Self { remote, local: None, is_tcp: false, binding: 0 }
    }

    /// A TCP connection with this peer.
    pub fn tcp(remote: SocketAddr) -> Self {
        Self { is_tcp: true, ..Self::new(remote) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.remote.fmt(f)
    }
}
