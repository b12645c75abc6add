//! What other programs of the machine do for the configuration: their files are below a folder in place of `/`, and real
//! programs read them.

mod guide;
mod lan;
mod programs;
mod snmp;
mod snmp_service;

use crate::support::{PATIENCE, lab, postern};
use lab::files::Files;
use lab::postern::Postern;
use lab::{Lab, Process, wait_until};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// What waits is looked at every 15 seconds.
const LOOKED_AT: Duration = Duration::from_secs(60);

/// The lines of the guide that are about the machine.
const LINES: &str = include_str!("../interop/guide/machine.set");
const CRON: &str = "etc/cron.d/postern";
const SNMP: &str = "etc/snmp/postern/snmpd.conf";
const SYSLOG: &str = "etc/rsyslog.d/postern.conf";
const BACKLOG: &str = "proc/sys/net/core/netdev_max_backlog";

/// The files of a machine.
struct Root(Files);

impl Root {
    fn new() -> Self {
        let root = Self(Files::default());
        root.write(BACKLOG, "1000", 0o644);
        root
    }
}

impl Deref for Root {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.0
    }
}

/// A daemon that root has started, and that has become another user.
struct Site {
    lab: Lab,
    gateway: Postern,
    process: Process,
    root: Root,
}

impl Site {
    fn start(text: &str, more: &[&str]) -> Option<Self> {
        let mut lab = lab(&["a"])?;
        let root = Root::new();
        let mut gateway = Postern::new(&lab, "a", postern()).expect("a folder");
        fs::set_permissions(gateway.folder(), Permissions::from_mode(0o755)).expect("it is ours");
        gateway.write(text);
        let folder = root.path().display().to_string();
        let verb = [&["run", "--user", "nobody", "--machine-root", &folder][..], more].concat();
        let process = gateway.start_with(&mut lab, &verb, "info", PATIENCE).expect("it starts");
        Some(Self { lab, gateway, process, root })
    }

    fn reload(&self, text: &str) -> (bool, String) {
        self.gateway.write(text);
        let output = self.ask(&["reload"]);
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    }

    fn ask(&self, words: &[&str]) -> std::process::Output {
        Command::new(postern()).args(words).arg("--api").arg(&self.gateway.socket).output().expect("it runs")
    }

