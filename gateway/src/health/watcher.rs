//! One look at the facts: what each rule says, which alerts change, and who is to hear of it.

use super::alerts::{Alerts, Moment};
use super::day::Day;
use super::groups::Groups;
use super::model::{Alert, AlertState, Health, Rule as Shown, State};
use super::rules::{RULES, Rule, Verdict};
use super::sight::{Counts, Host, Sight};
use super::wire::Message;
use crate::bottleneck::Processors;
use crate::facts::model::Facts;
use config::settings::Health as Settings;
use std::path::Path;
use std::time::Duration;

/// What is kept from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    before: Option<Counts>,
    processors: Option<Processors>,
    alerts: Alerts,
    groups: Groups,
    day: Day,
}

impl Watcher {
    /// Looks at a snapshot of facts, `elapsed` after the start; nothing if it is the same as before.
    pub(super) fn look(
        &mut self,
        facts: &Facts,
        settings: &Settings,
        elapsed: Duration,
    ) -> Option<(Health, Vec<Message>)> {
        if self.before.as_ref().is_some_and(|before| before.moment == facts.moment) {
            return None;
        }
        let Host { processors, available } = Host::read(Path::new("/proc"));
        let before = self.before.replace(Counts::of(facts));
        let then = std::mem::replace(&mut self.processors, processors);
        let shares = processors.zip(then).and_then(|(now, then)| now.since(then));
        let sight = Sight { before: before.as_ref(), now: facts, shares, available };
        Some(self.apply(&sight, settings, Moment { elapsed, wall: facts.at }))
    }

    /// Applies all rules.
    pub(super) fn apply(
        &mut self,
        sight: &Sight<'_>,
        settings: &Settings,
        now: Moment,
    ) -> (Health, Vec<Message>) {
        let mut changes = Vec::new();
        let mut verdicts = Vec::with_capacity(RULES.len());
        for rule in RULES {
            let verdict = verdict(rule, sight, settings);
            changes.extend(self.alerts.take(rule, lasts(rule, settings), &verdict, now));
            verdicts.push((rule, verdict));
        }
        changes.extend(self.alerts.resolve(now));
        let rules = verdicts.iter().map(|(rule, verdict)| self.shown(rule, verdict, settings)).collect();
        let health = Health { at: now.wall, rules, alerts: self.alerts.all(), receivers: Vec::new() };
        let messages = self.messages(&changes, &health.alerts, now);
        (health, messages)
    }

    fn messages(&mut self, changes: &[Alert], alerts: &[Alert], now: Moment) -> Vec<Message> {
        let firing: Vec<&Alert> = alerts.iter().filter(|it| it.state == AlertState::Firing).collect();
        let mut messages: Vec<Message> =
            self.day.end(now.wall, &firing).map(Message::Log).into_iter().collect();
        for change in changes {
            self.groups.take(change, now);
            messages.push(Message::Log(self.day.line(change, now.wall)));
        }
        messages.extend(self.groups.due(&self.alerts, now.elapsed).into_iter().map(Message::Notify));
        messages
    }

    fn shown(&self, rule: &'static Rule, verdict: &Verdict, settings: &Settings) -> Shown {
        let threshold = threshold(rule, settings);
        let is_firing = self.alerts.of_rule(rule.name).any(|alert| alert.state == AlertState::Firing);
        let (state, why, failing) = match verdict {
            Verdict::Disabled => (State::Disabled, None, 0),
            Verdict::Unknown(why) => (State::Unknown, Some(why.clone()), 0),
            Verdict::Failing(troubles) if is_firing => (State::Firing, None, troubles.len()),
            Verdict::Failing(troubles) => (State::Pending, None, troubles.len()),
            // It must be gone for a while before the alert is resolved.
            Verdict::Ok if is_firing => (State::Firing, None, 0),
            Verdict::Ok => (State::Ok, None, 0),
        };
        Shown {
            rule: rule.name.to_owned(),
            severity: rule.severity,
            about: rule.about(threshold),
            state,
            why,
            duration_seconds: lasts(rule, settings).as_secs(),
            threshold,
            failing,
        }
    }
}

fn threshold(rule: &Rule, settings: &Settings) -> Option<u32> {
    settings.rules.get(rule.name).and_then(|tuning| tuning.threshold).or(rule.threshold)
}

fn lasts(rule: &Rule, settings: &Settings) -> Duration {
    let seconds = settings.rules.get(rule.name).and_then(|tuning| tuning.seconds);
    seconds.map_or(rule.lasts, |seconds| Duration::from_secs(seconds.into()))
}

fn verdict(rule: &Rule, sight: &Sight<'_>, settings: &Settings) -> Verdict {
    if settings.rules.get(rule.name).is_some_and(|tuning| tuning.is_disabled) {
        return Verdict::Disabled;
    }
    rule.check(sight, threshold(rule, settings))
}
