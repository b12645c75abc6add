//! The procedures for frames of one size: throughput, latency, frame loss, back-to-back frames.

use super::plan::Plan;
use super::search::{Length, Measured, Rules, search};
use super::tester::{Clock, Tester};
use super::trial::{Load, Purpose, Trial};
use crate::report::median;
use serde::Serialize;
use std::io;

/// Shares of loss that a throughput is searched for: PDR 0.5%, PDR 0.1%, NDR.
pub const SHARES: [f64; 3] = [0.005, 0.001, 0.0];
/// A device that loses frames at this share of the highest rate has no throughput.
const LEAST: f64 = 0.001;
/// A burst whose frames all arrive must be sent at this share of the highest rate at least.
const BURST_RATE: f64 = 0.9;

/// A throughput by several searches, in frames a second in each direction.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// The share of frames that may be lost.
    pub loss: f64,
    /// The results of the searches; none: even the lowest rate lost more.
    pub searches: Vec<Option<f64>>,
    /// Their median.
    pub rate: Option<f64>,
    /// Why it may be more.
    pub limit: Option<Limit>,
}

/// Why a throughput may be more than was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The tester itself does hardly more.
    Tester,
    /// It is what the line carries.
    Line,
}

/// Delays at one rate, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// The share of loss that the throughput allows: 0 for the NDR.
    pub allowed: f64,
    /// The rate as a share of that throughput.
    pub share: f64,
    /// Frames a second in each direction.
    pub rate: f64,
    /// RFC 2544: the mean of the trials' tagged frames.
    pub tagged_mean: f64,
    /// RFC 8219: the median over the trials of the median of 500 tagged frames.
    pub typical: f64,
    /// RFC 8219: the median over the trials of the 99.9th percentile of 500 tagged frames.
    pub worst: f64,
    /// RFC 8219 section 10: the 1st and the 99th percentile of the trials' medians.
    pub typical_range: [f64; 2],
    /// The same of the trials' 99.9th percentiles.
    pub worst_range: [f64; 2],
    /// RFC 8219: packet delay variation, the 99.9th percentile of all frames less the least delay.
    pub variation: f64,
    /// RFC 8219 section 7.3.2: inter-packet delay variation: the least, the median of the trials' medians, and the greatest.
    pub ipdv: [f64; 3],
    /// The share of frames lost.
    pub loss: f64,
}

/// A point of the frame loss curve.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LossPoint {
    /// The rate as a share of the highest.
    pub share: f64,
    /// Frames a second in each direction.
    pub rate: f64,
    /// The share of frames lost.
    pub loss: f64,
}

/// The longest bursts without loss.
#[derive(Clone, Debug, Serialize)]
pub struct BackToBack {
    /// Frames, by search.
    pub frames: Vec<u64>,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
    /// Whether the longest burst that was tried passed.
    pub is_longest: bool,
    /// The rate in bursts, in frames a second.
    pub rate: f64,
    /// RFC 9004: the buffer time that follows, in milliseconds.
    pub implied_ms: f64,
    /// RFC 9004: the same without the frames that left meanwhile.
    pub corrected_ms: f64,
}

/// The procedures for frames of one size.
pub struct Procedure<'a, C> {
    /// The tester, loaded with these frames.
    pub tester: &'a mut Tester<C>,
    /// The lengths.
    pub plan: &'a Plan,
    /// The highest rate, in frames a second.
    pub most: f64,
    /// Every trial that was made.
    pub trials: &'a mut Vec<Trial>,
    /// Told before each trial.
    pub progress: &'a dyn Fn(&str),
}

