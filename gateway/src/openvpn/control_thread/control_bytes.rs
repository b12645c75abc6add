//! Bytes of control packets, which the data path does not count: OpenVPN's counters have them, too.

use std::collections::BTreeMap;
use tunnel::openvpn::PeerAddress;
use tunnel::openvpn::action::SessionNumber;

/// Bytes of control packets received and sent, of the sessions that there are.
#[derive(Default)]
pub(super) struct ControlBytes {
    sessions: BTreeMap<SessionNumber, (PeerAddress, [u64; 2])>,
    /// Where the last control packet of a session was sent.
    addresses: BTreeMap<PeerAddress, SessionNumber>,
}

impl ControlBytes {
    /// A packet was received. Before the first answer there is no session.
    pub(super) fn received(&mut self, from: PeerAddress, bytes: usize) {
        let session = self.addresses.get(&from);
        if let Some((_, count)) = session.and_then(|session| self.sessions.get_mut(session)) {
            count[0] += bytes as u64;
        }
    }

    /// A packet was sent.
    pub(super) fn sent(&mut self, session: SessionNumber, to: PeerAddress, bytes: usize) {
        let (address, count) = self.sessions.entry(session).or_insert((to, [0, 0]));
        count[1] += bytes as u64;
        let before = std::mem::replace(address, to);
        if before != to {
            self.addresses.remove(&before);
        }
        self.addresses.insert(to, session);
    }

    /// Those of a session.
    pub(super) fn of(&self, session: SessionNumber) -> [u64; 2] {
        self.sessions.get(&session).map_or([0, 0], |(_, count)| *count)
    }

    /// A session has ended.
    pub(super) fn take(&mut self, session: SessionNumber) -> [u64; 2] {
        let Some((address, count)) = self.sessions.remove(&session) else { return [0, 0] };
        if self.addresses.get(&address) == Some(&session) {
            self.addresses.remove(&address);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn a_session_is_counted_where_it_is() {
        let address = |port: u16| PeerAddress::from(SocketAddr::from(([192, 0, 2, 1], port)));
        let mut bytes = ControlBytes::default();
        bytes.received(address(1), 14);
        bytes.sent(7, address(1), 26);
        bytes.received(address(1), 300);
        bytes.sent(7, address(2), 100);
        bytes.received(address(1), 1000);
        bytes.received(address(2), 50);
        bytes.received(PeerAddress::tcp(address(2).socket), 9999);
        assert_eq!(bytes.of(7), [350, 126]);
        // Another session takes the address before the first one has ended.
        bytes.sent(8, address(2), 5);
        assert_eq!(bytes.take(7), [350, 126]);
        bytes.received(address(2), 1);
        assert_eq!((bytes.of(7), bytes.take(8)), ([0, 0], [1, 5]));
        assert!(bytes.addresses.is_empty());
    }
}
