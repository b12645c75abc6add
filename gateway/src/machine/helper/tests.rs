//! The helper on a machine below a folder, whose programs note that they were called.

use super::super::model::Setting;
use super::super::request::{Answer, Owner, Verb, Wire};
use super::{Helper, Place, Rules};
use config::settings::machine::Part;
use lab::files::Files;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

const SYSLOG: &str = "set system syslog global facility all level info\n\
                      set system syslog global facility security level warning\n";
const SNMP: &str = "set service snmp community public authorization ro\n\
                    set service snmp community public network 10.0.0.0/8\n";

struct Machine {
    root: Files,
    owner: String,
}

fn request(owner: &str, verb: Verb, part: Part, lines: &str) -> Vec<u8> {
    let wire = Wire { verb, part: part.to_string(), lines: lines.into(), owner: owner.into() };
    serde_json::to_vec(&wire).expect("it is JSON")
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: Files::default(), owner: String::new() };
        let owner = machine.write("owner.conf", "");
        Self { owner, ..machine }
    }

    /// The helper of a daemon.
    fn helper(&self, owner: &str) -> Helper {
        let rules = Rules { scripts: vec!["/config/scripts".into()], tasks_from: None, group: 0 };
        let owner = Owner::new(owner.to_owned()).expect("a path");
        Helper::new(Place::new(self.root.path().to_owned()), rules, owner)
    }

    /// Writes a file; its path.
    fn write(&self, path: &str, text: &str) -> String {
        self.root.write(path, text, 0o644)
    }

    fn read(&self, path: &str) -> Option<String> {
        self.root.read(path)
    }

    /// A program that notes its arguments, and fails if the text is in a file of ours.
    fn program(&self, path: &str, refuses: &str) {
        let (root, name) = (self.root.path().display(), path.rsplit('/').next().expect("a name"));
        let text = format!(
            "#!/bin/sh\necho {name} \"$@\" >> {root}/calls\n\
             if [ -n '{refuses}' ] && grep -rqs '{refuses}' {root}/etc; then echo \"I refuse it\"; exit 1; fi\n"
        );
        let at = self.write(path, &text);
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }

    fn systemd(&self, refuses: &str) {
        self.program("usr/bin/systemctl", refuses);
        fs::create_dir_all(self.root.path().join("run/systemd/system")).expect("a folder");
    }

    /// What was called since this was asked for last.
    fn calls(&self) -> Vec<String> {
        let calls = self.read("calls").unwrap_or_default();
        self.write("calls", "");
        calls.lines().map(str::to_owned).collect()
    }

    /// Asks the helper of a daemon.
    fn ask_as(&self, owner: &str, verb: Verb, part: Part, lines: &str) -> Answer {
        self.helper(owner).answer(&request(owner, verb, part, lines))
    }

    fn apply(&self, part: Part, lines: &str) -> Answer {
        self.ask_as(&self.owner, Verb::Apply, part, lines)
    }

    fn check(&self, part: Part, lines: &str) -> Vec<String> {
        let answer = self.ask_as(&self.owner, Verb::Check, part, lines);
        answer.findings.iter().map(|it| format!("{}: {}; {}", it.path, it.why, it.fix)).collect()
    }
}

#[test]
fn rsyslog_gets_a_file_and_is_restarted_and_loses_it_again() {
    let machine = Machine::new();
    machine.systemd("");
    machine.program("usr/sbin/rsyslogd", "");
    assert!(machine.check(Part::Syslog, SYSLOG).is_empty());
    let answer = machine.apply(Part::Syslog, SYSLOG);
    assert_eq!((answer.refused, answer.findings), (None, Vec::new()));
    assert_eq!(answer.files, ["/etc/rsyslog.d/postern.conf", "/etc/logrotate.d/postern"]);
    let text = machine.read("etc/rsyslog.d/postern.conf").expect("written");
    let head = format!("# Written by Postern for {}: changes are lost.\n", machine.owner);
    assert!(text.starts_with(&head), "{text}");
    assert!(
        text.contains("\n*.info;auth.none;auth.warning action(type=\"omfile\" file=\"/var/log/messages\"")
    );
    let calls = machine.calls();
    assert!(calls.len() == 2 && calls[0].starts_with("rsyslogd -N2 -f"), "{calls:?}");
    assert_eq!(calls[1], "systemctl restart rsyslog");
    // The same again touches nothing.
    assert_eq!(machine.apply(Part::Syslog, SYSLOG).refused, None);
    assert!(machine.calls().is_empty());
    let answer = machine.apply(Part::Syslog, "");
    assert_eq!((answer.refused, answer.files), (None, Vec::new()));
    assert_eq!(machine.read("etc/rsyslog.d/postern.conf"), None);
    assert_eq!(machine.read("etc/logrotate.d/postern"), None);
    assert_eq!(machine.calls(), ["systemctl try-restart rsyslog"]);
}

