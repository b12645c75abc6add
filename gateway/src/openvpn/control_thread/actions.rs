//! What the protocol wants done.

use super::client::signal;
use super::server::everything;
use super::{ControlThread, Entry, Report, Side, peer_id};
use crate::datapath::protocol::{Link, PeerState};
use crate::datapath::tables::{Order, Peer, Session};
use crate::openvpn::limits::Watch;
use packet::Endpoint;
use port::Transmit;
use rustls_pki_types::CertificateDer;
use std::net::SocketAddr;
use std::sync::Arc;
use tunnel::Now;
use tunnel::openvpn::action::{Request, SessionNumber};
use tunnel::openvpn::activity::Activity;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::{Action, Cause, Outbox, PeerAddress};

impl<T: Transmit> ControlThread<T> {
    /// `source`: where the packet that caused this came from.
    pub(super) fn carry_out(&mut self, now: Now, out: Outbox, source: Option<Endpoint>) {
        let mut asked = Vec::new();
        for action in out {
            match action {
                Action::Transmit { session, to, packet } => {
                    if let Some(session) = session {
                        self.control_bytes.sent(session, to, packet.len());
                    }
                    let _ = self.sender.message(Some(path(source, to)), &packet, 0);
                }
                Action::Authenticate { session, request } => asked.push((session, request)),
                Action::Found { address, certificates } => self.found(address, &certificates),
                Action::Configure { options } => self.configured(&options),
                Action::Connected { session, address, cipher, activity } => {
                    self.connected(now, session, path(source, address), cipher, &activity);
                }
                Action::Install { session, sa } => {
                    if let Some(peer) = self.peer(session) {
                        self.shared.tables.install(Session { sa, peer, selectors: None, transport: None });
                    }
                }
                Action::Use { session, sa } => {
                    if let Some(peer) = self.peer(session) {
                        tracing::debug!("interface {}: session {session} sends with a new key", self.name);
                        peer.use_key(Some(sa));
                        self.shared.tables.orders.give(&peer, Order::Send, &self.outbound_wake);
                    }
                }
                Action::Retire { index } => self.shared.tables.retire(index),
                Action::SendInner { session, inner } => {
                    if let Some(peer) = self.peer(session) {
                        self.sender.inner(&peer, &inner);
                    }
                }
                Action::Command { session, command } => self.command_of_peer(now, session, &command),
                Action::Report { session, report } => {
                    let whose = self.side.name_of(session);
                    tracing::warn!("interface {}: {whose}: {report}", self.name);
                }
                Action::Closed { session, address, cause } => {
                    self.closed(now, session, address, &cause);
                    // A connection that has ended is forgotten: another one may have the address already.
                    if let Some(tcp) = &self.tcp
                        && address.is_tcp
                        && cause != Cause::ConnectionEnded
                    {
                        tcp.closed(address.socket);
                    }
                }
            }
        }
        if std::mem::take(&mut self.is_rerouted) {
            self.publish();
        }
        // After all packets, which must not be overtaken.
        for (session, request) in asked {
            self.decide(now, session, *request, source);
        }
    }

    fn peer(&self, session: SessionNumber) -> Option<Arc<Peer>> {
        self.sessions.get(&session).map(|entry| Arc::clone(&entry.peer))
    }

    /// Decides about a client.
    fn decide(&mut self, now: Now, session: SessionNumber, request: Request, source: Option<Endpoint>) {
        let Side::Server(server) = &mut self.side else { return };
        self.history.asked(session, &request, server.name_fields());
        let mut out = Outbox::new();
        server.decide(now, session, request, &mut out);
        self.carry_out(now, out, source);
    }

    /// A command of the peer that is not the core's.
    fn command_of_peer(&mut self, now: Now, session: SessionNumber, command: &str) {
        // What follows may be the answer of a user, or a token, which are not for the log.
        let (word, rest) = command.split_once(',').unwrap_or((command, ""));
        match (&mut self.side, word) {
            (Side::Client(client), "PUSH_REPLY") => return client.take_token(rest.split(',')),
            (Side::Client(client), "INFO" | "INFO_PRE") => return client.tell_user(rest),
            (Side::Client(client), "AUTH_PENDING") => return client.tell_pending(rest),
            (Side::Server(server), "CR_RESPONSE") => server.take_response(now, session, rest),
            _ => {}
        }
        let command = word;
        tracing::debug!("interface {}: the peer sent {command:?}", self.name);
    }

