//! The UDP sockets of an interface, all bound to the same port. For each IP version, one socket receives and sends;
//! further sockets only send, to peers with slow links; see [`congestion`](super::congestion).
#![expect(unsafe_code, reason = "setsockopt takes its argument by address")]

use super::control::{UDP_GRO, UDP_SEGMENT};
use crate::socket_options::set_buffers;
use crate::{MtuDiscovery, Offloads, SocketOptions};
use arc_swap::ArcSwapOption;
use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The kernel buffers in bytes: a few milliseconds of a fast link, so that a late wake-up loses nothing.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 2 << 20;
/// The send buffer of an own socket: one second at 4 Mbit/s, or eight of the largest sends.
const OWN_SEND_BUFFER: usize = 512 << 10;
/// The number of send-only sockets for each IP version.
pub(super) const OWN: usize = 16;
/// Site-local multicast groups without members. A socket bound to one receives nothing, and unlike for any other
/// address, the kernel does not use it as the source address.
const NOBODY_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 80, 78);
const NOBODY_V6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0x504f, 0x534e);
/// The number of attempts to find a port that is free in both IP versions.
const ATTEMPTS: usize = 50;

/// The sockets. A machine without IPv6 only has the first.
pub struct UdpSockets {
    pub(super) v4: Option<OwnedFd>,
    pub(super) v6: Option<OwnedFd>,
    /// The send-only sockets: IPv4, IPv6.
    pub(super) own: [ArrayVec<OwnedFd, OWN>; 2],
    pub(super) port: u16,
}

/// Where UDP sockets are bound, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpBinding {
    /// The IPv4 address; all if it is unspecified; no IPv4 if there is none.
    pub v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub v6: Option<Ipv6Addr>,
    /// The settings of sockets.
    pub options: SocketOptions,
}

impl Default for UdpBinding {
    fn default() -> Self {
        let (v4, v6) = (Some(Ipv4Addr::UNSPECIFIED), Some(Ipv6Addr::UNSPECIFIED));
        Self { v4, v6, options: SocketOptions::default() }
    }
}

/// The slot that workers read the current sockets from; empty while the interface is down.
pub type SocketSlot = Arc<ArcSwapOption<UdpSockets>>;

impl UdpSockets {
    /// Binds `port` on all addresses; 0 selects a free one.
    pub fn bind(port: u16, fwmark: u32, offloads: &Offloads) -> Result<Self, Errno> {
        let options = SocketOptions { fwmark, ..SocketOptions::default() };
        Self::bind_at(port, &UdpBinding { options, ..UdpBinding::default() }, offloads)
    }

    /// Binds `port` on the addresses of `binding`; 0 selects a free one.
    pub fn bind_at(port: u16, binding: &UdpBinding, offloads: &Offloads) -> Result<Self, Errno> {
        let UdpBinding { v4: at_v4, v6: at_v6, options } = binding;
        for _ in 0..ATTEMPTS {
            let v4 = open_at(at_v4.map(IpAddr::V4), port, options)?;
            let chosen = v4.as_ref().map_or(Ok(port), local_port)?;
            let v6 = match open_at(at_v6.map(IpAddr::V6), chosen, options) {
                // The port is free in IPv4 and in use in IPv6.
                Err(Errno::ADDRINUSE) if port == 0 => continue,
                v6 => v6?,
            };
            let bound = v4.as_ref().or(v6.as_ref()).ok_or(Errno::AFNOSUPPORT)?;
            let port = local_port(bound)?;
            let open = |family| open(Use::Send.address(family), port, options, Use::Send);
            let own = [(&v4, AddressFamily::INET), (&v6, AddressFamily::INET6)];
            let own = own.map(|(shared, family)| own_sockets(shared.as_ref(), || open(family)));
            let sockets = Self { v4, v6, own, port };
            sockets.probe(offloads);
            return Ok(sockets);
        }
        Err(Errno::ADDRINUSE)
    }