#[test]
fn what_the_program_refuses_goes_back() {
    for refuses in ["usr/sbin/rsyslogd", "usr/bin/systemctl"] {
        let machine = Machine::new();
        machine.systemd("");
        machine.program("usr/sbin/rsyslogd", "");
        assert_eq!(machine.apply(Part::Syslog, SYSLOG).refused, None);
        let before = machine.read("etc/rsyslog.d/postern.conf");
        machine.program(refuses, "debug");
        let refused = machine.apply(Part::Syslog, &SYSLOG.replace("info", "debug")).refused;
        assert!(refused.as_ref().is_some_and(|it| it.contains("I refuse it")), "{refused:?}");
        assert_eq!(machine.read("etc/rsyslog.d/postern.conf"), before, "{refuses}");
        let left = fs::read_dir(machine.root.at("etc/rsyslog.d")).expect("it is there").count();
        assert_eq!(left, 1, "nothing half written is left");
    }
}

#[test]
fn journald_does_what_it_can_and_the_rest_is_said() {
    let machine = Machine::new();
    assert_eq!(
        machine.check(Part::Syslog, SYSLOG),
        ["system syslog: there is no rsyslog; apt-get install rsyslog"]
    );
    machine.systemd("");
    machine.program("usr/lib/systemd/systemd-journald", "");
    let lines = format!("{SYSLOG}set system syslog host 10.0.0.1 facility all level err\n");
    assert_eq!(
        machine.check(Part::Syslog, &lines),
        [
            "system syslog local facility auth: journald does not tell facilities apart; apt-get install rsyslog",
            "system syslog remote 10.0.0.1: journald sends to no other machine; apt-get install rsyslog",
        ]
    );
    assert_eq!(machine.apply(Part::Syslog, SYSLOG).refused, None);
    let text = machine.read("etc/systemd/journald.conf.d/postern.conf").expect("written");
    assert!(text.ends_with("[Journal]\nMaxLevelStore=info\n"), "{text}");
    assert_eq!(machine.calls(), ["systemctl try-restart systemd-journald"]);
    // Once rsyslog is there, it is used, and journald keeps everything again.
    machine.program("usr/sbin/rsyslogd", "");
    assert_eq!(machine.apply(Part::Syslog, SYSLOG).refused, None);
    assert_eq!(machine.read("etc/systemd/journald.conf.d/postern.conf"), None);
    assert!(machine.read("etc/rsyslog.d/postern.conf").is_some());
}

#[test]
fn snmpd_reads_a_folder_of_ours_while_it_is_configured() {
    let machine = Machine::new();
    assert_eq!(
        machine.check(Part::Snmp, SNMP),
        ["service snmp: snmpd is not installed; apt-get install snmpd"]
    );
    machine.program("usr/sbin/snmpd", "");
    assert!(machine.check(Part::Snmp, SNMP)[0].contains("there is no systemd"));
    machine.systemd("");
    assert!(machine.check(Part::Snmp, SNMP).is_empty());
    assert_eq!(machine.apply(Part::Snmp, SNMP).refused, None);
    let text = machine.read("etc/snmp/postern/snmpd.conf").expect("written");
    assert!(text.contains("\nrocommunity public 10.0.0.0/8 -V postern\n"), "{text}");
    let mode = fs::metadata(machine.root.at("etc/snmp/postern/snmpd.conf")).expect("it is there");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600, "a community is a password");
    let unit = machine.read("etc/systemd/system/snmpd.service.d/postern.conf").expect("written");
    assert!(unit.contains("Environment=SNMPCONFPATH=/etc/snmp/postern\n"), "{unit}");
    assert_eq!(machine.calls(), ["systemctl daemon-reload", "systemctl restart snmpd"]);
    assert_eq!(machine.apply(Part::Snmp, "").refused, None);
    assert_eq!(machine.read("etc/snmp/postern/snmpd.conf"), None);
    assert_eq!(machine.calls(), ["systemctl daemon-reload", "systemctl try-restart snmpd"]);
}

