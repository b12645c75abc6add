//! `postern bench tunnel`: real traffic through two gateways on this machine, compared with other daemons.
//!
//! All tunnels connect the same two namespaces, and each measurement is made on them in turn, so that other load on the
//! machine affects all. Every second round goes backwards: no daemon is always the first.

use crate::Outcome;
use crate::calls::{self, Calls, Counts, Watch};
use crate::report::{Machine, median, short, table};
use indicatif::{ProgressBar, ProgressStyle};
use lab::Lab;
use lab::ipsec;
use lab::traffic::{self, Transfer};
use lab::wireguard::{Daemon, Plan, Tunnel};
use serde::Serialize;
use std::time::Duration;

/// What to measure.
pub struct Options {
    /// The daemons to compare; ratios are relative to the first.
    pub daemons: Vec<Daemon>,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Number of measurements of each kind.
    pub rounds: u32,
    /// Only the measurements whose name contains this.
    pub only: Option<String>,
    /// Whether to show progress.
    pub progress: bool,
}

/// One kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Tcp { streams: u32, reverse: bool },
    Udp { payload: u32 },
    RoundTripIdle,
    RoundTripLoaded,
}

/// All measurements, in order. A UDP payload of 1372 bytes is an IP packet of 1400.
const TESTS: &[Test] = &[
    Test::RoundTripIdle,
    Test::Tcp { streams: 1, reverse: false },
    Test::Tcp { streams: 1, reverse: true },
    Test::Tcp { streams: 4, reverse: false },
    Test::Tcp { streams: 4, reverse: true },
    Test::Udp { payload: 64 },
    Test::Udp { payload: 1372 },
    Test::RoundTripLoaded,
];

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// The daemons and their versions.
    pub daemons: Vec<(String, String)>,
    /// The measured quantities.
    pub results: Vec<Quantity>,
    /// What the workers that carried the packets have asked of the kernel.
    pub calls: Vec<Calls>,
    /// Failed measurements: measurement, daemon, error.
    pub failures: Vec<[String; 3]>,
}

/// A quantity, measured on each daemon.
#[derive(Debug, Serialize)]
pub struct Quantity {
    /// The name.
    pub name: String,
    /// The unit.
    pub unit: &'static str,
    /// Whether more is better.
    pub more_is_better: bool,
    /// All values, by daemon; empty if it could not be measured.
    pub values: Vec<Vec<f64>>,
    /// The medians, by daemon.
    pub medians: Vec<f64>,
    /// The first daemon's median divided by each daemon's.
    pub ratios: Vec<f64>,
    /// Between which two of the rounds' own ratios the middle half of them lies. If 1 lies between them, the daemons do not
    /// differ as far as this measurement shows.
    pub spreads: Vec<[f64; 2]>,
}

impl Quantity {
    fn new(name: String, unit: &'static str, more_is_better: bool, daemons: usize) -> Self {
        Self {
            name,
            unit,
            more_is_better,
            values: vec![Vec::new(); daemons],
            medians: vec![],
            ratios: vec![],
            spreads: vec![],
        }
    }

    fn finish(&mut self) {
        self.medians = self.values.iter().map(|values| median(values)).collect();
        self.ratios = self.medians.iter().map(|&other| self.medians[0] / other).collect();
        let ours = &self.values[0];
        let by_round = |theirs: &Vec<f64>| ours.iter().zip(theirs).map(|(our, their)| our / their).collect();
        self.spreads = self.values.iter().map(|theirs| quartiles(by_round(theirs))).collect();
    }
}

/// The first and the third quartile; of less than four values the least and the greatest.
pub(crate) fn quartiles(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    let skipped = values.len() / 4;
    [skipped, values.len().saturating_sub(1 + skipped)].map(|at| values.get(at).copied().unwrap_or(f64::NAN))
}

