//! The search for the highest rate at which a device loses at most a share of the frames.
//!
//! The trials of one search serve all shares (NDR: none, PDR: some): each narrows the interval of every share. It begins at the upper
//! bound, goes on at what was forwarded there, and halves the interval. A rate that loses too much is tried again before it
//! counts (ETSI GS NFV-TST 009, binary search with loss verification).

use std::io;

/// What a trial found.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// The share of frames that did not arrive.
    pub loss: f64,
    /// Frames a second that arrived.
    pub forwarded: f64,
    /// Whether the machine disturbed the trial.
    pub is_disturbed: bool,
}

/// Which trial is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// One on the way.
    Short,
    /// The one that the result stands on.
    Full,
}

/// The rules of a search.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The highest rate, in frames a second.
    pub most: f64,
    /// The lowest rate.
    pub least: f64,
    /// The search ends when the interval is at most this share of its upper end.
    pub precision: f64,
    /// How often a trial that loses too much is repeated.
    pub repeats: usize,
    /// Whether a result needs a trial of full length.
    pub has_full: bool,
}

/// A trial that loses more is not repeated: so much is no accident.
const HOPELESS: f64 = 0.2;
/// Repetitions if the machine disturbed the trial.
const DISTURBED: usize = 3;

/// Rates that were tried, with the least loss of their trials.
#[derive(Default)]
struct History(Vec<(f64, f64)>);

impl History {
    fn note(&mut self, rate: f64, loss: f64) {
        self.0.push((rate, loss));
    }

    /// The highest rate that passes below the lowest that fails, and the lowest that fails.
    fn interval(&self, share: f64) -> (Option<f64>, Option<f64>) {
        let fails = self.0.iter().filter(|it| it.1 > share).map(|it| it.0).reduce(f64::min);
        let passes = self.0.iter().filter(|it| it.1 <= share && fails.is_none_or(|fails| it.0 < fails));
        (passes.map(|it| it.0).reduce(f64::max), fails)
    }
}

/// The highest rates with at most these shares of loss; none where even the lowest rate loses more.
///
/// `shares` descend. `trial` makes one trial at a rate.
pub fn search(
    shares: &[f64],
    rules: &Rules,
    trial: &mut dyn FnMut(f64, Length) -> io::Result<Measured>,
) -> io::Result<Vec<Option<f64>>> {
    let mut history = History::default();
    let mut found = Vec::new();
    for &share in shares {
        let rate = loop {
            let Some(rate) = narrow(share, rules, &mut history, trial)? else { break None };
            if !rules.has_full {
                break Some(rate);
            }
            let full = verified(rate, Length::Full, share, rules, trial)?;
            if full.loss <= share {
                break Some(rate);
            }
            history.note(rate, full.loss);
        };
        found.push(rate);
    }
    Ok(found)
}

/// Halves the interval of one share until it is narrow enough.
fn narrow(
    share: f64,
    rules: &Rules,
    history: &mut History,
    trial: &mut dyn FnMut(f64, Length) -> io::Result<Measured>,
) -> io::Result<Option<f64>> {
    let mut guess = None;
    loop {
        let rate = match history.interval(share) {
            (None, None) => rules.most,
            (Some(rate), None) => return Ok(Some(rate)),
            (Some(low), Some(high)) if high - low <= rules.precision * high => return Ok(Some(low)),
            (Some(low), Some(high)) => f64::midpoint(low, high),
            (None, Some(high)) if high <= rules.least * (1.0 + rules.precision) => return Ok(None),
            (None, Some(high)) => {
                // What is forwarded under overload is near the throughput.
                let near = guess.take().filter(|&guess| guess < high * (1.0 - rules.precision));
                near.unwrap_or(high / 2.0).max(rules.least)
            }
        };
        let measured = verified(rate, Length::Short, share, rules, trial)?;
        if measured.loss > share {
            guess = Some(measured.forwarded * (1.0 - rules.precision));
        }
        history.note(rate, measured.loss);
    }
}

