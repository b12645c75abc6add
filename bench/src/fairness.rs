//! `postern bench fairness`: what a peer loses while another one, behind a slow link, is flooded.

use crate::Outcome;
use crate::report::{Machine, median, short, table};
use crate::tunnel::{progress_bar, quartiles};
use indicatif::ProgressBar;
use lab::hub::{self, FAST, Hub, OUTSIDE, SLOW};
use lab::wireguard::Daemon;
use lab::{Lab, traffic};
use serde::Serialize;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What to measure.
pub struct Options {
    /// The daemons to measure.
    pub daemons: Vec<Daemon>,
    /// The link to the slow peer, in Mbit/s.
    pub link: u32,
    /// What is sent to the slow peer, in Mbit/s.
    pub flood: u32,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Measurements of each kind.
    pub rounds: u32,
    /// Whether to show progress.
    pub progress: bool,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The link to the slow peer, in Mbit/s.
    pub link: u32,
    /// What is sent to the slow peer, in Mbit/s.
    pub flood: u32,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Measurements of each kind.
    pub rounds: u32,
    /// What was measured.
    pub results: Vec<Quantity>,
    /// Daemons that could not be measured: name, version, error.
    pub failures: Vec<[String; 3]>,
}

/// A quantity of the fast peer with one daemon, at rest and while the slow peer is flooded.
#[derive(Debug, Serialize)]
pub struct Quantity {
    /// The daemon, and its version.
    pub daemon: [String; 2],
    /// The name.
    pub name: &'static str,
    /// The unit.
    pub unit: &'static str,
    /// Of each round, at rest and flooded.
    pub values: Vec<[f64; 2]>,
    /// The medians at rest and flooded.
    pub medians: [f64; 2],
    /// The median of the rounds' own ratios, flooded to rest.
    pub ratio: f64,
    /// Between which two of these the middle half lies.
    pub spread: [f64; 2],
}

/// Bytes of a datagram of the flood.
const DATAGRAM: usize = 1300;
/// The flood sends so many at once.
const BURST: usize = 8;
/// Until the queue of the slow link is full.
const FILLING: Duration = Duration::from_secs(2);
/// Round trips a second, and a transfer beside them for the last quantity.
const PINGS: u32 = 50;

/// The quantities of a round.
const QUANTITIES: [(&str, &str); 3] = [
    ("TCP, 1 stream", "Gbit/s"),
    ("round trip, idle, median", "ms"),
    ("round trip, idle, 99th percentile", "ms"),
];

/// Measures each daemon.
pub fn run(options: &Options) -> Outcome<Report> {
    let progress = progress_bar(options.progress, options.daemons.len() as u64 * u64::from(options.rounds));
    let (mut results, mut failures) = (Vec::new(), Vec::new());
    for (index, daemon) in options.daemons.iter().enumerate() {
        let named = [daemon.name(), daemon.version()];
        match rounds_of(daemon, options, &progress) {
            Ok(rounds) => {
                results.extend((0..QUANTITIES.len()).map(|which| Quantity::of(&named, which, &rounds)));
            }
            // A failure of another daemon is reported; a failure of the first ends the benchmark.
            Err(error) if index > 0 => failures.push([named[0].clone(), named[1].clone(), error.to_string()]),
            Err(error) => return Err(error),
        }
    }
    progress.finish_and_clear();
    let Options { link, flood, seconds, rounds, .. } = *options;
    Ok(Report { machine: Machine::here(), link, flood, seconds, rounds, results, failures })
}

/// The quantities of each round, at rest and flooded.
fn rounds_of(daemon: &Daemon, options: &Options, progress: &ProgressBar) -> Outcome<Vec<[[f64; 3]; 2]>> {
    let mut lab = Lab::new(&["a", "b", "c"])?;
    hub::connect(&lab)?;
    let _hub = Hub::start(&mut lab, daemon, OUTSIDE[0])?;
    traffic::serve(&mut lab, "c")?;
    hub::slow_down(&lab, options.link)?;
    let mut rounds = Vec::new();
    for round in 0..options.rounds {
        progress.set_message(daemon.name());
        let flooded = |is_flooded| -> Outcome<[f64; 3]> {
            if is_flooded { beside_flood(&lab, options) } else { measure(&lab, options.seconds) }
        };
        // Every second round backwards.
        let is_first = round % 2 == 1;
        let (one, other) = (flooded(is_first)?, flooded(!is_first)?);
        rounds.push(if is_first { [other, one] } else { [one, other] });
        progress.inc(1);
    }
    Ok(rounds)
}

