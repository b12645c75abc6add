//! The clocks of the protocol.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tunnel::{Now, Time};

/// Counts from a moment before anything happened, and goes on while the machine sleeps: keys age then, too.
#[derive(Clone, Copy)]
pub struct Clock;

impl Clock {
    /// The moment on the clock that never goes back.
    #[inline]
    pub fn monotonic(&self) -> Time {
        let time = clock_gettime(ClockId::Boottime);
        // Times before the start of a timeout must be expressible, and zero stands for never.
        Time::from_nanoseconds(1_000_000_000 * (1_000 + time.tv_sec as u64) + time.tv_nsec as u64)
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { monotonic: self.monotonic(), wall }
    }
}
