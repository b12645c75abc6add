//! Rules on facts, and the alerts that come of them.

use super::alerts::{Alerts, Change, State};
use super::rules::{RULES, Verdict};
use super::{Sight, available, check, text};
use gateway::bottleneck::Shares;
use gateway::facts::model::{Drop, Facts, State as Of, Tunnel};
use std::path::Path;
use std::time::Duration;

fn tunnel(peer: &str, state: Of) -> Tunnel {
    Tunnel {
        interface: "wg0".to_owned(),
        peer: peer.to_owned(),
        state,
        last_handshake: Some(7),
        ..Tunnel::default()
    }
}

/// A second of a healthy gateway.
fn sight(tunnels: &[(&str, Of)]) -> Sight {
    let at = |moment, dropped| {
        let mut facts = Facts { moment, ..Facts::default() };
        facts.tunnels = tunnels.iter().map(|(peer, state)| tunnel(peer, *state)).collect();
        facts.process.open_files = Some(9);
        facts.process.most_files = Some(1024);
        let reason = "no-route".to_owned();
        facts.drops =
            vec![Drop { interface: "wg0".to_owned(), reason, outbound: dropped, ..Drop::default() }];
        facts
    };
    let shares = Some(Shares { count: 2, idle: 0.5, stolen: 0.01 });
    Sight { before: at(1000, 0), now: at(3000, 19), shares, available: Ok(0.5) }
}

fn verdict(rule: &str, sight: &Sight) -> Verdict {
    RULES.iter().find(|it| it.name == rule).expect(rule).check(sight)
}

fn subjects(rule: &str, sight: &Sight) -> Vec<String> {
    match verdict(rule, sight) {
        Verdict::Failing(troubles) => troubles.into_iter().map(|trouble| trouble.subject).collect(),
        other => panic!("{rule}: {other:?}"),
    }
}

fn told(changes: &[Change]) -> Vec<(State, &str)> {
    changes.iter().map(|change| (change.state, &*change.trouble.subject)).collect()
}

#[test]
fn nothing_fails_on_a_healthy_gateway() {
    let healthy = sight(&[("berlin", Of::Up), ("rome", Of::Waiting)]);
    for rule in RULES {
        assert_eq!(rule.check(&healthy), Verdict::Ok, "{}", rule.name);
    }
    assert!(text(&RULES.iter().map(|rule| check(rule, &healthy)).collect::<Vec<_>>()).starts_with("ok "));
}

#[test]
fn each_rule_fails_on_its_fact() {
    let mut ill = sight(&[("berlin", Of::Down), ("rome", Of::Up)]);
    assert_eq!(subjects("tunnel-down", &ill), ["wg0 berlin"]);
    ill.now.tunnels[1] = Tunnel { last_handshake: None, ..tunnel("rome", Of::Waiting) };
    assert_eq!(subjects("peer-never-seen", &ill), ["wg0 rome"]);
    ill.now.drops[0].inbound = 1;
    assert_eq!(subjects("drops-rising", &ill), ["wg0 no-route"], "20 in 2 s");
    ill.now.daemon.refused_parts = 2;
    assert_eq!(subjects("configuration-refused", &ill), ["configuration"]);
    ill.shares = Some(Shares { count: 2, idle: 0.0, stolen: 0.2 });
    assert_eq!(subjects("processor-stolen", &ill), ["processors"]);
    ill.available = Ok(0.01);
    assert_eq!(subjects("memory-low", &ill), ["memory"]);
    ill.now.process.open_files = Some(1000);
    assert_eq!(subjects("files-low", &ill), ["files"]);
    let thread = serde_json::json!({ "id": 7, "name": "wg0 out", "nanoseconds": 0 });
    ill.before.threads = vec![serde_json::from_value(thread).expect("a thread")];
    ill.now.threads = ill.before.threads.clone();
    ill.now.threads[0].nanoseconds = 1_950_000_000;
    assert_eq!(subjects("thread-busy", &ill), ["wg0 out"]);
    let engine = serde_json::json!({ "name": "qat", "state": "failed", "accelerator": true, "failures": 2 });
    ill.now.engines = vec![serde_json::from_value(engine).expect("an engine")];
    assert_eq!(subjects("engine-failed", &ill), ["qat"]);
    let offload = serde_json::json!({ "interface": "wg0", "offload": "udp-gso", "does": "", "state": "failed",
        "calls": 0, "packets": 0, "fallbacks": 9 });
    ill.now.offloads = vec![serde_json::from_value(offload).expect("an offload")];
    assert_eq!(subjects("offload-failed", &ill), ["wg0 udp-gso"]);
}

