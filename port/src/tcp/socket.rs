//! TCP sockets that listen, that were accepted, and that connect.

use crate::udp::{set_device, set_fwmark};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, listen, socket_with,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Connections that wait to be accepted: the kernel limits them by `net.core.somaxconn`.
const BACKLOG: i32 = 1024;
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// The settings of sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// The firewall mark of sent packets; 0 for none.
    pub fwmark: u32,
    /// The interface that packets come from and go to.
    pub device: Option<String>,
    /// Bytes of the buffers, of sent and of received data; the kernel chooses else.
    pub buffers: [Option<u32>; 2],
}

impl SocketOptions {
    fn apply(&self, socket: &OwnedFd) -> Result<(), Errno> {
        if self.fwmark != 0 {
            set_fwmark(socket.as_fd(), self.fwmark)?;
        }
        if let Some(device) = &self.device {
            set_device(socket.as_fd(), device)?;
        }
        let [send, receive] = self.buffers;
        if let Some(bytes) = send {
            sockopt::set_socket_send_buffer_size(socket, bytes as usize)?;
        }
        receive.map_or(Ok(()), |bytes| sockopt::set_socket_recv_buffer_size(socket, bytes as usize))
    }
}

fn open(address: SocketAddr, options: &SocketOptions) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, FLAGS, None)?;
    options.apply(&socket)?;
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

/// Sockets that listen on all addresses; a machine may lack IPv6.
pub fn listening_everywhere(port: u16, options: &SocketOptions) -> Result<Vec<OwnedFd>, Errno> {
    let mut sockets = Vec::new();
    for address in [IpAddr::from(Ipv6Addr::UNSPECIFIED), Ipv4Addr::UNSPECIFIED.into()] {
        match listening(SocketAddr::new(address, port), options) {
            Ok(socket) => sockets.push(socket),
            Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => {}
            Err(error) => return Err(error),
        }
    }
    if sockets.is_empty() { Err(Errno::AFNOSUPPORT) } else { Ok(sockets) }
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
