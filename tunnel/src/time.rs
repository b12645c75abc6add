//! Time as protocols see it: handed in by the caller, never read.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A moment on a clock that never goes back, in nanoseconds since a start that only the clock's owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(u64);

impl Time {
    /// The moment `nanoseconds` after the clock's start; a clock starts at 1, since 0 stands for "never".
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the clock's start.
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

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The clock that never goes back; timers run on it.
    pub monotonic: Time,
    /// Time since 1970; it may jump, and only timestamps for others are made from it.
    pub wall: Duration,
}

/// A moment that may be "never", shared between threads.
#[derive(Default)]
pub struct AtomicTime(AtomicU64);

impl AtomicTime {
    /// The moment, or `None` for never.
    #[inline]
    pub fn load(&self) -> Option<Time> {
        match self.0.load(Ordering::SeqCst) {
            0 => None,
            nanoseconds => Some(Time(nanoseconds)),
        }
    }

    /// Sets the moment.
    #[inline]
    pub fn store(&self, time: Time) {
        self.0.store(time.0, Ordering::SeqCst);
    }

    /// Sets it to "never"; written only when it is not so already, to leave the cache line shared.
    #[inline]
    pub fn clear(&self) {
        if self.0.load(Ordering::Relaxed) != 0 {
            self.0.store(0, Ordering::SeqCst);
        }
    }
}
