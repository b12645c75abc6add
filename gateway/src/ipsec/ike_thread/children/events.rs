//! Records events of IKE in the state of peers.

use super::Children;
use super::sessions::Established;
use super::told::Told;
use crate::ipsec::ike_thread::outside;
use crate::ipsec::model::IpsecFailure;
use tunnel::ikev2::{ConnectionId, Event};

impl Children {
    pub(in crate::ipsec::ike_thread) fn note(&mut self, event: &Event) {
        let now = self.shared.clock.monotonic();
        match event {
            Event::Established { connection, session, identity, suite, path } => {
                let Some(connected) = self.connections.get_mut(connection) else { return };
                let (identity, suite) = (identity.to_string(), *suite);
                let endpoint = outside(*path);
                let established = Established { session: *session, since: now, identity, suite, endpoint };
                connected.sessions.insert(established);
                connected.failure = None;
                connected.told = None;
            }
            Event::Rekeyed { connection, session, suite } => {
                let connected = self.connections.get_mut(connection);
                if let Some(established) = connected.and_then(|it| it.sessions.get_mut(*session)) {
                    established.suite = *suite;
                }
            }
            Event::Closed { connection, session, .. } => {
                let Some(connected) = self.connections.get_mut(connection) else { return };
                connected.sessions.remove(*session);
            }
            Event::ChildUp { connection, child, spi, suite } => {
                let tunnel = self.tunnel_mut((*connection, *child));
                if let Some(sa) = tunnel.and_then(|it| it.sas.iter_mut().find(|sa| sa.spi == *spi)) {
                    sa.suite = Some(*suite);
                }
                self.forgive(*connection);
            }
            Event::Calling { .. }
            | Event::Unanswered { .. }
            | Event::Doubted { .. }
            | Event::Unfinished { .. }
            | Event::ChildDown { .. }
            | Event::Failed { .. } => {}
        }
    }

    /// Clears the failure when all tunnels are up.
    fn forgive(&mut self, id: ConnectionId) {
        if let Some(connected) = self.connections.get_mut(&id)
            && connected.tunnels.iter().all(|tunnel| !tunnel.sas.is_empty())
        {
            connected.failure = None;
        }
    }

    pub(in crate::ipsec::ike_thread) fn failed(&mut self, id: ConnectionId, failure: IpsecFailure) {
        if let Some(connected) = self.connections.get_mut(&id) {
            connected.failure = Some(failure);
        }
    }

    /// Whether to log a failure, and how often it was left out since it was logged last.
    pub(in crate::ipsec::ike_thread) fn tell(
        &mut self,
        id: ConnectionId,
        failure: &IpsecFailure,
    ) -> Option<u64> {
        let Some(connected) = self.connections.get_mut(&id) else { return Some(0) };
        Told::tell(&mut connected.told, failure)
    }
}
