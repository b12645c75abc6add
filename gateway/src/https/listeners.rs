//! The sockets that the server accepts connections on. The daemon binds them, which may do so below port 1024, and keeps
//! them: a server that starts again gets the same ones.

use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

/// Connections that wait to be accepted.
const WAITING: i32 = 128;

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("service {service}: {address} cannot be listened on: {error}\n  fix: {}", fix(service, error))]
pub(super) struct ListenError {
    service: &'static str,
    address: SocketAddr,
    error: io::Error,
}

impl ListenError {
    pub(super) fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse
    }
}

fn fix(service: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "another program has this port: set service {service} port 8443, or stop that program (ss -ltnp shows it)"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("give the daemon CAP_NET_BIND_SERVICE, or set service {service} port 8443")
        }
        _ => format!("set service {service} listen-address ADDRESS"),
    }
}

#[derive(Default)]
pub(super) struct Listeners(BTreeMap<SocketAddr, Socket>);

impl Listeners {
    /// Closes those that are not wanted any more; whether there was one.
    pub(super) fn keep(&mut self, wanted: impl Fn(&SocketAddr) -> bool) -> bool {
        let before = self.0.len();
        self.0.retain(|address, _| wanted(address));
        self.0.len() != before
    }

    /// Binds an address for a service unless it is bound.
    pub(super) fn bind(&mut self, service: &'static str, address: SocketAddr) -> Result<(), ListenError> {
        if let Entry::Vacant(place) = self.0.entry(address) {
            place.insert(bind(address).map_err(|error| ListenError { service, address, error })?);
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.keys().copied()
    }

    /// The sockets in the order of their addresses.
    pub(super) fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.0.values().map(AsFd::as_fd).collect()
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // An address of a tunnel may come later than the socket.
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        socket.set_freebind_v6(true)?;
    } else {
        socket.set_freebind_v4(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(WAITING)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_another_program_is_refused_with_a_fix_and_kept_sockets_are_bound_once() {
        // No program takes the port of this address in between, as it might of 127.0.0.1.
        let taken = std::net::TcpListener::bind("127.77.9.3:0").expect("a port is free");
        let address = taken.local_addr().expect("bound");
        let mut listeners = Listeners::default();
        let error = listeners.bind("https", address).expect_err("in use").to_string();
        assert!(error.contains("fix: another program has this port"), "{error}");
        drop(taken);
        listeners.bind("https", address).expect("free now");
        listeners.bind("https", address).expect("bound already");
        assert_eq!(listeners.sockets().len(), 1);
        assert!(listeners.keep(|_| false) && !listeners.keep(|_| false));
    }

    #[test]
    fn an_address_that_comes_later_is_bound_before() {
        Listeners::default().bind("https", "192.0.2.77:0".parse().expect("an address")).expect("bound");
    }
}
