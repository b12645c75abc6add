//! An aligned memory block that is allocated once and reused.

/// A block of bytes that starts on a cache line.
///
/// It is zero at first, and old packets are overwritten by new ones. Pages are mapped on first use: an allocation with this alignment
/// would be written when it is made.
pub struct Slab {
    memory: Box<[u8]>,
    /// Where the first cache line starts.
    start: usize,
}

impl Slab {
    /// The alignment in bytes: the cache line size of all supported processors.
    pub const ALIGNMENT: usize = 64;

    /// Allocates at least `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + Self::ALIGNMENT - 1].into_boxed_slice();
        let start = memory.as_ptr().addr().wrapping_neg() % Self::ALIGNMENT;
        Self { memory, start }
    }

    /// The whole block.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }

    /// The whole block, to write to.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slab_is_aligned_and_large_enough() {
        for length in [0, 1, 63, 64, 65, 70_000] {
            let slab = Slab::new(length);
            assert!(slab.bytes().len() >= length);
            assert_eq!(slab.bytes().as_ptr().addr() % Slab::ALIGNMENT, 0);
        }
    }
}
