//! What may happen so often in a time, as OpenVPN counts it (`connect-freq`): a period begins with the first event after
//! the last period.

use crate::Time;
use std::time::Duration;

/// So many in this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub most: u32,
    /// In which time.
    pub period: Duration,
}

/// Counts the events of a period.
pub(super) struct Frequency {
    rate: Rate,
    since: Option<Time>,
    count: u32,
}

impl Frequency {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, since: None, count: 0 }
    }

    /// Counts an event, unless the period has had all of its.
    pub(super) fn take(&mut self, now: Time) -> bool {
        if self.since.is_none_or(|since| now - since >= self.rate.period) {
            (self.since, self.count) = (Some(now), 0);
        }
        let is_left = self.count < self.rate.most;
        self.count += u32::from(is_left);
        is_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_period_has_its_number() {
        let at = |seconds| Time::from_nanoseconds(1) + Duration::from_secs(seconds);
        let mut frequency = Frequency::new(Rate { most: 2, period: Duration::from_secs(10) });
        let taken = [5, 6, 7, 14, 15, 24, 25, 26, 40].map(|seconds| frequency.take(at(seconds)));
        assert_eq!(taken, [true, true, false, false, true, true, true, true, true]);
    }
}
