//! Secret bytes: erased when dropped, compared in constant time, never printed.

use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A secret of 32 bytes, the size of every key of WireGuard.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Takes a copy of the bytes; the caller erases its own.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The secret of all zeros, which stands for "none" where a protocol says so.
    pub fn zero() -> Self {
        Self([0; 32])
    }

    /// Whether all bytes are zero, in constant time.
    pub fn is_zero(&self) -> bool {
        self.0.ct_eq(&[0; 32]).into()
    }

    /// The bytes; whoever asks for them answers for what becomes of them.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_cannot_be_printed() {
        assert_eq!(format!("{:?}", Secret::new([0xaa; 32])), "Secret(..)");
    }

    #[test]
    fn zero_stands_for_none() {
        assert!(Secret::zero().is_zero());
        assert!(!Secret::new([1; 32]).is_zero());
    }
}
