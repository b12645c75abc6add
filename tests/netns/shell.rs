//! `postern configure` and `postern shell` with a running daemon: from pipes, scripts and a terminal.

mod guide;
mod scripts;
mod terminal;

use crate::support::postern;
use crate::transactions::Router;
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The output of a command, whose exit status must be this one.
pub fn said(output: &Output, status: i32) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert_eq!(output.status.code(), Some(status), "{text}");
    text
}

/// The command line of the program with these words, and the socket of the daemon.
pub fn program(router: &Router, words: &[&str]) -> Command {
    let mut command = Command::new(postern());
    command.args(words).arg("--api").arg(&router.site.socket).env_remove("SUDO_USER");
    command
}

/// Carries out commands that come from a pipe.
pub fn piped(router: &Router, words: &[&str], commands: &str) -> Output {
    let mut command = program(router, words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

fn configured(router: &Router, commands: &str, status: i32) -> String {
    said(&piped(router, &["configure"], commands), status)
}

#[test]
fn commands_from_a_pipe_commit_save_and_go_back() {
    let Some(mut router) = Router::new() else { return };
    let text = configured(
        &router,
        "configure\n# the office\nedit interfaces wireguard wg0\nset mtu 1300\ncompare\ntop\n\
         commit comment 'a smaller MTU'\nsave\nexit\n",
        0,
    );
    let file = router.site.file.display().to_string();
    assert_eq!(
        text,
        format!("[edit interfaces wireguard wg0]\n+mtu 1300\nSaving configuration to '{file}'...\nDone\n")
    );
    assert_eq!(router.mtu(), 1300);
    assert!(std::fs::read_to_string(&file).expect("saved").contains("wg0 mtu 1300\n"));
    let listed = said(&program(&router, &["show", "system", "commit"]).output().expect("it runs"), 0);
    assert!(
        listed.starts_with("0   20") && listed.contains(" by root via cli\n    a smaller MTU\n"),
        "{listed}"
    );
    let text = configured(&router, "rollback 1\ncommit\nrun show configuration | match mtu | count\n", 0);
    assert!(text.starts_with("[edit interfaces wireguard wg0]\n-mtu 1300\n"), "{text}");
    assert!(text.ends_with("\n0\n"), "{text}");
    assert_ne!(router.mtu(), 1300);
    // What was committed and not saved is in force after a crash.
    router.crash();
    assert_ne!(router.mtu(), 1300);
    let text = configured(&router, "compare saved\ncompare 1 0\n", 0);
    assert_eq!(text, "[edit interfaces wireguard wg0]\n-mtu 1300\n".repeat(2));
}

#[test]
fn the_first_error_ends_what_comes_from_a_pipe_and_the_status_tells() {
    let Some(router) = Router::new() else { return };
    let text = configured(
        &router,
        "set interfaces wireguard wg0 mtu 1300\nset interfaces wireguard wg0 mtu 1\ncommit\n",
        1,
    );
    assert!(text.contains("standard input:2: ") && text.contains("Value validation failed"), "{text}");
    assert!(text.contains("not committed"), "{text}");
    assert_ne!(router.mtu(), 1300);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("commands");
    std::fs::write(&file, "set frob\nset interfaces wireguard wg0 mtu 1300\ncommit\n").expect("ours");
    let words = ["configure", "--keep-going", "--commands", file.to_str().expect("text")];
    let text = said(&program(&router, &words).output().expect("it runs"), 1);
    assert!(
        text.contains(&format!("{}:1: Configuration path: [frob] is not valid", file.display())),
        "{text}"
    );
    assert_eq!(router.mtu(), 1300, "the rest was carried out");
    let words = ["configure", "-c", "delete interfaces wireguard wg0 mtu", "-c", "commit"];
    said(&program(&router, &words).output().expect("it runs"), 0);
    assert_ne!(router.mtu(), 1300);
    let nowhere =
        Command::new(postern()).args(["configure", "-c", "show", "--api", "/nonexistent/a.sock"]).output();
    assert!(said(&nowhere.expect("it runs"), 2).contains("no daemon answers"));
}

#[test]
fn a_refused_commit_tells_all_errors_and_changes_nothing() {
    let Some(router) = Router::new() else { return };
    let before = router.text();
    let text = configured(
        &router,
        "set interfaces wireguard wg0 mtu 1300\nset vpn ipsec site-to-site peer a ike-group HOME\n\
         set vpn ipsec site-to-site peer b ike-group AWAY\ncommit\n",
        1,
    );
    assert!(text.contains("HOME") && text.contains("AWAY") && text.contains("Commit failed"), "{text}");
    assert_eq!(router.text(), before);
}

#[test]
fn two_sessions_lose_nothing_and_a_conflict_is_named() {
    let Some(router) = Router::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let session = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (one, other) = (session("one"), session("other"));
    let run = |words: &[&str], status| said(&program(&router, words).output().expect("it runs"), status);
    for file in [&one, &other] {
        run(&["configure", "--begin", "--session", file], 0);
    }
    run(&["configure", "--session", &one, "-c", "set interfaces wireguard wg0 mtu 1300", "-c", "commit"], 0);
    run(
        &[
            "configure",
            "--session",
            &other,
            "-c",
            "set interfaces wireguard wg0 description office",
            "-c",
            "commit",
        ],
        0,
    );
    assert!(router.text().contains("mtu 1300") && router.text().contains("description office"));
    run(&["configure", "--session", &one, "-c", "set interfaces wireguard wg0 mtu 1310"], 0);
    run(
        &["configure", "--session", &other, "-c", "set interfaces wireguard wg0 mtu 1320", "-c", "commit"],
        0,
    );
    let text = run(&["configure", "--session", &one, "-c", "commit"], 1);
    assert!(text.contains("[interfaces wireguard wg0 mtu]") && text.contains("1320"), "{text}");
    assert!(text.contains("Commit failed"), "{text}");
    assert_eq!(router.mtu(), 1320);
}

#[test]
fn a_shell_takes_operational_commands_and_programs() {
    let Some(router) = Router::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().display();
    let commands = format!(
        "sh conf com | match 'wg0 address'\nshow configuration | commands | grep -c .\n\
         cat > {place}/a.sh << 'EOF'\n#!/bin/bash\nshow configuration commands | grep address\nEOF\n\
         bash {place}/a.sh | wc -l\nconfigure\nset interfaces wireguard wg0 mtu 1300\ncommit\n\
         save {place}/backup-$(echo 7).boot\nexit\nfor i in 1 2; do\necho $i\ndone\nshow configuration | json | grep mtu\n"
    );
    let text = said(&piped(&router, &["shell"], &commands), 0);
    assert!(text.starts_with("set interfaces wireguard wg0 address") && text.contains("1\n2\n"), "{text}");
    assert!(text.contains("\"mtu\": \"1300\""), "{text}");
    let saved = std::fs::read_to_string(folder.path().join("backup-7.boot")).expect("saved");
    assert!(saved.starts_with("interfaces {\n") && saved.contains("mtu \"1300\""), "{saved}");
    assert!(text.contains("Warning: configuration changes have not been saved."), "{text}");
}

#[test]
fn commands_of_a_session_are_refused_before_it_and_the_shell_is_forgiving_within() {
    let Some(router) = Router::new() else { return };
    let shell = |commands: &str, status| said(&piped(&router, &["shell", "--keep-going"], commands), status);
    let text = shell(
        "set interfaces wireguard wg0 mtu 1300\ncommit\nre vpn\nfrobnicate\nadd system image <URL>\n",
        1,
    );
    for part in [
        "1: Invalid command: [set]\n  fix: type configure first",
        "2: Invalid command: [commit]\n",
        "3: Ambiguous command: [re]\n  fix: write one of reload, ",
        "4: Invalid command: [frobnicate]\n",
        "5: `add system image` is not a command of postern\n  fix: upgrade",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(shell("run show version kernel | grep -c .\n", 0).ends_with("1\n"));
    // Without run, and with an operational show, within a session.
    let text = shell(
        "configure\nX=it bash -c 'echo $X is $((40 + 2))'\nshow version kernel | count\ntop\nshow interfaces\nexit\n",
        0,
    );
    assert!(text.starts_with("it is 42\n1\n") && text.contains(" wireguard wg0 {\n"), "{text}");
}

#[test]
fn a_comment_is_committed_saved_and_there_after_a_restart() {
    let Some(mut router) = Router::new() else { return };
    configured(&router, "comment interfaces wireguard wg0 'to the office'\ncommit\nsave\n", 0);
    let line = "comment interfaces wireguard wg0 'to the office'\n";
    assert!(router.text().contains(line), "{}", router.text());
    assert!(std::fs::read_to_string(&router.site.file).expect("saved").contains(line));
    router.crash();
    let text = configured(&router, "show interfaces\nrun show system commit diff 0\n", 0);
    assert!(text.starts_with(" /* to the office */\n wireguard wg0 {\n"), "{text}");
    assert!(text.contains("+/* to the office */\n"), "{text}");
    configured(&router, "comment interfaces wireguard wg0 ''\ncommit\n", 0);
    assert!(!router.text().contains("comment"), "{}", router.text());
}

#[test]
fn a_reader_that_goes_is_no_failure() {
    let Some(router) = Router::new() else { return };
    let mut command = program(&router, &["configure"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    let commands = "show\nset interfaces wireguard wg0 mtu 1300\ncommit\nshow\n";
    child.stdin.take().expect("a pipe").write_all(commands.as_bytes()).expect("it reads");
    assert_eq!(said(&child.wait_with_output().expect("it ends"), 0), "");
    assert_eq!(router.mtu(), 1300, "what follows is carried out");
}
