//! A limit of what is sent outside, in bytes a second: nothing more is read from inside while what was sent exceeds it.
//!
//! ```text
//! inside ──> Held: waits ──> worker ──> Counted: counts ──> outside
//! ```
//! Packets wait in the bounded queue of the interface, where the kernel counts those that it drops. Ports without a limit are not wrapped.

use crate::{Receive, Transmit, Wake};
use packet::{Batch, DropCounters, Endpoint};
use rustix::io::Errno;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What was not sent in this time may be sent later, as a worker wakes late.
const LAG: u64 = 5_000_000;
/// From this many bytes a second on, super-packets of 64 KiB are smooth enough: one takes 8 ms.
const SMOOTH: u32 = 8_000_000;
/// The headers of IP and UDP.
const HEADERS: [usize; 2] = [28, 48];

/// A limit, and what was sent.
#[derive(Debug)]
pub struct Shaper {
    bytes_per_second: NonZeroU32,
    began: Instant,
    /// When what was sent has taken its time, in nanoseconds since the beginning.
    paid_at: AtomicU64,
}

impl Shaper {
    /// A limit of so many bytes a second, with the headers of IP and UDP.
    pub fn new(bytes_per_second: NonZeroU32) -> Self {
        Self { bytes_per_second, began: Instant::now(), paid_at: AtomicU64::new(0) }
    }

    /// Whether packets are to be taken one by one: many at once would hold back others for long.
    pub fn takes_singly(bytes_per_second: u32) -> bool {
        bytes_per_second < SMOOTH
    }

    /// The same for this limit.
    pub fn is_slow(&self) -> bool {
        Self::takes_singly(self.bytes_per_second.get())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// So many bytes were sent.
    fn spend(&self, now: u64, bytes: usize) {
        let takes = (bytes as u64).saturating_mul(1_000_000_000) / u64::from(self.bytes_per_second.get());
        // One worker has both halves.
        let from = self.paid_at.load(Ordering::Relaxed).max(now.saturating_sub(LAG));
        self.paid_at.store(from.saturating_add(takes), Ordering::Relaxed);
    }

    /// How long nothing may be sent.
    fn wait(&self, now: u64) -> Option<Duration> {
        let wait = self.paid_at.load(Ordering::Relaxed).saturating_sub(now);
        (wait > 0).then(|| Duration::from_nanos(wait))
    }
}

/// The half that reads from inside.
pub struct Held<P> {
    port: P,
    shaper: Arc<Shaper>,
}

impl<P> Held<P> {
    /// Reads from `port` while the limit allows it.
    pub fn new(port: P, shaper: Arc<Shaper>) -> Self {
        Self { port, shaper }
    }
}

impl<P: Receive> Receive for Held<P> {
    fn receive(&mut self, batch: &mut Batch, drops: &DropCounters) -> io::Result<usize> {
        if self.shaper.wait(self.shaper.now()).is_some() {
            return Ok(0);
        }
        self.port.receive(batch, drops)
    }

    fn wait(&mut self, wake: &Wake) -> io::Result<()> {
        match self.shaper.wait(self.shaper.now()) {
            Some(wait) => wake.wait_at_most([], Some(wait)).map(|[]| ()),
            None => self.port.wait(wake),
        }
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.port.counters()
    }
}

/// The half that sends outside.
pub struct Counted<P> {
    port: P,
    shaper: Arc<Shaper>,
}

impl<P> Counted<P> {
    /// Counts what `port` sends.
    pub fn new(port: P, shaper: Arc<Shaper>) -> Self {
        Self { port, shaper }
    }
}

impl<P: Transmit> Transmit for Counted<P> {
    fn transmit(&mut self, batch: &mut Batch, drops: &DropCounters) {
        self.port.transmit(batch, drops);
        let mut bytes = 0;
        for train in batch.trains() {
            let is_v4 = train.endpoint.as_ref().is_none_or(|to| to.remote.ip().to_canonical().is_ipv4());
            let headers = HEADERS[usize::from(!is_v4)];
            // What could not be sent was discarded.
            let lengths = batch.live(train.packets.clone()).map(|index| batch.packet(index).len() + headers);
            bytes += lengths.sum::<usize>();
        }
        self.shaper.spend(self.shaper.now(), bytes);
    }

    fn is_full(&self, endpoint: &Endpoint) -> bool {
        self.port.is_full(endpoint)
    }

    fn take_refusal(&mut self) -> Option<Errno> {
        self.port.take_refusal()
    }

    fn counters(&mut self) -> Vec<(&'static str, u64)> {
        self.port.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn what_was_sent_takes_its_time_and_a_pause_is_no_credit() {
        let shaper = Shaper::new(NonZeroU32::new(100_000).expect("literal"));
        let wait = |now| shaper.wait(now).map(|wait| wait.as_millis());
        let second = 1000 * MILLISECOND;
        assert_eq!(wait(second), None);
        shaper.spend(second, 1000);
        // 10 ms, of which the last 5 were unused.
        assert_eq!(wait(second), Some(5));
        shaper.spend(second, 50_000);
        assert_eq!((wait(second), wait(second + 504 * MILLISECOND)), (Some(505), Some(1)));
        assert_eq!(wait(second + 505 * MILLISECOND), None);
        shaper.spend(60 * second, 1000);
        assert_eq!(wait(60 * second), Some(5), "a minute without packets");
        shaper.spend(60 * second, usize::MAX);
        assert!(wait(61 * second).is_some());
    }
}
