//! Poly1305 (RFC 8439 section 2.5) with one packet a lane, over the associated data and the ciphertext (section 2.8).
//!
//! Packets of about the same length are put side by side. In each step all lanes take 64 bytes; a lane whose packet has ended keeps its
//! sum. The rest of a packet, its padding and its lengths are put together in a small buffer.

use super::BURST;
use arrayvec::ArrayVec;
use zeroize::Zeroize;

/// Bytes of a tag, and of the blocks of a message.
pub(super) const TAG: usize = 16;
/// Bytes that a lane takes in a step.
pub(super) const STEP: usize = 64;
/// The most lanes.
pub(super) const MOST: usize = 16;
/// Blocks of the end of a packet: up to 63 bytes of text, and the lengths.
const END: usize = STEP / TAG + 1;

/// What a tag is computed of.
pub(super) struct Message<'a> {
    /// The one-time key: r and s.
    pub key: &'a [u8; 32],
    /// The associated data.
    pub aad: &'a [u8],
    /// The ciphertext.
    pub text: &'a [u8],
}

/// The two words of a block, of r or of s.
pub(super) type Halves = [u64; 2];

/// Sums in lanes: what Poly1305 asks of an instruction set.
///
/// A value of the type proves that the processor has the instructions.
pub(super) trait Lanes: Copy {
    /// 64-bit words, one a lane.
    type Vector: Copy;
    /// The sums and the keys of the lanes.
    type Sums: Copy;
    /// The number of lanes, at most 16.
    const COUNT: usize;

    /// The first words, one a lane.
    fn load(self, words: &[u64; MOST]) -> Self::Vector;
    /// The eight words of the 64 bytes of each lane.
    fn transpose(self, steps: &[&[u8; STEP]; MOST]) -> [Self::Vector; 8];
    /// Sums of 0, with r, whose bits are cleared as the RFC wants, in two halves.
    fn begin(self, r: [Self::Vector; 2]) -> Self::Sums;
    /// Adds a block of 16 bytes, and multiplies by r.
    fn take(self, sums: &mut Self::Sums, low: Self::Vector, high: Self::Vector);
    /// In lanes that are all ones in `active`, `after`; in lanes of zeros, `before`.
    fn choose(self, before: Self::Sums, after: Self::Sums, active: Self::Vector) -> Self::Sums;
    /// The sums, below 2^131, in limbs that count 1, 2^44 and 2^88.
    fn limbs(self, sums: &Self::Sums) -> [[u64; 3]; MOST];
}

