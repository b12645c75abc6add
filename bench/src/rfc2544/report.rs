//! The result: for each frame size the tester's own limits, the measurements, and every trial.

use super::esp::EspReport;
use super::plan::Plan;
use super::procedure::{BackToBack, Latency, LossPoint, Throughput};
use super::protection::ProtectionReport;
use super::receiver::StreamCounts;
use super::streams::{Family, Stream};
use super::trial::{Delays, Purpose, Trial};
use super::wireguard::WireGuardReport;
use super::{Options, chart, text};
use crate::Outcome;
use crate::report::Machine;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The tester's own limits: its ports, connected to each other.
#[derive(Clone, Debug, Serialize)]
pub struct Calibration {
    /// Frames a second that it offers at most, in each direction.
    pub most: f64,
    /// Its throughputs, for the same shares of loss.
    pub rates: Vec<Option<f64>>,
    /// Delays at half of what it carries.
    pub floor: Option<Delays>,
}

/// What became of the frames of one stream in all trials through the device.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StreamResult {
    /// Its addresses and ports.
    #[serde(flatten)]
    pub stream: Stream,
    /// Its counts.
    #[serde(flatten)]
    pub counts: StreamCounts,
}

impl StreamResult {
    /// The streams of all directions, added up over the trials.
    pub(super) fn of(streams: &[Vec<Stream>; 2], trials: &[Trial]) -> Vec<Self> {
        let through = || trials.iter().filter(|trial| trial.purpose != Purpose::Calibration);
        let directions = through().map(|trial| trial.streams.len()).max().unwrap_or_default();
        let of_direction = |direction: usize| {
            streams[direction].iter().enumerate().map(move |(number, &stream)| {
                let counts = through().filter_map(|trial| trial.streams.get(direction)?.get(number));
                let counts = counts.fold(StreamCounts::default(), |sum, &counts| sum.and(counts));
                Self { stream, counts }
            })
        };
        (0..directions).flat_map(of_direction).collect()
    }
}

/// The result for one frame size.
#[derive(Clone, Debug, Serialize)]
pub struct SizeResult {
    /// The size, the frame check sequence included, or the name of a mix.
    pub name: String,
    /// Mean bytes of a frame, the frame check sequence included.
    pub bytes: f64,
    /// Frames a second that the line carries, if it has a speed.
    pub line: Option<f64>,
    /// The highest rate that was tried.
    pub most: f64,
    /// The tester's own limits.
    pub calibration: Calibration,
    /// Throughputs: PDR 0.5%, PDR 0.1%, NDR.
    pub throughput: Vec<Throughput>,
    /// Delays at shares of the NDR.
    pub latency: Vec<Latency>,
    /// The frame loss curve.
    pub loss: Vec<LossPoint>,
    /// The longest bursts; none if the device keeps up, or if they were not measured.
    pub back_to_back: Option<BackToBack>,
    /// What became of each stream, if there were several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamResult>,
    /// Every trial in order.
    pub trials: Vec<Trial>,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The kind of the ports.
    pub wire: String,
    /// Their interfaces.
    pub interfaces: [String; 2],
    /// How they were opened.
    pub ports: [String; 2],
    /// Whether NAPI of the interfaces was deferred.
    pub is_napi_deferred: bool,
    /// Whether frames went in both directions at once.
    pub both: bool,
    /// The protocol of the frames.
    pub protocol: super::Protocol,
    /// The version of IP of the frames.
    pub family: Family,
    /// Streams in each direction.
    pub streams: usize,
    /// Whether one frame in a hundred was a broadcast frame, beside those that are counted.
    pub broadcasts: bool,
    /// ESP, if a port has it.
    pub esp: Option<EspReport>,
    /// WireGuard, if a port has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wireguard: Option<WireGuardReport>,
    /// The core of the tester.
    pub core: usize,
    /// The kernel's clock source.
    pub clock_source: String,
    /// Lengths and repetitions.
    pub plan: Plan,
    /// The results by size.
    pub sizes: Vec<SizeResult>,
}

impl Report {
    pub(super) fn new(
        machine: Machine,
        options: &Options,
        ports: [String; 2],
        clock_source: String,
        protection: ProtectionReport,
        sizes: Vec<SizeResult>,
    ) -> Self {
        Self {
            machine,
            wire: options.wire.name().to_owned(),
            interfaces: options.interfaces.clone(),
            ports,
            is_napi_deferred: options.defer_napi,
            both: options.both,
            protocol: options.protocol,
            family: options.addresses.family(),
            streams: options.addresses.streams[0].len(),
            broadcasts: options.broadcasts,
            esp: protection.esp,
            wireguard: protection.wireguard,
            core: options.core,
            clock_source,
            plan: options.plan.clone(),
            sizes,
        }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        text::write(self)
    }

