//! `postern bench secgw`: the gateway between Ethernet ports, from memory to memory on one core, with SP, SA, RT and NEIGH; beside DPDK's
//! ipsec-secgw in alternation, and with many rules beside one. `--dpdk` measures our gateway with the ports of ipsec-secgw too.

mod load;
mod memory;
mod rival;

pub use load::{Load, Spread, Way};
pub use rival::{Program, build};

use crate::Outcome;
use crate::pipeline::{chosen, imix};
use crate::report::{Machine, median, short, table};
use crate::rfc2544::host::Host;
use crypto::choice::{self, Choice};
use lab::pin_thread;
use memory::Ours;
use rival::Rival;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;

/// What to measure.
pub struct Options {
    /// The engines, and the choice between them.
    pub choice: Arc<Choice>,
    /// Packets that a port receives at once.
    pub burst: usize,
    /// Seconds of a window.
    pub seconds: f64,
    /// Windows of each load.
    pub rounds: u32,
    /// The core of the gateways.
    pub core: usize,
    /// ipsec-secgw, to measure beside ours.
    pub peer: Option<PathBuf>,
    /// Our program, to measure it with ports of DPDK too.
    pub dpdk: Option<PathBuf>,
    /// Only loads whose name contains this.
    pub only: Option<String>,
    /// Packets of which ours keeps fragments; 0 if it does not look for them. No packet of the loads is a fragment.
    pub reassemble: u32,
}

/// The result.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// Packets that our port receives at once; ipsec-secgw takes 32.
    pub burst: usize,
    /// The core of the gateways.
    pub core: usize,
    /// ipsec-secgw, with its version, if it was measured.
    pub peer: Option<String>,
    /// The results by load and way.
    pub rows: Vec<Row>,
}

/// The result of one load on one way.
#[derive(Debug, Serialize)]
pub struct Row {
    /// The name of the load.
    pub name: String,
    /// The way.
    pub way: Way,
    /// Rules and SAs in each direction.
    pub rules: usize,
    /// How packets meet rules.
    pub spread: Spread,
    /// Mean size of the IP packets in bytes.
    pub bytes: f64,
    /// The engine of ours.
    pub engine: String,
    /// The windows of ours.
    pub ours: Vec<Window>,
    /// The windows of ipsec-secgw.
    pub peer: Vec<Window>,
    /// The windows of ours with ports of DPDK.
    pub dpdk: Vec<Window>,
}

/// Packets and processor time.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Window {
    /// Packets that left.
    pub packets: u64,
    /// Nanoseconds of processor time for each.
    pub nanoseconds: f64,
    /// Milliseconds that the hypervisor took from all cores meanwhile.
    pub steal_ms: f64,
}

/// A load on a way, with what carries it.
struct Subject {
    row: Row,
    load: Load,
    frames: Vec<Vec<u8>>,
    ours: Ours,
}

/// The loads: packet sizes under one rule; then the smallest packets under more rules. All of two rules stays in the first cache: what it
/// costs above one rule is the work for each SA batch, and what more rules cost above it is memory.
fn loads() -> Vec<Load> {
    let load = |name: &str, sizes, flows, rules, spread| Load {
        name: name.to_owned(),
        sizes,
        flows,
        rules,
        spread,
        reassemble: 0,
    };
    let mut loads = vec![
        load("64 bytes", vec![64], 256, 1, Spread::All),
        load("IMIX", imix(), 300, 1, Spread::All),
        load("1418 bytes", vec![1418], 256, 1, Spread::All),
        load("1 rule", vec![64], 1000, 1, Spread::All),
    ];
    for rules in [2, 100, 1000] {
        loads.push(load(&format!("{rules} rules, one met"), vec![64], 1000, rules, Spread::One));
        loads.push(load(&format!("{rules} rules, all met"), vec![64], 1000, rules, Spread::All));
    }
    loads
}

/// Measures everything.
///
/// # Errors
/// A packet does not pass, or ipsec-secgw does not start.
pub fn run(options: &Options) -> Outcome<Report> {
    // A pinned thread sees one core only.
    let machine = Machine::here();
    pin_thread(None, options.core)?;
    let is_wanted = |load: &Load| options.only.as_ref().is_none_or(|only| load.name.contains(only));
    let mut subjects = Vec::new();
    for load in
        loads().into_iter().filter(is_wanted).map(|load| Load { reassemble: options.reassemble, ..load })
    {
        for way in Way::ALL {
            subjects.push(Subject::new(options, load.clone(), way)?);
        }
    }
    for _ in 0..options.rounds {
        for subject in &mut subjects {
            subject.measure(options)?;
        }
    }
    let rows = subjects.into_iter().map(|subject| subject.row).collect();
    let peer = options.peer.as_ref().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    Ok(Report { machine, burst: options.burst, core: options.core, peer, rows })
}

