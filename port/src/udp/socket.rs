//! The UDP sockets of an interface, bound to one port. For each IP version, one socket receives and sends, or one a receiving
//! thread, see [`steering`](super::steering); further sockets only send, to peers with slow links, see
//! [`congestion`](super::congestion).
//!
//! An OpenVPN server can have several ports, and several addresses of one IP version. Each further one has such sockets of its
//! own, a further binding. An endpoint has the number of its binding.
#![expect(unsafe_code, reason = "setsockopt takes its argument by address")]

use super::control::{UDP_GRO, UDP_SEGMENT};
use super::steering::Steering;
use crate::socket_options::set_buffers;
use crate::{MtuDiscovery, Offloads, SocketOptions};
use arc_swap::ArcSwapOption;
use arrayvec::ArrayVec;
use packet::Endpoint;
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The kernel buffers in bytes: a few milliseconds of a fast link, so that a late wake-up loses nothing.
const RECEIVE_BUFFER: usize = 8 << 20;
const SEND_BUFFER: usize = 2 << 20;
/// The send buffer of an own socket: one second at 4 Mbit/s, or eight of the largest sends.
const OWN_SEND_BUFFER: usize = 512 << 10;
/// The number of send-only sockets for each IP version.
pub(super) const OWN: usize = 16;
/// The same at a further binding: descriptors are limited.
const OWN_OF_FURTHER: usize = 4;
/// The number of further bindings.
pub const MOST_FURTHER: usize = 15;
/// The sockets that receive: of IPv4 and IPv6 at each binding.
pub(super) const MOST_RECEIVING: usize = 2 * (1 + MOST_FURTHER);
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
    /// Those of the second receiving thread, the third, and so on: IPv4, IPv6.
    pub(super) of_threads: Vec<[Option<OwnedFd>; 2]>,
    /// The further bindings: 1, 2, and so on. They have none themselves.
    pub(super) further: Vec<UdpSockets>,
}

/// A destination, and the binding that sends there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Path {
    pub(super) remote: SocketAddr,
    pub(super) binding: u8,
}

impl From<&Endpoint> for Path {
    fn from(endpoint: &Endpoint) -> Self {
        Self { remote: endpoint.remote, binding: endpoint.binding }
    }
}

impl Path {
    /// The number of the socket that receives here: IPv4 and IPv6 of the first binding, then of the next.
    pub(super) fn number(&self) -> usize {
        2 * usize::from(self.binding) + usize::from(!self.remote.is_ipv4())
    }
}

/// A socket cannot be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindError {
    /// The port.
    pub port: u16,
    /// What the kernel says.
    pub error: Errno,
}

/// Where UDP sockets are bound, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpBinding {
    /// The IPv4 address; all if it is unspecified; no IPv4 if there is none.
    pub v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub v6: Option<Ipv6Addr>,
    /// Further addresses and ports, at most [`MOST_FURTHER`].
    pub further: Vec<SocketAddr>,
    /// The settings of sockets.
    pub options: SocketOptions,
    /// How datagrams are spread over several sockets on the first port, for several receiving threads.
    pub steering: Option<Steering>,
}

impl Default for UdpBinding {
    fn default() -> Self {
        let (v4, v6) = (Some(Ipv4Addr::UNSPECIFIED), Some(Ipv6Addr::UNSPECIFIED));
        Self { v4, v6, further: Vec::new(), options: SocketOptions::default(), steering: None }
    }
}

/// The slot that workers read the current sockets from; empty while the interface is down.
pub type SocketSlot = Arc<ArcSwapOption<UdpSockets>>;

impl UdpSockets {
    /// Binds `port` on all addresses; 0 selects a free one.
    pub fn bind(port: u16, fwmark: u32, offloads: &Offloads) -> Result<Self, Errno> {
        let options = SocketOptions { fwmark, ..SocketOptions::default() };
        let binding = UdpBinding { options, ..UdpBinding::default() };
        Self::bind_at(port, &binding, offloads).map_err(|refused| refused.error)
    }

    /// Binds `port` on the addresses of `binding`, and what is further there; 0 selects a free port.
    pub fn bind_at(port: u16, binding: &UdpBinding, offloads: &Offloads) -> Result<Self, BindError> {
        let refused = |port| move |error| BindError { port, error };
        let UdpBinding { v4, v6, further, options, steering } = binding;
        let steering = steering.filter(|steering| steering.sockets > 1);
        let mut sockets = Self::bind_pair(port, (*v4, *v6), options, steering, OWN).map_err(refused(port))?;
        for at in further.iter().take(MOST_FURTHER) {
            let pair = match at.ip() {
                IpAddr::V4(ip) => (Some(ip), None),
                IpAddr::V6(ip) => (None, Some(ip)),
            };
            let bound = Self::bind_pair(at.port(), pair, options, None, OWN_OF_FURTHER);
            sockets.further.push(bound.map_err(refused(at.port()))?);
        }
        sockets.probe(offloads);
        Ok(sockets)
    }

