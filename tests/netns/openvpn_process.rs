//! The process of `postern openvpn`: in the background, as another user, with its files and its signals.

use crate::openvpn_ends::{CLIENT_END, Program, SERVER, SERVER_END, configuration, path, start, write_keys};
use crate::support::{PATIENCE, answers, postern, sites_and};
use lab::{Lab, wait_until};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The line that scripts wait for.
const COMPLETED: &str = "Initialization Sequence Completed";

/// A server in the background at `b`; it ends with the test.
struct Daemon {
    lab: Lab,
    files: TempDir,
    id: Pid,
}

impl Daemon {
    /// Starts it with further directives, and waits until its caller is free.
    fn start(more: &str) -> Option<Self> {
        let lab = sites_and(&["c"])?;
        let files = tempfile::tempdir().expect("a directory");
        write_keys(&files);
        let own = format!("daemon\nwritepid pid\nlog daemon.log\n{more}");
        let text = configuration(&files, SERVER_END, &lab.interface("os"), None) + &own;
        std::fs::write(path(&files, "daemon.conf"), text).expect("written");
        let mut command = lab.command("b", postern());
        command.current_dir(files.path()).args(["openvpn", "--config", "daemon.conf"]);
        let started = command.output().expect("it starts");
        assert!(started.status.success() && started.stderr.is_empty(), "{started:?}");
        let id = std::fs::read_to_string(path(&files, "pid")).expect("it was written");
        // Whoever waits for the file can connect at once.
        let bound = lab.run("b", "ss", &["-Hlnu", "sport", "=", ":1194"]).expect("ss is there");
        assert!(bound.contains(":1194"), "{bound}");
        let id = Pid::from_raw(id.trim().parse().expect("a number")).expect("not 0");
        Some(Self { lab, files, id })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(path(&self.files, "daemon.log")).unwrap_or_default()
    }

    /// Waits until the log has a text so many times.
    fn logs(&self, text: &str, times: usize) {
        let found = wait_until(PATIENCE, || self.log().matches(text).count() >= times);
        assert!(found.is_ok(), "{times} times {text}: {}", self.log());
    }

    fn kill(&self, signal: Signal) {
        kill_process(self.id, signal).expect("it runs");
    }

    fn is_running(&self) -> bool {
        test_kill_process(self.id).is_ok()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ended already, if all went well.
        let _ = kill_process(self.id, Signal::KILL);
    }
}

#[test]
fn a_daemon_serves_as_the_user_of_its_file_and_starts_anew_with_its_files() {
    let Some(mut daemon) = Daemon::start(
        "user nobody\ngroup nogroup\nnice 1\necho seen\nstatus status.log 1\nstatus-version 2\n",
    ) else {
        return;
    };
    daemon.logs(COMPLETED, 1);
    assert!(daemon.log().contains("ECHO: seen"), "{}", daemon.log());
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.id.as_raw_nonzero()));
    let status = status.expect("it runs");
    assert!(status.contains("Uid:\t65534\t65534") && status.contains("Gid:\t65534\t65534"), "{status}");

    let client = configuration(&daemon.files, CLIENT_END, &daemon.lab.interface("oc"), None);
    start(&mut daemon.lab, &daemon.files, Program::Ours, CLIENT_END, &client);
    daemon.logs("connected with client client", 1);
    // The client has its addresses a moment later.
    let reached = wait_until(PATIENCE, || answers(&daemon.lab, "a", SERVER));
    assert!(reached.is_ok(), "{}", daemon.log());

    let has_client = || {
        let status = std::fs::read_to_string(path(&daemon.files, "status.log")).unwrap_or_default();
        let of_client = status.lines().find(|line| line.starts_with("CLIENT_LIST,client,192.168.77.1:"));
        of_client.is_some_and(|line| line.ends_with(",AES-256-GCM") && line.contains(",10.9.0.2,fd09::1000,"))
            && status.starts_with("TITLE,OpenVPN 2.6")
            && status.ends_with("\nEND\n")
    };
    assert!(wait_until(PATIENCE, has_client).is_ok(), "{}", daemon.log());

    // A broken file changes nothing.
    let file = path(&daemon.files, "daemon.conf");
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, format!("{text}\nno-such-directive\n")).expect("written");
    daemon.kill(Signal::HUP);
    daemon.logs("the files are refused, and nothing changes", 1);
    assert!(answers(&daemon.lab, "a", SERVER), "{}", daemon.log());

    // The keys are root's: the process reads them again all the same. The process stays.
    std::fs::write(&file, text).expect("written");
    daemon.kill(Signal::HUP);
    daemon.logs(COMPLETED, 2);
    daemon.logs("connected with client client", 2);
    let carries = wait_until(PATIENCE, || answers(&daemon.lab, "a", SERVER));
    assert!(daemon.is_running() && carries.is_ok(), "{}", daemon.log());

    daemon.kill(Signal::USR1);
    daemon.logs("connected with client client", 3);
    daemon.kill(Signal::USR2);
    daemon.logs("HEADER,CLIENT_LIST,Common Name", 1);
    daemon.kill(Signal::TERM);
    assert!(wait_until(PATIENCE, || !daemon.is_running()).is_ok(), "{}", daemon.log());
    assert!(daemon.lab.ip("b", &format!("link show {}", daemon.lab.interface("os"))).is_err());
}

#[test]
fn what_keeps_a_daemon_from_starting_reaches_its_caller() {
    let Some(lab) = sites_and(&[]) else { return };
    let files = tempfile::tempdir().expect("a directory");
    write_keys(&files);
    let run = |more: &str| -> Output {
        let text = configuration(&files, SERVER_END, &lab.interface("os"), None) + more;
        std::fs::write(path(&files, "daemon.conf"), text).expect("written");
        let mut command: Command = lab.command("b", postern());
        command.current_dir(files.path()).args(["openvpn", "daemon.conf"]).output().expect("it starts")
    };
    for (more, reason) in [
        ("daemon\nwritepid missing/pid\n", "writepid missing/pid: "),
        ("daemon\nlog missing/log\n", "log missing/log: "),
        ("daemon\nlog a.log\nuser no-such-user\n", "no user \"no-such-user\""),
        ("log a.log\ngroup no-such-group\n", "no group \"no-such-group\""),
        ("daemon\nshaper 1000\n", "shaper: not served yet"),
    ] {
        let ended = run(more);
        let told = String::from_utf8_lossy(&ended.stderr);
        assert!(told.contains(reason) && told.contains("fix: "), "{more}: {told}");
        assert_eq!(ended.status.code(), Some(1), "{more}");
    }
    // The log is on the standard output, and the reason for the end on standard error.
    let ended = run("echo seen\ndev lo\ndev-type tun\n");
    let [shown, told] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(shown.contains("ECHO: seen") && told.contains("interface lo exists already"), "{shown}{told}");
    let log = std::fs::read_to_string(path(&files, "a.log")).expect("it was made");
    assert!(log.contains("no group \"no-such-group\""), "{log}");
}
