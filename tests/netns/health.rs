//! `show health`, `monitor health` and `service health`: a peer dies, and comes back.

mod mail;
mod receivers;

use crate::daemon::started;
use crate::support::{PATIENCE, answers, postern};
use lab::wait_until;
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn a_peer_that_dies_is_an_alert_which_is_resolved_when_it_is_back() {
    let Some((mut lab, a, mut b, _)) = started() else { return };
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let asked = |words: &[&str]| {
        let mut command = Command::new(postern());
        command.args(words).arg("--api").arg(&a.socket);
        command
    };
    let show = || {
        let said = asked(&["show", "health", "--json"]).output().expect("it runs");
        let daemons: Value = serde_json::from_slice(&said.stdout).expect("JSON");
        let rules = daemons[0]["rules"].as_array().expect("a list").clone();
        let down = rules.into_iter().find(|it| it["rule"] == "tunnel-down").expect("a rule");
        (said.status.code(), down)
    };
    wait_until(PATIENCE, || show().1["state"] == "ok").expect("it is looked at");
    let mut child = asked(&["monitor", "health", "--json"]).stdout(Stdio::piped()).spawn().expect("it runs");
    let (sender, changes) = channel();
    let out = BufReader::new(child.stdout.take().expect("piped"));
    std::thread::spawn(move || {
        let values = out.lines().map_while(Result::ok).map(|line| serde_json::from_str::<Value>(&line));
        values.flatten().try_for_each(|value| sender.send(value))
    });
    let next = |state: &str| {
        let is_it = |it: &Value| it["rule"] == "tunnel-down" && it["state"] == state;
        let mut all = std::iter::from_fn(|| changes.recv_timeout(Duration::from_secs(60)).ok());
        all.find(is_it).unwrap_or_else(|| panic!("it is never {state}"))
    };
    let process = b.process.expect("it was started");
    b.signal(Signal::KILL);
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    // Without traffic nobody misses it.
    let stop = AtomicBool::new(false);
    let firing = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = lab.run("a", "ping", &["-c", "1", "-W", "1", "10.66.0.2"]);
            }
        });
        let firing = next("firing");
        stop.store(true, Ordering::Relaxed);
        firing
    });
    assert_eq!((&firing["severity"], &firing["subject"]), (&"critical".into(), &"wg0 other".into()));
    assert_eq!(firing["remedy"], "postern explain interfaces wireguard wg0 peer other");
    let (status, down) = show();
    assert_eq!((status, &down["state"]), (Some(1), &"firing".into()), "{down:#}");
    let doctor = asked(&["doctor"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert!(doctor.status.code() == Some(1) && said.contains("The tunnel wg0 other is down."), "{said}");
    b.start(&mut lab);
    wait_until(2 * PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("it is back");
    let resolved = next("resolved");
    assert_eq!(resolved["subject"], "wg0 other", "{resolved:#}");
    assert_eq!(show().1["state"], "ok");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}