#[test]
fn what_cannot_be_read_is_unknown_and_not_ok() {
    let mut blind = sight(&[]);
    blind.now.moment = blind.before.moment;
    (blind.shares, blind.now.process.open_files) = (None, None);
    blind.available = available(Path::new("/nowhere"));
    for rule in ["drops-rising", "thread-busy", "processor-stolen", "files-low", "memory-low"] {
        let verdict = verdict(rule, &blind);
        assert!(matches!(&verdict, Verdict::Unknown(why) if !why.is_empty()), "{rule}: {verdict:?}");
    }
    assert!(available(Path::new("/proc/meminfo")).is_ok_and(|part| part > 0.0 && part <= 1.0));
    let checked: Vec<_> = RULES.iter().map(|rule| check(rule, &blind)).collect();
    assert!(text(&checked).contains("unknown   memory-low: because /nowhere: "), "{}", text(&checked));
}

#[test]
fn an_alert_fires_once_after_its_time_and_is_resolved_once() {
    let (mut alerts, at) = (Alerts::default(), Duration::from_secs);
    let (ill, well) = (sight(&[("berlin", Of::Down), ("rome", Of::Up)]), sight(&[("berlin", Of::Up)]));
    assert_eq!(alerts.look(RULES, &ill, at(1)), []);
    assert_eq!(alerts.look(RULES, &ill, at(10)), []);
    let changes = alerts.look(RULES, &ill, at(11));
    assert_eq!(told(&changes), [(State::Firing, "wg0 berlin")]);
    assert_eq!(alerts.look(RULES, &ill, at(12)), [], "once");
    // It comes and goes: that is one alert.
    assert_eq!(alerts.look(RULES, &well, at(14)), []);
    assert_eq!(alerts.look(RULES, &ill, at(15)), []);
    assert_eq!(alerts.look(RULES, &well, at(19)), []);
    assert_eq!(told(&alerts.look(RULES, &well, at(20))), [(State::Resolved, "wg0 berlin")]);
    assert_eq!(alerts.look(RULES, &well, at(30)), [], "once");
    // One that is gone before its time was never an alert.
    assert_eq!(alerts.look(RULES, &ill, at(31)), []);
    assert_eq!(alerts.look(RULES, &well, at(36)), []);
    assert_eq!(alerts.look(RULES, &ill, at(42)), []);
}

#[test]
fn a_dead_uplink_is_one_alert() {
    let ill = sight(&[("berlin", Of::Down), ("rome", Of::Down), ("oslo", Of::Down)]);
    assert_eq!(subjects("tunnel-down", &ill), ["wg0"]);
    assert_eq!(subjects("tunnel-down", &sight(&[("berlin", Of::Down)])), ["wg0 berlin"]);
}

#[test]
fn nothing_begins_or_ends_while_nothing_is_known() {
    let (mut alerts, at) = (Alerts::default(), Duration::from_secs);
    let mut ill = sight(&[]);
    ill.available = Ok(0.01);
    alerts.look(RULES, &ill, at(0));
    assert_eq!(told(&alerts.look(RULES, &ill, at(10))), [(State::Firing, "memory")]);
    ill.available = Err("no".to_owned());
    for second in 11..30 {
        assert_eq!(alerts.look(RULES, &ill, at(second)), []);
    }
    assert_eq!(alerts.silent("no daemon answers", at(30)), []);
    assert_eq!(told(&alerts.silent("no daemon answers", at(35))), [(State::Firing, "")]);
    ill.available = Ok(0.5);
    let mut ended = alerts.look(RULES, &ill, at(40));
    ended.extend(alerts.look(RULES, &ill, at(41)));
    assert_eq!(told(&ended), [(State::Resolved, ""), (State::Resolved, "memory")]);
}

#[test]
fn the_guide_has_every_rule_as_it_is() {
    let guide = include_str!("../../../docs/troubleshooting.md");
    for rule in RULES.iter().chain([&super::rules::SILENT]) {
        let begins = format!("| `{}` | {} | ", rule.name, rule.severity);
        let line = guide.lines().find(|line| line.starts_with(&begins)).expect(rule.name);
        assert!(line.ends_with(&format!(" | {} s |", rule.lasts.as_secs())), "{line}");
    }
}

#[test]
fn alerts_are_bounded() {
    let (mut alerts, at) = (Alerts::default(), Duration::from_secs);
    let mut ill = sight(&[("up", Of::Up)]);
    ill.now.tunnels.extend((0..5000).map(|number| tunnel(&number.to_string(), Of::Down)));
    alerts.look(RULES, &ill, at(0));
    assert_eq!(alerts.look(RULES, &ill, at(10)).len(), 1000);
}