impl Subject {
    fn new(options: &Options, load: Load, way: Way) -> Outcome<Self> {
        let frames = memory::received(&load, way, &*options.choice)?;
        let ours = Ours::new(&load, way, &*options.choice, frames.clone(), options.burst)?;
        let direction = match way {
            Way::Outbound => choice::Direction::Seal,
            Way::Inbound => choice::Direction::Open,
        };
        let row = Row {
            name: load.name.clone(),
            way,
            rules: load.rules,
            spread: load.spread,
            bytes: load.mean_bytes(),
            engine: chosen(&options.choice, direction, options.burst, &load.sizes),
            ours: Vec::new(),
            peer: Vec::new(),
            dpdk: Vec::new(),
        };
        Ok(Self { row, load, frames, ours })
    }

    /// One window of each gateway, one after the other.
    fn measure(&mut self, options: &Options) -> Outcome<()> {
        // Its caches are cold after the other gateways.
        self.ours.measure(options.seconds / 10.0);
        let before = Host::Here.look();
        let (packets, spent) = self.ours.measure(options.seconds);
        self.row.ours.push(Window::new(packets, spent, Host::Here.look().since(&before).steal_ms));
        if let Some(path) = options.peer.clone() {
            let window = self.window(options, &Program::IpsecSecgw(path))?;
            self.row.peer.push(window);
        }
        if let Some(path) = options.dpdk.clone().filter(|_| self.load.rules == 1) {
            let window = self.window(options, &Program::Postern(path))?;
            self.row.dpdk.push(window);
        }
        Ok(())
    }

    /// A window of a program with ports of DPDK.
    fn window(&self, options: &Options, program: &Program) -> Outcome<Window> {
        let mut rival = Rival::start(program, &self.load, self.row.way, &self.frames, options.core)?;
        let before = Host::Here.look();
        let (packets, spent) = rival.measure(options.seconds)?;
        Ok(Window::new(packets, spent, Host::Here.look().since(&before).steal_ms))
    }
}

impl Window {
    fn new(packets: u64, spent: f64, steal_ms: f64) -> Self {
        Self { packets, nanoseconds: spent / packets as f64, steal_ms }
    }
}

impl Row {
    /// The median of the ratios of neighbouring windows: the time of ipsec-secgw to that of ours.
    pub fn to_peer(&self) -> f64 {
        let pairs = self.ours.iter().zip(&self.peer);
        median(&pairs.map(|(ours, peer)| peer.nanoseconds / ours.nanoseconds).collect::<Vec<_>>())
    }

    /// The median of the ratios to the windows of another row in the same rounds.
    fn to_row(&self, first: &Self) -> f64 {
        let pairs = self.ours.iter().zip(&first.ours);
        median(&pairs.map(|(ours, first)| ours.nanoseconds / first.nanoseconds).collect::<Vec<_>>())
    }

    /// The same with ports of DPDK on both sides.
    fn dpdk_to_peer(&self) -> f64 {
        let pairs = self.dpdk.iter().zip(&self.peer);
        median(&pairs.map(|(ours, peer)| peer.nanoseconds / ours.nanoseconds).collect::<Vec<_>>())
    }

    fn cells(&self, core: usize) -> Vec<String> {
        let (ours, peer) = (times(&self.ours), times(&self.peer));
        let steal: f64 = self.ours.iter().chain(&self.peer).map(|it| it.steal_ms).sum();
        let ratio = self.to_peer();
        vec![
            self.name.clone(),
            self.way.name().to_owned(),
            short(median(&ours)),
            span(&ours),
            short(median(&peer)),
            span(&peer),
            if ratio.is_nan() { "-".to_owned() } else { short(ratio) + "x" },
            self.engine.clone(),
            core.to_string(),
            short(steal),
        ]
    }
}

fn times(windows: &[Window]) -> Vec<f64> {
    windows.iter().map(|it| it.nanoseconds).collect()
}

/// The least and the most.
fn span(times: &[f64]) -> String {
    match times.iter().copied().reduce(f64::min).zip(times.iter().copied().reduce(f64::max)) {
        Some((least, most)) => format!("{} to {}", short(least), short(most)),
        None => "-".to_owned(),
    }
}

