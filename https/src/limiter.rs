//! Rates: how often a source may send a wrong key, and how many requests a key may send.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// How much is allowed at once, and how fast that comes back.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) burst: f64,
    pub(crate) per_second: f64,
}

/// Token buckets. A key without a bucket has all its tokens.
pub(crate) struct Limiter<K> {
    rate: Rate,
    most: usize,
    buckets: HashMap<K, Bucket>,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Bucket {
    fn tokens(&self, rate: Rate, now: Instant) -> f64 {
        let back = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        (self.tokens + back).min(rate.burst)
    }
}

impl<K: Clone + Eq + Hash> Limiter<K> {
    /// At most so many are remembered.
    pub(crate) fn new(rate: Rate, most: usize) -> Self {
        Self { rate, most, buckets: HashMap::new() }
    }

    /// How long one must wait; nothing if it need not.
    pub(crate) fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        let tokens = self.buckets.get(key)?.tokens(self.rate, now);
        (tokens < 1.0).then(|| Duration::from_secs_f64((1.0 - tokens) / self.rate.per_second))
    }

    /// Takes one; how long to wait if there is none.
    pub(crate) fn take(&mut self, key: &K, now: Instant) -> Result<(), Duration> {
        if let Some(wait) = self.wait(key, now) {
            return Err(wait);
        }
        let tokens = self.buckets.get(key).map_or(self.rate.burst, |bucket| bucket.tokens(self.rate, now));
        if !self.buckets.contains_key(key) {
            self.make_room(now);
        }
        self.buckets.insert(key.clone(), Bucket { tokens: tokens - 1.0, at: now });
        Ok(())
    }

    /// Forgets those that have all back; and of the others, if they are too many, the one that has most.
    fn make_room(&mut self, now: Instant) {
        if self.buckets.len() < self.most {
            return;
        }
        let rate = self.rate;
        self.buckets.retain(|_, bucket| bucket.tokens(rate, now) < rate.burst);
        if self.buckets.len() < self.most {
            return;
        }
        let fullest = self
            .buckets
            .iter()
            .max_by(|(_, one), (_, other)| one.tokens(rate, now).total_cmp(&other.tokens(rate, now)));
        if let Some(key) = fullest.map(|(key, _)| key.clone()) {
            self.buckets.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { burst: 3.0, per_second: 0.5 };

    #[test]
    fn what_is_used_up_comes_back_with_time() {
        let (mut limiter, now) = (Limiter::new(RATE, 10), Instant::now());
        for _ in 0..3 {
            assert_eq!(limiter.take(&1, now), Ok(()));
        }
        assert_eq!(limiter.take(&1, now), Err(Duration::from_secs(2)));
        assert_eq!(limiter.take(&2, now), Ok(()), "another is not concerned");
        let later = now + Duration::from_secs(2);
        assert_eq!(limiter.take(&1, later), Ok(()));
        assert!(limiter.take(&1, later).is_err());
        assert_eq!(limiter.wait(&1, now + Duration::from_secs(60)), None);
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_remembered() {
        let (mut limiter, now) = (Limiter::new(RATE, 4), Instant::now());
        while limiter.take(&0, now).is_ok() {}
        for key in 1..1000 {
            assert_eq!(limiter.take(&key, now), Ok(()));
        }
        assert!(limiter.buckets.len() <= 4 && limiter.wait(&0, now).is_some());
    }
}
