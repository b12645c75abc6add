//! Security associations: the result of a key exchange for the data path, one for each direction.
//!
//! Workers share both SAs, which are immutable except for their counters. So a packet in flight is completed under
//! its SA while a newer SA is already in use.

use crate::Time;
use crate::protection::Protection;
use crate::replay::{self, Moving, ReplayWindow, SharedWindow};
use packet::DropReason;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Identifies a peer for the lifetime of the protocol instance that created it; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(u64);

impl PeerId {
    /// Creates an ID that the protocol has not assigned yet.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number that it was made from.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The times at which a key should be, and must be, replaced.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// From this time on, use of the key requests a new one; `None` leaves that to the peer.
    pub renew: Option<Time>,
    /// The same as a sequence number, for both sides.
    pub renew_sequence: u64,
    /// From this time on, the key is not used.
    pub expires: Time,
    /// The first sequence number that is not used.
    pub end_sequence: u64,
}

/// A key counts as worn after this fraction of its limit: the peer may rekey long before the local limit.
const WORN_PART: u64 = 4;
/// A key also counts as worn after this number of packets, as the peer's limits may be lower than the local ones. To
/// send so many packets costs the peer more than a new key costs the local side.
const WORN_PACKETS: u64 = 16_384;

/// The bytes protected by a key, and their limits (RFC 4301 section 4.4.2.1).
pub struct Volume {
    /// From this byte on, use of the key requests a new one.
    renew: u64,
    /// The first byte that is not sent or received.
    end: u64,
    /// The first packet that is not sent or received.
    end_packets: u64,
    used: AtomicU64,
    packets: AtomicU64,
}

impl Volume {
    /// Creates limits in bytes: for the renewal, and for the end.
    pub fn new(renew: u64, end: u64) -> Self {
        Self { renew, end, end_packets: u64::MAX, used: AtomicU64::new(0), packets: AtomicU64::new(0) }
    }

    /// Adds a limit in packets.
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

    /// Counts packets and their bytes, or refuses if that exceeds a limit. Then the key has ended: what is left of the limit counts as
    /// used, or small packets could still pass for long.
    fn spend(&self, packets: usize, bytes: usize) -> Result<(), DropReason> {
        take(&self.used, bytes as u64, self.end)
            .and_then(|_| take(&self.packets, packets as u64, self.end_packets))
            .map(|_| ())
            .ok_or(DropReason::KeyExpired)
    }

    /// Whether the key is worn.
    fn is_worn(&self) -> bool {
        let is_part = |used: &AtomicU64, whole: u64| used.load(Ordering::Relaxed) > whole / WORN_PART;
        is_part(&self.used, self.renew) || is_part(&self.packets, self.end_packets)
    }

    fn is_old(&self) -> bool {
        self.used.load(Ordering::Relaxed) > self.renew
    }

    fn is_spent(&self) -> bool {
        self.used.load(Ordering::Relaxed) >= self.end
            || self.packets.load(Ordering::Relaxed) >= self.end_packets
    }
}

/// Adds to a counter, and returns what it was before; `None` if that exceeds `end`, where the counter then stays.
fn take(counter: &AtomicU64, count: u64, end: u64) -> Option<u64> {
    // Not a plain addition: what is refused must not advance the counter towards an overflow.
    let after = |used: u64| used.checked_add(count).filter(|&used| used <= end);
    let taken = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after).ok();
    if taken.is_none() {
        counter.fetch_max(end, Ordering::Relaxed);
    }
    taken
}

/// An SA to send with.
pub struct OutboundSa {
    /// Seals the packets.
    pub protection: Protection,
    /// The key of the receiver's lookup: WireGuard's receiver index, or the SPI of ESP.
    pub receiver: u32,
    lifetime: Lifetime,
    volume: Option<Volume>,
    next: AtomicU64,
    has_one_user: AtomicBool,
    renewal_asked: AtomicBool,
}

