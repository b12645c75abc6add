//! What rules look at: the facts, what was counted before, and the machine.

use super::machine::Machine;
use crate::bottleneck::{Processors, Shares};
use crate::facts::model::Facts;
use config::settings::Watched;
use crypto::machine::Files;
use std::collections::HashMap;

/// What is kept of a snapshot, for rates.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// On the clock of [`Facts::moment`].
    pub(super) moment: u64,
    started: u64,
    /// Packets, by interface and reason.
    pub(super) drops: HashMap<(String, String), u64>,
    /// Nanoseconds, by the number of the thread.
    pub(super) threads: HashMap<u32, u64>,
}

impl Counts {
    pub(super) fn of(facts: &Facts) -> Self {
        Self {
            moment: facts.moment,
            started: facts.daemon.started,
            drops: drops(facts),
            threads: facts.threads.iter().map(|it| (it.id, it.nanoseconds)).collect(),
        }
    }
}

/// Packets that were dropped, by interface and reason.
pub(super) fn drops(facts: &Facts) -> HashMap<(String, String), u64> {
    let each = facts.drops.iter();
    let each =
        each.map(|it| ((it.interface.clone(), it.reason.clone()), it.outbound + it.inbound + it.handshake));
    each.collect()
}

/// What rules look at.
#[derive(Debug)]
pub(super) struct Sight<'a> {
    pub(super) before: Option<&'a Counts>,
    pub(super) now: &'a Facts,
    pub(super) seen: Seen<'a>,
}

/// What rules about the machine look at.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// What the processors did since the last look, or since the machine has started.
    pub(super) shares: Option<Shares>,
    /// The part of the memory that is available, or why it is not known.
    pub(super) available: Result<f64, String>,
    pub(super) machine: &'a Machine,
    /// What its counters are compared with.
    pub(super) span: Span<'a>,
    /// What the configuration says, or why that is not known.
    pub(super) configured: Result<&'a Watched, String>,
    /// What is known of the daemon, if one was asked.
    pub(super) facts: Option<&'a Facts>,
    /// Seconds since 1970.
    pub(super) at: u64,
}

/// What the counters of a machine are compared with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Span<'a> {
    /// With nothing: what was counted since the machine has started.
    Boot,
    /// With nothing yet: a rate needs another reading.
    First,
    /// With a reading so many seconds before.
    Since(&'a Machine, f64),
}

impl Sight<'_> {
    /// The counts before, and the seconds since.
    pub(super) fn since(&self) -> Result<(&Counts, f64), String> {
        let before = self.before.ok_or("rates need two snapshots of facts")?;
        let milliseconds = self.now.moment.checked_sub(before.moment).filter(|&it| it > 0);
        let is_same = before.started == self.now.daemon.started;
        let milliseconds =
            milliseconds.filter(|_| is_same).ok_or("both snapshots of facts are of one moment")?;
        Ok((before, milliseconds as f64 / 1000.0))
    }
}

/// What the machine says of itself.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) processors: Option<Processors>,
    pub(super) available: Result<f64, String>,
}

impl Host {
    /// Reads `/proc/stat` and `/proc/meminfo`.
    pub(super) fn read(files: Files<'_>) -> Self {
        let stat = files.text("proc/stat").unwrap_or_default();
        Self { processors: Processors::parse(&stat), available: available(files) }
    }
}

/// The part of the memory that programs could have, from proc_meminfo(5).
fn available(files: Files<'_>) -> Result<f64, String> {
    let text = files.text("proc/meminfo")?;
    let field = |name: &str| -> Option<f64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let part = field("MemAvailable:").zip(field("MemTotal:")).filter(|(_, all)| *all > 0.0);
    part.map(|(free, all)| free / all).ok_or_else(|| "/proc/meminfo has no MemAvailable".to_owned())
}