impl Test {
    fn name(self) -> String {
        match self {
            Self::Tcp { streams, reverse } => {
                format!("TCP, {streams} {}{}", plural(streams), if reverse { ", reverse" } else { "" })
            }
            Self::Udp { payload: 1372 } => "UDP, packets of 1400 bytes".to_owned(),
            Self::Udp { payload } => format!("UDP, payload of {payload} bytes"),
            Self::RoundTripIdle => "round trip, idle".to_owned(),
            Self::RoundTripLoaded => "round trip, under TCP load".to_owned(),
        }
    }

    /// The quantities of a measurement: name, unit, and whether more is better.
    fn quantities(self) -> Vec<(String, &'static str, bool)> {
        let name = self.name();
        match self {
            Self::Tcp { .. } => {
                vec![(name.clone(), "Gbit/s", true), (format!("{name}: both gateways"), "CPU s/GB", false)]
            }
            Self::Udp { .. } => vec![
                (format!("{name}, delivered"), "kpackets/s", true),
                (format!("{name}: both gateways"), "CPU us/packet", false),
            ],
            Self::RoundTripIdle | Self::RoundTripLoaded => {
                vec![
                    (format!("{name}, median"), "ms", false),
                    (format!("{name}, 99th percentile"), "ms", false),
                ]
            }
        }
    }

    /// From which gateway of a tunnel its packets go, if they go one way.
    fn sender(self) -> Option<usize> {
        match self {
            Self::Tcp { reverse, .. } => Some(usize::from(reverse)),
            Self::Udp { .. } => Some(0),
            Self::RoundTripIdle | Self::RoundTripLoaded => None,
        }
    }

    /// Measures once; the values are those of [`quantities`](Self::quantities).
    fn measure(self, lab: &Lab, tunnel: &Tunnel, seconds: u32) -> Outcome<Vec<f64>> {
        let (from, to) = (tunnel.gateways[0].namespace.as_str(), tunnel.inside[1].as_str());
        let costing = |transfer: &dyn Fn() -> Outcome<Transfer>| -> Outcome<(Transfer, f64)> {
            let before = tunnel.cpu_seconds()?;
            let transfer = transfer()?;
            Ok((transfer, tunnel.cpu_seconds()? - before))
        };
        match self {
            Self::Tcp { streams, reverse } => {
                let (transfer, cpu) = costing(&|| traffic::tcp(lab, from, to, streams, reverse, seconds))?;
                Ok(vec![transfer.gigabits(), cpu / (transfer.bytes / 1e9)])
            }
            Self::Udp { payload } => {
                let (transfer, cpu) = costing(&|| traffic::udp(lab, from, to, payload, seconds))?;
                Ok(vec![transfer.kilopackets(), cpu * 1e6 / transfer.packets.max(1.0)])
            }
            Self::RoundTripIdle => {
                let times = traffic::ping(lab, from, to, 100, Duration::from_millis(10))?;
                Ok(vec![times.quantile(0.5), times.quantile(0.99)])
            }
            Self::RoundTripLoaded => std::thread::scope(|scope| {
                let load =
                    scope.spawn(|| traffic::tcp(lab, from, to, 1, false, seconds).map_err(|e| e.to_string()));
                std::thread::sleep(Duration::from_millis(500));
                let count = (seconds.max(2) - 1) * 50;
                let times = traffic::ping(lab, from, to, count, Duration::from_millis(20))?;
                load.join().map_err(|_| "the load failed")??;
                Ok(vec![times.quantile(0.5), times.quantile(0.99)])
            }),
        }
    }
}

fn plural(streams: u32) -> &'static str {
    if streams == 1 { "stream" } else { "streams" }
}

/// Measures WireGuard.
pub fn run(options: &Options) -> Outcome<Report> {
    let extent = Extent::new(options.seconds, options.rounds, options.only.as_deref(), options.progress)?;
    let mut lab = Lab::new(&["a", "b"])?;
    let outside = ["192.168.77.1", "192.168.77.2"];
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))?;
    let mut tunnels = Vec::new();
    for (index, daemon) in options.daemons.iter().enumerate() {
        let (name, net) = (["p", "q", "r"][index % 3], format!("10.{}", 77 + index));
        let port = 51_820 + index as u16;
        let plan = Plan { name, namespaces: ["a", "b"], outside, port, net: &net, mtu: 1420 };
        tunnels.push(Tunnel::start(&mut lab, daemon, &plan)?);
    }
    traffic::serve(&mut lab, "b")?;
    let daemons = options.daemons.iter().map(|daemon| (daemon.name(), daemon.version())).collect();
    measure_all(&lab, daemons, &tunnels.iter().collect::<Vec<_>>(), &extent)
}

