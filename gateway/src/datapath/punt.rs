//! Inbound: handshake messages leave the data path over a bounded queue.

use super::Stage;
use super::protocol::Protocol;
use crossbeam_channel::{Receiver, Sender, unbounded};
use packet::header::wireguard::Initiation;
use packet::{DropCounters, DropReason, Endpoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "punt",
    does: "hands handshake messages to the slow path over a bounded queue",
    drops: &[DropReason::ControlQueueFull, DropReason::NotOurs],
};

/// The maximum number of queued handshake messages.
pub const QUEUE: usize = 4096;
/// The maximum size of queued messages beside the queue: 4,096 of the usual size of IKE, or 64 of the largest.
pub const QUEUE_BYTES: usize = 4 << 20;

/// The maximum size of a message that is stored in the queue itself: all of WireGuard's.
const SHORT: usize = size_of::<Initiation>();

/// A handshake message with a plausible length, and its endpoint.
pub struct Datagram {
    /// Its source, and the local address that it was sent to.
    pub endpoint: Endpoint,
    bytes: Bytes,
}

/// The bytes of a message: short ones need no allocation.
enum Bytes {
    Short(u8, [u8; SHORT]),
    Long(Held),
}

/// Bytes counted against the limit while queued.
struct Held {
    bytes: Box<[u8]>,
    waiting: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

impl Datagram {
    /// The message; an IKE message without the non-ESP marker.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Short(length, bytes) => &bytes[..usize::from(*length)],
            Bytes::Long(held) => &held.bytes,
        }
    }
}

/// The sending end of the queue.
#[derive(Clone)]
pub struct Punt {
    protocol: Protocol,
    queue: Sender<Datagram>,
    waiting: Arc<AtomicUsize>,
}

impl Punt {
    /// Creates a queue for messages of a protocol; its handshake thread has the receiving end.
    pub fn new(protocol: Protocol) -> (Self, Receiver<Datagram>) {
        // Bounded where messages are added: a bounded channel would take memory for all of them at once, 0.9 MB.
        let (queue, receiver) = unbounded();
        (Self { protocol, queue, waiting: Arc::default() }, receiver)
    }

    /// Adds a message to the queue; or counts, and says, why not.
    pub fn punt(&self, endpoint: Endpoint, message: &[u8], drops: &DropCounters) -> Result<(), DropReason> {
        // RFC 768: no answer is expected. An answer to port 0 is refused here, and would look like a peer without a route.
        if endpoint.remote.port() == 0 {
            drops.count(DropReason::NotOurs, 1);
            return Err(DropReason::NotOurs);
        }
        let checked = self.protocol.check_message(message);
        let put = checked.and_then(|()| self.store(message)).and_then(|bytes| {
            self.queue.send(Datagram { endpoint, bytes }).map_err(|_| DropReason::ControlQueueFull)
        });
        put.inspect_err(|&reason| drops.count(reason, 1))
    }

    fn store(&self, message: &[u8]) -> Result<Bytes, DropReason> {
        // Workers that see the last place free at the same time all take it.
        if self.queue.len() >= QUEUE {
            return Err(DropReason::ControlQueueFull);
        }
        if message.len() <= SHORT {
            let mut bytes = [0; SHORT];
            bytes[..message.len()].copy_from_slice(message);
            return Ok(Bytes::Short(message.len() as u8, bytes));
        }
        // Checked before any bytes are copied, so that a flood costs no more than this check.
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting + message.len() > QUEUE_BYTES {
            return Err(DropReason::ControlQueueFull);
        }
        self.waiting.fetch_add(message.len(), Ordering::Relaxed);
        Ok(Bytes::Long(Held { bytes: message.into(), waiting: Arc::clone(&self.waiting) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ike_messages_are_bounded_in_bytes_and_give_them_back() {
        let (punt, queue) = Punt::new(Protocol::Ipsec);
        let (drops, from) =
            (DropCounters::default(), Endpoint::new("192.0.2.1:4500".parse().expect("literal")));
        let message = vec![7; 65_000];
        for _ in 0..100 {
            let _ = punt.punt(from, &message, &drops);
        }
        assert_eq!((queue.len(), drops.read(DropReason::ControlQueueFull)), (64, 36));
        assert_eq!(queue.try_recv().expect("one waits").bytes(), message);
        let _ = punt.punt(from, &message, &drops);
        assert_eq!(queue.len(), 64);
        drop(queue.try_iter().collect::<Vec<_>>());
        assert_eq!(punt.waiting.load(Ordering::Relaxed), 0);
        let _ = punt.punt(from, &[0; 27], &drops);
        assert_eq!((queue.len(), drops.read(DropReason::TooShort)), (0, 1));
    }

    #[test]
    fn messages_are_bounded_in_number_too() {
        let (punt, queue) = Punt::new(Protocol::Ipsec);
        let (drops, from) =
            (DropCounters::default(), Endpoint::new("192.0.2.1:4500".parse().expect("literal")));
        for _ in 0..QUEUE + 10 {
            let _ = punt.punt(from, &[7; 28], &drops);
        }
        assert_eq!((queue.len(), drops.read(DropReason::ControlQueueFull)), (QUEUE, 10));
    }

    #[test]
    fn a_message_from_port_0_is_not_answered() {
        for (punt, queue) in [Protocol::Ipsec, Protocol::WireGuard].map(Punt::new) {
            let drops = DropCounters::default();
            let from = Endpoint::new("192.0.2.1:0".parse().expect("literal"));
            let _ = punt.punt(from, &[1; size_of::<Initiation>()], &drops);
            assert_eq!((queue.len(), drops.read(DropReason::NotOurs)), (0, 1));
        }
    }
}
