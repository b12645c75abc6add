//! `postern doctor crypto`: finds unused acceleration.
//!
//! `measure` collects the inputs. `processor`, `libraries` and `bus` derive findings from them without side effects.

mod bus;
mod libraries;
mod measure;
mod processor;

pub use measure::{gather, read};

use crate::report::short;
use crypto::engine::library::Unavailable;
use crypto::machine::{Capability, Machine};
use serde::Serialize;
use std::fmt::Write as _;

/// The inputs of all checks.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The hardware and the kernel.
    pub machine: Machine,
    /// The build of this program.
    pub build: Build,
    /// Capability variables in the environment, with their values.
    pub words: Vec<(String, String)>,
    /// The engines that this machine lacks, and why.
    pub absent: Vec<(String, Unavailable)>,
    /// The measurements.
    pub trials: Vec<Trial>,
}

/// How this program was built.
#[derive(Clone, Debug, Default)]
pub struct Build {
    /// Rust's name of the architecture, such as `x86_64` or `arm`.
    pub architecture: String,
    /// Whether the compiler could assume NEON.
    pub neon: bool,
    /// Whether debug assertions are on.
    pub debug: bool,
}

/// An engine's speed with and without a CPU feature.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The CPU feature.
    pub capability: Capability,
    /// The cipher or hash that was measured.
    pub subject: &'static str,
    /// Text length in bytes.
    pub size: usize,
    /// The engine.
    pub engine: String,
    /// Bytes per second in the present environment.
    pub speed: f64,
    /// Bytes per second without the feature; `None` for an engine that cannot disable it.
    pub without: Option<f64>,
    /// Bytes per second without the capability variables, if any are set.
    pub freed: Option<f64>,
}

/// A feature counts as used if it makes an engine faster by this factor.
const MATTERS: f64 = 1.10;

impl Trial {
    /// Bytes per second with all features enabled.
    fn at_best(&self) -> f64 {
        self.freed.unwrap_or(self.speed)
    }

    /// Whether the engine is as fast without the feature.
    fn is_indifferent(&self) -> bool {
        self.without.is_some_and(|without| self.at_best() < without * MATTERS)
    }
}

/// The weight of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Packets are slower than they could be.
    Loss,
    /// For information: Postern itself is not slower.
    Note,
}

/// Unused acceleration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name, for scripts.
    pub name: &'static str,
    /// The weight.
    pub weight: Weight,
    /// A description in one sentence.
    pub what: String,
    /// The evidence.
    pub evidence: String,
    /// The cost.
    pub cost: String,
    /// The fix: commands, or a sentence.
    pub mend: Vec<String>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The findings, losses first.
    pub findings: Vec<Finding>,
    /// The model of the processor.
    pub processor: String,
    /// The relevant features of the processor.
    pub capabilities: Vec<&'static str>,
    /// Whether engines were measured, or only files read.
    pub measured: bool,
}

/// Runs all checks.
pub fn examine(inputs: &Inputs) -> Report {
    let mut findings =
        [processor::findings(inputs), libraries::findings(inputs), bus::findings(inputs)].concat();
    findings.sort_by_key(|finding| finding.weight);
    let processor = &inputs.machine.processor;
    Report {
        findings,
        processor: processor.model.clone(),
        capabilities: processor.capabilities().into_iter().map(|it| processor.name_of(it)).collect(),
        measured: !inputs.trials.is_empty(),
    }
}

impl Report {
    /// Whether there is a finding that costs speed.
    pub fn has_losses(&self) -> bool {
        self.findings.iter().any(|finding| finding.weight == Weight::Loss)
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let has = if self.capabilities.is_empty() { "none".to_owned() } else { self.capabilities.join(", ") };
        let mut text = format!("{}; instructions for cryptography and copies: {has}\n", self.processor);
        if !self.measured {
            text += "only files were read, nothing was measured\n";
        }
        for finding in &self.findings {
            let sign = if finding.weight == Weight::Loss { '!' } else { '-' };
            let _ = writeln!(text, "\n{sign} {} [{}]", finding.what, finding.name);
            let parts = [("evidence", &finding.evidence), ("cost", &finding.cost)];
            text.extend(parts.iter().map(|(name, value)| format!("  {name:<9} {value}\n")));
            let mut name = "fix";
            for line in &finding.mend {
                let _ = writeln!(text, "  {name:<9} {line}");
                name = "";
            }
        }
        let losses = self.findings.iter().filter(|finding| finding.weight == Weight::Loss).count();
        match losses {
            0 => text += "\nno unused acceleration\n",
            1 => text += "\n1 finding\n",
            more => {
                let _ = writeln!(text, "\n{more} findings");
            }
        }
        text
    }
}

/// A speed in GB/s.
fn gigabytes(speed: f64) -> String {
    format!("{} GB/s", short(speed / 1e9))
}
