//! The result as tables, ratios, and one sentence for each program that names its bottleneck.

use super::measure::{SMALL, TO_CLIENT, TO_SERVER};
use super::{
    IPSEC, OUR_CLIENT, OUR_SERVER, OUR_SERVER_TCP, OURS, OURS_TCP, STOCK, STOCK_TCP, chart, subtract,
};
use crate::Outcome;
use crate::report::{Machine, median, short, table};
use crate::tunnel::quartiles;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// CPU time of one gateway, for each unit of what was carried.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cost {
    /// In user mode.
    pub user: f64,
    /// In the kernel, with the softirqs that ran in the gateway's threads.
    pub system: f64,
    /// By thread.
    pub threads: BTreeMap<String, f64>,
    /// The share of the time that the busiest thread was running.
    pub busiest: f64,
}

impl Cost {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.user + self.system
    }
}

/// One measurement of one pair.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The speed, or the median of the round trips.
    pub value: f64,
    /// The 99th percentile of round trips.
    pub tail: Option<f64>,
    /// What the client spent.
    pub client: Option<Cost>,
    /// What the server spent.
    pub server: Option<Cost>,
    /// CPU time of the whole machine in softirqs, which the costs of gateways and of iperf3 contain.
    pub softirq: Option<f64>,
}

impl Run {
    pub(super) fn round_trip(value: f64, tail: f64) -> Self {
        Self { value, tail: Some(tail), client: None, server: None, softirq: None }
    }

    /// What both gateways spent.
    pub fn both(&self) -> Option<f64> {
        Some(self.client.as_ref()?.total() + self.server.as_ref()?.total())
    }
}

/// A pair and its programs.
#[derive(Clone, Debug, Serialize)]
pub struct PairNames {
    /// The name in the tables.
    pub name: String,
    /// The version of the client.
    pub client: String,
    /// The version of the server.
    pub server: String,
}

/// One kind of measurement, on each pair.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The name.
    pub name: String,
    /// The unit of its value.
    pub unit: &'static str,
    /// The unit of its costs.
    pub cost_unit: Option<&'static str>,
    /// The rounds, by pair.
    pub runs: Vec<Vec<Run>>,
}

impl Measurement {
    /// The median over the rounds of one pair; NaN without rounds.
    pub(super) fn median(&self, pair: usize, of: impl Fn(&Run) -> Option<f64>) -> f64 {
        median(&self.runs[pair].iter().filter_map(of).collect::<Vec<f64>>())
    }
}

/// A ratio of two pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub name: String,
    /// The ratio of the medians.
    pub ratio: f64,
    /// Between which two of the rounds' own ratios the middle half of them lies.
    pub spread: [f64; 2],
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Measurements of each kind.
    pub rounds: u32,
    /// The pairs.
    pub pairs: Vec<PairNames>,
    /// What was measured.
    pub measurements: Vec<Measurement>,
    /// Ratios of pairs.
    pub comparisons: Vec<Comparison>,
    /// A sentence for each program.
    pub bottlenecks: Vec<String>,
    /// Failed measurements: measurement, pair, error.
    pub failures: Vec<[String; 3]>,
}

impl Report {
    pub(super) fn new(
        machine: Machine,
        seconds: u32,
        rounds: u32,
        pairs: Vec<PairNames>,
        measurements: Vec<Measurement>,
        failures: Vec<[String; 3]>,
    ) -> Self {
        let (comparisons, bottlenecks) = Default::default();
        let mut report =
            Self { machine, seconds, rounds, pairs, measurements, comparisons, bottlenecks, failures };
        report.comparisons = report.compare();
        report.bottlenecks = subtract::sentences(&report);
        report
    }

    pub(super) fn pair(&self, name: &str) -> Option<usize> {
        self.pairs.iter().position(|pair| pair.name == name)
    }

    pub(super) fn measurement(&self, name: &str) -> Option<&Measurement> {
        self.measurements.iter().find(|it| it.name == name)
    }