impl<C: Clock> Procedure<'_, C> {
    /// Makes one trial after a rest.
    pub fn trial(&mut self, purpose: Purpose, rate: f64, seconds: f64) -> io::Result<Trial> {
        self.trial_of(purpose, rate, seconds, None, None)
    }

    fn trial_of(
        &mut self,
        purpose: Purpose,
        rate: f64,
        seconds: f64,
        frames: Option<u64>,
        samples: Option<usize>,
    ) -> io::Result<Trial> {
        let load = Load {
            purpose,
            rate,
            seconds,
            burst: self.plan.burst,
            frames,
            settle_seconds: self.plan.settle_seconds,
            samples,
        };
        (self.progress)(&format!("{purpose:?}, {rate:.0} frames/s"));
        self.tester.learn();
        self.tester.clock.rest((self.plan.rest_seconds * 1e9) as u64);
        let trial = self.tester.run(&load)?;
        self.trials.push(trial.clone());
        Ok(trial)
    }

    /// RFC 2544 section 26.1: the highest rates with these shares of loss.
    pub fn throughput(&mut self, purpose: Purpose) -> io::Result<Vec<Throughput>> {
        let plan = self.plan;
        let rules = Rules {
            most: self.most,
            least: self.most * LEAST,
            precision: plan.precision,
            repeats: plan.repeats,
            has_full: plan.final_seconds.is_some(),
        };
        let mut results = Vec::new();
        for _ in 0..plan.searches.max(1) {
            results.push(search(&SHARES, &rules, &mut |rate, length| {
                let seconds = match length {
                    Length::Full => plan.final_seconds.unwrap_or(plan.search_seconds),
                    Length::Short => plan.search_seconds,
                };
                let trial = self.trial(purpose, rate, seconds)?;
                let is_disturbed = trial.is_disturbed();
                Ok(Measured { loss: trial.loss(), forwarded: trial.forwarded(), is_disturbed })
            })?);
        }
        let of = |place: usize| {
            let searches: Vec<Option<f64>> = results.iter().map(|it| it[place]).collect();
            let rates: Vec<f64> = searches.iter().map(|rate| rate.unwrap_or(0.0)).collect();
            let rate = Some(median(&rates)).filter(|&rate| rate > 0.0);
            Throughput { loss: SHARES[place], searches, rate, limit: None }
        };
        Ok((0..SHARES.len()).map(of).collect())
    }

    /// RFC 2544 section 26.2 and RFC 8219 section 7.2: delays at a share of the throughput.
    pub fn latency(&mut self, throughput: f64, allowed: f64, share: f64) -> io::Result<Latency> {
        let rate = throughput * share;
        let trials = if share < 1.0 { 1 } else { self.plan.latency_trials };
        let (mut tagged, mut typical, mut worst) = (Vec::new(), Vec::new(), Vec::new());
        let (mut variation, mut lost, mut sent) = (Vec::new(), 0, 0);
        let mut ipdv = Vec::new();
        for _ in 0..trials {
            let seconds = self.plan.latency_seconds;
            let trial = self.trial_of(Purpose::Latency, rate, seconds, None, Some(500))?;
            let mut samples: Vec<f64> = trial.samples.iter().map(|&delay| delay as f64 / 1e3).collect();
            tagged.extend(samples.first());
            samples.sort_by(f64::total_cmp);
            let rank = (samples.len() as f64 * 0.999).ceil() as usize;
            typical.push(median(&samples));
            worst.extend(samples.get(rank.saturating_sub(1)));
            variation.extend(trial.delays.map(|delays| delays.p999 - delays.least));
            ipdv.extend(trial.ipdv);
            lost += trial.counts.sent.saturating_sub(trial.counts.received);
            sent += trial.counts.sent;
        }
        Ok(Latency {
            allowed,
            share,
            rate,
            tagged_mean: tagged.iter().sum::<f64>() / tagged.len() as f64,
            typical: median(&typical),
            worst: median(&worst),
            typical_range: range(typical),
            worst_range: range(worst),
            variation: median(&variation),
            ipdv: [
                ipdv.iter().map(|it| it[0]).fold(f64::NAN, f64::min),
                median(&ipdv.iter().map(|it| it[1]).collect::<Vec<_>>()),
                ipdv.iter().map(|it| it[2]).fold(f64::NAN, f64::max),
            ],
            loss: lost as f64 / sent.max(1) as f64,
        })
    }

    /// RFC 2544 section 26.3: the loss at 100%, 90%, ... of the highest rate, until two trials in a row lose nothing.
    pub fn loss_curve(&mut self) -> io::Result<Vec<LossPoint>> {
        let mut points: Vec<LossPoint> = Vec::new();
        for tenth in (1..=10).rev() {
            let share = f64::from(tenth) / 10.0;
            let rate = self.most * share;
            let trial = self.trial(Purpose::FrameLoss, rate, self.plan.loss_seconds)?;
            points.push(LossPoint { share, rate, loss: trial.loss() });
            if points.len() > 1 && points[points.len() - 2..].iter().all(|it| it.loss == 0.0) {
                break;
            }
        }
        Ok(points)
    }

    /// RFC 2544 section 26.4 as RFC 9004 has it: the longest burst without loss. None if the device keeps up with the highest rate.
    pub fn back_to_back(&mut self, throughput: f64) -> io::Result<Option<BackToBack>> {
        if throughput >= self.most * (1.0 - 2.0 * self.plan.precision) {
            return Ok(None);
        }
        let longest = ((self.most * self.plan.burst_seconds) as u64).max(2);
        let (mut frames, mut rates) = (Vec::new(), Vec::new());
        for _ in 0..self.plan.bursts.max(1) {
            let (mut low, mut high) = (0, longest + 1);
            while high - low > 1.max((high as f64 * self.plan.precision) as u64) {
                let burst = if high > longest { longest } else { u64::midpoint(low, high) };
                let (passes, rate) = self.burst(burst)?;
                if passes {
                    low = burst;
                    rates.push(rate);
                } else {
                    high = burst;
                }
            }
            frames.push(low);
        }
        let numbers: Vec<f64> = frames.iter().map(|&it| it as f64).collect();
        let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
        let implied_ms = mean / self.most * 1e3;
        Ok(Some(BackToBack {
            is_longest: frames.contains(&longest),
            frames,
            mean,
            deviation: variance.sqrt(),
            rate: median(&rates),
            implied_ms,
            corrected_ms: implied_ms * (1.0 - throughput / self.most),
        }))
    }

    /// Whether a burst arrives whole, with verification, and the rate at which it left.
    fn burst(&mut self, frames: u64) -> io::Result<(bool, f64)> {
        let mut rate = f64::NAN;
        for _ in 0..=self.plan.repeats {
            // As long as the burst takes at a tenth of the rate: then the tester is too slow for it.
            let seconds = frames as f64 / self.most * 10.0 + 0.01;
            let trial = self.trial_of(Purpose::BackToBack, self.most, seconds, Some(frames), None)?;
            rate = trial.offered;
            let is_whole = trial.counts.received == frames;
            if is_whole && (trial.offered >= self.most * BURST_RATE || frames < 64) {
                return Ok((true, rate));
            }
        }
        Ok((false, rate))
    }
}

