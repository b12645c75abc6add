//! Sessions whose daemon is restarted, runs as another user, or is sent too much; and what they are told.

use super::faults::{start_with, stop};
use super::{Router, mtu};
use crate::shell::{program, said};
use crate::support::PATIENCE;
use lab::wait_until;
use rustix::process::Signal;
use serde_json::json;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;

/// The user and group nobody.
const NOBODY: u32 = 65_534;

#[test]
fn a_session_goes_on_after_its_daemon_was_restarted() {
    let Some(mut router) = Router::new() else { return };
    let file = router.site.folder().join("session").to_string_lossy().into_owned();
    let run = |router: &Router, commands: &[&str], status| {
        let mut words = vec!["configure", "--session", &file];
        words.extend(commands.iter().flat_map(|command| ["-c", *command]));
        said(&program(router, &words).output().expect("it runs"), status)
    };
    said(&program(&router, &["configure", "--begin", "--session", &file]).output().expect("it runs"), 0);
    run(&router, &[&mtu(1300)], 0);
    stop(&mut router, Signal::TERM);
    let text = run(&router, &["commit"], 1);
    assert!(
        text.contains("no daemon answers at ") && text.contains("fix: systemctl start postern"),
        "{text}"
    );
    start_with(&mut router, "applied");
    let text = run(&router, &["commit"], 1);
    assert!(text.contains("the change may be in force, or not") && !text.contains("Commit failed"), "{text}");
    router.ended();
    router.start();
    assert_eq!(router.mtu(), 1420);
    assert_eq!(run(&router, &["compare"], 0), "[edit interfaces wireguard wg0]\n+mtu 1300\n", "it is kept");
    run(&router, &["commit"], 0);
    assert_eq!(router.mtu(), 1300);
}

#[test]
fn a_daemon_of_another_user_commits_and_confirms_as_root_would() {
    let Some(mut router) = Router::new() else { return };
    stop(&mut router, Signal::TERM);
    std::fs::set_permissions(router.site.folder(), Permissions::from_mode(0o755)).expect("it is ours");
    let start = |router: &mut Router| {
        router
            .site
            .start_with(&mut router.lab, &["run", "--user", "nobody"], "info", PATIENCE)
            .unwrap_or_else(|error| panic!("{error}"));
        wait_until(PATIENCE, || router.asked("GET", "configuration", None).is_some()).expect("it answers");
    };
    start(&mut router);
    assert_eq!(router.commits(&[&mtu(1300)]), 2);
    let of = |name: &str| std::fs::metadata(router.file(name)).expect("it is there");
    assert_eq!((of("00000002.conf").uid(), of("00000002.conf").mode() & 0o777), (NOBODY, 0o600));
    let mut request = router.request(&[&mtu(1250)]);
    request["confirm_minutes"] = json!(1);
    assert_eq!(router.post("configuration/commit", &request).0, 200);
    assert_eq!(router.post("configuration/confirm", &json!({ "revision": 3 })).0, 200);
    stop(&mut router, Signal::KILL);
    start(&mut router);
    assert_eq!((router.mtu(), router.revision()), (1250, 3));
    assert!(router.get("configuration")["confirm"].is_null());
    stop(&mut router, Signal::TERM);
    router.start();
    assert_eq!(router.commits(&[&mtu(1200)]), 4, "and root's goes on");
}

/// The status of an answer to a commit of so many bytes, and what it says.
fn sends(router: &Router, body: &str) -> String {
    let mut stream = UnixStream::connect(&router.site.socket).expect("it listens");
    let head = format!(
        "POST /v1/configuration/commit HTTP/1.1\r\nhost: postern\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    // A request that is refused early is not read to the end.
    let _ = stream.write_all(body.as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn a_commit_of_more_than_sixteen_mebibytes_is_refused_with_what_to_do() {
    let Some(router) = Router::new() else { return };
    let of = |edits: usize| {
        let mut request = router.request(&[]);
        request["edits"] = json!(vec![mtu(1300); edits]);
        request.to_string()
    };
    let each = mtu(1300).len() + 3;
    let answer = sends(&router, &of((17 << 20) / each));
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("commit it in parts"), "{answer}");
    assert_eq!((router.mtu(), router.revision()), (1420, 1));
    let answer = sends(&router, &of((4 << 20) / each));
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!((router.mtu(), router.revision()), (1300, 2));
}

#[test]
fn what_is_waited_for_is_told_once() {
    let Some(mut router) = Router::new() else { return };
    stop(&mut router, Signal::TERM);
    let start = |router: &mut Router| {
        let started = router.site.start_with(&mut router.lab, &["run", "--no-machine"], "info", PATIENCE);
        started.unwrap_or_else(|error| panic!("{error}"));
    };
    start(&mut router);
    let warned = |router: &Router, edit: &str| {
        let (status, answer) = router.commit(&[edit]);
        assert_eq!(status, 200, "{answer}");
        answer["warnings"].as_array().expect("a list").len()
    };
    assert_eq!(warned(&router, "set system option performance throughput"), 1);
    assert_eq!(warned(&router, &mtu(1300)), 0, "it was told");
    assert_eq!(warned(&router, "set system option performance latency"), 1, "it is about this change");
    let mut check = router.request(&[&mtu(1310)]);
    check["check_only"] = json!(true);
    assert_eq!(router.post("configuration/commit", &check).1["warnings"], json!([]));
    stop(&mut router, Signal::KILL);
    start(&mut router);
    assert_eq!(warned(&router, &mtu(1250)), 0, "it held before");
    assert_eq!(warned(&router, "delete system option performance"), 0);
    assert_eq!(warned(&router, "set system option performance throughput"), 1, "it is new again");
}

#[test]
fn what_would_end_a_line_or_forge_one_is_refused() {
    let Some(router) = Router::new() else { return };
    let forged = "set interfaces wireguard wg0 description 'a\nset system open-at-exit'";
    let (status, answer) = router.commit(&[forged]);
    assert!(status == 400 && answer["fix"].is_string(), "{answer}");
    for (key, value) in [("user", "root\nrevision 9 is in force"), ("comment", "\u{1b}[2J")] {
        let mut request = router.request(&[&mtu(1300)]);
        request[key] = json!(value);
        assert_eq!(router.post("configuration/commit", &request).0, 400, "{key}");
    }
    assert_eq!(router.revision(), 1);
}