    fn compare(&self) -> Vec<Comparison> {
        type Of = fn(&Run) -> Option<f64>;
        let speed: Of = |run| Some(run.value);
        let both: Of = Run::both;
        let client: Of = |run| run.client.as_ref().map(Cost::total);
        let server: Of = |run| run.server.as_ref().map(Cost::total);
        let mut compared = Vec::new();
        for test in [TO_SERVER, TO_CLIENT] {
            compared.push((test, "speed", OURS, STOCK, speed));
            compared.push((test, "CPU per GB of both", OURS, STOCK, both));
            compared.push((test, "speed", OURS, IPSEC, speed));
            compared.push((test, "CPU per GB of both", OURS, IPSEC, both));
            compared.push((test, "CPU per GB of the server", OUR_SERVER, STOCK, server));
            compared.push((test, "speed", OUR_SERVER, STOCK, speed));
            compared.push((test, "CPU per GB of the client", OUR_CLIENT, STOCK, client));
            compared.push((test, "speed", OURS_TCP, STOCK_TCP, speed));
            compared.push((test, "CPU per GB of both", OURS_TCP, STOCK_TCP, both));
            compared.push((test, "CPU per GB of the server", OUR_SERVER_TCP, STOCK_TCP, server));
        }
        compared.push((SMALL, "packets", OURS, STOCK, speed));
        compared.push((SMALL, "packets", OURS_TCP, STOCK_TCP, speed));
        let ratio = |(test, what, one, other, of): (&str, &str, &str, &str, Of)| {
            let (measurement, [one_at, other_at]) =
                (self.measurement(test)?, [one, other].map(|it| self.pair(it)));
            let values = [one_at?, other_at?]
                .map(|pair| measurement.runs[pair].iter().filter_map(of).collect::<Vec<f64>>());
            let ratios = values[0].iter().zip(&values[1]).map(|(one, other)| one / other).collect();
            let name = format!("{test}, {what}: {one} / {other}");
            let ratio = median(&values[0]) / median(&values[1]);
            ratio.is_finite().then(|| Comparison { name, ratio, spread: quartiles(ratios) })
        };
        compared.into_iter().filter_map(ratio).collect()
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let versions =
            self.pairs.iter().map(|it| format!("{}: client {}; server {}\n", it.name, it.client, it.server));
        let failures =
            self.failures.iter().map(|[test, pair, why]| format!("{pair} failed: {test}: {why}\n"));
        let sentences = self.bottlenecks.iter().map(|it| format!("{it}\n"));
        format!(
            "{}{}medians of {} measurements of {} s, in alternation, every second round backwards; the client begins each\n\n{}{}\n{}\n{}{}",
            self.machine.head(),
            versions.collect::<String>(),
            self.rounds,
            self.seconds,
            self.speeds(),
            self.costs(),
            self.ratios(),
            sentences.collect::<String>(),
            failures.collect::<String>(),
        )
    }

    fn speeds(&self) -> String {
        let heads: Vec<String> =
            self.measurements.iter().map(|it| format!("{}, {}", it.name, it.unit)).collect();
        let mut head = vec![""];
        head.extend(heads.iter().map(String::as_str));
        let row = |(pair, names): (usize, &PairNames)| {
            let cell = |it: &Measurement| {
                let value = short(it.median(pair, |run| Some(run.value)));
                let tail = it.median(pair, |run| run.tail);
                if tail.is_finite() { format!("{value} ({})", short(tail)) } else { value }
            };
            [vec![names.name.clone()], self.measurements.iter().map(cell).collect()].concat()
        };
        let rows: Vec<Vec<String>> = self.pairs.iter().enumerate().map(row).collect();
        let notes = if self.measurements.iter().any(|it| it.cost_unit.is_none()) {
            "round trips: median (99th percentile)\n"
        } else {
            ""
        };
        table(&head, &rows) + notes
    }

    fn costs(&self) -> String {
        let head = [
            "",
            "client user",
            "system",
            "server user",
            "system",
            "machine softirq",
            "by thread: client | server",
        ];
        let mut text = String::new();
        for it in &self.measurements {
            let Some(unit) = it.cost_unit else { continue };
            let row = |(pair, names): (usize, &PairNames)| {
                let of = |end: fn(&Run) -> Option<&Cost>, part: fn(&Cost) -> f64| {
                    short(it.median(pair, |run| end(run).map(part)))
                };
                let threads = [Run::client as fn(&Run) -> Option<&Cost>, Run::server]
                    .map(|end| threads(&it.runs[pair], end));
                vec![
                    names.name.clone(),
                    of(Run::client, |cost| cost.user),
                    of(Run::client, |cost| cost.system),
                    of(Run::server, |cost| cost.user),
                    of(Run::server, |cost| cost.system),
                    short(it.median(pair, |run| run.softirq)),
                    threads.join(" | "),
                ]
            };
            let measured = self.pairs.iter().enumerate().filter(|(pair, _)| !it.runs[*pair].is_empty());
            let rows: Vec<Vec<String>> = measured.map(row).collect();
            let _ = write!(text, "\n{}: {unit}\n{}", it.name, table(&head, &rows));
        }
        text
    }