impl OutboundSa {
    /// Creates an SA that has sent nothing yet.
    pub fn new(protection: impl Into<Protection>, receiver: u32, lifetime: Lifetime) -> Self {
        let protection = protection.into();
        let next = AtomicU64::new(protection.first_sequence());
        let [has_one_user, renewal_asked] = [false; 2].map(AtomicBool::new);
        Self { protection, receiver, lifetime, volume: None, next, has_one_user, renewal_asked }
    }

    /// Sends packets from this sequence number on.
    #[must_use]
    pub fn starting_at(self, first: u64) -> Self {
        let first = first.max(self.protection.first_sequence());
        Self { next: AtomicU64::new(first), ..self }
    }

    /// The number of the next packet.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Says whether one thread alone sends with it from now on. It is said between the end of one thread's use and the start of another's:
    /// two threads that take numbers as if they were alone would take one twice.
    pub fn set_one_user(&self, has_one_user: bool) {
        self.has_one_user.store(has_one_user, Ordering::Release);
    }

    /// Adds a data limit.
    #[must_use]
    pub fn with_volume(self, volume: Volume) -> Self {
        Self { volume: Some(volume), ..self }
    }

    /// From this time on it is not used.
    pub fn expires(&self) -> Time {
        self.lifetime.expires
    }

    /// Whether the SA may be used to send at `now`.
    pub fn is_usable(&self, now: Time) -> bool {
        now < self.lifetime.expires
            && self.next.load(Ordering::Relaxed) < self.lifetime.end_sequence
            && !self.volume.as_ref().is_some_and(Volume::is_spent)
    }

    /// The data sent, if the SA has a data limit.
    pub fn volume(&self) -> Option<&Volume> {
        self.volume.as_ref()
    }

    /// Counts packets and bytes before they are sent, or refuses if that exceeds the limit.
    pub fn spend(&self, packets: usize, bytes: usize) -> Result<(), DropReason> {
        self.volume.as_ref().map_or(Ok(()), |volume| volume.spend(packets, bytes))
    }

    /// Assigns `count` consecutive sequence numbers; no number is assigned twice. An SA without enough of them has ended: the few that are
    /// left are not used, or small bursts would pass and large ones not.
    #[inline]
    pub fn assign(&self, count: usize, now: Time) -> Result<Range<u64>, DropReason> {
        if now >= self.lifetime.expires {
            return Err(DropReason::KeyExpired);
        }
        let (count, end) = (count as u64, self.lifetime.end_sequence);
        let first = if self.has_one_user.load(Ordering::Acquire) {
            let next = self.next.load(Ordering::Relaxed);
            let after = next.checked_add(count).filter(|&after| after <= end);
            self.next.store(after.unwrap_or(next.max(end)), Ordering::Relaxed);
            after.map(|_| next)
        } else {
            take(&self.next, count, end)
        };
        first.map(|first| first..first + count).ok_or(DropReason::CounterExhausted)
    }

    /// Whether a good part of its limits is used up.
    pub fn is_worn(&self) -> bool {
        self.next.load(Ordering::Relaxed) > WORN_PACKETS.min(self.lifetime.renew_sequence / WORN_PART)
            || self.volume.as_ref().is_some_and(Volume::is_worn)
    }

    /// Whether its age alone is a reason to request a new key.
    #[inline]
    pub fn is_old(&self, now: Time) -> bool {
        self.lifetime.renew.is_some_and(|renew| now >= renew)
    }

    /// Whether to request a new key; returns true only once.
    #[inline]
    pub fn wants_renewal(&self, now: Time) -> bool {
        let due = self.is_old(now)
            || self.next.load(Ordering::Relaxed) > self.lifetime.renew_sequence
            || self.volume.as_ref().is_some_and(Volume::is_old);
        due && !self.renewal_asked.swap(true, Ordering::Relaxed)
    }
}

/// An SA to receive with.
pub struct InboundSa {
    /// Opens the packets.
    pub protection: Protection,
    /// The local index or SPI, which received packets are looked up by.
    pub index: u32,
    lifetime: Lifetime,
    volume: Option<Volume>,
    window: SharedWindow,
    has_one_user: AtomicBool,
    renewal_asked: AtomicBool,
    unconfirmed: AtomicBool,
}

