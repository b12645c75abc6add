//! TCP sockets that listen, that were accepted, and that connect.

use crate::SocketOptions;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, listen, socket_with,
};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Connections that wait to be accepted: the kernel limits them by `net.core.somaxconn`.
const BACKLOG: i32 = 1024;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn open(address: SocketAddr, options: &SocketOptions) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    options.set_path(&socket, address.is_ipv4())?;
    options.set_buffers(&socket);
    // A burst is one call. With Nagle's algorithm its last packet would wait for acknowledgments.
    sockopt::set_tcp_nodelay(&socket, true)?;
    Ok(socket)
}

/// A socket that listens; port 0 selects a free one.
pub fn listening(address: SocketAddr, options: &SocketOptions) -> Result<OwnedFd, Errno> {
    let socket = open(address, options)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A socket that connects to `remote`; `local` is the address and port that it is bound to, if any.
pub fn connecting(
    remote: SocketAddr,
    local: Option<SocketAddr>,
    options: &SocketOptions,
) -> Result<OwnedFd, Errno> {
    let socket = open(remote, options)?;
    if let Some(local) = local {
        sockopt::set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &local)?;
    }
    match connect(&socket, &remote) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Accepts a connection, and returns the address of its peer; `None` if none waits.
pub(super) fn accept(listener: BorrowedFd<'_>) -> Result<Option<(OwnedFd, SocketAddr)>, Errno> {
    match acceptfrom_with(listener, FLAGS) {
        Ok((socket, Some(remote))) => Ok(SocketAddr::try_from(remote).ok().map(|remote| (socket, remote))),
        // A peer that has gone meanwhile is told once; others may wait behind it, which the next turn finds.
        Ok((_, None)) | Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error),
    }
}
