//! How many handshakes one source may ask for while we are under load (section 5.3: after the cookie, fairness).

use crate::Time;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Handshakes a second that one source may begin.
const RATE: u64 = 20;
/// Handshakes that it may begin at once.
const BURST: u64 = 5;
/// What one handshake costs, in nanoseconds of waiting.
const COST: u64 = 1_000_000_000 / RATE;
/// Sources remembered at once. Beyond that new ones are refused: they have proved their addresses, and so have too
/// many others.
const SOURCES: usize = 16_384;
/// Sources that were silent for this long are forgotten; their allowance is full again.
const FORGET_AFTER: Duration = Duration::from_secs(1);

/// A token bucket for each source address; an IPv6 source is its /64.
#[derive(Default)]
pub struct RateLimiter {
    sources: HashMap<IpAddr, Bucket>,
    swept: Option<Time>,
}

struct Bucket {
    tokens: u64,
    filled: Time,
}

impl RateLimiter {
    /// Whether `source` may begin one more handshake at `now`.
    pub fn allow(&mut self, source: IpAddr, now: Time) -> bool {
        self.sweep(now);
        let full = !self.has_room();
        let source = aggregate(source);
        if full && !self.sources.contains_key(&source) {
            return false;
        }
        let bucket = self.sources.entry(source).or_insert(Bucket { tokens: BURST * COST, filled: now });
        bucket.tokens = (bucket.tokens + (now - bucket.filled).as_nanos() as u64).min(BURST * COST);
        bucket.filled = now;
        let allowed = bucket.tokens >= COST;
        if allowed {
            bucket.tokens -= COST;
        }
        allowed
    }

    fn has_room(&self) -> bool {
        self.sources.len() < SOURCES
    }

    /// Forgets silent sources, once a second.
    fn sweep(&mut self, now: Time) {
        if self.swept.is_none_or(|swept| now - swept >= FORGET_AFTER) {
            self.sources.retain(|_, bucket| now - bucket.filled < FORGET_AFTER);
            self.swept = Some(now);
        }
    }
}

/// The unit in which addresses are handed out: one for IPv4, a /64 for IPv6.
fn aggregate(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(source) => Ipv6Addr::from(u128::from(source) & !u128::from(u64::MAX)).into(),
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
