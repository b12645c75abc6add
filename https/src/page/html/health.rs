//! What the rules of health say: what is wrong first, with the fix; then every rule; then who hears of alerts.

use super::words::ago;
use super::{Part, Rendered, cell, id, number, rows, table};
use gateway::health::model::{Alert, AlertState, Health, Receiver, Rule, Severity, State};
use maud::{Markup, html};

/// Alerts that are shown: the daemon knows a thousand at most.
const ALERTS: usize = 200;

const WRONG: [&str; 4] = ["State", "What", "Since", "Fix"];
const RULES: [&str; 4] = ["Rule", "State", "What it looks for", "Why"];
const ENDED: [&str; 3] = ["What", "Since", "Until"];
const RECEIVERS: [&str; 5] = ["Receiver", "Delivered", "Failed", "Dropped", "Last problem"];

/// All of it.
pub(crate) fn health(health: &Health) -> Rendered {
    let is_open = |alert: &&Alert| matches!(alert.state, AlertState::Firing | AlertState::Pending);
    let (open, ended): (Vec<&Alert>, Vec<&Alert>) = health.alerts.iter().partition(is_open);
    let summary = Part::new("summary", summary(health, open.len()));
    let wrong = rows("wrong", open.iter().take(ALERTS).map(|alert| trouble(health, alert)).collect());
    let rules = rows("rules", sorted(&health.rules).into_iter().map(rule).collect());
    let ended = rows("ended", ended.iter().take(ALERTS).map(|alert| past(health, alert)).collect());
    let receivers = rows("receivers", health.receivers.iter().map(receiver).collect());
    let main = html! {
        h1 { "Health" }
        (summary.markup())
        (table(&html! { "What is wrong now" }, &WRONG, &wrong))
        h2 { "Rules" }
        (table(&html! { "Each rule, those that fail first" }, &RULES, &rules))
        p.quiet { "What the daemon may not read is read by " code { "postern doctor" } ", as root." }
        h2 { "Lately" }
        (table(&html! { "The latest alerts that are over" }, &ENDED, &ended))
        h2 { "Who hears of it" }
        (table(&html! { "Receivers of " code { "service health alert" } }, &RECEIVERS, &receivers))
    };
    Rendered { title: "Health".to_owned(), main, parts: vec![summary, wrong, rules, ended, receivers] }
}

fn summary(health: &Health, open: usize) -> Markup {
    let count = |state: State| health.rules.iter().filter(|rule| rule.state == state).count();
    let unknown = count(State::Unknown);
    html! {
        ul #summary.summary {
            @if health.rules.is_empty() {
                li { "The daemon has just started." }
            } @else if open == 0 {
                li.up { span.state { span aria-hidden="true" { "\u{25cf}" } " Nothing is wrong" } }
            } @else {
                li.down { span.state { span aria-hidden="true" { "\u{2716}" } " " (open) " wrong" } }
            }
            @if unknown > 0 { li.waiting { span.state { span aria-hidden="true" { "?" } " " (unknown) " unknown" } } }
            li { (count(State::Ok)) " of " (health.rules.len()) " rules are well" }
        }
    }
}

/// Those that fail come first, then those that are unknown.
fn sorted(rules: &[Rule]) -> Vec<&Rule> {
    let mut sorted: Vec<&Rule> = rules.iter().collect();
    sorted.sort_by_key(|rule| match rule.state {
        State::Firing => 0,
        State::Pending => 1,
        State::Unknown => 2,
        State::Ok => 3,
        State::Disabled => 4,
    });
    sorted
}

/// The shape and the word of a state, and the class for its colour.
fn mark(state: State) -> (&'static str, &'static str) {
    match state {
        State::Firing => ("\u{2716}", "down"),
        State::Pending => ("\u{25cb}", "waiting"),
        State::Unknown => ("?", "waiting"),
        State::Ok => ("\u{25cf}", "up"),
        State::Disabled => ("\u{2013}", ""),
    }
}

fn word(state: &str, shape: &str) -> Markup {
    html! { span.state { span aria-hidden="true" { (shape) } " " (state) } }
}

/// Text of peers and of the kernel without what browsers would obey.
fn plain(text: &str) -> String {
    text.replace(
        |c: char| {
            c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c)
        },
        "?",
    )
}

fn trouble(health: &Health, alert: &Alert) -> Part {
    let id = id("a", &(&alert.rule, &alert.subject));
    let is_firing = alert.state == AlertState::Firing;
    let (shape, class) = mark(if is_firing { State::Firing } else { State::Pending });
    let said = match alert.severity {
        _ if !is_firing => "pending",
        Severity::Critical => "critical",
        Severity::Warning => "warning",
    };
    let row = html! {
        tr id=(id) role="row" class=(class) {
            (cell(WRONG[0], &word(said, shape)))
            (cell(WRONG[1], &html! { strong { (alert.rule) } div.cause { (plain(&alert.sentence)) } }))
            (cell(WRONG[2], &html! { (ago(health.at, alert.firing_since.or(Some(alert.since)))) }))
            (cell(WRONG[3], &html! { div.fix { code { (plain(&alert.remedy)) } } }))
        }
    };
    Part::new(id, row)
}

fn rule(rule: &Rule) -> Part {
    let id = id("r", &rule.rule);
    let (shape, class) = mark(rule.state);
    let row = html! {
        tr id=(id) role="row" class=(class) {
            (cell(RULES[0], &html! { strong { (rule.rule) } }))
            (cell(RULES[1], &word(rule.state.name(), shape)))
            (cell(RULES[2], &html! { (rule.about) ", for " (rule.duration_seconds) " s" }))
            (cell(RULES[3], &html! { (rule.why.as_deref().map(plain).unwrap_or_default()) }))
        }
    };
    Part::new(id, row)
}

fn past(health: &Health, alert: &Alert) -> Part {
    let id = id("p", &(&alert.rule, &alert.subject, alert.since, alert.resolved_at));
    let row = html! {
        tr id=(id) role="row" {
            (cell(ENDED[0], &html! { strong { (alert.rule) } div { (plain(&alert.sentence)) } }))
            (cell(ENDED[1], &html! { (ago(health.at, Some(alert.since))) }))
            (cell(ENDED[2], &html! { (ago(health.at, alert.resolved_at)) }))
        }
    };
    Part::new(id, row)
}

fn receiver(receiver: &Receiver) -> Part {
    let id = id("w", &(&receiver.name, &receiver.way));
    let row = html! {
        tr id=(id) role="row" {
            (cell(RECEIVERS[0], &html! { strong { (receiver.name) } " " (receiver.way) }))
            (number(RECEIVERS[1], &receiver.delivered.to_string()))
            (number(RECEIVERS[2], &receiver.failed.to_string()))
            (number(RECEIVERS[3], &receiver.dropped.to_string()))
            (cell(RECEIVERS[4], &html! { (receiver.problem.as_deref().map(plain).unwrap_or_default()) }))
        }
    };
    Part::new(id, row)
}
