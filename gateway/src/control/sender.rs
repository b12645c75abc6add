//! What a lane sends itself: messages of its protocol, and the packets that waited for a key.

use crate::datapath::Routed;
use crate::tables::Peer;
use crate::worker::{Egress, Shared};
use packet::{Batch, DropCounters, Endpoint};
use port::Transmit;
use std::sync::Arc;

/// Waiting packets that are sent together.
const FLUSH: usize = 64;

/// A lane's own way out, beside that of the outbound worker.
pub struct Sender<T> {
    shared: Shared,
    egress: Egress<T>,
    batch: Batch,
    routed: Vec<Routed>,
}

/// What became of packets that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// None waited.
    Nothing,
    /// All were sent.
    Sent,
    /// The key ended before all were sent, or there is none.
    NoKey,
}

impl<T: Transmit> Sender<T> {
    /// Sends on `outside`.
    pub fn new(shared: Shared, outside: T, drops: Arc<DropCounters>) -> Self {
        let largest = Batch::footprint(packet::header::ip::MAXIMUM);
        let batch = Batch::new(largest.max(FLUSH * Batch::footprint(1500)));
        Self { egress: Egress::new(shared.clone(), outside, drops), shared, batch, routed: Vec::new() }
    }

    /// Sends a message as it is.
    pub fn message(&mut self, to: Option<Endpoint>, message: &[u8], ds_field: u8) {
        self.append(message);
        self.batch.close_train(0, to, ds_field);
        self.egress.send_as_is(&mut self.batch);
        self.batch.clear();
    }

    /// Sends an empty packet under the key of `peer`.
    pub fn keepalive(&mut self, peer: Arc<Peer>) {
        self.append(&[]);
        self.send(peer, false);
    }

    /// Sends the packets that wait for a key, in order, while the data path lines up behind them.
    pub fn flush(&mut self, peer: &Arc<Peer>) -> Flushed {
        let mut flushed = Flushed::Nothing;
        while self.can_send(peer) {
            let waiting = peer.staging.take();
            if waiting.is_empty() {
                break;
            }
            for packet in waiting {
                if self.batch.len() == FLUSH || !self.append(&packet) {
                    self.send(Arc::clone(peer), true);
                    self.append(&packet);
                }
            }
            self.send(Arc::clone(peer), true);
            flushed = Flushed::Sent;
        }
        if peer.staging.is_occupied() { Flushed::NoKey } else { flushed }
    }

    fn append(&mut self, packet: &[u8]) -> bool {
        self.batch.append(packet.len()).map(|bytes| bytes.copy_from_slice(packet)).is_some()
    }

    fn can_send(&self, peer: &Peer) -> bool {
        let now = self.shared.clock.monotonic();
        peer.sending.load().as_ref().is_some_and(|sa| sa.is_usable(now))
    }

    /// Sends the packets of the batch to a peer that there is a key for.
    fn send(&mut self, peer: Arc<Peer>, is_data: bool) {
        let Some(sa) = peer.sending.load_full() else { return self.batch.clear() };
        let packets = 0..self.batch.len();
        // The waiting packets are of any flow; "not ECN-capable" is right for all (RFC 6040, compatibility mode).
        self.routed.push(Routed { packets, peer, sa, ds_field: 0, is_data });
        let now = self.shared.clock.monotonic();
        self.egress.send(&mut self.batch, now, &mut self.routed, &mut Vec::new(), &mut ());
        self.batch.clear();
    }
}
