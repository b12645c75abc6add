//! The report: rows of speeds, and what each is compared with.

use crate::report::{EngineUsed, Machine};
use serde::Serialize;

pub use super::text::Unit;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Packets in a call, at most.
    pub burst: usize,
    /// Threads that shared a key.
    pub threads: usize,
    /// Time for each cell.
    pub seconds: f64,
    /// Who was measured.
    pub engines: Vec<EngineUsed>,
    /// Engines that are not here, and why.
    pub absent: Vec<(String, String)>,
    /// How instructions were left out.
    pub without: Option<Comparison>,
    /// The engine that others are compared with, if not the slowest.
    pub base: Option<String>,
    /// Ciphers, pairs and hashes: a row for each engine and direction.
    pub rows: Vec<Row>,
    /// What handshakes compute.
    pub operations: Vec<PerSecond>,
}

/// How instructions were left out.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The environment variable that libraries read.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// What it hides.
    pub hidden: Vec<String>,
}

/// One subject, one direction, one engine.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The subject.
    pub name: String,
    /// cipher, pair, block-cipher or hash.
    pub kind: String,
    /// seal or open; block ciphers, which only encrypt here, and hashes have none.
    pub direction: Option<String>,
    /// The engine.
    pub engine: String,
    /// The speed at each size.
    pub sizes: Vec<Measured>,
}

/// The speed at one size.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Bytes of text in a packet.
    pub size: usize,
    /// Bytes of text a second, of all threads together.
    pub bytes_per_second: f64,
    /// The same without the instructions; of an engine that can do without.
    pub without: Option<f64>,
    /// What they are worth, in percent.
    pub improvement: Option<f64>,
    /// What this engine is faster than the one it is compared with, in percent.
    pub over_base: Option<f64>,
}

impl Measured {
    /// The speed at `size`.
    pub fn new(size: usize, bytes_per_second: f64, without: Option<f64>) -> Self {
        let improvement = without.map(|without| percent(bytes_per_second, without));
        Self { size, bytes_per_second, without, improvement, over_base: None }
    }
}

/// An operation of handshakes.
#[derive(Debug, Serialize)]
pub struct PerSecond {
    /// Which.
    pub name: String,
    /// Who computed it.
    pub engine: String,
    /// How many a second, of all threads together.
    pub per_second: f64,
    /// The same without the instructions.
    pub without: Option<f64>,
    /// What they are worth, in percent.
    pub improvement: Option<f64>,
}

impl PerSecond {
    /// So many a second.
    pub fn new(name: String, engine: String, per_second: f64, without: Option<f64>) -> Self {
        let improvement = without.map(|without| percent(per_second, without));
        Self { name, engine, per_second, without, improvement }
    }
}

/// By how many percent `speed` is more than `base`.
fn percent(speed: f64, base: f64) -> f64 {
    (speed / base - 1.0) * 100.0
}

impl Report {
    /// Rows of one subject and direction, in the order measured.
    pub fn groups(&self) -> Vec<&[Row]> {
        self.rows.chunk_by(|a, b| (&a.name, &a.direction) == (&b.name, &b.direction)).collect()
    }

    /// The size of most interest: the one nearest to a full packet of 1400 bytes.
    pub fn packet_size(&self) -> usize {
        let sizes = self.rows.iter().flat_map(|row| &row.sizes).map(|measured| measured.size);
        sizes.min_by_key(|size| size.abs_diff(1400)).unwrap_or(0)
    }

    /// The engine that a group's others are compared with: the one named, or the slowest at full packets.
    pub fn base_of<'a>(&self, group: &'a [Row]) -> Option<&'a Row> {
        let size = self.packet_size();
        let slowest = || group.iter().min_by(|a, b| a.speed_at(size).total_cmp(&b.speed_at(size)));
        group.iter().find(|row| Some(&row.engine) == self.base.as_ref()).or_else(slowest)
    }

    /// Compares every engine with the base.
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
    /// Bytes a second at `size`; not a number if it was not measured.
    pub fn speed_at(&self, size: usize) -> f64 {
        self.sizes.iter().find(|it| it.size == size).map_or(f64::NAN, |it| it.bytes_per_second)
    }

    /// The same without the instructions.
    pub fn speed_without(&self, size: usize) -> Option<f64> {
        self.sizes.iter().find(|it| it.size == size)?.without
    }

    /// The subject and the direction.
    pub fn title(&self) -> String {
        match self.direction.as_deref() {
            Some("open") => format!("{} open", self.name),
            _ => self.name.clone(),
        }
    }
}

/// A report as a measurement leaves it, for tests.
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
