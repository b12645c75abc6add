//! ChaCha20 (RFC 8439 section 2.3) with one block a lane: blocks of any packets side by side.

use arrayvec::ArrayVec;
use zerocopy::IntoBytes;
use zeroize::Zeroize;

/// Bytes of a block.
pub(super) const BLOCK: usize = 64;
/// The most lanes of a vector.
const MOST: usize = 16;
/// "expand 32-byte k".
const CONSTANTS: [u32; 4] = [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574];

/// A nonce as words.
pub(super) type Nonce = [u32; 3];

/// The words of a nonce.
#[inline]
pub(super) fn nonce(bytes: &[u8; 12]) -> Nonce {
    let (words, _) = bytes.as_chunks::<4>();
    [words[0], words[1], words[2]].map(u32::from_le_bytes)
}

/// Blocks of key stream to be computed, each with the text that it is for.
pub(super) struct Blocks<'a> {
    counters: [u32; MOST],
    nonces: [[u32; MOST]; 3],
    texts: ArrayVec<&'a mut [u8], MOST>,
}

impl<'a> Blocks<'a> {
    /// None.
    #[inline]
    pub fn new() -> Self {
        Self { counters: [0; MOST], nonces: [[0; MOST]; 3], texts: ArrayVec::new() }
    }

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Adds one, for a text of at most [`BLOCK`] bytes.
    #[inline]
    pub fn push(&mut self, nonce: &Nonce, counter: u32, text: &'a mut [u8]) {
        let lane = self.texts.len();
        self.counters[lane] = counter;
        for (words, word) in self.nonces.iter_mut().zip(nonce) {
            words[lane] = *word;
        }
        self.texts.push(text);
    }
}

/// What ChaCha20 asks of an instruction set: 32-bit words in lanes.
///
/// A value of the type proves that the processor has the instructions.
pub(super) trait Words: Copy {
    /// A word in each lane.
    type Vector: Copy;

    /// The same word in each lane.
    fn splat(self, word: u32) -> Self::Vector;
    /// The first words, one a lane.
    fn load(self, words: &[u32; MOST]) -> Self::Vector;
    /// The sums of the lanes, modulo 2^32.
    fn add(self, one: Self::Vector, other: Self::Vector) -> Self::Vector;
    /// The lanes of `one` exclusive-or those of `other`, rotated left.
    fn xor_rotate<const LEFT: i32>(self, one: Self::Vector, other: Self::Vector) -> Self::Vector;
    /// XORs the key stream of each lane, its word of every row, into the text of the lane, which may be shorter.
    fn xor_into(self, rows: &[Self::Vector; 16], texts: &mut [&mut [u8]]);
    /// The same for full blocks, one after the other in `text`.
    fn xor_into_row(self, rows: &[Self::Vector; 16], text: &mut [u8]) {
        let mut texts: ArrayVec<&mut [u8], MOST> = text.chunks_exact_mut(BLOCK).collect();
        self.xor_into(rows, &mut texts);
    }
}

/// XORs the key stream of a block into a text that may be shorter, and erases it.
#[inline]
pub(super) fn xor_part(block: &mut [u64; BLOCK / 8], text: &mut [u8]) {
    text.iter_mut().zip(block.as_bytes()).for_each(|(byte, key)| *byte ^= key);
    block.zeroize();
}

/// Computes blocks, XORs them into their texts, and clears the list.
#[inline(always)]
pub(super) fn any<W: Words>(words: W, key: &[u32; 8], blocks: &mut Blocks<'_>) {
    if blocks.texts.is_empty() {
        return;
    }
    let counters = words.load(&blocks.counters);
    let [a, b, c] = &blocks.nonces;
    let nonces = [words.load(a), words.load(b), words.load(c)];
    let rows = permuted(words, key, counters, nonces);
    words.xor_into(&rows, &mut blocks.texts);
    blocks.texts.clear();
}

/// Computes consecutive blocks of one packet, as many as there are lanes, and XORs them into `text`.
#[inline(always)]
pub(super) fn row<W: Words>(words: W, key: &[u32; 8], nonce: &Nonce, counter: u32, text: &mut [u8]) {
    const STEPS: [u32; MOST] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let counters = words.add(words.splat(counter), words.load(&STEPS));
    let nonces = [words.splat(nonce[0]), words.splat(nonce[1]), words.splat(nonce[2])];
    let rows = permuted(words, key, counters, nonces);
    words.xor_into_row(&rows, text);
}

/// The words of all blocks: 20 rounds, and the state added.
#[inline(always)]
fn permuted<W: Words>(
    words: W,
    key: &[u32; 8],
    counters: W::Vector,
    nonces: [W::Vector; 3],
) -> [W::Vector; 16] {
    let [k0, k1, k2, k3, k4, k5, k6, k7] = *key;
    let state = [
        words.splat(CONSTANTS[0]),
        words.splat(CONSTANTS[1]),
        words.splat(CONSTANTS[2]),
        words.splat(CONSTANTS[3]),
        words.splat(k0),
        words.splat(k1),
        words.splat(k2),
        words.splat(k3),
        words.splat(k4),
        words.splat(k5),
        words.splat(k6),
        words.splat(k7),
        counters,
        nonces[0],
        nonces[1],
        nonces[2],
    ];
    let mut rows = state;
    for _ in 0..10 {
        quarter::<W, 0, 4, 8, 12>(words, &mut rows);
        quarter::<W, 1, 5, 9, 13>(words, &mut rows);
        quarter::<W, 2, 6, 10, 14>(words, &mut rows);
        quarter::<W, 3, 7, 11, 15>(words, &mut rows);
        quarter::<W, 0, 5, 10, 15>(words, &mut rows);
        quarter::<W, 1, 6, 11, 12>(words, &mut rows);
        quarter::<W, 2, 7, 8, 13>(words, &mut rows);
        quarter::<W, 3, 4, 9, 14>(words, &mut rows);
    }
    for (row, before) in rows.iter_mut().zip(state) {
        *row = words.add(*row, before);
    }
    rows
}

/// The quarter round (RFC 8439 section 2.1).
#[inline(always)]
fn quarter<W: Words, const A: usize, const B: usize, const C: usize, const D: usize>(
    words: W,
    rows: &mut [W::Vector; 16],
) {
    rows[A] = words.add(rows[A], rows[B]);
    rows[D] = words.xor_rotate::<16>(rows[D], rows[A]);
    rows[C] = words.add(rows[C], rows[D]);
    rows[B] = words.xor_rotate::<12>(rows[B], rows[C]);
    rows[A] = words.add(rows[A], rows[B]);
    rows[D] = words.xor_rotate::<8>(rows[D], rows[A]);
    rows[C] = words.add(rows[C], rows[D]);
    rows[B] = words.xor_rotate::<7>(rows[B], rows[C]);
}
