//! What limits the speed of interfaces, and what it is concluded from.

use super::Shown;
use super::model::{Bottlenecks, Segments, StageTime, Stages};
use crate::bottleneck::{Processors, Reading, Throttled, diagnose, name_black_holes};
use crate::datapath::stage_times::StageTimes;
use crate::tunnel_interface::Counters;
use axum::Json;
use axum::extract::State;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the daemon looks.
const WATCHED: Duration = Duration::from_secs(1);

pub(super) async fn stages(State(shown): State<Shown>) -> Json<Stages> {
    Json(Stages { stages: shown.stages() })
}

pub(super) async fn bottleneck(State(shown): State<Shown>) -> Json<Bottlenecks> {
    // Not on the thread of signals and commits: the kernel is asked, too.
    let read = || {
        let shown = shown.clone();
        tokio::task::spawn_blocking(move || reading(&shown))
    };
    let before = read().await;
    tokio::time::sleep(WATCHED).await;
    let after = read().await;
    // A reading fails only when the daemon ends.
    let readings = before.ok().zip(after.ok());
    let mut bottlenecks = readings.map(|(before, after)| diagnose(&before, &after)).unwrap_or_default();
    let paths = shown.paths().unwrap_or_default();
    name_black_holes(&mut bottlenecks, &paths.targets);
    Json(Bottlenecks { bottlenecks })
}

impl Shown {
    /// The times of the stages of every interface.
    pub(crate) fn stages(&self) -> Vec<StageTime> {
        let of = |interface: Arc<dyn Counters>| {
            let stages = interface.stages().clone();
            [("out", stages.outbound), ("in", stages.inbound)]
                .map(|(direction, times)| read(interface.name(), direction, &times))
        };
        self.interfaces().flat_map(of).flatten().collect()
    }

    /// The TCP segments of every interface that were looked at.
    pub(crate) fn segments(&self) -> Vec<Segments> {
        let of = |interface: Arc<dyn Counters>| {
            let stages = interface.stages().clone();
            [("out", stages.outbound), ("in", stages.inbound)].map(|(direction, times)| {
                let ([all, resent], interface) = (times.segments(), interface.name().to_owned());
                Segments { interface, direction: direction.to_owned(), all, resent }
            })
        };
        self.interfaces().flat_map(of).collect()
    }
}

fn read(interface: &str, direction: &str, times: &StageTimes) -> Vec<StageTime> {
    let stage = |timed: crate::datapath::stage_times::Timed| StageTime {
        interface: interface.to_owned(),
        direction: direction.to_owned(),
        stage: timed.stage.name.to_owned(),
        nanoseconds: timed.nanoseconds,
        packets: timed.packets,
    };
    times.read().map(stage).collect()
}

fn reading(shown: &Shown) -> Reading {
    let threads = shown.threads();
    Reading {
        at: Instant::now(),
        threads: threads.threads,
        handoffs: threads.handoffs,
        workers: shown.workers().workers,
        stages: shown.stages(),
        segments: shown.segments(),
        drops: shown.drops().drops,
        offloads: shown.offloads().offloads,
        pinned: shown.engines.rules().pinned.keys().cloned().collect(),
        processors: Processors::read(Path::new("/proc/stat")),
        throttled: Throttled::read(Path::new("/")),
    }
}
