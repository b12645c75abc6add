//! Scripts of bash with the programs in PATH, and with the template that they source.

use super::said;
use crate::support::{PATIENCE, postern};
use crate::transactions::Router;
use lab::wait_until;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const SOURCE: &str = "source \"$(dirname \"$0\")/script-template\"\n";

/// A router, and a folder with the generated programs and the sessions of scripts.
struct Scripts {
    router: Router,
    folder: TempDir,
}

impl Scripts {
    fn new() -> Option<Self> {
        let this = Self { router: Router::new()?, folder: tempfile::tempdir().expect("a folder") };
        let made = Command::new(postern()).args(["generate", "programs"]).arg(this.programs()).output();
        said(&made.expect("it runs"), 0);
        Some(this)
    }

    fn programs(&self) -> PathBuf {
        self.folder.path().join("programs")
    }

    /// A script with the programs in PATH, as a user would run it.
    fn bash(&self, text: &str) -> Command {
        let programs = self.programs();
        let file = programs.join("script.sh");
        std::fs::write(&file, text).expect("ours");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .arg(&file)
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("POSTERN_API", &self.router.site.socket);
        command
    }

    /// What a script prints that exits with this status.
    fn run(&self, text: &str, status: i32) -> String {
        said(&self.bash(text).output().expect("bash is there"), status)
    }

    /// Whether no folder of a session is left.
    fn is_clean(&self) -> bool {
        let mut found = std::fs::read_dir(self.folder.path()).expect("a folder").flatten();
        found.all(|entry| !entry.file_name().to_string_lossy().starts_with("postern-"))
    }
}

#[test]
fn scripts_of_a_router_run_with_the_programs_in_path() {
    let Some(scripts) = Scripts::new() else { return };
    let text = scripts.run(
        "#!/bin/bash\nSTATUS=$(show configuration commands | grep \"wg0 address\")\necho \" $STATUS\"\n\
         show interfaces wireguard | grep -E \"(wg0|Interface)\"\n",
        0,
    );
    assert!(text.starts_with(" set interfaces wireguard wg0 address") && text.contains("\nwg0 "), "{text}");
    let text = scripts.run(
        "#!/bin/bash\nset -e\nsource \"$(dirname \"$0\")/script-template\"\nconfigure\n\
         set interfaces wireguard wg0 description 'a b'\nedit interfaces wireguard wg0\nset mtu 1300\ntop\ncompare\n\
         commit\nsave\nrun show configuration commands | grep mtu\nexit\necho done\n",
        0,
    );
    assert!(
        text.contains("+description \"a b\"\n+mtu 1300\n") && text.ends_with("mtu 1300\ndone\n"),
        "{text}"
    );
    assert_eq!(scripts.router.mtu(), 1300);
    let text = scripts.run(
        "source \"$(dirname \"$0\")/script-template\"\nset interfaces wireguard wg0 mtu 1310 || echo refused\n",
        0,
    );
    assert!(text.contains("no session of configuration") && text.contains("refused"), "{text}");
}

#[test]
fn a_script_keeps_its_traps_options_and_arguments() {
    let Some(scripts) = Scripts::new() else { return };
    let text = scripts.run(
        &format!(
            "set -eu -o pipefail\ntrap 'echo bye' EXIT\n{SOURCE}set -- one 'two three'\nconfigure\n\
             set interfaces wireguard wg0 description 'two  spaces'\n[ $# = 7 ] && set -- none\necho \"$# $2 $-\"\n\
             compare | grep -c spaces\ncommit\nset interfaces wireguard wg0 mtu 1 || echo wrong\nexit\nexit 3\n"
        ),
        3,
    );
    assert!(text.starts_with("2 two three ehuB\n1\nwrong\n") && text.contains("\nbye\n"), "{text}");
    assert!(text.contains("Value validation failed"), "{text}");
    assert!(scripts.router.text().contains("two  spaces"));
    wait_until(PATIENCE, || scripts.is_clean()).expect("the folder of the session goes with it");
    let text = scripts.run(&format!("set -e\n{SOURCE}configure\nset frob\necho not here\n"), 1);
    assert!(!text.contains("not here"), "{text}");
}

#[test]
fn a_session_ends_with_its_script_however_that_ends() {
    let Some(scripts) = Scripts::new() else { return };
    let text =
        format!("{SOURCE}configure\nset interfaces wireguard wg0 mtu 1300\necho ready\nread -r line\n");
    let mut command = scripts.bash(&text);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bash is there");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it says so");
    assert_eq!((line.as_str(), scripts.is_clean()), ("ready\n", false));
    child.kill().expect("ours");
    child.wait().expect("it ends");
    wait_until(PATIENCE, || scripts.is_clean()).expect("nothing is left");
    assert_ne!(scripts.router.mtu(), 1300);
    let mut nowhere = scripts.bash(&format!("{SOURCE}configure || echo no\n"));
    let text = said(&nowhere.env("POSTERN_API", "/nonexistent/a.sock").output().expect("bash is there"), 0);
    assert!(text.contains("no daemon answers at /nonexistent/a.sock") && text.contains("no\n"), "{text}");
    assert!(scripts.is_clean());
}
