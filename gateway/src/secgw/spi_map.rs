//! A map by the SPIs of a file.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by the SPIs of a file. No attacker chooses those, so the hash needs no secret: one with a secret takes as long as sealing a
/// few dozen bytes, for each SA of a burst.
pub type BySpi<T> = HashMap<u32, T, BuildHasherDefault<SpiHasher>>;

/// The hash of an SPI.
#[derive(Default)]
pub struct SpiHasher(u64);

impl Hasher for SpiHasher {
    #[inline]
    fn write_u32(&mut self, spi: u32) {
        // From the golden ratio. The map looks at the highest and at the lowest bits.
        self.0 = u64::from(spi).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(self.0 as u32 ^ u32::from(byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::{BuildHasher as _, Hash as _};

    #[test]
    fn neighbours_and_multiples_have_places_of_their_own() {
        let hash = |spi: u32| BuildHasherDefault::<SpiHasher>::default().hash_one(spi);
        for step in [1, 256, 1 << 16] {
            let hashes: Vec<u64> = (0..1024).map(|number| hash(5 + number * step)).collect();
            // A map takes its place from the lowest bits, and a tag from the highest 7: by chance 1,024 take 646 of 1,024 places.
            let places: HashSet<u64> = hashes.iter().map(|hash| hash & 1023).collect();
            let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(
                places.len() > 500 && tags.len() > 60,
                "{step}: {} places, {} tags",
                places.len(),
                tags.len()
            );
        }
    }

    #[test]
    fn bytes_have_a_hash_too() {
        let mut hasher = SpiHasher::default();
        [1_u8, 2].hash(&mut hasher);
        assert_ne!(hasher.finish(), 0);
    }
}
