//! An aligned memory block that is allocated once and reused.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A cache line: the alignment of packets is in units of it.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(64))]
struct Line([u8; Slab::ALIGNMENT]);

/// A block of bytes that starts on a cache line.
///
/// It is zeroed on allocation only: old packets are overwritten by new ones.
pub struct Slab {
    lines: Box<[Line]>,
}

impl Slab {
    /// The alignment in bytes: the cache line size of all supported processors.
    pub const ALIGNMENT: usize = 64;

    /// Allocates at least `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        let line = Line([0; Self::ALIGNMENT]);
        Self { lines: vec![line; bytes.div_ceil(Self::ALIGNMENT)].into_boxed_slice() }
    }

    /// The whole block.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.lines.as_bytes()
    }

    /// The whole block, to write to.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.lines.as_mut_bytes()
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
