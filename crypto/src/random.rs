//! The source of randomness, given to a protocol at its birth so that tests can give it a seeded one.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

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

/// The system's generator.
#[derive(Default)]
pub struct System(SystemRandom);

impl Random for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        // Without randomness no key can be made; the operating system gives it or the machine is unusable.
        self.0.fill(bytes).expect("the system has randomness");
    }
}
