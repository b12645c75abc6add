//! The UDP sockets of an interface: bound while it is up, exchanged while packets flow.

use crate::wireguard::update::UpdateError;
use port::udp::{BindError, SocketSlot, Steering, UdpBinding, UdpSockets};
use port::{Offloads, Wake};
use rustix::io::Errno;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a port may still be held by what is letting go of it: a worker that has not noticed yet, or a program that is being started and
/// has a copy of the socket until its `exec`.
pub const RELEASE: Duration = Duration::from_millis(200);
/// Between two looks at it.
const LOOK: Duration = Duration::from_millis(5);

/// Owns the choice of port and mark; workers find the sockets in the slot.
pub struct Binding {
    slot: SocketSlot,
    offloads: Arc<Offloads>,
    /// Those of the workers that receive, for when the sockets were exchanged.
    wakes: Vec<Arc<Wake>>,
    port: u16,
    fwmark: u32,
    /// Where the port is bound; its mark is that above.
    at: UdpBinding,
}

impl Binding {
    /// Unbound.
    pub fn new(slot: SocketSlot, offloads: Arc<Offloads>, wakes: Vec<Arc<Wake>>) -> Self {
        Self { slot, offloads, wakes, port: 0, fwmark: 0, at: UdpBinding::default() }
    }

    /// Spreads datagrams over the sockets of several receiving threads from the next binding on.
    #[must_use]
    pub fn steered(mut self, steering: Steering) -> Self {
        self.at.steering = Some(steering);
        self
    }

    fn notify(&self) {
        self.wakes.iter().for_each(|wake| wake.notify());
    }

    /// The port, once one was chosen.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port of one of several bindings: the first one's while nothing is bound.
    pub fn port_of(&self, binding: u8) -> u16 {
        self.slot.load().as_deref().and_then(|sockets| sockets.port_of(binding)).unwrap_or(self.port)
    }

    /// Binds at these addresses, with these settings, when the interface comes up.
    pub fn set_addresses(&mut self, at: UdpBinding) {
        self.fwmark = at.options.fwmark;
        self.at = at;
    }

    /// The mark.
    pub fn fwmark(&self) -> u32 {
        self.fwmark
    }

    /// Binds the sockets: the interface came up.
    pub fn open(&mut self) -> Result<(), UpdateError> {
        if self.slot.load().is_none() {
            self.bind(self.port)?;
        }
        Ok(())
    }

    /// Gives the sockets up: the interface went down.
    pub fn close(&mut self) {
        self.slot.store(None);
        self.notify();
    }

    /// Moves to another port; the old one is kept if that fails.
    pub fn set_port(&mut self, port: u16) -> Result<(), UpdateError> {
        if self.slot.load().is_some() && (port != self.port || port == 0) {
            return self.bind(port);
        }
        self.port = port;
        Ok(())
    }

    /// Changes the mark of everything sent from now on.
    pub fn set_fwmark(&mut self, mark: u32) -> Result<(), UpdateError> {
        if mark == self.fwmark {
            return Ok(());
        }
        if let Some(sockets) = self.slot.load().as_deref() {
            sockets.set_fwmark(mark).map_err(|error| UpdateError::Fwmark { mark, error })?;
        }
        self.fwmark = mark;
        Ok(())
    }

    fn bind(&mut self, port: u16) -> Result<(), UpdateError> {
        self.at.options.fwmark = self.fwmark;
        let sockets = bind(port, &self.at, &self.offloads)?;
        self.port = sockets.port();
        self.slot.store(Some(Arc::new(sockets)));
        self.notify();
        Ok(())
    }
}

/// Binds a port as soon as it is free.
pub fn bind(port: u16, at: &UdpBinding, offloads: &Offloads) -> Result<UdpSockets, UpdateError> {
    let deadline = Instant::now() + RELEASE;
    loop {
        match UdpSockets::bind_at(port, at, offloads) {
            Ok(sockets) => return Ok(sockets),
            Err(BindError { error: Errno::ADDRINUSE, .. }) if Instant::now() < deadline => {
                std::thread::sleep(LOOK);
            }
            Err(BindError { port, error: Errno::ADDRINUSE }) => return Err(UpdateError::port_in_use(port)),
            Err(BindError { port, error }) => return Err(UpdateError::Socket { port, error }),
        }
    }
}

/// Whether a port becomes free within a time, without a socket that stays.
pub async fn becomes_free(port: u16, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    while UdpSocket::bind(("0.0.0.0", port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_being_given_up_is_waited_for_and_one_that_is_kept_is_refused() {
        let held = UdpSocket::bind("0.0.0.0:0").expect("a port");
        let port = held.local_addr().expect("it is bound").port();
        let bind = || bind(port, &UdpBinding::default(), &Offloads::default());
        assert!(matches!(bind(), Err(UpdateError::PortInUse { port: refused, .. }) if refused == port));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(RELEASE / 4);
                drop(held);
            });
            assert_eq!(bind().expect("it is free soon").port(), port);
        });
    }
}
