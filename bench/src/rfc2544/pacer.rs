//! When frames are due: at a steady rate, one by one or in bursts.

/// A departure so much behind its time is late.
pub const LATE: u64 = 100_000;

/// The plan of a trial's departures in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Pacer {
    /// Frames a second; infinite: as fast as possible.
    rate: f64,
    /// Frames that leave together.
    burst: u64,
    /// Nanoseconds of the clock at the first departure.
    start: u64,
    /// The number of frames.
    total: u64,
}

impl Pacer {
    /// Frames at `rate` a second for `seconds`, at most `limit`, from `start` on.
    pub fn new(rate: f64, burst: u64, start: u64, seconds: f64, limit: Option<u64>) -> Self {
        // As casts saturate, an infinite rate has no limit.
        let total = ((rate * seconds).round() as u64).max(1).min(limit.unwrap_or(u64::MAX));
        Self { rate, burst: burst.max(1), start, total }
    }

    /// The number of frames of the whole trial; `u64::MAX` if only time limits it.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The frames that have to be sent until `now`. A burst leaves when its first frame is due.
    #[inline]
    pub fn due(&self, now: u64) -> u64 {
        if self.rate.is_infinite() {
            return self.total;
        }
        let elapsed = now.saturating_sub(self.start) as f64 / 1e9;
        let frames = elapsed * self.rate / self.burst as f64;
        (frames as u64).saturating_add(1).saturating_mul(self.burst).min(self.total)
    }

    /// Whether frame `sequence` that leaves at `now` is late.
    #[inline]
    pub fn is_late(&self, sequence: u64, now: u64) -> bool {
        let planned = (sequence / self.burst * self.burst) as f64 / self.rate * 1e9;
        now.saturating_sub(self.start) as f64 > planned + LATE as f64 && self.rate.is_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_one_by_one_at_the_rate_and_never_more_than_in_total() {
        let pacer = Pacer::new(1e6, 1, 5000, 0.5, None);
        assert_eq!((pacer.total(), pacer.due(5000), pacer.due(5999), pacer.due(6000)), (500_000, 1, 1, 2));
        assert_eq!((pacer.due(5000 + 499_999_000), pacer.due(u64::MAX)), (500_000, 500_000));
        assert_eq!(Pacer::new(1e6, 1, 0, 1.0, Some(7)).due(u64::MAX), 7);
    }

    #[test]
    fn bursts_keep_the_mean_rate() {
        let pacer = Pacer::new(1e6, 16, 0, 1.0, None);
        assert_eq!([0, 15_999, 16_000, 31_999].map(|now| pacer.due(now)), [16, 16, 32, 32]);
        assert_eq!(pacer.due(u64::MAX), 1_000_000);
    }

    #[test]
    fn a_departure_is_late_after_a_tenth_of_a_millisecond() {
        let pacer = Pacer::new(1e6, 1, 1000, 1.0, None);
        assert!(!pacer.is_late(10, 1000 + 9_999 + LATE) && pacer.is_late(10, 1000 + 10_001 + LATE));
        let fast = Pacer::new(f64::INFINITY, 1, 0, 1.0, None);
        assert!(!fast.is_late(0, u64::MAX) && fast.due(0) == u64::MAX, "it has no plan");
    }
}
