//! The Internet checksum of whole packets, with AVX2 where the processor has it, also while they are copied.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "AVX2 is chosen at run time, and reads by address")
)]

use packet::checksum::Sum;

/// The sum of `bytes`, as [`Sum::of`].
#[inline]
pub fn sum(bytes: &[u8]) -> Sum {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= avx2::WORTHWHILE && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::sum(bytes) };
    }
    Sum::of(bytes)
}

/// Copies `from` to `to`, which is as long; the sum of it.
#[inline]
pub fn copy(from: &[u8], to: &mut [u8]) -> Sum {
    #[cfg(target_arch = "x86_64")]
    if from.len() >= avx2::WORTHWHILE && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::copy(from, to) };
    }
    to.copy_from_slice(from);
    Sum::of(to)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use packet::checksum::Sum;
    use std::arch::x86_64::{
        __m256i, _mm256_add_epi64, _mm256_and_si256, _mm256_loadu_si256, _mm256_set1_epi64x,
        _mm256_setzero_si256, _mm256_srli_epi64, _mm256_storeu_si256,
    };

    /// Bytes of a step.
    const BLOCK: usize = 64;
    /// From so many bytes on it is faster than words with carries: at 64 it takes 17 ns, and they 13.
    pub(super) const WORTHWHILE: usize = 256;

    /// Sums of the lower and upper halves of 64-bit words: none overflows before four billion additions.
    struct Sums([__m256i; 4]);

    impl Sums {
        #[inline]
        #[target_feature(enable = "avx2")]
        fn new() -> Self {
            Self([_mm256_setzero_si256(); 4])
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn add(&mut self, first: __m256i, second: __m256i) {
            let half = _mm256_set1_epi64x(0xffff_ffff);
            let parts = [
                _mm256_and_si256(first, half),
                _mm256_srli_epi64::<32>(first),
                _mm256_and_si256(second, half),
                _mm256_srli_epi64::<32>(second),
            ];
            for (sum, part) in self.0.iter_mut().zip(parts) {
                *sum = _mm256_add_epi64(*sum, part);
            }
        }

        #[inline]
        #[target_feature(enable = "avx2")]
        fn finish(self) -> Sum {
            let [a, b, c, d] = self.0;
            let sum = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
            let mut words = [0u64; 4];
            // SAFETY: it writes the 32 bytes that `words` has.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), sum) };
            Sum::of_words(words.iter().sum())
        }
    }

    /// The two vectors of a block.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(block: &[u8; BLOCK]) -> [__m256i; 2] {
        let start: *const __m256i = block.as_ptr().cast();
        // SAFETY: they read the 64 bytes that `block` has; no alignment is needed.
        unsafe { [_mm256_loadu_si256(start), _mm256_loadu_si256(start.add(1))] }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn sum(bytes: &[u8]) -> Sum {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let mut sums = Sums::new();
        for block in blocks {
            let [first, second] = load(block);
            sums.add(first, second);
        }
        sums.finish() + Sum::of(rest)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn copy(from: &[u8], to: &mut [u8]) -> Sum {
        assert_eq!(from.len(), to.len());
        let (blocks, rest) = from.as_chunks::<BLOCK>();
        let (places, last) = to.as_chunks_mut::<BLOCK>();
        let mut sums = Sums::new();
        for (block, place) in blocks.iter().zip(places) {
            let [first, second] = load(block);
            let start: *mut __m256i = place.as_mut_ptr().cast();
            // SAFETY: they write the 64 bytes that `place` has; no alignment is needed.
            unsafe {
                _mm256_storeu_si256(start, first);
                _mm256_storeu_si256(start.add(1), second);
            }
            sums.add(first, second);
        }
        last.copy_from_slice(rest);
        sums.finish() + Sum::of(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_copies_are_those_of_one_byte_at_a_time_at_every_length() {
        let bytes: Vec<u8> = (0..2000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for (start, length) in (0..4).flat_map(|start| (0..1900).map(move |length| (start, length))) {
            let from = &bytes[start..start + length];
            let expected = Sum::of(from).fold();
            let mut to = vec![0; length];
            assert_eq!(
                (sum(from).fold(), copy(from, &mut to).fold()),
                (expected, expected),
                "{length} bytes"
            );
            assert_eq!(to, from);
        }
        let largest = vec![0xff; 65_535];
        assert_eq!(sum(&largest).fold(), Sum::of(&largest).fold());
    }
}
