//! The UDP sockets of an interface: one for each IP version, on the same port.
#![expect(unsafe_code, reason = "setsockopt takes its argument by address")]

use super::control::{UDP_GRO, UDP_SEGMENT};
use crate::Offloads;
use arc_swap::ArcSwapOption;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Kernel buffers, in bytes: a few milliseconds of a fast link, so that a late wake-up loses nothing.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 8 << 20;
/// How often a port is tried that is free in one IP version and taken in the other.
const ATTEMPTS: usize = 50;

/// The sockets. A machine without IPv6 has only the first.
pub struct UdpSockets {
    pub(super) v4: Option<OwnedFd>,
    pub(super) v6: Option<OwnedFd>,
    pub(super) port: u16,
}

/// Where the workers find the sockets in use; empty while the interface is down.
pub type SocketSlot = Arc<ArcSwapOption<UdpSockets>>;

impl UdpSockets {
    /// Binds `port` on all addresses; 0 chooses a free one.
    pub fn bind(port: u16, fwmark: u32, offloads: &Offloads) -> Result<Self, Errno> {
        for _ in 0..ATTEMPTS {
            let v4 = optional(open(AddressFamily::INET, port, fwmark))?;
            let chosen = v4.as_ref().map_or(Ok(port), local_port)?;
            let v6 = match optional(open(AddressFamily::INET6, chosen, fwmark)) {
                // The port that was free for IPv4 is taken for IPv6.
                Err(Errno::ADDRINUSE) if port == 0 => continue,
                v6 => v6?,
            };
            let bound = v4.as_ref().or(v6.as_ref()).ok_or(Errno::AFNOSUPPORT)?;
            let port = local_port(bound)?;
            let sockets = Self { v4, v6, port };
            sockets.probe(offloads);
            return Ok(sockets);
        }
        Err(Errno::ADDRINUSE)
    }

    /// Sockets for a protocol of IP itself, which has no ports: what is sent and received follows the IP header.
    ///
    /// Over IPv4 that header is received too. Needs CAP_NET_RAW.
    pub(crate) fn raw(protocol: u8, fwmark: u32) -> Result<Self, Errno> {
        let open = |family| optional(open_raw(family, protocol, fwmark));
        let (v4, v6) = (open(AddressFamily::INET)?, open(AddressFamily::INET6)?);
        if v4.is_none() && v6.is_none() {
            return Err(Errno::AFNOSUPPORT);
        }
        Ok(Self { v4, v6, port: 0 })
    }

    /// Asks for whatever `offloads` allows, and gives up what it forbids.
    pub fn probe(&self, offloads: &Offloads) {
        let all = |option, value| {
            let sockets = [&self.v4, &self.v6];
            sockets.into_iter().flatten().all(|fd| set(fd.as_fd(), libc::IPPROTO_UDP, option, value).is_ok())
        };
        // UDP_SEGMENT as a socket option is what it is beside a datagram; 0 leaves it off.
        offloads.udp_gso.probed(all(UDP_SEGMENT, 0));
        let wanted = offloads.udp_gro.is_wanted();
        offloads.udp_gro.probed(all(UDP_GRO, wanted.into()));
    }

    /// The port that both are bound to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Marks all packets sent from now on, for the rules of policy routing; 0 for none.
    pub fn set_fwmark(&self, fwmark: u32) -> Result<(), Errno> {
        for fd in [&self.v4, &self.v6].into_iter().flatten() {
            set_fwmark(fd.as_fd(), fwmark)?;
        }
        Ok(())
    }

    /// Sends without checksums.
    #[cfg(test)]
    pub(super) fn set_no_check(&self, on: bool) -> Result<(), Errno> {
        let fd = self.v4.as_ref().ok_or(Errno::AFNOSUPPORT)?;
        set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, on.into())
    }

    /// The sockets for IPv4 and IPv6.
    pub(super) fn both(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.v4, &self.v6].map(|fd| fd.as_ref().map(AsFd::as_fd))
    }

    /// The socket for an address.
    pub(super) fn fd(&self, address: &SocketAddr) -> Option<BorrowedFd<'_>> {
        if address.is_ipv4() { self.v4.as_ref() } else { self.v6.as_ref() }.map(AsFd::as_fd)
    }
}

/// An IP version that the machine does not have is no failure.
fn optional(socket: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match socket {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(family: AddressFamily, port: u16, fwmark: u32) -> Result<OwnedFd, Errno> {
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_up(&fd, family, fwmark)?;
    if family == AddressFamily::INET {
        bind(&fd, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    } else {
        // A raw socket of IPv6 has none of IPv4 anyway, and must not be asked.
        sockopt::set_ipv6_v6only(&fd, true)?;
        bind(&fd, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)))?;
    }
    Ok(fd)
}

fn open_raw(family: AddressFamily, protocol: u8, fwmark: u32) -> Result<OwnedFd, Errno> {
    let protocol = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let fd = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_up(&fd, family, fwmark)?;
    Ok(fd)
}

/// Asks for large buffers, and for what is to be known of each datagram.
fn set_up(fd: &OwnedFd, family: AddressFamily, fwmark: u32) -> Result<(), Errno> {
    // Beyond the limits of the system if we may, up to them if not.
    let _ = sockopt::set_socket_recv_buffer_size_force(fd, RECEIVE_BUFFER)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, RECEIVE_BUFFER));
    let _ = sockopt::set_socket_send_buffer_size_force(fd, SEND_BUFFER)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, SEND_BUFFER));
    if fwmark != 0 {
        set_fwmark(fd.as_fd(), fwmark)?;
    }
    // A datagram too large for the path is fragmented, never lost: the inner packet's own DF is honoured inside.
    if family == AddressFamily::INET {
        sockopt::set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::DONT)?;
        sockopt::set_ip_recvtos(fd, true)?;
        set(fd.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    } else {
        sockopt::set_ipv6_mtu_discover(fd, Ipv6PathMtuDiscovery::DONT)?;
        sockopt::set_ipv6_recvtclass(fd, true)?;
        set(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    }
}

fn local_port(fd: &OwnedFd) -> Result<u16, Errno> {
    let address = SocketAddr::try_from(getsockname(fd)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(address.port())
}

fn set_fwmark(fd: BorrowedFd<'_>, fwmark: u32) -> Result<(), Errno> {
    set(fd, libc::SOL_SOCKET, libc::SO_MARK, fwmark as libc::c_int)
}

/// An option that is an int.
fn set(fd: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: libc::c_int) -> Result<(), Errno> {
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of an int that lives until the call returns.
    let outcome =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if outcome < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}
