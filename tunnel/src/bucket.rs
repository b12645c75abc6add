//! A token bucket, which rate-limits unauthenticated sources, and the aggregation of addresses into sources.

use crate::Time;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// The source that an address belongs to: the address itself for IPv4, its /64 for IPv6.
pub fn aggregate(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(source) => Ipv6Addr::from(u128::from(source) & !u128::from(u64::MAX)).into(),
    }
}

/// A token bucket; it starts full.
pub struct Bucket {
    /// The maximum number of tokens.
    size: u32,
    /// One token is added after this time.
    interval: Duration,
    taken: u32,
    since: Time,
}

impl Bucket {
    /// A full bucket of so many tokens, to which one comes back after each `interval`.
    pub fn new(size: u32, interval: Duration, now: Time) -> Self {
        Self { size, interval, taken: 0, since: now }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Time) -> bool {
        let is_left = !self.is_empty(now);
        self.taken += u32::from(is_left);
        is_left
    }

    /// Returns a token.
    pub fn put_back(&mut self) {
        self.taken = self.taken.saturating_sub(1);
    }

    /// The number of missing tokens.
    pub fn missing(&mut self, now: Time) -> u32 {
        self.refill(now);
        self.taken
    }

    /// Whether the bucket is empty.
    pub fn is_empty(&mut self, now: Time) -> bool {
        self.refill(now);
        self.taken >= self.size
    }

    /// Whether the bucket is full: such a bucket need not be stored, as a new one is equal.
    pub fn is_full(&mut self, now: Time) -> bool {
        self.refill(now);
        self.taken == 0
    }

    fn refill(&mut self, now: Time) {
        let back = (now - self.since).as_nanos() / self.interval.as_nanos().max(1);
        let back = u32::try_from(back).unwrap_or(u32::MAX);
        if back >= self.taken {
            (self.taken, self.since) = (0, now);
        } else {
            self.taken -= back;
            self.since = self.since + self.interval * back;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_comes_back_one_by_one() {
        let at = |milliseconds: u64| Time::from_nanoseconds(1) + Duration::from_millis(milliseconds);
        let mut bucket = Bucket::new(3, Duration::from_secs(1), at(0));
        let mut take = |milliseconds| bucket.take(at(milliseconds));
        assert_eq!([take(0), take(0), take(500), take(500)], [true, true, true, false]);
        assert_eq!([take(999), take(1000), take(1000)], [false, true, false]);
        assert_eq!([take(2500), take(2500), take(3000)], [true, false, true]);
        assert_eq!([(); 4].map(|()| take(1_000_000)), [true, true, true, false]);
    }
}
