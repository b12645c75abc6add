//! The rate limit of handshakes for each source under load (section 5.3).

use crate::Time;
use crate::bucket::{Bucket, aggregate};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Handshakes per second of one source.
const RATE: u32 = 20;
/// The burst of one source.
const BURST: u32 = 5;
/// The maximum number of sources. New ones beyond it are refused: they have proven their addresses, but so have too
/// many others.
const SOURCES: usize = 16_384;
/// The interval at which sources with a full bucket are removed.
const SWEEP: Duration = Duration::from_secs(1);

/// A token bucket for each source address; an IPv6 source is its /64.
#[derive(Default)]
pub struct RateLimiter {
    sources: HashMap<IpAddr, Bucket>,
    swept: Option<Time>,
}

impl RateLimiter {
    /// Whether `source` may send one more handshake message at `now`.
    pub fn allow(&mut self, source: IpAddr, now: Time) -> bool {
        self.sweep(now);
        let source = aggregate(source);
        if !self.has_room() && !self.sources.contains_key(&source) {
            return false;
        }
        let full = || Bucket::new(BURST, Duration::from_secs(1) / RATE, now);
        self.sources.entry(source).or_insert_with(full).take(now)
    }

    fn has_room(&self) -> bool {
        self.sources.len() < SOURCES
    }

    /// Removes sources with a full bucket, once a second.
    fn sweep(&mut self, now: Time) {
        if self.swept.is_none_or(|swept| now - swept >= SWEEP) {
            self.sources.retain(|_, bucket| !bucket.is_full(now));
            self.swept = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_nanoseconds(1_000_000_000);

    fn allowed(limiter: &mut RateLimiter, source: &str, at: Time) -> usize {
        let source = source.parse().expect("literal");
        (0..100).filter(|_| limiter.allow(source, at)).count()
    }

    #[test]
    fn a_source_has_a_burst_of_5_and_then_20_a_second() {
        let mut limiter = RateLimiter::default();
        assert_eq!(allowed(&mut limiter, "192.0.2.1", NOW), 5);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", NOW + Duration::from_millis(50)), 1);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", NOW + Duration::from_millis(250)), 4);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", NOW + Duration::from_secs(60)), 5);
    }

    #[test]
    fn one_source_takes_nothing_from_another() {
        let mut limiter = RateLimiter::default();
        allowed(&mut limiter, "192.0.2.1", NOW);
        assert_eq!(allowed(&mut limiter, "192.0.2.2", NOW), 5);
        assert_eq!(allowed(&mut limiter, "2001:db8::1", NOW), 5);
        assert_eq!(allowed(&mut limiter, "2001:db8::2", NOW), 0, "the same /64");
        assert_eq!(allowed(&mut limiter, "2001:db8:0:1::2", NOW), 5);
    }

    #[test]
    fn memory_is_bounded_and_freed() {
        let mut limiter = RateLimiter::default();
        for source in 0..SOURCES as u32 + 1000 {
            limiter.allow(std::net::Ipv4Addr::from(source).into(), NOW);
        }
        assert_eq!(limiter.sources.len(), SOURCES);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", NOW), 0);
        assert_eq!(allowed(&mut limiter, "192.0.2.1", NOW + Duration::from_secs(2)), 5);
        assert_eq!(limiter.sources.len(), 1);
    }
}
