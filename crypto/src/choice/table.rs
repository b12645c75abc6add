//! The table of the choice: for each direction, burst and size, who is fastest.

use super::measured::{Cost, Measured};
use super::slot::{SLOTS, Slot};
use crate::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// One cipher's part of the table.
pub struct Row {
    /// Of each engine, by its index. One that failed may be measured later.
    measured: Mutex<Vec<Measured>>,
    /// The index of the engine to call. Read once a burst, written when an engine fails or recovers.
    chosen: [AtomicU8; SLOTS],
}

impl Row {
    pub(super) fn new(measured: Vec<Measured>) -> Self {
        Self { measured: Mutex::new(measured), chosen: std::array::from_fn(|_| AtomicU8::new(0)) }
    }

    /// What was found of each engine, by its index.
    pub fn measured(&self) -> Vec<Measured> {
        lock(&self.measured).clone()
    }

    /// What was found of an engine that was measured again.
    pub(super) fn set(&self, engine: usize, measured: Measured) {
        if let Some(before) = lock(&self.measured).get_mut(engine) {
            *before = measured;
        }
    }

    /// The engines that have the cipher and their ns a packet, fastest first.
    pub fn ranking(&self, slot: Slot) -> Vec<(usize, f64)> {
        let measured = lock(&self.measured);
        let costs = measured.iter().enumerate();
        let mut ranking: Vec<_> = costs
            .filter_map(|(engine, measured)| {
                Some((engine, measured.cost().map(|cost: &Cost| cost.at(slot))?))
            })
            .collect();
        ranking.sort_by(|a, b| a.1.total_cmp(&b.1));
        ranking
    }

    /// The index of the engine that is used.
    #[inline]
    pub fn chosen(&self, slot: Slot) -> usize {
        usize::from(self.chosen[slot.index()].load(Ordering::Relaxed))
    }

    /// Selects again among the engines that `may` be used; the first always may.
    pub(super) fn choose(&self, may: impl Fn(usize) -> bool) {
        for slot in Slot::all() {
            let best = self.ranking(slot).into_iter().map(|(engine, _)| engine).find(|&engine| may(engine));
            self.chosen[slot.index()].store(best.unwrap_or(0) as u8, Ordering::Relaxed);
        }
    }

    /// Whether an engine is used for any packet.
    pub fn is_chosen(&self, engine: usize) -> bool {
        Slot::all().any(|slot| self.chosen(slot) == engine)
    }

    /// Whether an engine is among the two fastest of those `allowed` anywhere: the one to call when the other fails.
    pub(super) fn is_near(&self, engine: usize, allowed: impl Fn(usize) -> bool) -> bool {
        let measured = lock(&self.measured);
        let costs = measured.iter().enumerate().filter(|(it, _)| allowed(*it));
        let costs: Vec<(usize, &Cost)> =
            costs.filter_map(|(it, measured)| Some((it, measured.cost()?))).collect();
        let Some((_, own)) = costs.iter().find(|(it, _)| *it == engine) else { return false };
        // This is asked for every key: ten thousand peers have twenty thousand.
        Slot::all().any(|slot| {
            let own = (own.at(slot), engine);
            let is_faster = |(it, cost): &&(usize, &Cost)| {
                let other = cost.at(slot);
                other.total_cmp(&own.0).then(it.cmp(&own.1)).is_lt()
            };
            costs.iter().filter(is_faster).count() < 2
        })
    }
}
