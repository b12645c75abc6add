//! Packets that leave: their indices in the batch, as ranges.

use std::ops::Range;

/// Ranges of packets that may leave. A packet that is in none is dropped.
#[derive(Default)]
pub struct Leaving(Vec<Range<usize>>);

impl Leaving {
    /// Removes all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds one packet.
    #[inline]
    pub fn add(&mut self, index: usize) {
        match self.0.last_mut() {
            Some(last) if last.end == index => last.end += 1,
            _ => self.0.push(index..index + 1),
        }
    }

    /// Adds packets.
    #[inline]
    pub fn extend(&mut self, packets: Range<usize>) {
        self.0.push(packets);
    }

    /// The indices.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().cloned().flatten()
    }
}