impl InboundSa {
    /// Creates an SA that has received nothing yet.
    ///
    /// With `unconfirmed`, the peer has not proven yet that it has the keys: the outbound SA must not be used before
    /// the first packet arrives.
    pub fn new(protection: impl Into<Protection>, index: u32, lifetime: Lifetime, unconfirmed: bool) -> Self {
        Self {
            protection: protection.into(),
            index,
            lifetime,
            volume: None,
            window: SharedWindow::new(ReplayWindow::new(replay::WIREGUARD)),
            has_one_user: AtomicBool::new(false),
            renewal_asked: AtomicBool::new(false),
            unconfirmed: AtomicBool::new(unconfirmed),
        }
    }

    /// Adds a data limit.
    #[must_use]
    pub fn with_volume(self, volume: Volume) -> Self {
        Self { volume: Some(volume), ..self }
    }

    /// Takes packets from this sequence number on.
    #[must_use]
    pub fn starting_at(self, first: u64) -> Self {
        Self { window: SharedWindow::new(self.window.into_inner().starting_at(first)), ..self }
    }

    /// Replaces the window of WireGuard by one of this size.
    #[must_use]
    pub fn with_window(self, size: u64) -> Self {
        Self { window: SharedWindow::new(ReplayWindow::new(size)), ..self }
    }

    /// Whether the SA may be used to receive at `now`.
    #[inline]
    pub fn check_age(&self, now: Time) -> Result<(), DropReason> {
        let expired = now >= self.lifetime.expires || self.volume.as_ref().is_some_and(Volume::is_spent);
        if expired { Err(DropReason::KeyExpired) } else { Ok(()) }
    }

    /// The data received, if the SA has a data limit.
    pub fn volume(&self) -> Option<&Volume> {
        self.volume.as_ref()
    }

    /// Counts authentic packets and bytes; the last batch may exceed the limit.
    #[inline]
    pub fn spend(&self, packets: usize, bytes: usize) {
        if let Some(volume) = &self.volume {
            volume.packets.fetch_add(packets as u64, Ordering::Relaxed);
            volume.used.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// Whether a good part of its limits is used up.
    pub fn is_worn(&self) -> bool {
        let is_worn = |volume: &Volume| volume.is_worn() || volume.packets() > WORN_PACKETS;
        self.volume.as_ref().is_some_and(is_worn)
    }

    /// The first sequence number that is not accepted.
    #[inline]
    pub fn end_sequence(&self) -> u64 {
        self.lifetime.end_sequence
    }

    /// The replay window as it is now.
    #[inline]
    pub fn window(&self) -> &ReplayWindow {
        self.window.read()
    }

    /// Says whether one thread alone moves its window from now on; see [`OutboundSa::set_one_user`].
    pub fn set_one_user(&self, has_one_user: bool) {
        self.has_one_user.store(has_one_user, Ordering::Release);
    }

    /// The replay window, to be moved: locked once for an SA batch, unless one thread alone moves it.
    #[inline]
    pub fn moving_window(&self) -> Moving<'_> {
        if self.has_one_user.load(Ordering::Acquire) { self.window.alone() } else { self.window.lock() }
    }

    /// Notes an authentic packet; returns true only for the first packet of an unconfirmed SA.
    #[inline]
    pub fn confirm(&self) -> bool {
        self.unconfirmed.load(Ordering::Relaxed) && self.unconfirmed.swap(false, Ordering::Relaxed)
    }

    /// Whether the SA is confirmed by an authentic packet, or needs no confirmation.
    pub fn is_confirmed(&self) -> bool {
        !self.unconfirmed.load(Ordering::Relaxed)
    }

    /// Whether it was made before `other`. Only where all SAs have the same lifetime, as in WireGuard.
    pub fn is_older_than(&self, other: &OutboundSa) -> bool {
        self.lifetime.expires < other.lifetime.expires
    }

    /// Whether to request a new key; returns true only once.
    #[inline]
    pub fn wants_renewal(&self, now: Time) -> bool {
        let due = self.lifetime.renew.is_some_and(|renew| now >= renew)
            || self.volume.as_ref().is_some_and(Volume::is_old);
        due && !self.renewal_asked.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
