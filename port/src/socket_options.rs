//! Settings that the sockets outside have in common, in UDP and TCP.

use crate::udp::{set_device, set_fwmark};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use std::os::fd::{AsFd, OwnedFd};

/// Path MTU discovery of sent packets (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// No DF bit: routers fragment.
    Off,
    /// DF where the kernel knows a path MTU that is large enough; it fragments what is larger.
    Wanted,
    /// DF always: the kernel refuses packets that are larger than the path MTU.
    Always,
}

/// The settings of sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// The firewall mark of sent packets; 0 for none.
    pub fwmark: u32,
    /// The interface that packets come from and go to.
    pub device: Option<String>,
    /// Bytes of the buffers, of sent and of received data.
    pub buffers: [Option<u32>; 2],
    /// Path MTU discovery, if not the default: off in UDP, the kernel's in TCP.
    pub mtu_discovery: Option<MtuDiscovery>,
}

impl SocketOptions {
    /// Sets mark, interface and path MTU discovery.
    pub(crate) fn set_path(&self, socket: &OwnedFd, is_v4: bool) -> Result<(), Errno> {
        if self.fwmark != 0 {
            set_fwmark(socket.as_fd(), self.fwmark)?;
        }
        if let Some(device) = &self.device {
            set_device(socket.as_fd(), device)?;
        }
        self.mtu_discovery.map_or(Ok(()), |discovery| discovery.set(socket, is_v4))
    }

    /// Sets the buffers that are given.
    pub(crate) fn set_buffers(&self, socket: &OwnedFd) {
        let [send, receive] = self.buffers.map(|bytes| bytes.map(|bytes| bytes as usize));
        set_buffers(socket, send, receive);
    }
}

/// Sets sizes of buffers: beyond the system limit if permitted, otherwise up to it.
pub(crate) fn set_buffers(socket: &OwnedFd, send: Option<usize>, receive: Option<usize>) {
    if let Some(bytes) = receive {
        let _ = sockopt::set_socket_recv_buffer_size_force(socket, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes));
    }
    if let Some(bytes) = send {
        let _ = sockopt::set_socket_send_buffer_size_force(socket, bytes)
            .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes));
    }
}

impl MtuDiscovery {
    pub(crate) fn set(self, socket: &OwnedFd, is_v4: bool) -> Result<(), Errno> {
        if is_v4 {
            let value = match self {
                Self::Off => Ipv4PathMtuDiscovery::DONT,
                Self::Wanted => Ipv4PathMtuDiscovery::WANT,
                Self::Always => Ipv4PathMtuDiscovery::DO,
            };
            return sockopt::set_ip_mtu_discover(socket, value);
        }
        let value = match self {
            Self::Off => Ipv6PathMtuDiscovery::DONT,
            Self::Wanted => Ipv6PathMtuDiscovery::WANT,
            Self::Always => Ipv6PathMtuDiscovery::DO,
        };
        sockopt::set_ipv6_mtu_discover(socket, value)
    }
}