    /// Raw sockets for an IP protocol, which has no ports: data start after the IP header.
    ///
    /// Over IPv4, received data include that header. Needs CAP_NET_RAW.
    pub(crate) fn raw(protocol: u8, fwmark: u32) -> Result<Self, Errno> {
        let open = |family, purpose| open_raw(family, protocol, fwmark, purpose);
        let [v4, v6] =
            [AddressFamily::INET, AddressFamily::INET6].map(|family| optional(open(family, Use::All)));
        let (v4, v6) = (v4?, v6?);
        if v4.is_none() && v6.is_none() {
            return Err(Errno::AFNOSUPPORT);
        }
        let open = |family| open(family, Use::Send);
        let own = [(&v4, AddressFamily::INET), (&v6, AddressFamily::INET6)];
        let own = own.map(|(shared, family)| own_sockets(shared.as_ref(), || open(family)));
        Ok(Self { v4, v6, own, port: 0 })
    }

    /// Enables the offloads that `offloads` allows, and disables all others.
    pub fn probe(&self, offloads: &Offloads) {
        let all = |option, value| {
            let sockets = [&self.v4, &self.v6];
            sockets.into_iter().flatten().all(|fd| set(fd.as_fd(), libc::IPPROTO_UDP, option, value).is_ok())
        };
        // UDP_SEGMENT as a socket option equals the control message; 0 leaves it off.
        offloads.udp_gso.probed(all(UDP_SEGMENT, 0));
        let wanted = offloads.udp_gro.is_wanted();
        offloads.udp_gro.probed(all(UDP_GRO, wanted.into()));
    }

    /// The port of the sockets.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the firewall mark of sent packets, for policy routing; 0 for none.
    pub fn set_fwmark(&self, fwmark: u32) -> Result<(), Errno> {
        for fd in [&self.v4, &self.v6].into_iter().flatten().chain(self.own.iter().flatten()) {
            set_fwmark(fd.as_fd(), fwmark)?;
        }
        Ok(())
    }

    /// Disables checksums of sent datagrams.
    #[cfg(test)]
    pub(super) fn set_no_check(&self, on: bool) -> Result<(), Errno> {
        let fd = self.v4.as_ref().ok_or(Errno::AFNOSUPPORT)?;
        set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, on.into())
    }

    /// The number of datagrams lost by each socket because of a full receive buffer; `None` if there is no such
    /// socket.
    pub fn receive_drops(&self) -> [Option<u64>; 2] {
        self.both().map(|fd| receive_drops(fd?))
    }

    /// The sockets for IPv4 and IPv6.
    pub(super) fn both(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.v4, &self.v6].map(|fd| fd.as_ref().map(AsFd::as_fd))
    }

    /// The socket for an address: the shared one, or the own one with this number.
    pub(super) fn fd(&self, address: &SocketAddr, own: Option<usize>) -> Option<BorrowedFd<'_>> {
        let fd = match own {
            Some(number) => self.own(address).get(number),
            None if address.is_ipv4() => self.v4.as_ref(),
            None => self.v6.as_ref(),
        };
        fd.map(AsFd::as_fd)
    }

    /// The send-only sockets for the IP version of an address.
    pub(super) fn own(&self, address: &SocketAddr) -> &[OwnedFd] {
        &self.own[usize::from(!address.is_ipv4())]
    }
}

/// The use of a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Receives, and sends to all peers.
    All,
    /// Only sends.
    Send,
}

impl Use {
    /// The address to bind to.
    fn address(self, family: AddressFamily) -> IpAddr {
        match (self, family == AddressFamily::INET) {
            (Self::All, true) => Ipv4Addr::UNSPECIFIED.into(),
            (Self::All, false) => Ipv6Addr::UNSPECIFIED.into(),
            (Self::Send, true) => NOBODY_V4.into(),
            (Self::Send, false) => NOBODY_V6.into(),
        }
    }

    /// The sizes of the receive and the send buffer.
    fn buffers(self) -> (usize, usize) {
        // The kernel raises zero to its minimum.
        if self == Self::All { (RECEIVE_BUFFER, SEND_BUFFER) } else { (0, OWN_SEND_BUFFER) }
    }
}

