//! Whether processors of this machine are idle, as the kernel counts: a hand-off to a thread that must wait for a processor only costs.

use config::settings::Processors;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tunnel::Time;
use tunnel::time::AtomicTime;

/// How long a reading counts.
const INTERVAL: Duration = Duration::from_millis(50);
/// The share of one processor that must have been idle, or busy with what was handed off.
const SHARE: f64 = 0.5;

/// The idle time of the processors that this process may use.
pub struct IdleCores {
    usable: Vec<usize>,
    reading: Mutex<Reading>,
    /// When the next reading is due.
    due: AtomicTime,
    has_idle: AtomicBool,
}

struct Reading {
    stat: File,
    text: String,
    last: Option<Counts>,
}

/// What was counted until then.
#[derive(Clone, Copy)]
struct Counts {
    at: Instant,
    /// Idle nanoseconds of the processors.
    idle: u64,
    /// Nanoseconds that our crypto threads worked.
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
        let reading = Reading { stat: File::open("/proc/stat")?, text: String::new(), last: None };
        let (due, has_idle) = (AtomicTime::default(), AtomicBool::new(false));
        Ok(Self { usable, reading: Mutex::new(reading), due, has_idle })
    }

    /// The same, of these processors only, if there are any.
    #[must_use]
    pub fn among(mut self, processors: &Processors) -> Self {
        if !processors.is_empty() {
            self.usable = processors.numbers().iter().map(|&number| number.into()).collect();
        }
        self
    }

    /// Whether the caller is to have them read: told to one caller in each interval.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        let is_due = self.due.load().is_none_or(|due| now >= due);
        if is_due {
            // Two workers that ask at once have it read twice.
            self.due.store(now + INTERVAL);
        }
        is_due
    }

    /// Whether a processor was idle for half of the time between the last readings, or would have been without our crypto threads.
    #[inline]
    pub fn has_idle(&self) -> bool {
        self.has_idle.load(Ordering::Relaxed)
    }

    /// Reads them. Our crypto threads have worked for `busy` nanoseconds so far.
    pub fn read(&self, busy: u64) {
        // Another thread reads.
        let Ok(mut reading) = self.reading.try_lock() else { return };
        let has_idle = reading.advance(&self.usable, busy).unwrap_or(false);
        self.has_idle.store(has_idle, Ordering::Relaxed);
    }
}

impl Reading {
    fn advance(&mut self, usable: &[usize], busy: u64) -> io::Result<bool> {
        self.text.clear();
        self.stat.rewind()?;
        self.stat.read_to_string(&mut self.text)?;
        let now = Counts { at: Instant::now(), idle: idle(&self.text, usable), busy };
        // Before the first reading nothing is known.
        Ok(self.last.replace(now).is_some_and(|last| now.has_idle_since(last)))
    }
}

impl Counts {
    fn has_idle_since(self, last: Self) -> bool {
        let spare = self.idle.saturating_sub(last.idle) + self.busy.saturating_sub(last.busy);
        spare as f64 >= SHARE * (self.at - last.at).as_nanos() as f64
    }
}

/// The idle nanoseconds of these processors, from the text of /proc/stat.
fn idle(text: &str, usable: &[usize]) -> u64 {
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let core = words.next()?.parse().ok()?;
        // user, nice, system, idle, iowait
        let idle: u64 = words.skip(3).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
        usable.contains(&core).then_some(idle * tick)
    };
    text.lines().filter_map(of_line).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  40 0 40 1000 12 0 0 0 0 0\ncpu0 10 0 10 500 6 0 0 0 0 0\ncpu1 10 0 10 300 2 0 0 0 0 0\n\
                        cpu12 20 0 20 200 4 0 0 0 0 0\nintr 5 6 7 8 9\n";

    fn ticks(number: u64) -> u64 {
        number * 1_000_000_000 / rustix::param::clock_ticks_per_second()
    }

    #[test]
    fn idle_time_is_that_of_the_processors_that_may_be_used() {
        assert_eq!(idle(STAT, &[0, 1, 12]), ticks(1012));
        assert_eq!(idle(STAT, &[1]), ticks(302));
        assert_eq!(idle(STAT, &[2, 120]), 0);
        assert_eq!(idle("cpu\ncpux 1 2\ncpu0\ncpu1 1 2 3 x 4", &[0, 1]), ticks(4));
    }

    #[test]
    fn work_that_was_handed_off_counts_as_idle() {
        let at = Instant::now();
        let counts = |milliseconds: u64, idle: u64, busy: u64| Counts {
            at: at + Duration::from_millis(milliseconds),
            idle: idle * 1_000_000,
            busy: busy * 1_000_000,
        };
        let first = counts(0, 7, 3);
        for (idle, busy, expected) in
            [(25, 0, true), (24, 0, false), (0, 25, true), (12, 13, true), (0, 0, false)]
        {
            assert_eq!(counts(50, 7 + idle, 3 + busy).has_idle_since(first), expected, "{idle} {busy}");
        }
        // Counts of the kernel may go back.
        assert!(!counts(50, 0, 3).has_idle_since(first));
    }

    #[test]
    fn one_caller_in_each_interval_has_them_read() {
        let cores = IdleCores::open().expect("the kernel has it");
        let at = |milliseconds: u64| Time::from_nanoseconds(1 + milliseconds * 1_000_000);
        let asked = [0, 1, 49, 50, 51, 99, 100].map(|milliseconds| cores.is_due(at(milliseconds)));
        assert_eq!(asked, [true, false, false, true, false, false, true]);
        cores.read(0);
        assert!(!cores.has_idle(), "nothing is known yet");
        cores.read(u64::MAX / 2);
        assert!(cores.has_idle(), "our threads were busier than a processor can be");
    }
}
