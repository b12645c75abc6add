//! The end of sessions that last too long, or carry too little: `session-timeout` and `inactive`.

use std::time::Duration;
use tunnel::Time;

/// How long sessions last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The longest time in which a session carries fewer bytes of data (`inactive`).
    pub inactive: Option<(Duration, u64)>,
    /// The time after which a session ends (`session-timeout`).
    pub session: Option<Duration>,
}

impl Limits {
    /// With what the server has pushed in their place. A pushed time of 0 is none.
    #[must_use]
    pub fn replaced_by<'a>(self, options: impl IntoIterator<Item = &'a str>) -> Self {
        let mut limits = self;
        for option in options {
            let mut words = option.split_ascii_whitespace();
            let name = words.next().unwrap_or_default();
            let Some(seconds) = words.next().and_then(|word| word.parse::<u32>().ok()) else { continue };
            let time = (seconds != 0).then(|| Duration::from_secs(seconds.into()));
            match name {
                "inactive" => {
                    let bytes = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                    limits.inactive = time.map(|time| (time, bytes));
                }
                "session-timeout" => limits.session = time,
                _ => {}
            }
        }
        limits
    }
}

/// Why a session ends, in OpenVPN's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Inactive,
    TimedOut,
}

impl Over {
    pub(super) fn signal(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::TimedOut => "session-timeout",
        }
    }
}

/// A session, with its limits.
pub(super) struct Watch {
    limits: Limits,
    began: Time,
    /// Since when fewer bytes were carried than count as activity, and how many had been carried then.
    quiet: (Time, u64),
}

impl Watch {
    pub(super) fn new(now: Time, limits: Limits) -> Self {
        Self { limits, began: now, quiet: (now, 0) }
    }

    /// Whether there is anything to be looked at.
    pub(super) fn is_needed(&self) -> bool {
        self.limits != Limits::default()
    }

    /// Looks at the session, which has carried so many bytes of data.
    pub(super) fn look(&mut self, now: Time, bytes: u64) -> Option<Over> {
        if let Some((time, least)) = self.limits.inactive {
            let (since, before) = self.quiet;
            if bytes - before >= least.max(1) {
                self.quiet = (now, bytes);
            } else if now - since >= time {
                return Some(Over::Inactive);
            }
        }
        self.limits.session.is_some_and(|time| now - self.began >= time).then_some(Over::TimedOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanoseconds(1) + Duration::from_secs(seconds)
    }

    fn ends(limits: Limits, bytes: impl Fn(u64) -> u64) -> Option<(u64, Over)> {
        let mut watch = Watch::new(at(0), limits);
        (0..1000).find_map(|second| Some((second, watch.look(at(second), bytes(second))?)))
    }

    #[test]
    fn a_session_without_data_ends_and_pings_are_no_data() {
        let limits = Limits { inactive: Some((Duration::from_secs(60), 0)), session: None };
        assert_eq!(ends(limits, |_| 0), Some((60, Over::Inactive)));
        assert_eq!(ends(limits, |second| second.min(100)), Some((160, Over::Inactive)));
        assert_eq!(ends(limits, |second| second / 59), None);
    }

    #[test]
    fn a_session_with_little_data_ends() {
        let limits = Limits { inactive: Some((Duration::from_secs(60), 1000)), session: None };
        assert_eq!(ends(limits, |second| second * 16), Some((60, Over::Inactive)));
        assert_eq!(ends(limits, |second| second * 17), None);
    }

    #[test]
    fn a_session_ends_after_its_time() {
        let limits = Limits { inactive: None, session: Some(Duration::from_secs(90)) };
        assert_eq!(ends(limits, |second| second * 1000), Some((90, Over::TimedOut)));
        assert_eq!(ends(Limits::default(), |_| 0), None);
    }

    #[test]
    fn the_server_replaces_each_limit_alone() {
        let own =
            Limits { inactive: Some((Duration::from_secs(60), 7)), session: Some(Duration::from_secs(9)) };
        let replaced = own.replaced_by(["route 10.0.0.0 255.0.0.0", "inactive 30 5000"]);
        assert_eq!(replaced, Limits { inactive: Some((Duration::from_secs(30), 5000)), ..own });
        assert_eq!(own.replaced_by(["session-timeout 0", "inactive x"]), Limits { session: None, ..own });
    }
}
