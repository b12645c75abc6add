//! What the protocol wants done.

use super::HandshakeThread;
use crate::datapath::tables::{Order, Peer, Session};
use packet::Endpoint;
use port::Transmit;
use rustix::io::Errno;
use std::sync::Arc;
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::limits::HANDSHAKE_DS_FIELD;
use tunnel::wireguard::{DeviceAction, PeerId};

impl<T: Transmit> HandshakeThread<T> {
    pub(super) fn carry_out(&mut self, out: Outbox, source: Option<Endpoint>) {
        for action in out {
            match action {
                DeviceAction::Reply { peer: id, message } => {
                    if let Some(peer) = id.and_then(|id| self.peer(id)) {
                        peer.sent.count(1, message.len() as u64);
                    }
                    self.trace(id, "sent to", source.map(|it| it.remote), &message);
                    let refusal = self.send_message(source, &message);
                    self.note_refusal(id, refusal);
                }
                DeviceAction::Retire { index } => self.shared.tables.retire(index),
                DeviceAction::Send { peer: id, message } => {
                    let Some(peer) = self.peer(id) else { continue };
                    peer.sent.count(1, message.len() as u64);
                    let to = peer.endpoint.load();
                    self.trace(Some(id), "sent to", to.map(|it| it.remote), &message);
                    let refusal = self.send_message(to, &message);
                    self.note_refusal(Some(id), refusal);
                }
                DeviceAction::Probe { peer: id, remote, message } => {
                    if let Some(peer) = self.peer(id) {
                        peer.sent.count(1, message.len() as u64);
                        // Only the address in use has a refusal that explains why the peer is down.
                        let _ = self.send_message(Some(Endpoint::new(remote)), &message);
                    }
                }
                DeviceAction::Redirect { peer: id, remote } => {
                    if let Some(peer) = self.peer(id) {
                        peer.endpoint.store(Some(Endpoint::new(remote)));
                    }
                }
                DeviceAction::Learn { peer: id } => {
                    if let (Some(peer), Some(source)) = (self.peer(id), source) {
                        peer.endpoint.store(Some(source));
                    }
                }
                DeviceAction::Install { peer: id, sa, next } => {
                    if let Some(peer) = self.peer(id) {
                        if let Some(next) = next {
                            peer.use_when_confirmed(sa.index, next);
                        }
                        self.shared.tables.install(Session { sa, peer, selectors: None, transport: None });
                    }
                }
                DeviceAction::Use { peer: id, sa } => {
                    if let Some(peer) = self.peer(id) {
                        peer.use_key(sa);
                    }
                }
                DeviceAction::Flush { peer: id, confirm } => self.flush(id, confirm),
                DeviceAction::Keepalive { peer: id } => self.keepalive(id),
                DeviceAction::Purge { peer: id } => {
                    if let Some(peer) = self.peer(id) {
                        self.shared.tables.orders.give(&peer, Order::Drop, &self.outbound_wake);
                    }
                }
                DeviceAction::ForgetSource { peer: id } => {
                    if let Some(peer) = self.peer(id) {
                        peer.forget_source();
                    }
                }
                DeviceAction::Report(event) => self.report(event, source),
            }
        }
    }

    pub(super) fn peer(&self, id: PeerId) -> Option<Arc<Peer>> {
        self.peers.get(&id).map(|entry| Arc::clone(&entry.peer))
    }

    /// Sends a message. Returns why the kernel refused it, if it did.
    fn send_message(&mut self, to: Option<Endpoint>, message: &[u8]) -> Option<Errno> {
        self.sender.message(to, message, HANDSHAKE_DS_FIELD)
    }

    fn note_refusal(&mut self, id: Option<PeerId>, refusal: Option<Errno>) {
        if let Some(entry) = id.and_then(|id| self.peers.get_mut(&id)) {
            entry.refusal = refusal;
        }
    }

    fn keepalive(&mut self, id: PeerId) {
        if let Some(peer) = self.peer(id) {
            self.sender.keepalive(&peer);
        }
    }

    /// Has sent what waits for a key; if nothing does and we must show that we have it, a keepalive.
    fn flush(&mut self, id: PeerId, confirm: bool) {
        let Some(peer) = self.peer(id) else { return };
        let some = self.shared.tables.orders.give(&peer, Order::Send, &self.outbound_wake);
        if confirm && !some {
            self.keepalive(id);
        }
    }
}
