//! Sockets that measure the path through tunnels: ICMP echo and UDP, one datagram a call.
//!
//! ```text
//! probe, with a source address and the tunnel's interface ──> sendmsg ──> TUN
//! answer ──> recvmsg: source, destination, interface, hop limit, and how long ago the kernel had it
//! ICMP errors ──> error queue: the destination, and the MTU that fits there
//! ```
//! A datagram leaves by the interface that it names, whatever routes say: no probe leaves outside a tunnel. All have DF set, and
//! the kernel's path MTU is not asked (`IP_PMTUDISC_PROBE`), so that packets of any size up to the interface's MTU can be tried.
#![expect(unsafe_code, reason = "sendmsg and recvmsg take buffers by address")]

use crate::link::{mtu_by, set_option};
use crate::udp::control::{Control, Name};
use crate::udp::last_error;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, netdevice, socket_with, sockopt,
};
use rustix::time::{ClockId, clock_gettime};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// linux/in.h, linux/in6.h: DF set, the path MTU ignored.
const PMTUDISC_PROBE: libc::c_int = 3;
/// linux/icmp.h: the level and the option that tell which ICMP messages a socket does not get.
const SOL_RAW: libc::c_int = 255;
const ICMP_FILTER: libc::c_int = 1;
/// linux/icmpv6.h
const ICMPV6_FILTER: libc::c_int = 1;
const ECHO_REPLY: u32 = 0;
const ECHO_REPLY_V6: u32 = 129;

/// A socket of one IP version.
pub struct ProbeSocket {
    fd: OwnedFd,
    is_v4: bool,
}

/// The way that a datagram takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// The index of the interface that it leaves by; 0 for routing's choice.
    pub interface: u32,
    /// Its source address; the kernel's choice if there is none.
    pub source: Option<IpAddr>,
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its length; with ICMP over IPv4, with the IP header.
    pub length: usize,
    /// Whence it came.
    pub from: SocketAddr,
    /// The address that it was sent to.
    pub to: Option<IpAddr>,
    /// The index of the interface that it came by.
    pub interface: u32,
    /// Its TTL or hop limit.
    pub hop_limit: u8,
    /// How long ago the kernel received it.
    pub age: Duration,
}

/// An ICMP error about a datagram that was sent, or the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Where the datagram was sent to.
    pub to: IpAddr,
    /// The largest packet that fits, if the datagram was too big.
    pub mtu: Option<u32>,
    /// How much is known of the datagram, from its ICMP or UDP payload on: ICMP with its header.
    pub length: usize,
}

impl ProbeSocket {
    /// A socket for ICMP echo that receives only replies; needs CAP_NET_RAW.
    pub fn echo(is_v4: bool) -> Result<Self, Errno> {
        let (family, protocol) = if is_v4 {
            (AddressFamily::INET, rustix::net::ipproto::ICMP)
        } else {
            (AddressFamily::INET6, rustix::net::ipproto::ICMPV6)
        };
        let fd = socket_with(family, SocketType::RAW, FLAGS, Some(protocol))?;
        if is_v4 {
            set_option(fd.as_fd(), SOL_RAW, ICMP_FILTER, &!(1u32 << ECHO_REPLY))?;
        } else {
            let mut blocked = [u32::MAX; 8];
            blocked[(ECHO_REPLY_V6 / 32) as usize] &= !(1 << (ECHO_REPLY_V6 % 32));
            set_option(fd.as_fd(), libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &blocked)?;
        }
        Self { fd, is_v4 }.prepared(true)
    }

    /// A UDP socket that sends probes, on a free port.
    pub fn sender(is_v4: bool) -> Result<Self, Errno> {
        let any: IpAddr = if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        Self::datagram(SocketAddr::new(any, 0), true)
    }

    /// A UDP socket that answers probes at an address, which need not be there yet.
    pub fn reflector(at: SocketAddr) -> Result<Self, Errno> {
        Self::datagram(at, false)
    }

    fn datagram(at: SocketAddr, errors: bool) -> Result<Self, Errno> {
        let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let fd = socket_with(family, SocketType::DGRAM, FLAGS, None)?;
        if at.is_ipv4() {
            sockopt::set_ip_freebind(&fd, true)?;
        } else {
            sockopt::set_ipv6_v6only(&fd, true)?;
            sockopt::set_ipv6_freebind(&fd, true)?;
        }
        bind(&fd, &at)?;
        Self { fd, is_v4: at.is_ipv4() }.prepared(errors)
    }

