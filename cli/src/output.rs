//! Output and exit status of the commands that ask a daemon.

use std::time::{SystemTime, UNIX_EPOCH};

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

/// How long ago a moment since 1970 was.
pub(crate) fn ago(at: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = now.saturating_sub(at);
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count != 0);
    let shown = |parts: &[(u64, &str)]| {
        parts.iter().map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>()
    };
    first.map_or_else(|| "now".to_owned(), |first| shown(&parts[first..]).concat() + " ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_rounded_for_people() {
        assert_eq!([0, 1023, 1 << 20].map(bytes), ["0 B", "1023 B", "1.00 MiB"]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        assert_eq!(ago(now + 60), "now");
        // Seconds may pass between the two readings of the clock.
        assert!(ago(now - 90_000).starts_with("1d1h"), "{}", ago(now - 90_000));
    }
}
