//! AVX2: eight lanes of ChaCha20, four of Poly1305.
#![expect(unsafe_code, reason = "instructions that not every processor has")]
#![allow(clippy::wildcard_imports, reason = "instructions are named as in the manuals")]
#![expect(clippy::cast_ptr_alignment, reason = "these loads and stores need no alignment")]

use super::Kernel;
use super::chacha20::{self, BLOCK, Blocks, Nonce, Words, xor_part};
use super::poly1305::{self, MOST, Message, STEP, TAG};
use super::radix26::{Radix26, Wide};
use std::arch::x86_64::*;

/// The kernel, if this processor has AVX2.
pub(super) fn kernel() -> Option<&'static Kernel> {
    static KERNEL: Kernel = Kernel { name: "AVX2", blocks: 8, any, row, tags };
    is_x86_feature_detected!("avx2").then_some(&KERNEL)
}

fn any(key: &[u32; 8], blocks: &mut Blocks<'_>) {
    // SAFETY: the kernel is only given to those who have AVX2.
    unsafe { any_with(key, blocks) }
}

fn row(key: &[u32; 8], nonce: &Nonce, counter: u32, text: &mut [u8]) {
    // SAFETY: as above.
    unsafe { row_with(key, nonce, counter, text) }
}

fn tags(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    // SAFETY: as above.
    unsafe { tags_with(messages, tags) }
}

#[target_feature(enable = "avx2")]
fn any_with(key: &[u32; 8], blocks: &mut Blocks<'_>) {
    chacha20::any(Avx2(()), key, blocks);
}

#[target_feature(enable = "avx2")]
fn row_with(key: &[u32; 8], nonce: &Nonce, counter: u32, text: &mut [u8]) {
    chacha20::row(Avx2(()), key, nonce, counter, text);
}

#[target_feature(enable = "avx2")]
fn tags_with(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    poly1305::tags(Radix26::<_, 2>(Avx2(())), Radix26::<_, 1>(Avx2(())), messages, tags);
}

/// Made only in functions with AVX2.
#[derive(Clone, Copy)]
struct Avx2(());

impl Words for Avx2 {
    type Vector = __m256i;

    #[inline(always)]
    fn splat(self, word: u32) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn load(self, words: &[u32; 16]) -> __m256i {
        // SAFETY: `self` proves AVX2; there are more than 8 words.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn add(self, one: __m256i, other: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_epi32(one, other) }
    }

    #[inline(always)]
    fn xor_rotate<const LEFT: i32>(self, one: __m256i, other: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let both = _mm256_xor_si256(one, other);
            match LEFT {
                16 => _mm256_shuffle_epi8(
                    both,
                    _mm256_setr_epi8(
                        2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11,
                        8, 9, 14, 15, 12, 13,
                    ),
                ),
                8 => _mm256_shuffle_epi8(
                    both,
                    _mm256_setr_epi8(
                        3, 0, 1, 2, 7, 4, 5, 6, 11, 8, 9, 10, 15, 12, 13, 14, 3, 0, 1, 2, 7, 4, 5, 6, 11, 8,
                        9, 10, 15, 12, 13, 14,
                    ),
                ),
                12 => _mm256_or_si256(_mm256_slli_epi32::<12>(both), _mm256_srli_epi32::<20>(both)),
                _ => _mm256_or_si256(_mm256_slli_epi32::<7>(both), _mm256_srli_epi32::<25>(both)),
            }
        }
    }

    #[inline(always)]
    fn xor_into(self, rows: &[__m256i; 16], texts: &mut [&mut [u8]]) {
        // SAFETY: `self` proves AVX2.
        let halves = unsafe { [transposed(rows, 0), transposed(rows, 8)] };
        for (lane, text) in texts.iter_mut().enumerate() {
            let halves = [halves[0][lane], halves[1][lane]];
            if text.len() == BLOCK {
                let at = text.as_mut_ptr().cast::<__m256i>();
                // SAFETY: `self` proves AVX2; the text has 64 bytes.
                unsafe {
                    for (place, half) in halves.into_iter().enumerate() {
                        let sum = _mm256_xor_si256(half, _mm256_loadu_si256(at.add(place)));
                        _mm256_storeu_si256(at.add(place), sum);
                    }
                }
            } else {
                let mut block = [0; BLOCK / 8];
                // SAFETY: `self` proves AVX2; the block has 64 bytes.
                unsafe {
                    _mm256_storeu_si256(block.as_mut_ptr().cast(), halves[0]);
                    _mm256_storeu_si256(block.as_mut_ptr().cast::<__m256i>().add(1), halves[1]);
                }
                xor_part(&mut block, text);
            }
        }
    }
}

