//! Eight lanes of plain numbers, of which the compiler makes vectors.

use super::Kernel;
use super::chacha20::{self, BLOCK, Blocks, Nonce, Words, xor_part};
use super::poly1305::{self, MOST, Message, TAG};
use super::radix26::{Radix26, Wide};

/// See [`Kernel`].
pub(super) static KERNEL: Kernel = Kernel { name: "portable", blocks: 8, any, row, tags };

fn any(key: &[u32; 8], blocks: &mut Blocks<'_>) {
    chacha20::any(Portable, key, blocks);
}

fn row(key: &[u32; 8], nonce: &Nonce, counter: u32, text: &mut [u8]) {
    chacha20::row(Portable, key, nonce, counter, text);
}

fn tags(messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    let lanes = Radix26::<_, 1>(Portable);
    poly1305::tags(lanes, lanes, messages, tags);
}

#[derive(Clone, Copy)]
struct Portable;

/// Lanes of ChaCha20.
const WORDS: usize = 8;
/// Lanes of Poly1305.
const SUMS: usize = 4;

impl Words for Portable {
    type Vector = [u32; WORDS];

    #[inline(always)]
    fn splat(self, word: u32) -> Self::Vector {
        [word; WORDS]
    }

    #[inline(always)]
    fn load(self, words: &[u32; 16]) -> Self::Vector {
        std::array::from_fn(|lane| words[lane])
    }

    #[inline(always)]
    fn add(self, one: Self::Vector, other: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| one[lane].wrapping_add(other[lane]))
    }

    #[inline(always)]
    fn xor_rotate<const LEFT: i32>(self, one: Self::Vector, other: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| (one[lane] ^ other[lane]).rotate_left(LEFT as u32))
    }

    #[inline(always)]
    fn xor_into(self, rows: &[Self::Vector; 16], texts: &mut [&mut [u8]]) {
        let mut block = [0; BLOCK / 8];
        for (lane, text) in texts.iter_mut().enumerate() {
            for (word, [low, high]) in block.iter_mut().zip(rows.as_chunks().0) {
                *word = (u64::from(low[lane]) | u64::from(high[lane]) << 32).to_le();
            }
            xor_part(&mut block, text);
        }
    }
}

impl Wide for Portable {
    type Vector = [u64; SUMS];
    const COUNT: usize = SUMS;

    #[inline(always)]
    fn load(self, words: &[u64; MOST], first: usize) -> Self::Vector {
        std::array::from_fn(|lane| words[first + lane])
    }

    #[inline(always)]
    fn transpose(self, steps: &[&[u8; 64]; MOST], first: usize) -> [Self::Vector; 8] {
        let word = |lane: usize, word: usize| u64::from_le_bytes(steps[first + lane].as_chunks().0[word]);
        std::array::from_fn(|at| std::array::from_fn(|lane| word(lane, at)))
    }

    #[inline(always)]
    fn splat(self, word: u64) -> Self::Vector {
        [word; SUMS]
    }

    #[inline(always)]
    fn store(self, vector: Self::Vector) -> [u64; MOST] {
        let mut words = [0; MOST];
        words[..SUMS].copy_from_slice(&vector);
        words
    }

    #[inline(always)]
    fn add(self, one: Self::Vector, other: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| one[lane].wrapping_add(other[lane]))
    }

    #[inline(always)]
    fn multiply(self, one: Self::Vector, other: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| u64::from(one[lane] as u32) * u64::from(other[lane] as u32))
    }

    #[inline(always)]
    fn and(self, one: Self::Vector, other: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| one[lane] & other[lane])
    }

    #[inline(always)]
    fn or(self, one: Self::Vector, other: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| one[lane] | other[lane])
    }

    #[inline(always)]
    fn right<const BITS: i32>(self, vector: Self::Vector) -> Self::Vector {
        vector.map(|word| word >> BITS)
    }

    #[inline(always)]
    fn left<const BITS: i32>(self, vector: Self::Vector) -> Self::Vector {
        vector.map(|word| word << BITS)
    }

    #[inline(always)]
    fn choose(self, before: Self::Vector, after: Self::Vector, active: Self::Vector) -> Self::Vector {
        std::array::from_fn(|lane| before[lane] & !active[lane] | after[lane] & active[lane])
    }
}
