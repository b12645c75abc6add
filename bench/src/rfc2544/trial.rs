//! What a trial is asked, and what it says.

use super::histogram::Histogram;
use super::host::Disturbance;
use super::receiver::{Counts, StreamCounts};
use serde::Serialize;
use std::collections::BTreeMap;

/// What a trial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Frames before the first trial, from which bridges learn addresses.
    Learning,
    /// The tester's own limits.
    Calibration,
    /// RFC 2544 section 26.1.
    Throughput,
    /// RFC 2544 section 26.2 and RFC 8219 section 7.2.
    Latency,
    /// RFC 2544 section 26.3.
    FrameLoss,
    /// RFC 2544 section 26.4 and RFC 9004.
    BackToBack,
}

/// The load of one trial.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What it is for.
    pub purpose: Purpose,
    /// Frames a second in each direction; infinite: as fast as possible.
    pub rate: f64,
    /// Its length.
    pub seconds: f64,
    /// Frames that leave together.
    pub burst: u64,
    /// At most so many frames.
    pub frames: Option<u64>,
    /// How long nothing must have come before the trial ends.
    pub settle_seconds: f64,
    /// So many frames of the second half have their delays noted one by one.
    pub samples: Option<usize>,
}

/// The delays of all frames of a trial, in microseconds, from the call that sent them to the call that received them.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Delays {
    /// The least.
    pub least: f64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The greatest.
    pub most: f64,
}

impl Delays {
    /// Those of a histogram; none if no frame arrived.
    pub fn of(histogram: &Histogram) -> Option<Self> {
        (histogram.count() > 0).then(|| Self {
            least: histogram.least() as f64 / 1e3,
            mean: histogram.mean() / 1e3,
            median: histogram.quantile(0.5) / 1e3,
            p99: histogram.quantile(0.99) / 1e3,
            p999: histogram.quantile(0.999) / 1e3,
            most: histogram.most() as f64 / 1e3,
        })
    }
}

/// How loss was spread over several streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Streams, of all directions.
    pub streams: usize,
    /// Streams that lost frames.
    pub lossy: usize,
    /// The least share of frames that a stream lost.
    pub least: f64,
    /// The greatest.
    pub most: f64,
}

impl Spread {
    /// That of the streams of all directions; none if each direction has one.
    pub fn of(directions: &[Vec<StreamCounts>]) -> Option<Self> {
        let losses = || directions.iter().flatten().filter(|it| it.sent > 0).map(StreamCounts::loss);
        let streams = directions.iter().map(Vec::len).sum();
        (streams > directions.len()).then(|| Self {
            streams,
            lossy: losses().filter(|&loss| loss > 0.0).count(),
            least: losses().fold(1.0, f64::min),
            most: losses().fold(0.0, f64::max),
        })
    }
}

/// One trial.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// What it was for.
    pub purpose: Purpose,
    /// Frames a second in each direction, as wanted; none: as fast as possible.
    pub rate: Option<f64>,
    /// Frames a second in each direction, as offered.
    pub offered: f64,
    /// Its length.
    pub seconds: f64,
    /// Frames that left together.
    pub burst: u64,
    /// The counts of all directions.
    #[serde(flatten)]
    pub counts: Counts,
    /// Frames that did not arrive, not even corrupted.
    pub lost: u64,
    /// The counts of each direction.
    pub directions: Vec<Counts>,
    /// How loss was spread, if there were several streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// The counts of each stream of each direction.
    #[serde(skip)]
    pub streams: Vec<Vec<StreamCounts>>,
    /// The share of frames that left 0.1 ms or more behind their time.
    pub late_share: f64,
    /// The delays of all frames.
    pub delays: Option<Delays>,
    /// RFC 8219 section 7.3.2: the delay of a frame less that of the frame before it, in microseconds: the least, the median and the greatest.
    pub ipdv: Option<[f64; 3]>,
    /// The delays of the sampled frames, in nanoseconds.
    #[serde(skip)]
    pub samples: Vec<u64>,
    /// What the machine did meanwhile.
    pub disturbance: Disturbance,
    /// What the kernel counted of the tester's ports.
    pub ports: BTreeMap<&'static str, u64>,
}

/// A tester that offers less than this share of the wanted rate is the limit.
const OFFERED: f64 = 0.99;

impl Trial {
    /// The share of frames that did not arrive whole. A tester that did not offer the rate counts as loss of what is missing.
    pub fn loss(&self) -> f64 {
        let missing = self.rate.map_or(0.0, |rate| 1.0 - self.offered / rate);
        if missing > 1.0 - OFFERED { self.counts.loss().max(missing) } else { self.counts.loss() }
    }

    /// Whether the tester did not offer the wanted rate.
    pub fn is_short(&self) -> bool {
        self.rate.is_some_and(|rate| self.offered < rate * OFFERED)
    }

    /// Frames that the tester's own ports dropped after the device had delivered them.
    pub fn dropped_by_tester(&self) -> u64 {
        ["rx_dropped", "rx_ring_full"].iter().filter_map(|name| self.ports.get(name)).sum()
    }

    /// Whether its loss may not be the device's.
    pub fn is_disturbed(&self) -> bool {
        self.disturbance.is_any() || self.dropped_by_tester() > 0
    }

    /// Frames a second that arrived, in each direction.
    pub fn forwarded(&self) -> f64 {
        self.counts.received as f64 / self.directions.len().max(1) as f64 / self.seconds
    }
}
