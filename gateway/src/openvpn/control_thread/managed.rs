//! What the management interface asks of the thread.

use super::client::ClientSide;
use super::{ControlThread, Entry, Side, Victim};
use port::Transmit;
use tunnel::Now;
use tunnel::openvpn::Outbox;

impl<T: Transmit> ControlThread<T> {
    /// Ends sessions of clients, which are told this.
    pub(super) fn disconnect(&mut self, victim: &Victim, told: &str) -> usize {
        let Side::Server(server) = &mut self.side else { return 0 };
        let (now, mut out) = (self.shared.clock.now(), Outbox::new());
        let sessions = match victim {
            Victim::Name(name) => server.sessions_of(name),
            Victim::Client(client) => server.session_of(*client).into_iter().collect(),
            Victim::Address { socket, is_tcp } => {
                let is_there = |entry: &Entry| {
                    entry.peer.endpoint.load().as_ref().is_some_and(|it| {
                        it.remote.ip().to_canonical() == socket.ip()
                            && it.remote.port() == socket.port()
                            && is_tcp.is_none_or(|is_tcp| is_tcp == it.is_tcp)
                    })
                };
                let found = self.sessions.iter().filter(|(_, entry)| is_there(entry));
                found.map(|(session, _)| *session).collect()
            }
        };
        for session in &sessions {
            server.core.disconnect(now, *session, told, &mut out);
        }
        self.carry_out(now, out, None);
        sessions.len()
    }

    /// A question of a client is answered.
    pub(super) fn of_client(&mut self, act: impl FnOnce(&mut ClientSide, Now, &mut Outbox)) {
        let now = self.shared.clock.now();
        self.call(now, |side, out| {
            if let Side::Client(client) = side {
                act(client, now, out);
            }
        });
    }
}
