//! Data path events and timers.

use super::{Device, DeviceAction, Outbox, PeerId, retire};
use crate::wireguard::failover::Probe;
use crate::wireguard::limits::{ERASE_AFTER_TIME, HANDSHAKE_ATTEMPTS, KEEPALIVE_TIMEOUT};
use crate::wireguard::peer::{Due, Session};
use crate::wireguard::report::Event;
use crate::{Now, Time};
use std::sync::Arc;

/// The maximum number of timers served in one call. The rest is due at once, and the caller can do other work in
/// between.
const AT_ONCE: usize = 16;

/// Data path events.
impl Device {
    /// Packets are staged, and there is no key for them.
    pub fn handle_no_key(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        if self.peers.get(&id).is_some_and(|peer| !peer.has_key(now.monotonic)) {
            self.begin_handshake(now, id, out);
        } else {
            // The key arrived while the packets were being staged.
            out.push(DeviceAction::Flush { peer: id, confirm: false });
        }
        self.reschedule(now.monotonic, id);
    }

    /// The data path has armed the first timer of a peer.
    pub fn handle_activity(&mut self, now: Now, id: PeerId) {
        self.reschedule(now.monotonic, id);
    }

    /// The first packet arrived under the SA with the local `index`: the peer has the keys, so the outbound SA may be
    /// used.
    pub fn handle_confirmed(&mut self, now: Now, index: u32, out: &mut Outbox) {
        let Some(&id) = self.indices.get(&index) else { return };
        let peer = self.peers.get_mut(&id).expect("every index has its peer");
        let Some(ended) = peer.sessions.confirmed(index) else { return };
        peer.failover.confirmed();
        let outbound = peer.sessions.current().map(|session| Arc::clone(&session.outbound));
        if let Some(awaiting) = peer.awaiting.take() {
            self.indices.remove(&awaiting.local_index());
        }
        retire(&mut self.indices, ended, out);
        self.finished(now, id, out);
        out.push(DeviceAction::Use { peer: id, sa: outbound });
        out.push(DeviceAction::Flush { peer: id, confirm: false });
        self.reschedule(now.monotonic, id);
    }

    /// Applies a confirmation of a session by the data path whose event has not arrived yet.
    pub(super) fn settle(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        let next = self.peers.get(&id).and_then(|peer| peer.sessions.next());
        if let Some(next) = next.filter(|next| next.inbound.is_confirmed()) {
            self.handle_confirmed(now, next.inbound.index, out);
        }
    }

    /// The key in use should be replaced.
    pub fn handle_renewal(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        self.begin_handshake(now, id, out);
        self.reschedule(now.monotonic, id);
    }
}

/// Timers.
impl Device {
    /// The time at which [`handle_timeout`](Self::handle_timeout) must be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first()
    }

    /// Serves timers that are due at `now`; if not all were served, the next timeout is due already.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..AT_ONCE {
            let Some(id) = self.timers.take_due(now.monotonic) else { return };
            let peer = self.peers.get_mut(&id).expect("a removed peer leaves no timer");
            if let Some(due) = peer.due(now.monotonic) {
                self.serve(now, id, due, out);
            }
            self.reschedule(now.monotonic, id);
        }
    }

    /// Serves one timer, and restarts or stops it: it must not be due again at once.
    fn serve(&mut self, now: Now, id: PeerId, due: Due, out: &mut Outbox) {
        let peer = self.peers.get_mut(&id).expect("the caller has looked");
        match due {
            Due::Retransmit if peer.attempts >= HANDSHAKE_ATTEMPTS => {
                peer.retransmit = None;
                peer.activity.reset();
                peer.erase.get_or_insert(now.monotonic + ERASE_AFTER_TIME);
                peer.is_up = false;
                self.end_unanswered(now.monotonic, id, out);
                out.push(DeviceAction::Purge { peer: id });
                out.push(DeviceAction::Report(Event::Silent(id)));
            }
            Due::Retransmit => {
                peer.retransmit = None;
                out.push(DeviceAction::ForgetSource { peer: id });
                self.send_initiation(now, id, out);
            }
            Due::Silence => {
                peer.activity.stop_waiting();
                out.push(DeviceAction::ForgetSource { peer: id });
                self.begin_handshake(now, id, out);
            }
            Due::Keepalive | Due::PersistentKeepalive => {
                peer.activity.sent(now.monotonic);
                self.send_keepalive(now, id, out);
            }
            Due::Probe => self.probe(now, id, out),
            Due::Erase => {
                if peer.is_up {
                    out.push(DeviceAction::Report(Event::Idle(id)));
                }
                self.end_sessions(id, out);
            }
        }
    }

    /// Begins or ends a probe of the first address.
    fn probe(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let (has_key, is_busy) = (peer.has_key(now.monotonic), peer.is_busy(now.monotonic));
        match peer.failover.probe(now.monotonic, has_key, is_busy) {
            Probe::Begin(remote) => self.send_probe(now, id, remote, out),
            Probe::End => {
                self.drop_handshake(id);
                // If only our half of the way works, the peer has followed the probe, and must come back. Without traffic, the
                // session may end: a packet under an old key would renew it.
                let is_old = |session: &Session| session.outbound.is_old(now.monotonic);
                let peer = self.peers.get(&id).filter(|_| has_key);
                if peer.and_then(|peer| peer.sessions.current()).is_some_and(|it| !is_old(it)) {
                    out.push(DeviceAction::Keepalive { peer: id });
                }
            }
            Probe::Wait => {}
        }
    }

    /// Schedules the peer for its next timer. If no timer of the data path is running, the data path must wake the
    /// protocol.
    pub(super) fn reschedule(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.activity.watch(false);
        let mut next = peer.next_timeout();
        if peer.activity.is_armed() {
            peer.activity.watch(true);
            // A timer armed by the data path meanwhile cannot fire before this.
            next = next.map(|next| next.min(now + KEEPALIVE_TIMEOUT));
        }
        let Some(next) = next else { return };
        // A restarted timer is only rescheduled when its old time is reached.
        if self.timers.at(id).is_none_or(|scheduled| next < scheduled) {
            self.timers.set(id, Some(next));
        }
    }
}
