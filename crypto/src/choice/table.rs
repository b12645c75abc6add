//! The table of the choice: for each direction, burst and size, who is fastest.

use super::calibrate::{Cost, Measured};
use crate::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of text at which engines are measured. A packet goes by the first of which it has at most four thirds.
pub const SIZES: [usize; 9] = [64, 128, 256, 512, 1024, 1400, 2048, 4096, 9000];

/// Packets in one call at which engines are measured.
pub const BURSTS: [usize; 2] = [1, 32];

/// From this many packets on, a burst goes by what was measured for many: the geometric mean of [`BURSTS`].
const MANY: usize = 6;

/// Sealing and opening are measured apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Outbound.
    Seal,
    /// Inbound.
    Open,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Seal, Self::Open];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Sealing or opening.
    pub direction: Direction,
    /// An index into [`BURSTS`].
    pub burst: usize,
    /// An index into [`SIZES`].
    pub size: usize,
}

/// Places in the table of one cipher.
pub(super) const SLOTS: usize = 2 * BURSTS.len() * SIZES.len();

impl Slot {
    /// Every place.
    pub fn all() -> impl Iterator<Item = Self> {
        Direction::ALL.into_iter().flat_map(|direction| {
            (0..BURSTS.len())
                .flat_map(move |burst| (0..SIZES.len()).map(move |size| Self { direction, burst, size }))
        })
    }

    /// Where a burst of `packets` belongs, of which the first has `length` bytes. That one stands for all: bursts come
    /// from one read of a device.
    #[inline]
    pub fn of(direction: Direction, packets: usize, length: usize) -> Self {
        let size = SIZES.iter().position(|&size| length * 3 <= size * 4).unwrap_or(SIZES.len() - 1);
        Self { direction, burst: usize::from(packets >= MANY), size }
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        (self.direction as usize * BURSTS.len() + self.burst) * SIZES.len() + self.size
    }
}

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

    /// Chooses anew among the engines that `may` be used; the first always may.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_goes_by_the_size_nearest_to_its_own() {
        let size = |length| SIZES[Slot::of(Direction::Seal, 1, length).size];
        let lengths = [0, 64, 85, 86, 512, 683, 1365, 1366, 1420, 9000, 65_535];
        assert_eq!(lengths.map(size), [64, 64, 64, 128, 512, 1024, 1024, 1400, 1400, 9000, 9000]);
    }

    #[test]
    fn every_place_has_its_own_index() {
        let mut indices: Vec<_> = Slot::all().map(Slot::index).collect();
        indices.sort_unstable();
        assert_eq!(indices, (0..SLOTS).collect::<Vec<_>>());
    }
}
