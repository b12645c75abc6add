//! The result: every step at every device, with every trial.

use super::overload::Window;
use super::protocol::{Part, Setup};
use super::{chart, text};
use crate::Outcome;
use crate::report::Machine;
use crate::rfc2544::trial::{Delays, Trial};
use crate::rfc2544::{Plan, Protocol, SizeResult};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A program that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Subject {
    /// Its name.
    pub name: String,
    /// Its version, its crypto engine, and how it is set up.
    pub told: String,
}

/// Loss and delay at a rate of the document's figures.
#[derive(Clone, Debug, Serialize)]
pub struct Fixed {
    /// Bits a second on the line, in each direction.
    pub bits: f64,
    /// Whether the tester could not offer that.
    pub is_tester_limited: bool,
    /// The share of the offered frames that was lost.
    pub loss: f64,
    /// Delays of all frames.
    pub delays: Option<Delays>,
    /// The trial.
    pub trial: Trial,
}

/// One step at one device.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The part of the protocol.
    pub part: Part,
    /// The device.
    pub device: String,
    /// What is between the ports of the tester.
    pub setup: Setup,
    /// Whether frames went in both directions at once.
    pub both: bool,
    /// The protocol of the frames.
    pub protocol: Protocol,
    /// Frames that leave together.
    pub burst: u64,
    /// Processor time of the device, in percent of a core.
    pub cpu_percent: Option<f64>,
    /// Time that the hypervisor took, in percent of all cores.
    pub steal_percent: f64,
    /// Why there is no result.
    pub error: Option<String>,
    /// The result.
    pub result: Option<SizeResult>,
    /// At the rates of the document's figures.
    pub fixed: Vec<Fixed>,
}

/// The whole result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The core of the tester.
    pub tester_core: usize,
    /// The core of the devices.
    pub device_core: usize,
    /// The kernel's clock source.
    pub clock_source: String,
    /// Lengths and repetitions.
    pub plan: Plan,
    /// The devices.
    pub subjects: Vec<Subject>,
    /// Programs that were not measured, and why.
    pub missing: Vec<(String, String)>,
    /// The load average of one minute at the start and at the end.
    pub load: [f64; 2],
    /// Time that the hypervisor took meanwhile, in percent of all cores.
    pub steal_percent: f64,
    /// How long it took.
    pub seconds: f64,
    /// The results.
    pub entries: Vec<Entry>,
    /// Those under overload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overload: Vec<Window>,
}

impl Report {
    /// The report as tables.
    pub fn text(&self) -> String {
        text::write(self)
    }

    /// The results of a part with the names of their devices, those of one size next to each other.
    pub(super) fn of(&self, part: Part) -> Vec<(&Entry, &SizeResult)> {
        let of_part = self.entries.iter().filter(|entry| entry.part == part);
        of_part.filter_map(|entry| Some((entry, entry.result.as_ref()?))).collect()
    }

    /// The lines below the title of each figure: what the figures stand on.
    pub(super) fn conditions(&self) -> String {
        let kind = if self.plan.is_conformant { "" } else { "; scaled, not RFC 2544 conformant" };
        format!(
            "{}; tester on core {}, device on core {}; steal {:.1}%, load {:.1} to {:.1}{kind}",
            self.machine.processor,
            self.tester_core,
            self.device_core,
            self.steal_percent,
            self.load[0],
            self.load[1],
        )
    }

    /// Draws the figures as SVG into a directory; returns the paths.
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
    use super::*;

    /// A report of two devices and two sizes, of which the second device has no rate without loss.
    pub fn example() -> Report {
        let rfc2544 = crate::rfc2544::example();
        let mut entries = Vec::new();
        for size in &rfc2544.sizes {
            for (device, factor) in [("postern", 1.0), ("strongswan", 0.25)] {
                let mut result = size.clone();
                for throughput in &mut result.throughput {
                    throughput.rate = throughput.rate.map(|rate| rate * factor);
                }
                if device == "strongswan" {
                    result.throughput[2].rate = None;
                    result.latency[0].allowed = 0.005;
                }
                let fixed = [1e8, 1e9].map(|bits| Fixed {
                    bits,
                    is_tester_limited: bits > 5e8 && size.name == "64",
                    loss: if device == "postern" { 0.0 } else { 0.3 },
                    delays: size.calibration.floor,
                    trial: result.trials[0].clone(),
                });
                entries.push(Entry {
                    part: Part::FrameSizes,
                    device: device.to_owned(),
                    setup: Setup::Pair,
                    both: true,
                    protocol: Protocol::Tcp,
                    burst: 64,
                    cpu_percent: Some(99.0),
                    steal_percent: 1.5,
                    error: None,
                    result: Some(result),
                    fixed: fixed.to_vec(),
                });
            }
        }
        let subject = |name: &str| Subject { name: name.to_owned(), told: format!("{name} 1.0") };
        Report {
            machine: rfc2544.machine,
            tester_core: 0,
            device_core: 1,
            clock_source: "tsc".to_owned(),
            plan: super::super::quick(),
            subjects: vec![subject("postern"), subject("strongswan")],
            missing: vec![("ipsec-secgw".to_owned(), "apt-get install gcc".to_owned())],
            load: [0.5, 1.5],
            steal_percent: 1.25,
            seconds: 480.0,
            entries,
            overload: Vec::new(),
        }
    }

    #[test]
    fn json_has_every_trial_of_every_step() {
        let report = example();
        let json = serde_json::to_value(&report).expect("it is plain data");
        let entry = &json["entries"][1];
        assert_eq!(
            (entry["part"].as_str(), entry["device"].as_str()),
            (Some("frame-sizes"), Some("strongswan"))
        );
        assert_eq!(entry["result"]["trials"].as_array().map(Vec::len), Some(2));
        assert!(entry["fixed"][1]["trial"]["sent"].as_u64().is_some());
        assert_eq!(json["load"][1].as_f64(), Some(1.5));
    }
}
