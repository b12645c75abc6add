//! Security associations: what a finished key exchange hands to the data path, one for each direction.
//!
//! Both are shared by the workers and never change but for their counters, so that a packet in flight finishes under
//! the key it began with while a newer one is already in use.

use crate::Time;
use crate::replay::ReplayWindow;
use crypto::Key;
use packet::DropReason;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// When a key should be, and when it must be, replaced.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// From here on whoever uses the key asks for a new one; `None` leaves that to the other side.
    pub renew: Option<Time>,
    /// The same as a sequence number, for both sides.
    pub renew_sequence: u64,
    /// From here on the key is not used at all.
    pub expires: Time,
    /// The first sequence number that is not used.
    pub end_sequence: u64,
}

/// The key to send with.
pub struct OutboundSa {
    /// Seals the packets.
    pub key: Arc<dyn Key>,
    /// By what the receiver finds its side: WireGuard's receiver index.
    pub receiver: u32,
    lifetime: Lifetime,
    next: AtomicU64,
    renewal_asked: AtomicBool,
}

impl OutboundSa {
    /// An SA whose first sequence number is 0.
    pub fn new(key: Arc<dyn Key>, receiver: u32, lifetime: Lifetime) -> Self {
        Self { key, receiver, lifetime, next: AtomicU64::new(0), renewal_asked: AtomicBool::new(false) }
    }

    /// Whether packets may be sent with it at `now`.
    pub fn is_usable(&self, now: Time) -> bool {
        now < self.lifetime.expires && self.next.load(Ordering::Relaxed) < self.lifetime.end_sequence
    }

    /// Takes `count` consecutive sequence numbers, each of which is given out once.
    #[inline]
    pub fn assign(&self, count: usize, now: Time) -> Result<Range<u64>, DropReason> {
        if now >= self.lifetime.expires {
            return Err(DropReason::KeyExpired);
        }
        // Not a plain addition: a refused burst must not bring the counter nearer to its overflow.
        let count = count as u64;
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            next.checked_add(count).filter(|&end| end <= self.lifetime.end_sequence)
        });
        taken.map(|first| first..first + count).map_err(|_| DropReason::CounterExhausted)
    }

    /// Whether it is time to ask for a new key; true only once.
    #[inline]
    pub fn wants_renewal(&self, now: Time) -> bool {
        let due = self.lifetime.renew.is_some_and(|renew| now >= renew)
            || self.next.load(Ordering::Relaxed) > self.lifetime.renew_sequence;
        due && !self.renewal_asked.swap(true, Ordering::Relaxed)
    }
}

/// The key to receive with.
pub struct InboundSa {
    /// Opens the packets.
    pub key: Arc<dyn Key>,
    /// Our own index, by which packets find this SA.
    pub index: u32,
    lifetime: Lifetime,
    window: Mutex<ReplayWindow>,
    renewal_asked: AtomicBool,
    unconfirmed: AtomicBool,
}

impl InboundSa {
    /// An SA that has received nothing yet.
    ///
    /// `unconfirmed`: the other side has not yet shown that it has the keys, so nothing may be sent with their twin.
    pub fn new(key: Arc<dyn Key>, index: u32, lifetime: Lifetime, unconfirmed: bool) -> Self {
        Self {
            key,
            index,
            lifetime,
            window: Mutex::default(),
            renewal_asked: AtomicBool::new(false),
            unconfirmed: AtomicBool::new(unconfirmed),
        }
    }

    /// Whether packets may still be received with it at `now`.
    #[inline]
    pub fn check_age(&self, now: Time) -> Result<(), DropReason> {
        if now < self.lifetime.expires { Ok(()) } else { Err(DropReason::KeyExpired) }
    }

    /// The first sequence number that is not received.
    #[inline]
    pub fn end_sequence(&self) -> u64 {
        self.lifetime.end_sequence
    }

    /// The replay window, locked: taken once for a run of packets.
    #[inline]
    pub fn window(&self) -> MutexGuard<'_, ReplayWindow> {
        // Nothing panics with the lock held; if it did, the window would still be a window.
        self.window.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes that an authentic packet arrived; true only for the first one of an unconfirmed SA.
    #[inline]
    pub fn confirm(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed) && self.unconfirmed.swap(false, Ordering::Relaxed)
    }

    /// Whether it is time to ask for a new key; true only once.
    #[inline]
    pub fn wants_renewal(&self, now: Time) -> bool {
        let due = self.lifetime.renew.is_some_and(|renew| now >= renew);
        due && !self.renewal_asked.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::Cipher;
    use crypto::engine::{Engine, none};

    const EXPIRES: Time = Time::from_nanoseconds(1000);

    fn sa(end_sequence: u64) -> OutboundSa {
        let key = none::None.load(Cipher::ChaCha20Poly1305, &[0; 32]).expect("none takes any key");
        let renew = Some(Time::from_nanoseconds(500));
        OutboundSa::new(key, 7, Lifetime { renew, renew_sequence: 8, expires: EXPIRES, end_sequence })
    }

    #[test]
    fn sequence_numbers_are_consecutive_and_end() {
        let (sa, now) = (sa(10), Time::from_nanoseconds(1));
        assert_eq!(sa.assign(4, now), Ok(0..4));
        assert_eq!(sa.assign(4, now), Ok(4..8));
        assert_eq!(sa.assign(4, now), Err(DropReason::CounterExhausted));
        assert_eq!(sa.assign(2, now), Ok(8..10));
        assert_eq!(sa.assign(1, now), Err(DropReason::CounterExhausted));
        assert!(!sa.is_usable(now));
    }

    #[test]
    fn the_counter_never_wraps() {
        let (sa, now) = (sa(u64::MAX), Time::from_nanoseconds(1));
        sa.next.store(u64::MAX - 1, Ordering::Relaxed);
        assert_eq!(sa.assign(2, now), Err(DropReason::CounterExhausted));
        assert_eq!(sa.assign(1, now), Ok(u64::MAX - 1..u64::MAX));
        assert_eq!(sa.assign(1, now), Err(DropReason::CounterExhausted));
    }

    #[test]
    fn an_expired_key_assigns_nothing() {
        assert_eq!(sa(10).assign(1, EXPIRES), Err(DropReason::KeyExpired));
        assert!(!sa(10).is_usable(EXPIRES));
    }

    #[test]
    fn renewal_is_asked_for_once_by_age_or_by_use() {
        let by_age = sa(100);
        assert!(!by_age.wants_renewal(Time::from_nanoseconds(499)));
        assert!(by_age.wants_renewal(Time::from_nanoseconds(500)));
        assert!(!by_age.wants_renewal(Time::from_nanoseconds(501)));
        let by_use = sa(100);
        by_use.assign(9, Time::from_nanoseconds(1)).expect("there are numbers left");
        assert!(by_use.wants_renewal(Time::from_nanoseconds(1)));
    }
}