    fn prepared(self, errors: bool) -> Result<Self, Errno> {
        let set = |level, option, value: libc::c_int| set_option(self.fd.as_fd(), level, option, &value);
        set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        let (level, options) = if self.is_v4 {
            (libc::IPPROTO_IP, [libc::IP_MTU_DISCOVER, libc::IP_PKTINFO, libc::IP_RECVTTL, libc::IP_RECVERR])
        } else {
            let v6 = [libc::IPV6_MTU_DISCOVER, libc::IPV6_RECVPKTINFO, libc::IPV6_RECVHOPLIMIT];
            (libc::IPPROTO_IPV6, [v6[0], v6[1], v6[2], libc::IPV6_RECVERR])
        };
        for (option, value) in options.into_iter().zip([PMTUDISC_PROBE, 1, 1, errors.into()]) {
            set(level, option, value)?;
        }
        Ok(self)
    }

    /// Whether it is of IPv4.
    pub fn is_v4(&self) -> bool {
        self.is_v4
    }

    /// The port that it is bound to.
    pub fn port(&self) -> Option<u16> {
        SocketAddr::try_from(getsockname(&self.fd).ok()?).ok().map(|at| at.port())
    }

    /// The index and the MTU of an interface, if it is there.
    pub fn link(&self, name: &str) -> Option<(u32, u32)> {
        let index = netdevice::name_to_index(&self.fd, name).ok()?;
        Some((index, mtu_by(&self.fd, name).ok()?))
    }

    /// Sends a datagram, without waiting.
    pub fn send(&self, bytes: &[u8], to: SocketAddr, way: Way) -> Result<(), Errno> {
        let mut name = Name::of(&to);
        let mut control = Control::new();
        push_way(&mut control, self.is_v4, way);
        let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: plain data, for which all zeros is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_namelen = name.length() as libc::socklen_t;
        header.msg_name = name.as_mut_ptr().cast();
        (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
        header.msg_controllen = control.length() as _;
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the name, the bytes and the control data live until the call returns, which only reads them.
        let sent = unsafe { libc::sendmsg(self.fd.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
        if sent < 0 { Err(last_error()) } else { Ok(()) }
    }

    /// Receives a datagram, without waiting; nothing if there is none. An error that was reported for the socket is cleared by
    /// this call, and the next one goes on.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Option<Arrived>, Errno> {
        let Some((length, name, control, filled)) = self.take(buffer, 0)? else { return Ok(None) };
        let mut arrived = Arrived {
            length,
            from: name.address().ok_or(Errno::AFNOSUPPORT)?,
            to: None,
            interface: 0,
            hop_limit: 0,
            age: Duration::ZERO,
        };
        control.messages(filled, |level, kind, data| arrived.note(level, kind, data));
        Ok(Some(arrived))
    }

    /// Takes an error out of the error queue, and what it quotes into `buffer`; nothing if there is none.
    pub fn receive_error(&self, buffer: &mut [u8]) -> Result<Option<Refused>, Errno> {
        let Some((length, name, control, filled)) = self.take(buffer, libc::MSG_ERRQUEUE)? else {
            return Ok(None);
        };
        let to = name.address().ok_or(Errno::AFNOSUPPORT)?.ip();
        let mut refused = Refused { to, mtu: None, length };
        control.messages(filled, |level, kind, data| {
            let is_error = matches!(
                (level, kind),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            );
            // struct sock_extended_err: errno, four bytes, info.
            let word = |at: usize| Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?));
            if is_error && word(0) == Some(libc::EMSGSIZE as u32) {
                refused.mtu = word(8);
            }
        });
        Ok(Some(refused))
    }

    /// One recvmsg: the bytes, the name and the control data, with the length of the last.
    fn take(
        &self,
        buffer: &mut [u8],
        flags: libc::c_int,
    ) -> Result<Option<(usize, Name, Control, usize)>, Errno> {
        let (mut name, mut control) = (Name::new(), Control::new());
        let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        // SAFETY: plain data, for which all zeros is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        (header.msg_name, header.msg_namelen) =
            (name.as_mut_ptr().cast(), Name::capacity() as libc::socklen_t);
        (header.msg_iov, header.msg_iovlen) = (&raw mut piece, 1);
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = Control::capacity() as _;
        let flags = flags | libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes at most so many bytes into the name, the buffer and the control data, which live until the
        // call returns.
        let received = unsafe { libc::recvmsg(self.fd.as_raw_fd(), &raw mut header, flags) };
        if received >= 0 {
            return Ok(Some((received as usize, name, control, header.msg_controllen as usize)));
        }
        match last_error() {
            Errno::AGAIN => Ok(None),
            error => Err(error),
        }
    }
}

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

