//! Rules on facts, and the alerts and messages that come of them, by a clock that the tests set.

use super::alerts::{CLEAR, MOST, Moment};
use super::groups::{self, WAIT};
use super::machine::{Device, Governor, Heat, Links, Lossy, Machine};
use super::model::{Alert, AlertState, Health, State};
use super::pause;
use super::rules::{RULES, Verdict};
use super::sight::{Counts, Host, Seen, Sight, Span};
use super::watcher::Watcher;
use super::wire::{Message, Notification};
use crate::bottleneck::Shares;
use crate::facts::model::{Drop, Facts, State as Of, Tunnel};
use crate::failover::model::{Group, Member};
use crate::path::model::{Mtu, Path as Measured};
use config::schema::HEALTH_RULES;
use config::settings::health::Tuning;
use config::settings::{Health as Settings, Watched as Configured};
use crypto::machine::qat::{Qat, Sourced, State as Quick};
use crypto::machine::{Files, Processor};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

fn tunnel(peer: &str, state: Of) -> Tunnel {
    let (interface, peer) = ("wg0".to_owned(), peer.to_owned());
    Tunnel { interface, peer, state, last_handshake: Some(7), ..Tunnel::default() }
}

/// Two snapshots of a gateway, two seconds apart, and what its machine says.
struct Gateway {
    before: Counts,
    now: Facts,
    shares: Option<Shares>,
    available: Result<f64, String>,
    machine: Machine,
    machine_before: Machine,
    configured: Configured,
}

impl Gateway {
    fn sight(&self) -> Sight<'_> {
        let seen = Seen {
            shares: self.shares,
            available: self.available.clone(),
            machine: &self.machine,
            span: Span::Since(&self.machine_before, 30.0),
            configured: Ok(&self.configured),
            facts: Some(&self.now),
            at: self.now.at,
        };
        Sight { before: Some(&self.before), now: &self.now, seen }
    }

    fn check(&self, rule: &str) -> Verdict {
        RULES.iter().find(|it| it.name == rule).expect(rule).check(&self.sight(), None)
    }

    fn subjects(&self, rule: &str) -> Vec<String> {
        match self.check(rule) {
            Verdict::Failing(troubles) => troubles.into_iter().map(|trouble| trouble.subject).collect(),
            other => panic!("{rule}: {other:?}"),
        }
    }
}

fn throttled(times: u64) -> BTreeMap<String, u64> {
    ["cpu0 package", "cpu1 package"].map(|name| (name.to_owned(), times)).into()
}

/// A machine on which nothing is wrong.
fn machine() -> Machine {
    Machine {
        processor: Ok(Processor::parse("vendor_id : GenuineIntel\nflags : aes\n")),
        devices: Ok(Vec::new()),
        log: Ok(Vec::new()),
        heat: Ok(Heat { sensors: 1, hot: Vec::new(), throttled: throttled(3) }),
        governors: Ok(BTreeMap::from([(Governor::Kernel("performance".to_owned()), 2)])),
        backlog: Ok(Lossy { taken: 1000, lost: 500 }),
        datagrams: Ok(Lossy { taken: 1000, lost: 500 }),
        huge_pages: Ok(0),
        links: Ok(Links { outside: Some(("eth0".to_owned(), 1500)), tunnels: Vec::new() }),
        uptime: Ok(3600.0),
        masks: Vec::new(),
        clock: Ok(true),
    }
}

/// One that is healthy but for its tunnels.
fn gateway(tunnels: &[(&str, Of)]) -> Gateway {
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
    Gateway {
        before: Counts::of(&at(1000, 0)),
        now: at(3000, 19),
        shares,
        available: Ok(0.5),
        machine: machine(),
        machine_before: machine(),
        configured: Configured::default(),
    }
}

/// A watcher with its clock, which begins at noon of some day.
#[derive(Default)]
struct Watched {
    watcher: Watcher,
    settings: Settings,
}

const NOON: u64 = 20_000 * 86_400 + 43_200;

impl Watched {
    fn look(&mut self, gateway: &Gateway, second: u64) -> (Health, Vec<Message>) {
        let now = Moment { elapsed: Duration::from_secs(second), wall: NOON + second };
        self.watcher.apply(&gateway.sight(), &self.settings, now)
    }