    fn ratios(&self) -> String {
        let row = |it: &Comparison| {
            let [low, high] = it.spread;
            vec![it.name.clone(), format!("{:.2}x", it.ratio), format!("{low:.2} to {high:.2}")]
        };
        let rows: Vec<Vec<String>> = self.comparisons.iter().map(row).collect();
        if rows.is_empty() { String::new() } else { table(&["", "ratio", "half of the rounds"], &rows) }
    }

    /// Draws the CPU time of one TCP stream in either direction.
    pub fn draw(&self, path: &Path) -> Outcome<()> {
        std::fs::write(path, chart::draw(self)).map_err(|error| format!("{}: {error}", path.display()).into())
    }
}

impl Run {
    pub(super) fn client(&self) -> Option<&Cost> {
        self.client.as_ref()
    }

    pub(super) fn server(&self) -> Option<&Cost> {
        self.server.as_ref()
    }
}

/// The threads of one end with the medians of their cost, if they had a hundredth of it.
fn threads(runs: &[Run], end: fn(&Run) -> Option<&Cost>) -> String {
    let mut costs: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for cost in runs.iter().filter_map(end) {
        for (name, spent) in &cost.threads {
            costs.entry(name).or_default().push(*spent);
        }
    }
    let medians: Vec<(&str, f64)> = costs.iter().map(|(name, spent)| (*name, median(spent))).collect();
    let total: f64 = medians.iter().map(|(_, spent)| spent).sum();
    let shown = medians.iter().filter(|(_, spent)| *spent >= total / 100.0);
    shown.map(|(name, spent)| format!("{name} {}", short(*spent))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A run with these costs of a client and a server: user and system.
    pub(crate) fn run(value: f64, client: [f64; 2], server: [f64; 2]) -> Run {
        let cost = |[user, system]: [f64; 2]| {
            let threads = BTreeMap::from([("openvpn".to_owned(), user + system)]);
            Some(Cost { user, system, threads, busiest: 0.9 })
        };
        Run { value, tail: None, client: cost(client), server: cost(server), softirq: Some(0.5) }
    }

    /// A report with one measurement: name of the pair, and its only run.
    pub(crate) fn report(pairs: &[(&str, Run)]) -> Report {
        let names = pairs.iter().map(|(name, _)| PairNames {
            name: (*name).to_owned(),
            client: "1".to_owned(),
            server: "2".to_owned(),
        });
        let runs = pairs.iter().map(|(_, run)| vec![run.clone()]).collect();
        let measurement =
            Measurement { name: TO_SERVER.to_owned(), unit: "Gbit/s", cost_unit: Some("CPU s/GB"), runs };
        Report::new(Machine::example(), 1, 1, names.collect(), vec![measurement], Vec::new())
    }

    #[test]
    fn pairs_are_compared_if_both_were_measured() {
        let report = report(&[
            (OURS, run(8.0, [0.5, 0.5], [0.5, 0.5])),
            (STOCK, run(1.0, [2.0, 3.0], [2.0, 3.0])),
            (OUR_SERVER, run(1.2, [2.0, 3.0], [0.5, 0.75])),
        ]);
        let ratios: Vec<f64> = report.comparisons.iter().map(|it| it.ratio).collect();
        assert_eq!(ratios, [8.0, 0.2, 0.25, 1.2]);
        let text = report.text();
        assert!(
            text.contains("TCP to the server, CPU per GB of the server: openvpn-to-postern / openvpn  0.25x"),
            "{text}"
        );
        assert!(text.contains("openvpn 1.25"), "threads are shown: {text}");
    }

    #[test]
    fn what_was_not_measured_is_a_dash() {
        let mut report =
            report(&[(OURS, run(8.0, [0.5; 2], [0.5; 2])), (STOCK, run(1.0, [1.0; 2], [1.0; 2]))]);
        report.measurements[0].runs[1].clear();
        assert!(report.speeds().lines().any(|line| line.starts_with(STOCK) && line.ends_with('-')));
        assert!(report.compare().is_empty());
    }
}
