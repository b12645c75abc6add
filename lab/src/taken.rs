//! UDP ports that another program has, for tests of what is refused then and comes back later.
//!
//! A program that is started elsewhere in this process holds a copy of every socket until its `exec`. A port is thus not always
//! free as soon as its socket is closed, and the next who asks for it would be refused.

use crate::{Lab, Outcome, PATIENCE, enter, wait_until};
use rustix::io::Result;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};

/// A UDP port that is taken in a namespace. It is free when this has been dropped.
pub struct Taken {
    socket: Option<UdpSocket>,
    network: File,
}

impl Lab {
    /// Takes a UDP port of a namespace, as soon as it is free; that of an IPv6 address only for IPv6.
    pub fn take(&self, name: &str, address: &str) -> Outcome<Taken> {
        let (at, network) = (address.parse()?, self.network(name)?);
        let mut socket = None;
        wait_until(PATIENCE, || {
            socket = enter(&network, || bound(at)).ok().and_then(Result::ok);
            socket.is_some()
        })
        .map_err(|_| format!("{address} of {name} is not free"))?;
        Ok(Taken { socket, network })
    }
}

fn bound(at: SocketAddr) -> Result<UdpSocket> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &at)?;
    Ok(socket.into())
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Without the namespace nobody asks for its port.
        let _ = self.socket.take().map(|socket| enter(&self.network, || release(socket)));
    }
}

/// Closes a UDP socket of the calling thread's namespace, and waits until its port is free.
pub fn release(socket: UdpSocket) {
    let Ok(address) = socket.local_addr() else { return };
    drop(socket);
    let table = if address.is_ipv4() { "/proc/thread-self/net/udp" } else { "/proc/thread-self/net/udp6" };
    let port = format!(":{:04X}", address.port());
    let is_free = || {
        // The second field of each line is the local address (proc_net_udp(5)).
        std::fs::read_to_string(table).is_ok_and(|table| {
            table.lines().all(|line| !line.split_whitespace().nth(1).is_some_and(|it| it.ends_with(&port)))
        })
    };
    let _ = wait_until(PATIENCE, is_free);
}
