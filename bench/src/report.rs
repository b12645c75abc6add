//! Common parts of reports: medians, number formats, tables, and the machine.

use crypto::engine::Engine;
use crypto::machine::Processor;
use serde::Serialize;
use std::sync::OnceLock;

/// The build of the program.
static BUILD: OnceLock<Build> = OnceLock::new();

/// The median; NaN for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

/// The model, and the numbers that tell it from others: of x86 its family and model, of ARM the implementer and part.
fn described(processor: &Processor) -> String {
    let (first, second) = processor.numbers;
    let model = if processor.model.is_empty() { "unknown" } else { &processor.model };
    match (processor.vendor.is_empty(), first) {
        (false, _) => format!("{model} (family {first}, model {second})"),
        (true, 0) => model.to_owned(),
        (true, _) => format!("{model} (implementer {first:#04x}, part {second:#05x})"),
    }
}

/// The source and target of a build.
#[derive(Clone, Debug, Serialize)]
pub struct Build {
    /// The version.
    pub version: String,
    /// The Git commit.
    pub commit: String,
    /// The target triple.
    pub target: String,
}

impl Build {
    /// Sets the build for all reports of this process.
    pub fn note(commit: &str, target: &str) {
        let (commit, target) = (commit.to_owned(), target.to_owned());
        BUILD.get_or_init(|| Self { version: env!("CARGO_PKG_VERSION").to_owned(), commit, target });
    }

    fn noted() -> Self {
        let unknown = || "unknown".to_owned();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        BUILD.get().cloned().unwrap_or_else(|| Self { version, commit: unknown(), target: unknown() })
    }
}

/// A crypto engine and its version.
#[derive(Clone, Debug, Serialize)]
pub struct EngineUsed {
    /// The name of the engine.
    pub name: String,
    /// The version of its library.
    pub version: String,
}

impl EngineUsed {
    /// The name and version of `engine`.
    pub fn of(engine: &dyn Engine) -> Self {
        Self { name: engine.name().to_owned(), version: engine.version() }
    }
}

/// The machine and build of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor model.
    pub processor: String,
    /// Number of cores.
    pub cores: usize,
    /// The kernel release.
    pub kernel: String,
    /// The build of this program.
    pub program: Build,
    /// The available crypto engines.
    pub engines: Vec<EngineUsed>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Self {
        let engines = crypto::choice::find().engines;
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let uname = rustix::system::uname();
        Self {
            processor: described(&Processor::parse(&info)),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: uname.release().to_string_lossy().into_owned(),
            program: Build::noted(),
            engines: engines.iter().map(|engine| EngineUsed::of(&**engine)).collect(),
        }
    }

    /// The first lines of every report.
    pub fn head(&self) -> String {
        let Build { version, commit, target } = &self.program;
        let engines = self.engines.iter().map(|it| format!("{} ({})", it.name, it.version));
        format!(
            "{}, {} cores, Linux {}\npostern {version}, commit {commit}, {target}\nengines: {}\n",
            self.processor,
            self.cores,
            self.kernel,
            engines.collect::<Vec<_>>().join(", ")
        )
    }

    /// A machine, for tests of reports.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let program = Build {
            version: "0.1.0".to_owned(),
            commit: "0123456789ab".to_owned(),
            target: "x86_64-unknown-linux-gnu".to_owned(),
        };
        let engines = vec![EngineUsed { name: "aws-lc".to_owned(), version: "1.2".to_owned() }];
        let (processor, kernel) = ("a processor".to_owned(), "6.18".to_owned());
        Self { processor, cores: 2, kernel, program, engines }
    }
}

/// A number with three significant digits.
pub fn short(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "-".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A table: head, dashes and rows, with columns two spaces apart; numbers are aligned right, words left.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    lay_out(head, rows, 0, |column| is_of_numbers(column, rows))
}

/// A table whose columns are at least `room` wider than their heads; `is_right` selects right-aligned columns.
pub fn lay_out(head: &[&str], rows: &[Vec<String>], room: usize, is_right: impl Fn(usize) -> bool) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count() + room]).max().unwrap_or(0)
    };
    let columns: Vec<(usize, bool)> =
        (0..head.len()).map(|column| (width(column), is_right(column))).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&columns).map(|(cell, &(width, is_right))| {
            if is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let dashes: Vec<String> = columns.iter().map(|&(width, _)| "-".repeat(width)).collect();
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = line(&head) + &line(&dashes);
    text.extend(rows.iter().map(|row| line(row)));
    text
}

/// Whether a column holds numbers, perhaps with units; a dash stands for a missing number.
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
    fn a_report_names_machine_build_and_engines() {
        assert_eq!(
            Machine::example().head(),
            "a processor, 2 cores, Linux 6.18\npostern 0.1.0, commit 0123456789ab, x86_64-unknown-linux-gnu\n\
             engines: aws-lc (1.2)\n"
        );
        let here = Machine::here();
        assert!(here.engines.iter().any(|engine| engine.name == "aws-lc" && !engine.version.is_empty()));
    }

    #[test]
    fn a_processor_is_named_by_its_model_and_its_numbers() {
        let named = |cpuinfo: &str| described(&Processor::parse(cpuinfo));
        assert_eq!(
            named("vendor_id : GenuineIntel\ncpu family : 6\nmodel : 207\nmodel name : Intel(R) Xeon(R)\n"),
            "Intel(R) Xeon(R) (family 6, model 207)"
        );
        assert_eq!(
            named("CPU implementer : 0x41\nCPU part : 0xd03\n"),
            "ARM Cortex-A53 (implementer 0x41, part 0xd03)"
        );
        assert_eq!(
            named("CPU implementer : 0x41\nCPU part : 0xfff\n"),
            "unknown (implementer 0x41, part 0xfff)"
        );
        assert_eq!(named(""), "unknown");
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        assert_eq!([0.123_4, 5.0, 12.34, 345.6].map(short), ["0.12", "5.00", "12.3", "346"]);
    }

    #[test]
    fn numbers_are_aligned_right_and_words_left() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["bad-tag", "7", "1.25x"]), row(["x", "1234", "-"])];
        assert_eq!(
            table(&["Reason", "Count", ""], &rows),
            "Reason   Count\n-------  -----  -----\nbad-tag      7  1.25x\nx         1234      -\n"
        );
    }
}
