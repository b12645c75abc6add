//! What the thread is: a server, or a client.

use super::client::ClientSide;
use super::server::ServerSide;
use crate::openvpn::settings::{Remote, sources};
use std::net::SocketAddr;
use tunnel::openvpn::Outbox;
use tunnel::openvpn::action::SessionNumber;
use tunnel::openvpn::key_method::Credentials;
use tunnel::{Now, Time};

/// What the thread is.
pub(super) enum Side {
    Server(Box<ServerSide>),
    Client(Box<ClientSide>),
}

impl Side {
    /// The other end of a session, for the log.
    pub(super) fn name_of(&self, session: SessionNumber) -> String {
        match self {
            Self::Server(server) => server.name_of(session),
            Self::Client(client) => client.server(),
        }
    }

    /// What facts and captures call a peer: a client by its common name; the only peer has none.
    pub(super) fn peer_name(&self, session: SessionNumber) -> String {
        match self {
            Self::Server(server) if server.site.is_some() => "site".to_owned(),
            Self::Server(server) => server.common_name(session).unwrap_or_default().to_owned(),
            Self::Client(_) => "server".to_owned(),
        }
    }

    /// The names of servers, or of the only peer, have these addresses now.
    pub(super) fn set_remotes(&mut self, remotes: Vec<Remote>) {
        match self {
            Self::Server(server) => server.core.set_addresses(sources(&remotes)),
            Self::Client(client) => client.set_remotes(remotes),
        }
    }

    pub(super) fn start(&mut self, now: Now, out: &mut Outbox) {
        if let Self::Client(client) = self {
            client.connect(now, out);
        }
    }

    pub(super) fn answer(&mut self, now: Now, credentials: Credentials, out: &mut Outbox) {
        if let Self::Client(client) = self {
            client.answered(now, credentials, out);
        }
    }

    pub(super) fn stop(&mut self, now: Now, sessions: &[SessionNumber], out: &mut Outbox) {
        match self {
            Self::Server(server) => server.stop(now, sessions, out),
            Self::Client(client) => client.stop(now, out),
        }
    }

    pub(super) fn renew(&mut self, now: Now, session: SessionNumber, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.core.handle_renewal(now, session, out),
            Self::Client(client) => client.core.handle_renewal(now, out),
        }
    }

    pub(super) fn exited(&mut self, now: Now, session: SessionNumber, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.core.handle_exit(now, session, out),
            Self::Client(client) => client.core.handle_exit(now, out),
        }
    }

    pub(super) fn confirm(&mut self, now: Now, session: SessionNumber, index: u32, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.core.handle_confirmed(now, session, index, out),
            Self::Client(client) => client.core.handle_confirmed(now, index, out),
        }
    }

    pub(super) fn connection_ended(&mut self, now: Now, remote: SocketAddr, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.core.handle_connection_end(now, remote, out),
            Self::Client(client) => client.connection_ended(now, remote, out),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        match self {
            Self::Server(server) => server.handle_timeout(now, out),
            Self::Client(client) => client.handle_timeout(now, out),
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        match self {
            Self::Server(server) => server.next_timeout(),
            Self::Client(client) => client.next_timeout(),
        }
    }
}
