//! One round: the verdict of each rule, the alerts that change, and the messages for receivers.

use super::alerts::{Alerts, Moment};
use super::day::Day;
use super::groups::Groups;
use super::machine::{Log, Machine};
use super::model::{Alert, AlertState, Health};
use super::rules::{RULES, Rule, tuned};
use super::sight::{Counts, Host, Seen, Sight, Span};
use super::wire::Message;
use crate::bottleneck::Processors;
use crate::facts::model::Facts;
use config::settings::{Health as Settings, Watched};
use crypto::machine::Files;
use std::path::Path;
use std::time::Duration;

/// How often the machine is read: what it says changes slowly, and reading it takes some milliseconds.
const READ_AGAIN: Duration = Duration::from_secs(30);

/// The default of `service health repeat`.
const REPEAT_HOURS: u32 = 24;

/// The state between rounds.
#[derive(Debug, Default)]
pub(super) struct Watcher {
    before: Option<Counts>,
    processors: Option<Processors>,
    /// The latest reading of the machine with its moment, and the one before.
    pub(super) machines: [Option<(Duration, Machine)>; 2],
    log: Log,
    alerts: Alerts,
    groups: Groups,
    day: Day,
}

impl Watcher {
    /// Applies the rules to a snapshot of facts, `elapsed` after the start; `None` if it is the snapshot of the last round.
    pub(super) fn look(
        &mut self,
        facts: &Facts,
        settings: &Settings,
        watched: &Watched,
        elapsed: Duration,
    ) -> Option<(Health, Vec<Message>)> {
        if self.before.as_ref().is_some_and(|before| before.moment == facts.moment) {
            return None;
        }
        let Host { processors, available } = Host::read(Files { root: Path::new("/") });
        let before = self.before.replace(Counts::of(facts));
        let then = std::mem::replace(&mut self.processors, processors);
        let shares = processors.zip(then).and_then(|(now, then)| now.since(then));
        let machines = self.read_machine(elapsed, Machine::here);
        let found = {
            let [Some((at, machine)), earlier] = &machines else { return None };
            let span = match earlier {
                Some((then, earlier)) => Span::Since(earlier, at.saturating_sub(*then).as_secs_f64()),
                None => Span::First,
            };
            let configured = Ok(watched);
            let seen =
                Seen { shares, available, machine, span, configured, facts: Some(facts), at: facts.at };
            let sight = Sight { before: before.as_ref(), now: facts, seen };
            self.apply(&sight, settings, Moment { elapsed, wall: facts.at })
        };
        self.machines = machines;
        Some(found)
    }

    /// Takes the readings out, with a new one if the latest is old. The caller puts them back.
    pub(super) fn read_machine(
        &mut self,
        elapsed: Duration,
        read: impl FnOnce(&mut Log) -> Machine,
    ) -> [Option<(Duration, Machine)>; 2] {
        let [latest, earlier] = std::mem::take(&mut self.machines);
        let is_fresh = latest.as_ref().is_some_and(|(at, _)| elapsed.saturating_sub(*at) < READ_AGAIN);
        if is_fresh { [latest, earlier] } else { [Some((elapsed, read(&mut self.log))), latest] }
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
        for tuned in tuned(&settings.rules) {
            let verdict = tuned.verdict(|rule, threshold| rule.check(sight, threshold));
            changes.extend(self.alerts.take(tuned.rule, tuned.lasts(), &verdict, now));
            verdicts.push((tuned, verdict));
        }
        changes.extend(self.alerts.resolve(now));
        let is_firing =
            |rule: &Rule| self.alerts.of_rule(rule.name).any(|alert| alert.state == AlertState::Firing);
        let rules =
            verdicts.iter().map(|(tuned, verdict)| tuned.shown(verdict, is_firing(tuned.rule))).collect();
        let health = Health { at: now.wall, rules, alerts: self.alerts.all(), receivers: Vec::new() };
        let messages = self.messages(&changes, &health.alerts, settings, now);
        (health, messages)
    }

    fn messages(
        &mut self,
        changes: &[Alert],
        alerts: &[Alert],
        settings: &Settings,
        now: Moment,
    ) -> Vec<Message> {
        let firing: Vec<&Alert> = alerts.iter().filter(|it| it.state == AlertState::Firing).collect();
        let mut messages: Vec<Message> =
            self.day.end(now.wall, &firing).map(Message::Log).into_iter().collect();
        for change in changes {
            self.groups.take(change, now);
            messages.push(Message::Log(self.day.line(change, now.wall)));
        }
        messages
            .extend(self.groups.due(&self.alerts, now, repeat(settings)).into_iter().map(Message::Notify));
        messages
    }
}

/// The interval after which an alert that still fires is sent again.
fn repeat(settings: &Settings) -> Option<Duration> {
    let hours = settings.repeat_hours.unwrap_or(REPEAT_HOURS);
    (hours > 0).then(|| Duration::from_secs(u64::from(hours) * 3600))
}
