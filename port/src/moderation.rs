//! Moderation: a socket or interface whose packets come one by one and often is left alone for a moment, so that the worker takes
//! several at once.
//!
//! A peer that sends each packet as a datagram of its own would otherwise wake the worker for each: waking costs more than opening
//! the packet, and packets that are received alone cannot be merged inside. Network cards do the same with interrupts.

use std::time::{Duration, Instant};

/// Arrivals are counted for at least this time: senders pace bursts of a millisecond, and the gaps between them count too.
const WINDOW: Duration = Duration::from_millis(1);
/// Arrivals that must be expected during a pause.
const WORTHWHILE: u32 = 2;
/// Arrivals with so many packets on average are merged already.
const MERGED: usize = 4;

/// What came in a window, and the verdict about the one before.
#[derive(Default)]
pub(crate) struct Moderation {
    begun: Option<Instant>,
    arrivals: u32,
    packets: usize,
    /// Whether something came since the port was empty before.
    came: bool,
    is_busy: bool,
}

impl Moderation {
    /// Counts what calls have brought: what the kernel delivers as one, and the packets in it.
    pub(crate) fn note(&mut self, arrivals: usize, packets: usize) {
        self.arrivals = self.arrivals.saturating_add(arrivals as u32);
        self.packets += packets;
        self.came |= arrivals > 0;
    }

    /// The port is empty: whether to leave it alone for `pause`. After a pause in which nothing came, it is not.
    pub(crate) fn is_worthwhile(&mut self, now: Instant, pause: Duration) -> bool {
        let elapsed = now.saturating_duration_since(*self.begun.get_or_insert(now));
        if elapsed >= WINDOW {
            let is_often = pause * self.arrivals >= elapsed * WORTHWHILE;
            self.is_busy = is_often && self.packets < self.arrivals as usize * MERGED;
            (self.begun, self.arrivals, self.packets) = (Some(now), 0, 0);
        }
        std::mem::take(&mut self.came) && self.is_busy
    }

    /// Whether packets came one by one and often in the last window.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_micros(100);

    /// Whether a pause is worthwhile at last, if so many arrivals of so many packets come at each of these times.
    fn after(times: impl IntoIterator<Item = u64>, arrivals: usize, packets: usize) -> bool {
        let (mut moderation, start) = (Moderation::default(), Instant::now());
        let at = |time| {
            moderation.note(arrivals, packets);
            moderation.is_worthwhile(start + Duration::from_micros(time), PAUSE)
        };
        times.into_iter().map(at).last() == Some(true)
    }

    #[test]
    fn single_arrivals_that_come_often_are_worth_a_pause() {
        assert!(after((0..2000).step_by(10), 1, 1), "one in 10 us: ten in a pause");
        assert!(after((0..2000).step_by(100), 10, 10), "as many after a pause");
        assert!(!after((0..4000).step_by(60), 1, 1), "one in 60 us: one in a pause");
        assert!(!after((0..4000).step_by(10), 1, 45), "they are merged");
    }

    #[test]
    fn bursts_with_gaps_are_worth_a_pause() {
        let bursts = (0..5).flat_map(|burst| (0..400).step_by(10).map(move |time| burst * 1000 + time));
        assert!(after(bursts, 1, 1), "40 in a millisecond");
        let bursts = (0..5).flat_map(|burst| (0..100).step_by(10).map(move |time| burst * 1000 + time));
        assert!(!after(bursts, 1, 1), "10 in a millisecond");
    }

    #[test]
    fn a_few_datagrams_are_not_delayed_and_a_break_ends_moderation() {
        assert!(!after((0..190).step_by(10), 1, 1), "19 datagrams are no load");
        assert!(!after((0..2000).step_by(10).chain([12_000]), 1, 1), "10 ms without any");
    }

    #[test]
    fn a_pause_that_brings_nothing_is_not_repeated() {
        let (mut moderation, start) = (Moderation::default(), Instant::now());
        let mut ask = |time, arrivals| {
            moderation.note(arrivals, arrivals);
            moderation.is_worthwhile(start + Duration::from_micros(time), PAUSE)
        };
        ask(0, 1);
        assert!(ask(1000, 100) && !ask(1100, 0) && ask(1200, 1));
    }
}
