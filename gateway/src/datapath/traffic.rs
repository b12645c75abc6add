//! Counts of packets and bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Packets and bytes, counted by one thread or by several.
///
/// An atomic addition takes as long as opening a few dozen bytes. Where each packet may have a counter of its own, a thread that
/// counts alone does without.
#[derive(Default)]
pub struct Traffic {
    packets: AtomicU64,
    bytes: AtomicU64,
    has_one_writer: bool,
}

impl Traffic {
    /// Counts of a single thread: `count` is not called by two at once.
    pub fn of_one_thread() -> Self {
        Self { has_one_writer: true, ..Self::default() }
    }

    /// Counts of so many threads.
    pub fn of_threads(count: usize) -> Self {
        if count == 1 { Self::of_one_thread() } else { Self::default() }
    }

    /// Counts packets.
    #[inline]
    pub fn count(&self, packets: u64, bytes: u64) {
        if self.has_one_writer {
            let add = |to: &AtomicU64, more| to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
            add(&self.packets, packets);
            add(&self.bytes, bytes);
        } else {
            self.packets.fetch_add(packets, Ordering::Relaxed);
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_count_together_lose_nothing() {
        let traffic = Traffic::of_threads(3);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| (0..10_000).for_each(|_| traffic.count(1, 60)));
            }
        });
        assert_eq!((traffic.packets(), traffic.bytes()), (30_000, 1_800_000));
    }

    #[test]
    fn a_thread_that_counts_alone_counts_the_same() {
        let traffic = Traffic::of_threads(1);
        (0..100).for_each(|_| traffic.count(2, 120));
        assert_eq!((traffic.packets(), traffic.bytes()), (200, 12_000));
    }
}
