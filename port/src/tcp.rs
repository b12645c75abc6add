//! TCP: packets with a length before each, on many connections; and sockets whose packets must bypass the tunnels.
//!
//! ```text
//! connections ── one read, many packets ──> batch, one train for each connection
//! connections <── one call for the packets of a train ── batch; what does not fit into the socket waits, bounded
//! ```

mod connection;
mod connections;
pub mod framing;
mod pending;
mod receive;
pub mod socket;
#[cfg(test)]
mod tests;
mod transmit;

pub use connections::TcpConnections;
pub use receive::{BATCH_BYTES, TcpReceive};
pub use transmit::TcpTransmit;

use crate::udp::set_fwmark;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A non-blocking TCP socket with a firewall mark.
pub fn marked(v6: bool, fwmark: u32) -> io::Result<OwnedFd> {
    let family = if v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_fwmark(socket.as_fd(), fwmark)?;
    Ok(socket)
}
