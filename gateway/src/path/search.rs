//! The search for the largest packet that comes through and back (RFC 8899): first the tunnel's own MTU, then, if that is lost, the
//! sizes below it by halves.
//!
//! ```text
//! Idle ── it is time ──> Top ── comes through ──────────────────────────────> Fits, Idle
//!   ^                     └── is lost ──> Narrow: halves ── one byte left ──┐
//!   ├── the size found comes through <── Low <── was lost before, too       │
//!   └── BlackHole, or Told if an ICMP error named a size that fits <────────┘
//! ```
//! An ICMP error does not hide a black hole below the size that it names: it counts only until a size that it allows is lost.

use super::model::Mtu;
use std::time::Duration;

/// Time until the MTU is probed again (RFC 8899 section 5.1.1: the timers of confirmation and of raising, both).
const PROBED_AGAIN: Duration = Duration::from_secs(60);
/// The least size that is tried: what every host must take (RFC 791), and every link (RFC 8200).
const LEAST: [u32; 2] = [576, 1280];
/// The accepted probability that random loss is taken for a limit of the MTU.
const ERROR: f64 = 0.001;
/// Above this loss nothing is concluded.
const MOST_LOSS: f64 = 0.5;

/// A search, for one target. Sizes are those of IP packets.
#[derive(Debug)]
pub(super) struct Search {
    floor: u32,
    top: Option<u32>,
    step: Step,
    /// How often the size of this step was lost.
    lost: u32,
    /// The largest size that came through in this search, and the least that was lost.
    low: Option<u32>,
    high: u32,
    /// What an ICMP error named in this search, unless a size up to it was lost since.
    told: Option<u32>,
    result: Option<Found>,
    next: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Top,
    Low,
    Narrow,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) mtu: Mtu,
    /// The largest size that came through; none if even the least was lost.
    pub(super) size: Option<u32>,
}

impl Search {
    pub(super) fn new(is_v4: bool) -> Self {
        Self {
            floor: LEAST[usize::from(!is_v4)],
            top: None,
            step: Step::Idle,
            lost: 0,
            low: None,
            high: 0,
            told: None,
            result: None,
            next: Duration::ZERO,
        }
    }

    /// What was found last, also while it is looked at again.
    pub(super) fn found(&self) -> Option<Found> {
        self.result
    }

    pub(super) fn top(&self) -> Option<u32> {
        self.top
    }

    /// Sets the MTU of the tunnel; another one begins the search anew.
    pub(super) fn set_top(&mut self, top: u32) {
        if self.top != Some(top) {
            let is_v4 = self.floor == LEAST[0];
            *self = Self { top: Some(top), ..Self::new(is_v4) };
        }
    }

    /// The size that is to be tried now, if any.
    pub(super) fn wanted(&mut self, now: Duration) -> Option<u32> {
        let top = self.top?;
        if self.step == Step::Idle && now >= self.next {
            (self.step, self.lost) = (Step::Top, 0);
            self.told = None;
        }
        match self.step {
            Step::Idle => None,
            Step::Top => Some(top),
            Step::Low => self.result?.size,
            Step::Narrow => Some(self.middle()),
        }
    }

    /// The next size: what an ICMP error named, or half way between what came through and what was lost.
    fn middle(&self) -> u32 {
        let low = self.low.unwrap_or(self.floor - 1);
        match self.told {
            Some(told) if told > low && told < self.high => told,
            _ => low + (self.high - low) / 2,
        }
    }

    /// A probe of this size was answered.
    pub(super) fn passed(&mut self, size: u32, now: Duration) {
        if self.wanted(now) != Some(size) {
            return;
        }
        self.lost = 0;
        match self.step {
            Step::Idle => {}
            Step::Top => self.finish(Found { mtu: Mtu::Fits, size: Some(size) }, now),
            Step::Low => {
                if self.told.is_some_and(|told| told > size) {
                    // An ICMP error says that more fits. Whether that is so is not known yet.
                    (self.step, self.low) = (Step::Narrow, Some(size));
                    return self.finish_if_narrow(now);
                }
                // As before, but whether senders are told may have changed.
                let mtu = self.without_top();
                self.finish(Found { mtu, size: Some(size) }, now);
            }
            Step::Narrow => {
                self.low = Some(size);
                self.finish_if_narrow(now);
            }
        }
    }

