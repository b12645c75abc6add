//! AVX-512: sixteen lanes of ChaCha20, eight of Poly1305.
#![expect(unsafe_code, reason = "instructions that not every processor has")]
#![allow(clippy::wildcard_imports, reason = "instructions are named as in the manuals")]

use super::Kernel;
use super::chacha20::{self, BLOCK, Blocks, Nonce, Words};
use super::poly1305::{self, MOST, Message, STEP, TAG};
use super::radix26::{Radix26, Wide};
use std::arch::x86_64::*;

/// The kernel, if this processor has AVX-512 with instructions for bytes.
pub(super) fn kernel() -> Option<&'static Kernel> {
    static KERNEL: Kernel = Kernel { name: "AVX-512", blocks: 16, any, row, tags };
    is_there().then_some(&KERNEL)
}

/// Whether this processor has what [`any`] and [`row`] need.
pub(super) fn is_there() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// For kernels that [`is_there`] allows.
pub(super) fn any(key: &[u32; 8], blocks: &mut Blocks<'_>) {
    // SAFETY: kernels with this function are only given to those who have AVX-512.
    unsafe { any_with(key, blocks) }
}

/// As [`any`].
pub(super) fn row(key: &[u32; 8], nonce: &Nonce, counter: u32, text: &mut [u8]) {
    // SAFETY: as above.
    unsafe { row_with(key, nonce, counter, text) }
}

fn tags(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    // SAFETY: as above.
    unsafe { tags_with(messages, tags) }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn any_with(key: &[u32; 8], blocks: &mut Blocks<'_>) {
    chacha20::any(Avx512(()), key, blocks);
}

#[target_feature(enable = "avx512f,avx512bw")]
fn row_with(key: &[u32; 8], nonce: &Nonce, counter: u32, text: &mut [u8]) {
    chacha20::row(Avx512(()), key, nonce, counter, text);
}

#[target_feature(enable = "avx512f,avx512bw")]
fn tags_with(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    poly1305::tags(Radix26::<_, 2>(Avx512(())), Radix26::<_, 1>(Avx512(())), messages, tags);
}

/// Made only in functions with AVX-512.
#[derive(Clone, Copy)]
struct Avx512(());

impl Words for Avx512 {
    type Vector = __m512i;

    #[inline(always)]
    fn splat(self, word: u32) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    fn load(self, words: &[u32; 16]) -> __m512i {
        // SAFETY: `self` proves AVX-512; there are 16 words.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn add(self, one: __m512i, other: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_add_epi32(one, other) }
    }

    #[inline(always)]
    fn xor_rotate<const LEFT: i32>(self, one: __m512i, other: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_rol_epi32::<LEFT>(_mm512_xor_si512(one, other)) }
    }

    #[inline(always)]
    fn xor_into(self, rows: &[__m512i; 16], texts: &mut [&mut [u8]]) {
        // SAFETY: `self` proves AVX-512.
        let blocks = unsafe { transposed(rows) };
        for (text, block) in texts.iter_mut().zip(blocks) {
            let at = text.as_mut_ptr();
            // SAFETY: `self` proves AVX-512; no more bytes are read or written than the text has.
            unsafe {
                if text.len() == BLOCK {
                    let sum = _mm512_xor_si512(block, _mm512_loadu_si512(at.cast()));
                    _mm512_storeu_si512(at.cast(), sum);
                } else {
                    let mask = (1 << text.len()) - 1;
                    let sum = _mm512_xor_si512(block, _mm512_maskz_loadu_epi8(mask, at.cast()));
                    _mm512_mask_storeu_epi8(at.cast(), mask, sum);
                }
            }
        }
    }

    #[inline(always)]
    fn xor_into_row(self, rows: &[__m512i; 16], text: &mut [u8]) {
        // SAFETY: `self` proves AVX-512.
        let blocks = unsafe { transposed(rows) };
        for (text, block) in text.as_chunks_mut::<BLOCK>().0.iter_mut().zip(blocks) {
            let at = text.as_mut_ptr();
            // SAFETY: `self` proves AVX-512; the chunk has 64 bytes.
            unsafe {
                let sum = _mm512_xor_si512(block, _mm512_loadu_si512(at.cast()));
                _mm512_storeu_si512(at.cast(), sum);
            }
        }
    }
}

