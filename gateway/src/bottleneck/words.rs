//! Numbers as people read them.

/// A part in percent.
pub(super) fn percent(part: f64) -> String {
    format!("{:.0}%", 100.0 * part)
}

/// A rate with the prefix that leaves one to three digits before the point.
pub(super) fn rate(number: f64, unit: &str) -> String {
    let (number, prefix) = match number {
        _ if number >= 1e9 => (number / 1e9, "G"),
        _ if number >= 1e6 => (number / 1e6, "M"),
        _ if number >= 1e3 => (number / 1e3, "k"),
        _ => return format!("{number:.0} {unit}"),
    };
    let digits = usize::from(number < 10.0);
    format!("{number:.digits$} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits() {
        let read = |number| rate(number, "bit/s");
        assert_eq!([0.0, 999.4].map(read), ["0 bit/s", "999 bit/s"]);
        assert_eq!([1234.0, 12_345_678.0, 9.96e9].map(read), ["1.2 kbit/s", "12 Mbit/s", "10.0 Gbit/s"]);
        assert_eq!(percent(0.416), "42%");
    }
}
