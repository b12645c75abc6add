//! Moderation: a socket or interface whose packets come one by one and often is left alone for a moment, so that the worker takes
//! several at once.
//!
//! A peer that sends each packet as a datagram of its own would otherwise wake the worker for each: waking costs more than opening
//! the packet, and packets that are received alone cannot be merged inside. Network cards do the same with interrupts.

use std::time::{Duration, Instant};

/// Cycles in a row that must be busy first, so that no short exchange of messages is delayed.
const BUSY_CYCLES: u32 = 8;
/// Arrivals that must be expected during a pause.
const WORTHWHILE: u32 = 2;
/// Arrivals with so many packets on average are merged already.
const MERGED: usize = 4;

/// What came from one time that the port was empty to the next: a cycle.
#[derive(Default)]
pub(crate) struct Moderation {
    begun: Option<Instant>,
    arrivals: u32,
    packets: usize,
    busy: u32,
}

impl Moderation {
    /// Counts what calls have brought: what the kernel delivers as one, and the packets in it.
    pub(crate) fn note(&mut self, arrivals: usize, packets: usize) {
        self.arrivals = self.arrivals.saturating_add(arrivals as u32);
        self.packets += packets;
    }

    /// Ends a cycle: the port is empty. Whether to leave it alone for `pause`.
    pub(crate) fn is_worthwhile(&mut self, now: Instant, pause: Duration) -> bool {
        let elapsed = self.begun.replace(now).map(|begun| now.saturating_duration_since(begun));
        let (arrivals, packets) = (std::mem::take(&mut self.arrivals), std::mem::take(&mut self.packets));
        let is_often = elapsed.is_some_and(|elapsed| pause * arrivals >= elapsed * WORTHWHILE);
        let is_busy = is_often && packets < arrivals as usize * MERGED;
        self.busy = if is_busy { self.busy.saturating_add(1) } else { 0 };
        self.busy > BUSY_CYCLES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_micros(50);

    /// Whether the last of 20 cycles of this length, each with so many arrivals and packets, is worth a pause.
    fn after_cycles(microseconds: u64, arrivals: usize, packets: usize) -> bool {
        let (mut moderation, start) = (Moderation::default(), Instant::now());
        let cycle = |number: u32| {
            moderation.note(arrivals, packets);
            moderation.is_worthwhile(start + Duration::from_micros(microseconds) * number, PAUSE)
        };
        (0..20).map(cycle).last() == Some(true)
    }

    #[test]
    fn single_arrivals_that_come_often_are_worth_a_pause() {
        assert!(after_cycles(10, 1, 1), "one in 10 us: five in a pause");
        assert!(after_cycles(60, 6, 6), "as many after a pause");
        assert!(!after_cycles(40, 1, 1), "one in 40 us: one in a pause");
        assert!(!after_cycles(1, 0, 0), "nothing comes");
    }

    #[test]
    fn merged_arrivals_are_taken_at_once() {
        assert!(!after_cycles(10, 1, 45));
    }

    #[test]
    fn a_few_datagrams_are_not_delayed_and_a_break_ends_moderation() {
        let (mut moderation, start) = (Moderation::default(), Instant::now());
        let mut now = start;
        let mut cycle = |microseconds| {
            now += Duration::from_micros(microseconds);
            moderation.note(1, 1);
            moderation.is_worthwhile(now, PAUSE)
        };
        assert_eq!(
            (0..20).position(|_| cycle(10)),
            Some(BUSY_CYCLES as usize + 1),
            "the first has no beginning"
        );
        assert!(cycle(10) && !cycle(1000) && !cycle(10));
    }
}
