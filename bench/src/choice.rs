//! `postern bench choice`: whether the engine that is chosen is the one to choose.
//!
//! The choice is made by its own calibration. Then [`Meter`], which shares no code with that, measures every engine with
//! packets of the table's sizes and of sizes between them. Engines take turns, and of each the fastest turn counts. An
//! accelerator that is not allowed takes no part.

use crate::Outcome;
use crate::crypto::meter::{Cell, Meter};
use crate::crypto::subject::Subject;
use crate::report::{Machine, short, table};
use crate::tunnel::progress_bar;
use crypto::choice::{self, BURSTS, Choice, Direction, Row, Slot};
use serde::Serialize;
use std::time::Duration;

/// Bytes of text: those of the table, and others.
const SIZES: [usize; 16] =
    [48, 64, 90, 128, 200, 256, 400, 512, 800, 1024, 1250, 1400, 2048, 3000, 4096, 9000];
/// Turns of each engine.
const TURNS: u32 = 6;
/// How much slower than the best the chosen engine may be.
const TOLERANCE: f64 = 0.05;
/// How often what is slower is measured again: once in a while the machine is busy elsewhere for all turns of an engine.
const AGAIN: usize = 3;

/// What to measure.
pub struct Options {
    /// The ciphers, and pairs of cipher and MAC.
    pub subjects: Vec<Subject>,
    /// Time for each turn.
    pub time: Duration,
    /// Whether to show progress.
    pub progress: bool,
}

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// Each cipher.
    pub ciphers: Vec<Verdict>,
}

/// How good the choice for one cipher is.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// The cipher, or the pair.
    pub name: String,
    /// Places that were measured: sizes, bursts and directions.
    pub places: usize,
    /// Those at which the chosen engine is the fastest.
    pub best: usize,
    /// Those at which it is at most 5% slower.
    pub within: usize,
    /// The largest loss, as a share of the best speed.
    pub worst: f64,
    /// Where more than 5% is lost.
    pub losses: Vec<Loss>,
}

/// A place where another engine is faster by more than 5%.
#[derive(Debug, Serialize)]
pub struct Loss {
    /// seal or open.
    pub direction: &'static str,
    /// Packets in a call.
    pub burst: usize,
    /// Bytes of text.
    pub size: usize,
    /// The engine that is chosen.
    pub chosen: String,
    /// The engine that is fastest.
    pub fastest: String,
    /// What is lost, as a share of the best speed.
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
        let known = choice::Subject::by_name(&name).ok_or_else(|| format!("{name} is no cipher"))?;
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
        // What the rules forbid cannot be chosen, and is no loss.
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
        let used = by_name(chosen).ok_or("the chosen engine is not here")?;
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
    /// The report for people.
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
            table(&["", "places", "fastest", "within 5%", "largest loss"], &rows),
            losses.collect::<String>()
        )
    }
}
