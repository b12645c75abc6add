//! What limits the speed of interfaces, and what it is concluded from.

use super::model::{Bottlenecks, StageTime, Stages};
use super::{Shown, read_drops, read_offloads, read_workers, threads};
use crate::bottleneck::{Facts, Processors, diagnose};
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
    Json(Stages { stages: read_stages(&shown) })
}

pub(super) async fn bottleneck(State(shown): State<Shown>) -> Json<Bottlenecks> {
    let before = facts(&shown);
    tokio::time::sleep(WATCHED).await;
    Json(Bottlenecks { bottlenecks: diagnose(&before, &facts(&shown)) })
}

fn read_stages(shown: &Shown) -> Vec<StageTime> {
    let of = |interface: Arc<dyn Counters>| {
        let stages = interface.stages().clone();
        [("out", stages.outbound), ("in", stages.inbound)]
            .map(|(direction, times)| read(interface.name(), direction, &times))
    };
    shown.interfaces().flat_map(of).flatten().collect()
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

fn facts(shown: &Shown) -> Facts {
    let threads = threads::read(shown);
    Facts {
        at: Instant::now(),
        threads: threads.threads,
        handoffs: threads.handoffs,
        workers: read_workers(shown),
        stages: read_stages(shown),
        drops: read_drops(shown),
        offloads: read_offloads(shown),
        pinned: shown.engines.rules().pinned.keys().cloned().collect(),
        processors: Processors::read(Path::new("/proc/stat")),
    }
}
