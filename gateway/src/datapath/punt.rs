//! Inbound: handshake messages leave the data path, over a queue that cannot grow.

use super::Stage;
use crossbeam_channel::{Receiver, Sender, bounded};
use packet::header::wireguard::{CookieReply, Initiation, Response};
use packet::{DropCounters, DropReason, Endpoint};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "punt",
    does: "hands handshake messages to the lane over a bounded queue",
    drops: &[DropReason::ControlQueueFull],
};

/// Handshake messages that may wait.
pub const QUEUE: usize = 4096;

/// A handshake message of a right length, and where it came from.
pub struct Datagram {
    /// Its source, and which of our addresses it was sent to.
    pub endpoint: Endpoint,
    length: u8,
    bytes: [u8; size_of::<Initiation>()],
}

impl Datagram {
    /// The message.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The entry of the queue.
#[derive(Clone)]
pub struct Punt(Sender<Datagram>);

impl Punt {
    /// A queue: where messages go in, and where the lane takes them out.
    pub fn new() -> (Self, Receiver<Datagram>) {
        let (sender, receiver) = bounded(QUEUE);
        (Self(sender), receiver)
    }

    /// Puts one message into the queue.
    pub fn punt(&self, endpoint: Endpoint, message: &[u8], drops: &DropCounters) {
        const LENGTHS: [usize; 3] =
            [size_of::<Initiation>(), size_of::<Response>(), size_of::<CookieReply>()];
        if !LENGTHS.contains(&message.len()) {
            return drops.count(DropReason::NotOurs, 1);
        }
        let mut bytes = [0; size_of::<Initiation>()];
        bytes[..message.len()].copy_from_slice(message);
        let datagram = Datagram { endpoint, length: message.len() as u8, bytes };
        if self.0.try_send(datagram).is_err() {
            drops.count(DropReason::ControlQueueFull, 1);
        }
    }
}
