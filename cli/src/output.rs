//! Output and exit status of the commands that ask a daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The exit status if a peer or a tunnel is down that should be up. A command that fails exits with 2.
pub(crate) const NOT_UP: u8 = 1;

/// A number of bytes in the unit that leaves one to four digits.
pub(crate) fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.2} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.2} PiB")
}

/// A text of a peer or another machine, without characters that a terminal obeys.
pub(crate) fn printable(text: &str) -> String {
    text.replace(char::is_control, "?")
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// How long ago a moment since 1970 was.
pub(crate) fn ago(at: u64) -> String {
    let seconds = now().saturating_sub(at);
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count != 0);
    let shown = |parts: &[(u64, &str)]| {
        parts.iter().map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>()
    };
    first.map_or_else(|| "now".to_owned(), |first| shown(&parts[first..]).concat() + " ago")
}

/// A moment in seconds since 1970, as RFC 3339 writes it, in UTC.
pub(crate) fn timestamp(at: u64) -> String {
    let (days, seconds) = (at / 86_400, at % 86_400);
    // Years begin in March here, so that a leap day is the last day of one; an era is 400 of them
    // (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The same of a moment since 1970, to the microsecond.
pub(crate) fn timestamp_micros(at: Duration) -> String {
    let whole = timestamp(at.as_secs());
    format!("{}.{:06}Z", whole.trim_end_matches('Z'), at.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_in_utc() {
        // From `date -u -d @SECONDS +%FT%TZ`.
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_795_409_999), "2026-11-23T04:59:59Z");
        assert_eq!(timestamp(4_107_542_399), "2100-02-28T23:59:59Z");
    }

    #[test]
    fn sizes_and_times_are_rounded_for_people() {
        assert_eq!([0, 1023, 1 << 20].map(bytes), ["0 B", "1023 B", "1.00 MiB"]);
        let now = now();
        assert_eq!(ago(now + 60), "now");
        // Seconds may pass between the two readings of the clock.
        assert!(ago(now - 90_000).starts_with("1d1h"), "{}", ago(now - 90_000));
    }
}