    /// A probe of this size was lost while small ones were answered; `loss` is the part of the small ones that is lost.
    pub(super) fn failed(&mut self, size: u32, loss: f64, now: Duration) {
        if self.wanted(now) != Some(size) {
            return;
        }
        self.lost += 1;
        if self.lost >= tries(loss, self.step) {
            // A size that the ICMP error allows was lost: the error is discarded.
            self.told = self.told.filter(|told| size > *told);
            self.is_too_large(size, now);
        }
    }

    /// An ICMP error said that a probe of this size is too large, and that `mtu` fits.
    pub(super) fn told(&mut self, size: u32, mtu: u32, now: Duration) {
        if mtu < size && self.wanted(now) == Some(size) {
            self.told = Some(mtu);
            self.is_too_large(size, now);
        }
    }

    fn is_too_large(&mut self, size: u32, now: Duration) {
        self.lost = 0;
        match self.step {
            Step::Idle => {}
            Step::Top => {
                let before = self.result.filter(|found| found.mtu != Mtu::Fits).and_then(|found| found.size);
                self.low = None;
                self.high = size;
                // What was found before is probably still so.
                self.step = if before.is_some_and(|it| it < size) { Step::Low } else { Step::Narrow };
            }
            Step::Low => {
                self.high = size;
                self.step = Step::Narrow;
            }
            Step::Narrow => self.high = size,
        }
        self.finish_if_narrow(now);
    }

    fn finish_if_narrow(&mut self, now: Duration) {
        if self.step != Step::Narrow {
            return;
        }
        // Also where the tunnel's MTU is below the least that is tried.
        if self.high <= self.low.unwrap_or(self.floor - 1) + 1 {
            self.finish(Found { mtu: self.without_top(), size: self.low }, now);
        }
    }

    /// Whether the limit was signalled by ICMP.
    fn without_top(&self) -> Mtu {
        if self.told.is_some() { Mtu::Told } else { Mtu::BlackHole }
    }

    fn finish(&mut self, found: Found, now: Duration) {
        self.result = Some(found);
        self.step = Step::Idle;
        self.next = now + PROBED_AGAIN;
    }
}