impl AsFd for ProbeSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn push_way(control: &mut Control, is_v4: bool, way: Way) {
    let index = way.interface.to_ne_bytes();
    match (is_v4, way.source) {
        (true, source) => {
            // struct in_pktinfo: interface, local address, destination.
            let mut info = [0; 12];
            info[..4].copy_from_slice(&index);
            if let Some(IpAddr::V4(source)) = source {
                info[4..8].copy_from_slice(&source.octets());
            }
            control.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        (false, source) => {
            // struct in6_pktinfo: address, interface.
            let mut info = [0; 20];
            if let Some(IpAddr::V6(source)) = source {
                info[..16].copy_from_slice(&source.octets());
            }
            info[16..].copy_from_slice(&index);
            control.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
    }
}

impl Arrived {
    fn note(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let word = |at: usize| Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(i64::from_ne_bytes(*data.get(at..)?.first_chunk()?));
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                let Some((seconds, nanoseconds)) = long(0).zip(long(8)) else { return };
                let now = clock_gettime(ClockId::Realtime);
                let since = (now.tv_sec.saturating_sub(seconds)).saturating_mul(1_000_000_000);
                let since = since.saturating_add(now.tv_nsec.saturating_sub(nanoseconds));
                // The clock may have been set in between: then the moment of this call is the best that is known.
                self.age = u64::try_from(since).map_or(Duration::ZERO, Duration::from_nanos);
                if self.age > OLDEST {
                    self.age = Duration::ZERO;
                }
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                self.interface = word(0).unwrap_or_default();
                let address = data.get(8..12).and_then(|data| data.first_chunk::<4>());
                self.to = address.map(|&address| Ipv4Addr::from(address).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.to = data.first_chunk::<16>().map(|&address| Ipv6Addr::from(address).into());
                self.interface = word(16).unwrap_or_default();
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                self.hop_limit = word(0).unwrap_or_default() as u8;
            }
            _ => {}
        }
    }
}

/// A datagram does not wait longer in a socket that is read.
const OLDEST: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_tells_whence_it_came_and_its_answer_goes_back_that_way() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(there) = ProbeSocket::reflector(any.parse().expect("literal")) else { continue };
            let here = ProbeSocket::sender(there.is_v4()).expect("a socket");
            let (loopback, mtu) = there.link("lo").expect("it is there");
            assert!(mtu >= 1280, "{mtu}");
            let at = SocketAddr::new(
                any.parse::<SocketAddr>().expect("literal").ip(),
                there.port().expect("bound"),
            );
            let way = Way { interface: loopback, source: Some(at.ip()) };
            here.send(b"probe", at, way).expect("loopback takes it");
            let mut buffer = [0; 64];
            let arrived = there.receive(&mut buffer).expect("no error").expect("it is there");
            assert_eq!((arrived.length, arrived.from.ip(), arrived.to), (5, at.ip(), Some(at.ip())));
            assert_eq!((arrived.interface, arrived.from.port()), (loopback, here.port().expect("bound")));
            assert!(arrived.hop_limit > 0 && arrived.age < OLDEST, "{arrived:?}");
            assert_eq!(there.receive(&mut buffer), Ok(None));
            let back = Way { interface: arrived.interface, source: arrived.to };
            there.send(b"answer", arrived.from, back).expect("loopback takes it");
            assert_eq!(here.receive(&mut buffer).expect("no error").expect("it is there").from, at);
        }
    }

    #[test]
    fn nothing_leaves_by_another_interface_and_what_is_not_there_has_no_index() {
        let here = ProbeSocket::sender(true).expect("a socket");
        assert_eq!(here.link("nosuch0"), None);
        let nowhere = Way { interface: 999_999, source: None };
        assert!(here.send(b"probe", "127.0.0.1:9".parse().expect("literal"), nowhere).is_err());
    }

    #[test]
    fn an_error_names_its_destination() {
        let here = ProbeSocket::sender(true).expect("a socket");
        let there = ProbeSocket::reflector("127.0.0.1:0".parse().expect("literal")).expect("a socket");
        let closed = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), there.port().expect("bound"));
        drop(there);
        here.send(b"probe", closed, Way::default()).expect("loopback takes it");
        let mut buffer = [0; 64];
        let refused = here.receive_error(&mut buffer).expect("no error").expect("it is there");
        assert_eq!((refused.to, refused.mtu), (closed.ip(), None));
        assert_eq!(&buffer[..refused.length], b"probe");
        assert_eq!(here.receive_error(&mut buffer), Ok(None));
    }
}
