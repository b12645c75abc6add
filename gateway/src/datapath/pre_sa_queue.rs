//! The pre-SA queue: packets that arrived before their SA.
//!
//! A peer that answers a request for an SA may send under it at once. A worker may receive these packets before the
//! IKE thread, which has a lower priority, has handled the answer. The inbound SPI was chosen for the request, so
//! packets with it can be queued.

use super::indexed::{Indexed, Table};
use crossbeam_channel::{Receiver, Sender, unbounded};
use packet::{Batch, Endpoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The maximum number of queued packets of an SA.
const PACKETS: usize = 256;
/// The maximum size of these packets in bytes.
const BYTES: usize = 512 * 1024;
/// The maximum size of all queued packets in bytes.
const ALL_BYTES: usize = 16 << 20;

/// The maximum size of a datagram.
const LARGEST: usize = u16::MAX as usize;

/// A packet as received.
struct Packet {
    endpoint: Endpoint,
    /// The DS field of its outer header.
    ds_field: u8,
    bytes: Box<[u8]>,
}

/// The queue of an SPI: workers add and remove packets, and never wait for the IKE thread.
struct Waiting {
    spi: u32,
    is_over: AtomicBool,
    count: AtomicUsize,
    bytes: AtomicUsize,
    packets: (Sender<Packet>, Receiver<Packet>),
}

impl Indexed for Waiting {
    fn index(&self) -> u32 {
        self.spi
    }
}

impl Waiting {
    fn new(spi: u32) -> Self {
        let (is_over, count, bytes) = <(AtomicBool, AtomicUsize, AtomicUsize)>::default();
        Self { spi, is_over, count, bytes, packets: unbounded() }
    }
}

/// The SPIs of requested SAs, with their queues.
pub struct PreSaQueue {
    expected: Table<Waiting>,
    /// The number of these SPIs: it is mostly zero, and then packets with unknown SPIs cost a single comparison.
    count: AtomicUsize,
    bytes: AtomicUsize,
    /// Queues whose SA was installed: the next worker takes their packets before newly received ones.
    ready: (Sender<Arc<Waiting>>, Receiver<Arc<Waiting>>),
}

impl Default for PreSaQueue {
    fn default() -> Self {
        let (count, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { expected: Table::default(), count, bytes, ready: unbounded() }
    }
}

impl PreSaQueue {
    /// Starts to queue packets with an SPI.
    pub fn expect(&self, spi: u32) {
        if self.expected.get(spi).is_none() {
            self.expected.insert(Arc::new(Waiting::new(spi)));
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Releases the queue of an SPI whose SA was installed. Returns whether it has packets; then a worker must be
    /// woken.
    pub fn release(&self, spi: u32) -> bool {
        let Some(waiting) = self.end(spi) else { return false };
        let any = !waiting.packets.1.is_empty();
        if any {
            self.hand_over(waiting);
        }
        any
    }

    /// Drops the queue of an SPI without an SA; returns the number of dropped packets.
    pub fn forget(&self, spi: u32) -> usize {
        let waiting = self.end(spi);
        waiting.map_or(0, |waiting| std::iter::from_fn(|| self.next_of(&waiting)).count())
    }

    fn end(&self, spi: u32) -> Option<Arc<Waiting>> {
        let waiting = self.expected.remove(spi)?;
        self.count.fetch_sub(1, Ordering::Relaxed);
        waiting.is_over.store(true, Ordering::SeqCst);
        Some(waiting)
    }

    fn hand_over(&self, waiting: Arc<Waiting>) {
        // We have the receiver.
        let _ = self.ready.0.send(waiting);
    }

    fn next_of(&self, waiting: &Waiting) -> Option<Packet> {
        let packet = waiting.packets.1.try_recv().ok()?;
        self.bytes.fetch_sub(packet.bytes.len(), Ordering::Relaxed);
        Some(packet)
    }

    /// Queues packets of an SA batch if their SPI is expected; returns the number of packets queued.
    pub fn keep<'a>(
        &self,
        spi: u32,
        packets: impl Iterator<Item = &'a [u8]>,
        endpoint: Endpoint,
        ds_field: u8,
    ) -> usize {
        if self.count.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let Some(waiting) = self.expected.get(spi) else { return 0 };
        let keep = |packet: &&[u8]| {
            let length = packet.len();
            // Two workers may each exceed a limit by the packets that they hold.
            if waiting.count.load(Ordering::Relaxed) >= PACKETS
                || waiting.bytes.load(Ordering::Relaxed) + length > BYTES
                || self.bytes.load(Ordering::Relaxed) + length > ALL_BYTES
            {
                return false;
            }
            waiting.count.fetch_add(1, Ordering::Relaxed);
            waiting.bytes.fetch_add(length, Ordering::Relaxed);
            self.bytes.fetch_add(length, Ordering::Relaxed);
            let _ = waiting.packets.0.send(Packet { endpoint, ds_field, bytes: (*packet).into() });
            true
        };
        let kept = packets.take_while(keep).count();
        if kept > 0 && waiting.is_over.load(Ordering::SeqCst) {
            // The queue was released or dropped meanwhile; without an SA, its packets are dropped as unknown.
            self.hand_over(waiting);
        }
        kept
    }

    /// Starts a batch with released packets, as many as fit.
    #[inline]
    pub fn take(&self, batch: &mut Batch) {
        if !self.ready.1.is_empty() {
            self.take_some(batch);
        }
    }

    #[cold]
    fn take_some(&self, batch: &mut Batch) {
        while let Ok(waiting) = self.ready.1.try_recv() {
            loop {
                // Half of the batch is left for newly received packets, and a packet is only taken if it fits.
                if batch.len() >= PACKETS / 2 || batch.free() < Batch::footprint(LARGEST) {
                    return self.hand_over(waiting);
                }
                let Some(packet) = self.next_of(&waiting) else { break };
                let first = batch.len();
                if let Some(place) = batch.append(packet.bytes.len()) {
                    place.copy_from_slice(&packet.bytes);
                    batch.close_train(first, Some(packet.endpoint), packet.ds_field);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 65_000;

    /// Whether a packet of a length is kept.
    fn keep(pre_sa: &PreSaQueue, spi: u32, length: usize) -> bool {
        let endpoint = Endpoint::new("192.0.2.1:4500".parse().expect("literal"));
        pre_sa.keep(spi, [&vec![7; length][..]].into_iter(), endpoint, 0) == 1
    }

    #[test]
    fn only_what_is_expected_waits_and_not_without_bounds() {
        let pre_sa = PreSaQueue::default();
        assert!(!keep(&pre_sa, 1, 10));
        pre_sa.expect(1);
        for _ in 0..PACKETS {
            assert!(keep(&pre_sa, 1, 10));
        }
        assert!(!keep(&pre_sa, 1, 10));
        assert!(!keep(&pre_sa, 2, 10));
        assert_eq!((pre_sa.forget(1), pre_sa.forget(1)), (PACKETS, 0));
        assert!(!keep(&pre_sa, 1, 10), "it is over");
        for spi in 10..1000 {
            pre_sa.expect(spi);
            while keep(&pre_sa, spi, LENGTH) {}
        }
        let waited: Vec<usize> = (10..1000).map(|spi| pre_sa.forget(spi)).collect();
        assert_eq!((waited[0], waited.iter().sum::<usize>()), (BYTES / LENGTH, ALL_BYTES / LENGTH));
        pre_sa.expect(5);
        assert!(keep(&pre_sa, 5, LENGTH), "there is room again");
    }

    #[test]
    fn what_has_waited_comes_first() {
        let (pre_sa, mut batch) = (PreSaQueue::default(), Batch::new(1 << 20));
        pre_sa.expect(1);
        for length in [100, 200] {
            keep(&pre_sa, 1, length);
        }
        pre_sa.take(&mut batch);
        assert_eq!(batch.len(), 0, "its SA is not there");
        assert!(pre_sa.release(1) && !pre_sa.release(1));
        pre_sa.take(&mut batch);
        assert_eq!([batch.packet(0).len(), batch.packet(1).len()], [100, 200]);
        pre_sa.take(&mut batch);
        assert_eq!(batch.trains().len(), 2);
    }

    #[test]
    fn what_does_not_fit_into_one_batch_comes_with_the_next() {
        let (pre_sa, mut batch) = (PreSaQueue::default(), Batch::new(1 << 20));
        for spi in 0..4 {
            pre_sa.expect(spi);
            while keep(&pre_sa, spi, LENGTH + spi as usize) {}
            pre_sa.release(spi);
        }
        let mut lengths = Vec::new();
        loop {
            batch.clear();
            pre_sa.take(&mut batch);
            if batch.is_empty() {
                break;
            }
            lengths.extend((0..batch.len()).map(|index| batch.packet(index).len()));
        }
        let mut expected: Vec<usize> = (0..4).flat_map(|spi| vec![LENGTH + spi; BYTES / LENGTH]).collect();
        lengths.sort_unstable();
        expected.sort_unstable();
        assert_eq!(lengths, expected, "none is lost");
    }
}
