//! What the data path tells the protocol about a peer: three moments, and whether anybody watches them.
//!
//! A timer of the protocol is armed by almost every burst and almost never fires. So the data path only notes when
//! things happened, and the protocol looks at the notes when a timer could have fired. The data path wakes it only if
//! it would not look in time by itself: then [`sent_data`](Activity::sent_data) and [`received`](Activity::received)
//! return true, and the caller passes that on to [`Device::handle_activity`](super::Device::handle_activity).

use crate::Time;
use crate::time::AtomicTime;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The persistent keepalive counts in seconds: its note need not be exact, and a cache line shared by two workers is
/// best left alone.
const TRAVERSAL_GRAIN: Duration = Duration::from_millis(100);

/// The notes of one peer.
#[derive(Default)]
pub struct Activity {
    /// Since when data is sent and nothing is heard.
    waiting_since: AtomicTime,
    /// Since when data was received and nothing is sent.
    owing_since: AtomicTime,
    /// When anything last went in either direction, within [`TRAVERSAL_GRAIN`].
    traversed: AtomicTime,
    /// Whether the protocol will look here before a timer armed now could run out.
    watched: AtomicBool,
}

impl Activity {
    /// Notes that a burst with data was sent; whether the protocol must be told.
    #[inline]
    pub fn sent_data(&self, now: Time) -> bool {
        self.sent(now);
        if self.waiting_since.load().is_some() {
            return false;
        }
        self.waiting_since.store(now);
        self.must_tell()
    }

    /// Notes that something without data was sent, a keepalive or a handshake message: no answer is expected.
    #[inline]
    pub fn sent(&self, now: Time) {
        self.owing_since.clear();
        self.traverse(now);
    }

    /// Notes that authentic packets were received, `with_data` or only keepalives; whether the protocol must be told.
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

    /// Says whether the protocol will look at the notes by itself. Whoever says no looks at them once more afterwards:
    /// one may have been written in between, by a worker that still saw a yes.
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

    /// Whether a timer that the data path arms is running.
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
