//! `postern bench choice`: checks whether the chosen crypto engine is the fastest.
//!
//! The choice is made by its own calibration, as in the daemon. Then [`Meter`], which shares no code with it, measures
//! every engine at the same packet sizes and at sizes between them. Engines take turns, and the fastest turn of each
//! counts. Accelerators that are not allowed are left out.

use crate::Outcome;
use crate::crypto::meter::{Cell, Meter};
use crate::crypto::subject::Subject;
use crate::report::{Machine, short, table};
use crate::tunnel::progress_bar;
use crypto::choice::{self, BURSTS, Choice, Direction, Row, Slot};
use serde::Serialize;
use std::time::Duration;

/// Text lengths in bytes: those that the choice measures, and others.
const SIZES: [usize; 16] =
    [48, 64, 90, 128, 200, 256, 400, 512, 800, 1024, 1250, 1400, 2048, 3000, 4096, 9000];
/// Turns per engine.
const TURNS: u32 = 6;
/// How much slower than the fastest engine the chosen one may be.
const TOLERANCE: f64 = 0.05;
/// How often a slower result is measured again: other load may have slowed down all turns of an engine.
const AGAIN: usize = 3;

/// What to measure.
pub struct Options {
    /// The ciphers, and pairs of cipher and MAC.
    pub subjects: Vec<Subject>,
    /// Time per turn.
    pub time: Duration,
    /// Whether to show progress.
    pub progress: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The result of each cipher.
    pub ciphers: Vec<Verdict>,
}

/// How good the choice for one cipher is.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// The cipher, or the pair.
    pub name: String,
    /// Number of cases measured: combinations of size, burst and direction.
    pub places: usize,
    /// Number of cases in which the chosen engine is the fastest.
    pub best: usize,
    /// Number of cases in which the chosen engine is at most 5% slower.
    pub within: usize,
    /// The largest loss, as a fraction of the best speed.
    pub worst: f64,
    /// The cases with a loss of more than 5%.
    pub losses: Vec<Loss>,
}

/// A case in which another engine is faster by more than 5%.
#[derive(Debug, Serialize)]
pub struct Loss {
    /// seal or open.
    pub direction: &'static str,
    /// Packets per call.
    pub burst: usize,
    /// Text length in bytes.
    pub size: usize,
    /// The chosen engine.
    pub chosen: String,
    /// The fastest engine.
    pub fastest: String,
    /// The loss, as a fraction of the best speed.
    pub lost: f64,
}

/// Measures everything.
pub fn run(options: &Options) -> Outcome<Report> {
    let choice = Choice::here(None);
    let mut meter = Meter::default();
    let progress = progress_bar(options.progress, (options.subjects.len() * SIZES.len()) as u64);
    let mut ciphers = Vec::new();
    for subject in &options.subjects {
        let name = subject.name();
        let known = choice::Subject::by_name(&name).ok_or_else(|| format!("{name} is not a cipher"))?;
        progress.set_message(name.clone());
        let row = choice.row(known);
        let mut verdict = Verdict { name, places: 0, best: 0, within: 0, worst: 0.0, losses: Vec::new() };
        for size in SIZES {
            for (burst, direction) in BURSTS.into_iter().flat_map(|b| Direction::ALL.map(|d| (b, d))) {
                let place = Place { direction, burst, size };
                verdict.add(place.measure(&choice, &row, &mut meter, &verdict.name, options.time)?);
            }
            progress.inc(1);
        }
        ciphers.push(verdict);
    }
    progress.finish_and_clear();
    Ok(Report { machine: Machine::here(), ciphers })
}

#[derive(Clone, Copy)]
struct Place {
    direction: Direction,
    burst: usize,
    size: usize,
}

impl Place {
    fn measure(
        self,
        choice: &Choice,
        row: &Row,
        meter: &mut Meter,
        subject: &str,
        time: Duration,
    ) -> Outcome<Loss> {
        let chosen = choice.engines()[row.chosen(Slot::of(self.direction, self.burst, self.size))].name();
        // An engine that is not allowed cannot be chosen, so it is no loss.
        let accelerators = choice.rules().accelerators;
        let allowed = choice.engines().iter().filter(|engine| accelerators || !engine.is_accelerator());
        let names: Vec<&str> = allowed.map(|engine| engine.name()).collect();
        let mut rates = vec![0.0f64; names.len()];
        let mut loss = None;
        for _ in 0..=AGAIN {
            for _ in 0..TURNS {
                for (name, best) in names.iter().zip(&mut rates) {
                    let (subject, engine) = (subject.to_owned(), (*name).to_owned());
                    let opens = self.direction == Direction::Open;
                    let cell =
                        Cell { subject, engine, opens, size: self.size, burst: self.burst, threads: 1 };
                    *best = best.max(meter.rate(&cell, time).unwrap_or(0.0));
                }
            }
            let found = self.loss(chosen, &names, &rates)?;
            if loss.insert(found).lost <= TOLERANCE {
                break;
            }
        }
        Ok(loss.expect("measured at least once"))
    }

    fn loss(self, chosen: &str, names: &[&str], rates: &[f64]) -> Outcome<Loss> {
        let by_name = |name| names.iter().zip(rates).find(|(it, _)| **it == name).map(|(_, &rate)| rate);
        let fastest = names.iter().zip(rates).max_by(|a, b| a.1.total_cmp(b.1)).ok_or("no engine")?;
        let used = by_name(chosen).ok_or("the chosen engine was not measured")?;
        Ok(Loss {
            direction: self.direction.name(),
            burst: self.burst,
            size: self.size,
            chosen: chosen.to_owned(),
            fastest: (*fastest.0).to_owned(),
            lost: 1.0 - used / fastest.1,
        })
    }
}

impl Verdict {
    fn add(&mut self, loss: Loss) {
        self.places += 1;
        self.best += usize::from(loss.chosen == loss.fastest);
        self.within += usize::from(loss.lost <= TOLERANCE);
        self.worst = self.worst.max(loss.lost);
        if loss.lost > TOLERANCE {
            self.losses.push(loss);
        }
    }
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let percent = |share: f64| format!("{}%", short(share * 100.0));
        let row = |verdict: &Verdict| {
            let counts = [verdict.places, verdict.best, verdict.within].map(|count| count.to_string());
            [verdict.name.clone()].into_iter().chain(counts).chain([percent(verdict.worst)]).collect()
        };
        let rows: Vec<Vec<String>> = self.ciphers.iter().map(row).collect();
        let losses = self.ciphers.iter().flat_map(|verdict| {
            verdict.losses.iter().map(|loss| {
                let Loss { direction, burst, size, chosen, fastest, lost } = loss;
                let (name, lost) = (&verdict.name, percent(*lost));
                format!(
                    "{name}, {direction}, {burst} x {size} bytes: {chosen}, {lost} slower than {fastest}\n"
                )
            })
        });
        format!(
            "{}\n{}{}",
            self.machine.head(),
            table(&["", "cases", "fastest", "within 5%", "largest loss"], &rows),
            losses.collect::<String>()
        )
    }
}
