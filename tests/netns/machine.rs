//! What other programs of the machine do for the configuration: their files are below a folder in place of `/`, and real
//! programs read them.

use crate::support::{PATIENCE, lab, postern, skip};
use gateway::machine::helper::{Helper, Place, Rules};
use lab::postern::Postern;
use lab::{Lab, Process, has_program, run, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// What waits is looked at every 15 seconds.
const LOOKED_AT: Duration = Duration::from_secs(60);

/// The lines of the guide that are about the machine.
const LINES: &str = include_str!("../interop/guide/machine.set");
const CRON: &str = "etc/cron.d/postern";
const SNMP: &str = "etc/snmp/postern/snmpd.conf";
const SYSLOG: &str = "etc/rsyslog.d/postern.conf";
const BACKLOG: &str = "proc/sys/net/core/netdev_max_backlog";

/// The files of a machine.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let root = Self(tempfile::tempdir().expect("a folder"));
        root.write(BACKLOG, "1000", 0o644);
        root
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let at = self.at(path);
        fs::create_dir_all(at.parent().expect("a folder")).expect("a folder");
        fs::write(&at, text).expect("a file");
        fs::set_permissions(&at, Permissions::from_mode(mode)).expect("it is ours");
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.at(path)).ok()
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
        let folder = root.0.path().display().to_string();
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

    /// Its children: the helper.
    fn children(&self) -> Vec<u32> {
        let id = self.process.id();
        let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
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
    let helper = PathBuf::from(format!("/proc/{}", children[0]));
    let is_gone = || fs::read_to_string(helper.join("stat")).map_or(true, |stat| stat.contains(") Z "));
    gateway.wait("the helper ends with the daemon", is_gone);
    assert!(gateway.root.read(SNMP).is_some(), "it is the machine's");
    assert_eq!(gateway.root.read(BACKLOG).as_deref(), Some("16384"));
    // The next daemon of that configuration knows what is its own, and what was before.
    gateway.gateway.write("set system allow-empty\n");
    let folder = gateway.root.0.path().display().to_string();
    let verb = ["run", "--user", "nobody", "--machine-root", &folder];
    gateway.gateway.start_with(&mut gateway.lab, &verb, "info", PATIENCE).expect("it starts");
    assert_eq!((gateway.root.read(SNMP), gateway.root.read(SYSLOG)), (None, None));
    assert_eq!(gateway.root.read(BACKLOG).as_deref(), Some("1000"));
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

/// A program that was fetched for the tests, started by its own loader; none if it is not there.
fn peer(program: &str) -> Option<String> {
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/machine");
    let [loader, libraries, program] =
        ["lib/loader", "lib", &format!("bin/{program}")].map(|it| peers.join(it));
    if !program.exists() {
        skip("there is no .peers/machine");
        return None;
    }
    Some(format!("{} --library-path {} {}", loader.display(), libraries.display(), program.display()))
}

/// A process of a test, which ends with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn start(command: &mut Command) -> Running {
    Running(
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"),
    )
}

/// Has a helper apply lines to a part, and returns its answer.
fn apply(root: &Root, part: &str, lines: &str) -> Value {
    let rules = Rules { scripts: vec!["/config/scripts".into()] };
    let helper = Helper::new(Place::new(root.0.path().to_owned()), rules);
    let request =
        json!({ "verb": "apply", "part": part, "lines": lines, "owner": "/etc/postern/postern.conf" });
    serde_json::to_value(helper.answer(request.to_string().as_bytes())).expect("it is JSON")
}