impl Report {
    /// As text.
    pub fn text(&self) -> String {
        let rows: Vec<Vec<String>> = self.rows.iter().map(|row| row.cells(self.core)).collect();
        let head = [
            "packets",
            "way",
            "ours ns",
            "spread",
            "ipsec-secgw ns",
            "spread",
            "speed",
            "engine",
            "core",
            "steal ms",
        ];
        let peer = self.peer.as_deref().unwrap_or("not measured (--peer ipsec-secgw)");
        format!(
            "{}frames in memory, AES-128-GCM, SP, SA, RT and NEIGH; bursts of {}\nipsec-secgw: {peer}\n\n{}{}{}",
            self.machine.head(),
            self.burst,
            table(&head, &rows),
            self.dpdk(),
            self.rules()
        )
    }

    /// Ours with the ports of ipsec-secgw.
    fn dpdk(&self) -> String {
        let rows = self.rows.iter().filter(|row| !row.dpdk.is_empty());
        let rows: Vec<Vec<String>> = rows
            .map(|row| {
                let (ours, ratio) = (times(&row.dpdk), row.dpdk_to_peer());
                let ratio = if ratio.is_nan() { "-".to_owned() } else { short(ratio) + "x" };
                let packets = short(1e3 / median(&ours));
                vec![
                    row.name.clone(),
                    row.way.name().to_owned(),
                    short(median(&ours)),
                    span(&ours),
                    packets,
                    ratio,
                ]
            })
            .collect();
        if rows.is_empty() {
            return String::new();
        }
        let head = ["packets", "way", "ours ns", "spread", "million a CPU second", "to ipsec-secgw"];
        format!(
            "\nours with ports of DPDK, net_pcap to net_null as ipsec-secgw has\n\n{}",
            table(&head, &rows)
        )
    }

    /// The time with many rules to that with one.
    fn rules(&self) -> String {
        let of_one = |way| self.rows.iter().find(|row| row.name == "1 rule" && row.way == way);
        let many = self.rows.iter().filter(|row| row.rules > 1);
        let rows: Vec<Vec<String>> = many
            .filter_map(|row| {
                let ratio = row.to_row(of_one(row.way)?);
                Some(vec![row.name.clone(), row.way.name().to_owned(), short(ratio) + "x"])
            })
            .collect();
        if rows.is_empty() {
            String::new()
        } else {
            "\n".to_owned() + &table(&["rules", "way", "to one rule"], &rows)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, rules: usize, ours: &[f64], peer: &[f64]) -> Row {
        let windows = |times: &[f64]| {
            times.iter().map(|&nanoseconds| Window { packets: 9, nanoseconds, steal_ms: 0.5 }).collect()
        };
        Row {
            name: name.to_owned(),
            way: Way::Outbound,
            rules,
            spread: Spread::All,
            bytes: 64.0,
            engine: "ipsec-mb".to_owned(),
            ours: windows(ours),
            peer: windows(peer),
            dpdk: Vec::new(),
        }
    }

    #[test]
    fn a_report_compares_neighbouring_windows() {
        let rows = vec![
            row("64 bytes", 1, &[100.0, 200.0, 100.0], &[120.0, 240.0, 500.0]),
            row("1 rule", 1, &[100.0, 200.0, 100.0], &[]),
            row("1000 rules, all met", 1000, &[130.0, 240.0, 130.0], &[]),
        ];
        let report = Report { machine: Machine::example(), burst: 64, core: 1, peer: None, rows };
        let text = report.text();
        let cells = |text: &str, name: &str| -> String {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            cells(&text, "64 bytes"),
            "64 bytes outbound 100 100 to 200 240 120 to 500 1.20x ipsec-mb 1 3.00",
            "{text}"
        );
        assert!(!text.contains("ports of DPDK"), "{text}");
        let ratios = text.split("to one rule").nth(1).unwrap_or_default();
        assert_eq!(cells(ratios, "1000 rules"), "1000 rules, all met outbound 1.30x", "{text}");
    }

    #[test]
    fn ours_with_ports_of_dpdk_is_compared_with_windows_of_ipsec_secgw() {
        let mut row = row("IMIX", 1, &[100.0, 100.0, 100.0], &[120.0, 240.0, 180.0]);
        row.dpdk =
            [240.0, 200.0, 200.0].map(|nanoseconds| Window { packets: 9, nanoseconds, steal_ms: 0.0 }).into();
        let report = Report { machine: Machine::example(), burst: 64, core: 1, peer: None, rows: vec![row] };
        let text = report.text();
        let line = text
            .split("ports of DPDK")
            .nth(1)
            .and_then(|text| text.lines().find(|line| line.contains("IMIX")));
        let cells = line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(cells, "IMIX outbound 200 200 to 240 5.00 0.90x", "{text}");
    }
}
