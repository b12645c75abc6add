//! Packets that came before their SA.
//!
//! Whoever answers a request for an SA may send under it at once, and a worker sees that before the slow path, which runs when
//! workers leave time, has read the answer. The SPI is of our choosing and known since the request: packets under it wait.

use super::indexed::{Indexed, Table};
use crossbeam_channel::{Receiver, Sender, unbounded};
use packet::{Batch, Endpoint};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Packets that wait for an SA.
const PACKETS: usize = 256;
/// Their bytes.
const BYTES: usize = 512 * 1024;
/// Bytes of all packets that wait.
const ALL_BYTES: usize = 16 << 20;

/// No datagram is larger.
const LARGEST: usize = u16::MAX as usize;

/// A packet as it came.
struct Packet {
    endpoint: Endpoint,
    /// Of its outer header.
    ds_field: u8,
    bytes: Box<[u8]>,
}

/// The packets of an SPI: workers put them in and take them out, so that none of them waits for the slow path.
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

/// The SPIs of SAs that we have asked for, and the packets under them.
pub struct PreSaQueue {
    expected: Table<Waiting>,
    /// How many they are: mostly none, and then unauthenticated sources' packets cost no more than that.
    count: AtomicUsize,
    bytes: AtomicUsize,
    /// Those whose SA has come: the next worker that looks takes their packets before what has just arrived.
    ready: (Sender<Arc<Waiting>>, Receiver<Arc<Waiting>>),
}

impl Default for PreSaQueue {
    fn default() -> Self {
        let (count, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { expected: Table::default(), count, bytes, ready: unbounded() }
    }
}

impl PreSaQueue {
    /// Lets packets under an SPI wait.
    pub fn expect(&self, spi: u32) {
        if self.expected.get(spi).is_none() {
            self.expected.insert(Arc::new(Waiting::new(spi)));
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The SA of an SPI is there: what waited for it may go on. Tells whether that is anything; then a worker must be woken.
    pub fn release(&self, spi: u32) -> bool {
        let Some(waiting) = self.end(spi) else { return false };
        let any = !waiting.packets.1.is_empty();
        if any {
            self.hand_over(waiting);
        }
        any
    }

    /// There will be no SA of an SPI; tells how many packets have waited in vain.
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

    /// Keeps packets of an SA batch, if their SPI is one of these; tells how many of the first wait now.
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
            // Of two workers each may go beyond a limit by what it has in its hands.
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
            // The wait ended while we looked; if there is no SA, they are dropped as what is unknown.
            self.hand_over(waiting);
        }
        kept
    }

    /// Begins a batch with packets whose SA has come, as many as fit.
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
                // Half of it is left for what has just arrived, and a packet is taken out only where it fits.
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