    /// Binds a port on an address of each IP version, with so many sockets that only send.
    fn bind_pair(
        port: u16,
        (at_v4, at_v6): (Option<Ipv4Addr>, Option<Ipv6Addr>),
        options: &SocketOptions,
        steering: Option<Steering>,
        most_own: usize,
    ) -> Result<Self, Errno> {
        let at = [at_v4.map(IpAddr::V4), at_v6.map(IpAddr::V6)];
        for _ in 0..ATTEMPTS {
            let v4 = open_at(at[0], port, options)?;
            let chosen = v4.as_ref().map_or(Ok(port), local_port)?;
            let v6 = match open_at(at[1], chosen, options) {
                // The port is free in IPv4 and in use in IPv6.
                Err(Errno::ADDRINUSE) if port == 0 => continue,
                v6 => v6?,
            };
            let bound = v4.as_ref().or(v6.as_ref()).ok_or(Errno::AFNOSUPPORT)?;
            let port = local_port(bound)?;
            let of_threads = match steering {
                Some(steering) => spread([v4.as_ref(), v6.as_ref()], at, port, options, steering)?,
                None => Vec::new(),
            };
            let open = |family| open(Use::Send.address(family), port, options, Use::Send);
            let own = [(&v4, AddressFamily::INET), (&v6, AddressFamily::INET6)];
            let own = own.map(|(shared, family)| {
                own_sockets(shared.as_ref(), most_own, steering.is_some(), || open(family))
            });
            return Ok(Self { v4, v6, own, port, of_threads, further: Vec::new() });
        }
        Err(Errno::ADDRINUSE)
    }

    /// Enables the offloads that `offloads` allows, and disables all others.
    pub fn probe(&self, offloads: &Offloads) {
        let all = |option, value| {
            let mut sockets = self.bindings().flat_map(Self::shared);
            sockets.all(|fd| set(fd, libc::IPPROTO_UDP, option, value).is_ok())
        };
        // UDP_SEGMENT as a socket option equals the control message; 0 leaves it off.
        offloads.udp_gso.probed(all(UDP_SEGMENT, 0));
        let wanted = offloads.udp_gro.is_wanted();
        offloads.udp_gro.probed(all(UDP_GRO, wanted.into()));
    }

    /// The port of the sockets, without those of further bindings.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// All bindings, the first of which this is.
    fn bindings(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.further)
    }

    /// A binding by its number.
    fn binding(&self, number: usize) -> Option<&Self> {
        if number == 0 { Some(self) } else { self.further.get(number - 1) }
    }

    /// The port of a binding.
    pub fn port_of(&self, binding: u8) -> Option<u16> {
        self.binding(binding.into()).map(Self::port)
    }

    /// Sets the firewall mark of sent packets, for policy routing; 0 for none.
    pub fn set_fwmark(&self, fwmark: u32) -> Result<(), Errno> {
        let mut all = self.bindings().flat_map(|it| it.shared().chain(it.own_fds()));
        all.try_for_each(|fd| set_fwmark(fd, fwmark))
    }

    /// Disables checksums of sent datagrams.
    #[cfg(test)]
    pub(super) fn set_no_check(&self, on: bool) -> Result<(), Errno> {
        let fd = self.v4.as_ref().ok_or(Errno::AFNOSUPPORT)?;
        set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, on.into())
    }

    /// The number of datagrams lost by the sockets of each IP version because of a full receive buffer; `None` if there is no
    /// such socket.
    pub fn receive_drops(&self) -> [Option<u64>; 2] {
        let of = |version: usize| {
            let all = self.bindings().flat_map(move |it| it.of_version(version));
            all.filter_map(receive_drops)
        };
        [0, 1].map(|version| of(version).reduce(|all, number| all + number))
    }

    /// The number of sockets that may receive, of a receiving thread: further bindings have the first.
    pub(super) fn receiving(&self, thread: usize) -> usize {
        if thread == 0 { 2 * (1 + self.further.len()) } else { 2 }
    }

    /// A socket that receives, by its thread and its number.
    pub(super) fn receives(&self, thread: usize, number: usize) -> Option<BorrowedFd<'_>> {
        match thread.checked_sub(1) {
            None => self.binding(number / 2)?.both()[number % 2],
            Some(further) => self.of_threads.get(further)?.get(number)?.as_ref().map(AsFd::as_fd),
        }
    }

    /// The sockets of this binding that receive.
    fn shared(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        (0..2).flat_map(|version| self.of_version(version))
    }

    /// Those of IPv4, or of IPv6.
    fn of_version(&self, version: usize) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_threads =
            self.of_threads.iter().filter_map(move |pair| pair[version].as_ref().map(AsFd::as_fd));
        self.both()[version].into_iter().chain(of_threads)
    }

    fn own_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.own.iter().flatten().map(AsFd::as_fd)
    }

    /// The sockets for IPv4 and IPv6 of the first binding.
    fn both(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.v4, &self.v6].map(|fd| fd.as_ref().map(AsFd::as_fd))
    }

    /// The socket for a destination: the shared one of a thread, or the own one with this number.
    pub(super) fn fd(&self, path: &Path, thread: usize, own: Option<usize>) -> Option<BorrowedFd<'_>> {
        match own {
            Some(number) => self.own(path).get(number).map(AsFd::as_fd),
            // Further bindings have one thread.
            None => self.receives(if path.binding == 0 { thread } else { 0 }, path.number()),
        }
    }

    /// The send-only sockets for the IP version of a destination.
    pub(super) fn own(&self, path: &Path) -> &[OwnedFd] {
        let binding = self.binding(path.binding.into());
        binding.map_or(&[], |it| &it.own[usize::from(!path.remote.is_ipv4())])
    }
}

