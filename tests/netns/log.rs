//! The log: by subsystem, by peer, as JSON, and traces of one peer.

use crate::daemon::{Site, key_pair, lines, started};
use crate::ipsec::{Gateway, configuration};
use crate::operational::{Going, command};
use crate::support::{PATIENCE, answers, sites};
use lab::postern::Postern;
use lab::wait_until;
use serde_json::Value;
use std::time::Duration;

/// What a peer of IPsec exchanges, as a trace has it.
const FIRST: &str = ": IKE_SA_INIT request 0, ";

/// Whether the daemon has begun to answer a command: it catches Ctrl-C from then on.
fn follows(command: &Going) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", command.child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    caught.is_some_and(|signals| signals & (1 << (rustix::process::Signal::INT.as_raw() - 1)) != 0)
}

#[test]
fn the_log_of_a_peer_is_followed_while_it_connects_and_a_trace_ends_with_its_command() {
    let Some(mut lab) = sites() else { return };
    for (site, end) in [("a", 0), ("b", 1)] {
        lab.ip(site, &format!("address add 10.{}0.0.1/32 dev lo", end + 1)).expect("an address");
    }
    let [mut a, mut b] = ["a", "b"].map(|site| Gateway::new(&lab, site));
    a.write(&configuration(0));
    b.write(&configuration(1));
    // It waits, and is followed before the other calls.
    b.0.start(&mut lab);
    let follow = |more: &[&str]| {
        let words = [&["monitor", "log", "ipsec", "peer", "other"], more].concat();
        Going::start(command(&b.0, &words))
    };
    let (plain, trace) = (follow(&[]), follow(&["--trace"]));
    wait_until(PATIENCE, || follows(&plain) && follows(&trace)).expect("the daemon answers");
    a.0.start(&mut lab);
    trace.until(|line| line.contains("DEBUG received from 192.168.77.1:") && line.contains(FIRST));
    let line = plain.until(|line| line.contains("is connected"));
    assert!(line.contains("INFO peer other: "), "{line}");
    trace.until(|line| line.contains("INFO other-tunnel-1 is up"));
    trace.until(|line| {
        line.contains("DEBUG sent to 192.168.77.1:") && line.contains(": IKE_AUTH response 1, ")
    });
    plain.until(|line| line.contains("INFO other-tunnel-1 is up"));
    drop(trace);
    // It ends within the time of a look.
    std::thread::sleep(Duration::from_secs(1));
    a.says("reset vpn ipsec site-to-site peer other");
    plain.until(|line| line.contains("connection ended"));
    plain.until(|line| line.contains("is connected"));
    b.comes_up("other");
    let rest: Vec<String> = plain.lines.try_iter().collect();
    assert!(!rest.iter().any(|line| line.contains("DEBUG")), "{rest:#?}");
    // A later trace has no message that was exchanged while there was none.
    let later = follow(&["--trace"]);
    later.until(|line| line.contains("connection ended"));
    std::thread::sleep(Duration::from_millis(500));
    let after: Vec<String> = later.lines.try_iter().collect();
    assert!(after.iter().any(|line| line.contains("is connected")), "{after:#?}");
    assert!(!after.iter().any(|line| line.contains(FIRST)), "{after:#?}");
    let logged = b.0.logged();
    assert!(
        logged.contains("is connected") && !logged.contains("DEBUG"),
        "the log of the daemon is as it was: {logged}"
    );
}

#[test]
fn a_subsystem_has_a_level_of_its_own_from_a_commit_to_the_next() {
    let Some((mut lab, a, mut b, publics)) = started() else { return };
    let debug = |on: bool| {
        let fixed = format!("set interfaces wireguard wg0 private-key {}\n", a.private);
        let own: String = lines(0, &publics[1], &[])
            .iter()
            .map(|line| format!("set interfaces wireguard wg0 {line}\n"))
            .collect();
        let level = if on { "set system log subsystem wireguard level debug\n" } else { "" };
        Postern::write(&a, &(fixed + &own + level));
        a.reload();
    };
    // The other side has lost its session: there is another handshake.
    let mut restart = || {
        b.signal(rustix::process::Signal::TERM);
        let process = b.process.take().expect("it was started");
        wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
        b.start(&mut lab);
        wait_until(PATIENCE, || answers(&lab, "b", "10.66.0.1")).expect("a tunnel");
    };
    debug(true);
    restart();
    let logged = a.logged();
    let is_traced = |line: &str| line.contains("DEBUG interface wg0: ") && line.contains(": handshake ");
    assert!(logged.lines().any(is_traced), "{logged}");
    assert!(!logged.contains(&a.private), "no key is in a log");
    debug(false);
    let before = a.logged().len();
    restart();
    let since = a.logged()[before..].to_owned();
    assert!(!since.contains("DEBUG"), "{since}");
}

#[test]
fn each_line_is_an_object_where_json_is_wanted() {
    let Some(mut lab) = sites() else { return };
    let (a_keys, b_keys) = (key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    a.write(&lines(0, &b_keys.1, &[]));
    b.write(&lines(1, &a_keys.1, &[]));
    let mut command = a.command(&lab);
    command.args(["--log-format", "json"]);
    Postern::spawn(&mut a, &mut lab, command, "info").expect("it starts");
    wait_until(PATIENCE, || a.logged().contains(" is in force")).expect("it serves");
    b.start(&mut lab);
    wait_until(PATIENCE, || answers(&lab, "b", "10.66.0.1")).expect("a tunnel");
    let object =
        |line: &str| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let up = || {
        let logged = a.logged();
        let mut objects = logged.lines().map(object);
        objects.any(|it| it["subsystem"] == "wireguard" && it["peer"] == "other" && it["interface"] == "wg0")
    };
    wait_until(PATIENCE, up).expect("a line about the peer");
    for line in a.logged().lines().map(object) {
        let has = |name: &str| line[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(has("time") && has("level") && has("subsystem") && has("message"), "{line}");
    }
}
