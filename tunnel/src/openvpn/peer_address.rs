//! Where a peer is outside: an address, and whether packets go there in UDP or on a TCP connection.

use packet::Endpoint;
use std::fmt;
use std::net::SocketAddr;

/// The address of a peer. UDP and TCP have ports of their own: the same address and port can be two peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerAddress {
    /// The address and the port.
    pub socket: SocketAddr,
    /// Whether the port is one of TCP.
    pub is_tcp: bool,
    /// Which of our UDP sockets it sends to: the same address and port can be two peers, each at a port of ours.
    pub binding: u8,
}

impl PeerAddress {
    /// The other end of a TCP connection.
    pub fn tcp(socket: SocketAddr) -> Self {
        Self { socket, is_tcp: true, binding: 0 }
    }
}

/// An address in UDP, at the first of our sockets.
impl From<SocketAddr> for PeerAddress {
    fn from(socket: SocketAddr) -> Self {
        Self { socket, is_tcp: false, binding: 0 }
    }
}

impl From<Endpoint> for PeerAddress {
    fn from(endpoint: Endpoint) -> Self {
        Self { socket: endpoint.remote, is_tcp: endpoint.is_tcp, binding: endpoint.binding }
    }
}

/// The local address is left to the kernel.
impl From<PeerAddress> for Endpoint {
    fn from(address: PeerAddress) -> Self {
        Self { remote: address.socket, local: None, is_tcp: address.is_tcp, binding: address.binding }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = if self.is_tcp { " over TCP" } else { "" };
        write!(f, "{}{protocol}", self.socket)
    }
}