#[test]
fn files_of_others_are_not_touched() {
    let machine = Machine::new();
    let foreign = "# mine\n*.* /dev/null\n";
    machine.write("etc/rsyslog.d/postern.conf", foreign);
    let refused = machine.apply(Part::Syslog, SYSLOG).refused.expect("refused");
    assert!(refused.contains("Postern did not write it\n  fix: move it away"), "{refused}");
    machine.apply(Part::Syslog, "");
    assert_eq!(machine.read("etc/rsyslog.d/postern.conf").as_deref(), Some(foreign));
    // Of another daemon.
    fs::remove_file(machine.root.at("etc/rsyslog.d/postern.conf")).expect("it is there");
    let other = machine.write("other.conf", "");
    assert_eq!(machine.ask_as(&other, Verb::Apply, Part::Syslog, SYSLOG).refused, None);
    let refused = machine.apply(Part::Syslog, SYSLOG).refused.expect("refused");
    assert!(refused.contains(&other) && refused.contains("fix: delete that part there"), "{refused}");
    assert_eq!(machine.apply(Part::Syslog, "").refused, None);
    assert!(machine.read("etc/rsyslog.d/postern.conf").is_some(), "it is theirs");
    // Whose configuration is gone has left it behind.
    fs::remove_file(other).expect("it is there");
    assert_eq!(machine.apply(Part::Syslog, SYSLOG).refused, None);
}

#[test]
fn a_daemon_cannot_ask_for_the_files_of_another_one() {
    let machine = Machine::new();
    let victim = machine.write("victim.conf", "");
    assert_eq!(machine.ask_as(&victim, Verb::Apply, Part::Syslog, SYSLOG).refused, None);
    let text = machine.read("etc/rsyslog.d/postern.conf");
    let ours = machine.helper(&machine.owner);
    for (verb, lines) in [(Verb::Apply, ""), (Verb::Apply, SYSLOG), (Verb::Check, SYSLOG)] {
        let refused = ours.answer(&request(&victim, verb, Part::Syslog, lines)).refused;
        let said = refused.unwrap_or_else(|| panic!("{verb:?} {lines}"));
        assert!(said.contains(&victim) && said.contains("--owner FILE"), "{said}");
    }
    assert_eq!(machine.read("etc/rsyslog.d/postern.conf"), text);
}

#[test]
fn two_helpers_never_change_files_at_the_same_time() {
    let machine = Machine::new();
    let lock = Place::new(machine.root.path().to_owned()).lock().expect("a file");
    let (done, applied) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| done.send(machine.apply(Part::Syslog, SYSLOG).refused));
        assert!(applied.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
        assert_eq!(machine.read("etc/rsyslog.d/postern.conf"), None);
        assert!(
            machine.check(Part::Syslog, SYSLOG)[0].contains("there is no rsyslog"),
            "a question does not wait"
        );
        drop(lock);
        assert_eq!(applied.recv_timeout(Duration::from_secs(30)), Ok(None));
    });
    assert!(machine.read("etc/rsyslog.d/postern.conf").is_some());
}

#[test]
fn files_that_were_removed_come_back_when_another_one_cannot_be() {
    let machine = Machine::new();
    assert_eq!(machine.apply(Part::Syslog, SYSLOG).refused, None);
    let files = ["etc/rsyslog.d/postern.conf", "etc/logrotate.d/postern"];
    let before = files.map(|file| machine.read(file));
    assert!(before.iter().all(Option::is_some));
    let folder = machine.root.at("etc/logrotate.d");
    let set_mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("it is ours");
    set_mode(0o555);
    // Of this thread: without it, permissions count for root too.
    caps::clear(None, caps::CapSet::Effective).expect("a thread may give up rights");
    let refused = machine.apply(Part::Syslog, "").refused;
    set_mode(0o755);
    assert!(refused.is_some_and(|said| said.contains("etc/logrotate.d/postern: Permission denied")));
    assert_eq!(files.map(|file| machine.read(file)), before);
}

#[test]
fn a_service_that_failed_with_new_files_is_started_with_the_old_ones() {
    let machine = Machine::new();
    machine.systemd("10.0.0.0/9");
    machine.program("usr/sbin/snmpd", "");
    assert!(machine.apply(Part::Snmp, &SNMP.replace("/8", "/9")).refused.is_some());
    assert_eq!(machine.read("etc/snmp/postern/snmpd.conf"), None);
    assert_eq!(machine.apply(Part::Snmp, SNMP).refused, None);
    machine.calls();
    assert!(machine.apply(Part::Snmp, &SNMP.replace("/8", "/9")).refused.is_some());
    assert_eq!(
        machine.calls(),
        ["systemctl daemon-reload", "systemctl daemon-reload", "systemctl restart snmpd"]
    );
    assert!(machine.read("etc/snmp/postern/snmpd.conf").is_some_and(|text| text.contains("10.0.0.0/8")));
}

