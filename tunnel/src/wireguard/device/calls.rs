//! Handshakes initiated by the local side.

use super::{Device, DeviceAction, Outbox, PeerId, new_index, static_static};
use crate::wireguard::failover::TRIES;
use crate::wireguard::noise;
use crate::wireguard::report::Event;
use crate::{Now, Time};
use std::net::SocketAddr;
use zerocopy::IntoBytes;

impl Device {
    /// Sends a keepalive; without a key, a handshake comes first.
    pub(super) fn send_keepalive(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        if self.peers.get(&id).is_some_and(|peer| peer.has_key(now.monotonic)) {
            out.push(DeviceAction::Keepalive { peer: id });
        } else {
            self.begin_handshake(now, id, out);
        }
    }

    /// Initiates handshakes with peers that are to be connected without traffic.
    pub(super) fn call_all(&mut self, now: Time) {
        for id in self.peers() {
            if self.eager || self.peers[&id].persistent_keepalive.is_some() {
                self.call_soon(now, id);
            }
        }
    }

    /// Schedules a handshake for the next timeout, so that ten thousand handshakes are started in many small steps.
    pub(super) fn call_soon(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if self.running && self.identity.is_some() && peer.reachable && !peer.initiated_recently(now) {
            peer.attempts = 0;
            peer.retransmit = Some(now);
        }
        self.reschedule(now, id);
    }

    /// Initiates a handshake, unless another was just initiated.
    pub(super) fn begin_handshake(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !self.running || peer.initiated_recently(now.monotonic) {
            return;
        }
        peer.attempts = 0;
        self.send_initiation(now, id, out);
    }

    pub(super) fn send_initiation(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        self.end_unanswered(now.monotonic, id, out);
        let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.reachable && self.identity.is_some())
        else {
            return;
        };
        peer.failover.abandon_probe(now.monotonic);
        peer.attempts += 1;
        peer.initiated = Some(now.monotonic);
        peer.arm_retransmit(now.monotonic, &mut *self.random);
        let Some(message) = self.create_initiation(now, id) else { return };
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.trouble.unanswered += 1;
            peer.activity.sent(now.monotonic);
        }
        out.push(DeviceAction::Send { peer: id, message });
    }

    /// Asks for an answer at another address than the endpoint, once. The session in use goes on meanwhile.
    pub(super) fn send_probe(&mut self, now: Now, id: PeerId, remote: SocketAddr, out: &mut Outbox) {
        if let Some(message) = self.create_initiation(now, id) {
            out.push(DeviceAction::Probe { peer: id, remote, message });
        }
    }

    /// An initiation whose answer is awaited from now on. None if there can be none.
    fn create_initiation(&mut self, now: Now, id: PeerId) -> Option<Vec<u8>> {
        let (Some(identity), Some(peer)) = (&self.identity, self.peers.get_mut(&id)) else { return None };
        let timestamp = peer.new_timestamp(now.wall);
        // A peer with a low-order public key cannot be reached; it only exists because an operator configured it.
        let Ok(static_static) = static_static(peer, &identity.key).cloned() else {
            peer.trouble.is_low_order = true;
            return None;
        };
        let index = new_index(&mut self.indices, &mut *self.random, id, self.receivers);
        let (key, random) = (&identity.key, &mut *self.random);
        let created = noise::create_initiation(key, &peer.public, &static_static, index, timestamp, random);
        let Ok((mut message, awaiting)) = created else {
            self.indices.remove(&index);
            return None;
        };
        peer.cookies.stamp(&mut message, now.monotonic);
        peer.awaiting = Some(awaiting);
        Some(message.as_bytes().to_vec())
    }

    /// Gives up a handshake that was not answered, if there is one: after some of them, the peer is called at its next address.
    pub(super) fn end_unanswered(&mut self, now: Time, id: PeerId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let was_called = peer.awaiting.is_some() && !peer.failover.is_probing();
        let next = was_called.then(|| peer.failover.unanswered(now)).flatten();
        self.drop_handshake(id);
        if let Some(remote) = next {
            self.redirect(id, remote, out);
        }
    }

    /// Calls a peer at another of its addresses from now on.
    pub(super) fn redirect(&mut self, id: PeerId, remote: SocketAddr, out: &mut Outbox) {
        let Some(peer) = self.peers.get(&id) else { return };
        // One round is logged: when no address answers, this would go on for as long as there is traffic.
        let round = u64::from(TRIES) * peer.failover.addresses().len() as u64;
        if peer.trouble.unanswered + peer.trouble.unconfirmed <= round + 1 {
            out.push(DeviceAction::Report(Event::Fallback(id, remote)));
        }
        out.push(DeviceAction::Redirect { peer: id, remote });
    }

    pub(super) fn drop_handshake(&mut self, id: PeerId) {
        if let Some(awaiting) = self.peers.get_mut(&id).and_then(|peer| peer.awaiting.take()) {
            self.indices.remove(&awaiting.local_index());
        }
    }
}
