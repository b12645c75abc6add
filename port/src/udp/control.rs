//! Control messages, which accompany a datagram (`cmsg(3)`), written and read as bytes.

use packet::Endpoint;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// From linux/udp.h; libc does not have it for every target.
pub(super) const UDP_SEGMENT: libc::c_int = 103;
/// From linux/udp.h, too.
pub(super) const UDP_GRO: libc::c_int = 104;

/// Length of `struct cmsghdr`: a word with the length, and two ints. The data after it is aligned to the word.
const HEADER: usize = size_of::<libc::cmsghdr>();
const ALIGN: usize = size_of::<usize>();

/// Space for all control messages used: packet info, traffic class, segment size.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    bytes: [u8; 128],
    length: usize,
}

impl Control {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; 128], length: 0 }
    }

    pub(crate) fn push(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        let start = self.length;
        let end = HEADER + data.len();
        let message = &mut self.bytes[start..];
        message[..ALIGN].copy_from_slice(&end.to_ne_bytes());
        message[ALIGN..ALIGN + 4].copy_from_slice(&level.to_ne_bytes());
        message[ALIGN + 4..ALIGN + 8].copy_from_slice(&kind.to_ne_bytes());
        message[HEADER..end].copy_from_slice(data);
        self.length = start + end.next_multiple_of(ALIGN);
    }

    /// Sets the source address, if `local` is known.
    pub(super) fn push_source(&mut self, local: Option<IpAddr>) {
        match local {
            Some(IpAddr::V4(address)) => {
                // struct in_pktinfo: interface, local address, destination. Routing selects the interface.
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&address.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            Some(IpAddr::V6(address)) => {
                // struct in6_pktinfo: address, interface.
                let mut info = [0; 20];
                info[..16].copy_from_slice(&address.octets());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            None => {}
        }
    }

    /// Sets the DS field.
    pub(super) fn push_ds_field(&mut self, is_ipv4: bool, ds_field: u8) {
        let value = libc::c_int::from(ds_field).to_ne_bytes();
        if is_ipv4 {
            self.push(libc::IPPROTO_IP, libc::IP_TOS, &value);
        } else {
            self.push(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &value);
        }
    }

    /// Asks the kernel to segment the payload into datagrams of `size` bytes.
    pub(super) fn push_segment(&mut self, size: u16) {
        self.push(libc::IPPROTO_UDP, UDP_SEGMENT, &size.to_ne_bytes());
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// Bytes written.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Bytes of space.
    pub(crate) const fn capacity() -> usize {
        128
    }

    /// Reads `length` bytes written by the kernel.
    pub(super) fn read(&self, length: usize) -> Received {
        let mut received = Received::default();
        self.messages(length, |level, kind, data| received.note(level, kind, data));
        received
    }

    /// Calls `note` with the level, the type and the data of each message in `length` bytes written by the kernel.
    #[inline]
    pub(crate) fn messages(&self, length: usize, mut note: impl FnMut(libc::c_int, libc::c_int, &[u8])) {
        let mut rest = &self.bytes[..length.min(self.bytes.len())];
        while rest.len() >= HEADER {
            let word = |at: usize| i32::from_ne_bytes(rest[at..at + 4].try_into().expect("four bytes"));
            let end = usize::from_ne_bytes(rest[..ALIGN].try_into().expect("a word"));
            let (level, kind) = (word(ALIGN), word(ALIGN + 4));
            let Some(data) = rest.get(HEADER..end) else { break };
            note(level, kind, data);
            rest = rest.get(end.next_multiple_of(ALIGN)..).unwrap_or_default();
        }
    }
}

/// The control data of a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// The destination address.
    pub(super) local: Option<IpAddr>,
    /// The DS field of its outer header.
    pub(super) ds_field: u8,
    /// The size of the merged datagrams, with GRO.
    pub(super) segment: Option<usize>,
}

impl Received {
    fn note(&mut self, level: libc::c_int, kind: libc::c_int, data: &[u8]) {
        match (level, kind) {
            (libc::IPPROTO_UDP, UDP_GRO) => {
                let size = data.first_chunk().map(|&size| i32::from_ne_bytes(size));
                self.segment = size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                let address = data.get(4..8).and_then(|data| data.first_chunk::<4>());
                self.local = address.map(|&address| Ipv4Addr::from(address).into());
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                self.local = data.first_chunk::<16>().map(|&address| Ipv6Addr::from(address).into());
            }
            // A byte for IPv4, an int for IPv6; either way the low byte counts.
            (libc::IPPROTO_IP, libc::IP_TOS) => self.ds_field = data.first().copied().unwrap_or(0),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                self.ds_field = data.first_chunk().map_or(0, |&class| i32::from_ne_bytes(class) as u8);
            }
            _ => {}
        }
    }
}