/// A trial, repeated if it loses too much; the one that lost least.
fn verified(
    rate: f64,
    length: Length,
    share: f64,
    rules: &Rules,
    trial: &mut dyn FnMut(f64, Length) -> io::Result<Measured>,
) -> io::Result<Measured> {
    let mut best = trial(rate, length)?;
    let mut repeated = 0;
    while best.loss > share && best.loss < HOPELESS {
        let most = if best.is_disturbed { rules.repeats.max(DISTURBED) } else { rules.repeats };
        if repeated >= most {
            break;
        }
        repeated += 1;
        let again = trial(rate, length)?;
        if again.loss < best.loss {
            best = again;
        }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules { most: 1e6, least: 1e3, precision: 0.005, repeats: 2, has_full: false };
    const SHARES: [f64; 3] = [0.005, 0.001, 0.0];

    /// A device of a known rate, and the number of trials that a search needed.
    fn find(rate: f64, rules: Rules) -> (Vec<Option<f64>>, usize) {
        let mut trials = 0;
        let mut trial = |offered: f64, _| {
            trials += 1;
            let forwarded = offered.min(rate);
            Ok(Measured { loss: 1.0 - forwarded / offered, forwarded, is_disturbed: false })
        };
        let found = search(&SHARES, &rules, &mut trial).expect("it does not fail");
        (found, trials)
    }

    #[test]
    fn the_rate_of_a_device_is_found_from_below_and_within_the_precision() {
        for rate in [2_000.0, 123_456.0, 700_000.0, 999_000.0] {
            let (found, trials) = find(rate, RULES);
            for (found, share) in found.iter().zip(SHARES) {
                let (found, right) = (found.expect("it is there"), rate / (1.0 - share));
                assert!(found <= right.min(RULES.most) && found >= right * 0.99, "{found} {right}");
            }
            assert!(trials < 45, "{trials}");
        }
    }

    #[test]
    fn a_device_faster_than_the_tester_passes_at_once_and_a_dead_one_has_no_rate() {
        assert_eq!(find(2e6, RULES), (vec![Some(1e6); 3], 1));
        assert_eq!(find(0.0, RULES).0, [None; 3]);
    }

    #[test]
    fn a_single_accident_is_verified_away_and_a_steady_loss_is_not() {
        let mut trials = 0;
        let mut trial = |offered: f64, _| {
            trials += 1;
            // Every second trial loses a few frames, whatever the rate.
            let accident = if trials % 2 == 1 { 1e-5 } else { 0.0 };
            Ok(Measured { loss: accident, forwarded: offered, is_disturbed: false })
        };
        assert_eq!(search(&[0.0], &RULES, &mut trial).expect("it does not fail"), [Some(1e6)]);
        let mut steady = |offered, _| Ok(Measured { loss: 1e-5, forwarded: offered, is_disturbed: false });
        assert_eq!(search(&[0.001, 0.0], &RULES, &mut steady).expect("it does not fail"), [Some(1e6), None]);
    }

    #[test]
    fn a_result_that_does_not_hold_for_a_full_trial_is_lowered() {
        let mut full = Vec::new();
        let mut trial = |offered: f64, length| {
            // What a short trial hides in the buffer, a full one does not.
            let rate = if length == Length::Full { 400_000.0 } else { 500_000.0 };
            if length == Length::Full {
                full.push(offered);
            }
            let forwarded = offered.min(rate);
            Ok(Measured { loss: 1.0 - forwarded / offered, forwarded, is_disturbed: false })
        };
        let rules = Rules { has_full: true, ..RULES };
        let found = search(&[0.0], &rules, &mut trial).expect("it does not fail")[0].expect("it is there");
        assert!((300_000.0..=400_000.0).contains(&found), "{found}");
        assert_eq!(full.last().copied(), Some(found), "the result stands on a full trial");
    }

    #[test]
    fn disturbed_trials_are_repeated_at_most_thrice() {
        let mut trials = 0;
        let mut trial = |offered, _| {
            trials += 1;
            Ok(Measured { loss: 0.1, forwarded: offered, is_disturbed: true })
        };
        let rules = Rules { least: 0.9e6, repeats: 0, ..RULES };
        assert_eq!(search(&[0.0], &rules, &mut trial).expect("it does not fail"), [None]);
        assert_eq!(trials % 4, 0, "each rate is tried four times: {trials}");
    }
}
