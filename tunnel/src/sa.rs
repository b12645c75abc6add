//! Security associations: what a finished key exchange hands to the data path, one for each direction.
//!
//! Both are shared by the workers and never change but for their counters, so that a packet in flight finishes under
//! the key it began with while a newer one is already in use.

use crate::replay::{self, ReplayWindow};
use crate::{Time, esp};
use crypto::Key;
use packet::DropReason;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Names the other end of a tunnel for the lifetime of the protocol that made it; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u64);

impl PeerId {
    /// A name that the protocol has not given yet.
    pub fn new(number: u64) -> Self {
        Self(number)
    }
}

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

/// How packets of an SA look outside, and the key that protects them: what a run of packets is asked once.
pub enum Protection {
    /// WireGuard's data messages.
    WireGuard(Arc<dyn Key>),
    /// ESP.
    Esp(esp::Protection),
}

impl From<Arc<dyn Key>> for Protection {
    fn from(key: Arc<dyn Key>) -> Self {
        Self::WireGuard(key)
    }
}

impl From<esp::Protection> for Protection {
    fn from(protection: esp::Protection) -> Self {
        Self::Esp(protection)
    }
}

impl Protection {
    /// The key of WireGuard's data messages.
    pub fn wireguard(&self) -> Option<&dyn Key> {
        match self {
            Self::WireGuard(key) => Some(&**key),
            Self::Esp(_) => None,
        }
    }

    /// The first number that is given to a packet (RFC 4303 section 3.3.3; WireGuard counts from 0).
    fn first_sequence(&self) -> u64 {
        match self {
            Self::WireGuard(_) => 0,
            Self::Esp(_) => 1,
        }
    }
}

/// A key is worn when this part of what it may carry has passed: the other side may renew it long before we do.
const WORN_PART: u64 = 4;
/// And when so many packets have passed, whatever it may carry: the other side may let its keys carry less than we do. To send
/// so many costs it more than its new keys cost us.
const WORN_PACKETS: u64 = 16_384;

/// How many bytes a key has protected, and may (RFC 4301 section 4.4.2.1).
pub struct Volume {
    /// From here on whoever uses the key asks for a new one.
    renew: u64,
    /// The first byte that is not sent, or received.
    end: u64,
    /// The first packet that is not received; sending, the sequence number says so.
    end_packets: u64,
    used: AtomicU64,
    packets: AtomicU64,
    /// Somebody asked for more than was left: from then on there is nothing, or small packets would go on for long.
    ended: AtomicBool,
}

impl Volume {
    /// Bytes until the renewal is asked for, and until the end.
    pub fn new(renew: u64, end: u64) -> Self {
        Self {
            renew,
            end,
            end_packets: u64::MAX,
            used: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        }
    }

