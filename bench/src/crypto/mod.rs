//! `postern bench crypto`: the table of `openssl speed` for every engine of this machine, with the CPU's cryptographic
//! instructions and without them.
//!
//! For each subject and size the engines take turns, in this process and in a [`worker`] with the instructions
//! disabled. The fastest turn of each counts: other load on the machine can only slow a turn down.

pub mod chart;
pub mod meter;
pub mod operation;
pub mod report;
pub mod subject;
mod text;
pub mod word;
pub mod worker;

use crate::Outcome;
use crate::report::{EngineUsed, Machine};
use crypto::machine::{Capability, Machine as Hardware, Processor};
use indicatif::{ProgressBar, ProgressStyle};
use meter::{Cell, Meter};
use report::{Comparison, Measured, PerSecond, Report, Row};
use std::path::PathBuf;
use std::time::Duration;
use subject::Subject;
use worker::Worker;

/// Block sizes of `openssl speed`.
pub const BLOCKS: [usize; 6] = [16, 64, 256, 1024, 8192, 16_384];
/// Sizes of packets.
pub const PACKETS: [usize; 3] = [64, 512, 1400];
/// Turns per engine and size.
const TURNS: u32 = 4;

/// What to measure.
pub struct Options {
    /// This program, which is started again with the instructions disabled.
    pub program: PathBuf,
    /// The ciphers, hashes and operations.
    pub subjects: Vec<Subject>,
    /// The only engine to measure, if one is named.
    pub engine: Option<String>,
    /// The engine that others are compared with; the slowest if there is none.
    pub base: Option<String>,
    /// Text lengths in bytes.
    pub sizes: Vec<usize>,
    /// Whether opening is measured as well.
    pub open: bool,
    /// Maximum number of packets per call.
    pub burst: usize,
    /// Threads that share a key.
    pub threads: usize,
    /// Time per cell.
    pub time: Duration,
    /// The CPU features to disable for comparison; empty for no comparison.
    pub without: &'static [Capability],
    /// Whether to show progress on standard error.
    pub progress: bool,
}

/// This process and the worker without instructions.
struct Bench<'a> {
    options: &'a Options,
    meter: Meter,
    without: Option<Worker>,
    processor: Processor,
    engines: Vec<EngineUsed>,
    bar: ProgressBar,
}

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let processor = Hardware::here().processor;
    let (without, comparison) = start_without(options, &processor)?;
    let meter = Meter::default();
    let engines = engines(&meter, options)?;
    let absent = meter.found().absent.iter();
    let absent = absent.map(|(name, reason)| ((*name).to_owned(), reason.to_string())).collect();
    let bar = progress(options);
    let mut bench = Bench { options, meter, without, processor, engines, bar };
    let (mut rows, mut operations) = (Vec::new(), Vec::new());
    for &subject in &options.subjects {
        if matches!(subject, Subject::Operation(_)) {
            operations.extend(bench.operation(subject)?);
            continue;
        }
        rows.extend(bench.rows(subject, false)?);
        if options.open && subject.opens() {
            rows.extend(bench.rows(subject, true)?);
        }
    }
    bench.bar.finish_and_clear();
    let mut report = Report {
        machine: Machine::here(),
        burst: options.burst,
        threads: options.threads,
        seconds: options.time.as_secs_f64(),
        engines: bench.engines,
        absent,
        without: comparison,
        base: options.base.clone(),
        rows,
        operations,
    };
    report.compare();
    Ok(report)
}

fn start_without(options: &Options, processor: &Processor) -> Outcome<(Option<Worker>, Option<Comparison>)> {
    let hidden: Vec<Capability> =
        options.without.iter().copied().filter(|&capability| processor.has(capability)).collect();
    let Some((variable, value)) = word::hiding(&hidden, processor).filter(|_| !hidden.is_empty()) else {
        return Ok((None, None));
    };
    let worker = Worker::start(&options.program, variable, Some(&value))?;
    let hidden = hidden.into_iter().map(|it| processor.name_of(it).to_owned()).collect();
    Ok((Some(worker), Some(Comparison { variable: variable.to_owned(), value, hidden })))
}

