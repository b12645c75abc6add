//! The activity of a peer, as noted by the data path, for pings and for noticing that the peer is gone.

use crate::Time;
use crate::time::AtomicTime;
use std::time::Duration;

/// The precision of the notes, whose intervals are in seconds: rare writes keep the cache line shared by workers.
const GRAIN: Duration = Duration::from_millis(100);

/// When packets were last sent to a peer and received from it.
#[derive(Default)]
pub struct Activity {
    sent: AtomicTime,
    received: AtomicTime,
}

impl Activity {
    /// Notes that packets of any kind were sent.
    #[inline]
    pub fn sent(&self, now: Time) {
        note(&self.sent, now);
    }

    /// Notes that authentic packets were received.
    #[inline]
    pub fn received(&self, now: Time) {
        note(&self.received, now);
    }

    /// When a ping is due, if one is to be sent after `interval` without a packet.
    pub fn ping_due(&self, interval: Option<Duration>) -> Option<Time> {
        Some(self.sent.load()? + interval?)
    }

    /// When the peer is gone, if it is after `interval` without a packet.
    pub fn gone(&self, interval: Option<Duration>) -> Option<Time> {
        Some(self.received.load()? + interval?)
    }
}

#[inline]
fn note(time: &AtomicTime, now: Time) {
    if time.load().is_none_or(|last| now - last >= GRAIN) {
        time.store(now);
    }
}