/// How much to measure.
struct Extent {
    tests: Vec<Test>,
    seconds: u32,
    rounds: u32,
    progress: bool,
}

impl Extent {
    fn new(seconds: u32, rounds: u32, only: Option<&str>, progress: bool) -> Outcome<Self> {
        let is_wanted = |test: &Test| only.is_none_or(|only| test.name().contains(only));
        let tests: Vec<Test> = TESTS.iter().copied().filter(is_wanted).collect();
        if tests.is_empty() {
            let known: Vec<String> = TESTS.iter().map(|test| test.name()).collect();
            return Err(format!(
                "no measurement has {:?} in its name\n  fix: one of: {}",
                only.unwrap_or_default(),
                known.join("; ")
            )
            .into());
        }
        Ok(Self { tests, seconds, rounds, progress })
    }
}

/// What to measure for IPsec.
pub struct IpsecOptions {
    /// The gateways to compare; ratios are relative to the first.
    pub daemons: Vec<ipsec::Daemon>,
    /// Seconds for each measurement.
    pub seconds: u32,
    /// Number of measurements of each kind.
    pub rounds: u32,
    /// Only the measurements whose name contains this.
    pub only: Option<String>,
    /// Whether to show progress.
    pub progress: bool,
}

/// Measures IPsec between two sites, compared with other gateways.
pub fn run_ipsec(options: &IpsecOptions) -> Outcome<Report> {
    const NAMESPACES: [[&str; 2]; 4] = [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]];
    let extent = Extent::new(options.seconds, options.rounds, options.only.as_deref(), options.progress)?;
    let mut lab = Lab::new(&NAMESPACES.as_flattened()[..2 * options.daemons.len().min(4)])?;
    let mut pairs = Vec::new();
    for ((daemon, namespaces), net) in options.daemons.iter().zip(NAMESPACES).zip(81..) {
        let [near, far] = namespaces;
        lab.connect((near, "outside", "192.168.77.1/24"), (far, "outside", "192.168.77.2/24"))?;
        pairs.push(daemon.join(&mut lab, namespaces, net)?);
        traffic::serve(&mut lab, far)?;
    }
    let daemons = options.daemons.iter().map(|daemon| (daemon.name().to_owned(), daemon.version())).collect();
    let tunnels: Vec<&Tunnel> = pairs.iter().map(|pair| &pair.tunnel).collect();
    measure_all(&lab, daemons, &tunnels, &extent)
}