fn engines(meter: &Meter, options: &Options) -> Outcome<Vec<EngineUsed>> {
    let all: Vec<EngineUsed> = meter.found().engines.iter().map(|engine| EngineUsed::of(&**engine)).collect();
    let names = all.iter().map(|engine| engine.name.clone()).collect::<Vec<_>>().join(", ");
    for wanted in [&options.engine, &options.base].into_iter().flatten() {
        if !all.iter().any(|engine| engine.name == *wanted) {
            return Err(format!("there is no engine {wanted} on this machine\n  fix: one of {names}").into());
        }
    }
    let wanted = |engine: &EngineUsed| options.engine.as_ref().is_none_or(|name| *name == engine.name);
    Ok(all.into_iter().filter(wanted).collect())
}

fn progress(options: &Options) -> ProgressBar {
    let steps: usize = options
        .subjects
        .iter()
        .map(|subject| match subject {
            Subject::Operation(_) => 1,
            subject => options.sizes.len() * (1 + usize::from(options.open && subject.opens())),
        })
        .sum();
    if !options.progress {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left  {msg}");
    ProgressBar::new(steps as u64).with_style(style.expect("a literal template"))
}

impl Bench<'_> {
    /// A row for each engine that supports the subject.
    fn rows(&mut self, subject: Subject, opens: bool) -> Outcome<Vec<Row>> {
        let name = subject.name();
        let row = |engine: &EngineUsed| Row {
            name: name.clone(),
            kind: subject.kind().to_owned(),
            direction: subject.opens().then(|| if opens { "open" } else { "seal" }.to_owned()),
            engine: engine.name.clone(),
            sizes: Vec::new(),
        };
        let mut rows: Vec<Row> = self.engines.iter().map(row).collect();
        for &size in &self.options.sizes {
            self.bar.set_message(format!("{name}, {size} bytes"));
            let rates = self.turns(&name, size, opens)?;
            for (row, [with, without]) in rows.iter_mut().zip(rates) {
                let Some(with) = with else { continue };
                let bytes = size as f64;
                row.sizes.push(Measured::new(size, with * bytes, without.map(|rate| rate * bytes)));
            }
            self.bar.inc(1);
        }
        rows.retain(|row| !row.sizes.is_empty());
        Ok(rows)
    }

    fn operation(&mut self, subject: Subject) -> Outcome<Option<PerSecond>> {
        let name = subject.name();
        self.bar.set_message(name.clone());
        let rates = self.turns(&name, 1, false)?;
        self.bar.inc(1);
        let names = self.engines.iter().map(|engine| engine.name.clone());
        let mut known = names.zip(rates).filter_map(|(engine, [with, without])| {
            Some(PerSecond::new(name.clone(), engine, with?, without))
        });
        Ok(known.next())
    }

    /// The rates of each engine with and without the instructions, measured in turns.
    fn turns(&mut self, subject: &str, size: usize, opens: bool) -> Outcome<Vec<[Option<f64>; 2]>> {
        let time = self.options.time / TURNS;
        let mut best = vec![[None::<f64>; 2]; self.engines.len()];
        for _ in 0..TURNS {
            for (engine, best) in self.engines.iter().zip(&mut best) {
                let cell = Cell {
                    subject: subject.to_owned(),
                    engine: engine.name.clone(),
                    opens,
                    size,
                    burst: self.options.burst,
                    threads: self.options.threads,
                };
                let Some(rate) = self.meter.rate(&cell, time) else { continue };
                best[0] = Some(best[0].map_or(rate, |before| before.max(rate)));
                let heeds = word::is_heeded_by(&engine.name, &self.processor);
                let worker = self.without.as_mut().filter(|_| heeds);
                // Without the instructions, an engine may not support the subject. Then there is nothing to compare.
                if let Some(rate) = worker.map(|worker| worker.rate(&cell, time)).transpose()?.flatten() {
                    best[1] = Some(best[1].map_or(rate, |before| before.max(rate)));
                }
            }
        }
        Ok(best)
    }
}
