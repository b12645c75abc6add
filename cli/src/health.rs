//! Health, as the daemon finds it: what each rule says, and alerts as they begin and end.

use crate::answer::{Answer, Form};
use crate::monitor::Lines;
use crate::output::{NOT_UP, ago, now, timestamp};
use crate::request::Request;
use crate::{Failure, Outcome};
use gateway::health::model::{Alert, AlertState, Health, Rule, Severity, State};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::time::{Duration, Instant};

/// How often the daemon is asked.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long daemons must not answer before that is an alert.
const SILENT: Duration = Duration::from_secs(5);

/// `postern show health`: what every rule says, of each daemon.
pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    let daemons = request.ask::<Health>()?;
    let status = if daemons.iter().any(is_ill) { NOT_UP } else { 0 };
    Ok(Answer::new(daemons, |daemons| daemons.iter().map(text).collect()).with_status(status))
}

/// Whether something is wrong.
fn is_ill(health: &Health) -> bool {
    health.rules.iter().any(|rule| matches!(rule.state, State::Firing | State::Pending))
}

fn text(health: &Health) -> String {
    let mut text = String::new();
    for rule in &health.rules {
        let about = &rule.about;
        let _ = match (rule.state, &rule.why) {
            (State::Unknown, Some(why)) => writeln!(text, "unknown   {}: because {why}", rule.rule),
            (State::Firing, _) => writeln!(text, "{:<9} {}: {about}", rule.severity, rule.rule),
            (state, _) => writeln!(text, "{state:<9} {}: {about}", rule.rule),
        };
        for alert in health.alerts.iter().filter(|alert| alert.rule == rule.rule && is_open(alert)) {
            text.push_str(&trouble(alert));
        }
    }
    if health.rules.is_empty() {
        text.push_str("the daemon has just started: ask again in a second\n");
    }
    for it in &health.receivers {
        let problem = it.problem.as_ref().map(|why| format!("; {}", printed(why))).unwrap_or_default();
        let (name, way) = (&it.name, &it.way);
        let _ = writeln!(
            text,
            "alert {name} {way}: {} delivered, {} failed, {} dropped{problem}",
            it.delivered, it.failed, it.dropped
        );
    }
    text
}

