//! After what SAs with keys of the file, or of the configuration, are used no more: a time, bytes or packets. They are not renewed: there is no
//! IKE. What they protect is dropped then, never sent in clear.

use super::model;
use super::tables::{Numbers, SecgwTables};
use crate::clock::Clock;
use config::secgw::settings::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tunnel::Time;
use tunnel::sa::{Lifetime, Volume};

/// An SA is said to end soon when a tenth of a limit is left.
const SOON: u64 = 10;

/// What of a key was used before an SA, by others that had it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Since when it is used.
    pub since: Option<Time>,
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

/// Where an SA ends.
#[derive(Clone, Default)]
pub struct Ends {
    limits: Limits,
    expires: Option<Time>,
    /// Of what it sends or receives itself.
    bytes: Option<u64>,
    packets: Option<u64>,
    /// Its first sequence number.
    first: u64,
    /// What was said of it: that it ends soon, or has ended.
    said: Arc<AtomicU8>,
}

impl Ends {
    /// Where an SA with these limits ends that begins now with this number.
    pub fn new(limits: Limits, spent: Spent, first: u64, now: Time) -> Self {
        let some = |limit: u64, spent: u64| (limit > 0).then(|| limit.saturating_sub(spent));
        let lifetime = Duration::from_secs(limits.seconds);
        Self {
            limits,
            expires: (limits.seconds > 0).then(|| spent.since.unwrap_or(now) + lifetime),
            bytes: some(limits.bytes, spent.bytes),
            packets: some(limits.packets, spent.packets),
            first,
            said: Arc::default(),
        }
    }

    /// The same for the SA itself: it also ends when its sequence numbers do (RFC 4303 section 3.3.3).
    pub fn lifetime(&self, is_extended: bool) -> Lifetime {
        let end_sequence = if is_extended { u64::MAX } else { 1 << 32 };
        let expires = self.expires.unwrap_or(Time::from_nanoseconds(u64::MAX));
        Lifetime { renew: None, renew_sequence: u64::MAX, expires, end_sequence }
    }

    /// The counters of the SA, if it has a limit.
    pub fn volume(&self) -> Option<Volume> {
        let [bytes, packets] = [self.bytes, self.packets].map(|limit| limit.unwrap_or(u64::MAX));
        self.limits.is_any().then(|| Volume::new(u64::MAX, bytes).with_packets(packets))
    }

    /// Packets and bytes that the SA has carried, as far as they are counted. Of an SA that has ended by a limit, the limit.
    pub(super) fn spent(&self, numbers: &Numbers) -> (u64, u64) {
        match (numbers.volume(), numbers) {
            (Some(volume), _) => (volume.packets(), volume.bytes()),
            (None, Numbers::Outbound(sa)) => (sa.next().saturating_sub(self.first), 0),
            (None, Numbers::Inbound(_)) => (0, 0),
        }
    }

    /// What is left, if there is a limit.
    pub(super) fn left(&self, numbers: &Numbers, now: Time) -> Option<model::SaLifetime> {
        if !self.limits.is_any() {
            return None;
        }
        let (packets, bytes) = self.spent(numbers);
        Some(model::SaLifetime {
            seconds: self.expires.map(|expires| (expires - now).as_secs()),
            bytes: self.bytes.map(|all| all.saturating_sub(bytes)),
            packets: self.packets.map(|all| all.saturating_sub(packets)),
            has_ended: !numbers.is_usable(now),
        })
    }

    /// Whether a limit is near.
    fn is_near(&self, left: &model::SaLifetime) -> bool {
        let Limits { seconds, bytes, packets } = self.limits;
        [(seconds, left.seconds), (bytes, left.bytes), (packets, left.packets)]
            .into_iter()
            .any(|(limit, left)| left.is_some_and(|left| left <= limit / SOON))
    }
}

/// What is new about the ends of SAs, as sentences: each is said once.
pub(super) fn news(tables: &SecgwTables) -> Vec<String> {
    let now = Clock.monotonic();
    let of = |sa: &super::tables::Installed| {
        let is_near = sa.ends.left(&sa.numbers, now).is_some_and(|left| sa.ends.is_near(&left));
        let (stage, text) = match (!sa.numbers.is_usable(now), is_near) {
            (true, _) => (2, "has reached the end of its lifetime: its packets are dropped"),
            (false, true) => (1, "reaches the end of its lifetime soon"),
            (false, false) => return None,
        };
        let is_new = sa.ends.said.fetch_max(stage, Ordering::Relaxed) < stage;
        let (direction, spi, line) = (sa.direction.word(), sa.spi, sa.line);
        is_new.then(|| {
            format!(
                "sa {direction} {spi}, line {line}, {text}\n  fix: write a new key at both ends, and reload"
            )
        })
    };
    tables.sas.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_of_a_key_before_counts() {
        let (now, second) = (Time::from_nanoseconds(1_000_000_000_000), Duration::from_secs(1));
        let limits = Limits { seconds: 10, bytes: 1000, packets: 5 };
        let left = |ends: &Ends| (ends.lifetime(false).expires, ends.bytes, ends.packets);
        let fresh = Ends::new(limits, Spent::default(), 1, now);
        assert_eq!(left(&fresh), (now + 10 * second, Some(1000), Some(5)));
        let spent = Spent { since: Some(now), bytes: 400, packets: 2 };
        let again = Ends::new(limits, spent, 3, now + second);
        assert_eq!(left(&again), (now + 10 * second, Some(600), Some(3)));
        let over = Ends::new(limits, Spent { since: None, bytes: 2000, packets: 9 }, 10, now);
        assert_eq!((over.bytes, over.packets), (Some(0), Some(0)));
        let none = Ends::new(Limits::default(), spent, 7, now);
        assert!(none.volume().is_none());
        assert_eq!([false, true].map(|it| none.lifetime(it).end_sequence), [1 << 32, u64::MAX]);
    }
}
