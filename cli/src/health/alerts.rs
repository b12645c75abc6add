//! Alerts: a rule that fails is pending until it has failed long enough, fires once, and is resolved once.

use super::Sight;
use super::rules::{Rule, SILENT, Severity, Trouble, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How long a trouble must be gone before it is resolved: one that comes and goes is one alert.
const CLEAR: Duration = Duration::from_secs(5);

/// The most alerts at once. More of them help nobody, and memory is bounded.
const MOST: usize = 1000;

/// What an alert has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    Firing,
    Resolved,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
        })
    }
}

/// An alert that begins or ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    pub(super) state: State,
    pub(super) rule: &'static str,
    pub(super) severity: Severity,
    #[serde(flatten)]
    pub(super) trouble: Trouble,
}

#[derive(Debug)]
struct Alert {
    trouble: Trouble,
    severity: Severity,
    since: Duration,
    /// When it was there last.
    seen: Duration,
    is_firing: bool,
}

/// The alerts that are pending or fire, by rule and subject.
#[derive(Debug, Default)]
pub(super) struct Alerts {
    known: BTreeMap<(&'static str, String), Alert>,
}

impl Alerts {
    /// Looks at the facts, `now` after the start.
    pub(super) fn look(&mut self, rules: &'static [Rule], sight: &Sight, now: Duration) -> Vec<Change> {
        let mut changes = Vec::new();
        for rule in rules {
            let troubles = match rule.check(sight) {
                Verdict::Ok => Vec::new(),
                Verdict::Failing(troubles) => troubles,
                // What is not known neither begins nor ends.
                Verdict::Unknown(_) => {
                    self.keep(rule.name, now);
                    continue;
                }
            };
            for trouble in troubles {
                changes.extend(self.fails(rule, trouble, now));
            }
        }
        changes.extend(self.resolve(now));
        changes
    }

    /// No daemon answers: nothing else is known.
    pub(super) fn silent(&mut self, why: &str, now: Duration) -> Vec<Change> {
        for alert in self.known.values_mut() {
            alert.seen = now;
        }
        let sentence = format!("No facts: {why}.");
        let trouble = Trouble {
            subject: String::new(),
            sentence,
            remedy: "systemctl status postern; postern show log vpn".to_owned(),
        };
        self.fails(&SILENT, trouble, now).into_iter().collect()
    }

    fn keep(&mut self, rule: &str, now: Duration) {
        self.known.iter_mut().filter(|((name, _), _)| *name == rule).for_each(|(_, alert)| alert.seen = now);
    }

    fn fails(&mut self, rule: &'static Rule, trouble: Trouble, now: Duration) -> Option<Change> {
        let key = (rule.name, trouble.subject.clone());
        if !self.known.contains_key(&key) && self.known.len() >= MOST {
            return None;
        }
        let severity = rule.severity;
        let new = Alert { trouble: trouble.clone(), severity, since: now, seen: now, is_firing: false };
        let alert = self.known.entry(key).or_insert(new);
        (alert.seen, alert.trouble) = (now, trouble);
        let has_lasted = now.saturating_sub(alert.since) >= rule.lasts;
        if alert.is_firing || !has_lasted {
            return None;
        }
        alert.is_firing = true;
        Some(Change { state: State::Firing, rule: rule.name, severity, trouble: alert.trouble.clone() })
    }

    /// Forgets what is gone: a pending one at once, one that fires after a while.
    fn resolve(&mut self, now: Duration) -> Vec<Change> {
        let is_gone = |alert: &Alert| {
            let gone = now.saturating_sub(alert.seen);
            if alert.is_firing { gone >= CLEAR } else { !gone.is_zero() }
        };
        let mut changes = Vec::new();
        self.known.retain(|(rule, _), alert| {
            let gone = is_gone(alert);
            if gone && alert.is_firing {
                let (severity, trouble) = (alert.severity, alert.trouble.clone());
                changes.push(Change { state: State::Resolved, rule, severity, trouble });
            }
            !gone
        });
        changes
    }
}
