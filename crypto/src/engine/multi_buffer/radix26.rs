//! Sums of Poly1305 in five limbs of 26 bits, for instruction sets that multiply 32-bit numbers to 64 bits.

use super::poly1305::{Lanes, MOST, STEP};

/// 64-bit words in lanes. A value of the type proves that the processor has the instructions.
pub(super) trait Wide: Copy {
    /// A word in each lane.
    type Vector: Copy;
    /// The number of lanes, at most 16.
    const COUNT: usize;

    /// The same word in each lane.
    fn splat(self, word: u64) -> Self::Vector;
    /// The words from `first` on, one a lane.
    fn load(self, words: &[u64; MOST], first: usize) -> Self::Vector;
    /// The eight words of the 64 bytes of as many lanes as a vector has, from `first` on.
    fn transpose(self, steps: &[&[u8; STEP]; MOST], first: usize) -> [Self::Vector; 8];
    /// The words, one a lane.
    fn store(self, vector: Self::Vector) -> [u64; MOST];
    /// Sums modulo 2^64.
    fn add(self, one: Self::Vector, other: Self::Vector) -> Self::Vector;
    /// Products of the low halves.
    fn multiply(self, one: Self::Vector, other: Self::Vector) -> Self::Vector;
    /// Bits that are in both.
    fn and(self, one: Self::Vector, other: Self::Vector) -> Self::Vector;
    /// Bits that are in one of both.
    fn or(self, one: Self::Vector, other: Self::Vector) -> Self::Vector;
    /// Shifted to lower bits.
    fn right<const BITS: i32>(self, vector: Self::Vector) -> Self::Vector;
    /// Shifted to higher bits.
    fn left<const BITS: i32>(self, vector: Self::Vector) -> Self::Vector;
    /// `after` where `active` is all ones, `before` where it is 0.
    fn choose(self, before: Self::Vector, after: Self::Vector, active: Self::Vector) -> Self::Vector;
}

/// The sums of the lanes of a vector, with their multiplier.
#[derive(Clone, Copy)]
pub(super) struct Sums<V> {
    r: [V; 5],
    /// Five times the limbs of r from the second on: 2^130 is 5.
    r5: [V; 4],
    h: [V; 5],
}

const MASK: u64 = (1 << 26) - 1;

/// The limbs of 128 bits.
#[inline(always)]
fn limbs<W: Wide>(wide: W, low: W::Vector, high: W::Vector) -> [W::Vector; 5] {
    let mask = wide.splat(MASK);
    let across = wide.or(wide.right::<52>(low), wide.left::<12>(high));
    [
        wide.and(low, mask),
        wide.and(wide.right::<26>(low), mask),
        wide.and(across, mask),
        wide.and(wide.right::<14>(high), mask),
        wide.right::<40>(high),
    ]
}

#[inline(always)]
fn five_times<W: Wide>(wide: W, vector: W::Vector) -> W::Vector {
    wide.add(vector, wide.left::<2>(vector))
}

impl<V: Copy> Sums<V> {
    #[inline(always)]
    fn begin<W: Wide<Vector = V>>(wide: W, low: V, high: V) -> Self {
        let r = limbs(wide, low, high);
        let r5 =
            [five_times(wide, r[1]), five_times(wide, r[2]), five_times(wide, r[3]), five_times(wide, r[4])];
        Self { r, r5, h: [wide.splat(0); 5] }
    }

    /// Adds a block, and multiplies.
    #[inline(always)]
    fn take<W: Wide<Vector = V>>(&mut self, wide: W, low: V, high: V) {
        let ([r0, r1, r2, r3, r4], [s1, s2, s3, s4]) = (self.r, self.r5);
        let [b0, b1, b2, b3, b4] = limbs(wide, low, high);
        // RFC 8439 section 2.5.1: the bit beyond the 16 bytes.
        let b4 = wide.or(b4, wide.splat(1 << 24));
        let [h0, h1, h2, h3, h4] = self.h;
        let h = [wide.add(h0, b0), wide.add(h1, b1), wide.add(h2, b2), wide.add(h3, b3), wide.add(h4, b4)];
        let products = [
            dot(wide, h, [r0, s4, s3, s2, s1]),
            dot(wide, h, [r1, r0, s4, s3, s2]),
            dot(wide, h, [r2, r1, r0, s4, s3]),
            dot(wide, h, [r3, r2, r1, r0, s4]),
            dot(wide, h, [r4, r3, r2, r1, r0]),
        ];
        self.h = carried(wide, products);
    }

    /// The sums of a lane in limbs that count 1, 2^44 and 2^88.
    fn wider([h0, h1, h2, h3, h4]: [u64; 5]) -> [u64; 3] {
        let h2 = h2 + (h1 >> 26);
        let h3 = h3 + (h2 >> 26);
        let (h1, h2, h3, h4) = (h1 & MASK, h2 & MASK, h3 & MASK, h4 + (h3 >> 26));
        // Limbs may be a little above 26 bits: sums, so that none is lost.
        [h0 + ((h1 & 0x3_ffff) << 26), (h1 >> 18) + (h2 << 8) + ((h3 & 0x3ff) << 34), (h3 >> 10) + (h4 << 16)]
    }
}

