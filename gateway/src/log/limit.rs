//! A limit on the lines of one place in the program.

use crate::clock::Clock;
use std::time::Duration;
use tunnel::Time;
use tunnel::bucket::Bucket;

/// A token bucket that counts the lines that were left out.
pub struct Limit {
    bucket: Bucket,
    left_out: u64,
}

impl Limit {
    /// A limit of `at_once` lines, and one more after each `interval`.
    pub fn new(at_once: u32, interval: Duration) -> Self {
        Self::since(Clock.monotonic(), at_once, interval)
    }

    fn since(now: Time, at_once: u32, interval: Duration) -> Self {
        Self { bucket: Bucket::new(at_once, interval, now), left_out: 0 }
    }

    /// Takes a line, and returns how many were left out before it; `None` if it is left out, too.
    pub fn take(&mut self) -> Option<u64> {
        self.take_at(Clock.monotonic())
    }

    fn take_at(&mut self, now: Time) -> Option<u64> {
        if !self.bucket.take(now) {
            self.left_out += 1;
            return None;
        }
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_left_out_are_counted_until_the_next_one() {
        let (begun, interval) = (Time::from_nanoseconds(1), Duration::from_millis(20));
        let mut limit = Limit::since(begun, 500, interval);
        assert!((0..500).all(|_| limit.take_at(begun) == Some(0)));
        assert!((0..7).all(|_| limit.take_at(begun).is_none()));
        assert_eq!(limit.take_at(begun + interval), Some(7));
        assert_eq!(limit.take_at(begun + interval), None);
        let later = begun + Duration::from_secs(3600);
        assert_eq!(limit.take_at(later), Some(1));
        assert_eq!((0..600).filter(|_| limit.take_at(later).is_some()).count(), 499, "no more than at first");
    }
}
