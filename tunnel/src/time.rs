//! Time, which protocols get from the caller and never read from a clock.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A time on a monotonic clock, in nanoseconds since a start that only the owner of the clock knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(u64);

impl Time {
    /// The time `nanoseconds` after the start of the clock; a clock starts at 1, since 0 stands for "never".
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the start of the clock.
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration.as_nanos() as u64))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The time from `earlier` to here; zero if `earlier` is later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The time on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The monotonic clock, for timers.
    pub monotonic: Time,
    /// The time since 1970. It may jump; only timestamps for peers and reports are made from it.
    pub wall: Duration,
}

/// A time that may be "never", shared between threads.
#[derive(Default)]
pub struct AtomicTime(AtomicU64);

impl AtomicTime {
    /// The time, or `None` for never.
    #[inline]
    pub fn load(&self) -> Option<Time> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            nanoseconds => Some(Time(nanoseconds)),
        }
    }

    /// Sets the time.
    #[inline]
    pub fn store(&self, time: Time) {
        self.0.store(time.0, Ordering::SeqCst);
    }

    /// Sets it to "never". It is only written if it changes, to keep the cache line shared.
    #[inline]
    pub fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::SeqCst);
        }
    }
}
