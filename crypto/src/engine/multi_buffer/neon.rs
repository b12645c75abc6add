//! NEON: four lanes of ChaCha20, two of Poly1305. Every 64-bit ARM processor has it.
#![expect(unsafe_code, reason = "intrinsics that read and write memory")]
#![allow(clippy::wildcard_imports, reason = "instructions are named as in the manuals")]

use super::Kernel;
use super::chacha20::{self, BLOCK, Blocks, Nonce, Words, xor_part};
use super::poly1305::{self, MOST, Message, STEP, TAG};
use super::radix26::{Radix26, Wide};
use std::arch::aarch64::*;
use std::arch::asm;

/// See [`Kernel`].
pub(super) static KERNEL: Kernel = Kernel { name: "NEON", blocks: 4, any, row, tags };

fn any(key: &[u32; 8], blocks: &mut Blocks<'_>) {
    chacha20::any(Neon, key, blocks);
}

fn row(key: &[u32; 8], nonce: &Nonce, counter: u32, text: &mut [u8]) {
    chacha20::row(Neon, key, nonce, counter, text);
}

fn tags(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    poly1305::tags(Radix26::<_, 2>(Neon), Radix26::<_, 1>(Neon), messages, tags);
}

#[derive(Clone, Copy)]
struct Neon;

impl Words for Neon {
    type Vector = uint32x4_t;

    #[inline(always)]
    fn splat(self, word: u32) -> uint32x4_t {
        // SAFETY: the target has NEON.
        unsafe { vdupq_n_u32(word) }
    }

    #[inline(always)]
    fn load(self, words: &[u32; 16]) -> uint32x4_t {
        // SAFETY: the target has NEON; there are more than 4 words.
        unsafe { vld1q_u32(words.as_ptr()) }
    }

    #[inline(always)]
    fn add(self, one: uint32x4_t, other: uint32x4_t) -> uint32x4_t {
        // SAFETY: the target has NEON.
        unsafe { vaddq_u32(one, other) }
    }

    #[inline(always)]
    fn xor_rotate<const LEFT: i32>(self, one: uint32x4_t, other: uint32x4_t) -> uint32x4_t {
        // SAFETY: the target has NEON.
        unsafe {
            let both = veorq_u32(one, other);
            match LEFT {
                16 => vreinterpretq_u32_u16(vrev32q_u16(vreinterpretq_u16_u32(both))),
                12 => vsriq_n_u32::<20>(vshlq_n_u32::<12>(both), both),
                8 => vsriq_n_u32::<24>(vshlq_n_u32::<8>(both), both),
                _ => vsriq_n_u32::<25>(vshlq_n_u32::<7>(both), both),
            }
        }
    }

    #[inline(always)]
    fn xor_into(self, rows: &[uint32x4_t; 16], texts: &mut [&mut [u8]]) {
        let quarters = [transposed(rows, 0), transposed(rows, 4), transposed(rows, 8), transposed(rows, 12)];
        for (lane, text) in texts.iter_mut().enumerate() {
            let parts = [quarters[0][lane], quarters[1][lane], quarters[2][lane], quarters[3][lane]];
            if text.len() == BLOCK {
                for (place, part) in parts.into_iter().enumerate() {
                    // SAFETY: the target has NEON; the text has 64 bytes.
                    unsafe {
                        let at = text.as_mut_ptr().add(16 * place);
                        vst1q_u8(at, veorq_u8(vreinterpretq_u8_u32(part), vld1q_u8(at)));
                    }
                }
            } else {
                let mut block = [0; BLOCK / 8];
                for (place, part) in parts.into_iter().enumerate() {
                    // SAFETY: the target has NEON; the block has 64 bytes.
                    unsafe { vst1q_u64(block.as_mut_ptr().add(2 * place), vreinterpretq_u64_u32(part)) };
                }
                xor_part(&mut block, text);
            }
        }
    }
}

