//! How workers take packets: how many at once, and how long they look for more before they sleep.
//!
//! One pace holds for the process, and counts from the next burst on.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// How workers take packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Single packets from inside that are collected before they are sent.
    pub burst: usize,
    /// How long a worker without packets looks for some before it sleeps: it is not woken then, and uses the processor.
    pub spin_microseconds: u32,
    /// How long a worker leaves a socket or interface alone whose packets come one by one and often.
    pub pause_microseconds: u32,
}

static BURST: AtomicUsize = AtomicUsize::new(Pace::USUAL.burst);
static SPIN_MICROSECONDS: AtomicU32 = AtomicU32::new(Pace::USUAL.spin_microseconds);
static PAUSE_MICROSECONDS: AtomicU32 = AtomicU32::new(Pace::USUAL.pause_microseconds);

impl Pace {
    /// The pace at start.
    pub const USUAL: Self = Self { burst: 32, spin_microseconds: 0, pause_microseconds: 200 };
    /// For many packets: one send for more of them.
    pub const THROUGHPUT: Self = Self { burst: 128, spin_microseconds: 0, pause_microseconds: 200 };
    /// For packets that wait for little.
    pub const LATENCY: Self = Self { burst: 8, spin_microseconds: 50, pause_microseconds: 0 };

    /// The pace of the process.
    pub fn now() -> Self {
        Self {
            burst: BURST.load(Ordering::Relaxed),
            spin_microseconds: SPIN_MICROSECONDS.load(Ordering::Relaxed),
            pause_microseconds: PAUSE_MICROSECONDS.load(Ordering::Relaxed),
        }
    }

    /// Makes this the pace of the process.
    pub fn set(self) {
        BURST.store(self.burst, Ordering::Relaxed);
        SPIN_MICROSECONDS.store(self.spin_microseconds, Ordering::Relaxed);
        PAUSE_MICROSECONDS.store(self.pause_microseconds, Ordering::Relaxed);
    }

    /// How long a worker looks for packets before it sleeps.
    pub(crate) fn spin(self) -> Option<Duration> {
        (self.spin_microseconds > 0).then(|| Duration::from_micros(self.spin_microseconds.into()))
    }

    /// How long a worker leaves a socket alone.
    pub(crate) fn pause(self) -> Option<Duration> {
        (self.pause_microseconds > 0).then(|| Duration::from_micros(self.pause_microseconds.into()))
    }
}
