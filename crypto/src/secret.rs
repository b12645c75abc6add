//! Secret bytes: erased when dropped, compared in constant time, never printed.

use crate::Random;
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// A secret of 32 bytes, the length of every WireGuard key.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Copies the bytes. The caller erases its own copy.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// 32 zero bytes: WireGuard's value for "no preshared key".
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

/// A secret of any length, such as a shared secret or keys derived from one.
#[derive(Clone)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// Takes ownership of the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// `length` random bytes.
    pub fn random(length: usize, random: &mut dyn Random) -> Self {
        let mut bytes = Self::new(vec![0; length]);
        random.fill(&mut bytes.0);
        bytes
    }

    /// The bytes; the caller is responsible for protecting them.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no bytes.
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
