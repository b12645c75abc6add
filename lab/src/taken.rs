//! UDP ports that another program has, for tests of what is refused then and comes back later.
//!
//! A program that is started elsewhere in this process holds a copy of every socket until its `exec`. A port is thus not always
//! free as soon as its socket is closed, and the next who asks for it would be refused.

use crate::{Lab, Outcome, PATIENCE, wait_until};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;

/// A UDP port that is taken in a namespace. It is free when this has been dropped.
pub struct Taken {
    socket: Option<UdpSocket>,
    network: File,
}

impl Lab {
    /// Takes a UDP port of a namespace, as soon as it is free.
    pub fn take(&self, name: &str, address: &str) -> Outcome<Taken> {
        let network = File::open(Path::new("/run/netns").join(self.namespace(name)))?;
        let mut socket = None;
        wait_until(PATIENCE, || {
            socket = self.enter(name, || UdpSocket::bind(address)).ok().and_then(Result::ok);
            socket.is_some()
        })
        .map_err(|_| format!("{address} of {name} is not free"))?;
        Ok(Taken { socket, network })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        let network = self.network.as_fd();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // Without the namespace nobody asks for its port.
                if move_into_link_name_space(network, Some(LinkNameSpaceType::Network)).is_ok() {
                    release(socket);
                }
            });
        });
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
