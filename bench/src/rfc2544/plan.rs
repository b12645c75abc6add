//! Lengths and repetitions of trials: short ones, and those of the RFCs.

use serde::Serialize;

/// Lengths and repetitions.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Whether they are those of the RFCs.
    pub is_conformant: bool,
    /// The factor by which all lengths were multiplied.
    pub scale: f64,
    /// Seconds of a trial of a search.
    pub search_seconds: f64,
    /// Seconds of the trial that a throughput stands on, if that is another.
    pub final_seconds: Option<f64>,
    /// Searches for each throughput.
    pub searches: usize,
    /// The search ends within this share of the rate.
    pub precision: f64,
    /// How often a trial with loss is repeated.
    pub repeats: usize,
    /// Seconds of a latency trial.
    pub latency_seconds: f64,
    /// Latency trials at the throughput.
    pub latency_trials: usize,
    /// Seconds of a trial of frame loss.
    pub loss_seconds: f64,
    /// Seconds of the longest burst.
    pub burst_seconds: f64,
    /// Searches for the longest burst.
    pub bursts: usize,
    /// Seconds to wait for stragglers.
    pub settle_seconds: f64,
    /// Seconds between trials.
    pub rest_seconds: f64,
    /// Frames that leave together.
    pub burst: u64,
}

impl Plan {
    /// Trials of about a second, which show what to expect. Not those of the RFCs.
    pub fn quick() -> Self {
        Self {
            is_conformant: false,
            scale: 1.0,
            search_seconds: 1.0,
            final_seconds: None,
            searches: 1,
            precision: 0.02,
            repeats: 1,
            latency_seconds: 1.0,
            latency_trials: 1,
            loss_seconds: 1.0,
            burst_seconds: 0.5,
            bursts: 3,
            settle_seconds: 0.05,
            rest_seconds: 0.05,
            burst: 1,
        }
    }

    /// Lengths and repetitions of RFC 2544, 8219 and 9004.
    pub fn full() -> Self {
        Self {
            is_conformant: true,
            scale: 1.0,
            search_seconds: 5.0,
            final_seconds: Some(60.0),
            searches: 5,
            precision: 0.005,
            repeats: 2,
            latency_seconds: 120.0,
            latency_trials: 20,
            loss_seconds: 60.0,
            burst_seconds: 30.0,
            bursts: 50,
            settle_seconds: 2.0,
            rest_seconds: 5.0,
            burst: 1,
        }
    }

    /// The same with another length of trials, which the RFCs do not know.
    #[must_use]
    pub fn with_seconds(self, seconds: f64) -> Self {
        Self {
            is_conformant: false,
            search_seconds: seconds,
            final_seconds: None,
            latency_seconds: seconds,
            loss_seconds: seconds,
            burst_seconds: self.burst_seconds.min(seconds),
            ..self
        }
    }

    /// The same with all trials, pauses and bursts `scale` times as long, and as many of them.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        Self {
            is_conformant: self.is_conformant && scale >= 1.0,
            scale: self.scale * scale,
            search_seconds: self.search_seconds * scale,
            final_seconds: self.final_seconds.map(|seconds| seconds * scale),
            latency_seconds: self.latency_seconds * scale,
            loss_seconds: self.loss_seconds * scale,
            burst_seconds: self.burst_seconds * scale,
            settle_seconds: self.settle_seconds * scale,
            rest_seconds: self.rest_seconds * scale,
            ..self
        }
    }

    /// The plan of calibrations: one search with trials of at most a second.
    pub(crate) fn of_calibration(&self) -> Self {
        let quick = Self::quick();
        let search_seconds = self.search_seconds.min(quick.search_seconds);
        Self {
            search_seconds,
            latency_seconds: search_seconds,
            burst: self.burst,
            precision: self.precision.max(quick.precision),
            settle_seconds: self.settle_seconds.min(quick.settle_seconds),
            rest_seconds: self.rest_seconds.min(quick.rest_seconds),
            ..quick
        }
    }
}