/// Text of a receiver without what a terminal would obey.
fn printed(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Whether an alert is not over.
pub(crate) fn is_open(alert: &Alert) -> bool {
    matches!(alert.state, AlertState::Pending | AlertState::Firing)
}

/// What is wrong, since when, and what to do.
pub(crate) fn trouble(alert: &Alert) -> String {
    let since = alert.firing_since.unwrap_or(alert.since);
    let Alert { sentence, remedy, state, .. } = alert;
    format!("            {sentence}\n              {state} since {}; fix: {remedy}\n", ago(since))
}

/// `postern monitor health`: a line when an alert begins, and one when it ends.
pub(crate) fn follow(request: &Request) -> Result<Answer, Failure> {
    request.ask::<Health>()?;
    let request = request.clone();
    Ok(Answer::going(move |out, form| again(&request, out, form)))
}

fn again(request: &Request, out: &mut dyn Write, form: Form) -> Outcome {
    let (mut told, begun) = (Told::default(), Instant::now());
    loop {
        let changes = match request.ask::<Health>() {
            Ok(daemons) => told.look(&daemons),
            Err(error) => told.silent(&error.to_string(), begun.elapsed()),
        };
        for change in changes {
            tell(out, form, &change)?;
        }
        std::thread::sleep(INTERVAL);
    }
}

/// An alert by its rule, its subject and its beginning.
type Key = (String, String, u64);

/// What was printed of alerts.
#[derive(Default)]
struct Told {
    firing: BTreeMap<Key, Alert>,
    /// Since when no daemon answers.
    silent_since: Option<Duration>,
    silence: Option<Alert>,
}

impl Told {
    /// What is new in the answers of daemons.
    fn look(&mut self, daemons: &[Health]) -> Vec<Alert> {
        self.silent_since = None;
        let ended = self.silence.take().map(|alert| ended(alert, now()));
        let alerts = || daemons.iter().flat_map(|health| &health.alerts);
        let key = |alert: &Alert| (alert.rule.clone(), alert.subject.clone(), alert.since);
        let of = |state| {
            let these = alerts().filter(move |alert| alert.state == state);
            these.map(|alert| (key(alert), alert.clone())).collect::<BTreeMap<_, _>>()
        };
        let (firing, resolved) = (of(AlertState::Firing), of(AlertState::Resolved));
        let mut changes: Vec<Alert> = ended.into_iter().collect();
        for (key, alert) in std::mem::take(&mut self.firing) {
            if firing.contains_key(&key) {
                self.firing.insert(key, alert);
            } else {
                // A daemon that was restarted does not know it any more.
                changes.push(resolved.get(&key).cloned().unwrap_or_else(|| self::ended(alert, now())));
            }
        }
        for (key, alert) in firing {
            if self.firing.insert(key, alert.clone()).is_none() {
                changes.push(alert);
            }
        }
        changes
    }

    /// No daemon answers: nothing else is known.
    fn silent(&mut self, why: &str, elapsed: Duration) -> Vec<Alert> {
        let since = *self.silent_since.get_or_insert(elapsed);
        if self.silence.is_some() || elapsed.saturating_sub(since) < SILENT {
            return Vec::new();
        }
        let alert = silence(why);
        self.silence = Some(alert.clone());
        vec![alert]
    }
}

/// The alert that no daemon answers.
fn silence(why: &str) -> Alert {
    Alert {
        rule: "daemon-silent".to_owned(),
        severity: Severity::Critical,
        sentence: format!("No facts: {}.", why.lines().next().unwrap_or_default()),
        remedy: "systemctl status postern; postern show log vpn".to_owned(),
        state: AlertState::Firing,
        since: now(),
        firing_since: Some(now()),
        ..Alert::default()
    }
}

/// What is known where no daemon answers.
pub(crate) fn silent(why: &str) -> Health {
    let alert = silence(why);
    let rule = Rule {
        rule: alert.rule.clone(),
        severity: alert.severity,
        about: "no daemon answers".to_owned(),
        state: State::Firing,
        failing: 1,
        ..Rule::default()
    };
    Health { at: now(), rules: vec![rule], alerts: vec![alert], ..Health::default() }
}

fn ended(alert: Alert, at: u64) -> Alert {
    Alert { state: AlertState::Resolved, resolved_at: Some(at), ..alert }
}

fn tell(out: &mut dyn Write, form: Form, alert: &Alert) -> Outcome {
    if form.json {
        writeln!(out, "{}", serde_json::to_string(alert)?)?;
        return Ok(out.flush()?);
    }
    let Alert { state, rule, severity, sentence, remedy, .. } = alert;
    let at = alert.resolved_at.or(alert.firing_since).unwrap_or_default();
    Lines::new(out, form).put(&format!("{} {state} {severity} {rule}: {sentence}", timestamp(at)))?;
    if *state == AlertState::Firing {
        Lines::new(out, form).put(&format!("  fix: {remedy}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway::health::model::Receiver;

    fn alert(subject: &str, state: AlertState) -> Alert {
        Alert {
            rule: "tunnel-down".to_owned(),
            subject: subject.to_owned(),
            sentence: format!("The tunnel {subject} is down."),
            remedy: "postern explain".to_owned(),
            state,
            since: 7,
            ..Alert::default()
        }
    }

    fn health(alerts: &[Alert]) -> Vec<Health> {
        let rule = |name: &str, state| Rule { rule: name.to_owned(), state, ..Rule::default() };
        let rules = vec![rule("tunnel-down", State::Firing), rule("memory-low", State::Ok)];
        vec![Health { at: 9, rules, alerts: alerts.to_vec(), ..Health::default() }]
    }

    fn states(changes: &[Alert]) -> Vec<(AlertState, &str)> {
        changes.iter().map(|alert| (alert.state, &*alert.subject)).collect()
    }

    #[test]
    fn an_alert_is_told_when_it_begins_and_when_it_ends() {
        let mut told = Told::default();
        let (firing, resolved) = (alert("berlin", AlertState::Firing), alert("berlin", AlertState::Resolved));
        assert_eq!(told.look(&health(&[alert("berlin", AlertState::Pending)])), []);
        assert_eq!(told.look(&health(std::slice::from_ref(&resolved))), [], "one that ended before");
        let changes = told.look(&health(&[firing.clone(), resolved.clone()]));
        assert_eq!(states(&changes), [(AlertState::Firing, "berlin")]);
        assert_eq!(told.look(&health(std::slice::from_ref(&firing))), [], "once");
        assert_eq!(states(&told.look(&health(&[resolved]))), [(AlertState::Resolved, "berlin")]);
        told.look(&health(&[firing]));
        assert_eq!(states(&told.look(&health(&[]))), [(AlertState::Resolved, "berlin")], "a restart");
    }

    #[test]
    fn daemons_that_are_silent_for_long_are_an_alert() {
        let (mut told, at) = (Told::default(), Duration::from_secs);
        assert_eq!(told.silent("no daemon answers\nfix: it", at(30)), []);
        assert_eq!(told.silent("no daemon answers", at(34)), []);
        let changes = told.silent("no daemon answers\nfix: it", at(35));
        assert_eq!(changes[0].sentence, "No facts: no daemon answers.");
        assert_eq!(told.silent("no daemon answers", at(36)), [], "once");
        let changes = told.look(&health(&[]));
        assert_eq!((changes[0].state, &*changes[0].rule), (AlertState::Resolved, "daemon-silent"));
    }

    #[test]
    fn what_is_wrong_is_shown_below_its_rule_with_the_fix() {
        let mut health =
            health(&[alert("wg0 a", AlertState::Firing), alert("old", AlertState::Resolved)]).remove(0);
        let problem = Some("no answer\x1b[2J".to_owned());
        let (name, way) = ("oncall".to_owned(), "webhook".to_owned());
        health.receivers.push(Receiver { name, way, failed: 2, problem, ..Receiver::default() });
        let text = text(&health);
        assert!(text.starts_with("warning   tunnel-down: "), "{text}");
        assert!(
            text.contains("The tunnel wg0 a is down.") && text.contains("fix: postern explain"),
            "{text}"
        );
        assert!(!text.contains("old") && text.contains("ok        memory-low"), "{text}");
        assert!(
            text.contains("alert oncall webhook: 0 delivered, 2 failed") && !text.contains('\x1b'),
            "{text}"
        );
        assert!(is_ill(&health));
    }
}
