//! Powers of a base that is always the same: the method of Lim and Lee (CRYPTO '94), in constant time.
//!
//! An exponent of n bits is cut into [`TEETH`] rows, one below the other, and each row into [`BLOCKS`] blocks. A column of
//! bits is looked up in the table of its block, so that n/16 squarings and n/4 multiplications do for n squarings and
//! n/4 multiplications.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{CtAssign, CtEq, MontyForm, MontyMultiplier};
use zeroize::Zeroize;

const TEETH: usize = 4;
const BLOCKS: usize = 4;
const COLUMNS: usize = 1 << TEETH;

type Multiplier<'a> = <BoxedMontyForm as MontyForm>::Multiplier<'a>;

/// A base, prepared.
pub(super) struct Comb {
    /// Columns of a block.
    width: usize,
    /// What each value of a column stands for, by block.
    tables: Vec<[BoxedMontyForm; COLUMNS]>,
}

impl Comb {
    /// Prepares `base` for exponents of `bits` bits, a multiple of 16.
    pub(super) fn new(base: &BoxedMontyForm, bits: usize) -> Self {
        let width = bits / TEETH / BLOCKS;
        // base^(2^(width * n)): what the lowest bit of each block of each row stands for.
        let mut starts = vec![base.clone()];
        for _ in 1..TEETH * BLOCKS {
            let last = starts.last().expect("not empty");
            starts.push((0..width).fold(last.clone(), |power, _| power.square()));
        }
        let one = BoxedMontyForm::one(base.params());
        let entry = |block: usize, column: usize| {
            let rows = (0..TEETH).filter(|row| column >> row & 1 == 1);
            rows.fold(one.clone(), |product, row| product.mul(&starts[row * BLOCKS + block]))
        };
        let table = |block| std::array::from_fn(|column| entry(block, column));
        Self { width, tables: (0..BLOCKS).map(table).collect() }
    }

    /// The base to the power of `exponent`, in network order, in a time that depends on its length only.
    pub(super) fn power(&self, exponent: &[u8], parameters: &BoxedMontyParams) -> BoxedMontyForm {
        let mut multiplier = Multiplier::from(parameters);
        let mut result = BoxedMontyForm::one(parameters);
        let mut factor = result.clone();
        for column in (0..self.width).rev() {
            multiplier.square_assign(&mut result);
            for (block, table) in self.tables.iter().enumerate() {
                let index = |row| (row * BLOCKS + block) * self.width + column;
                let wanted = (0..TEETH).fold(0, |wanted, row| wanted | bit(exponent, index(row)) << row);
                look_up(&mut factor, table, wanted);
                multiplier.mul_assign(&mut result, &factor);
            }
        }
        factor.zeroize();
        result
    }
}

fn bit(exponent: &[u8], index: usize) -> u64 {
    u64::from(exponent[exponent.len() - 1 - index / 8] >> (index % 8) & 1)
}

/// Reads every entry, so that the cache does not tell which was wanted.
fn look_up(factor: &mut BoxedMontyForm, table: &[BoxedMontyForm; COLUMNS], wanted: u64) {
    for (index, entry) in table.iter().enumerate() {
        factor.as_montgomery_mut().ct_assign(entry.as_montgomery(), (index as u64).ct_eq(&wanted));
    }
}