/// The words of four rows, from `first` on, by lane.
#[inline(always)]
fn transposed(rows: &[uint32x4_t; 16], first: usize) -> [uint32x4_t; 4] {
    // SAFETY: the target has NEON.
    unsafe {
        let wide = |vector| vreinterpretq_u64_u32(vector);
        let (a, b, c, d) = (rows[first], rows[first + 1], rows[first + 2], rows[first + 3]);
        let (ab, ab_odd) = (wide(vtrn1q_u32(a, b)), wide(vtrn2q_u32(a, b)));
        let (cd, cd_odd) = (wide(vtrn1q_u32(c, d)), wide(vtrn2q_u32(c, d)));
        [
            vreinterpretq_u32_u64(vtrn1q_u64(ab, cd)),
            vreinterpretq_u32_u64(vtrn1q_u64(ab_odd, cd_odd)),
            vreinterpretq_u32_u64(vtrn2q_u64(ab, cd)),
            vreinterpretq_u32_u64(vtrn2q_u64(ab_odd, cd_odd)),
        ]
    }
}

impl Wide for Neon {
    type Vector = uint64x2_t;
    const COUNT: usize = 2;

    #[inline(always)]
    fn splat(self, word: u64) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vdupq_n_u64(word) }
    }

    #[inline(always)]
    fn load(self, words: &[u64; MOST], first: usize) -> uint64x2_t {
        let words = &words[first..first + 2];
        // SAFETY: the target has NEON; there are 2 words.
        unsafe { vld1q_u64(words.as_ptr()) }
    }

    #[inline(always)]
    fn transpose(self, steps: &[&[u8; STEP]; MOST], first: usize) -> [uint64x2_t; 8] {
        let mut all = [Wide::splat(self, 0); 8];
        for (place, two) in all.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            // SAFETY: the target has NEON; each step has four vectors.
            unsafe {
                let words = |lane: usize| {
                    vreinterpretq_u64_u8(vld1q_u8(steps[first + lane].as_ptr().add(16 * place)))
                };
                *two = [vtrn1q_u64(words(0), words(1)), vtrn2q_u64(words(0), words(1))];
            }
        }
        all
    }

    #[inline(always)]
    fn store(self, vector: uint64x2_t) -> [u64; MOST] {
        let mut words = [0; MOST];
        // SAFETY: the target has NEON; there are more than 2 words.
        unsafe { vst1q_u64(words.as_mut_ptr(), vector) };
        words
    }

    #[inline(always)]
    fn add(self, one: uint64x2_t, other: uint64x2_t) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vaddq_u64(one, other) }
    }

    #[inline(always)]
    fn multiply(self, one: uint64x2_t, other: uint64x2_t) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vmull_u32(low_halves(one), low_halves(other)) }
    }

    #[inline(always)]
    fn and(self, one: uint64x2_t, other: uint64x2_t) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vandq_u64(one, other) }
    }

    #[inline(always)]
    fn or(self, one: uint64x2_t, other: uint64x2_t) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vorrq_u64(one, other) }
    }

    #[inline(always)]
    fn right<const BITS: i32>(self, vector: uint64x2_t) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vshrq_n_u64::<BITS>(vector) }
    }

    #[inline(always)]
    fn left<const BITS: i32>(self, vector: uint64x2_t) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vshlq_n_u64::<BITS>(vector) }
    }

    #[inline(always)]
    fn choose(self, before: uint64x2_t, after: uint64x2_t, active: uint64x2_t) -> uint64x2_t {
        // SAFETY: the target has NEON.
        unsafe { vbslq_u64(active, after, before) }
    }
}

/// The low halves, as `vmovn_u64` gives them, by an instruction that the compiler does not look into: a product of 32-bit numbers whose
/// high halves it knows to be 0 is one of 64-bit numbers to it, which NEON lacks, and is computed lane by lane.
#[inline(always)]
fn low_halves(vector: uint64x2_t) -> uint32x2_t {
    let halves: uint32x2_t;
    // SAFETY: the target has NEON; only these registers are used.
    unsafe {
        asm!(
            "xtn {halves:v}.2s, {vector:v}.2d",
            halves = lateout(vreg) halves,
            vector = in(vreg) vector,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    halves
}
