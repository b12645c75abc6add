//! `postern doctor crypto`: finds unused acceleration.
//!
//! [`measure`] looks and measures; the rest are functions of what it saw: [`processor`], [`libraries`], [`bus`].

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

/// All that is examined.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The machine.
    pub machine: Machine,
    /// This program.
    pub build: Build,
    /// Capability words in the environment: variables and their values.
    pub words: Vec<(String, String)>,
    /// Engines that are not here, and why.
    pub absent: Vec<(String, Unavailable)>,
    /// What was measured.
    pub trials: Vec<Trial>,
}

/// How this program was built.
#[derive(Clone, Debug, Default)]
pub struct Build {
    /// Rust's word for the processor, such as `x86_64` or `arm`.
    pub architecture: String,
    /// Whether the compiler was told that every processor has NEON.
    pub neon: bool,
    /// Whether it was built to be debugged.
    pub debug: bool,
}

/// An engine's speed with what a processor has, and without.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// What was left out.
    pub capability: Capability,
    /// What was computed.
    pub subject: &'static str,
    /// Bytes at a time.
    pub size: usize,
    /// The engine.
    pub engine: String,
    /// Bytes a second, as things are.
    pub speed: f64,
    /// The same without the capability; nothing for an engine that cannot leave it out.
    pub without: Option<f64>,
    /// The same with the capability words taken out of the environment, if there are any.
    pub freed: Option<f64>,
}

/// A capability is used if it makes this much of a difference.
const MATTERS: f64 = 1.10;

impl Trial {
    /// Bytes a second, when no variable hides anything.
    fn at_best(&self) -> f64 {
        self.freed.unwrap_or(self.speed)
    }

    /// Whether the engine does as well without the capability.
    fn is_indifferent(&self) -> bool {
        self.without.is_some_and(|without| self.at_best() < without * MATTERS)
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Packets are slower than they could be.
    Loss,
    /// Good to know; Postern itself loses nothing by it.
    Note,
}

/// Something that is left unused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A name that does not change, for scripts.
    pub name: &'static str,
    /// How much it matters.
    pub weight: Weight,
    /// What it is, in a sentence.
    pub what: String,
    /// What shows it.
    pub evidence: String,
    /// What it costs.
    pub cost: String,
    /// What to do: commands, or a sentence.
    pub mend: Vec<String>,
}

/// What was found, losses first.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Each.
    pub findings: Vec<Finding>,
    /// Which processor was examined.
    pub processor: String,
    /// What it has, of all that matters.
    pub capabilities: Vec<&'static str>,
    /// Whether engines were measured, or files read only.
    pub measured: bool,
}

/// Examines everything.
pub fn examine(inputs: &Inputs) -> Report {
    let mut findings =
        [processor::findings(inputs), libraries::findings(inputs), bus::findings(inputs)].concat();
    findings.sort_by_key(|finding| finding.weight);
    let processor = &inputs.machine.processor;
    Report {
        findings,
        processor: processor.model.clone(),
        capabilities: processor.capabilities().into_iter().map(Capability::name).collect(),
        measured: !inputs.trials.is_empty(),
    }
}

impl Report {
    /// Whether anything costs speed; notes do not.
    pub fn has_losses(&self) -> bool {
        self.findings.iter().any(|finding| finding.weight == Weight::Loss)
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let has = if self.capabilities.is_empty() { "none".to_owned() } else { self.capabilities.join(", ") };
        let mut text = format!("{}; instructions that matter: {has}\n", self.processor);
        if !self.measured {
            text += "files were read, nothing was measured\n";
        }
        for finding in &self.findings {
            let sign = if finding.weight == Weight::Loss { '!' } else { '-' };
            let _ = writeln!(text, "\n{sign} {} [{}]", finding.what, finding.name);
            let parts = [("evidence", &finding.evidence), ("cost", &finding.cost)];
            text.extend(parts.iter().map(|(name, value)| format!("  {name:<9} {value}\n")));
            let mut name = "mend";
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

/// Bytes a second for people.
fn gigabytes(speed: f64) -> String {
    format!("{} GB/s", short(speed / 1e9))
}
