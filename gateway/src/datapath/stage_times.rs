//! How long the stages take, from one burst in [`EVERY`]: to read the clock behind each stage of all bursts would cost more than it tells.

use super::resent::{Look, Segments};
use super::{Observer, Stage};
use packet::Batch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tunnel::Time;

/// One burst in so many is timed. With ten stages it is a quarter of a microsecond, where a burst of one packet takes two.
pub const EVERY: u32 = 64;

/// The most stages of a direction.
const MOST: usize = 10;

/// The times of the stages of one direction, which its workers add to.
pub struct StageTimes {
    stages: &'static [&'static Stage],
    times: [StageTime; MOST],
    segments: Segments,
}

/// Of the bursts that were timed.
#[derive(Default)]
struct StageTime {
    nanoseconds: AtomicU64,
    packets: AtomicU64,
}

/// What a stage has taken for the packets of the bursts that were timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed {
    /// The stage.
    pub stage: &'static Stage,
    /// Its time.
    pub nanoseconds: u64,
    /// The packets of these bursts.
    pub packets: u64,
}

impl StageTimes {
    /// Nothing so far, of a direction with these stages.
    pub fn new(stages: &'static [&'static Stage]) -> Self {
        debug_assert!(stages.len() <= MOST, "{} stages", stages.len());
        Self { stages, times: Default::default(), segments: Segments::default() }
    }

    /// TCP segments that carry data, of the bursts that were looked at, and those among them that were sent again.
    pub fn segments(&self) -> [u64; 2] {
        self.segments.read()
    }

    /// What was timed so far. A stage whose bursts were handed off to crypto threads was not.
    pub fn read(&self) -> impl Iterator<Item = Timed> + '_ {
        self.stages.iter().zip(&self.times).map(|(&stage, time)| Timed {
            stage,
            nanoseconds: time.nanoseconds.load(Ordering::Relaxed),
            packets: time.packets.load(Ordering::Relaxed),
        })
    }
}

/// What a worker has of the burst that it carries.
#[derive(Default)]
pub struct Stopwatch {
    /// None of a worker that is not timed.
    times: Option<Arc<StageTimes>>,
    /// Bursts until the next that is timed.
    rest: u32,
    /// The end of the last stage, while a burst is timed.
    last: Option<Instant>,
    spent: [u64; MOST],
    look: Look,
}

impl Stopwatch {
    /// Adds to these.
    pub fn new(times: Arc<StageTimes>) -> Self {
        Self { times: Some(times), ..Self::default() }
    }

    /// A burst may begin.
    #[inline]
    pub fn begin(&mut self) {
        if self.rest == 0 && self.times.is_some() {
            self.last = Some(Instant::now());
            self.spent = [0; MOST];
        }
    }

    /// There was none.
    #[inline]
    pub fn cancel(&mut self) {
        self.last = None;
    }

    /// The burst of so many packets has gone as far as this worker carries it now.
    #[inline]
    pub fn end(&mut self, packets: usize) {
        if self.last.take().is_some() {
            self.note(packets);
        } else {
            self.rest = self.rest.saturating_sub(1);
        }
    }

    #[cold]
    fn note(&mut self, packets: usize) {
        self.rest = EVERY - 1;
        let Some(times) = &self.times else { return };
        for (time, &spent) in times.times.iter().zip(&self.spent).filter(|(_, spent)| **spent > 0) {
            time.nanoseconds.fetch_add(spent, Ordering::Relaxed);
            time.packets.fetch_add(packets as u64, Ordering::Relaxed);
        }
    }

    #[cold]
    fn lap(&mut self, last: Instant, stage: &'static Stage) {
        let now = Instant::now();
        let stages = self.times.as_ref().map_or(&[][..], |times| times.stages);
        // Not by their addresses: a constant has one in each place that names it.
        if let Some(place) = stages.iter().position(|it| it.name == stage.name) {
            // What takes less than the clock shows has been there too.
            self.spent[place] += (now.duration_since(last).as_nanos() as u64).max(1);
        }
        self.last = Some(now);
    }
}

impl Observer for Stopwatch {
    #[inline]
    fn finished(&mut self, stage: &'static Stage) {
        if let Some(last) = self.last {
            self.lap(last, stage);
        }
    }

    #[inline]
    fn inner(&mut self, batch: &Batch, now: Time) {
        if let Some(times) = &self.times {
            self.look.at(batch, now, &times.segments);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::{INBOUND, OUTBOUND};
    use std::time::Duration;

    #[test]
    fn one_burst_in_many_is_timed_with_its_packets() {
        let times = Arc::new(StageTimes::new(OUTBOUND));
        let mut watch = Stopwatch::new(Arc::clone(&times));
        for _ in 0..2 * EVERY {
            watch.begin();
            for stage in &OUTBOUND[..2] {
                std::thread::sleep(Duration::from_micros(20));
                watch.finished(stage);
            }
            watch.end(5);
        }
        let timed: Vec<Timed> = times.read().collect();
        assert_eq!(timed.len(), OUTBOUND.len());
        for it in &timed[..2] {
            assert_eq!(it.packets, 10, "{it:?}");
            assert!(it.nanoseconds >= 40_000, "{it:?}");
        }
        assert!(timed[2..].iter().all(|it| (it.nanoseconds, it.packets) == (0, 0)), "{timed:?}");
    }

    #[test]
    fn a_wait_without_a_burst_leaves_the_next_one_to_be_timed() {
        let times = Arc::new(StageTimes::new(INBOUND));
        let mut watch = Stopwatch::new(Arc::clone(&times));
        for _ in 0..3 {
            watch.begin();
            watch.cancel();
        }
        watch.begin();
        watch.finished(INBOUND[0]);
        watch.end(1);
        assert_eq!(times.read().map(|it| it.packets).sum::<u64>(), 1);
    }

    #[test]
    fn a_worker_without_times_reads_no_clock() {
        let mut watch = Stopwatch::default();
        watch.begin();
        assert!(watch.last.is_none());
        watch.end(1);
    }

    #[test]
    fn every_stage_has_its_place() {
        assert!(OUTBOUND.len() <= MOST && INBOUND.len() <= MOST);
    }
}