/// Measures while the slow peer is flooded.
fn beside_flood(lab: &Lab, options: &Options) -> Outcome<[f64; 3]> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| flood(lab, options.flood, &stop));
        std::thread::sleep(FILLING);
        let measured = measure(lab, options.seconds);
        stop.store(true, Ordering::Relaxed);
        flood.join().map_err(|_| "the flood panicked")??;
        measured
    })
}

/// The quantities of the fast peer.
fn measure(lab: &Lab, seconds: u32) -> Outcome<[f64; 3]> {
    let transfer = traffic::tcp(lab, "a", FAST, 1, false, seconds)?;
    let times = traffic::ping(lab, "a", FAST, seconds * PINGS, Duration::from_secs(1) / PINGS)?;
    Ok([transfer.gigabits(), times.quantile(0.5), times.quantile(0.99)])
}

/// Sends to the slow peer at a rate until `stop` is set.
fn flood(lab: &Lab, megabits: u32, stop: &AtomicBool) -> Outcome<()> {
    let gap = Duration::from_secs_f64((BURST * DATAGRAM * 8) as f64 / (f64::from(megabits) * 1e6));
    lab.enter("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            // What the kernel refuses is lost, as it would be on the way.
            (0..BURST).for_each(|_| _ = socket.send_to(&[0; DATAGRAM], (SLOW, 9)));
            next += gap;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    })?
}

impl Quantity {
    fn of(daemon: &[String; 2], which: usize, rounds: &[[[f64; 3]; 2]]) -> Self {
        let (name, unit) = QUANTITIES[which];
        let values: Vec<[f64; 2]> = rounds.iter().map(|round| round.map(|values| values[which])).collect();
        let medians = [0, 1].map(|at| median(&values.iter().map(|round| round[at]).collect::<Vec<_>>()));
        let ratios: Vec<f64> = values.iter().map(|[rest, flooded]| flooded / rest).collect();
        let (ratio, spread) = (median(&ratios), quartiles(ratios));
        Self { daemon: daemon.clone(), name, unit, values, medians, ratio, spread }
    }
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let head = ["", "daemon", "unit", "at rest", "flooded", "flooded to rest", "half of the rounds"];
        let row = |quantity: &Quantity| {
            let [rest, flooded] = quantity.medians.map(short);
            let [low, high] = quantity.spread;
            [
                quantity.name.to_owned(),
                quantity.daemon[0].clone(),
                quantity.unit.to_owned(),
                rest,
                flooded,
                format!("{:.2}x", quantity.ratio),
                format!("{low:.2} to {high:.2}"),
            ]
            .to_vec()
        };
        let rows: Vec<Vec<String>> = self.results.iter().map(row).collect();
        let mut versions: Vec<String> =
            self.results.iter().map(|quantity| quantity.daemon.join(": ")).collect();
        versions.dedup();
        let failures = self
            .failures
            .iter()
            .map(|[daemon, version, why]| format!("{daemon} ({version}) failed: {why}\n"));
        format!(
            "{}{}\na peer behind {} Mbit/s gets {} Mbit/s of UDP; what another peer of the same interface has meanwhile\n\
             medians of {} rounds of {} s\n\n{}{}",
            self.machine.head(),
            versions.join("\n"),
            self.link,
            self.flood,
            self.rounds,
            self.seconds,
            table(&head, &rows),
            failures.collect::<String>()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_that_of_a_round_and_not_of_two_medians() {
        let round = |rest: f64, flooded: f64| [[rest; 3], [flooded; 3]];
        let rounds = [round(1.0, 1.0), round(10.0, 9.0), round(4.0, 2.0)];
        let quantity = Quantity::of(&[String::new(), String::new()], 1, &rounds);
        assert_eq!((quantity.medians, quantity.ratio), ([4.0, 2.0], 0.9));
        assert_eq!(vec![quantity.spread], [[0.5, 1.0]]);
    }
}
