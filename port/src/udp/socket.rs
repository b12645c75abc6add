//! The UDP sockets of an interface, all on the same port: for each IP version one that receives and sends, and some that
//! only send, to peers that get no more than their link takes; see [`congestion`](super::congestion).
#![expect(unsafe_code, reason = "setsockopt takes its argument by address")]

use super::control::{UDP_GRO, UDP_SEGMENT};
use crate::Offloads;
use arc_swap::ArcSwapOption;
use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Kernel buffers, in bytes: a few milliseconds of a fast link, so that a late wake-up loses nothing.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 2 << 20;
/// What may wait for the link of one peer: a second of 4 Mbit/s, and eight of the largest sends.
const OWN_SEND_BUFFER: usize = 512 << 10;
/// Sockets that only send, for each IP version.
pub(super) const OWN: usize = 16;
/// Groups of site-local scope that nobody joins. What is bound to one receives nothing, and unlike any other address the
/// kernel does not send from it.
const NOBODY_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 80, 78);
const NOBODY_V6: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0x504f, 0x534e);
/// How often a port is tried that is free in one IP version and taken in the other.
const ATTEMPTS: usize = 50;

/// The sockets. A machine without IPv6 has only the first.
pub struct UdpSockets {
    pub(super) v4: Option<OwnedFd>,
    pub(super) v6: Option<OwnedFd>,
    /// They only send: IPv4, IPv6.
    pub(super) own: [ArrayVec<OwnedFd, OWN>; 2],
    pub(super) port: u16,
}

/// Where the workers find the sockets in use; empty while the interface is down.
pub type SocketSlot = Arc<ArcSwapOption<UdpSockets>>;

impl UdpSockets {
    /// Binds `port` on all addresses; 0 chooses a free one.
    pub fn bind(port: u16, fwmark: u32, offloads: &Offloads) -> Result<Self, Errno> {
        for _ in 0..ATTEMPTS {
            let v4 = optional(open(AddressFamily::INET, port, fwmark, Use::All))?;
            let chosen = v4.as_ref().map_or(Ok(port), local_port)?;
            let v6 = match optional(open(AddressFamily::INET6, chosen, fwmark, Use::All)) {
                // The port that was free for IPv4 is taken for IPv6.
                Err(Errno::ADDRINUSE) if port == 0 => continue,
                v6 => v6?,
            };
            let bound = v4.as_ref().or(v6.as_ref()).ok_or(Errno::AFNOSUPPORT)?;
            let port = local_port(bound)?;
            let open = |family| open(family, port, fwmark, Use::Send);
            let own = [(&v4, AddressFamily::INET), (&v6, AddressFamily::INET6)];
            let own = own.map(|(shared, family)| own_sockets(shared.as_ref(), || open(family)));
            let sockets = Self { v4, v6, own, port };
            sockets.probe(offloads);
            return Ok(sockets);
        }
        Err(Errno::ADDRINUSE)
    }

    /// Sockets for a protocol of IP itself, which has no ports: what is sent and received follows the IP header.
    ///
    /// Over IPv4 that header is received too. Needs CAP_NET_RAW.
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
        for fd in [&self.v4, &self.v6].into_iter().flatten().chain(self.own.iter().flatten()) {
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

    /// How many datagrams each of both has lost because its buffer was full; none where there is no such socket.
    pub fn receive_drops(&self) -> [Option<u64>; 2] {
        self.both().map(|fd| receive_drops(fd?))
    }

    /// The sockets for IPv4 and IPv6.
    pub(super) fn both(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.v4, &self.v6].map(|fd| fd.as_ref().map(AsFd::as_fd))
    }

    /// The socket for an address: the one that all share, or the one of its own with this number.
    pub(super) fn fd(&self, address: &SocketAddr, own: Option<usize>) -> Option<BorrowedFd<'_>> {
        let fd = match own {
            Some(number) => self.own(address).get(number),
            None if address.is_ipv4() => self.v4.as_ref(),
            None => self.v6.as_ref(),
        };
        fd.map(AsFd::as_fd)
    }

    /// The sockets that only send, for the IP version of an address.
    pub(super) fn own(&self, address: &SocketAddr) -> &[OwnedFd] {
        &self.own[usize::from(!address.is_ipv4())]
    }
}

/// What a socket is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Sends to all and receives.
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

    /// Bytes for what has arrived and for what is to be sent.
    fn buffers(self) -> (usize, usize) {
        // The kernel makes the least of nothing.
        if self == Self::All { (RECEIVE_BUFFER, SEND_BUFFER) } else { (0, OWN_SEND_BUFFER) }
    }
}

/// The sockets that only send, beside one that is bound to the same port; as many as can be had.
fn own_sockets(
    shared: Option<&OwnedFd>,
    open: impl Fn() -> Result<OwnedFd, Errno>,
) -> ArrayVec<OwnedFd, OWN> {
    let Some(shared) = shared else { return ArrayVec::new() };
    // Only while they are bound: later another program would get a part of what arrives.
    let may_share = |may| sockopt::set_socket_reuseport(shared, may);
    let own = (0..OWN).map_while(|_| may_share(true).and_then(|()| open()).ok()).collect();
    let _ = may_share(false);
    own
}

/// Bytes that wait in a socket to be sent, with what the kernel keeps beside them.
pub(super) fn backlog(fd: BorrowedFd<'_>) -> usize {
    let mut waiting: libc::c_int = 0;
    // SAFETY: the kernel writes one int, which lives until the call returns.
    let outcome = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut waiting) };
    if outcome < 0 { 0 } else { usize::try_from(waiting).unwrap_or(0) }
}

/// An IP version that the machine does not have is no failure.
fn optional(socket: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
    match socket {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open(family: AddressFamily, port: u16, fwmark: u32, purpose: Use) -> Result<OwnedFd, Errno> {
    let fd = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    set_up(&fd, family, fwmark, purpose)?;
    if family == AddressFamily::INET6 {
        // A raw socket of IPv6 has none of IPv4 anyway, and must not be asked.
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    if purpose == Use::Send {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    bind(&fd, &SocketAddr::from((purpose.address(family), port)))?;
    Ok(fd)
}

fn open_raw(family: AddressFamily, protocol: u8, fwmark: u32, purpose: Use) -> Result<OwnedFd, Errno> {
    let protocol = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let fd = socket_with(family, SocketType::RAW, SocketFlags::CLOEXEC, protocol)?;
    set_up(&fd, family, fwmark, purpose)?;
    if purpose == Use::Send {
        bind(&fd, &SocketAddr::from((purpose.address(family), 0)))?;
    }
    Ok(fd)
}

/// Asks for large buffers, and for what is to be known of each datagram.
fn set_up(fd: &OwnedFd, family: AddressFamily, fwmark: u32, purpose: Use) -> Result<(), Errno> {
    let (receive, send) = purpose.buffers();
    // Beyond the limits of the system if we may, up to them if not.
    let _ = sockopt::set_socket_recv_buffer_size_force(fd, receive)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(fd, receive));
    let _ = sockopt::set_socket_send_buffer_size_force(fd, send)
        .or_else(|_| sockopt::set_socket_send_buffer_size(fd, send));
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

/// Linux since 4.12 tells what `SO_RXQ_OVFL` would tell beside each datagram.
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
