//! The lines of the log: one for each change of an alert, and at the end of each day, in UTC, one that sums it up.

use super::model::{Alert, AlertState};
use super::wire::Line;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const SECONDS: u64 = 86_400;

/// What happened on a day.
#[derive(Debug, Default)]
pub(super) struct Day {
    number: u64,
    /// How often each rule fired.
    fired: BTreeMap<String, u64>,
    resolved: u64,
}

impl Day {
    /// The line for a change.
    pub(super) fn line(&mut self, alert: &Alert, at: u64) -> Line {
        match alert.state {
            AlertState::Firing => *self.fired.entry(alert.rule.clone()).or_default() += 1,
            AlertState::Resolved => self.resolved += 1,
            AlertState::Pending | AlertState::Cleared => {}
        }
        let Alert { rule, severity, sentence, state, .. } = alert;
        Line { at, text: format!("{state} {severity} {rule}: {sentence}") }
    }

    /// The summary of a day that has ended; it is in the file of the day that it is about.
    pub(super) fn end(&mut self, now: u64, firing: &[&Alert]) -> Option<Line> {
        let number = now / SECONDS;
        let before = std::mem::replace(&mut self.number, number);
        // The first day begins with the daemon. Setting the clock back does not end a day.
        if before == 0 || before >= number {
            return None;
        }
        let Self { fired, resolved, .. } = std::mem::take(self);
        self.number = number;
        let mut text = format!("summary: {} alerts, {resolved} resolved", fired.values().sum::<u64>());
        let counts: Vec<String> = fired.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        if !counts.is_empty() {
            let _ = write!(text, " ({})", counts.join(", "));
        }
        let mut open: BTreeMap<&str, u64> = BTreeMap::new();
        for alert in firing {
            *open.entry(&alert.rule).or_default() += 1;
        }
        let open: Vec<String> = open.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        let open = if open.is_empty() { "nothing".to_owned() } else { open.join(", ") };
        let _ = write!(text, "; still firing: {open}");
        Some(Line { at: (before + 1) * SECONDS - 1, text })
    }
}
