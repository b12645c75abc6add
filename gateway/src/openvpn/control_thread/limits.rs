//! Looks at the limits of sessions.

use super::ControlThread;
use super::side::Side;
use crate::datapath::protocol::PeerState;
use crate::openvpn::limits::Over;
use port::Transmit;
use std::time::Duration;
use tunnel::openvpn::Outbox;
use tunnel::openvpn::action::SessionNumber;
use tunnel::{Now, Time};

/// How often sessions are looked at.
const LOOKED_AT: Duration = Duration::from_secs(1);

impl<T: Transmit> ControlThread<T> {
    /// Ends the sessions that are over. A client ends as a whole.
    pub(super) fn look_at_limits(&mut self, now: Now) {
        let mut over: Vec<(SessionNumber, Over)> = Vec::new();
        for (session, entry) in &mut self.sessions {
            let bytes = match &entry.peer.state {
                PeerState::OpenVpn(link) => link.data_bytes(),
                _ => 0,
            };
            over.extend(entry.watch.look(now.monotonic, bytes).map(|why| (*session, why)));
        }
        self.look_at = self.next_look(now.monotonic);
        for (session, why) in over {
            let (name, signal) = (&self.name, why.signal());
            tracing::info!("interface {name}: {signal} ends the session with {}", self.side.name_of(session));
            match &mut self.side {
                Side::Server(server) => {
                    let mut out = Outbox::new();
                    server.core.disconnect(now, session, "RESTART", &mut out);
                    self.carry_out(now, out, None);
                }
                Side::Client(client) => client.is_over(signal),
            }
        }
    }

    /// When to look again.
    pub(super) fn next_look(&self, now: Time) -> Option<Time> {
        self.sessions.values().any(|entry| entry.watch.is_needed()).then_some(now + LOOKED_AT)
    }
}
