//! Scripts of bash with the programs in PATH, and with the template that they source.

use super::said;
use crate::support::{PATIENCE, postern};
use crate::transactions::Router;
use lab::wait_until;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = "source \"$(dirname \"$0\")/script-template\"\n";

/// The folder of programs in another one.
fn programs(folder: &Path) -> PathBuf {
    let programs = folder.join("programs");
    let made = Command::new(postern()).args(["generate", "programs"]).arg(&programs).output();
    said(&made.expect("it runs"), 0);
    programs
}

/// A script with the programs in PATH, as a user would run it. Folders of sessions are beside the programs.
fn bash(router: &Router, programs: &Path, text: &str) -> Command {
    let file = programs.join("script.sh");
    std::fs::write(&file, text).expect("ours");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command
        .arg(&file)
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("XDG_RUNTIME_DIR", programs.parent().expect("a folder"))
        .env("POSTERN_API", &router.site.socket);
    command
}

fn script(router: &Router, programs: &Path, text: &str, status: i32) -> String {
    said(&bash(router, programs, text).output().expect("bash is there"), status)
}

/// Whether no folder of a session is left.
fn is_clean(folder: &Path) -> bool {
    let mut found = std::fs::read_dir(folder).expect("a folder").flatten();
    found.all(|entry| !entry.file_name().to_string_lossy().starts_with("postern-"))
}

#[test]
fn scripts_of_a_router_run_with_the_programs_in_path() {
    let Some(router) = Router::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let programs = programs(folder.path());
    let text = script(
        &router,
        &programs,
        "#!/bin/bash\nSTATUS=$(show configuration commands | grep \"wg0 address\")\necho \" $STATUS\"\n\
         show interfaces wireguard | grep -E \"(wg0|Interface)\"\n",
        0,
    );
    assert!(text.starts_with(" set interfaces wireguard wg0 address") && text.contains("\nwg0 "), "{text}");
    let text = script(
        &router,
        &programs,
        "#!/bin/bash\nset -e\nsource \"$(dirname \"$0\")/script-template\"\nconfigure\n\
         set interfaces wireguard wg0 description 'a b'\nedit interfaces wireguard wg0\nset mtu 1300\ntop\ncompare\n\
         commit\nsave\nrun show configuration commands | grep mtu\nexit\necho done\n",
        0,
    );
    assert!(
        text.contains("+description \"a b\"\n+mtu 1300\n") && text.ends_with("mtu 1300\ndone\n"),
        "{text}"
    );
    assert_eq!(router.mtu(), 1300);
    let text = script(
        &router,
        &programs,
        "source \"$(dirname \"$0\")/script-template\"\nset interfaces wireguard wg0 mtu 1310 || echo refused\n",
        0,
    );
    assert!(text.contains("no session of configuration") && text.contains("refused"), "{text}");
}

#[test]
fn a_script_keeps_its_traps_options_and_arguments() {
    let Some(router) = Router::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let programs = programs(folder.path());
    let text = script(
        &router,
        &programs,
        &format!(
            "set -eu -o pipefail\ntrap 'echo bye' EXIT\n{SOURCE}set -- one 'two three'\nconfigure\n\
             set interfaces wireguard wg0 description 'two  spaces'\n[ $# = 7 ] && set -- none\necho \"$# $2 $-\"\n\
             compare | grep -c spaces\ncommit\nset interfaces wireguard wg0 mtu 1 || echo wrong\nexit\nexit 3\n"
        ),
        3,
    );
    assert!(text.starts_with("2 two three ehuB\n1\nwrong\n") && text.contains("\nbye\n"), "{text}");
    assert!(text.contains("Value validation failed"), "{text}");
    assert!(router.text().contains("two  spaces"));
    wait_until(PATIENCE, || is_clean(folder.path())).expect("the folder of the session goes with it");
    let text =
        script(&router, &programs, &format!("set -e\n{SOURCE}configure\nset frob\necho not here\n"), 1);
    assert!(!text.contains("not here"), "{text}");
}

#[test]
fn a_session_ends_with_its_script_however_that_ends() {
    let Some(router) = Router::new() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let programs = programs(folder.path());
    let text =
        format!("{SOURCE}configure\nset interfaces wireguard wg0 mtu 1300\necho ready\nread -r line\n");
    let mut command = bash(&router, &programs, &text);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash is there");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says so");
    assert_eq!((line.as_str(), is_clean(folder.path())), ("ready\n", false));
    child.kill().expect("ours");
    child.wait().expect("it ends");
    wait_until(PATIENCE, || is_clean(folder.path())).expect("nothing is left");
    assert_ne!(router.mtu(), 1300);
    let mut nowhere = bash(&router, &programs, &format!("{SOURCE}configure || echo no\n"));
    let text = said(&nowhere.env("POSTERN_API", "/nonexistent/a.sock").output().expect("bash is there"), 0);
    assert!(text.contains("no daemon answers at /nonexistent/a.sock") && text.contains("no\n"), "{text}");
    assert!(is_clean(folder.path()));
}