    /// The states and subjects of the alerts.
    fn alerts(&mut self, gateway: &Gateway, second: u64) -> Vec<(AlertState, String)> {
        let alerts = self.look(gateway, second).0.alerts;
        alerts.into_iter().map(|alert| (alert.state, alert.subject)).collect()
    }

    fn notifications(&mut self, gateway: &Gateway, second: u64) -> Vec<Notification> {
        let messages = self.look(gateway, second).1.into_iter();
        let one = |message| match message {
            Message::Notify(notification) => Some(notification),
            _ => None,
        };
        messages.filter_map(one).collect()
    }

    fn lines(&mut self, gateway: &Gateway, second: u64) -> Vec<String> {
        let messages = self.look(gateway, second).1.into_iter();
        let one = |message| match message {
            Message::Log(line) => Some(line.text),
            _ => None,
        };
        messages.filter_map(one).collect()
    }

    /// What a rule says.
    fn state(&mut self, gateway: &Gateway, second: u64, rule: &str) -> State {
        let rules = self.look(gateway, second).0.rules;
        rules.iter().find(|it| it.rule == rule).expect(rule).state
    }
}

fn alert(state: AlertState, subject: &str) -> (AlertState, String) {
    (state, subject.to_owned())
}

use AlertState::{Firing, Pending, Resolved};

#[test]
fn nothing_fails_on_a_healthy_gateway() {
    let healthy = gateway(&[("berlin", Of::Up), ("rome", Of::Waiting)]);
    for rule in RULES {
        assert_eq!(rule.check(&healthy.sight(), None), Verdict::Ok, "{}", rule.name);
    }
    let (health, messages) = Watched::default().look(&healthy, 0);
    assert!(health.rules.iter().all(|rule| rule.state == State::Ok) && health.alerts.is_empty());
    assert_eq!((messages, health.rules.len()), (Vec::new(), RULES.len()));
}

#[test]
fn each_rule_fails_on_its_fact() {
    let mut ill = gateway(&[("berlin", Of::Down), ("rome", Of::Up)]);
    assert_eq!(ill.subjects("tunnel-down"), ["wg0 berlin"]);
    ill.now.tunnels[1] = Tunnel { last_handshake: None, ..tunnel("rome", Of::Waiting) };
    assert_eq!(ill.subjects("peer-never-seen"), ["wg0 rome"]);
    let member = |number, state, is_used| Member { number, state, is_used, ..Member::default() };
    let group = |members| Group { name: "hq".to_owned(), members, ..Group::default() };
    ill.now.failover = vec![group(vec![member(10, Of::Down, false), member(20, Of::Up, true)])];
    assert_eq!(ill.subjects("failover-standby"), ["hq"]);
    assert_eq!(ill.check("failover-down"), Verdict::Ok);
    ill.now.failover = vec![group(vec![member(10, Of::Down, false), member(20, Of::Waiting, true)])];
    assert_eq!(ill.subjects("failover-down"), ["hq"]);
    assert_eq!(ill.check("failover-standby"), Verdict::Ok, "it is told once");
    ill.now.failover = vec![group(Vec::new())];
    let Verdict::Failing(found) = ill.check("failover-down") else { panic!("nothing protects it") };
    assert!(found[0].sentence.contains("disabled"), "{found:?}");
    ill.now.drops[0].inbound = 1;
    assert_eq!(ill.subjects("drops-rising"), ["wg0 no-route"], "20 in 2 s");
    ill.now.daemon.refused_parts = 2;
    assert_eq!(ill.subjects("configuration-refused"), ["configuration"]);
    ill.shares = Some(Shares { count: 2, idle: 0.0, stolen: 0.2 });
    assert_eq!(ill.subjects("processor-stolen"), ["processors"]);
    ill.available = Ok(0.01);
    assert_eq!(ill.subjects("memory-low"), ["memory"]);
    ill.now.process.open_files = Some(1000);
    assert_eq!(ill.subjects("files-low"), ["files"]);
    let thread = serde_json::json!({ "id": 7, "name": "wg0 out", "nanoseconds": 1_950_000_000 });
    ill.now.threads = vec![serde_json::from_value(thread).expect("a thread")];
    ill.before.threads.insert(7, 0);
    assert_eq!(ill.subjects("thread-busy"), ["wg0 out"]);
    ill.now.tunnels[1].state = Of::Up;
    let lossy = Measured { loss_ratio: Some(0.1), mtu: Mtu::BlackHole, ..Measured::default() };
    for tunnel in &mut ill.now.tunnels {
        tunnel.path = Some(Box::new(lossy.clone()));
    }
    assert_eq!(ill.subjects("path-loss"), ["wg0 rome"], "one that is down is told so");
    assert_eq!(ill.subjects("path-black-hole"), ["wg0 rome"]);
    let engine = serde_json::json!({ "name": "qat", "state": "failed", "accelerator": true, "failures": 2 });
    ill.now.engines = vec![serde_json::from_value(engine).expect("an engine")];
    assert_eq!(ill.subjects("engine-failed"), ["qat"]);
    let offload = serde_json::json!({ "interface": "wg0", "offload": "udp-gso", "does": "", "state": "failed",
        "calls": 0, "packets": 0, "fallbacks": 9 });
    ill.now.offloads = vec![serde_json::from_value(offload).expect("an offload")];
    assert_eq!(ill.subjects("offload-failed"), ["wg0 udp-gso"]);
}

