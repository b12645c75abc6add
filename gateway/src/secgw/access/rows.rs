//! Rows of bits: one bit for each rule, 64 rules a word.
//!
//! Rules that are alike share words, so that a packet has few words to look at; in a word, the rule that wins comes
//! first. Rows of ports and protocols are few, and whole. Rows of addresses are many, and hold little: only words that
//! are not zero are kept, behind a summary with one bit for each word (Baboescu and Varghese, "Scalable Packet
//! Classification", SIGCOMM 2001).

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Where a row begins.
pub(super) type Row = u32;

/// The row without bits, of either kind.
pub(super) const EMPTY: Row = 0;

/// The rows of all fields.
pub(super) struct Rows {
    /// Words of a whole row.
    width: usize,
    /// Words of a summary.
    summary: usize,
    /// Rows of ports and protocols.
    whole: Vec<u64>,
    /// Rows of addresses.
    packed: Vec<u64>,
    /// The rank of each rule, by the place of its bit; the rule with the lowest wins.
    ranks: Vec<u32>,
}

impl Rows {
    /// The rank of the rule that wins, of those whose bit is set in two rows of addresses and three of others.
    #[inline]
    pub(super) fn first_common(&self, addresses: [Row; 2], others: [Row; 3]) -> Option<u32> {
        let mut packed = addresses.map(|row| &self.packed[row as usize..]);
        let summaries = packed.map(|row| &row[..self.summary]);
        packed = packed.map(|row| &row[self.summary..]);
        let others = others.map(|row| &self.whole[row as usize..][..self.width]);
        let mut best = u32::MAX;
        for group in 0..self.summary {
            let groups = summaries.map(|summary| summary[group]);
            let mut candidates = groups[0] & groups[1];
            while candidates != 0 {
                let word = candidates.trailing_zeros();
                let below = (1 << word) - 1;
                let at = groups.map(|group| (group & below).count_ones() as usize);
                let mut rules = packed[0][at[0]] & packed[1][at[1]];
                if rules != 0 {
                    let word = group * 64 + word as usize;
                    rules = others.iter().fold(rules, |rules, row| rules & row[word]);
                    if rules != 0 {
                        best = best.min(self.ranks[word * 64 + rules.trailing_zeros() as usize]);
                    }
                }
                candidates &= candidates - 1;
            }
            if group + 1 < self.summary {
                for (packed, group) in packed.iter_mut().zip(groups) {
                    *packed = &packed[group.count_ones() as usize..];
                }
            }
        }
        (best != u32::MAX).then_some(best)
    }

    /// Bytes that they take.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.whole) + size_of_val(&*self.packed) + size_of_val(&*self.ranks)
    }
}

/// More memory than was allowed.
pub(super) struct TooMuch;

/// Rows under construction. Equal ones are kept once.
pub(super) struct Builder {
    rows: Rows,
    /// Words that the rows may take.
    limit: usize,
    /// Whole rows and packed rows by hash.
    known: [HashMap<u64, Row>; 2],
    hasher: RandomState,
}

impl Builder {
    /// Rows for rules of these ranks, in the order of their bits; all rows take `limit` bytes at most.
    pub(super) fn new(ranks: Vec<u32>, limit: usize) -> Self {
        let width = ranks.len().div_ceil(64);
        let summary = width.div_ceil(64);
        let rows = Rows { width, summary, whole: vec![0; width], packed: vec![0; summary], ranks };
        let known = [HashMap::new(), HashMap::new()];
        Self { rows, limit: limit / size_of::<u64>(), known, hasher: RandomState::new() }
    }

    /// A row to write bits into.
    pub(super) fn blank(&self) -> Vec<u64> {
        vec![0; self.rows.width]
    }

    /// Keeps a row of ports or protocols.
    pub(super) fn keep(&mut self, bits: &[u64]) -> Result<Row, TooMuch> {
        if bits.iter().all(|&word| word == 0) {
            return Ok(EMPTY);
        }
        let hash = self.hasher.hash_one(bits);
        if let Some(&row) = self.known[0].get(&hash)
            && self.rows.whole[row as usize..].starts_with(bits)
        {
            return Ok(row);
        }
        let row = self.place(bits.len(), |rows| &rows.whole)?;
        self.rows.whole.extend(bits);
        self.known[0].insert(hash, row);
        Ok(row)
    }

    /// Keeps a row of addresses.
    pub(super) fn pack(&mut self, bits: &[u64]) -> Result<Row, TooMuch> {
        let summary = bits.chunks(64).map(|words| {
            words.iter().enumerate().fold(0, |summary, (at, &word)| summary | u64::from(word != 0) << at)
        });
        let packed: Vec<u64> = summary.chain(bits.iter().copied().filter(|&word| word != 0)).collect();
        if packed.len() == self.rows.summary {
            return Ok(EMPTY);
        }
        let hash = self.hasher.hash_one(&packed);
        if let Some(&row) = self.known[1].get(&hash)
            && self.rows.packed[row as usize..].starts_with(&packed)
        {
            return Ok(row);
        }
        let row = self.place(packed.len(), |rows| &rows.packed)?;
        self.rows.packed.extend(packed);
        self.known[1].insert(hash, row);
        Ok(row)
    }

    /// Where a row of this length goes.
    fn place(&self, length: usize, kind: impl Fn(&Rows) -> &Vec<u64>) -> Result<Row, TooMuch> {
        let taken = self.rows.whole.len() + self.rows.packed.len();
        if taken + length > self.limit { Err(TooMuch) } else { Ok(kind(&self.rows).len() as Row) }
    }

    /// The rows, of which no more come.
    pub(super) fn finish(mut self) -> Rows {
        self.rows.whole.shrink_to_fit();
        self.rows.packed.shrink_to_fit();
        self.rows
    }
}

/// Sets the bit of a rule.
pub(super) fn set(bits: &mut [u64], rule: usize) {
    bits[rule / 64] |= 1 << (rule % 64);
}

/// Clears the bit of a rule.
pub(super) fn clear(bits: &mut [u64], rule: usize) {
    bits[rule / 64] &= !(1 << (rule % 64));
}
