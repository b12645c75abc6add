//! Interfaces that frames are received from and sent to, as sockets see them.

#![expect(unsafe_code, reason = "ioctls and socket options take their arguments by address")]

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The reason why a port of frames could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// There is no such interface.
    #[error("no interface {0}\n  fix: see ip link; interfaces of a network namespace need ip netns exec")]
    Missing(String),
    /// The interface is down.
    #[error("interface {0} is down\n  fix: ip link set {0} up")]
    Down(String),
    /// The permission is missing.
    #[error("no right to open {what} on {interface}\n  fix: run as root, or with {capabilities}")]
    Denied {
        /// The interface.
        interface: String,
        /// What was to be opened.
        what: &'static str,
        /// The capabilities that it needs.
        capabilities: &'static str,
    },
    /// Another program is attached to the interface.
    #[error(
        "interface {0} has an XDP program already\n  fix: end the program that uses it; see ip link show {0}"
    )]
    Busy(String),
    /// A step failed.
    #[error("{interface}: {step}: {error}")]
    Step {
        /// The interface.
        interface: String,
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        error: Errno,
    },
}

/// An interface that is there and up.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
}

impl Link {
    /// The interface of this name in the network namespace of the calling thread.
    pub fn find(name: &str) -> Result<Self, LinkError> {
        let step = |step| move |error| LinkError::Step { interface: name.to_owned(), step, error };
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
            .map_err(step("socket"))?;
        let index =
            netdevice::name_to_index(&socket, name).map_err(|_| LinkError::Missing(name.to_owned()))?;
        if flags(&socket, name).map_err(step("its flags"))? & libc::IFF_UP as libc::c_short == 0 {
            return Err(LinkError::Down(name.to_owned()));
        }
        Ok(Self { name: name.to_owned(), index })
    }

    /// An error of a step of opening a port.
    pub(crate) fn step(&self, step: &'static str, error: Errno) -> LinkError {
        LinkError::Step { interface: self.name.clone(), step, error }
    }
}

fn flags(socket: &OwnedFd, name: &str) -> Result<libc::c_short, Errno> {
    let request = ask(socket, name, libc::SIOCGIFFLAGS as _, |_| ())?;
    // SAFETY: the request has filled in the flags.
    Ok(unsafe { request.ifr_ifru.ifru_flags })
}

/// Sets the interface up.
pub(crate) fn set_up(name: &str) -> Result<(), Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let flags = flags(&socket, name)? | libc::IFF_UP as libc::c_short;
    ask(&socket, name, libc::SIOCSIFFLAGS as _, |request| request.ifr_ifru.ifru_flags = flags).map(drop)
}

/// Gives the interface this Ethernet address.
pub(crate) fn set_hardware_address(name: &str, address: [u8; 6]) -> Result<(), Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut hardware =
        libc::sockaddr { sa_family: libc::ARPHRD_ETHER as libc::sa_family_t, sa_data: [0; 14] };
    for (to, from) in hardware.sa_data.iter_mut().zip(address) {
        *to = from as libc::c_char;
    }
    ask(&socket, name, libc::SIOCSIFHWADDR as _, |request| request.ifr_ifru.ifru_hwaddr = hardware).map(drop)
}

/// Gives the interface this MTU.
pub(crate) fn set_mtu(name: &str, mtu: u16) -> Result<(), Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    ask(&socket, name, libc::SIOCSIFMTU as _, |request| request.ifr_ifru.ifru_mtu = mtu.into()).map(drop)
}

/// The MTU of an interface.
pub fn mtu(name: &str) -> Result<u32, LinkError> {
    let mtu = || {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        mtu_by(&socket, name)
    };
    mtu().map_err(|error| LinkError::Step { interface: name.to_owned(), step: "its MTU", error })
}

/// The MTU of an interface, by a socket that is open.
pub(crate) fn mtu_by(socket: &OwnedFd, name: &str) -> Result<u32, Errno> {
    let request = ask(socket, name, libc::SIOCGIFMTU as _, |_| ())?;
    // SAFETY: the request has filled in the MTU.
    Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
}

