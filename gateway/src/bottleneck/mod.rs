//! What limits the speed of an interface: two readings of counters that workers and the kernel keep anyway, and one sentence.
//!
//! ```text
//! counters ──> Reading ──┐
//!                      ├──> diagnose: limit, evidence, remedy
//! a second later ──────┘
//! ```
//! A worker that is on a processor, or waits for one, nearly all the time limits its direction, and the times of its stages say by what.
//! If it is not, drops name the limit in front of it or behind it. Without drops, TCP segments that are sent again tell of losses elsewhere.

mod diagnose;
mod difference;
mod group;
mod host;
mod path;
mod words;

pub use diagnose::diagnose;
pub use group::Throttled;
pub use host::{Processors, Shares};
pub use path::name_black_holes;

use crate::api::model::{Drop, Handoff, Offload, Segments, StageTime, Thread, Worker};
use std::time::Instant;

/// What is counted so far.
#[derive(Debug, Clone)]
pub struct Reading {
    /// When it was read.
    pub at: Instant,
    /// The threads that carry packets.
    pub threads: Vec<Thread>,
    /// What workers hand off.
    pub handoffs: Vec<Handoff>,
    /// What workers have carried.
    pub workers: Vec<Worker>,
    /// What their stages took.
    pub stages: Vec<StageTime>,
    /// TCP segments that were seen.
    pub segments: Vec<Segments>,
    /// What was lost.
    pub drops: Vec<Drop>,
    /// Which offloads are in use.
    pub offloads: Vec<Offload>,
    /// Ciphers that the configuration pins to an engine.
    pub pinned: Vec<String>,
    /// What the processors did.
    pub processors: Option<Processors>,
    /// How long the daemon was not allowed to run.
    pub throttled: Option<Throttled>,
}