/// The lanes of so many vectors side by side: one alone would wait for its own products.
#[derive(Clone, Copy)]
pub(super) struct Radix26<W, const VECTORS: usize>(pub W);

impl<W: Wide, const VECTORS: usize> Lanes for Radix26<W, VECTORS> {
    type Vector = [W::Vector; VECTORS];
    type Sums = [Sums<W::Vector>; VECTORS];
    const COUNT: usize = VECTORS * W::COUNT;

    #[inline(always)]
    fn load(self, words: &[u64; MOST]) -> Self::Vector {
        let mut vectors = [self.0.load(words, 0); VECTORS];
        for (place, vector) in vectors.iter_mut().enumerate().skip(1) {
            *vector = self.0.load(words, place * W::COUNT);
        }
        vectors
    }

    #[inline(always)]
    fn transpose(self, steps: &[&[u8; STEP]; MOST]) -> [Self::Vector; 8] {
        let mut all = [[self.0.splat(0); VECTORS]; 8];
        for place in 0..VECTORS {
            let words = self.0.transpose(steps, place * W::COUNT);
            for (vectors, word) in all.iter_mut().zip(words) {
                vectors[place] = word;
            }
        }
        all
    }

    #[inline(always)]
    fn begin(self, [low, high]: [Self::Vector; 2]) -> Self::Sums {
        let mut sums = [Sums::begin(self.0, low[0], high[0]); VECTORS];
        for (place, sums) in sums.iter_mut().enumerate().skip(1) {
            *sums = Sums::begin(self.0, low[place], high[place]);
        }
        sums
    }

    #[inline(always)]
    fn take(self, sums: &mut Self::Sums, low: Self::Vector, high: Self::Vector) {
        for (place, sums) in sums.iter_mut().enumerate() {
            sums.take(self.0, low[place], high[place]);
        }
    }

    #[inline(always)]
    fn choose(self, before: Self::Sums, after: Self::Sums, active: Self::Vector) -> Self::Sums {
        let mut chosen = after;
        for ((after, before), active) in chosen.iter_mut().zip(before).zip(active) {
            for (limb, before) in after.h.iter_mut().zip(before.h) {
                *limb = self.0.choose(before, *limb, active);
            }
        }
        chosen
    }

    #[inline(always)]
    fn limbs(self, sums: &Self::Sums) -> [[u64; 3]; MOST] {
        let mut all = [[0; 3]; MOST];
        for (sums, lanes) in sums.iter().zip(all.chunks_exact_mut(W::COUNT)) {
            let [h0, h1, h2, h3, h4] = sums.h;
            let words =
                [self.0.store(h0), self.0.store(h1), self.0.store(h2), self.0.store(h3), self.0.store(h4)];
            for (lane, limbs) in lanes.iter_mut().enumerate() {
                *limbs = Sums::<W::Vector>::wider(words.map(|limb| limb[lane]));
            }
        }
        all
    }
}

/// The sum of the products of limbs.
#[inline(always)]
fn dot<W: Wide>(wide: W, h: [W::Vector; 5], factors: [W::Vector; 5]) -> W::Vector {
    let first = wide.add(wide.multiply(h[0], factors[0]), wide.multiply(h[1], factors[1]));
    let second = wide.add(wide.multiply(h[2], factors[2]), wide.multiply(h[3], factors[3]));
    wide.add(wide.add(first, second), wide.multiply(h[4], factors[4]))
}

/// Carries from limb to limb, from the first and from the fourth one on at the same time.
///
/// Limbs are below 2^26 then, or a little above: sums of five products stay below 2^64.
#[inline(always)]
fn carried<W: Wide>(wide: W, [d0, d1, d2, d3, d4]: [W::Vector; 5]) -> [W::Vector; 5] {
    let mask = wide.splat(MASK);
    let (d1, h0) = (wide.add(d1, wide.right::<26>(d0)), wide.and(d0, mask));
    let (d4, h3) = (wide.add(d4, wide.right::<26>(d3)), wide.and(d3, mask));
    let (d2, h1) = (wide.add(d2, wide.right::<26>(d1)), wide.and(d1, mask));
    let (h0, h4) = (wide.add(h0, five_times(wide, wide.right::<26>(d4))), wide.and(d4, mask));
    let (h3, h2) = (wide.add(h3, wide.right::<26>(d2)), wide.and(d2, mask));
    let (h1, h0) = (wide.add(h1, wide.right::<26>(h0)), wide.and(h0, mask));
    let (h4, h3) = (wide.add(h4, wide.right::<26>(h3)), wide.and(h3, mask));
    [h0, h1, h2, h3, h4]
}
