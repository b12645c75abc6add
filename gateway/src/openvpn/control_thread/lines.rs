//! Lines of the log that unauthenticated sources cause.

use std::time::Duration;
use tunnel::Time;

/// One line in this time.
const UNAUTHENTICATED_LINES: Duration = Duration::from_secs(1);

/// Bounds the lines of the log that unauthenticated sources cause.
#[derive(Default)]
pub(super) struct Lines {
    last: Option<Time>,
    left_out: u64,
}

impl Lines {
    /// How many lines were left out before this one; `None` if this one is left out, too.
    pub(super) fn take(&mut self, now: Time) -> Option<u64> {
        if self.last.is_some_and(|last| now - last < UNAUTHENTICATED_LINES) {
            self.left_out += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unauthenticated_sources_cause_one_line_a_second() {
        let (mut lines, start) = (Lines::default(), Time::from_nanoseconds(1));
        let taken: Vec<Option<u64>> =
            (0..5).map(|step| lines.take(start + Duration::from_millis(step * 400))).collect();
        assert_eq!(taken, [Some(0), None, None, Some(2), None]);
    }
}
