//! Fixed-base exponentiation in constant time: the comb method of Lim and Lee (CRYPTO '94).
//!
//! An exponent of n bits is split into [`TEETH`] rows, written below each other, and each row into [`BLOCKS`] blocks.
//! Each column of bits in a block is an index into the block's table. This takes n/16 squarings and n/4
//! multiplications, where the square-and-multiply method with 4-bit windows takes n squarings and n/4 multiplications.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{CtAssign, CtEq, MontyForm, MontyMultiplier};
use zeroize::Zeroize;

const TEETH: usize = 4;
const BLOCKS: usize = 4;
const COLUMNS: usize = 1 << TEETH;

type Multiplier<'a> = <BoxedMontyForm as MontyForm>::Multiplier<'a>;

/// A base with its precomputed tables.
pub(super) struct Comb {
    /// Columns per block.
    width: usize,
    /// For each block, the power of the base for each value of a column.
    tables: Vec<[BoxedMontyForm; COLUMNS]>,
}

impl Comb {
    /// Precomputes the tables of `base` for exponents of `bits` bits, a multiple of 16.
    pub(super) fn new(base: &BoxedMontyForm, bits: usize) -> Self {
        let width = bits / TEETH / BLOCKS;
        // base^(2^(width * n)): the power for the lowest bit of each block of each row.
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

    /// Raises the base to `exponent`, in network byte order. The time depends only on the exponent's length.
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

/// Reads every entry, so that cache timing does not reveal the index.
fn look_up(factor: &mut BoxedMontyForm, table: &[BoxedMontyForm; COLUMNS], wanted: u64) {
    for (index, entry) in table.iter().enumerate() {
        factor.as_montgomery_mut().ct_assign(entry.as_montgomery(), (index as u64).ct_eq(&wanted));
    }
}
