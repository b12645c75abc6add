//! What `show` and `wg` show of an interface.

use super::{Entry, HandshakeThread};
use crate::wireguard::update::{PeerSnapshot, Snapshot};
use port::Transmit;
use std::sync::atomic::Ordering;
use tunnel::wireguard::PeerId;

impl<T: Transmit> HandshakeThread<T> {
    pub(super) fn snapshot(&self) -> Snapshot {
        let key = self.device.private_key();
        Snapshot {
            up: self.running,
            private_key: key.map(|key| key.secret().clone()),
            public: key.map(crypto::PrivateKey::public),
            listen_port: self.binding.port(),
            fwmark: self.binding.fwmark(),
            peers: self.peers.iter().filter_map(|(&id, entry)| self.peer_snapshot(id, entry)).collect(),
            callers: self.callers.all(),
        }
    }

    fn peer_snapshot(&self, id: PeerId, entry: &Entry) -> Option<PeerSnapshot> {
        let status = self.device.status(self.shared.clock.monotonic(), id)?;
        let endpoint = entry.peer.endpoint.load();
        let (addresses, reason) = self.device.addresses(id, endpoint.map(|endpoint| endpoint.remote));
        Some(PeerSnapshot {
            public: status.public,
            preshared: status.preshared,
            endpoint,
            addresses,
            reason,
            last_handshake: status.last_handshake,
            handshakes: status.handshakes,
            sent_bytes: entry.peer.sent.bytes(),
            received_bytes: entry.peer.received.bytes(),
            sent_packets: entry.peer.sent.packets(),
            received_packets: entry.peer.received.packets(),
            unsent_packets: entry.peer.unsent.load(Ordering::Relaxed),
            persistent_keepalive: status.persistent_keepalive.map_or(0, |every| every.as_secs() as u16),
            has_key: status.has_key,
            trouble: status.trouble,
            refusal: entry.refusal,
            allowed_ips: entry.allowed.iter().copied().collect(),
        })
    }
}