/// The 1st and the 99th percentile, of less than a hundred values the least and the greatest; NaN for none.
fn range(mut values: Vec<f64>) -> [f64; 2] {
    values.sort_by(f64::total_cmp);
    [0.01, 0.99].map(|share| {
        let rank = (share * values.len() as f64).ceil() as usize;
        values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    })
}

#[cfg(test)]
mod tests {
    use super::super::device::{Known, Virtual, tester};
    use super::*;

    const KNOWN: Known = Known { rate: 20_000.0, buffer: 200, delay: 40_000, spikes: None };

    fn plan() -> Plan {
        Plan {
            is_conformant: false,
            scale: 1.0,
            search_seconds: 0.5,
            final_seconds: None,
            searches: 1,
            precision: 0.01,
            repeats: 1,
            latency_seconds: 0.5,
            latency_trials: 2,
            loss_seconds: 0.5,
            burst_seconds: 0.05,
            bursts: 2,
            settle_seconds: 0.02,
            rest_seconds: 0.1,
            burst: 1,
        }
    }

    /// Runs procedures against a simulated device; the highest rate is 100,000 frames a second.
    fn with<T>(
        known: Known,
        faults: &str,
        both: bool,
        plan: &Plan,
        run: impl FnOnce(&mut Procedure<'_, Virtual>) -> io::Result<T>,
    ) -> (T, Vec<Trial>) {
        let (mut tester, mut trials) = (tester(known, faults, both), Vec::new());
        let (most, progress) = (100_000.0, &|_: &str| {});
        let mut procedure = Procedure { tester: &mut tester, plan, most, trials: &mut trials, progress };
        let result = run(&mut procedure).expect("memory does not fail");
        (result, trials)
    }

    #[test]
    fn the_throughput_of_a_known_device_is_found_in_one_and_both_directions() {
        for both in [false, true] {
            // Without a buffer that hides loss in a short trial.
            let known = Known { buffer: 20, ..KNOWN };
            let (found, trials) = with(known, "", both, &plan(), |it| it.throughput(Purpose::Throughput));
            for throughput in found {
                let rate = throughput.rate.expect("it forwards");
                let right = KNOWN.rate / (1.0 - throughput.loss);
                assert!((0.98..1.01).contains(&(rate / right)), "{both}: {rate} {right}");
            }
            assert!(trials.iter().all(|it| it.directions.len() == 1 + usize::from(both)));
            let overloaded = trials.iter().find(|it| it.rate == Some(100_000.0)).expect("it is the first");
            assert!((overloaded.counts.loss() - 0.8).abs() < 0.01, "{overloaded:?}");
        }
    }

    #[test]
    fn the_delay_of_a_known_device_is_found() {
        let (latency, _) = with(KNOWN, "", false, &plan(), |it| it.latency(KNOWN.rate * 0.9, 0.0, 1.0));
        // 50 us of service and 40 of delay; the tester looks about once a microsecond.
        for found in [latency.tagged_mean, latency.typical, latency.worst] {
            assert!((90.0..93.0).contains(&found), "{latency:?}");
        }
        assert!(latency.variation < 3.0 && latency.loss == 0.0, "{latency:?}");
    }

    #[test]
    fn typical_and_worst_delay_and_their_variation_are_those_of_rfc_8219() {
        let run = |every| {
            let known = Known { spikes: Some((every, 300_000)), ..KNOWN };
            let plan = Plan { latency_seconds: 1.0, latency_trials: 1, ..plan() };
            with(known, "", false, &plan, |it| it.latency(2_000.0, 0.0, 1.0))
        };
        // 50 us of service and 40 of delay; one frame in five takes 300 us more.
        let (often, trials) = run(5);
        assert_eq!(trials[0].samples.len(), 500, "RFC 8219 section 7.2 wants 500 tagged frames");
        assert!((90.0..93.0).contains(&often.typical) && (390.0..393.0).contains(&often.worst), "{often:?}");
        assert!((299.0..304.0).contains(&often.variation), "{often:?}");
        // A spike is a rise of 300 us and a fall; most frames follow one of their kind.
        let [least, typical, most] = often.ipdv;
        assert!((-304.0..-296.0).contains(&least) && (296.0..304.0).contains(&most), "{often:?}");
        assert!(typical.abs() < 3.0, "{often:?}");
        assert_eq!(
            [often.typical_range, often.worst_range],
            [[often.typical; 2], [often.worst; 2]],
            "of one trial"
        );
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((range(hundred), range(vec![3.0, 1.0])), ([1.0, 99.0], [1.0, 3.0]));
        // Only one frame in 2,000: it is not among the 99.9% that the variation is made of.
        let (rare, trials) = run(2_000);
        assert!(rare.variation < 3.0 && (90.0..93.0).contains(&rare.typical), "{rare:?}");
        assert!(trials[0].delays.expect("frames arrived").most > 390.0, "{trials:?}");
    }

    #[test]
    fn bursts_wait_in_the_device_and_show_in_its_delays() {
        let plan = Plan { burst: 16, ..plan() };
        let (latency, trials) = with(KNOWN, "", false, &plan, |it| it.latency(KNOWN.rate * 0.5, 0.0, 1.0));
        let delays = trials[0].delays.expect("frames arrived");
        // The last of 16 waits for 15 others.
        assert!((90.0..93.0).contains(&delays.least) && (840.0..860.0).contains(&delays.most), "{delays:?}");
        assert!((latency.typical - 465.0).abs() < 60.0, "{latency:?}");
    }

    #[test]
    fn the_loss_curve_falls_to_zero_and_ends_there() {
        let known = Known { rate: 72_000.0, buffer: 50, delay: 1000, spikes: None };
        #[expect(
            clippy::redundant_closure_for_method_calls,
            reason = "the method is general over fewer lifetimes"
        )]
        let (points, _) = with(known, "", false, &plan(), |it| it.loss_curve());
        let shares: Vec<f64> = points.iter().map(|it| it.share).collect();
        assert_eq!(shares, [1.0, 0.9, 0.8, 0.7, 0.6], "{points:?}");
        for (point, right) in points.iter().zip([0.28, 0.2, 0.1, 0.0, 0.0]) {
            assert!((point.loss - right).abs() < 0.01, "{points:?}");
        }
    }

    #[test]
    fn the_buffer_of_a_known_device_is_found() {
        let (found, _) = with(KNOWN, "", false, &plan(), |it| it.back_to_back(KNOWN.rate));
        let found = found.expect("it is slower than the tester");
        // While a burst comes at 100,000 a second, 20,000 a second leave: 200 / 0.8 frames fit.
        assert!((found.mean - 250.0).abs() < 4.0, "{found:?}");
        assert!((found.corrected_ms - 2.0).abs() < 0.05 && found.deviation < 1.0, "{found:?}");
        let fast = Known { rate: 150_000.0, ..KNOWN };
        assert!(with(fast, "", false, &plan(), |it| it.back_to_back(99_900.0)).0.is_none());
    }

    #[test]
    fn what_a_device_does_to_frames_is_reported_as_that() {
        let trial = |faults: &str| {
            let known = Known { rate: 90_000.0, ..KNOWN };
            let run = |it: &mut Procedure<'_, Virtual>| it.trial(Purpose::FrameLoss, 50_000.0, 0.5);
            with(known, faults, false, &plan(), run).0
        };
        let clean = trial("");
        assert_eq!((clean.counts.received, clean.lost, clean.counts.reordered), (25_000, 0, 0));
        let near = |count: u64| (350..650).contains(&count);
        let lossy = trial("lose=0.02,seed=1");
        assert!(near(lossy.lost) && lossy.counts.duplicated + lossy.counts.corrupted == 0, "{lossy:?}");
        let twice = trial("duplicate=0.02,seed=2");
        assert!(near(twice.counts.duplicated) && twice.lost + twice.counts.reordered == 0, "{twice:?}");
        let mixed = trial("reorder=0.02,seed=3");
        assert!(near(mixed.counts.reordered) && mixed.counts.duplicated == 0 && mixed.lost < 20, "{mixed:?}");
        let spoilt = trial("corrupt=0.02,seed=4");
        // A bit of a hardware address is not the tester's to judge: one in five.
        assert!((250..550).contains(&spoilt.counts.corrupted) && spoilt.lost == 0, "{spoilt:?}");
    }

    #[test]
    fn a_tester_that_cannot_offer_a_rate_does_not_find_it() {
        let known = Known { rate: 1e9, buffer: u64::MAX, delay: 0, spikes: None };
        let mut tester = tester(known, "", false);
        let load = Load {
            purpose: Purpose::Throughput,
            rate: 1e9,
            seconds: 0.001,
            burst: 1,
            frames: None,
            settle_seconds: 0.001,
            samples: None,
        };
        // 32 frames for each reading of the clock, which moves it by 0.1 us or more.
        let trial = tester.run(&load).expect("memory does not fail");
        assert!(trial.is_short() && trial.counts.loss() == 0.0 && trial.loss() > 0.5, "{trial:?}");
    }
}
