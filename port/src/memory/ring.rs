//! A bounded ring of frames between two threads: one end transmits, the other receives. A full ring loses frames and counts them.

#![expect(unsafe_code, reason = "each slot belongs to one end at a time, which the compiler cannot see")]

use crate::{Receive, Transmit, Wake};
use packet::{Batch, DropCounters, DropReason};
use std::cell::UnsafeCell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest frame.
pub const LONGEST: usize = 2046;

/// A frame at rest.
struct Slot {
    length: u16,
    bytes: [u8; LONGEST],
}

/// A position on a cache line of its own: each end writes its own position only.
#[repr(align(128))]
#[derive(Default)]
struct Position(AtomicUsize);

/// What the ends share. Positions count frames; the slot is the position modulo the number of slots, a power of two.
struct Ring {
    slots: Box<[UnsafeCell<Slot>]>,
    /// The frames put so far; written by the transmitting end.
    put: Position,
    /// The frames taken so far; written by the receiving end.
    taken: Position,
}

// SAFETY: a slot is used by one end at a time. Those from `taken` to `put` belong to the receiving end, all others to the
// transmitting end; a slot changes hands by a store with Release that the other end reads with Acquire. There is one of each end.
unsafe impl Sync for Ring {}

/// The transmitting end.
pub struct RingTransmit {
    ring: Arc<Ring>,
    put: usize,
    /// What the receiving end had taken when it was last read.
    taken: usize,
}

/// The receiving end.
pub struct RingReceive {
    ring: Arc<Ring>,
    taken: usize,
}

/// A ring of `slots` frames, rounded up to a power of two.
pub fn ring(slots: usize) -> (RingTransmit, RingReceive) {
    let slots = slots.next_power_of_two();
    let slots = (0..slots).map(|_| UnsafeCell::new(Slot { length: 0, bytes: [0; LONGEST] })).collect();
    let ring = Arc::new(Ring { slots, put: Position::default(), taken: Position::default() });
    (RingTransmit { ring: Arc::clone(&ring), put: 0, taken: 0 }, RingReceive { ring, taken: 0 })
}

impl Ring {
    fn slot(&self, position: usize) -> &UnsafeCell<Slot> {
        &self.slots[position & (self.slots.len() - 1)]
    }
}

impl RingTransmit {
    /// Puts one frame of at most [`LONGEST`] bytes; false if the ring is full.
    fn put(&mut self, frame: &[u8]) -> bool {
        if self.put - self.taken == self.ring.slots.len() {
            self.taken = self.ring.taken.0.load(Ordering::Acquire);
            if self.put - self.taken == self.ring.slots.len() {
                return false;
            }
        }
        // SAFETY: the slot at `put` is free, so it belongs to this end, of which there is one.
        let slot = unsafe { &mut *self.ring.slot(self.put).get() };
        slot.length = frame.len() as u16;
        slot.bytes[..frame.len()].copy_from_slice(frame);
        self.put += 1;
        true
    }
}

impl Transmit for RingTransmit {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        let (mut full, mut long) = (0, 0);
        for index in 0..batch.len() {
            let frame = batch.packet(index);
            if frame.is_empty() {
                continue;
            }
            if frame.len() > LONGEST {
                long += 1;
                batch.discard(index);
            } else if full > 0 || !self.put(frame) {
                // Once full, full for the rest: what is taken is the beginning of the batch.
                full += 1;
                batch.discard(index);
            }
        }
        self.ring.put.0.store(self.put, Ordering::Release);
        drops.count(DropReason::RingFull, full);
        drops.count(DropReason::TooBig, long);
    }
}

impl Receive for RingReceive {
    fn receive(&mut self, batch: &mut Batch, _: &DropCounters) -> io::Result<usize> {
        let (first, put) = (batch.len(), self.ring.put.0.load(Ordering::Acquire));
        while self.taken != put {
            // SAFETY: the slot at `taken` holds a frame, so it belongs to this end, of which there is one.
            let slot = unsafe { &*self.ring.slot(self.taken).get() };
            let Some(packet) = batch.append(usize::from(slot.length)) else { break };
            packet.copy_from_slice(&slot.bytes[..usize::from(slot.length)]);
            self.taken += 1;
        }
        self.ring.taken.0.store(self.taken, Ordering::Release);
        batch.close_train(first, None, 0);
        Ok(batch.len() - first)
    }

    /// Does not wait for frames: both ends poll.
    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        wake.wait([]).map(|[]| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(batch: &mut Batch, numbers: std::ops::Range<u32>) {
        batch.clear();
        for number in numbers {
            let length = 60 + number as usize % 1400;
            let frame = batch.append(length).expect("it fits");
            frame.fill(number as u8);
            frame[..4].copy_from_slice(&number.to_be_bytes());
        }
    }

    #[test]
    fn a_full_ring_loses_what_does_not_fit_and_counts_it() {
        let (mut transmit, mut receive) = ring(8);
        let (mut batch, drops) = (Batch::new(64 * 1024), DropCounters::default());
        fill(&mut batch, 0..11);
        transmit.transmit(&mut batch, &drops);
        assert_eq!(drops.read(DropReason::RingFull), 3);
        assert_eq!(batch.live(0..11).count(), 8, "the batch says which frames were taken");
        batch.clear();
        batch.append(LONGEST + 1).expect("it fits").fill(1);
        transmit.transmit(&mut batch, &drops);
        assert_eq!(drops.read(DropReason::TooBig), 1);
        batch.clear();
        assert_eq!(receive.receive(&mut batch, &drops).expect("memory does not fail"), 8);
        assert_eq!((batch.packet(7)[3], batch.trains().len()), (7, 1));
        fill(&mut batch, 20..22);
        transmit.transmit(&mut batch, &drops);
        batch.clear();
        assert_eq!(receive.receive(&mut batch, &drops).expect("memory does not fail"), 2);
    }

    #[test]
    fn frames_pass_between_threads_unchanged_and_in_order() {
        const FRAMES: u32 = 50_000;
        let (mut transmit, mut receive) = ring(64);
        let sender = std::thread::spawn(move || {
            let (mut batch, drops) = (Batch::new(64 * 1024), DropCounters::default());
            let mut next = 0;
            while next < FRAMES {
                fill(&mut batch, next..FRAMES.min(next + 16));
                transmit.transmit(&mut batch, &drops);
                // What the ring did not take is sent again: taken frames are always the first of a batch.
                next += batch.live(0..batch.len()).count() as u32;
                std::thread::yield_now();
            }
        });
        let (mut batch, drops) = (Batch::new(64 * 1024), DropCounters::default());
        let mut expected = 0u32;
        while expected < FRAMES {
            batch.clear();
            receive.receive(&mut batch, &drops).expect("memory does not fail");
            for index in 0..batch.len() {
                let frame = batch.packet(index);
                assert_eq!(frame[..4], expected.to_be_bytes());
                assert_eq!(frame.len(), 60 + expected as usize % 1400);
                assert!(frame[4..].iter().all(|&byte| byte == expected as u8));
                expected += 1;
            }
            std::thread::yield_now();
        }
        sender.join().expect("it does not panic");
    }
}
