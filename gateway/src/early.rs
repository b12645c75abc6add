//! Packets that came before their SA.
//!
//! Whoever answers a request for an SA may send under it at once, and a worker sees that before the lane, which runs when
//! workers leave time, has read the answer. The SPI is of our choosing and known since the request: packets under it wait.

use crossbeam_channel::{Receiver, Sender, unbounded};
use packet::{Batch, Endpoint};
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Packets that wait for an SA.
const PACKETS: usize = 256;
/// Their bytes.
const BYTES: usize = 512 * 1024;
/// Bytes of all packets that wait.
const ALL_BYTES: usize = 16 << 20;

/// A packet as it came.
struct Packet {
    endpoint: Endpoint,
    /// Of its outer header.
    ds_field: u8,
    bytes: Box<[u8]>,
}

#[derive(Default)]
struct Waiting {
    is_over: bool,
    bytes: usize,
    packets: Vec<Packet>,
}

/// The SPIs of SAs that we have asked for, and the packets under them.
pub struct Early {
    expected: papaya::HashMap<u32, Arc<Mutex<Waiting>>>,
    /// How many they are: mostly none, and then strangers' packets cost no more than that.
    count: AtomicUsize,
    bytes: AtomicUsize,
    /// Packets whose SA has come: the next worker that looks takes them before what has just arrived.
    ready: (Sender<Packet>, Receiver<Packet>),
}

impl Default for Early {
    fn default() -> Self {
        let (count, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { expected: papaya::HashMap::new(), count, bytes, ready: unbounded() }
    }
}

impl Early {
    /// Lets packets under an SPI wait.
    pub fn expect(&self, spi: u32) {
        if self.expected.pin().insert(spi, Arc::default()).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The SA of an SPI is there: what waited for it may go on. Tells whether that is anything; then a worker must be woken.
    pub fn release(&self, spi: u32) -> bool {
        let packets = self.end(spi);
        let any = !packets.is_empty();
        for packet in packets {
            // We have the receiver.
            let _ = self.ready.0.send(packet);
        }
        any
    }

    /// There will be no SA of an SPI; tells how many packets have waited in vain.
    pub fn forget(&self, spi: u32) -> usize {
        self.end(spi).len()
    }

    fn end(&self, spi: u32) -> Vec<Packet> {
        let Some(waiting) = self.expected.pin().remove(&spi).cloned() else { return Vec::new() };
        self.count.fetch_sub(1, Ordering::Relaxed);
        let Ok(mut waiting) = waiting.lock() else { return Vec::new() };
        waiting.is_over = true;
        self.bytes.fetch_sub(take(&mut waiting.bytes), Ordering::Relaxed);
        take(&mut waiting.packets)
    }

    /// Keeps packets of a run, if their SPI is one of these; tells how many of the first wait now. A worker does not wait for
    /// the lane.
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
        let waiting = self.expected.pin().get(&spi).cloned();
        let Some(mut waiting) = waiting.as_ref().and_then(|waiting| waiting.try_lock().ok()) else {
            return 0;
        };
        let keep = |packet: &&[u8]| {
            let (length, all) = (packet.len(), self.bytes.load(Ordering::Relaxed));
            let is_full = waiting.packets.len() == PACKETS || waiting.bytes + length > BYTES;
            if waiting.is_over || is_full || all + length > ALL_BYTES {
                return false;
            }
            waiting.bytes += length;
            self.bytes.fetch_add(length, Ordering::Relaxed);
            waiting.packets.push(Packet { endpoint, ds_field, bytes: (*packet).into() });
            true
        };
        packets.take_while(keep).count()
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
        // Half of it is left for what has just arrived.
        for packet in self.ready.1.try_iter().take(PACKETS / 2) {
            let first = batch.len();
            if let Some(place) = batch.append(packet.bytes.len()) {
                place.copy_from_slice(&packet.bytes);
                batch.close_train(first, Some(packet.endpoint), packet.ds_field);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: usize = 65_000;

    /// Whether a packet of a length is kept.
    fn keep(early: &Early, spi: u32, length: usize) -> bool {
        let endpoint = Endpoint::new("192.0.2.1:4500".parse().expect("literal"));
        early.keep(spi, [&vec![7; length][..]].into_iter(), endpoint, 0) == 1
    }

    #[test]
    fn only_what_is_expected_waits_and_not_without_bounds() {
        let early = Early::default();
        assert!(!keep(&early, 1, 10));
        early.expect(1);
        for _ in 0..PACKETS {
            assert!(keep(&early, 1, 10));
        }
        assert!(!keep(&early, 1, 10));
        assert!(!keep(&early, 2, 10));
        assert_eq!((early.forget(1), early.forget(1)), (PACKETS, 0));
        assert!(!keep(&early, 1, 10), "it is over");
        for spi in 10..1000 {
            early.expect(spi);
            while keep(&early, spi, LENGTH) {}
        }
        let waited: Vec<usize> = (10..1000).map(|spi| early.forget(spi)).collect();
        assert_eq!((waited[0], waited.iter().sum::<usize>()), (BYTES / LENGTH, ALL_BYTES / LENGTH));
        early.expect(5);
        assert!(keep(&early, 5, LENGTH), "there is room again");
    }

    #[test]
    fn what_has_waited_comes_first() {
        let (early, mut batch) = (Early::default(), Batch::new(1 << 20));
        early.expect(1);
        for length in [100, 200] {
            keep(&early, 1, length);
        }
        early.take(&mut batch);
        assert_eq!(batch.len(), 0, "its SA is not there");
        assert!(early.release(1) && !early.release(1));
        early.take(&mut batch);
        assert_eq!([batch.packet(0).len(), batch.packet(1).len()], [100, 200]);
        early.take(&mut batch);
        assert_eq!(batch.trains().len(), 2);
    }
}
