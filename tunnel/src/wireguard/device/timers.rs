//! What the data path noticed, and what time brings.

use super::{Action, Device, Outbox, PeerId, retire};
use crate::wireguard::limits::{ERASE_AFTER_TIME, HANDSHAKE_ATTEMPTS, KEEPALIVE_TIMEOUT};
use crate::wireguard::peer::Due;
use crate::wireguard::report::Event;
use crate::{Now, Time};
use std::sync::Arc;

/// Timers served at one call. The others wait for the next, which is due at once: between them the caller has its turn.
const AT_ONCE: usize = 16;

/// What the data path noticed.
impl Device {
    /// Packets wait, and there is no key for them.
    pub fn handle_no_key(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        if self.peers.get(&id).is_some_and(|peer| !peer.has_key(now.monotonic)) {
            self.begin_handshake(now, id, out);
        } else {
            // The key came while the packets were put aside.
            out.push(Action::Flush { peer: id, confirm: false });
        }
        self.reschedule(now.monotonic, id);
    }

    /// The first timer of a peer was armed.
    pub fn handle_activity(&mut self, now: Now, id: PeerId) {
        self.reschedule(now.monotonic, id);
    }

    /// The first packet came under the SA with our `index`: the peer has the keys, so we may use them too.
    pub fn handle_confirmed(&mut self, now: Now, index: u32, out: &mut Outbox) {
        let Some(&id) = self.indices.get(&index) else { return };
        let peer = self.peers.get_mut(&id).expect("every index has its peer");
        let Some(ended) = peer.sessions.confirmed(index) else { return };
        let outbound = peer.sessions.current().map(|session| Arc::clone(&session.outbound));
        if let Some(awaiting) = peer.awaiting.take() {
            self.indices.remove(&awaiting.local_index());
        }
        retire(&mut self.indices, ended, out);
        self.finished(now, id, out);
        out.push(Action::Use { peer: id, sa: outbound });
        out.push(Action::Flush { peer: id, confirm: false });
        self.reschedule(now.monotonic, id);
    }

    /// The data path may have confirmed a session, and sent with it, without our having been told yet.
    pub(super) fn settle(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        let next = self.peers.get(&id).and_then(|peer| peer.sessions.next());
        if let Some(next) = next.filter(|next| next.inbound.is_confirmed()) {
            self.handle_confirmed(now, next.inbound.index, out);
        }
    }

    /// The key in use is old.
    pub fn handle_renewal(&mut self, now: Now, id: PeerId, out: &mut Outbox) {
        self.begin_handshake(now, id, out);
        self.reschedule(now.monotonic, id);
    }
}

/// Timers.
impl Device {
    /// When [`handle_timeout`](Self::handle_timeout) is to be called next.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Serves timers that have run out at `now`; if not all of them, the next timeout is due already.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..AT_ONCE {
            let Some(&(at, id)) = self.timers.first().filter(|(at, _)| *at <= now.monotonic) else { return };
            self.timers.remove(&(at, id));
            let peer = self.peers.get_mut(&id).expect("a removed peer leaves no timer");
            peer.scheduled = None;
            if let Some(due) = peer.due(now.monotonic) {
                self.serve(now, id, due, out);
            }
            self.reschedule(now.monotonic, id);
        }
    }

    /// Serves one timer, and puts it off or stops it: none may be due again at once.
    fn serve(&mut self, now: Now, id: PeerId, due: Due, out: &mut Outbox) {
        let peer = self.peers.get_mut(&id).expect("the caller has looked");
        match due {
            Due::Retransmit if peer.attempts >= HANDSHAKE_ATTEMPTS => {
                peer.retransmit = None;
                peer.activity.reset();
                peer.erase.get_or_insert(now.monotonic + ERASE_AFTER_TIME);
                peer.is_up = false;
                self.drop_handshake(id);
                out.push(Action::Purge { peer: id });
                out.push(Action::Report(Event::Silent(id)));
            }
            Due::Retransmit => {
                peer.retransmit = None;
                out.push(Action::ForgetSource { peer: id });
                self.send_initiation(now, id, out);
            }
            Due::Silence => {
                peer.activity.stop_waiting();
                out.push(Action::ForgetSource { peer: id });
                self.begin_handshake(now, id, out);
            }
            Due::Keepalive | Due::PersistentKeepalive => {
                peer.activity.sent(now.monotonic);
                self.send_keepalive(now, id, out);
            }
            Due::Erase => {
                if peer.is_up {
                    out.push(Action::Report(Event::Idle(id)));
                }
                self.end_sessions(id, out);
            }
        }
    }

    /// Puts the peer where its next timer is. If no timer of the data path's runs, the data path is to tell of one.
    pub(super) fn reschedule(&mut self, now: Time, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.activity.watch(false);
        let mut next = peer.next_timeout();
        if peer.activity.is_armed() {
            peer.activity.watch(true);
            // A timer that is armed while we do not look cannot run out before this.
            next = next.map(|next| next.min(now + KEEPALIVE_TIMEOUT));
        }
        let Some(next) = next else { return };
        // A timer that was put off is looked at when it would have run out, and then put where it belongs.
        if peer.scheduled.is_none_or(|scheduled| next < scheduled) {
            peer.scheduled.replace(next).map(|before| self.timers.remove(&(before, id)));
            self.timers.insert((next, id));
        }
    }
}