    /// Ends after so many packets too.
    #[must_use]
    pub fn with_packets(self, end_packets: u64) -> Self {
        Self { end_packets, ..self }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Uses up `bytes` for some packets, or says that so many are not left.
    fn spend(&self, packets: usize, bytes: usize) -> Result<(), DropReason> {
        let bytes = bytes as u64;
        let spent = |used: u64| used.checked_add(bytes).filter(|&used| used <= self.end && !self.is_spent());
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_err() {
            self.ended.store(true, Ordering::Relaxed);
            return Err(DropReason::KeyExpired);
        }
        self.packets.fetch_add(packets as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it is well on its way to its renewal.
    fn is_worn(&self) -> bool {
        let is_part = |used: &AtomicU64, whole: u64| used.load(Ordering::Relaxed) > whole / WORN_PART;
        is_part(&self.used, self.renew) || is_part(&self.packets, self.end_packets)
    }

    fn is_old(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.renew
    }

    fn is_spent(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
            || self.used.load(Ordering::Relaxed) >= self.end
            || self.packets.load(Ordering::Relaxed) >= self.end_packets
    }
}

/// The key to send with.
pub struct OutboundSa {
    /// Seals the packets.
    pub protection: Protection,
    /// By what the receiver finds its side: WireGuard's receiver index, ESP's SPI.
    pub receiver: u32,
    lifetime: Lifetime,
    volume: Option<Volume>,
    next: AtomicU64,
    renewal_asked: AtomicBool,
}

impl OutboundSa {
    /// An SA that has sent nothing yet.
    pub fn new(protection: impl Into<Protection>, receiver: u32, lifetime: Lifetime) -> Self {
        let protection = protection.into();
        let next = AtomicU64::new(protection.first_sequence());
        Self { protection, receiver, lifetime, volume: None, next, renewal_asked: AtomicBool::new(false) }
    }

    /// Counts its bytes, and sends so many and no more.
    #[must_use]
    pub fn with_volume(self, volume: Volume) -> Self {
        Self { volume: Some(volume), ..self }
    }

    /// Whether packets may be sent with it at `now`.
    pub fn is_usable(&self, now: Time) -> bool {
        now < self.lifetime.expires
            && self.next.load(Ordering::Relaxed) < self.lifetime.end_sequence
            && !self.volume.as_ref().is_some_and(Volume::is_spent)
    }

    /// What was sent with it, of an SA that counts that.
    pub fn volume(&self) -> Option<&Volume> {
        self.volume.as_ref()
    }

    /// Counts packets and their bytes before they are sent, or says that so many may not be.
    pub fn spend(&self, packets: usize, bytes: usize) -> Result<(), DropReason> {
        self.volume.as_ref().map_or(Ok(()), |volume| volume.spend(packets, bytes))
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

    /// Whether a good part of what may be sent with it was.
    pub fn is_worn(&self) -> bool {
        self.next.load(Ordering::Relaxed) > WORN_PACKETS.min(self.lifetime.renew_sequence / WORN_PART)
            || self.volume.as_ref().is_some_and(Volume::is_worn)
    }

    /// Whether it is time to ask for a new key; true only once.
    #[inline]
    pub fn wants_renewal(&self, now: Time) -> bool {
        let due = self.lifetime.renew.is_some_and(|renew| now >= renew)
            || self.next.load(Ordering::Relaxed) > self.lifetime.renew_sequence
            || self.volume.as_ref().is_some_and(Volume::is_old);
        due && !self.renewal_asked.swap(true, Ordering::Relaxed)
    }
}

/// The key to receive with.
pub struct InboundSa {
    /// Opens the packets.
    pub protection: Protection,
    /// Our own index or SPI, by which packets find this SA.
    pub index: u32,
    lifetime: Lifetime,
    volume: Option<Volume>,
    window: Mutex<ReplayWindow>,
    renewal_asked: AtomicBool,
    unconfirmed: AtomicBool,
}

impl InboundSa {
    /// An SA that has received nothing yet.
    ///
    /// `unconfirmed`: the other side has not yet shown that it has the keys, so nothing may be sent with their twin.
    pub fn new(protection: impl Into<Protection>, index: u32, lifetime: Lifetime, unconfirmed: bool) -> Self {
        Self {
            protection: protection.into(),
            index,
            lifetime,
            volume: None,
            window: Mutex::new(ReplayWindow::new(replay::WIREGUARD)),
            renewal_asked: AtomicBool::new(false),
            unconfirmed: AtomicBool::new(unconfirmed),
        }
    }

    /// Counts its bytes, and receives so many and no more.
    #[must_use]
    pub fn with_volume(self, volume: Volume) -> Self {
        Self { volume: Some(volume), ..self }
    }

    /// Takes another window than WireGuard's.
    #[must_use]
    pub fn with_window(self, size: u64) -> Self {
        Self { window: Mutex::new(ReplayWindow::new(size)), ..self }
    }

    /// Whether packets may still be received with it at `now`.
    #[inline]
    pub fn check_age(&self, now: Time) -> Result<(), DropReason> {
        let expired = now >= self.lifetime.expires || self.volume.as_ref().is_some_and(Volume::is_spent);
        if expired { Err(DropReason::KeyExpired) } else { Ok(()) }
    }

    /// What was received with it, of an SA that counts that.
    pub fn volume(&self) -> Option<&Volume> {
        self.volume.as_ref()
    }

    /// Counts authentic packets and their bytes; those that came together may go beyond the end together.
    #[inline]
    pub fn spend(&self, packets: usize, bytes: usize) {
        if let Some(volume) = &self.volume {
            volume.packets.fetch_add(packets as u64, Ordering::Relaxed);
            volume.used.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Whether a good part of what may be received with it was.
    pub fn is_worn(&self) -> bool {
        let is_worn = |volume: &Volume| volume.is_worn() || volume.packets() > WORN_PACKETS;
        self.volume.as_ref().is_some_and(is_worn)
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

    /// Whether an authentic packet has arrived, or need not be waited for.
    pub fn is_confirmed(&self) -> bool {
        !self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Whether it is time to ask for a new key; true only once.
    #[inline]
    pub fn wants_renewal(&self, now: Time) -> bool {
        let due = self.lifetime.renew.is_some_and(|renew| now >= renew)
            || self.volume.as_ref().is_some_and(Volume::is_old);
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
    fn bytes_are_spent_up_to_the_end_and_renewal_is_asked_for_before() {
        let (sa, now) = (sa(100).with_volume(Volume::new(50, 100)), Time::from_nanoseconds(1));
        assert_eq!(sa.spend(1, 50), Ok(()));
        assert!(!sa.wants_renewal(now));
        assert_eq!((sa.spend(1, 40), sa.wants_renewal(now)), (Ok(()), true));
        assert!(sa.is_usable(now));
        assert_eq!(sa.spend(1, 11), Err(DropReason::KeyExpired));
        assert!(!sa.is_usable(now), "what was refused once is the end");
        assert_eq!(sa.spend(1, 1), Err(DropReason::KeyExpired));
        assert_eq!(sa.volume().map(|volume| (volume.packets(), volume.bytes())), Some((2, 90)));
    }

    /// The other side may let a key carry less than we do, and replaces it when it has.
    #[test]
    fn a_key_is_worn_by_many_packets_whatever_it_may_carry() {
        let without_limit = || Volume::new(u64::MAX, u64::MAX);
        let lifetime =
            Lifetime { renew: None, renew_sequence: u64::MAX, expires: EXPIRES, end_sequence: u64::MAX };
        let key = || none::None.load(Cipher::ChaCha20Poly1305, &[0; 32]).expect("none takes any key");
        let (inbound, outbound) = (
            InboundSa::new(key(), 7, lifetime, false).with_volume(without_limit()),
            OutboundSa::new(key(), 7, lifetime).with_volume(without_limit()),
        );
        let now = Time::from_nanoseconds(1);
        for (packets, is_worn) in [(1000, false), (WORN_PACKETS, true)] {
            inbound.spend(packets as usize, 100);
            outbound.assign(packets as usize, now).expect("there are numbers left");
            assert_eq!([inbound.is_worn(), outbound.is_worn()], [is_worn; 2], "{packets}");
        }
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
