//! The measurements of one cipher, and the fastest engine for each direction, burst and size.

use super::measured::{Cost, Measured};
use super::slot::{SLOTS, Slot};
use crate::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// The measurements of one cipher and the engines chosen by them.
pub struct Row {
    /// By engine index. An engine that failed may be measured later.
    measured: Mutex<Vec<Measured>>,
    /// The index of the chosen engine for each slot. Read once per burst, written when an engine fails or recovers.
    chosen: [AtomicU8; SLOTS],
}

impl Row {
    pub(super) fn new(measured: Vec<Measured>) -> Self {
        Self { measured: Mutex::new(measured), chosen: std::array::from_fn(|_| AtomicU8::new(0)) }
    }

    /// The result of each engine, by engine index.
    pub fn measured(&self) -> Vec<Measured> {
        lock(&self.measured).clone()
    }

    /// Replaces the result of an engine that was measured again.
    pub(super) fn set(&self, engine: usize, measured: Measured) {
        if let Some(before) = lock(&self.measured).get_mut(engine) {
            *before = measured;
        }
    }

    /// The engines that support the cipher, with their ns per packet, fastest first.
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

    /// The index of the chosen engine.
    #[inline]
    pub fn chosen(&self, slot: Slot) -> usize {
        usize::from(self.chosen[slot.index()].load(Ordering::Relaxed))
    }

    /// Chooses the fastest engine that `may` be used, for each slot. If there is none, it chooses the first engine.
    pub(super) fn choose(&self, is_usable: impl Fn(usize) -> bool) {
        for slot in Slot::all() {
            let best =
                self.ranking(slot).into_iter().map(|(engine, _)| engine).find(|&engine| is_usable(engine));
            self.chosen[slot.index()].store(best.unwrap_or(0) as u8, Ordering::Relaxed);
        }
    }

    /// Whether an engine is chosen for any slot.
    pub fn is_chosen(&self, engine: usize) -> bool {
        Slot::all().any(|slot| self.chosen(slot) == engine)
    }

    /// Whether an engine is among the two fastest of those `allowed`, for any slot: the second is called when the first
    /// fails.
    pub(super) fn is_near(&self, engine: usize, allowed: impl Fn(usize) -> bool) -> bool {
        let measured = lock(&self.measured);
        let costs = measured.iter().enumerate().filter(|(it, _)| allowed(*it));
        let costs: Vec<(usize, &Cost)> =
            costs.filter_map(|(it, measured)| Some((it, measured.cost()?))).collect();
        let Some((_, own)) = costs.iter().find(|(it, _)| *it == engine) else { return false };
        // Called for every key: ten thousand peers have twenty thousand.
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