#[test]
fn counters_of_the_machine_are_compared_with_the_reading_before() {
    let mut ill = gateway(&[]);
    ill.machine.backlog = Ok(Lossy { taken: 2000, lost: 800 });
    assert_eq!(ill.subjects("backlog-drops"), ["backlog"], "10 a second");
    ill.machine.backlog = Ok(Lossy { taken: 2000, lost: 799 });
    assert_eq!(ill.check("backlog-drops"), Verdict::Ok);
    ill.machine.backlog = Ok(Lossy { taken: 2000, lost: 400 });
    assert!(matches!(ill.check("backlog-drops"), Verdict::Unknown(_)), "they went back");
    ill.machine.datagrams = Ok(Lossy { taken: 2000, lost: 5000 });
    assert_eq!(ill.subjects("receive-buffer-full"), ["receive buffer"]);
    ill.machine.heat = Ok(Heat { sensors: 1, hot: Vec::new(), throttled: throttled(4) });
    assert_eq!(ill.subjects("processor-hot"), ["thermal throttling"]);
    ill.machine.clock = Ok(false);
    assert_eq!(ill.subjects("clock-unsynchronised"), ["clock"]);
    let first = Seen { span: Span::First, ..ill.sight().seen };
    let rule = RULES.iter().find(|it| it.name == "backlog-drops").expect("a rule");
    assert!(matches!(rule.check_machine(&first, None), Verdict::Unknown(_)), "there is no rate yet");
}

/// A device that works, and has missed so many heartbeats since it was started.
fn device(missed: u64) -> Device {
    let known = Sourced { value: missed, source: "/queries_failed".to_owned() };
    let address = "0000:3d:00.0".to_owned();
    let errors = vec![("heartbeat", known)];
    Device {
        qat: Qat { address, state: Quick::Up, errors, ..Qat::default() },
        module: "qat_4xxx",
        is_virtual: false,
        has_module: None,
        missing_firmware: Vec::new(),
        errors: Vec::new(),
        counts_errors: true,
        debug: Ok(()),
    }
}

#[test]
fn heartbeats_that_were_missed_long_ago_are_over() {
    let mut ill = gateway(&[]);
    (ill.machine_before.devices, ill.machine.devices) = (Ok(vec![device(4)]), Ok(vec![device(4)]));
    assert_eq!(ill.check("accelerator-heartbeat"), Verdict::Ok);
    ill.machine.devices = Ok(vec![device(5)]);
    let Verdict::Failing(found) = ill.check("accelerator-heartbeat") else { panic!("one more") };
    assert!(found[0].sentence.contains("missed 1 heartbeats"), "{found:?}");
}

