//! TCP sockets whose packets must bypass the tunnels.

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