/// The words of all rows by lane.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn transposed(rows: &[__m512i; 16]) -> [__m512i; 16] {
    // SAFETY: the caller's.
    unsafe {
        let [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15] = *rows;
        let (a, b) = (four([r0, r1, r2, r3]), four([r4, r5, r6, r7]));
        let (c, d) = (four([r8, r9, r10, r11]), four([r12, r13, r14, r15]));
        let [l0, l4, l8, l12] = quarters([a[0], b[0], c[0], d[0]]);
        let [l1, l5, l9, l13] = quarters([a[1], b[1], c[1], d[1]]);
        let [l2, l6, l10, l14] = quarters([a[2], b[2], c[2], d[2]]);
        let [l3, l7, l11, l15] = quarters([a[3], b[3], c[3], d[3]]);
        [l0, l1, l2, l3, l4, l5, l6, l7, l8, l9, l10, l11, l12, l13, l14, l15]
    }
}

/// Four rows by lane: for each `j`, a quarter `k` has their words of lane 4 k + j.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn four([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller's.
    unsafe {
        let (ab, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (cd, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(ab, cd),
            _mm512_unpackhi_epi64(ab, cd),
            _mm512_unpacklo_epi64(ab_high, cd_high),
            _mm512_unpackhi_epi64(ab_high, cd_high),
        ]
    }
}

/// The first quarters of four vectors, the second ones, and so on.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
pub(super) unsafe fn quarters([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the caller's.
    unsafe {
        let (ab, ab_high) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xee>(a, b));
        let (cd, cd_high) = (_mm512_shuffle_i32x4::<0x44>(c, d), _mm512_shuffle_i32x4::<0xee>(c, d));
        [
            _mm512_shuffle_i32x4::<0x88>(ab, cd),
            _mm512_shuffle_i32x4::<0xdd>(ab, cd),
            _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high),
            _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high),
        ]
    }
}

/// The words with even numbers of two lanes in turn, and those with odd numbers.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
unsafe fn two(steps: &[&[u8; STEP]; MOST], lane: usize) -> [__m512i; 2] {
    // SAFETY: the caller's; each step has a vector.
    unsafe {
        let a = _mm512_loadu_si512(steps[lane].as_ptr().cast());
        let b = _mm512_loadu_si512(steps[lane + 1].as_ptr().cast());
        [_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)]
    }
}

/// The eight words of the 64 bytes of eight lanes, from `first` on.
///
/// # Safety
/// The processor has AVX-512.
#[inline(always)]
pub(super) unsafe fn words_of_lanes(steps: &[&[u8; STEP]; MOST], first: usize) -> [__m512i; 8] {
    // SAFETY: the caller's; each step has a vector.
    unsafe {
        let (a, b) = (two(steps, first), two(steps, first + 2));
        let (c, d) = (two(steps, first + 4), two(steps, first + 6));
        let [w0, w2, w4, w6] = quarters([a[0], b[0], c[0], d[0]]);
        let [w1, w3, w5, w7] = quarters([a[1], b[1], c[1], d[1]]);
        [w0, w1, w2, w3, w4, w5, w6, w7]
    }
}

impl Wide for Avx512 {
    type Vector = __m512i;
    const COUNT: usize = 8;

    #[inline(always)]
    fn splat(self, word: u64) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_set1_epi64(word as i64) }
    }

    #[inline(always)]
    fn load(self, words: &[u64; MOST], first: usize) -> __m512i {
        let words = &words[first..first + 8];
        // SAFETY: `self` proves AVX-512; there are 8 words.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn transpose(self, steps: &[&[u8; STEP]; MOST], first: usize) -> [__m512i; 8] {
        // SAFETY: `self` proves AVX-512.
        unsafe { words_of_lanes(steps, first) }
    }

    #[inline(always)]
    fn store(self, vector: __m512i) -> [u64; MOST] {
        let mut words = [0; MOST];
        // SAFETY: `self` proves AVX-512; there are more than 8 words.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
        words
    }

    #[inline(always)]
    fn add(self, one: __m512i, other: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_add_epi64(one, other) }
    }

    #[inline(always)]
    fn multiply(self, one: __m512i, other: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_mul_epu32(one, other) }
    }

    #[inline(always)]
    fn and(self, one: __m512i, other: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_and_si512(one, other) }
    }

    #[inline(always)]
    fn or(self, one: __m512i, other: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_or_si512(one, other) }
    }

    #[inline(always)]
    fn right<const BITS: i32>(self, vector: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_srl_epi64(vector, _mm_cvtsi32_si128(BITS)) }
    }

    #[inline(always)]
    fn left<const BITS: i32>(self, vector: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_sll_epi64(vector, _mm_cvtsi32_si128(BITS)) }
    }

    #[inline(always)]
    fn choose(self, before: __m512i, after: __m512i, active: __m512i) -> __m512i {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_mask_blend_epi64(_mm512_test_epi64_mask(active, active), before, after) }
    }
}
