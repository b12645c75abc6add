//! Alerts: a rule that fails is pending until it has failed long enough, fires once, and is resolved once.

use super::model::{Alert, AlertState};
use super::rules::{Rule, Trouble, Verdict};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long a trouble must be gone before it is resolved: one that comes and goes is one alert.
pub(super) const CLEAR: Duration = Duration::from_secs(5);

/// The most alerts at once, which bounds memory.
pub(super) const MOST: usize = 1000;

/// How many resolved alerts are shown.
const RESOLVED: usize = 50;

/// A moment: on a clock that is never set, and in seconds since 1970.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    pub(super) elapsed: Duration,
    pub(super) wall: u64,
}

#[derive(Debug)]
struct Known {
    alert: Alert,
    since: Duration,
    /// When it failed last.
    seen: Duration,
}

impl Known {
    fn is_firing(&self) -> bool {
        self.alert.state == AlertState::Firing
    }
}

/// The alerts that are pending or fire, by rule and subject, and the latest that are resolved.
#[derive(Debug, Default)]
pub(super) struct Alerts {
    known: BTreeMap<(&'static str, String), Known>,
    resolved: VecDeque<Alert>,
}

impl Alerts {
    /// Takes the verdict of a rule, which must fail for `lasts` before it is an alert; returns the alerts that have changed.
    pub(super) fn take(
        &mut self,
        rule: &'static Rule,
        lasts: Duration,
        verdict: &Verdict,
        now: Moment,
    ) -> Vec<Alert> {
        let troubles: &[Trouble] = match verdict {
            Verdict::Ok | Verdict::Disabled => &[],
            Verdict::Failing(troubles) => troubles,
            // While the facts are unknown, alerts neither begin nor end.
            Verdict::Unknown(_) => {
                self.keep(rule.name, now);
                return Vec::new();
            }
        };
        troubles.iter().filter_map(|trouble| self.fails(rule, lasts, trouble, now)).collect()
    }

    fn keep(&mut self, rule: &str, now: Moment) {
        let of_rule = self.known.iter_mut().filter(|((name, _), _)| *name == rule);
        of_rule.for_each(|(_, known)| known.seen = now.elapsed);
    }

    fn fails(
        &mut self,
        rule: &'static Rule,
        lasts: Duration,
        trouble: &Trouble,
        now: Moment,
    ) -> Option<Alert> {
        let key = (rule.name, trouble.subject.clone());
        let is_new = !self.known.contains_key(&key);
        if is_new && self.known.len() >= MOST {
            return None;
        }
        let begun = || Known {
            alert: Alert {
                rule: rule.name.to_owned(),
                severity: rule.severity,
                subject: trouble.subject.clone(),
                since: now.wall,
                ..Alert::default()
            },
            since: now.elapsed,
            seen: now.elapsed,
        };
        let known = self.known.entry(key).or_insert_with(begun);
        known.seen = now.elapsed;
        known.alert.sentence.clone_from(&trouble.sentence);
        known.alert.remedy.clone_from(&trouble.remedy);
        if known.is_firing() {
            return None;
        }
        if now.elapsed.saturating_sub(known.since) < lasts {
            return is_new.then(|| known.alert.clone());
        }
        known.alert.state = AlertState::Firing;
        known.alert.firing_since = Some(now.wall);
        Some(known.alert.clone())
    }

    /// Removes alerts whose rule no longer fails: pending ones at once, firing ones after [`CLEAR`].
    pub(super) fn resolve(&mut self, now: Moment) -> Vec<Alert> {
        let is_gone = |known: &Known| {
            let gone = now.elapsed.saturating_sub(known.seen);
            if known.is_firing() { gone >= CLEAR } else { !gone.is_zero() }
        };
        let mut changes = Vec::new();
        self.known.retain(|_, known| {
            let gone = is_gone(known);
            if gone {
                let state = if known.is_firing() { AlertState::Resolved } else { AlertState::Cleared };
                changes.push(Alert { state, resolved_at: Some(now.wall), ..known.alert.clone() });
            }
            !gone
        });
        for alert in changes.iter().filter(|alert| alert.state == AlertState::Resolved) {
            self.resolved.truncate(RESOLVED - 1);
            self.resolved.push_front(alert.clone());
        }
        changes
    }

    /// The alerts of a rule that are pending or fire.
    pub(super) fn of_rule<'a>(&'a self, rule: &'a str) -> impl Iterator<Item = &'a Alert> {
        let of_rule = self.known.iter().filter(move |((name, _), _)| *name == rule);
        of_rule.map(|(_, known)| &known.alert)
    }

    /// All of them: those that fire, those that are pending, and those that are resolved.
    pub(super) fn all(&self) -> Vec<Alert> {
        let (firing, pending): (Vec<&Known>, Vec<&Known>) =
            self.known.values().partition(|it| it.is_firing());
        let known = firing.into_iter().chain(pending).map(|known| known.alert.clone());
        known.chain(self.resolved.iter().cloned()).collect()
    }
}
