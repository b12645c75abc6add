//! TCP as the control thread sees it: sockets that listen, connections that end, and deadlines.

use super::port_share::Share;
use super::settings::TcpSettings;
use crossbeam_channel::{Receiver, bounded};
use port::tcp::TcpConnections;
use port::tcp::socket::{connecting, listening};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The TCP connections of an interface.
pub struct Tcp {
    settings: TcpSettings,
    connections: Arc<TcpConnections>,
    /// Has an entry when a connection has ended, or there is a deadline.
    told: Receiver<()>,
    /// Connections that another server has.
    share: Option<Share>,
}

/// A server cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("TCP {address}: {error}\n  fix: write a port and an address that are free: see ss -lntp")]
pub struct ListenError {
    address: SocketAddr,
    error: io::Error,
}

impl Tcp {
    /// No connections, and no sockets.
    pub fn new(interface: &str, settings: TcpSettings) -> io::Result<Self> {
        let (tell, told) = bounded(1);
        // One entry stands for any number.
        let connections = TcpConnections::new(move || _ = tell.try_send(()))?;
        connections.set_queue_limit(settings.queue_limit);
        let share = settings.share.clone().map(|wanted| Share::start(interface, wanted)).transpose()?;
        if let Some(share) = &share {
            connections.share_with(share.taker());
        }
        Ok(Self { settings, connections: Arc::new(connections), told, share })
    }

    /// The connections, for the workers.
    pub fn connections(&self) -> Arc<TcpConnections> {
        Arc::clone(&self.connections)
    }

    /// What wakes the control thread.
    pub(super) fn told(&self) -> &Receiver<()> {
        &self.told
    }

    /// Whether UDP is not used.
    pub(super) fn is_alone(&self) -> bool {
        !self.settings.has_udp
    }

    /// Listens on all addresses that are wanted.
    pub(super) fn listen(&self) -> Result<(), ListenError> {
        let mut sockets = Vec::new();
        for &address in &self.settings.listen {
            match listening(address, &self.settings.options) {
                Ok(socket) => sockets.push(socket),
                // A machine without IPv6 listens on IPv4 alone.
                Err(Errno::AFNOSUPPORT) if address.ip().is_unspecified() => {}
                Err(error) => return Err(ListenError { address, error: error.into() }),
            }
        }
        let Some(&address) = self.settings.listen.first() else { return Ok(()) };
        let listened = self.connections.listen(sockets, self.settings.hand_window);
        listened.map_err(|error| ListenError { address, error })
    }

    /// Opens a connection to a server. Its failure is an end, as that of an open connection.
    pub(super) fn connect(&self, server: SocketAddr) -> io::Result<()> {
        let local = self.settings.local.iter().find(|local| local.is_ipv4() == server.is_ipv4());
        let socket = connecting(server, local.copied(), &self.settings.options)?;
        self.connections.connect(server, socket)
    }

    /// Ends all connections, and listens no more.
    pub(super) fn close(&self) {
        self.connections.close();
        if let Some(share) = &self.share {
            share.close();
        }
    }

    /// Ends connections whose time is over, and returns those that have ended, with the error that ended each.
    pub(super) fn ended(&self) -> Vec<(SocketAddr, Option<Errno>)> {
        let _ = self.told.try_recv();
        self.connections.handle_timeout();
        self.connections.ended_since()
    }

    /// The time to the next deadline.
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        self.connections.next_timeout()
    }

    /// The session of a connection has authenticated.
    pub(super) fn connected(&self, address: SocketAddr) {
        // If the connection has ended, the session is about to.
        let _ = self.connections.trust(address);
    }

    /// A session has ended, and its connection with it.
    pub(super) fn closed(&self, address: SocketAddr) {
        self.connections.finish(address);
    }
}
