//! The activity of a peer, as noted by the data path for the timers of the protocol.
//!
//! Almost every burst arms a timer of the protocol, and almost no timer fires. So the data path only notes when
//! packets were sent and received, and the protocol reads these notes when a timer could have fired. The data path
//! wakes the protocol only if it would not read them in time: then [`sent_data`](Activity::sent_data) and
//! [`received`](Activity::received) return true, and the caller calls
//! [`Device::handle_activity`](super::Device::handle_activity).

use crate::Time;
use crate::time::AtomicTime;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The precision of the note for the persistent keepalive, whose interval is in seconds: rare writes keep the cache
/// line shared by the workers.
const TRAVERSAL_GRAIN: Duration = Duration::from_millis(100);

/// The notes of one peer.
#[derive(Default)]
pub struct Activity {
    /// Since when data was sent without any packet received.
    waiting_since: AtomicTime,
    /// Since when data was received without any packet sent.
    owing_since: AtomicTime,
    /// When a packet was last sent or received, within [`TRAVERSAL_GRAIN`].
    traversed: AtomicTime,
    /// Whether the protocol will read the notes before a timer armed now could fire.
    watched: AtomicBool,
}

impl Activity {
    /// Notes that a burst with data was sent; returns whether the protocol must be woken.
    #[inline]
    pub fn sent_data(&self, now: Time) -> bool {
        self.sent(now);
        if self.waiting_since.load().is_some() {
            return false;
        }
        self.waiting_since.store(now);
        self.must_tell()
    }

    /// Notes that a packet without data was sent, a keepalive or a handshake message: no answer is expected.
    #[inline]
    pub fn sent(&self, now: Time) {
        self.owing_since.clear();
        self.traverse(now);
    }

    /// Notes that authentic packets were received, `with_data` or only keepalives; returns whether the protocol must
    /// be woken.
    #[inline]
    pub fn received(&self, now: Time, with_data: bool) -> bool {
        self.waiting_since.clear();
        self.traverse(now);
        if !with_data {
            return false;
        }
        if self.owing_since.load().is_some() {
            return false;
        }
        self.owing_since.store(now);
        self.must_tell()
    }

    #[inline]
    fn traverse(&self, now: Time) {
        if self.traversed.load().is_none_or(|last| now - last >= TRAVERSAL_GRAIN) {
            self.traversed.store(now);
        }
    }

    #[inline]
    fn must_tell(&self) -> bool {
        !self.watched.load(Ordering::SeqCst) && !self.watched.swap(true, Ordering::SeqCst)
    }

    /// Sets whether the protocol will read the notes by itself. After setting false, the caller must read them once
    /// more: a worker that still saw true may have written one in between.
    pub(super) fn watch(&self, watched: bool) {
        self.watched.store(watched, Ordering::SeqCst);
    }

    pub(super) fn waiting_since(&self) -> Option<Time> {
        self.waiting_since.load()
    }

    pub(super) fn stop_waiting(&self) {
        self.waiting_since.clear();
    }

    pub(super) fn owing_since(&self) -> Option<Time> {
        self.owing_since.load()
    }

    /// Whether a timer armed by the data path is running.
    pub(super) fn is_armed(&self) -> bool {
        self.waiting_since.load().is_some() || self.owing_since.load().is_some()
    }

    pub(super) fn traversed(&self) -> Option<Time> {
        self.traversed.load()
    }

    pub(super) fn reset(&self) {
        self.waiting_since.clear();
        self.owing_since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanoseconds(seconds * 1_000_000_000)
    }

    #[test]
    fn the_protocol_is_told_once_until_it_stops_watching() {
        let activity = Activity::default();
        assert!(activity.sent_data(at(1)));
        assert!(!activity.received(at(2), true));
        assert!(!activity.sent_data(at(3)));
        activity.watch(false);
        activity.reset();
        assert!(activity.received(at(4), true));
    }

    #[test]
    fn hearing_anything_ends_the_wait_and_sending_anything_the_debt() {
        let activity = Activity::default();
        activity.sent_data(at(1));
        activity.sent_data(at(2));
        assert_eq!(activity.waiting_since(), Some(at(1)));
        activity.received(at(3), false);
        assert_eq!((activity.waiting_since(), activity.owing_since()), (None, None));
        activity.received(at(4), true);
        assert_eq!(activity.owing_since(), Some(at(4)));
        activity.sent(at(5));
        assert_eq!((activity.waiting_since(), activity.owing_since()), (None, None));
    }
}
