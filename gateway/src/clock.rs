//! The one place where clocks are read.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tunnel::{Now, Time};

/// Counts from a moment before anything happened.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Default for Clock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock {
    /// The moment on the clock that never goes back.
    #[inline]
    pub fn monotonic(&self) -> Time {
        // Times before the start of a timeout must be expressible, and zero stands for never.
        Time::from_nanoseconds(1_000_000_000 + self.0.elapsed().as_nanos() as u64)
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { monotonic: self.monotonic(), wall }
    }
}