#[test]
fn huge_pages_are_missed_only_by_dpdk_of_our_own() {
    let mut ill = gateway(&[]);
    let mut lent = device(0);
    lent.qat.state = Quick::Lent;
    ill.machine.devices = Ok(vec![lent]);
    assert_eq!(ill.check("accelerator-memory"), Verdict::Ok);
    let engine =
        serde_json::json!({ "name": "dpdk-qat", "state": "not used", "accelerator": true, "failures": 0 });
    ill.now.engines = vec![serde_json::from_value(engine).expect("an engine")];
    assert_eq!(ill.subjects("accelerator-memory"), ["0000:3d:00.0"]);
    ill.machine.huge_pages = Ok(8);
    assert_eq!(ill.check("accelerator-memory"), Verdict::Ok);
}

#[test]
fn missing_aes_is_stated_as_certain_only_where_it_is() {
    let mut ill = gateway(&[]);
    let intel = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\n";
    let mut said = |cpuinfo: &str| {
        ill.machine.processor = Ok(Processor::parse(&format!("{intel}{cpuinfo}")));
        let Verdict::Failing(found) = ill.check("aes-missing") else { panic!("{cpuinfo}") };
        found[0].sentence.clone()
    };
    for (cpuinfo, sentence) in [
        ("model : 143\nflags : fpu\n", "firmware has disabled"),
        ("model : 58\nmodel name : Pentium\nflags : fpu\n", "firmware may have disabled"),
        ("model : 143\nflags : fpu hypervisor\n", "hypervisor hides"),
        ("model : 58\nmodel name : Pentium\nflags : fpu hypervisor\n", "hypervisor may hide"),
        // A guest of an old host: nothing is known of the host's processor.
        ("model : 15\nflags : fpu hypervisor\n", "The host may have them"),
        ("model : 15\nflags : fpu\n", "The processor has no AES instructions"),
    ] {
        assert!(said(cpuinfo).contains(sentence), "{cpuinfo}: {}", said(cpuinfo));
    }
}

#[test]
fn a_governor_that_keeps_the_frequency_low_is_told_from_one_that_follows_the_load() {
    let mut ill = gateway(&[]);
    let by_processor =
        |preference: Option<&str>| Governor::Processor { preference: preference.map(str::to_owned) };
    ill.machine.governors = Ok([by_processor(None), by_processor(Some("balance_performance"))]
        .map(|governor| (governor, 2))
        .into());
    assert_eq!(ill.check("governor-slow"), Verdict::Ok);
    ill.machine.governors = Ok([Governor::Kernel("powersave".to_owned()), by_processor(Some("power"))]
        .map(|governor| (governor, 2))
        .into());
    assert_eq!(ill.subjects("governor-slow"), ["powersave", "powersave with the preference power"]);
}

#[test]
fn certificates_are_told_before_they_end() {
    const DAY: u64 = 86_400;
    let mut ill = gateway(&[]);
    ill.now.at = 100 * DAY;
    let ends = [("pki certificate a", 90), ("pki certificate b", 113), ("pki ca c", 115)];
    ill.configured.certificates = ends.iter().map(|(name, day)| ((*name).to_owned(), day * DAY)).collect();
    assert_eq!(ill.subjects("certificate-expiring"), ["pki certificate a", "pki certificate b"]);
    let Verdict::Failing(found) = ill.check("certificate-expiring") else { panic!("two") };
    assert!(
        found[0].sentence.ends_with("has expired.") && found[1].sentence.ends_with("in 13 days."),
        "{found:?}"
    );
}

#[test]
fn the_machine_is_read_again_after_half_a_minute() {
    let mut watcher = Watcher::default();
    let reads = std::cell::Cell::new(0);
    let at = |seconds| Duration::from_secs(seconds);
    let mut look = |second| {
        let read = |_: &mut _| {
            reads.set(reads.get() + 1);
            machine()
        };
        watcher.machines = watcher.read_machine(at(second), read);
        let times = watcher.machines.each_ref().map(|it| it.as_ref().map(|(at, _)| at.as_secs()));
        (reads.get(), times)
    };
    assert_eq!(look(1), (1, [Some(1), None]));
    assert_eq!(look(30), (1, [Some(1), None]));
    assert_eq!(look(31), (2, [Some(31), Some(1)]));
    assert_eq!(look(62), (3, [Some(62), Some(31)]));
}