/// A socket address in the format of the kernel.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
pub(crate) struct Name {
    bytes: [u8; size_of::<libc::sockaddr_in6>()],
    length: usize,
}

impl Name {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; size_of::<libc::sockaddr_in6>()], length: 0 }
    }

    pub(crate) fn of(address: &SocketAddr) -> Self {
        let mut name = Self::new();
        let bytes = &mut name.bytes;
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(address) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&address.ip().octets());
                name.length = size_of::<libc::sockaddr_in>();
            }
            SocketAddr::V6(address) => {
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
                bytes[8..24].copy_from_slice(&address.ip().octets());
                bytes[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
                name.length = size_of::<libc::sockaddr_in6>();
            }
        }
        name
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let bytes = &self.bytes;
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        match libc::c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
            libc::AF_INET => {
                let address: [u8; 4] = bytes[4..8].try_into().expect("four bytes");
                Some(SocketAddrV4::new(address.into(), port).into())
            }
            libc::AF_INET6 => {
                let address: [u8; 16] = bytes[8..24].try_into().expect("sixteen bytes");
                let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
                Some(SocketAddrV6::new(address.into(), port, 0, word(24)).into())
            }
            _ => None,
        }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) const fn capacity() -> usize {
        size_of::<libc::sockaddr_in6>()
    }
}

/// The source and the destination of a datagram that came to a binding.
pub(super) fn endpoint(name: &Name, received: &Received, binding: u8) -> Option<Endpoint> {
    name.address().map(|remote| Endpoint { local: received.local, binding, ..Endpoint::new(remote) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_round_trip() {
        let mut control = Control::new();
        control.push_source(Some("192.0.2.7".parse().expect("literal")));
        control.push_ds_field(true, 0x88);
        control.push(libc::IPPROTO_UDP, UDP_GRO, &1452i32.to_ne_bytes());
        let received = control.read(control.length());
        let local = Some("192.0.2.7".parse().expect("literal"));
        assert_eq!(received, Received { local, ds_field: 0x88, segment: Some(1452) });

        let mut control = Control::new();
        control.push_source(Some("2001:db8::7".parse().expect("literal")));
        control.push_ds_field(false, 3);
        let received = control.read(control.length());
        assert_eq!((received.local, received.ds_field), (Some("2001:db8::7".parse().expect("literal")), 3));
    }

    #[test]
    fn truncated_control_messages_are_not_read_beyond_their_end() {
        let mut control = Control::new();
        control.push_source(Some("192.0.2.7".parse().expect("literal")));
        control.push_segment(100);
        for length in 0..control.length() {
            let _ = control.read(length);
        }
        control.bytes[..ALIGN].fill(0xff);
        assert_eq!(control.read(control.length()), Received::default());
        control.bytes[..ALIGN].fill(0);
        assert_eq!(control.read(control.length()), Received::default());
    }

    #[test]
    fn addresses_round_trip() {
        for address in ["192.0.2.1:51820", "[2001:db8::1]:9", "[fe80::1%5]:7"] {
            let address: SocketAddr = address.parse().expect("literal");
            assert_eq!(Name::of(&address).address(), Some(address));
        }
        assert_eq!(Name::new().address(), None);
    }
}