const PERFORMANCE: &str = "set system option performance PROFILE";

impl Machine {
    fn tune(&self, profile: &str) -> Vec<Setting> {
        let lines = if profile.is_empty() { String::new() } else { PERFORMANCE.replace("PROFILE", profile) };
        let answer = self.apply(Part::Performance, &lines);
        assert_eq!(answer.refused, None);
        answer.settings
    }

    fn value(&self, path: &str) -> String {
        self.read(path).unwrap_or_default()
    }
}

const BACKLOG: &str = "proc/sys/net/core/netdev_max_backlog";
const RMEM: &str = "proc/sys/net/core/rmem_max";
const BUSY: &str = "proc/sys/net/core/busy_poll";
const SLEEP: &str = "sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us";
const GOVERNOR: &str = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

#[test]
fn a_profile_is_put_back_when_it_goes() {
    let machine = Machine::new();
    for (path, value) in
        [(BACKLOG, "1000"), (RMEM, "33554432"), (BUSY, "0"), (SLEEP, "0"), (GOVERNOR, "schedutil\n")]
    {
        machine.write(path, value);
    }
    let settings = machine.tune("throughput");
    assert_eq!(
        (machine.value(BACKLOG), machine.value(RMEM)),
        ("16384".into(), "33554432".into()),
        "more is kept"
    );
    assert_eq!((machine.value(BUSY), machine.value(GOVERNOR)), ("0".into(), "performance".into()));
    let of = |name: &str| settings.iter().find(|it| it.name == name).cloned().unwrap_or_default();
    let backlog = of("net.core.netdev_max_backlog");
    assert_eq!((backlog.before.as_deref(), backlog.now.as_deref()), (Some("1000"), Some("16384")));
    assert_eq!(of("cpu0 scaling_governor").before.as_deref(), Some("schedutil"));
    // A setting that the kernel lacks is reported.
    assert_eq!(of("net.core.netdev_budget").problem.as_deref(), Some("this kernel does not have it"));
    // Values that only the first profile sets are restored.
    machine.tune("latency");
    assert_eq!(
        (machine.value(BACKLOG), machine.value(BUSY), machine.value(SLEEP)),
        ("1000".into(), "50".into(), "20".into())
    );
    // Each request is answered by another helper, which knows what was before.
    let settings = machine.tune("latency");
    let busy = settings.iter().find(|it| it.name == "net.core.busy_poll").expect("it is there");
    assert_eq!(busy.before.as_deref(), Some("0"));
    // A value that another program has set since stays.
    machine.write(SLEEP, "100");
    assert!(machine.tune("").is_empty());
    assert_eq!((machine.value(BUSY), machine.value(SLEEP)), ("0".into(), "100".into()));
    assert_eq!(machine.value(GOVERNOR), "schedutil");
    assert_eq!(machine.read("run/postern-machine/performance"), None);
}

#[test]
fn a_value_that_cannot_be_set_is_said_and_keeps_nothing_back() {
    let machine = Machine::new();
    machine.write(BUSY, "0");
    let fixed = machine.root.at("proc/sys/net/core/busy_read");
    std::os::unix::fs::symlink("/proc/sys/kernel/osrelease", &fixed).expect("a link");
    let settings = machine.tune("latency");
    let of = |name: &str| settings.iter().find(|it| it.name == name).cloned().unwrap_or_default();
    assert!(of("net.core.busy_read").problem.is_some(), "{settings:?}");
    assert_eq!((of("net.core.busy_poll").problem, machine.value(BUSY)), (None, "50".into()));
}

#[test]
fn a_connection_ends_with_what_is_no_request() {
    let machine = Machine::new();
    let ask = |requests: &[u8]| {
        let mut answers = Vec::new();
        machine.helper(&machine.owner).serve(requests, &mut answers).expect("memory can be written");
        String::from_utf8(answers).expect("it is JSON")
    };
    assert!(ask(b"{}\n{}\n").lines().all(|line| line.contains("not a request")));
    assert_eq!(ask(b"{}\n{}\n").lines().count(), 2);
    assert_eq!(ask(b"no end of line"), "");
    assert_eq!(ask(&vec![b' '; super::LONGEST + 2]), "");
}

#[test]
fn no_path_leads_out_of_the_root() {
    let place = Place::new("/somewhere".into());
    assert_eq!(place.at("/etc/x"), Path::new("/somewhere/etc/x"));
    assert_eq!(place.named(Path::new("/somewhere/etc/x")), "/etc/x");
    assert_eq!(Place::new("/".into()).named(Path::new("/etc/x")), "/etc/x");
}