#[test]
fn what_cannot_be_read_is_unknown_and_not_ok() {
    let mut blind = gateway(&[]);
    blind.now.moment = blind.before.moment;
    (blind.shares, blind.now.process.open_files) = (None, None);
    blind.available = Host::read(Files { root: Path::new("/nowhere") }).available;
    blind.machine = Machine::read(Path::new("/nowhere"));
    let (health, _) = Watched::default().look(&blind, 0);
    let of_daemon = ["drops-rising", "thread-busy", "files-low"];
    // What is about the configuration is known here.
    let of_configuration = ["suite-slow", "detection-too-often", "offload-off", "certificate-expiring"];
    let of_machine = RULES.iter().filter(|rule| rule.is_of_machine()).map(|rule| rule.name);
    let of_machine = of_machine.filter(|name| !of_configuration.contains(name));
    for rule in of_daemon.into_iter().chain(of_machine) {
        let shown = health.rules.iter().find(|it| it.rule == rule).expect(rule);
        assert_eq!(shown.state, State::Unknown, "{rule}");
        assert!(shown.why.as_ref().is_some_and(|why| !why.is_empty()), "{rule}");
    }
    assert!(
        matches!(blind.check("memory-low"), Verdict::Unknown(why) if why == "/proc/meminfo is not there")
    );
    let here = Host::read(Files { root: Path::new("/") });
    assert!(here.available.is_ok_and(|part| part > 0.0 && part <= 1.0) && here.processors.is_some());
}

#[test]
fn an_alert_is_pending_fires_once_after_its_time_and_is_resolved_once() {
    let mut watched = Watched::default();
    let ill = gateway(&[("berlin", Of::Down), ("rome", Of::Up)]);
    let well = gateway(&[("berlin", Of::Up)]);
    assert_eq!(watched.alerts(&ill, 1), [alert(Pending, "wg0 berlin")]);
    assert_eq!(watched.state(&ill, 10, "tunnel-down"), State::Pending);
    assert_eq!(watched.alerts(&ill, 11), [alert(Firing, "wg0 berlin")]);
    assert_eq!(watched.state(&ill, 12, "tunnel-down"), State::Firing);
    // It comes and goes: that is one alert.
    assert_eq!(watched.alerts(&well, 14), [alert(Firing, "wg0 berlin")]);
    assert_eq!(watched.alerts(&ill, 15), [alert(Firing, "wg0 berlin")]);
    assert_eq!(watched.state(&well, 19, "tunnel-down"), State::Firing);
    let resolved = watched.look(&well, 15 + CLEAR.as_secs()).0.alerts;
    assert_eq!(resolved.iter().map(|it| it.state).collect::<Vec<_>>(), [Resolved]);
    let Alert { since, firing_since, resolved_at, .. } = resolved[0];
    assert_eq!((since, firing_since, resolved_at), (NOON + 1, Some(NOON + 11), Some(NOON + 20)));
    assert_eq!(watched.state(&well, 21, "tunnel-down"), State::Ok);
    // One that is gone before its time was never an alert.
    watched.look(&ill, 31);
    assert_eq!(watched.alerts(&well, 36), [alert(Resolved, "wg0 berlin")]);
    let after: Vec<_> = watched.alerts(&ill, 42);
    assert_eq!(after[0], alert(Pending, "wg0 berlin"));
}

#[test]
fn alerts_of_a_rule_are_one_message_which_has_what_fires_and_what_is_resolved() {
    let mut watched = Watched::default();
    let ill = gateway(&[("berlin", Of::Down), ("rome", Of::Up), ("oslo", Of::Up)]);
    let worse = gateway(&[("berlin", Of::Down), ("rome", Of::Down), ("oslo", Of::Up)]);
    watched.look(&ill, 0);
    watched.look(&worse, 1);
    assert_eq!(watched.notifications(&worse, 10), [], "the first fires, and waits for others");
    assert_eq!(watched.notifications(&worse, 11), []);
    let told = watched.notifications(&worse, 10 + WAIT.as_secs());
    assert_eq!((told.len(), &*told[0].rule, told[0].alerts.len()), (1, "tunnel-down", 2));
    assert_eq!(watched.notifications(&worse, 60), [], "once");
    // One is well again: the message says of both what they are.
    assert_eq!(watched.notifications(&ill, 60 + CLEAR.as_secs()), []);
    let told = watched.notifications(&ill, 60 + (CLEAR + WAIT).as_secs());
    let states: Vec<_> = told[0].alerts.iter().map(|it| alert(it.state, &it.subject)).collect();
    assert_eq!(states, [alert(Firing, "wg0 berlin"), alert(Resolved, "wg0 rome")]);
}