/// The words of eight rows, from `first` on, by lane.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn transposed(rows: &[__m256i; 16], first: usize) -> [__m256i; 8] {
    // SAFETY: the caller's.
    unsafe {
        let (front, back) = (four(rows, first), four(rows, first + 4));
        [
            _mm256_permute2x128_si256::<0x20>(front[0], back[0]),
            _mm256_permute2x128_si256::<0x20>(front[1], back[1]),
            _mm256_permute2x128_si256::<0x20>(front[2], back[2]),
            _mm256_permute2x128_si256::<0x20>(front[3], back[3]),
            _mm256_permute2x128_si256::<0x31>(front[0], back[0]),
            _mm256_permute2x128_si256::<0x31>(front[1], back[1]),
            _mm256_permute2x128_si256::<0x31>(front[2], back[2]),
            _mm256_permute2x128_si256::<0x31>(front[3], back[3]),
        ]
    }
}

/// Four rows by lane: for each `j`, a half `k` has their words of lane 4 k + j.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn four(rows: &[__m256i; 16], first: usize) -> [__m256i; 4] {
    let [a, b, c, d] = [rows[first], rows[first + 1], rows[first + 2], rows[first + 3]];
    // SAFETY: the caller's.
    unsafe {
        let (ab, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab, cd),
            _mm256_unpackhi_epi64(ab, cd),
            _mm256_unpacklo_epi64(ab_high, cd_high),
            _mm256_unpackhi_epi64(ab_high, cd_high),
        ]
    }
}

/// Half of the words of the 64 bytes of four lanes, from `first` on.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn words_of_lanes(steps: &[&[u8; STEP]; MOST], first: usize, half: usize) -> [__m256i; 4] {
    // SAFETY: the caller's; each step has two vectors.
    unsafe {
        let a = _mm256_loadu_si256(steps[first].as_ptr().cast::<__m256i>().add(half));
        let b = _mm256_loadu_si256(steps[first + 1].as_ptr().cast::<__m256i>().add(half));
        let c = _mm256_loadu_si256(steps[first + 2].as_ptr().cast::<__m256i>().add(half));
        let d = _mm256_loadu_si256(steps[first + 3].as_ptr().cast::<__m256i>().add(half));
        let (ab, ab_odd) = (_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
        let (cd, cd_odd) = (_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
        [
            _mm256_permute2x128_si256::<0x20>(ab, cd),
            _mm256_permute2x128_si256::<0x20>(ab_odd, cd_odd),
            _mm256_permute2x128_si256::<0x31>(ab, cd),
            _mm256_permute2x128_si256::<0x31>(ab_odd, cd_odd),
        ]
    }
}

impl Wide for Avx2 {
    type Vector = __m256i;
    const COUNT: usize = 4;

    #[inline(always)]
    fn splat(self, word: u64) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set1_epi64x(word as i64) }
    }

    #[inline(always)]
    fn load(self, words: &[u64; MOST], first: usize) -> __m256i {
        let words = &words[first..first + 4];
        // SAFETY: `self` proves AVX2; there are 4 words.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn transpose(self, steps: &[&[u8; STEP]; MOST], first: usize) -> [__m256i; 8] {
        // SAFETY: `self` proves AVX2.
        let (front, back) = unsafe { (words_of_lanes(steps, first, 0), words_of_lanes(steps, first, 1)) };
        [front[0], front[1], front[2], front[3], back[0], back[1], back[2], back[3]]
    }

    #[inline(always)]
    fn store(self, vector: __m256i) -> [u64; MOST] {
        let mut words = [0; MOST];
        // SAFETY: `self` proves AVX2; there are more than 4 words.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
        words
    }

    #[inline(always)]
    fn add(self, one: __m256i, other: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_add_epi64(one, other) }
    }

    #[inline(always)]
    fn multiply(self, one: __m256i, other: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_mul_epu32(one, other) }
    }

    #[inline(always)]
    fn and(self, one: __m256i, other: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_and_si256(one, other) }
    }

    #[inline(always)]
    fn or(self, one: __m256i, other: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_or_si256(one, other) }
    }

    #[inline(always)]
    fn right<const BITS: i32>(self, vector: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_srli_epi64::<BITS>(vector) }
    }

    #[inline(always)]
    fn left<const BITS: i32>(self, vector: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_slli_epi64::<BITS>(vector) }
    }

    #[inline(always)]
    fn choose(self, before: __m256i, after: __m256i, active: __m256i) -> __m256i {
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_blendv_epi8(before, after, active) }
    }
}