/// The tags of messages, in `lanes`; a last group that fits into `fewer` lanes is computed there.
#[inline(always)]
pub(super) fn tags<L: Lanes, F: Lanes>(lanes: L, fewer: F, messages: &[Message<'_>], tags: &mut [[u8; TAG]]) {
    let mut order: ArrayVec<u8, BURST> = (0..messages.len() as u8).collect();
    let length = |place: &u8| messages[usize::from(*place)].text.len();
    if !order.is_sorted_by_key(length) {
        order.sort_unstable_by_key(length);
    }
    for group in order.chunks(L::COUNT) {
        if group.len() <= F::COUNT {
            tags_of_group(fewer, messages, group, tags);
        } else {
            tags_of_group(lanes, messages, group, tags);
        }
    }
}

/// The tags of at most as many messages as there are lanes.
#[inline(always)]
fn tags_of_group<L: Lanes>(lanes: L, messages: &[Message<'_>], group: &[u8], tags: &mut [[u8; TAG]]) {
    let nothing = Message { key: &[0; 32], aad: &[], text: &[] };
    let mut members = [&nothing; MOST];
    for (member, place) in members.iter_mut().zip(group) {
        *member = &messages[usize::from(*place)];
    }
    let mut r = [[0; MOST]; 2];
    for (lane, member) in members[..group.len()].iter().enumerate() {
        let [low, high] = halves(member.key[..TAG].as_chunks().0[0]);
        // RFC 8439 section 2.5: 22 bits of r are 0.
        r[0][lane] = low & 0x0fff_fffc_0fff_ffff;
        r[1][lane] = high & 0x0fff_fffc_0fff_fffc;
    }
    let mut sums = lanes.begin([lanes.load(&r[0]), lanes.load(&r[1])]);
    r.as_flattened_mut().zeroize();
    take_aad(lanes, &mut sums, &members, group.len());
    take_steps(lanes, &mut sums, &members, group.len());
    take_ends(lanes, &mut sums, &members, group.len());
    let limbs = lanes.limbs(&sums);
    for ((place, member), limbs) in group.iter().zip(members).zip(limbs) {
        let [low, high] = halves(member.key[TAG..].as_chunks().0[0]);
        let s = u128::from(high) << 64 | u128::from(low);
        tags[usize::from(*place)] = reduced(limbs).wrapping_add(s).to_le_bytes();
    }
}

#[inline(always)]
fn halves(bytes: [u8; TAG]) -> Halves {
    let bits = u128::from_le_bytes(bytes);
    [bits as u64, (bits >> 64) as u64]
}

/// Whether a lane takes part, as a mask.
#[inline(always)]
fn mask(is_active: bool) -> u64 {
    u64::from(is_active).wrapping_neg()
}

/// The associated data, padded to whole blocks. It is short or absent.
#[inline(always)]
fn take_aad<L: Lanes>(lanes: L, sums: &mut L::Sums, members: &[&Message<'_>; MOST], count: usize) {
    let most = members[..count].iter().map(|member| member.aad.len().div_ceil(TAG)).max().unwrap_or(0);
    for block in 0..most {
        let (mut words, mut active) = ([[0; MOST]; 2], [0; MOST]);
        for (lane, member) in members[..count].iter().enumerate() {
            let rest = member.aad.get(block * TAG..).unwrap_or_default();
            let mut bytes = [0; TAG];
            let length = rest.len().min(TAG);
            bytes[..length].copy_from_slice(&rest[..length]);
            [words[0][lane], words[1][lane]] = halves(bytes);
            active[lane] = mask(length > 0);
        }
        let before = *sums;
        lanes.take(sums, lanes.load(&words[0]), lanes.load(&words[1]));
        *sums = lanes.choose(before, *sums, lanes.load(&active));
    }
}

/// The text, as far as it has 64 bytes.
#[inline(always)]
fn take_steps<L: Lanes>(lanes: L, sums: &mut L::Sums, members: &[&Message<'_>; MOST], count: usize) {
    const EMPTY: &[u8; STEP] = &[0; STEP];
    let texts = members.map(|member| member.text.as_chunks::<STEP>().0);
    let lengths = || texts[..count].iter().map(|steps| steps.len());
    let (common, most) = (lengths().min().unwrap_or(0), lengths().max().unwrap_or(0));
    let mut steps = [EMPTY; MOST];
    for step in 0..common {
        for (place, text) in steps.iter_mut().zip(texts).take(count) {
            *place = &text[step];
        }
        take_step(lanes, sums, &steps);
    }
    for step in common..most {
        let mut active = [0; MOST];
        for ((place, text), active) in steps.iter_mut().zip(texts).zip(&mut active).take(count) {
            *active = mask(step < text.len());
            *place = text.get(step).unwrap_or(EMPTY);
        }
        let before = *sums;
        take_step(lanes, sums, &steps);
        *sums = lanes.choose(before, *sums, lanes.load(&active));
    }
}

#[inline(always)]
fn take_step<L: Lanes>(lanes: L, sums: &mut L::Sums, steps: &[&[u8; STEP]; MOST]) {
    for [low, high] in lanes.transpose(steps).as_chunks::<2>().0 {
        lanes.take(sums, *low, *high);
    }
}

/// What is left of the text, padded, and the lengths.
#[inline(always)]
fn take_ends<L: Lanes>(lanes: L, sums: &mut L::Sums, members: &[&Message<'_>; MOST], count: usize) {
    let mut words = [[[0; MOST]; 2]; END];
    let mut blocks = [0; MOST];
    for (lane, member) in members[..count].iter().enumerate() {
        let (_, rest) = member.text.as_chunks::<STEP>();
        let (whole, part) = rest.as_chunks::<TAG>();
        for (block, bytes) in words.iter_mut().zip(whole) {
            [block[0][lane], block[1][lane]] = halves(*bytes);
        }
        if !part.is_empty() {
            let mut bytes = [0; TAG];
            bytes[..part.len()].copy_from_slice(part);
            [words[whole.len()][0][lane], words[whole.len()][1][lane]] = halves(bytes);
        }
        let before = rest.len().div_ceil(TAG);
        words[before][0][lane] = member.aad.len() as u64;
        words[before][1][lane] = member.text.len() as u64;
        blocks[lane] = before + 1;
    }
    let count_of = |pick: fn(usize, usize) -> usize| blocks[..count].iter().copied().reduce(pick);
    let (common, most) = (count_of(usize::min).unwrap_or(0), count_of(usize::max).unwrap_or(0));
    for (block, [low, high]) in words[..most].iter().enumerate() {
        let before = *sums;
        lanes.take(sums, lanes.load(low), lanes.load(high));
        if block >= common {
            let active = blocks.map(|blocks| mask(block < blocks));
            *sums = lanes.choose(before, *sums, lanes.load(&active));
        }
    }
}

/// A sum below 2^131 modulo 2^130 - 5, without its bits from 128 on.
#[inline(always)]
fn reduced([h0, h1, h2]: [u64; 3]) -> u128 {
    const M44: u64 = (1 << 44) - 1;
    const M42: u64 = (1 << 42) - 1;
    // Two rounds of carries: then it is below 2^130.
    let carry = |[h0, h1, h2]: [u64; 3]| {
        let h1 = h1 + (h0 >> 44);
        let h2 = h2 + (h1 >> 44);
        [(h0 & M44) + (h2 >> 42) * 5, h1 & M44, h2 & M42]
    };
    let [h0, h1, h2] = carry(carry([h0, h1, h2]));
    let (h1, h0) = (h1 + (h0 >> 44), h0 & M44);
    let (h2, h1) = (h2 + (h1 >> 44), h1 & M44);
    // The sum less the prime: it is taken unless it is negative.
    let g0 = h0 + 5;
    let g1 = h1 + (g0 >> 44);
    let g2 = (h2 + (g1 >> 44)).wrapping_sub(1 << 42);
    let is_below = mask(g2 >> 63 == 1);
    let choose = |h: u64, g: u64| h & is_below | g & !is_below;
    let (h0, h1, h2) = (choose(h0, g0 & M44), choose(h1, g1 & M44), choose(h2, g2 & M42));
    u128::from(h0) | u128::from(h1) << 44 | u128::from(h2) << 88
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_reduced_at_and_around_the_prime() {
        const P: [u64; 3] = [(1 << 44) - 5, (1 << 44) - 1, (1 << 42) - 1];
        let [p0, p1, p2] = P;
        assert_eq!(reduced(P), 0);
        assert_eq!(reduced([p0 - 1, p1, p2]), u128::MAX - 5, "2^130 - 6, of which 128 bits are left");
        assert_eq!(reduced([p0 + 1, p1, p2]), 1);
        assert_eq!(reduced([p0 + 4, p1, p2]), 4, "2^130 - 1");
        assert_eq!(reduced([0, 0, 1 << 42]), 5, "2^130");
        assert_eq!(reduced([1, 0, 1 << 42]), 6);
        assert_eq!(reduced([2 * p0, 2 * p1, 2 * p2]), 0, "twice the prime, with carries");
        assert_eq!(reduced([7, 0, 0]), 7);
    }
}