/// The use of a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Receives, and sends to all peers.
    All,
    /// The same on a port that another socket of ours has, too.
    Shared,
    /// Only sends.
    Send,
}

impl Use {
    /// The address to bind to.
    pub(super) fn address(self, family: AddressFamily) -> IpAddr {
        match (self, family == AddressFamily::INET) {
            (Self::All | Self::Shared, true) => Ipv4Addr::UNSPECIFIED.into(),
            (Self::All | Self::Shared, false) => Ipv6Addr::UNSPECIFIED.into(),
            (Self::Send, true) => NOBODY_V4.into(),
            (Self::Send, false) => NOBODY_V6.into(),
        }
    }

    /// The sizes of the receive and the send buffer.
    fn buffers(self) -> (usize, usize) {
        // The kernel raises zero to its minimum.
        if self == Self::Send { (0, OWN_SEND_BUFFER) } else { (RECEIVE_BUFFER, SEND_BUFFER) }
    }
}

/// Binds the sockets of further receiving threads to the port of the first ones, and spreads datagrams over all.
///
/// The port stays shared: a program of the same user could bind to it, too. It would get no datagram, as none is steered to it.
fn spread(
    first: [Option<&OwnedFd>; 2],
    at: [Option<IpAddr>; 2],
    port: u16,
    options: &SocketOptions,
    steering: Steering,
) -> Result<Vec<[Option<OwnedFd>; 2]>, Errno> {
    let mut of_threads: Vec<_> = (1..steering.sockets).map(|_| [None, None]).collect();
    for (version, (first, address)) in first.into_iter().zip(at).enumerate() {
        let (Some(first), Some(address)) = (first, address) else { continue };
        // Not before it was bound: so it is refused a port that another program has.
        sockopt::set_socket_reuseport(first, true)?;
        // The program counts them in the order in which they are bound.
        for pair in &mut of_threads {
            pair[version] = Some(open(address, port, options, Use::Shared)?);
        }
        steering.attach(first.as_fd())?;
    }
    Ok(of_threads)
}

/// The send-only sockets, bound to the same port as `shared`; as many as can be opened, and at most `most`.
pub(super) fn own_sockets(
    shared: Option<&OwnedFd>,
    most: usize,
    stays_shared: bool,
    open: impl Fn() -> Result<OwnedFd, Errno>,
) -> ArrayVec<OwnedFd, OWN> {
    let Some(shared) = shared else { return ArrayVec::new() };
    // Sharing is only allowed while they are bound: later, another program could take part of the datagrams.
    let may_share = |may| sockopt::set_socket_reuseport(shared, may);
    let own = (0..most).map_while(|_| may_share(true).and_then(|()| open()).ok()).collect();
    if !stays_shared {
        let _ = may_share(false);
    }
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
pub(super) fn optional(socket: Result<OwnedFd, Errno>) -> Result<Option<OwnedFd>, Errno> {
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
    if purpose != Use::All {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    bind(&fd, &SocketAddr::from((address, port)))?;
    Ok(fd)
}

/// Sets buffer sizes and enables the control data of received datagrams.
pub(super) fn set_up(
    fd: &OwnedFd,
    family: AddressFamily,
    options: &SocketOptions,
    purpose: Use,
) -> Result<(), Errno> {
    let (receive, send) = purpose.buffers();
    set_buffers(fd, Some(send), Some(receive));
    if purpose != Use::Send {
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