/// How many lost probes show that a size is too large, where this part of small ones is lost: the chance that they were lost like
/// those is small.
fn tries(loss: f64, step: Step) -> u32 {
    if loss > MOST_LOSS {
        return u32::MAX;
    }
    // RFC 8899 section 5.1.2: three where a result changes. Between two sizes that differ, an error costs a few bytes.
    let least = if step == Step::Narrow { 2 } else { 3 };
    ((ERROR.ln() / loss.max(0.001).ln()).ceil() as u32).max(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search over a path that carries `carries` bytes, until it is idle; returns how many probes it took.
    fn run(search: &mut Search, now: Duration, carries: u32, tells: bool) -> u32 {
        let mut probes = 0;
        while let Some(size) = search.wanted(now) {
            probes += 1;
            if size <= carries {
                search.passed(size, now);
            } else if tells {
                search.told(size, carries, now);
            } else {
                search.failed(size, 0.0, now);
            }
            assert!(probes < 100, "it ends: {search:?}");
        }
        probes
    }

    fn found(mtu: Mtu, size: u32) -> Found {
        Found { mtu, size: Some(size) }
    }

    #[test]
    fn a_path_that_carries_the_tunnels_mtu_takes_one_probe_and_is_looked_at_again() {
        let mut search = Search::new(true);
        assert_eq!(search.wanted(Duration::ZERO), None, "its MTU is not known");
        search.set_top(1420);
        assert_eq!(run(&mut search, Duration::ZERO, 1500, false), 1);
        assert_eq!(search.found(), Some(found(Mtu::Fits, 1420)));
        assert_eq!(run(&mut search, PROBED_AGAIN / 2, 1500, false), 0);
        assert_eq!(run(&mut search, PROBED_AGAIN, 1500, false), 1);
        search.set_top(1400);
        assert_eq!((search.found(), run(&mut search, PROBED_AGAIN, 1500, false)), (None, 1));
    }

    #[test]
    fn a_black_hole_is_found_to_the_byte_and_goes_again() {
        for (is_v4, top, carries) in
            [(true, 1420, 1320), (true, 1500, 577), (false, 1420, 1281), (true, 9000, 8999)]
        {
            let mut search = Search::new(is_v4);
            search.set_top(top);
            let probes = run(&mut search, Duration::ZERO, carries, false);
            assert!(probes <= 32, "{probes}");
            assert_eq!(search.found(), Some(found(Mtu::BlackHole, carries)), "{top}");
            assert_eq!(
                run(&mut search, PROBED_AGAIN, carries, false),
                4,
                "three of the top, one of what was found"
            );
            assert_eq!(search.found(), Some(found(Mtu::BlackHole, carries)));
            assert_eq!(run(&mut search, 2 * PROBED_AGAIN, top, false), 1);
            assert_eq!(search.found(), Some(found(Mtu::Fits, top)));
        }
    }

    #[test]
    fn a_black_hole_that_swallows_all_sizes_has_none_that_fits() {
        let mut search = Search::new(false);
        search.set_top(1420);
        run(&mut search, Duration::ZERO, 1279, false);
        assert_eq!(search.found(), Some(Found { mtu: Mtu::BlackHole, size: None }));
        search.set_top(1000);
        run(&mut search, Duration::ZERO, 999, false);
        assert_eq!(search.found(), Some(Found { mtu: Mtu::BlackHole, size: None }), "below the least");
    }

    #[test]
    fn who_is_told_needs_few_probes_and_it_is_no_black_hole() {
        let mut search = Search::new(true);
        search.set_top(1420);
        let probes = run(&mut search, Duration::ZERO, 1380, true);
        assert!(probes <= 8, "{probes}");
        assert_eq!(search.found(), Some(found(Mtu::Told, 1380)));
        search.told(1420, 5000, PROBED_AGAIN);
        assert_eq!(search.found(), Some(found(Mtu::Told, 1380)), "a size that is no smaller says nothing");
    }

    #[test]
    fn a_black_hole_below_what_an_icmp_error_names_is_found_every_time() {
        let mut search = Search::new(true);
        search.set_top(1420);
        for round in 0..3 {
            let now = round * PROBED_AGAIN;
            let mut probes = 0;
            while let Some(size) = search.wanted(now) {
                match size {
                    ..=1380 => search.passed(size, now),
                    1381..=1400 => search.failed(size, 0.0, now),
                    _ => search.told(size, 1400, now),
                }
                probes += 1;
                assert!(probes < 40, "it ends: {search:?}");
            }
            assert_eq!(search.found(), Some(found(Mtu::BlackHole, 1380)), "round {round}");
        }
        // One lost probe is no hole where others are lost, too.
        let mut search = Search::new(true);
        search.set_top(1420);
        search.told(1420, 1400, Duration::ZERO);
        search.failed(1400, 0.2, Duration::ZERO);
        run(&mut search, Duration::ZERO, 1400, true);
        assert_eq!(search.found(), Some(found(Mtu::Told, 1400)));
    }

    #[test]
    fn loss_of_all_sizes_is_no_black_hole() {
        let mut search = Search::new(true);
        search.set_top(1420);
        for _ in 0..1000 {
            search.failed(1420, 0.6, Duration::ZERO);
        }
        assert_eq!(search.found(), None);
        assert_eq!((tries(0.0, Step::Top), tries(0.0, Step::Narrow), tries(0.2, Step::Top)), (3, 2, 5));
        assert_eq!(tries(0.5, Step::Narrow), 10);
        search.passed(1420, Duration::ZERO);
        assert_eq!(search.found(), Some(found(Mtu::Fits, 1420)));
    }

    #[test]
    fn answers_of_other_sizes_change_nothing() {
        let mut search = Search::new(true);
        search.set_top(1420);
        search.passed(1419, Duration::ZERO);
        search.told(1419, 1300, Duration::ZERO);
        assert_eq!((search.found(), search.wanted(Duration::ZERO)), (None, Some(1420)));
    }
}
