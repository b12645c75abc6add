//! Tables as VyOS prints them: left-aligned columns, two spaces between them, a line of dashes below the heads.

use ::bench::report::lay_out;
use std::fmt::Write;

/// A table in the format of python-tabulate, as VyOS prints it: scripts cut these tables by column.
pub(crate) fn tabulate(head: &[&str], rows: &[Vec<String>]) -> String {
    lay_out(head, rows, 2, |_| false)
}

/// Lines of cells in columns of these widths; a longer cell widens its column.
pub(crate) fn columns<const N: usize>(indent: &str, widths: [usize; N], lines: &[[&str; N]]) -> String {
    let longest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> =
        widths.iter().enumerate().map(|(at, &width)| width.max(longest(at).unwrap_or_default())).collect();
    let line = |cells: &[&str; N]| {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        indent.to_owned() + padded.collect::<Vec<_>>().join(" ").trim_end() + "\n"
    };
    lines.iter().map(line).collect()
}

/// A time as `1h2m3s`.
pub(crate) fn duration(seconds: u64) -> String {
    let parts = [(604_800, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut rest = seconds;
    let mut text = String::new();
    for (length, unit) in parts {
        let count = rest / length;
        rest %= length;
        if count != 0 {
            let _ = write!(text, "{count}{unit}");
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// A number of bytes as `230K`.
pub(crate) fn short_bytes(count: u64) -> String {
    short(count, 1024, "B")
}

/// A number of packets as `12K`.
pub(crate) fn short_count(count: u64) -> String {
    short(count, 1000, "")
}

/// A number in whole units, rounded down.
fn short(count: u64, step: u64, one: &str) -> String {
    let (mut value, mut unit) = (count, one);
    for larger in ["K", "M", "G", "T", "P"] {
        if value < step {
            break;
        }
        (value, unit) = (value / step, larger);
    }
    format!("{value}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_as_wide_as_its_cells_and_a_little_wider_than_its_heads() {
        let rows = [vec!["a".to_owned(), "long cell".to_owned()], vec!["bcd".to_owned(), String::new()]];
        let table = tabulate(&["X", "Head"], &rows);
        assert_eq!(table, "X    Head\n---  ---------\na    long cell\nbcd\n");
    }

    #[test]
    fn columns_are_wider_only_where_a_cell_is() {
        assert_eq!(columns("  ", [3, 1], &[["a", "b"], ["c", "d"]]), "  a   b\n  c   d\n");
        assert_eq!(columns("", [3, 1], &[["a", "b"], ["long", "d"]]), "a    b\nlong d\n");
    }

    #[test]
    fn times_and_sizes_are_short() {
        assert_eq!(
            [0, 59, 3723, 90_000, 700_000].map(duration),
            ["0s", "59s", "1h2m3s", "1d1h", "1w1d2h26m40s"]
        );
        assert_eq!([0, 1023, 235_520, 7 << 20].map(short_bytes), ["0B", "1023B", "230K", "7M"]);
        assert_eq!([0, 999, 12_345].map(short_count), ["0", "999", "12K"]);
        assert_eq!(short_bytes(u64::MAX), "16383P");
    }
}
