//! Numbers, medians and ratios, and the machine that they were measured on.

use serde::Serialize;

/// The median of some numbers; not a number if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

/// Where it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor.
    pub processor: String,
    /// How many of them.
    pub cores: usize,
    /// The kernel.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find(|line| line.starts_with(name))?;
            Some(line.split(':').nth(1)?.trim().to_owned())
        };
        let model = field("model name").or_else(|| field("CPU part")).unwrap_or_else(|| "unknown".to_owned());
        let numbers = [field("cpu family"), field("model\t")].map(Option::unwrap_or_default);
        let uname = rustix::system::uname();
        Self {
            processor: format!("{model} (family {}, model {})", numbers[0], numbers[1]),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: uname.release().to_string_lossy().into_owned(),
        }
    }
}

/// A number of people's size: three digits that count.
pub fn short(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Lines up columns: words left, the others right.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let columns = head.len();
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .chain([head[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let mut text = line(head.to_vec()) + &line(dashes.iter().map(String::as_str).collect());
    text.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_nothing() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        assert_eq!([0.123_4, 5.0, 12.34, 345.6].map(short), ["0.12", "5.00", "12.3", "346"]);
    }
}
