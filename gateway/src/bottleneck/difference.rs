//! What has changed between two readings.

use super::Reading;
use crate::api::model::{Drop, StageShare, StageTime, Thread};

/// The name of a thread, with the parts of the time that it ran and waited for a processor.
pub(super) fn busy(
    before: &Reading,
    after: &Reading,
    name: &str,
    seconds: f64,
) -> Option<(String, f64, f64)> {
    let of = |reading: &Reading, id: Option<u32>| -> Option<Thread> {
        let mut threads =
            reading.threads.iter().filter(|it| it.name == name && id.is_none_or(|id| it.id == id));
        threads.next().cloned()
    };
    let now = of(after, None)?;
    let then = of(before, Some(now.id));
    let part = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(now)) as f64 / 1e9 / seconds;
    Some((
        now.name.clone(),
        part(now.nanoseconds, then.as_ref().map(|it| it.nanoseconds)),
        part(now.waited, then.as_ref().map(|it| it.waited)),
    ))
}

/// What each stage took for a packet of the bursts that were timed meanwhile.
pub(super) fn shares(before: &Reading, after: &Reading, interface: &str, direction: &str) -> Vec<StageShare> {
    let is_same = |one: &StageTime, other: &StageTime| {
        (&one.interface, &one.direction, &one.stage) == (&other.interface, &other.direction, &other.stage)
    };
    let of_direction =
        after.stages.iter().filter(|it| it.interface == interface && it.direction == direction);
    let each = of_direction.map(|now| {
        let then = before.stages.iter().find(|it| is_same(it, now));
        let (time, packets) = then.map_or((0, 0), |it| (it.nanoseconds, it.packets));
        let (time, packets) = (now.nanoseconds.saturating_sub(time), now.packets.saturating_sub(packets));
        (now.stage.clone(), if packets == 0 { 0.0 } else { time as f64 / packets as f64 })
    });
    let each: Vec<(String, f64)> = each.filter(|(_, nanoseconds)| *nanoseconds > 0.0).collect();
    let total: f64 = each.iter().map(|(_, nanoseconds)| nanoseconds).sum();
    each.into_iter()
        .map(|(stage, nanoseconds)| StageShare { stage, nanoseconds, share: nanoseconds / total })
        .collect()
}

/// TCP segments that were seen meanwhile, and those among them that were sent before.
pub(super) fn segments(before: &Reading, after: &Reading, interface: &str, direction: &str) -> [u64; 2] {
    let of = |reading: &Reading| {
        let found =
            reading.segments.iter().find(|it| it.interface == interface && it.direction == direction)?;
        Some([found.all, found.resent])
    };
    let Some(now) = of(after) else { return [0; 2] };
    let then = of(before).unwrap_or(now);
    [0, 1].map(|at| now[at].saturating_sub(then[at]))
}

/// The packets of a direction that were lost a second, by reason, the most first.
pub(super) fn lost<'a>(
    before: &Reading,
    after: &'a Reading,
    interface: &str,
    direction: &str,
    seconds: f64,
) -> Vec<(&'a Drop, f64)> {
    let count = |drop: &Drop| if direction == "out" { drop.outbound } else { drop.inbound };
    let of_interface = after.drops.iter().filter(|drop| drop.interface == interface);
    let each = of_interface.map(|now| {
        let then = before.drops.iter().find(|it| it.interface == interface && it.reason == now.reason);
        // A reason that the first reading lacks counts as unchanged.
        (now, count(now).saturating_sub(then.map_or(count(now), count)) as f64 / seconds)
    });
    let mut lost: Vec<(&Drop, f64)> = each.filter(|(_, rate)| *rate > 0.0).collect();
    lost.sort_by(|one, other| other.1.total_cmp(&one.1));
    lost
}
