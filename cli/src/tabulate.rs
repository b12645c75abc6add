//! Tables as VyOS prints them: columns to the left, two spaces between them, a line of dashes below the heads.

use std::fmt::Write;
/// A table.
pub(crate) fn tabulate(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        // Heads have room, as in python-tabulate, which scripts that cut by column rely on.
        cells.chain(head.get(column).map(|cell| cell.chars().count() + 2)).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let line = |cells: &Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    [&head, &dashes].into_iter().chain(rows).map(line).collect()
}

/// Lines of cells in columns of these widths, of which one is wider only where a cell is.
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

/// Whole units, cut off, not rounded.
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
