//! The last minutes of each interface: what it carried and lost, for graphs.
//!
//! ```text
//! counters of workers and drops, once in two seconds ──> rates ──> ring of the last ten minutes ──> GET /v1/facts/history
//! ```
//! It is kept also while nobody looks, so that a graph shows what was before somebody did. Tunnels are not in it: there may be ten
//! thousand. Its memory is bounded by the points and the interfaces: 64 of them take 400 kB.

use super::model::{History, InterfaceHistory};
use crate::api::{Shown, model as api};
use crate::clock::Clock;
use axum::Json;
use axum::extract::State;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The time between two points.
pub const STEP: Duration = Duration::from_secs(2);
/// Points that are kept.
const POINTS: usize = 300;
/// Interfaces that are kept.
const INTERFACES: usize = 64;

/// What an interface has carried and lost so far: bytes received outside, bytes sent outside, packets dropped.
type Counts = [u64; 3];
/// The same a second.
type Rates = [f32; 3];

/// The ring.
#[derive(Default)]
pub(crate) struct Keeper(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    /// When it was counted last, in milliseconds, and what.
    before: Option<(u64, BTreeMap<String, Counts>)>,
    /// Seconds since 1970 of each point.
    at: VecDeque<u64>,
    /// As many values as points.
    interfaces: BTreeMap<String, VecDeque<Option<Rates>>>,
}

impl Ring {
    /// Adds what is counted at a moment.
    fn add(&mut self, at: u64, moment: u64, counts: BTreeMap<String, Counts>) {
        let before = self.before.replace((moment, counts));
        let (Some((then, before)), Some((_, counts))) = (before, &self.before) else { return };
        let seconds = moment.saturating_sub(then) as f32 / 1000.0;
        if seconds <= 0.0 {
            return;
        }
        let known = self.at.len();
        for (interface, now) in counts {
            let Some(then) = before.get(interface) else { continue };
            if self.interfaces.len() >= INTERFACES && !self.interfaces.contains_key(interface) {
                continue;
            }
            let values = self.interfaces.entry(interface.clone()).or_default();
            values.resize(known, None);
            // An interface that was removed and made again counts anew.
            let rate = |at: usize| now[at].checked_sub(then[at]).unwrap_or(now[at]) as f32 / seconds;
            values.push_back(Some([8.0 * rate(0), 8.0 * rate(1), rate(2)]));
        }
        self.at.push_back(at);
        for values in self.interfaces.values_mut() {
            values.resize(known + 1, None);
        }
        while self.at.len() > POINTS {
            self.at.pop_front();
            for values in self.interfaces.values_mut() {
                values.pop_front();
            }
        }
        self.interfaces.retain(|_, values| values.iter().any(Option::is_some));
    }

    fn shown(&self) -> History {
        let interface = |(name, values): (&String, &VecDeque<Option<Rates>>)| {
            let column =
                |at: usize| values.iter().map(|rates| rates.map(|rates| rates[at].round())).collect();
            InterfaceHistory {
                interface: name.clone(),
                received_bits_per_second: column(0),
                sent_bits_per_second: column(1),
                dropped_per_second: column(2),
            }
        };
        History {
            step: STEP.as_secs(),
            at: self.at.iter().copied().collect(),
            interfaces: self.interfaces.iter().map(interface).collect(),
        }
    }
}

impl Keeper {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the history, for ever.
pub(crate) async fn keep(shown: Shown) {
    let mut ticks = tokio::time::interval(STEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let shown = shown.clone();
        // Not on the thread of signals and commits: the kernel is asked, too.
        let count = tokio::task::spawn_blocking(move || {
            let now = Clock.now();
            let counts = counts(shown.workers(), shown.drops());
            shown.history().lock().add(now.wall.as_secs(), now.monotonic.nanoseconds() / 1_000_000, counts);
        });
        // A thread that has panicked has said so.
        let _ = count.await;
    }
}

pub(crate) async fn history(State(shown): State<Shown>) -> Json<History> {
    Json(shown.history().lock().shown())
}

fn counts(workers: api::Workers, drops: api::Drops) -> BTreeMap<String, Counts> {
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    for worker in workers.workers {
        let counts = counts.entry(worker.interface).or_default();
        match &*worker.worker {
            "in" => counts[0] += worker.received_bytes,
            _ => counts[1] += worker.sent_bytes,
        }
    }
    for drop in drops.drops {
        if let Some(counts) = counts.get_mut(&drop.interface) {
            counts[2] += drop.outbound + drop.inbound + drop.handshake;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(counts: &[(&str, Counts)]) -> BTreeMap<String, Counts> {
        counts.iter().map(|(name, counts)| ((*name).to_owned(), *counts)).collect()
    }

    #[test]
    fn a_point_is_what_was_carried_since_the_one_before() {
        let mut ring = Ring::default();
        ring.add(100, 0, of(&[("wg0", [1000, 0, 0])]));
        assert!(ring.shown().at.is_empty(), "there is nothing to compare with");
        ring.add(102, 2000, of(&[("wg0", [1500, 250, 4]), ("wg1", [7, 7, 7])]));
        ring.add(104, 4000, of(&[("wg0", [100, 250, 4]), ("wg1", [1007, 7, 7])]));
        let shown = ring.shown();
        assert_eq!((shown.step, &*shown.at), (2, &[102, 104][..]));
        let [wg0, wg1] = &shown.interfaces[..] else { panic!("{shown:?}") };
        assert_eq!(
            wg0.received_bits_per_second,
            [Some(2000.0), Some(400.0)],
            "the second after it was made anew"
        );
        assert_eq!((wg0.sent_bits_per_second[0], wg0.dropped_per_second[0]), (Some(1000.0), Some(2.0)));
        assert_eq!(wg1.received_bits_per_second, [None, Some(4000.0)], "it was not there before");
    }

    #[test]
    fn points_and_interfaces_are_bounded_and_what_is_gone_is_forgotten() {
        let mut ring = Ring::default();
        let many: Vec<String> = (0..200).map(|number| format!("wg{number}")).collect();
        for point in 0..2000 {
            let counted = many.iter().map(|name| (name.clone(), [point, 0, 0])).collect();
            ring.add(point, 2000 * point, counted);
        }
        assert_eq!((ring.at.len(), ring.interfaces.len()), (POINTS, INTERFACES));
        assert!(ring.interfaces.values().all(|values| values.len() == POINTS));
        for point in 2000..=(2000 + POINTS as u64) {
            ring.add(point, 2000 * point, of(&[("other", [0, 0, 0])]));
        }
        assert_eq!(ring.interfaces.keys().collect::<Vec<_>>(), ["other"]);
    }

    #[test]
    fn bytes_are_those_outside() {
        let worker = |worker: &str| api::Worker {
            interface: "wg0".to_owned(),
            worker: worker.to_owned(),
            wake_ups: 0,
            receives: 0,
            empty_receives: 0,
            received_packets: 0,
            received_bytes: 10,
            sends: 0,
            sent_bytes: 20,
            bursts: Vec::new(),
        };
        let workers = api::Workers { workers: vec![worker("out"), worker("in")] };
        assert_eq!(counts(workers, api::Drops::default()), of(&[("wg0", [10, 20, 0])]));
    }
}
