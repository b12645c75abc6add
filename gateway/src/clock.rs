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
        #[cfg(test)]
        let time = tests::ahead(time);
        // Times before the start of a timeout must be expressible, and zero stands for never.
        Time::from_nanoseconds(1_000_000_000 * (1_000 + time.tv_sec as u64) + time.tv_nsec as u64)
    }

    /// Both clocks.
    pub fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { monotonic: self.monotonic(), wall }
    }
}

/// Seconds since this machine booted, also while it slept.
pub fn since_boot() -> u64 {
    clock_gettime(ClockId::Boottime).tv_sec as u64
}

/// A time in seconds since 1970 as text in UTC (RFC 3339).
pub fn utc(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut left) = (1970, day);
    while left >= 365 + u64::from(is_leap(year)) {
        left -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", left + 1)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustix::time::Timespec;
    use std::cell::Cell;

    thread_local! {
        /// So many seconds the clock of this thread is ahead.
        static AHEAD: Cell<i64> = const { Cell::new(0) };
    }

    pub(super) fn ahead(time: Timespec) -> Timespec {
        Timespec { tv_sec: time.tv_sec + AHEAD.get(), ..time }
    }

    /// Does something so many seconds later, as this thread sees it.
    pub(crate) fn later<T>(seconds: i64, act: impl FnOnce() -> T) -> T {
        let before = AHEAD.replace(seconds);
        let result = act();
        AHEAD.set(before);
        result
    }

    #[test]
    fn times_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
