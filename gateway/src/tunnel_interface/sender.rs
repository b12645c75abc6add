//! What a slow path sends itself: messages of its protocol.

use crate::datapath::egress::Egress;
use crate::datapath::tables::Peer;
use crate::datapath::worker::Shared;
use packet::{Batch, DropCounters, Endpoint};
use port::Transmit;
use rustix::io::Errno;
use std::sync::Arc;

/// A slow path's own way out, beside that of the outbound worker.
pub struct Sender<T> {
    egress: Egress<T>,
    batch: Batch,
}

/// Room for the largest datagram.
const MESSAGE_BYTES: usize = 80 * 1024;

impl<T: Transmit> Sender<T> {
    /// Sends on `outside`.
    pub fn new(shared: Shared, outside: T, drops: Arc<DropCounters>) -> Self {
        Self { egress: Egress::new(shared, outside, drops), batch: Batch::new(MESSAGE_BYTES) }
    }

    /// Sends a message as it is. Returns why the kernel refused it, if it did.
    pub fn message(&mut self, to: Option<Endpoint>, message: &[u8], ds_field: u8) -> Option<Errno> {
        self.append(message);
        self.batch.close_train(0, to, ds_field);
        let refusal = self.egress.send_as_is(&mut self.batch);
        self.batch.clear();
        refusal
    }

    /// Sends an empty packet under the key of `peer`.
    pub fn keepalive(&mut self, peer: &Arc<Peer>) {
        self.inner(peer, &[]);
    }

    /// Sends a packet that the protocol has made under the key of `peer`.
    pub fn inner(&mut self, peer: &Arc<Peer>, inner: &[u8]) {
        let Some(sa) = peer.sending.load_full() else { return };
        self.append(inner);
        self.egress.send_run(&mut self.batch, peer, &sa, false);
    }

    fn append(&mut self, packet: &[u8]) {
        self.batch.append(packet.len()).expect("the largest datagram fits").copy_from_slice(packet);
    }
}