#[test]
fn what_still_fires_is_told_again_after_its_hours_unless_that_is_off() {
    const DAY: u64 = 86_400;
    let ill = gateway(&[("berlin", Of::Down), ("rome", Of::Up)]);
    let well = gateway(&[("berlin", Of::Up)]);
    for (hours, again) in [(None, Some(DAY)), (Some(2), Some(7200)), (Some(0), None)] {
        let mut watched = Watched::default();
        watched.settings.repeat_hours = hours;
        watched.look(&ill, 0);
        watched.look(&ill, 10);
        let told = watched.notifications(&ill, 13);
        assert_eq!((told.len(), told[0].is_repeated), (1, false));
        let Some(again) = again else {
            assert_eq!(watched.notifications(&ill, 30 * DAY), []);
            continue;
        };
        assert_eq!(watched.notifications(&ill, 12 + again), []);
        let told = watched.notifications(&ill, 13 + again);
        assert_eq!((told.len(), told[0].is_repeated, told[0].changes().count()), (1, true, 1));
        assert_eq!(watched.notifications(&ill, 14 + again), [], "once");
        watched.look(&well, 20 + again);
        assert_eq!(watched.notifications(&well, 24 + again)[0].alerts[0].state, Resolved);
        assert_eq!(watched.notifications(&well, 24 + 3 * again), [], "it is over");
    }
}

#[test]
fn a_dead_uplink_is_one_alert() {
    let ill = gateway(&[("berlin", Of::Down), ("rome", Of::Down), ("oslo", Of::Down)]);
    assert_eq!(ill.subjects("tunnel-down"), ["wg0"]);
    assert_eq!(gateway(&[("berlin", Of::Down)]).subjects("tunnel-down"), ["wg0 berlin"]);
}

#[test]
fn nothing_begins_or_ends_while_nothing_is_known() {
    let mut watched = Watched::default();
    let mut ill = gateway(&[]);
    ill.available = Ok(0.01);
    watched.look(&ill, 0);
    assert_eq!(watched.alerts(&ill, 10), [alert(Firing, "memory")]);
    ill.available = Err("no".to_owned());
    for second in 11..30 {
        assert_eq!(watched.alerts(&ill, second), [alert(Firing, "memory")]);
    }
    ill.available = Ok(0.5);
    assert_eq!(watched.alerts(&ill, 29 + CLEAR.as_secs()), [alert(Resolved, "memory")]);
}

#[test]
fn a_rule_can_have_another_threshold_and_another_time_or_be_off() {
    let mut watched = Watched::default();
    let mut ill = gateway(&[("berlin", Of::Down), ("rome", Of::Up)]);
    ill.available = Ok(0.2);
    let tune = |rules: &[(&str, Tuning)]| {
        let rules = rules.iter().map(|(rule, tuning)| ((*rule).to_owned(), *tuning)).collect();
        Settings { rules, ..Settings::default() }
    };
    let low = Tuning { threshold: Some(25), seconds: Some(2), ..Tuning::default() };
    let off = Tuning { is_disabled: true, ..Tuning::default() };
    watched.settings = tune(&[("memory-low", low), ("tunnel-down", off)]);
    let (health, _) = watched.look(&ill, 0);
    let of = |name: &str| health.rules.iter().find(|it| it.rule == name).expect("a rule").clone();
    assert_eq!((of("tunnel-down").state, of("memory-low").state), (State::Disabled, State::Pending));
    let shown = of("memory-low");
    assert_eq!((&*shown.about, shown.duration_seconds), ("less than 25% of the memory available", 2));
    assert_eq!(watched.alerts(&ill, 2), [alert(Firing, "memory")]);
    // A rule that is switched off has no alerts, also if it had one.
    watched.settings = tune(&[("memory-low", off), ("tunnel-down", off)]);
    assert_eq!(watched.alerts(&ill, 3 + CLEAR.as_secs()), [alert(Resolved, "memory")]);
}