/// Makes every measurement on each tunnel in turn, in every second round backwards.
fn measure_all(
    lab: &Lab,
    daemons: Vec<(String, String)>,
    tunnels: &[&Tunnel],
    extent: &Extent,
) -> Outcome<Report> {
    let (mut results, mut calls, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let steps = extent.tests.len() * tunnels.len() * extent.rounds as usize;
    let progress = progress_bar(extent.progress, steps as u64);
    for test in &extent.tests {
        let mut quantities: Vec<Quantity> = test
            .quantities()
            .into_iter()
            .map(|(name, unit, more)| Quantity::new(name, unit, more, tunnels.len()))
            .collect();
        let mut counts: Vec<Counts> = tunnels.iter().map(|_| Counts::default()).collect();
        for round in 0..extent.rounds {
            for position in 0..tunnels.len() {
                let index = if round % 2 == 0 { position } else { tunnels.len() - 1 - position };
                let (tunnel, daemon) = (tunnels[index], &daemons[index].0);
                progress.set_message(format!("{} on {daemon}", test.name()));
                let watched = test.sender().and_then(|sender| Watch::start(lab, tunnel, sender));
                let values = match test.measure(lab, tunnel, extent.seconds) {
                    Ok(values) => values,
                    // A failure of another daemon is reported; a failure of the first ends the benchmark.
                    Err(error) if index > 0 => {
                        failures.push([test.name(), daemon.clone(), error.to_string()]);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                counts[index].extend(watched.and_then(|watch| watch.end(lab, tunnel)));
                for (quantity, value) in quantities.iter_mut().zip(values) {
                    quantity.values[index].push(value);
                }
                progress.inc(1);
            }
        }
        quantities.iter_mut().for_each(Quantity::finish);
        results.extend(quantities);
        let of_daemons = counts.into_iter().zip(&daemons);
        calls.extend(of_daemons.flat_map(|(counts, (daemon, _))| counts.finish(&test.name(), daemon)));
    }
    progress.finish_and_clear();
    Ok(Report { machine: Machine::here(), seconds: extent.seconds, daemons, results, calls, failures })
}

pub(crate) fn progress_bar(shown: bool, steps: u64) -> ProgressBar {
    if !shown {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").expect("a literal template");
    let bar = ProgressBar::new(steps).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let names: Vec<&str> = self.daemons.iter().map(|(name, _)| name.as_str()).collect();
        let mut head = vec!["", "unit"];
        head.extend(&names);
        let heads = |name: &&str| [format!("to {name}"), "half of the rounds".to_owned()];
        let ratio_heads: Vec<String> = names.iter().skip(1).flat_map(heads).collect();
        head.extend(ratio_heads.iter().map(String::as_str));
        let row = |quantity: &Quantity| {
            let words = vec![quantity.name.clone(), quantity.unit.to_owned()];
            let known = |value: f64, text: String| if value.is_finite() { text } else { "-".to_owned() };
            let medians = quantity.medians.iter().map(|&value| known(value, short(value))).collect();
            let ratios = quantity.ratios.iter().zip(&quantity.spreads).skip(1);
            let ratios = ratios.flat_map(|(&ratio, &[low, high])| {
                [known(ratio, format!("{ratio:.2}x")), known(low, format!("{low:.2} to {high:.2}"))]
            });
            let ratios = ratios.collect();
            [words, medians, ratios].concat()
        };
        let rows: Vec<Vec<String>> = self.results.iter().map(row).collect();
        let versions: Vec<String> =
            self.daemons.iter().map(|(name, version)| format!("{name}: {version}")).collect();
        let failures = self.failures.iter();
        let failures = failures.map(|[test, daemon, why]| format!("{daemon} failed: {test}: {why}\n"));
        format!(
            "{}{}\nmedians of {} measurements of {} s, in alternation, every second round backwards\n\n{}{}{}",
            self.machine.head(),
            versions.join("\n"),
            self.results.first().map_or(0, |quantity| quantity.values[0].len()),
            self.seconds,
            table(&head, &rows),
            calls::text(&self.calls),
            failures.collect::<String>()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_middle_half_of_the_rounds() {
        let mut quantity = Quantity::new(String::new(), "", true, 2);
        quantity.values = vec![vec![1.0, 2.0, 8.0, 4.0, 5.0], vec![1.0, 1.0, 2.0, 2.0, 1.0]];
        quantity.finish();
        assert_eq!(quantity.spreads, [[1.0, 1.0], [2.0, 4.0]]);
        assert_eq!(vec![quartiles(vec![3.0, 1.0])], [[1.0, 3.0]]);
        assert!(quartiles(Vec::new())[0].is_nan());
    }

    #[test]
    fn measurements_are_chosen_by_a_part_of_their_name() {
        let chosen = |only| Extent::new(1, 1, only, false).map(|extent| extent.tests.len());
        assert_eq!(chosen(None).ok(), Some(TESTS.len()));
        assert_eq!(chosen(Some("UDP")).ok(), Some(2));
        assert!(chosen(Some("udp6")).is_err());
    }
}
