//! Raw sockets: ESP over IP, which has no ports. One socket of each IP version receives and sends, or one a receiving thread, with a
//! filter of the kernel each, see [`steering`](super::steering).

use super::socket::{OWN, UdpSockets, Use, optional, own_sockets, set_up};
use super::steering::Steering;
use crate::SocketOptions;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, bind, socket_with};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};

impl UdpSockets {
    /// Raw sockets for an IP protocol, which has no ports: data start after the IP header.
    ///
    /// Over IPv4, received data include that header. With `steering`, each receiving thread has sockets of its own, and filters of
    /// the kernel give each packet to one of them. Needs CAP_NET_RAW.
    pub(crate) fn raw(protocol: u8, fwmark: u32, steering: Option<Steering>) -> Result<Self, Errno> {
        let steering = steering.filter(|steering| steering.sockets > 1);
        let open = |family, purpose| open_raw(family, protocol, fwmark, purpose);
        let open_of = |family| open(family, Use::All);
        let [v4, v6] = [AddressFamily::INET, AddressFamily::INET6].map(|family| optional(open_of(family)));
        let (v4, v6) = (v4?, v6?);
        if v4.is_none() && v6.is_none() {
            return Err(Errno::AFNOSUPPORT);
        }
        let open = |family| open(family, Use::Send);
        let own = [(&v4, AddressFamily::INET), (&v6, AddressFamily::INET6)];
        let own = own.map(|(shared, family)| own_sockets(shared.as_ref(), OWN, false, || open(family)));
        let of_threads = match steering {
            Some(steering) => spread_raw([v4.as_ref(), v6.as_ref()], steering, open_of)?,
            None => Vec::new(),
        };
        Ok(Self { v4, v6, own, port: 0, of_threads, further: Vec::new() })
    }
}

/// Opens the raw sockets of further receiving threads. The kernel offers each packet to all of them, and to the first ones.
fn spread_raw(
    first: [Option<&OwnedFd>; 2],
    steering: Steering,
    open: impl Fn(AddressFamily) -> Result<OwnedFd, Errno>,
) -> Result<Vec<[Option<OwnedFd>; 2]>, Errno> {
    let mut of_threads: Vec<_> = (1..steering.sockets).map(|_| [None, None]).collect();
    for (version, first) in first.into_iter().enumerate() {
        let Some(first) = first else { continue };
        let family = if version == 0 { AddressFamily::INET } else { AddressFamily::INET6 };
        steering.attach_filter(first.as_fd(), 0, version == 0)?;
        for (number, pair) in (1..).zip(&mut of_threads) {
            let socket = open(family)?;
            steering.attach_filter(socket.as_fd(), number, version == 0)?;
            pair[version] = Some(socket);
        }
    }
    Ok(of_threads)
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
