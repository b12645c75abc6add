//! The result: rows of speeds, and their comparison.

use crate::report::{EngineUsed, Machine};
use serde::Serialize;

pub use super::text::Unit;

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Maximum number of packets per call.
    pub burst: usize,
    /// Number of threads that shared a key.
    pub threads: usize,
    /// Seconds per cell.
    pub seconds: f64,
    /// The engines that were measured.
    pub engines: Vec<EngineUsed>,
    /// The engines that this machine lacks, and why.
    pub absent: Vec<(String, String)>,
    /// How instructions were disabled, if they were.
    pub without: Option<Comparison>,
    /// The engine that others are compared with; the slowest if there is none.
    pub base: Option<String>,
    /// Ciphers, pairs and hashes: a row for each engine and direction.
    pub rows: Vec<Row>,
    /// The operations of handshakes.
    pub operations: Vec<PerSecond>,
}

/// How instructions were disabled.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The environment variable that the libraries read.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// The CPU features that it disables.
    pub hidden: Vec<String>,
}

/// One subject, one direction, one engine.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The subject.
    pub name: String,
    /// cipher, pair, block-cipher or hash.
    pub kind: String,
    /// seal or open; none for hashes, and for block ciphers, which only encrypt here.
    pub direction: Option<String>,
    /// The engine.
    pub engine: String,
    /// The speed at each size.
    pub sizes: Vec<Measured>,
}

/// The speed at one size.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Text length of a packet in bytes.
    pub size: usize,
    /// Bytes of text per second, of all threads together.
    pub bytes_per_second: f64,
    /// The same without the instructions, for engines that can disable them.
    pub without: Option<f64>,
    /// The gain from the instructions, in percent.
    pub improvement: Option<f64>,
    /// The gain over the engine it is compared with, in percent.
    pub over_base: Option<f64>,
}

impl Measured {
    /// Creates a result without a comparison with other engines.
    pub fn new(size: usize, bytes_per_second: f64, without: Option<f64>) -> Self {
        let improvement = without.map(|without| percent(bytes_per_second, without));
        Self { size, bytes_per_second, without, improvement, over_base: None }
    }
}

/// The speed of an operation of handshakes.
#[derive(Debug, Serialize)]
pub struct PerSecond {
    /// The name of the operation.
    pub name: String,
    /// The engine.
    pub engine: String,
    /// Operations per second, of all threads together.
    pub per_second: f64,
    /// The same without the instructions.
    pub without: Option<f64>,
    /// The gain from the instructions, in percent.
    pub improvement: Option<f64>,
}

impl PerSecond {
    /// Creates a result from operations per second.
    pub fn new(name: String, engine: String, per_second: f64, without: Option<f64>) -> Self {
        let improvement = without.map(|without| percent(per_second, without));
        Self { name, engine, per_second, without, improvement }
    }
}

/// The gain of `speed` over `base`, in percent.
fn percent(speed: f64, base: f64) -> f64 {
    (speed / base - 1.0) * 100.0
}

impl Report {
    /// The rows, grouped by subject and direction, in the order measured.
    pub fn groups(&self) -> Vec<&[Row]> {
        self.rows.chunk_by(|a, b| (&a.name, &a.direction) == (&b.name, &b.direction)).collect()
    }

    /// The size for the summary: the one nearest to a full packet of 1400 bytes.
    pub fn packet_size(&self) -> usize {
        let sizes = self.rows.iter().flat_map(|row| &row.sizes).map(|measured| measured.size);
        sizes.min_by_key(|size| size.abs_diff(1400)).unwrap_or(0)
    }

    /// The row that a group's other rows are compared with: that of the named engine, or of the slowest at full
    /// packets.
    pub fn base_of<'a>(&self, group: &'a [Row]) -> Option<&'a Row> {
        let size = self.packet_size();
        let slowest = || group.iter().min_by(|a, b| a.speed_at(size).total_cmp(&b.speed_at(size)));
        group.iter().find(|row| Some(&row.engine) == self.base.as_ref()).or_else(slowest)
    }

    /// Compares every engine with the base of its group.
    pub(super) fn compare(&mut self) {
        let mut all = Vec::new();
        for group in self.groups() {
            let base = self.base_of(group);
            all.extend(group.iter().map(|row| {
                let base = base.filter(|base| base.engine != row.engine);
                row.sizes
                    .iter()
                    .map(|it| base.map(|base| percent(it.bytes_per_second, base.speed_at(it.size))))
                    .collect::<Vec<_>>()
            }));
        }
        for (row, compared) in self.rows.iter_mut().zip(all) {
            for (measured, over_base) in row.sizes.iter_mut().zip(compared) {
                measured.over_base = over_base;
            }
        }
    }
}

impl Row {
    /// Bytes per second at `size`; NaN if it was not measured.
    pub fn speed_at(&self, size: usize) -> f64 {
        self.sizes.iter().find(|it| it.size == size).map_or(f64::NAN, |it| it.bytes_per_second)
    }

    /// The same without the instructions.
    pub fn speed_without(&self, size: usize) -> Option<f64> {
        self.sizes.iter().find(|it| it.size == size)?.without
    }

    /// The subject, with the direction if it is `open`.
    pub fn title(&self) -> String {
        match self.direction.as_deref() {
            Some("open") => format!("{} open", self.name),
            _ => self.name.clone(),
        }
    }
}

/// A report for tests, as [`run`](super::run) returns it.
#[cfg(test)]
pub(super) fn example() -> Report {
    let row = |name: &str, engine: &str, speeds: [(f64, Option<f64>); 2]| Row {
        name: name.to_owned(),
        kind: "cipher".to_owned(),
        direction: Some("seal".to_owned()),
        engine: engine.to_owned(),
        sizes: [64, 1400]
            .into_iter()
            .zip(speeds)
            .map(|(size, (with, without))| Measured::new(size, with, without))
            .collect(),
    };
    let mut report = Report {
        machine: Machine::example(),
        burst: 32,
        threads: 1,
        seconds: 0.1,
        engines: vec![EngineUsed { name: "aws-lc".to_owned(), version: "1.2".to_owned() }],
        absent: vec![("openssl".to_owned(), "libcrypto.so.3 is not installed".to_owned())],
        without: Some(Comparison {
            variable: "OPENSSL_ia32cap".to_owned(),
            value: "~0x200000200000000".to_owned(),
            hidden: vec!["AES".to_owned()],
        }),
        base: None,
        rows: vec![
            row("aes-128-gcm", "aws-lc", [(8e8, Some(4e8)), (6e9, Some(5e8))]),
            row("aes-128-gcm", "ipsec-mb", [(1.2e9, None), (9e9, None)]),
        ],
        operations: vec![PerSecond::new("ed25519 sign".to_owned(), "aws-lc".to_owned(), 4e4, Some(4e4))],
    };
    report.compare();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_compared_with_the_slowest() {
        let report = example();
        let over: Vec<_> = report.rows.iter().map(|row| row.sizes[1].over_base).collect();
        assert_eq!(over, [None, Some(50.0)]);
        assert_eq!(report.rows[0].sizes[0].improvement, Some(100.0));
        assert_eq!(report.packet_size(), 1400);
    }

    #[test]
    fn engines_are_compared_with_the_one_named() {
        let mut report = example();
        report.base = Some("ipsec-mb".to_owned());
        report.compare();
        assert_eq!(report.rows[1].sizes[1].over_base, None);
        assert!(report.rows[0].sizes[1].over_base.is_some_and(|over| (over + 33.3).abs() < 0.1));
    }
}