#[test]
fn snmpd_answers_whom_the_configuration_names() {
    let Some(mut lab) = lab(&["a"]) else { return };
    let (Some(snmpd), Some(snmpget)) = (peer("snmpd"), peer("snmpget")) else { return };
    lab.ip("a", "address add 10.7.7.7/32 dev lo").expect("lo is there");
    let root = Root::new();
    let lines = "set service snmp community public network 10.0.0.0/8\n\
                 set service snmp community writes authorization rw\n\
                 set service snmp community writes client 10.7.7.7\n\
                 set service snmp contact 'a \"b\" # c'\n\
                 set service snmp location Berlin\n\
                 set service snmp listen-address 10.7.7.7 port 1161\n\
                 set service snmp listen-address 127.0.0.1\n\
                 set service snmp trap-source 10.7.7.7\n\
                 set service snmp trap-target 10.7.7.7 port 1162";
    assert_eq!(apply(&root, "service snmp", lines)["refused"], Value::Null);
    let traps = lab.enter("a", || UdpSocket::bind("10.7.7.7:1162")).expect("it is there").expect("free");
    traps.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let folder = root.at("etc/snmp/postern").display().to_string();
    let in_namespace = |lab: &Lab, command: &str| {
        let mut words = lab.command("a", "sh");
        words.args(["-c", &format!("exec {command}")]).env("MIBS", "").env("SNMPCONFPATH", &folder);
        words
    };
    let pid = root.at("pid").display().to_string();
    let log = root.at("log");
    let mut command =
        in_namespace(&lab, &format!("{snmpd} -f -LOw -I -smux,mteTrigger,mteTriggerConf -p {pid}"));
    command.stdout(fs::File::create(&log).expect("a file")).stderr(Stdio::null());
    lab.start(&mut command).expect("it starts");
    let get = |community: &str, to: &str, object: &str| {
        let words = format!("{snmpget} -v2c -t 1 -r 0 -Oqv -c {community} {to} {object}");
        let output = in_namespace(&lab, &words).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let (contact, location) = (".1.3.6.1.2.1.1.4.0", ".1.3.6.1.2.1.1.6.0");
    wait_until(PATIENCE, || get("public", "10.7.7.7:1161", location).0)
        .unwrap_or_else(|error| panic!("{error}: {:?}", root.read("log")));
    assert_eq!(get("public", "10.7.7.7:1161", contact).1, r#""a \"b\" # c""#);
    assert_eq!(get("writes", "10.7.7.7:1161", location), (true, "\"Berlin\"".to_owned()));
    assert!(!get("public", "127.0.0.1:161", location).0, "it asks from elsewhere");
    assert!(!get("other", "10.7.7.7:1161", location).0);
    // What runs programs cannot be reached by those who may write.
    assert!(get("writes", "10.7.7.7:1161", ".1.3.6.1.4.1.8072.1.3.2.1.0").1.starts_with("No Such Object"));
    let (_, from) = traps.recv_from(&mut [0; 1500]).expect("it has told that it was started");
    assert_eq!(from.ip().to_string(), "10.7.7.7");
    let said = root.read("log").unwrap_or_default();
    let wrong: Vec<&str> = said.lines().filter(|line| line.contains("snmpd.conf")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A machine with rsyslog, and the configuration of one that listens on a socket of its own.
fn with_rsyslog(rsyslogd: &str) -> (Root, String) {
    let root = Root::new();
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/machine/modules");
    let program = format!("{rsyslogd} -M {}", modules.display());
    root.write("usr/sbin/rsyslogd", &format!("#!/bin/sh\nexec {program} \"$@\"\n"), 0o755);
    let folder = root.0.path().display();
    let main = format!(
        "module(load=\"imuxsock\" SysSock.Use=\"off\")\ninput(type=\"imuxsock\" Socket=\"{folder}/socket\")\n\
         $IncludeConfig {folder}/included/*.conf\n"
    );
    root.write("main.conf", &main, 0o644);
    (root, program)
}

#[test]
fn rsyslogd_logs_and_sends_what_the_configuration_says() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to give a file to the group adm");
    }
    let Some(rsyslogd) = peer("rsyslogd") else { return };
    let (root, program) = with_rsyslog(&rsyslogd);
    let remote = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    remote.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let lines = format!(
        "set system syslog global facility all level info\n\
         set system syslog global facility security level warning\n\
         set system syslog file vpn.log facility local7 level debug\n\
         set system syslog user root facility kern level emerg\n\
         set system syslog console facility kern level emerg\n\
         set system syslog marker interval 600\n\
         set system syslog preserve-fqdn\n\
         set system syslog remote 127.0.0.1 facility auth level all\n\
         set system syslog remote 127.0.0.1 format include-timezone\n\
         set system syslog remote 127.0.0.1 port {}\n\
         set system syslog remote log.example.org facility all level err\n\
         set system syslog remote log.example.org protocol tcp\n\
         set system syslog remote log.example.org format octet-counted",
        remote.local_addr().expect("bound").port()
    );
    let answer = apply(&root, "system syslog", &lines);
    assert_eq!(answer["refused"], Value::Null, "rsyslogd itself has read it");
    let text = root.read(SYSLOG).expect("written");
    let here = text.replace("/var/log/", &format!("{}/log/", root.0.path().display()));
    root.write("included/postern.conf", &here, 0o644);
    let main = root.at("main.conf").display().to_string();
    let started = format!("exec {program} -n -iNONE -f {main}");
    let _running = start(Command::new("sh").args(["-c", &started]));
    let socket = UnixDatagram::unbound().expect("a socket");
    wait_until(PATIENCE, || socket.connect(root.at("socket")).is_ok()).expect("it listens");
    // Facility and level in one number, as in RFC 3164: auth is 4, user 1, local7 23.
    for (priority, what) in [
        (38, "auth info"),
        (36, "auth warning"),
        (14, "user info"),
        (15, "user debug"),
        (191, "local7 debug"),
    ] {
        socket.send(format!("<{priority}>test: says {what}").as_bytes()).expect("it listens");
    }
    wait_until(PATIENCE, || {
        root.read("log/messages").is_some_and(|text| text.contains("says user info"))
            && root.read("log/user/vpn.log").is_some_and(|text| text.contains("says local7 debug"))
    })
    .unwrap_or_else(|error| panic!("{error}: {:?}", root.read("log/messages")));
    let logged = root.read("log/messages").expect("it is there");
    assert!(logged.contains("says auth warning"), "{logged}");
    assert!(!logged.contains("auth info") && !logged.contains("debug"), "{logged}");
    for what in ["auth info", "auth warning"] {
        let mut buffer = [0; 1500];
        let length = remote.recv(&mut buffer).expect("it was sent");
        let sent = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert!(sent.contains(what) && sent.starts_with('<') && sent.contains(">1 2"), "{sent}");
    }
}

#[test]
fn systemd_reads_the_units_and_the_times_of_tasks() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to own the program of a task");
    }
    if !has_program("systemd-analyze") {
        return skip("systemd-analyze is not there");
    }
    let root = Root::new();
    root.write(
        "usr/bin/systemctl",
        &format!("#!/bin/sh\necho \"$@\" >> {}/calls\n", root.0.path().display()),
        0o755,
    );
    fs::create_dir_all(root.at("run/systemd/system")).expect("a folder");
    root.write("config/scripts/a.sh", "#!/bin/sh\n", 0o755);
    let task = "set system task-scheduler task a";
    let lines = format!(
        "{task} executable path /config/scripts/a.sh\n{task} executable arguments \"'a b' 100% $HOME \\\\ c;d\"\n\
         {task} crontab-spec '*/20 4 13 * fri'\n"
    );
    assert_eq!(apply(&root, "system task-scheduler", &lines)["refused"], Value::Null);
    let calls = root.read("calls").expect("called");
    assert_eq!(calls, "daemon-reload\nenable postern-task-a.timer\nrestart postern-task-a.timer\n");
    let service = root.read("etc/systemd/system/postern-task-a.service").expect("written");
    assert!(
        service.contains(r#"ExecStart="/config/scripts/a.sh" "a b" "100%%" "$$HOME" "\\\\" "c;d""#),
        "{service}"
    );
    root.write(
        "verified/postern-task-a.service",
        &service.replace("/config/scripts/a.sh", "/usr/bin/true"),
        0o644,
    );
    let timer = root.read("etc/systemd/system/postern-task-a.timer").expect("written");
    root.write("verified/postern-task-a.timer", &timer, 0o644);
    for unit in ["postern-task-a.service", "postern-task-a.timer"] {
        let unit = root.at("verified").join(unit).display().to_string();
        run("systemd-analyze", ["verify", "--man=no", &unit])
            .unwrap_or_else(|error| panic!("{error}: {service}{timer}"));
    }
    let calendars: Vec<&str> = timer.lines().filter_map(|line| line.strip_prefix("OnCalendar=")).collect();
    assert_eq!(calendars, ["*-*-13 4:0,20,40:00", "Fri *-*-* 4:0,20,40:00"], "either day is enough for cron");
    for calendar in calendars {
        run("systemd-analyze", ["calendar", calendar]).unwrap_or_else(|error| panic!("{calendar}: {error}"));
    }
    root.write("calls", "", 0o644);
    assert_eq!(apply(&root, "system task-scheduler", "")["refused"], Value::Null);
    assert_eq!(root.read("calls").as_deref(), Some("disable --now postern-task-a.timer\ndaemon-reload\n"));
    assert_eq!(root.read("etc/systemd/system/postern-task-a.timer"), None);
}
