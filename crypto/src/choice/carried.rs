//! How much traffic an accelerator has sealed and opened. Engines on the processor are not counted: that would cost more
//! than it tells.

use super::slot::Direction;
use std::sync::atomic::{AtomicU64, Ordering};

/// The traffic of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Packets.
    pub packets: u64,
    /// Bytes of their texts.
    pub bytes: u64,
}

/// The counters of one accelerator.
#[derive(Debug, Default)]
pub(super) struct Counter {
    sealed: Pair,
    opened: Pair,
}

#[derive(Debug, Default)]
struct Pair {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Pair {
    fn read(&self) -> Carried {
        Carried { packets: self.packets.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl Counter {
    /// Adds a burst: the lengths of its texts.
    pub(super) fn add(&self, direction: Direction, lengths: impl ExactSizeIterator<Item = usize>) {
        let pair = match direction {
            Direction::Seal => &self.sealed,
            Direction::Open => &self.opened,
        };
        pair.packets.fetch_add(lengths.len() as u64, Ordering::Relaxed);
        pair.bytes.fetch_add(lengths.sum::<usize>() as u64, Ordering::Relaxed);
    }

    /// What was sealed and opened.
    pub(super) fn read(&self) -> [Carried; 2] {
        [self.sealed.read(), self.opened.read()]
    }
}
