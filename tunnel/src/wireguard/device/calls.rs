//! Handshakes initiated by the local side.

use super::{Device, DeviceAction, Outbox, PeerId, new_index, static_static};
use crate::wireguard::noise;
use crate::{Now, Time};
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
        self.drop_handshake(id);
        let (Some(identity), Some(peer)) = (&self.identity, self.peers.get_mut(&id)) else { return };
        if !peer.reachable {
            return;
        }
        let timestamp = peer.new_timestamp(now.wall);
        peer.attempts += 1;
        peer.initiated = Some(now.monotonic);
        peer.arm_retransmit(now.monotonic, &mut *self.random);
        // A peer with a low-order public key cannot be reached; it only exists because an operator configured it.
        let Ok(static_static) = static_static(peer, &identity.key).cloned() else {
            peer.trouble.is_low_order = true;
            return;
        };
        let index = new_index(&mut self.indices, &mut *self.random, id, self.receivers);
        let (key, random) = (&identity.key, &mut *self.random);
        match noise::create_initiation(key, &peer.public, &static_static, index, timestamp, random) {
            Ok((mut message, awaiting)) => {
                peer.cookies.stamp(&mut message, now.monotonic);
                peer.awaiting = Some(awaiting);
                peer.trouble.unanswered += 1;
                peer.activity.sent(now.monotonic);
                out.push(DeviceAction::Send { peer: id, message: message.as_bytes().to_vec() });
            }
            Err(_) => _ = self.indices.remove(&index),
        }
    }

    pub(super) fn drop_handshake(&mut self, id: PeerId) {
        if let Some(awaiting) = self.peers.get_mut(&id).and_then(|peer| peer.awaiting.take()) {
            self.indices.remove(&awaiting.local_index());
        }
    }
}
