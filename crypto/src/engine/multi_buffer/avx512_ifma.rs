//! AVX-512 with IFMA: Poly1305 in three limbs of 44, 44 and 42 bits, which one instruction multiplies and adds.
//!
//! Two vectors side by side are sixteen lanes: one alone would wait for its own products.
#![expect(unsafe_code, reason = "instructions that not every processor has")]
#![allow(clippy::wildcard_imports, reason = "instructions are named as in the manuals")]

use super::Kernel;
use super::avx512::{any, is_there, row, words_of_lanes};
use super::poly1305::{self, Lanes, MOST, Message, STEP, TAG};
use std::arch::x86_64::*;

/// The kernel, if this processor has AVX-512 with IFMA.
pub(super) fn kernel() -> Option<&'static Kernel> {
    static KERNEL: Kernel = Kernel { name: "AVX-512 IFMA", blocks: 16, any, row, tags };
    (is_there() && is_x86_feature_detected!("avx512ifma")).then_some(&KERNEL)
}

fn tags(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    // SAFETY: the kernel is only given to those who have IFMA.
    unsafe { tags_with(messages, tags) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512ifma")]
fn tags_with(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    poly1305::tags(Ifma::<2>(()), Ifma::<1>(()), messages, tags);
}

/// Lanes in so many vectors. Made only in functions with IFMA.
#[derive(Clone, Copy)]
struct Ifma<const VECTORS: usize>(());

/// The sums of eight lanes with their multipliers.
#[derive(Clone, Copy)]
struct Eight {
    r: [__m512i; 3],
    /// Twenty times the limbs of r from the second on: 2^132 is 20.
    r20: [__m512i; 2],
    h: [__m512i; 3],
}

const M44: u64 = (1 << 44) - 1;
const M42: u64 = (1 << 42) - 1;

impl Eight {
    /// The limbs of 128 bits.
    ///
    /// # Safety
    /// The processor has IFMA.
    #[inline(always)]
    unsafe fn limbs(low: __m512i, high: __m512i) -> [__m512i; 3] {
        // SAFETY: the caller's.
        unsafe {
            let mask = _mm512_set1_epi64(M44 as i64);
            let across = _mm512_or_si512(_mm512_srli_epi64::<44>(low), _mm512_slli_epi64::<20>(high));
            [_mm512_and_si512(low, mask), _mm512_and_si512(across, mask), _mm512_srli_epi64::<24>(high)]
        }
    }

    /// # Safety
    /// The processor has IFMA.
    #[inline(always)]
    unsafe fn begin(low: __m512i, high: __m512i) -> Self {
        // SAFETY: the caller's.
        unsafe {
            let r = Self::limbs(low, high);
            Self { r, r20: [twenty_times(r[1]), twenty_times(r[2])], h: [_mm512_setzero_si512(); 3] }
        }
    }

    /// Adds a block, and multiplies. A limb stays below 2^50: products are below 2^98, the high halves of their sums below 2^47.
    ///
    /// # Safety
    /// The processor has IFMA.
    #[inline(always)]
    unsafe fn take(&mut self, low: __m512i, high: __m512i) {
        // SAFETY: the caller's.
        unsafe {
            let [b0, b1, b2] = Self::limbs(low, high);
            // RFC 8439 section 2.5.1: the bit beyond the 16 bytes.
            let b2 = _mm512_or_si512(b2, _mm512_set1_epi64(1 << 40));
            let h = [
                _mm512_add_epi64(self.h[0], b0),
                _mm512_add_epi64(self.h[1], b1),
                _mm512_add_epi64(self.h[2], b2),
            ];
            let ([r0, r1, r2], [s1, s2]) = (self.r, self.r20);
            let (low0, high0) = products(h, [r0, s2, s1]);
            let (low1, high1) = products(h, [r1, r0, s2]);
            let (low2, high2) = products(h, [r2, r1, r0]);
            let (mask44, mask42) = (_mm512_set1_epi64(M44 as i64), _mm512_set1_epi64(M42 as i64));
            // The high halves count 2^52 of their limb, 2^8 of the next one; 2^10 after the last one.
            let d1 = sum(low1, _mm512_slli_epi64::<8>(high0), _mm512_srli_epi64::<44>(low0));
            let d2 = sum(low2, _mm512_slli_epi64::<8>(high1), _mm512_srli_epi64::<44>(d1));
            let over = _mm512_add_epi64(_mm512_srli_epi64::<42>(d2), _mm512_slli_epi64::<10>(high2));
            let five = _mm512_add_epi64(over, _mm512_slli_epi64::<2>(over));
            self.h = [
                _mm512_add_epi64(_mm512_and_si512(low0, mask44), five),
                _mm512_and_si512(d1, mask44),
                _mm512_and_si512(d2, mask42),
            ];
        }
    }
}

/// # Safety
/// The processor has IFMA.
#[inline(always)]
unsafe fn twenty_times(limb: __m512i) -> __m512i {
    // SAFETY: the caller's.
    unsafe { _mm512_add_epi64(_mm512_slli_epi64::<4>(limb), _mm512_slli_epi64::<2>(limb)) }
}

/// # Safety
/// The processor has IFMA.
#[inline(always)]
unsafe fn sum(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    // SAFETY: the caller's.
    unsafe { _mm512_add_epi64(_mm512_add_epi64(a, b), c) }
}

/// The sums of the products of limbs, in halves of 52 bits.
///
/// # Safety
/// The processor has IFMA.
#[inline(always)]
unsafe fn products(h: [__m512i; 3], factors: [__m512i; 3]) -> (__m512i, __m512i) {
    // SAFETY: the caller's.
    unsafe {
        let (mut low, mut high) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for place in 0..3 {
            low = _mm512_madd52lo_epu64(low, h[place], factors[place]);
            high = _mm512_madd52hi_epu64(high, h[place], factors[place]);
        }
        (low, high)
    }
}

impl<const VECTORS: usize> Lanes for Ifma<VECTORS> {
    type Vector = [__m512i; VECTORS];
    type Sums = [Eight; VECTORS];
    const COUNT: usize = 8 * VECTORS;

    #[inline(always)]
    fn load(self, words: &[u64; MOST]) -> Self::Vector {
        // SAFETY: `self` proves AVX-512.
        let mut vectors = [unsafe { _mm512_setzero_si512() }; VECTORS];
        for (vector, words) in vectors.iter_mut().zip(words.as_chunks::<8>().0) {
            // SAFETY: `self` proves AVX-512; there are 8 words.
            *vector = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
        }
        vectors
    }

    #[inline(always)]
    fn transpose(self, steps: &[&[u8; STEP]; MOST]) -> [Self::Vector; 8] {
        // SAFETY: `self` proves AVX-512.
        let mut all = [[unsafe { _mm512_setzero_si512() }; VECTORS]; 8];
        for place in 0..VECTORS {
            // SAFETY: `self` proves AVX-512.
            let words = unsafe { words_of_lanes(steps, 8 * place) };
            for (vectors, word) in all.iter_mut().zip(words) {
                vectors[place] = word;
            }
        }
        all
    }

    #[inline(always)]
    fn begin(self, [low, high]: [Self::Vector; 2]) -> Self::Sums {
        // SAFETY: `self` proves IFMA.
        let mut sums = [unsafe { Eight::begin(low[0], high[0]) }; VECTORS];
        for (place, sums) in sums.iter_mut().enumerate().skip(1) {
            // SAFETY: `self` proves IFMA.
            *sums = unsafe { Eight::begin(low[place], high[place]) };
        }
        sums
    }

    #[inline(always)]
    fn take(self, sums: &mut Self::Sums, low: Self::Vector, high: Self::Vector) {
        for (place, sums) in sums.iter_mut().enumerate() {
            // SAFETY: `self` proves IFMA.
            unsafe { sums.take(low[place], high[place]) };
        }
    }

    #[inline(always)]
    fn choose(self, before: Self::Sums, after: Self::Sums, active: Self::Vector) -> Self::Sums {
        let mut chosen = after;
        for ((after, before), active) in chosen.iter_mut().zip(before).zip(active) {
            // SAFETY: `self` proves AVX-512.
            unsafe {
                let mask = _mm512_test_epi64_mask(active, active);
                for (limb, before) in after.h.iter_mut().zip(before.h) {
                    *limb = _mm512_mask_blend_epi64(mask, before, *limb);
                }
            }
        }
        chosen
    }

    #[inline(always)]
    fn limbs(self, sums: &Self::Sums) -> [[u64; 3]; MOST] {
        let mut all = [[0; 3]; MOST];
        for (sums, lanes) in sums.iter().zip(all.as_chunks_mut::<8>().0) {
            for (place, limb) in sums.h.into_iter().enumerate() {
                let mut words = [0u64; 8];
                // SAFETY: `self` proves AVX-512; there are 8 words.
                unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), limb) };
                for (lane, word) in lanes.iter_mut().zip(words) {
                    lane[place] = word;
                }
            }
        }
        all
    }
}
