//! Grouping: all alerts of a rule that change at about the same time are one message, so that a dead uplink is one too.

use super::alerts::{Alerts, Moment};
use super::model::{Alert, AlertState};
use super::rules::RULES;
use super::wire::Notification;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a message waits for further changes of its rule.
pub(super) const WAIT: Duration = Duration::from_secs(3);

/// Alerts in a message.
pub(super) const MOST: usize = 100;

/// The rules with changes that no message has had yet.
#[derive(Debug, Default)]
pub(super) struct Groups {
    waiting: BTreeMap<String, Waiting>,
    /// When the last message about a firing rule was sent.
    told: BTreeMap<&'static str, Duration>,
}

#[derive(Debug)]
struct Waiting {
    since: Moment,
    resolved: Vec<Alert>,
}

impl Groups {
    /// Takes a change.
    pub(super) fn take(&mut self, change: &Alert, now: Moment) {
        if !matches!(change.state, AlertState::Firing | AlertState::Resolved) {
            return;
        }
        let new = || Waiting { since: now, resolved: Vec::new() };
        let waiting = self.waiting.entry(change.rule.clone()).or_insert_with(new);
        if change.state == AlertState::Resolved {
            waiting.resolved.push(change.clone());
        }
    }

    /// The messages whose time has come: what fires of the rule, and what has been resolved since the last one. What still fires so long
    /// after a message is told again.
    pub(super) fn due(
        &mut self,
        alerts: &Alerts,
        now: Moment,
        repeat: Option<Duration>,
    ) -> Vec<Notification> {
        let is_due = |waiting: &Waiting| now.elapsed.saturating_sub(waiting.since.elapsed) >= WAIT;
        let mut due = Vec::new();
        for rule in RULES {
            let waiting = self.waiting.get(rule.name);
            let told = self.told.get(rule.name);
            let is_again = |told: &Duration| repeat.is_some_and(|it| now.elapsed.saturating_sub(*told) >= it);
            let is_repeated = waiting.is_none() && told.is_some_and(is_again);
            if !is_repeated && !waiting.is_some_and(is_due) {
                continue;
            }
            let again = Waiting { since: now, resolved: Vec::new() };
            let waiting = waiting.unwrap_or(&again);
            let firing = alerts.of_rule(rule.name).filter(|alert| alert.state == AlertState::Firing);
            let all: Vec<&Alert> = firing.chain(&waiting.resolved).collect();
            if all.iter().any(|alert| alert.state == AlertState::Firing) {
                self.told.insert(rule.name, now.elapsed);
            } else {
                self.told.remove(rule.name);
            }
            if all.is_empty() {
                self.waiting.remove(rule.name);
                continue;
            }
            due.push(Notification {
                rule: rule.name.to_owned(),
                severity: rule.severity,
                alerts: all.iter().take(MOST).map(|alert| (*alert).clone()).collect(),
                left_out: all.len().saturating_sub(MOST),
                changed_since: waiting.since.wall,
                is_repeated,
            });
            self.waiting.remove(rule.name);
        }
        due
    }
}
