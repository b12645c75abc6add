//! The source of randomness, given to a protocol at its birth so that tests can give it a seeded one.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use zeroize::{Zeroize, Zeroizing};

/// A source of random bytes.
pub trait Random: Send {
    /// Fills `bytes`.
    fn fill(&mut self, bytes: &mut [u8]);

    /// Another source, for another thread.
    fn fork(&mut self) -> Box<dyn Random> {
        Box::new(System::default())
    }

    /// Random bytes of a fixed number.
    fn bytes<const N: usize>(&mut self) -> [u8; N]
    where
        Self: Sized,
    {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

/// Bytes that are drawn at once: each draw costs as much as some kilobytes, and handshakes take a few bytes at a time.
const AHEAD: usize = 512;

/// The system's generator.
///
/// The first bytes that a process draws cost 40 ms of processor time, as AWS-LC gathers jitter for its own seed. Making
/// a source draws them: do that before the thread that is to use it lowers its priority.
pub struct System {
    source: SystemRandom,
    /// Drawn and not given away yet: the last `left` of them.
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
        // Without randomness no key can be made; the operating system gives it or the machine is unusable.
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
        // The bytes are not given to any other caller.
        given.zeroize();
        self.left -= bytes.len();
    }

    /// It has enough for a key at once.
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
    fn nothing_is_given_twice() {
        let mut random = System::default();
        let mut seen = HashSet::new();
        for length in (8..100).cycle().take(2000) {
            let mut bytes = vec![0; length];
            random.fill(&mut bytes);
            for chunk in bytes.as_chunks::<8>().0 {
                assert!(seen.insert(*chunk), "after {}", seen.len());
            }
            assert!(random.ahead[..AHEAD - random.left].iter().all(|byte| *byte == 0), "it is erased");
            let mut key = [0; 32];
            random.fork().fill(&mut key);
            assert!(key.as_chunks::<8>().0.iter().all(|chunk| seen.insert(*chunk)));
        }
    }
}
