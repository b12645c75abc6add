//! Sources of randomness. A protocol is given one at construction, so that tests can pass a seeded one.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use zeroize::{Zeroize, Zeroizing};

/// A source of random bytes.
pub trait Random: Send {
    /// Fills `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);

    /// A source for another thread.
    fn fork(&mut self) -> Box<dyn Random> {
        Box::new(System::default())
    }

    /// An array of random bytes.
    fn bytes<const N: usize>(&mut self) -> [u8; N]
    where
        Self: Sized,
    {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

/// Bytes fetched per call of the system generator. A call costs as much as producing some kilobytes, and handshakes
/// need only a few bytes at a time.
const AHEAD: usize = 512;

/// The system's random generator, with a buffer.
///
/// The first call in a process takes 40 ms of CPU time, because AWS-LC gathers jitter entropy to seed itself. `default`
/// makes that call: create the source before its thread lowers its priority.
pub struct System {
    source: SystemRandom,
    /// The buffer. Its last `left` bytes have not been handed out.
    ahead: Zeroizing<[u8; AHEAD]>,
    left: usize,
}

impl Default for System {
    fn default() -> Self {
        let mut new = Self::empty();
        new.refill();
        new
    }
}

impl System {
    fn empty() -> Self {
        Self { source: SystemRandom::new(), ahead: Zeroizing::new([0; AHEAD]), left: 0 }
    }

    fn refill(&mut self) {
        Self::draw(&self.source, &mut self.ahead[..]);
        self.left = AHEAD;
    }

    fn draw(source: &SystemRandom, bytes: &mut [u8]) {
        // Without randomness no key can be made, so the process cannot go on.
        source.fill(bytes).expect("the system has randomness");
    }
}

impl Random for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        if bytes.len() > AHEAD / 8 {
            return Self::draw(&self.source, bytes);
        }
        if bytes.len() > self.left {
            self.refill();
        }
        let given = &mut self.ahead[AHEAD - self.left..][..bytes.len()];
        bytes.copy_from_slice(given);
        // Never hand out a byte twice.
        given.zeroize();
        self.left -= bytes.len();
    }

    /// The new source starts with 64 bytes of this one's: enough for a key without a call of the generator.
    fn fork(&mut self) -> Box<dyn Random> {
        let mut other = Self::empty();
        self.fill(&mut other.ahead[AHEAD - AHEAD / 8..]);
        other.left = AHEAD / 8;
        Box::new(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_bytes_are_handed_out_twice() {
        let mut random = System::default();
        let mut seen = HashSet::new();
        for length in (8..100).cycle().take(2000) {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            for chunk in bytes.as_chunks::<8>().0 {
                assert!(seen.insert(*chunk), "after {}", seen.len());
            }
            assert!(
                random.ahead[..AHEAD - random.left].iter().all(|byte| *byte == 0),
                "used bytes are erased"
            );
            let mut key = [0; 32];
            random.fork().fill(&mut key);
            assert!(key.as_chunks::<8>().0.iter().all(|chunk| seen.insert(*chunk)));
        }
    }
}
