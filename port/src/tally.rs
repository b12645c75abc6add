//! What a worker's calls of the kernel brought, counted by the worker itself and read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Classes of bursts: 1, 2, up to 4, 8, 16, 32 and 64 packets, and more.
pub const CLASSES: usize = 8;

/// A number that one thread writes: no locked instruction is needed.
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    #[inline]
    fn add(&self, number: usize) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(number as u64), Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one worker. It has its cache lines to itself (processors fetch them in pairs): the worker of the other
/// direction counts at the same time.
#[derive(Default)]
#[repr(align(128))]
pub struct Tally {
    wake_ups: Count,
    receives: Count,
    empty: Count,
    received_packets: Count,
    received_bytes: Count,
    sends: Count,
    sent_bytes: Count,
    bursts: [Count; CLASSES],
}

/// What a [`Tally`] has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Calls that waited, and have ended.
    pub wake_ups: u64,
    /// Calls that received.
    pub receives: u64,
    /// Those of them that found nothing: EAGAIN.
    pub empty: u64,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Calls to send; one that is refused sends no bytes.
    pub sends: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bursts by their class.
    pub bursts: [u64; CLASSES],
}

impl Tally {
    /// A wait has ended.
    #[inline]
    pub fn wake_up(&self) {
        self.wake_ups.add(1);
    }

    /// A call has received `bytes`.
    #[inline]
    pub fn receive(&self, bytes: usize) {
        self.receives.add(1);
        self.received_bytes.add(bytes);
    }

    /// A call has found nothing.
    #[inline]
    pub fn empty(&self) {
        self.receives.add(1);
        self.empty.add(1);
    }

    /// A call has sent `bytes`.
    #[inline]
    pub fn send(&self, bytes: usize) {
        self.sends.add(1);
        self.sent_bytes.add(bytes);
    }

    /// The worker has taken a burst of so many packets.
    #[inline]
    pub fn burst(&self, packets: usize) {
        if packets > 0 {
            self.received_packets.add(packets);
            self.bursts[class(packets)].add(1);
        }
    }

    /// What was counted so far.
    pub fn read(&self) -> Counted {
        Counted {
            wake_ups: self.wake_ups.read(),
            receives: self.receives.read(),
            empty: self.empty.read(),
            received_packets: self.received_packets.read(),
            received_bytes: self.received_bytes.read(),
            sends: self.sends.read(),
            sent_bytes: self.sent_bytes.read(),
            bursts: std::array::from_fn(|class| self.bursts[class].read()),
        }
    }
}

/// The class of a burst.
#[inline]
fn class(packets: usize) -> usize {
    (packets.next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

/// The most packets of a burst of this class; none for the last one.
pub fn most(class: usize) -> Option<u64> {
    (class < CLASSES - 1).then(|| 1 << class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_counted_in_the_smallest_class_that_holds_it() {
        for (packets, expected) in [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (64, 6), (65, 7), (5000, 7)] {
            assert_eq!(class(packets), expected, "{packets}");
            assert!(most(expected).is_none_or(|most| packets as u64 <= most));
        }
    }

    #[test]
    fn calls_are_counted_with_what_they_brought() {
        let tally = Tally::default();
        tally.wake_up();
        tally.receive(3000);
        tally.empty();
        tally.burst(2);
        tally.burst(0);
        tally.send(3064);
        let mut bursts = [0; CLASSES];
        bursts[1] = 1;
        let expected = Counted {
            wake_ups: 1,
            receives: 2,
            empty: 1,
            received_packets: 2,
            received_bytes: 3000,
            sends: 1,
            sent_bytes: 3064,
            bursts,
        };
        assert_eq!(tally.read(), expected);
    }
}
