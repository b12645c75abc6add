//! The daemon is killed at each point of a commit, and at each point of one that undoes another.

use super::{Router, mtu};
use crate::daemon::key_pair;
use crate::support::PATIENCE;
use gateway::clock::since_boot;
use gateway::daemon::archive::revision::digest;
use gateway::daemon::fault::{POINTS, VARIABLE};
use lab::postern::Postern;
use lab::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::Path;

/// Two changes that belong together.
fn changes() -> [String; 3] {
    let wg1 = "set interfaces wireguard wg1";
    [mtu(1300), format!("{wg1} private-key {}", key_pair().0), format!("{wg1} mtu 1300")]
}

/// What is in force: the old configuration or the new one, in the archive and in the kernel, and never a mixture.
fn is_new(router: &Router) -> bool {
    let text = router.text();
    let has = ["wg0 mtu 1300", "wg1 mtu 1300"].map(|words| text.contains(words));
    let interface = router.lab.ip("a", "link show wg1").is_ok();
    let mtu = router.mtu();
    assert!(mtu == 1420 || mtu == 1300, "{mtu}");
    let all = [has[0], has[1], interface, mtu == 1300];
    assert!(all.iter().all(|it| *it == all[0]), "{all:?}: {text}");
    all[0]
}

pub fn stop(router: &mut Router, signal: Signal) {
    router.site.signal(signal);
    router.ended();
}

/// Starts it so that it will be killed where it passes a point.
pub fn start_with(router: &mut Router, point: &str) {
    let _ = std::fs::remove_file(&router.site.socket);
    let mut command = router.site.command(&router.lab);
    command.env(VARIABLE, point);
    Postern::spawn(&mut router.site, &mut router.lab, command, "info").expect("it starts");
    wait_until(PATIENCE, || router.site.socket.exists()).expect("its API is served");
}

/// A commit during which the daemon is killed.
fn commit_killed_at(router: &mut Router, point: &str, confirm_minutes: Option<u32>) {
    stop(router, Signal::TERM);
    start_with(router, point);
    let changes = changes();
    let mut edits: Vec<&str> = changes.iter().map(String::as_str).collect();
    edits.push("set system config-management commit-revisions 1");
    let mut request = router.request(&edits);
    request["confirm_minutes"] = json!(confirm_minutes);
    let answer = router.asked("POST", "configuration/commit", Some(&request));
    assert_eq!(answer, None, "{point}: it was not killed");
    router.ended();
}

/// From this point on a commit counts.
fn counts_from() -> usize {
    POINTS.iter().position(|point| *point == "published").expect("it is one")
}

#[test]
fn after_a_kill_the_configuration_is_the_old_or_the_new_one() {
    for (index, point) in POINTS.iter().enumerate() {
        let Some(mut router) = Router::new() else { return };
        commit_killed_at(&mut router, point, None);
        router.start();
        assert_eq!(is_new(&router), index >= counts_from(), "{point}");
        assert!(!router.file("pending").exists(), "{point}");
        router.commits(&[&mtu(1250)]);
        assert_eq!(router.mtu(), 1250, "{point}: commits are taken");
    }
}

/// Has the time pass in which the newest commit must be confirmed, while no daemon runs.
pub fn let_time_pass(router: &Router, left: u64) {
    let_time_pass_at(&router.file("00000002.conf"), left);
}

/// The same of the commit in a file.
pub fn let_time_pass_at(file: &Path, left: u64) {
    let text = std::fs::read_to_string(file).expect("it is there");
    let (header, lines) = text.split_once('\n').expect("a line");
    let (_, json) = header.strip_prefix("# ").and_then(|header| header.split_once(' ')).expect("a header");
    let mut header: Value = serde_json::from_str(json).expect("JSON");
    header["confirm"]["deadline"] = json!(since_boot() + left);
    let json = header.to_string();
    std::fs::write(file, format!("# {} {json}\n{lines}", digest(json.as_bytes()))).expect("it is ours");
}

#[test]
fn after_a_kill_a_commit_is_still_undone_unless_it_is_confirmed() {
    for point in &POINTS[counts_from()..] {
        let Some(mut router) = Router::new() else { return };
        commit_killed_at(&mut router, point, Some(1));
        router.start();
        assert!(is_new(&router), "{point}");
        assert!(router.get("configuration")["confirm"].is_object(), "{point}");
        stop(&mut router, Signal::KILL);
        let_time_pass(&router, 0);
        router.start();
        assert!(!is_new(&router), "{point}: also while no daemon ran");
    }
}

#[test]
fn a_commit_is_undone_although_the_daemon_is_killed_meanwhile() {
    // What undoes begins no commit.
    for point in POINTS.iter().filter(|point| **point != "commit-begun") {
        let Some(mut router) = Router::new() else { return };
        let mut request = router.request(&changes().each_ref().map(String::as_str));
        request["confirm_minutes"] = json!(1);
        assert_eq!(router.post("configuration/commit", &request).0, 200);
        stop(&mut router, Signal::KILL);
        let_time_pass(&router, 3);
        start_with(&mut router, point);
        router.ended();
        router.start();
        wait_until(PATIENCE, || router.get("configuration")["confirm"].is_null()).expect("it is undone");
        assert!(!is_new(&router), "{point}");
    }
}

#[test]
fn a_commit_during_which_the_daemon_is_stopped_is_in_force_or_not() {
    for (index, point) in POINTS.iter().enumerate() {
        let Some(mut router) = Router::new() else { return };
        stop(&mut router, Signal::TERM);
        start_with(&mut router, &format!("term:{point}"));
        let changes = changes();
        let mut edits: Vec<&str> = changes.iter().map(String::as_str).collect();
        edits.push("set system open-at-exit");
        let request = router.request(&edits);
        let answer = router.asked("POST", "configuration/commit", Some(&request));
        router.ended();
        let process = router.site.process.expect("it was started");
        assert!(router.lab.ended(process).is_some_and(|status| status.success()), "{point}");
        assert!(!router.file("pending").exists(), "{point}");
        router.start();
        let is_new = is_new(&router);
        assert!(is_new || index < counts_from(), "{point}");
        // An answer is true; none says nothing.
        match answer {
            Some((200, _)) => assert!(is_new, "{point}"),
            Some((status, answer)) => assert!(!is_new && status == 503, "{point}: {status}: {answer}"),
            None => {}
        }
    }
}
