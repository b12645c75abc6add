//! Real programs with the files that the helper writes: snmpd, rsyslogd, cron, systemd.

use super::{CRON, Root, SYSLOG};
use crate::support::{PATIENCE, lab, skip};
use gateway::machine::helper::{Helper, Place, Rules};
use gateway::machine::request::Owner;
use lab::{Lab, has_program, run, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// cron looks at its files each minute, and runs what is due in the next one.
const MINUTES: Duration = Duration::from_secs(180);

/// A program that was fetched for the tests, started by its own loader; none if it is not there.
pub(super) fn peer(program: &str) -> Option<String> {
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
pub(super) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

pub(super) fn start(command: &mut Command) -> Running {
    Running(
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"),
    )
}

/// Has a helper apply lines to a part, and returns its answer.
pub(super) fn apply(root: &Root, part: &str, lines: &str) -> Value {
    let rules = Rules { scripts: vec!["/config/scripts".into()], tasks_from: None, group: 0 };
    let owner = Owner::new("/etc/postern/postern.conf".to_owned()).expect("a path");
    let helper = Helper::new(Place::new(root.path().to_owned()), rules, owner.clone());
    let request = json!({ "verb": "apply", "part": part, "lines": lines, "owner": owner.as_str() });
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
    let folder = root.path().display();
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
    let here = text.replace("/var/log/", &format!("{}/log/", root.path().display()));
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
    let root = with_systemd("");
    let task = "set system task-scheduler task a";
    let lines = format!(
        "{task} executable path /config/scripts/a.sh\n{task} executable arguments \"'a b' 100% $HOME \\\\ c;d\"\n\
         {task} crontab-spec '*/20 4 13 * fri'\n"
    );
    assert_eq!(apply(&root, "system task-scheduler", &lines)["refused"], Value::Null);
    assert_eq!(
        root.calls(),
        ["daemon-reload", "enable postern-task-a.timer", "restart postern-task-a.timer"]
    );
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
    assert_eq!(apply(&root, TASKS, "")["refused"], Value::Null);
    assert_eq!(root.calls(), ["disable --now postern-task-a.timer", "daemon-reload"]);
    assert_eq!(root.read("etc/systemd/system/postern-task-a.timer"), None);
}

/// A root in which cron of `.peers` finds our files, and the programs of this machine.
fn with_cron(root: &Root) -> String {
    root.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n", 0o644);
    root.write("etc/group", "root:x:0:\n", 0o644);
    let permit = ["auth", "account", "session"].map(|what| format!("{what} required pam_permit.so\n"));
    root.write("etc/pam.d/cron", &permit.concat(), 0o644);
    for folder in ["dev", "peers", "root", "run", "tmp", "var/run", "var/spool/cron/crontabs"] {
        fs::create_dir_all(root.at(folder)).expect("a folder");
    }
    for name in ["bin", "sbin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{name}"), root.at(name)).expect("a link");
    }
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.peers/machine");
    let (root, peers) = (root.path().display(), peers.display());
    format!(
        "mount --bind /usr {root}/usr && mount --bind /dev {root}/dev && mount --bind {peers} {root}/peers && \
         exec chroot {root} /peers/lib/loader --library-path /peers/lib /peers/bin/cron -f"
    )
}

#[test]
fn cron_runs_a_task_as_root_with_its_arguments_as_they_stand() {
    let Some(mut lab) = lab(&["a"]) else { return };
    if peer("cron").is_none() {
        return;
    }
    let root = Root::new();
    let script = "#!/bin/sh\n{ id -u; for word in \"$@\"; do printf '<%s>\\n' \"$word\"; done; } > /tmp/new && mv /tmp/new /tmp/ran\n";
    root.write("config/scripts/task.sh", script, 0o755);
    root.write("usr/sbin/cron", "", 0o755);
    let task = "set system task-scheduler task a";
    // What a shell, or cron, would give a meaning.
    let arguments = r#"'a  b' 100% $HOME \\ \% c;id -x '' $(id) `id` # % "it's" 'a"b'"#;
    let lines = format!(
        "{task} executable path /config/scripts/task.sh\n{task} interval 1m\n{task} executable arguments {}\n",
        config::print::quoted(arguments)
    );
    assert_eq!(apply(&root, "system task-scheduler", &lines)["refused"], Value::Null);
    let started = with_cron(&root);
    let mut command = lab.command("a", "unshare");
    command.args(["--mount", "sh", "-c", &started]).stdin(Stdio::null());
    let process = lab.start(&mut command).expect("it starts");
    wait_until(MINUTES, || root.read("tmp/ran").is_some() || lab.ended(process).is_some())
        .unwrap_or_else(|error| panic!("{error}: {:?}", root.read(CRON)));
    let words =
        ["a  b", "100%", "$HOME", r"\\", r"\%", "c;id", "-x", "", "$(id)", "`id`", "#", "%", "it's", "a\"b"];
    let expected: String = words.iter().map(|word| format!("<{word}>\n")).collect();
    assert_eq!(root.read("tmp/ran"), Some(format!("0\n{expected}")));
}