/// The send-only sockets, bound to the same port as `shared`; as many as can be opened.
fn own_sockets(
    shared: Option<&OwnedFd>,
    open: impl Fn() -> Result<OwnedFd, Errno>,
) -> ArrayVec<OwnedFd, OWN> {
    let Some(shared) = shared else { return ArrayVec::new() };
    // Sharing is only allowed while they are bound: later, another program could take part of the datagrams.
    let may_share = |may| sockopt::set_socket_reuseport(shared, may);
    let own = (0..OWN).map_while(|_| may_share(true).and_then(|()| open()).ok()).collect();
    let _ = may_share(false);
    own
}

/// The backlog of a socket in bytes, including the kernel's overhead.
pub(super) fn backlog(fd: BorrowedFd<'_>) -> usize {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives until the call returns.
    let outcome = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    if outcome < 0 { 0 } else { usize::try_from(waiting).unwrap_or(0) }
}

/// The socket that receives at an address, if there is one.
fn open_at(address: Option<IpAddr>, port: u16, options: &SocketOptions) -> Result<Option<OwnedFd>, Errno> {
    let Some(address) = address else { return Ok(None) };
    let socket = open(address, port, options, Use::All);
    if address.is_unspecified() { optional(socket) } else { socket.map(Some) }
}

/// A missing IP version of the machine is not an error.
fn optional(socket: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match socket {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(address: IpAddr, port: u16, options: &SocketOptions, purpose: Use) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_up(&fd, family, options, purpose)?;
    if family == AddressFamily::INET6 {
        // A raw IPv6 socket never carries IPv4, and does not accept this option.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    if purpose == Use::Send {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    bind(&fd, &SocketAddr::from((address, port)))?;
    Ok(fd)
}

fn open_raw(family: AddressFamily, protocol: u8, fwmark: u32, purpose: Use) -> Result<OwnedFd, Errno> {
    let protocol = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let fd = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_up(&fd, family, &SocketOptions { fwmark, ..SocketOptions::default() }, purpose)?;
    if purpose == Use::Send {
        bind(&fd, &SocketAddr::from((purpose.address(family), 0)))?;
    }
    Ok(fd)
}

/// Sets buffer sizes and enables the control data of received datagrams.
fn set_up(fd: &OwnedFd, family: AddressFamily, options: &SocketOptions, purpose: Use) -> Result<(), Errno> {
    let (receive, send) = purpose.buffers();
    set_buffers(fd, Some(send), Some(receive));
    if purpose == Use::All {
        options.set_buffers(fd);
    }
    // A datagram larger than the path MTU is fragmented, not lost: the DF bit of the inner packet is honoured inside.
    MtuDiscovery::Off.set(fd, family == AddressFamily::INET)?;
    options.set_path(fd, family == AddressFamily::INET)?;
    if family == AddressFamily::INET {
        sockopt::set_ip_recvtos(fd, true)?;
        set(fd.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
    } else {
        sockopt::set_ipv6_recvtclass(fd, true)?;
        set(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)
    }
}

/// Linux 4.12 or later returns the counter that `SO_RXQ_OVFL` would add to each datagram.
fn receive_drops(fd: BorrowedFd<'_>) -> Option<u64> {
    // SK_MEMINFO_DROPS of linux/sock_diag.h.
    const DROPS: usize = 8;
    let mut values = [0u32; DROPS + 1];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of an array that lives until the call returns, and the length.
    let outcome = unsafe {
        let (to, length) = (values.as_mut_ptr().cast(), &raw mut length);
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, to, length)
    };
    (outcome == 0 && length as usize == size_of_val(&values)).then(|| values[DROPS].into())
}

fn local_port(fd: &OwnedFd) -> Result<u16, Errno> {
    let address = SocketAddr::try_from(getsockname(fd)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok(address.port())
}

pub(crate) fn set_fwmark(fd: BorrowedFd<'_>, fwmark: u32) -> Result<(), Errno> {
    set(fd, libc::SOL_SOCKET, libc::SO_MARK, fwmark as libc::c_int)
}

/// Binds a socket to an interface, such as that of a VRF.
pub(crate) fn set_device(fd: BorrowedFd<'_>, device: &str) -> Result<(), Errno> {
    // SAFETY: the kernel reads the bytes of a string that lives until the call returns.
    let outcome = unsafe {
        let (name, length) = (device.as_ptr().cast(), device.len() as libc::socklen_t);
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name, length)
    };
    if outcome < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    Ok(())
}

/// Sets an option of type int.
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