#[test]
fn the_log_has_a_line_for_each_change_and_a_summary_of_each_day() {
    let mut watched = Watched::default();
    let ill = gateway(&[("berlin", Of::Down), ("rome", Of::Up)]);
    let well = gateway(&[("berlin", Of::Up)]);
    let line = |state: &str| format!("{state} critical tunnel-down: The tunnel wg0 berlin is down.");
    assert_eq!(watched.lines(&ill, 0), [line("pending")]);
    assert_eq!(watched.lines(&ill, 1), [""; 0]);
    assert_eq!(watched.lines(&ill, 10), [line("firing")]);
    assert_eq!(watched.lines(&well, 15), [line("resolved")]);
    watched.look(&ill, 20);
    assert_eq!(watched.lines(&well, 21), [line("cleared")]);
    watched.look(&ill, 30);
    watched.look(&ill, 40);
    let midnight = 43_200;
    assert_eq!(watched.lines(&ill, midnight - 1), [""; 0]);
    let (_, messages) = watched.look(&ill, midnight + 5);
    let Message::Log(summary) = &messages[0] else { panic!("{messages:?}") };
    let text = "summary: 2 alerts, 1 resolved (tunnel-down 2); still firing: tunnel-down 1";
    assert_eq!((&*summary.text, summary.at), (text, NOON + midnight - 1), "in the file of its day");
    assert_eq!(watched.lines(&ill, midnight + 6), [""; 0], "once");
    let next = watched.lines(&well, 2 * 86_400);
    assert_eq!(next[0], "summary: 0 alerts, 0 resolved; still firing: nothing", "{next:?}");
}

#[test]
fn alerts_and_messages_are_bounded() {
    let mut watched = Watched::default();
    let mut ill = gateway(&[("up", Of::Up)]);
    ill.now.tunnels.extend((0..5000).map(|number| tunnel(&number.to_string(), Of::Down)));
    watched.look(&ill, 0);
    assert_eq!(watched.alerts(&ill, 10).len(), MOST);
    let told = watched.notifications(&ill, 10 + WAIT.as_secs());
    assert_eq!((told[0].alerts.len(), told[0].left_out), (groups::MOST, MOST - groups::MOST));
}

#[test]
fn the_configuration_names_every_rule_with_its_threshold() {
    let known: Vec<_> = RULES.iter().map(|rule| (rule.name, rule.threshold.is_some())).collect();
    let named: Vec<_> = HEALTH_RULES.iter().map(|(name, range)| (*name, range.is_some())).collect();
    assert_eq!(known, named);
    for (rule, (_, range)) in RULES.iter().zip(HEALTH_RULES) {
        let fits = rule.threshold.zip(*range).is_none_or(|(it, (low, high))| (low..=high).contains(&it));
        assert!(fits, "{}", rule.name);
    }
}

#[test]
fn the_guide_has_every_rule_as_it_is() {
    let guide = include_str!("../../../docs/health.md");
    for rule in RULES {
        let begins = format!("| `{}` | {} | ", rule.name, rule.severity);
        let line = guide.lines().find(|line| line.starts_with(&begins)).expect(rule.name);
        assert!(line.ends_with(&format!(" | {} s |", rule.lasts.as_secs())), "{line}");
        let threshold = rule.threshold.map(|threshold| threshold.to_string()).unwrap_or_default();
        assert!(line.contains(&threshold), "{line}");
    }
}

#[test]
fn snapshots_take_a_small_part_of_the_time_at_any_number_of_peers() {
    let milliseconds = Duration::from_millis;
    assert_eq!(pause(milliseconds(1)), milliseconds(999));
    assert_eq!(pause(milliseconds(100)), milliseconds(4_900));
    assert_eq!(pause(milliseconds(9_000)), milliseconds(1_000));
}
