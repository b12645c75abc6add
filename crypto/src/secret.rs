//! Secret bytes: erased when dropped, compared in constant time, never printed.

use crate::Random;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

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

    /// The bytes; the caller is responsible for protecting them.
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

/// A secret of any length: a shared secret, or the keys made of one.
#[derive(Clone)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes the bytes over.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Random bytes, as many as were asked for.
    pub fn random(length: usize, random: &mut dyn Random) -> Self {
        let mut bytes = Self::new(vec![0; length]);
        random.fill(&mut bytes.0);
        bytes
    }

    /// The bytes; the caller is responsible for protecting them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_cannot_be_printed() {
        assert_eq!(format!("{:?}", Secret::new([0xaa; 32])), "Secret(..)");
        assert_eq!(format!("{:?}", SecretBytes::new(vec![0xaa; 9])), "SecretBytes(..)");
    }

    #[test]
    fn zero_stands_for_none() {
        assert!(Secret::zero().is_zero());
        assert!(!Secret::new([1; 32]).is_zero());
    }
}