/// The Ethernet address of an interface.
pub fn hardware_address(name: &str) -> Result<[u8; 6], LinkError> {
    let address = || {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let request = ask(&socket, name, libc::SIOCGIFHWADDR as _, |_| ())?;
        // SAFETY: the request has filled in the address.
        let bytes = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
        Ok(std::array::from_fn(|place| bytes[place] as u8))
    };
    address().map_err(|error| LinkError::Step { interface: name.to_owned(), step: "its address", error })
}

/// The queues of an interface, as `ethtool -l` shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    receive: u32,
    transmit: u32,
    combined: u32,
}

/// linux/ethtool.h
#[derive(Clone, Copy)]
#[repr(C)]
struct EthtoolChannels {
    command: u32,
    /// The most of each kind, in the order of the counts.
    most: [u32; 4],
    receive: u32,
    transmit: u32,
    other: u32,
    combined: u32,
}

impl Channels {
    /// The queues of an interface, if its driver tells.
    pub fn of(name: &str) -> Option<Self> {
        const ETHTOOL_GCHANNELS: u32 = 0x3c;
        const SIOCETHTOOL: libc::Ioctl = 0x8946;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
        let mut channels = EthtoolChannels {
            command: ETHTOOL_GCHANNELS,
            most: [0; 4],
            receive: 0,
            transmit: 0,
            other: 0,
            combined: 0,
        };
        // The request writes to the channels, which live until it returns.
        let data = (&raw mut channels).cast();
        ask(&socket, name, SIOCETHTOOL, |request| request.ifr_ifru.ifru_data = data).ok()?;
        let EthtoolChannels { receive, transmit, combined, .. } = channels;
        Some(Self { receive, transmit, combined })
    }

    /// Queues that frames are received from.
    pub fn receiving(self) -> u32 {
        self.receive + self.combined
    }

    /// Queues that frames are sent to.
    pub fn sending(self) -> u32 {
        self.transmit + self.combined
    }

    /// What follows `ethtool -L NAME` for so many queues.
    pub fn words(self, count: usize) -> String {
        if self.combined > 0 { format!("combined {count}") } else { format!("rx {count} tx {count}") }
    }
}

/// One request about an interface, which `fill` completes.
fn ask(
    socket: &OwnedFd,
    name: &str,
    request: libc::Ioctl,
    fill: impl FnOnce(&mut libc::ifreq),
) -> Result<libc::ifreq, Errno> {
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut argument: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in argument.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    fill(&mut argument);
    // SAFETY: the request reads and writes one ifreq, which lives until the call returns.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut argument) })?;
    Ok(argument)
}

/// Sets a socket option whose value is plain data.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> Result<(), Errno> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the call reads `length` bytes of the value, which lives until it returns.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const *value).cast(), length) })
}

/// Receives all frames of the interface, whatever their destination, as long as `fd`, a packet socket, lives.
pub(crate) fn make_promiscuous(fd: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
    request.mr_ifindex = index as libc::c_int;
    request.mr_type = libc::PACKET_MR_PROMISC as libc::c_ushort;
    set_option(fd, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// A packet socket of an interface that receives nothing yet.
pub(crate) fn packet_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
}

/// The outcome of a system call.
pub(crate) fn check(outcome: libc::c_int) -> Result<(), Errno> {
    if outcome < 0 { Err(last_error()) } else { Ok(()) }
}

pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Binds a packet socket to all protocols of an interface.
pub(crate) fn bind(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    // SAFETY: plain data, for which all zeros is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as libc::c_int;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the call reads the address, which lives until it returns.
    check(unsafe { libc::bind(socket.as_fd().as_raw_fd(), (&raw const address).cast(), length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_its_name_and_the_error_says_what_to_do() {
        let error = Link::find("none-such0").expect_err("there is none").to_string();
        assert!(error.contains("none-such0") && error.contains("fix: "), "{error}");
        match Link::find("lo") {
            Ok(link) => {
                assert!(link.index > 0);
                assert_eq!(hardware_address("lo").expect("it is there"), [0; 6]);
                assert_eq!(Channels::of("lo"), None, "its driver does not tell");
            }
            Err(error) => assert!(error.to_string().contains("ip link set lo up"), "{error}"),
        }
    }
}