    fn show(&self, words: &[&str]) -> String {
        let output = self.ask(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn wait(&self, what: &str, is: impl Fn() -> bool) {
        wait_until(LOOKED_AT, is)
            .unwrap_or_else(|error| panic!("{what}: {error}: {}", self.gateway.logged()));
    }

    /// The helpers among its children.
    fn children(&self) -> Vec<u32> {
        let id = self.process.id();
        let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        let is_helper = |child: &u32| {
            let line = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            line.contains("machine-helper")
        };
        text.split_whitespace().filter_map(|child| child.parse().ok()).filter(is_helper).collect()
    }
}

#[test]
fn the_lines_of_the_guide_take_effect_and_go_again() {
    let Some(gateway) = Site::start(LINES, &[]) else { return };
    let root = &gateway.root;
    // Nothing is installed on this machine, and the program of the task is written later.
    let log = gateway.gateway.logged();
    for said in [
        "service snmp community: snmpd is not installed\n  fix: apt-get install snmpd",
        "there is no rsyslog\n  fix: apt-get install rsyslog",
        "there is neither cron nor systemd\n  fix: apt-get install cron",
    ] {
        assert!(log.contains(said), "{said}: {log}");
    }
    assert!(root.read(SNMP).is_some_and(|text| text.contains("\nrocommunity public 10.0.0.0/8 ")));
    assert!(root.read(SYSLOG).is_some_and(|text| text.contains("\n*.info;auth.none;auth.warning ")));
    assert_eq!((root.read(BACKLOG).as_deref(), root.read(CRON)), (Some("16384"), None));
    let shown = gateway.show(&["show", "system", "option", "performance"]);
    assert!(shown.starts_with("Profile: throughput (in force)\n"), "{shown}");
    let line =
        shown.lines().find(|line| line.starts_with("net.core.netdev_max_backlog")).expect("it is listed");
    assert_eq!(line.split_whitespace().collect::<Vec<_>>()[1..], ["1000", "16384", "16384", "set"]);
    assert!(shown.contains("postern packets in a burst"), "{shown}");
    let shown = gateway.show(&["show", "system", "managed"]);
    assert!(shown.contains("service snmp: waiting\n  file: /etc/snmp/postern/snmpd.conf\n"), "{shown}");

    root.write("usr/sbin/cron", "", 0o755);
    root.write("config/scripts/qat-check.sh", "#!/bin/sh\n", 0o755);
    gateway.wait("the task is run once its program is there", || root.read(CRON).is_some());
    let text = root.read(CRON).expect("written");
    assert!(text.ends_with("\n0 0 */1 * * root '/config/scripts/qat-check.sh'\n"), "{text}");

    // Each line that goes takes its effect with it.
    let (done, said) = gateway.reload("set system allow-empty\nset system option performance latency\n");
    assert!(done, "{said}");
    assert_eq!([root.read(SNMP), root.read(SYSLOG), root.read(CRON)], [None, None, None]);
    assert_eq!(root.read(BACKLOG).as_deref(), Some("1000"));
    let (done, said) = gateway.reload("set system allow-empty\n");
    assert!(done, "{said}");
    assert!(gateway.show(&["show", "system", "option", "performance"]).contains("no profile is set"));
    assert!(gateway.show(&["show", "system", "managed"]).contains("nothing of the machine is configured"));
}

#[test]
fn what_was_done_stays_after_a_crash_and_is_put_right_by_the_next_start() {
    let Some(mut gateway) = Site::start(LINES, &[]) else { return };
    let children = gateway.children();
    assert_eq!(children.len(), 1, "the helper");
    gateway.gateway.signal(Signal::KILL);
    gateway.wait("the helper ends with the daemon", || has_ended(children[0]));
    assert!(gateway.root.read(SNMP).is_some(), "it is the machine's");
    assert_eq!(gateway.root.read(BACKLOG).as_deref(), Some("16384"));
    // The next daemon of that configuration knows what is its own, and what was before.
    gateway.gateway.write("set system allow-empty\n");
    let folder = gateway.root.path().display().to_string();
    let verb = ["run", "--user", "nobody", "--machine-root", &folder];
    gateway.gateway.start_with(&mut gateway.lab, &verb, "info", PATIENCE).expect("it starts");
    assert_eq!((gateway.root.read(SNMP), gateway.root.read(SYSLOG)), (None, None));
    assert_eq!(gateway.root.read(BACKLOG).as_deref(), Some("1000"));
}

#[test]
fn a_program_that_takes_long_keeps_no_order_waiting() {
    let Some(mut gateway) = Site::start("set system allow-empty\n", &[]) else { return };
    let root = gateway.root.path().display().to_string();
    let slow = format!("#!/bin/sh\ntouch {root}/begun\nuntil [ -e {root}/done ]; do sleep 0.1; done\n");
    gateway.root.write("usr/sbin/rsyslogd", &slow, 0o755);
    gateway.root.write("usr/sbin/service", "#!/bin/sh\n", 0o755);
    gateway.root.write("etc/init.d/rsyslog", "", 0o755);
    let text = "set system allow-empty\nset system syslog local facility all level info\n";
    let (done, said) = gateway.reload(text);
    assert!(done && said.contains("system syslog: the programs of the machine take long"), "{said}");
    assert!(gateway.root.at("begun").exists() && !gateway.root.at("done").exists());
    assert!(gateway.show(&["show", "system", "managed"]).starts_with("system syslog: waiting\n"));
    // The next order does not wait for it again, and is carried out meanwhile.
    let begun = Instant::now();
    let (done, said) = gateway.reload(&format!("{text}set system config-management commit-revisions 7\n"));
    assert!(done && !said.contains("take long") && begun.elapsed() < Duration::from_secs(9), "{said}");
    gateway.root.write("done", "", 0o644);
    gateway
        .wait("what comes of it is told", || gateway.gateway.logged().contains("system syslog is in force"));
    assert!(gateway.show(&["show", "system", "managed"]).starts_with("system syslog: in force\n"));
    // Nor does the end of the daemon.
    fs::remove_file(gateway.root.at("done")).expect("it is there");
    fs::remove_file(gateway.root.at("begun")).expect("it is there");
    gateway.gateway.write(&text.replace("info", "debug"));
    gateway.gateway.signal(Signal::HUP);
    gateway.wait("the helper is at it", || gateway.root.at("begun").exists());
    let (process, helper) = (gateway.process, gateway.children());
    gateway.gateway.signal(Signal::TERM);
    wait_until(Duration::from_secs(9), || gateway.lab.ended(process).is_some()).expect("it ends");
    gateway.root.write("done", "", 0o644);
    gateway.wait("the helper ends too", || helper.iter().all(|id| has_ended(*id)));
}

/// Whether a process is gone, or waits only to be asked for its status.
fn has_ended(id: u32) -> bool {
    fs::read_to_string(format!("/proc/{id}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn root_runs_nothing_that_others_can_change_or_choose() {
    let Some(gateway) = Site::start("set system allow-empty\n", &[]) else { return };
    let root = &gateway.root;
    root.write("usr/sbin/cron", "", 0o755);
    let task = |path: &str| {
        format!(
            "set system task-scheduler task a executable path {path}\nset system task-scheduler task a interval 5m\n"
        )
    };
    root.write("config/scripts/right.sh", "#!/bin/sh\n", 0o755);
    assert!(gateway.reload(&task("/config/scripts/right.sh")).0);
    let before = root.read(CRON).expect("written");
    root.write("config/scripts/writable.sh", "#!/bin/sh\n", 0o775);
    root.write("config/scripts/open/a.sh", "#!/bin/sh\n", 0o755);
    fs::set_permissions(root.at("config/scripts/open"), Permissions::from_mode(0o777)).expect("it is ours");
    root.write("config/scripts/foreign.sh", "#!/bin/sh\n", 0o755);
    std::os::unix::fs::chown(root.at("config/scripts/foreign.sh"), Some(65_534), None).expect("we are root");
    root.write("bin/sh", "", 0o755);
    std::os::unix::fs::symlink(root.at("bin/sh"), root.at("config/scripts/link.sh")).expect("a link");
    for (path, said) in [
        ("/config/scripts/writable.sh", "others than root can change /config/scripts/writable.sh"),
        ("/config/scripts/open/a.sh", "others than root can change /config/scripts/open"),
        ("/config/scripts/foreign.sh", "fix: chown root /config/scripts/foreign.sh"),
        ("/config/scripts/link.sh", "tasks run programs in /config/scripts only"),
        ("/bin/sh", "fix: write a script in /config/scripts that calls it"),
    ] {
        let (done, told) = gateway.reload(&task(path));
        assert!(!done && told.contains(said), "{path}: {told}");
        assert_eq!(root.read(CRON).as_ref(), Some(&before), "{path}");
    }
}

#[test]
fn root_runs_only_the_tasks_that_root_has_listed() {
    let Some(gateway) = Site::start("set system allow-empty\n", &["--tasks-from", "/etc/tasks"]) else {
        return;
    };
    let root = &gateway.root;
    root.write("usr/sbin/cron", "", 0o755);
    root.write("config/scripts/a.sh", "#!/bin/sh\n", 0o755);
    let task = |name: &str, arguments: &str| {
        let task = format!("set system task-scheduler task {name}");
        format!(
            "{task} executable path /config/scripts/a.sh\n{task} executable arguments '{arguments}'\n{task} interval 5m\n"
        )
    };
    let (done, told) = gateway.reload(&task("a", "-v secret"));
    assert!(!done && told.contains("/etc/tasks: No such file"), "{told}");
    root.write("etc/tasks", &task("nightly", "-v secret"), 0o666);
    let (done, told) = gateway.reload(&task("a", "-v secret"));
    assert!(!done && told.contains("others than root can change /etc/tasks"), "{told}");
    root.write("etc/tasks", &task("nightly", "-v secret"), 0o600);
    for other in [task("a", "-v other"), task("a", "-v secret").replace("5m", "1m")] {
        let (done, told) = gateway.reload(&other);
        assert!(
            !done && told.contains("fix: root alone writes the lines of the task to /etc/tasks"),
            "{told}"
        );
        assert_eq!(root.read(CRON), None);
    }
    let (done, told) = gateway.reload(&task("a", "-v secret"));
    assert!(done, "{told}");
    assert!(root.read(CRON).is_some_and(|text| text.contains("'-v' 'secret'")));
    let log = gateway.gateway.logged();
    let noted = "root runs the task a: /config/scripts/a.sh with 2 arguments at */5 * * * *";
    assert!(log.contains(noted) && !log.contains("secret"), "{log}");
}

#[test]
fn tasks_and_all_else_can_be_switched_off() {
    let Some(gateway) = Site::start(LINES, &["--no-tasks"]) else { return };
    assert!(gateway.gateway.logged().contains("tasks are switched off on this machine"));
    assert!(gateway.root.read(SNMP).is_some());
    drop(gateway);
    let Some(gateway) = Site::start(LINES, &["--no-machine"]) else { return };
    assert!(gateway.gateway.logged().contains("fix: start the daemon without --no-machine"));
    assert_eq!((gateway.children(), gateway.root.read(SNMP)), (Vec::new(), None));
    assert!(gateway.show(&["show", "system", "managed"]).contains("service snmp: waiting"));
}
