//! Whether processors of this machine are idle, as the kernel counts: a hand-off to a thread that must wait for a processor only costs.

use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tunnel::Time;

/// How long a reading counts, in nanoseconds.
const INTERVAL: u64 = 50_000_000;
/// The share of one processor that must have been idle, or busy with what was handed off.
const SHARE: f64 = 0.5;
/// proc_stat(5): times are in hundredths of a second.
const TICK: u64 = 10_000_000;

/// The idle time of the processors that this process may use.
pub struct IdleCores {
    usable: Vec<usize>,
    reading: Mutex<Reading>,
    /// When the next reading is due, in nanoseconds.
    due: AtomicU64,
    has_idle: AtomicBool,
}

struct Reading {
    stat: File,
    text: String,
    at: u64,
    idle: u64,
    busy: u64,
}

impl IdleCores {
    /// Reads the kernel's counts from now on. Threads that open no files may use it.
    ///
    /// # Errors
    /// There are none.
    pub fn open() -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let usable = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
        let stat = File::open("/proc/stat")?;
        let reading = Reading { stat, text: String::new(), at: 0, idle: 0, busy: 0 };
        Ok(Self {
            usable,
            reading: Mutex::new(reading),
            due: AtomicU64::new(0),
            has_idle: AtomicBool::new(false),
        })
    }

    /// The number of processors that this process may use.
    pub fn count(&self) -> usize {
        self.usable.len()
    }

    /// Whether one was idle for half of the last moment, or would have been without our crypto threads, which worked for `busy`
    /// nanoseconds so far.
    #[inline]
    pub fn has_idle(&self, now: Time, busy: impl FnOnce() -> u64) -> bool {
        let now = now.nanoseconds();
        if now >= self.due.load(Ordering::Relaxed) {
            self.read(now, busy());
        }
        self.has_idle.load(Ordering::Relaxed)
    }

    #[cold]
    fn read(&self, now: u64, busy: u64) {
        // Another worker reads.
        let Ok(mut reading) = self.reading.try_lock() else { return };
        self.due.store(now + INTERVAL, Ordering::Relaxed);
        let has_idle = reading.advance(&self.usable, now, busy).unwrap_or(false);
        self.has_idle.store(has_idle, Ordering::Relaxed);
    }
}

impl Reading {
    fn advance(&mut self, usable: &[usize], now: u64, busy: u64) -> io::Result<bool> {
        self.text.clear();
        self.stat.rewind()?;
        self.stat.read_to_string(&mut self.text)?;
        let idle = idle(&self.text, usable);
        let elapsed = now.saturating_sub(self.at);
        let spare = idle.saturating_sub(self.idle) + busy.saturating_sub(self.busy);
        // The first reading has none before it.
        let is_first = self.at == 0;
        (self.at, self.idle, self.busy) = (now, idle, busy);
        Ok(!is_first && spare as f64 >= SHARE * elapsed as f64)
    }
}

/// The idle nanoseconds of these processors, from the text of /proc/stat.
fn idle(text: &str, usable: &[usize]) -> u64 {
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let core = words.next()?.parse().ok()?;
        // user, nice, system, idle, iowait
        let idle: u64 = words.skip(3).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
        usable.contains(&core).then_some(idle * TICK)
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  40 0 40 1000 12 0 0 0 0 0\ncpu0 10 0 10 500 6 0 0 0 0 0\ncpu1 10 0 10 300 2 0 0 0 0 0\n\
                        cpu12 20 0 20 200 4 0 0 0 0 0\nintr 5 6 7 8 9\n";

    #[test]
    fn idle_time_is_that_of_the_processors_that_may_be_used() {
        assert_eq!(idle(STAT, &[0, 1, 12]), 1012 * TICK);
        assert_eq!(idle(STAT, &[1]), 302 * TICK);
        assert_eq!(idle(STAT, &[2, 120]), 0);
        assert_eq!(idle("cpu\ncpux 1 2\ncpu0\ncpu1 1 2 3 x 4", &[0, 1]), 4 * TICK);
    }

    #[test]
    fn a_reading_counts_for_a_moment_and_work_that_was_handed_off_counts_as_idle() {
        let cores = IdleCores::open().expect("the kernel has it");
        assert!(cores.count() > 0);
        assert!(!cores.has_idle(Time::from_nanoseconds(1), || 0), "nothing is known yet");
        let later = Time::from_nanoseconds(1 + INTERVAL);
        assert!(cores.has_idle(later, || INTERVAL), "our threads were as busy as one processor can be");
        assert!(cores.has_idle(later, || panic!("it was read just now")));
    }
}