    fn found(&mut self, server: SocketAddr, certificates: &[CertificateDer<'static>]) {
        let Side::Client(client) = &self.side else { return };
        let about = client.about(server, certificates);
        // When the program ends, the report has no receiver.
        let _ = self.reports.send(Report::Found { server, about });
    }

    fn configured(&mut self, pushed: &[String]) {
        let Side::Client(client) = &mut self.side else { return };
        client.take_token(pushed.iter().map(String::as_str));
        client.limits = self.limits.replaced_by(pushed.iter().map(String::as_str));
        client.tell_echo(pushed);
        let network = client.own.network(pushed);
        for warning in &network.warnings {
            tracing::warn!("interface {}: {warning}", self.name);
        }
        // When the program ends, the report has no receiver.
        let _ = self.reports.send(Report::Configured(Box::new(network)));
    }

    fn connected(
        &mut self,
        now: Now,
        session: SessionNumber,
        endpoint: Endpoint,
        cipher: DataCipher,
        activity: &Arc<Activity>,
    ) {
        let (prefixes, follows, whose, limits) = match &self.side {
            Side::Server(server) => {
                let follows = server.site.as_ref().is_none_or(|site| site.follows);
                let limits = server.limits(session, self.limits);
                (server.prefixes(session), follows, server.name_of(session), limits)
            }
            Side::Client(client) => (everything(), client.float, client.server(), client.limits),
        };
        let name = self.side.peer_name(session);
        let (interface, peer) = (self.name.as_str(), name.as_str());
        tracing::info!(interface, peer, "interface {interface}: connected with {whose}, {cipher}");
        let mut link = Link::new(Arc::clone(activity), follows, self.fitting);
        if let Some(tcp) = self.tcp.as_ref().filter(|_| endpoint.is_tcp) {
            tcp.connected(endpoint.remote);
            link = link.on_connection();
        }
        if self.copies_dscp {
            link = link.with_dscp();
        }
        if limits.inactive.is_some() {
            link = link.with_count();
        }
        let state = PeerState::OpenVpn(link);
        let peer = Arc::new(Peer::new(peer_id(session), state, self.budget.clone()).with_name(&name));
        peer.endpoint.store(Some(endpoint));
        for prefix in &prefixes {
            self.routes.insert(*prefix, session);
        }
        self.is_rerouted = true;
        let entry = Entry {
            peer,
            cipher,
            since: now.monotonic,
            since_wall: now.wall,
            activity: Arc::clone(activity),
            prefixes,
            watch: Watch::new(now.monotonic, limits),
            endpoint,
        };
        self.sessions.insert(session, entry);
        self.look_at = self.look_at.or_else(|| self.next_look(now.monotonic));
        match &mut self.side {
            Side::Client(client) => client.connected(),
            Side::Server(server) => {
                server.connected(session);
                if let Some(site) = &server.site {
                    let peer = endpoint.remote;
                    let found = Report::Found { server: peer, about: server.about_site(session, peer) };
                    // When the program ends, the reports have no receiver.
                    let _ = self.reports.send(found);
                    let _ = self.reports.send(Report::Configured(Box::new(site.own.network(&[]))));
                }
            }
        }
        // Before the keys: packets that arrive under them must have a way.
        self.publish();
    }

    fn closed(&mut self, now: Now, session: SessionNumber, address: PeerAddress, cause: &Cause) {
        let entry = self.sessions.remove(&session);
        self.judge_again();
        self.history.closed(session, address, entry.is_some(), cause, now.wall);
        self.say_closed(session, entry.is_some(), cause);
        let was_connected = entry.is_some();
        let mut bytes = self.control_bytes.take(session);
        if let Some(entry) = &entry {
            bytes[0] += entry.peer.received.bytes();
            bytes[1] += entry.peer.sent.bytes();
        }
        self.ended = (self.ended.0 + bytes[0], self.ended.1 + bytes[1]);
        if let Some(entry) = entry {
            for prefix in entry.prefixes {
                // A newer session of the client may have them already.
                if self.routes.owner(prefix) == Some(&session) {
                    self.routes.remove(prefix);
                }
            }
            self.is_rerouted = true;
            entry.peer.use_key(None);
            entry.peer.endpoint.store(None);
            self.shared.tables.orders.give(&entry.peer, Order::Drop, &self.outbound_wake);
        }
        match &mut self.side {
            Side::Server(server) => {
                server.closed(now, session, bytes);
                // A session that replaces another one is no restart, as in OpenVPN.
                let is_restart = was_connected && self.is_running && *cause != Cause::Replaced;
                if server.site.is_some() && is_restart {
                    let _ = self.reports.send(Report::Disconnected(signal(cause)));
                }
            }
            Side::Client(client) if self.is_running => {
                client.closed(now.monotonic, was_connected, cause);
            }
            Side::Client(_) => {}
        }
    }

    /// Replaces the route table of the workers in one step.
    fn publish(&mut self) {
        self.is_rerouted = false;
        let routes = self.routes.map(|session| Arc::clone(&self.sessions[session].peer));
        self.shared.tables.routes.store(Arc::new(routes));
    }
}

/// The path to an address: an answer leaves from the local address that the packet was sent to.
fn path(source: Option<Endpoint>, to: PeerAddress) -> Endpoint {
    source.filter(|source| PeerAddress::from(*source) == to).unwrap_or(to.into())
}
