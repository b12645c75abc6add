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

/// A table as VyOS prints them: a head, a row of dashes, columns two spaces apart; numbers stand right, words left.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let right: Vec<bool> = (0..head.len()).map(|column| is_of_numbers(column, rows)).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = line(&head) + &line(&dashes);
    text.extend(rows.iter().map(|row| line(row)));
    text
}

/// Whether a column holds numbers, which may have units behind them; a dash stands for one that there is not.
fn is_of_numbers(column: usize, rows: &[Vec<String>]) -> bool {
    let cells = || rows.iter().map(|row| row[column].as_str()).filter(|cell| !cell.is_empty());
    let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit());
    cells().any(is_number) && cells().all(|cell| cell == "-" || is_number(cell))
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

    #[test]
    fn numbers_stand_right_and_words_left() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["bad-tag", "7", "1.25x"]), row(["x", "1234", "-"])];
        assert_eq!(
            table(&["Reason", "Count", ""], &rows),
            "Reason   Count\n-------  -----  -----\nbad-tag      7  1.25x\nx         1234      -\n"
        );
    }
}
