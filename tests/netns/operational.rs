//! Operational commands that go on until they are interrupted, and those about the machine, with real daemons.

use crate::daemon::{Site, lines, started};
use crate::support::{PATIENCE, answers, postern, skip};
use lab::{Lab, has_program, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// A command that goes on, and the lines that it prints.
pub struct Going {
    pub child: Child,
    pub lines: Receiver<String>,
}

impl Going {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("it starts");
        let from = BufReader::new(child.stdout.take().expect("a pipe"));
        let (give, lines) = channel();
        std::thread::spawn(move || from.lines().map_while(Result::ok).try_for_each(|line| give.send(line)));
        Self { child, lines }
    }

    /// The first line that is as wanted.
    pub fn until(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        let (end, mut said) = (Instant::now() + PATIENCE, Vec::new());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no such line: {said:#?}"));
            if is_wanted(&line) {
                return line;
            }
            said.push(line);
        }
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn command(site: &Site, words: &[&str]) -> Command {
    let mut command = Command::new(postern());
    command.args(words).arg("--api").arg(&site.socket);
    command
}

pub fn says(site: &Site, words: &[&str]) -> String {
    let output = command(site, words).output().expect("it runs");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Two sites with packets between them, until the process ends.
pub fn busy() -> Option<(Lab, Site, Site, [String; 2])> {
    let (mut lab, a, b, publics) = started()?;
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    let mut ping = lab.command("a", "ping");
    ping.args(["-i", "0.01", "-s", "1200", "-q", "10.66.0.2"]).stdout(Stdio::null());
    lab.start(&mut ping).expect("it starts");
    Some((lab, a, b, publics))
}

#[test]
fn rates_of_peers_are_lines_without_a_terminal_and_a_screen_on_one() {
    let Some((_lab, a, _b, _)) = busy() else { return };
    let line = Going::start(command(&a, &["monitor", "vpn"])).until(|line| line.contains("kbit/s"));
    let expected = " wireguard wg0 other up in ";
    assert!(line.contains(expected) && !line.contains('\x1b'), "{line}");
    let json = Going::start(command(&a, &["monitor", "vpn", "--json"]));
    let line = json.until(|line| {
        let moment: Value = serde_json::from_str(line).expect("a value a line");
        moment["rates"][0]["received_bits_per_second"].as_f64().is_some_and(|rate| rate > 10_000.0)
    });
    let moment: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&moment["rates"][0]["name"], &moment["rates"][0]["state"]),
        (&"wg0 other".into(), &"up".into())
    );
    if !has_program("script") {
        return skip("script(1) is missing");
    }
    let words = format!("{} monitor vpn --api {}", postern().display(), a.socket.display());
    let mut terminal = Command::new("script");
    terminal.args(["-qfec", &words, "/dev/null"]);
    let terminal = Going::start(terminal);
    let line = terminal.until(|line| line.contains("wg0 other"));
    assert!(line.contains("\x1b[K") && line.contains("wireguard") && line.contains("kbit/s"), "{line:?}");
    terminal.until(|line| line.contains("\x1b[H"));
}

#[test]
fn rates_of_interfaces_are_those_of_the_namespace() {
    let Some((lab, _a, _b, _)) = busy() else { return };
    let words = ["monitor", "bandwidth", "interface", "outside"];
    let mut command = lab.command("a", postern());
    command.args(words);
    let line = Going::start(command).until(|line| line.contains("kbit/s"));
    assert!(line.contains(" ethernet outside up in "), "{line}");
    let list = lab.run("a", &postern().to_string_lossy(), &["show", "interfaces"]).expect("it runs");
    let wg0: Vec<&str> = list.lines().filter(|line| line.starts_with("wg0 ")).collect();
    assert_eq!(wg0, ["wg0              10.66.0.1/24                      u/u"], "{list}");
    assert!(
        list.starts_with("Codes: S - State") && list.contains("\noutside          192.168.77.1/24 "),
        "{list}"
    );
    let one = lab
        .run("a", &postern().to_string_lossy(), &["show", "interfaces", "ethernet", "outside"])
        .expect("it runs");
    assert!(one.contains(" mtu 1500 ") && one.contains("    inet 192.168.77.1/24 "), "{one}");
}

#[test]
fn the_log_of_a_daemon_is_shown_and_followed_without_a_journal() {
    let Some((_lab, a, _b, publics)) = started() else { return };
    for words in [&["show", "log", "vpn", "ipsec"][..], &["show", "log", "ipsec"], &["show", "log", "vpn"]] {
        let said = says(&a, words);
        assert!(said.contains("INFO") && said.contains(" is in force"), "{said}");
    }
    let shown: Value = serde_json::from_str(&says(&a, &["show", "log", "vpn", "--json"])).expect("JSON");
    assert_eq!(shown["source"], "daemon");
    assert!(shown["lines"].as_array().is_some_and(|lines| !lines.is_empty()), "{shown}");
    let following = Going::start(command(&a, &["monitor", "log", "vpn"]));
    following.until(|line| line.contains(" is in force"));
    a.write(&lines(0, &publics[1], &["mtu 1300"]));
    a.signal(Signal::HUP);
    following.until(|line| line.contains("mtu 1300"));
}

#[test]
fn a_command_is_repeated_and_its_changes_shown() {
    let Some((_lab, a, _b, publics)) = started() else { return };
    let whole = Going::start(command(&a, &["monitor", "command", "show interfaces wireguard wg0"]));
    whole.until(|line| line == "  mtu: 1420");
    let changes = Going::start(command(&a, &["monitor", "command", "diff", "show interfaces wireguard wg0"]));
    changes.until(|line| line == "  mtu: 1420");
    a.write(&lines(0, &publics[1], &["mtu 1300"]));
    a.reload();
    whole.until(|line| line == "  mtu: 1300");
    changes.until(|line| line == "  mtu: 1300");
    let all: Vec<String> = changes.lines.try_iter().collect();
    assert!(!all.iter().any(|line| line.starts_with("interface:")), "this did not change: {all:?}");
}

#[test]
fn a_reboot_asks_and_a_script_must_confirm_it() {
    // The only programs that it can find are these: nothing is restarted.
    let folder = tempfile::tempdir().expect("writable");
    let noted = folder.path().join("noted");
    for program in ["systemctl", "reboot"] {
        let path = folder.path().join(program);
        std::fs::write(&path, format!("#!/bin/sh\necho {program} \"$@\" > {}\n", noted.display()))
            .expect("writable");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("ours");
    }
    let reboot = |more: &[&str]| {
        let mut command = Command::new(postern());
        command.args(["reboot", "now"]).args(more).env("PATH", folder.path()).stdin(Stdio::null());
        command.output().expect("it runs")
    };
    let refused = reboot(&[]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("fix: postern reboot now --yes"), "{said}");
    assert!(!noted.exists());
    let output = reboot(&["--yes"]);
    assert!(output.status.success() && output.stdout == b"rebooting\n");
    let noted = std::fs::read_to_string(&noted).expect("the program was called");
    assert!(["systemctl reboot\n", "reboot \n", "reboot\n"].contains(&noted.as_str()), "{noted}");
}