    /// Draws throughput, latency and frame loss as SVG into a directory; returns the paths.
    pub fn draw(&self, directory: &Path) -> Outcome<Vec<PathBuf>> {
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(directory).map_err(|error| failed(directory, error))?;
        let mut written = Vec::new();
        for (name, svg) in chart::draw(self) {
            let path = directory.join(format!("{name}.svg"));
            std::fs::write(&path, svg).map_err(|error| failed(&path, error))?;
            written.push(path);
        }
        Ok(written)
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::host::Disturbance;
    use super::super::procedure::{Limit, SHARES};
    use super::super::receiver::Counts;
    use super::super::trial::Purpose;
    use super::*;

    fn trial(rate: f64, lost: u64, steal_ms: f64) -> Trial {
        let counts = Counts { sent: 1000, received: 1000 - lost, ..Counts::default() };
        Trial {
            purpose: Purpose::Throughput,
            rate: Some(rate),
            offered: rate,
            seconds: 1.0,
            burst: 1,
            counts,
            lost,
            directions: vec![counts],
            spread: None,
            streams: Vec::new(),
            late_share: 0.01,
            delays: None,
            ipdv: None,
            samples: Vec::new(),
            disturbance: Disturbance { steal_ms, ..Disturbance::default() },
            ports: std::collections::BTreeMap::new(),
        }
    }

    fn size(name: &str, bytes: f64, ndr: f64, limit: Option<Limit>) -> SizeResult {
        let throughput = |loss: f64| Throughput {
            loss,
            searches: vec![Some(ndr * 0.9), Some(ndr), Some(ndr * 1.1)],
            rate: Some(ndr),
            limit,
        };
        let floor = Delays { least: 1.0, mean: 2.0, median: 2.0, p99: 3.0, p999: 4.0, most: 5.0 };
        SizeResult {
            name: name.to_owned(),
            bytes,
            line: None,
            most: 2e6,
            calibration: Calibration { most: 2e6, rates: vec![Some(1.9e6); 3], floor: Some(floor) },
            throughput: SHARES.map(throughput).to_vec(),
            latency: vec![Latency {
                allowed: 0.0,
                share: 1.0,
                rate: ndr,
                tagged_mean: 21.0,
                typical: 20.0,
                worst: 90.0,
                typical_range: [18.0, 25.0],
                worst_range: [90.0; 2],
                variation: 70.0,
                ipdv: [-40.0, 0.1, 60.0],
                loss: 0.0,
            }],
            loss: [(1.0, 0.5), (0.9, 0.4), (0.8, 0.0), (0.7, 0.0)]
                .map(|(share, loss)| LossPoint { share, rate: 2e6 * share, loss })
                .to_vec(),
            back_to_back: None,
            streams: Vec::new(),
            trials: vec![trial(2e6, 500, 10.0), trial(ndr, 0, 0.0)],
        }
    }

    /// A report of two sizes.
    pub fn example() -> Report {
        Report {
            machine: Machine::example(),
            wire: "memory".to_owned(),
            interfaces: ["a", "b"].map(str::to_owned),
            ports: ["rings", "rings"].map(str::to_owned),
            is_napi_deferred: false,
            both: false,
            protocol: super::super::Protocol::Udp,
            family: Family::V4,
            streams: 1,
            broadcasts: false,
            esp: None,
            wireguard: None,
            core: 0,
            clock_source: "tsc".to_owned(),
            plan: Plan::quick(),
            sizes: vec![size("64", 64.0, 1e6, None), size("1518", 1518.0, 5e5, Some(Limit::Tester))],
        }
    }

    #[test]
    fn json_has_every_trial_with_its_counts() {
        let json = serde_json::to_value(example()).expect("it is plain data");
        let trial = &json["sizes"][0]["trials"][0];
        assert_eq!((trial["purpose"].as_str(), trial["lost"].as_u64()), (Some("throughput"), Some(500)));
        assert_eq!(
            (trial["sent"].as_u64(), trial["disturbance"]["steal_ms"].as_f64()),
            (Some(1000), Some(10.0))
        );
    }
}