/// A machine of systemd without cron, whose systemctl notes its arguments and fails for some of them.
fn with_systemd(fails: &str) -> Root {
    let root = Root::new();
    let calls = root.at("calls").display().to_string();
    let fails =
        if fails.is_empty() { String::new() } else { format!("case \"$*\" in {fails}) exit 1;; esac\n") };
    root.write("usr/bin/systemctl", &format!("#!/bin/sh\necho \"$@\" >> {calls}\n{fails}"), 0o755);
    fs::create_dir_all(root.at("run/systemd/system")).expect("a folder");
    for name in ["a", "b"] {
        root.write(&format!("config/scripts/{name}.sh"), "#!/bin/sh\n", 0o755);
    }
    root
}

fn task(name: &str) -> String {
    let task = format!("set system task-scheduler task {name}");
    format!("{task} executable path /config/scripts/{name}.sh\n{task} interval 5m\n")
}

impl Root {
    /// What systemctl was called with since this was asked for last.
    fn calls(&self) -> Vec<String> {
        let calls = self.read("calls").unwrap_or_default();
        self.write("calls", "", 0o644);
        calls.lines().map(str::to_owned).collect()
    }
}

const TASKS: &str = "system task-scheduler";

#[test]
fn timers_run_again_when_others_cannot_be_started_in_their_place() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to own the program of a task");
    }
    let root = with_systemd("'restart postern-task-b.timer'");
    assert_eq!(apply(&root, TASKS, &task("a"))["refused"], Value::Null);
    root.calls();
    assert!(apply(&root, TASKS, &task("b"))["refused"].is_string());
    assert_eq!(
        root.calls(),
        [
            "disable --now postern-task-a.timer",
            "daemon-reload",
            "enable postern-task-b.timer",
            "restart postern-task-b.timer",
            "disable --now postern-task-b.timer",
            "daemon-reload",
            "enable postern-task-a.timer",
            "restart postern-task-a.timer",
        ]
    );
    let units = |name: &str| {
        ["service", "timer"]
            .map(|kind| root.at(&format!("etc/systemd/system/postern-task-{name}.{kind}")).exists())
    };
    assert_eq!((units("a"), units("b")), ([true; 2], [false; 2]));
}

#[test]
fn no_task_is_ended_for_files_that_belong_to_others() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to own the program of a task");
    }
    let root = with_systemd("");
    assert_eq!(apply(&root, TASKS, &task("a"))["refused"], Value::Null);
    root.calls();
    root.write("etc/systemd/system/postern-task-b.timer", "[Timer]\nOnCalendar=daily\n", 0o644);
    let refused = apply(&root, TASKS, &task("b"))["refused"].as_str().map(str::to_owned).unwrap_or_default();
    assert!(refused.contains("Postern did not write it"), "{refused}");
    assert_eq!(root.calls(), Vec::<String>::new());
    // A file that cannot be written is known too late.
    fs::remove_file(root.at("etc/systemd/system/postern-task-b.timer")).expect("it is there");
    fs::create_dir_all(root.at("etc/systemd/system/.postern-task-b.timer.postern-new")).expect("a folder");
    assert!(apply(&root, TASKS, &task("b"))["refused"].is_string());
    assert_eq!(
        root.calls(),
        [
            "disable --now postern-task-a.timer",
            "daemon-reload",
            "enable postern-task-a.timer",
            "restart postern-task-a.timer",
        ]
    );
}
