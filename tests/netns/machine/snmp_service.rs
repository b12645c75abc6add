//! `service snmp` alone: the daemon's helper writes the file of a real snmpd and restarts it, and the daemon starts the sub-agent.

use super::programs::{peer, start};
use super::{Site, has_ended};
use crate::support::PATIENCE;
use lab::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const TREE: &str = ".1.3.6.1.4.1.8072.9999.9999.7678";
/// The sub-agent looks for snmpd each 2 seconds, and is started again after one.
const SOON: Duration = Duration::from_secs(30);

/// A site whose systemctl starts a real snmpd with the files below its root.
struct Managed {
    site: Site,
    walk: String,
}

impl Managed {
    fn start() -> Option<Self> {
        let [Some(snmpd), Some(walk)] = ["snmpd", "snmpwalk"].map(peer) else { return None };
        let site = Site::start("set system allow-empty\n", &[])?;
        let root = &site.root;
        // The sub-agent is another user.
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).expect("it is ours");
        let folder = root.path().display();
        let systemctl = format!(
            "#!/bin/sh\ncase \"$*\" in\n*daemon-reload) exit 0;;\nesac\n\
             [ -e {folder}/pid ] && kill -CONT $(cat {folder}/pid) && kill $(cat {folder}/pid)\n\
             while [ -e {folder}/pid ] && kill -0 $(cat {folder}/pid); do sleep 0.05; done\nrm -f {folder}/pid\n\
             [ \"$1\" = restart ] || exit 0\n\
             export MIBS= SNMPCONFPATH={folder}/etc/snmp/postern SNMP_PERSISTENT_DIR={folder}/kept\n\
             setsid {snmpd} -f -I -smux,mteTrigger,mteTriggerConf -p {folder}/pid -Lf {folder}/log \
             </dev/null >/dev/null 2>&1 &\n\
             until [ -s {folder}/pid ]; do sleep 0.05; done\n"
        );
        root.write("usr/bin/systemctl", &systemctl, 0o755);
        root.write("usr/sbin/snmpd", "", 0o755);
        fs::create_dir_all(root.at("run/systemd/system")).expect("a folder");
        Some(Self { site, walk })
    }

    /// Has commands carried out in configuration mode.
    fn configure(&self, lines: &[&str]) {
        let mut words = vec!["configure"];
        for line in lines.iter().chain(&["commit"]) {
            words.extend(["-c", line]);
        }
        let output = self.site.ask(&words);
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{lines:?}: {said}");
    }

    /// The names and values below our number.
    fn walked(&self, with: &str) -> String {
        let mut words = self.site.lab.command("a", "sh");
        let command = format!("exec {} {with} -t 2 -r 0 -On 127.0.0.1:1161 {TREE}", self.walk);
        let output = words.args(["-c", &command]).env("MIBS", "").output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn sees(&self, with: &str) -> bool {
        let walked = self.walked(with);
        walked.matches(TREE).count() > 3 && !walked.contains("No Such")
    }

    fn wait(&self, what: &str, is: impl Fn() -> bool) {
        wait_until(SOON, is).unwrap_or_else(|error| {
            let root = &self.site.root;
            let files = ["etc/snmp/postern/snmpd.conf", "log"].map(|file| root.read(file));
            panic!("{what}: {error}: {files:?} {}", self.site.gateway.logged())
        });
    }

    fn show(&self) -> Value {
        let all: Value = serde_json::from_str(&self.site.show(&["show", "snmp", "--json"])).expect("JSON");
        all[0].clone()
    }

    /// The processes below the daemon that are, or supervise, the sub-agent.
    fn agents(&self) -> Vec<u32> {
        let mut agents = Vec::new();
        let mut parents = vec![self.site.process.id()];
        while let Some(parent) = parents.pop() {
            let children =
                fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
            for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
                let line = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
                if line.contains("\0--worker") && line.contains("agentx") {
                    agents.push(child);
                }
                parents.push(child);
            }
        }
        agents
    }

    /// Sends a signal to snmpd, if it runs.
    fn signal(&self, signal: Signal) {
        let process = self.site.root.read("pid").and_then(|text| text.trim().parse().ok());
        if let Some(process) = process.and_then(Pid::from_raw) {
            let _ = kill_process(process, signal);
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

const COMMUNITIES: &[&str] = &[
    "set service snmp listen-address 127.0.0.1 port 1161",
    "set service snmp community public network 127.0.0.0/8",
    "set service snmp community writes authorization rw",
    "set service snmp community writes network 127.0.0.0/8",
];

#[test]
fn service_snmp_starts_supervises_and_ends_the_sub_agent() {
    let Some(managed) = Managed::start() else { return };
    assert!(managed.agents().is_empty(), "nobody has asked for it");
    assert!(managed.site.show(&["show", "snmp"]).starts_with("SNMP is off\n"));
    managed.configure(COMMUNITIES);
    for community in ["public", "writes"] {
        managed.wait("the objects are there", || managed.sees(&format!("-v2c -c {community}")));
    }
    let shown = managed.show();
    assert!(
        shown["is_running"].as_bool() == Some(true) && shown["findings"] == Value::Array(Vec::new()),
        "{shown}"
    );
    managed.wait("requests are counted", || managed.show()["agent"]["requests"].as_u64() > Some(3));
    let shown = managed.site.show(&["show", "snmp"]);
    assert!(
        shown.starts_with("snmpd:     answers at /") && shown.contains("Sub-agent: connected since "),
        "{shown}"
    );

    let agents = managed.agents();
    assert_eq!(agents.len(), 1, "{agents:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", agents[0])).expect("it runs");
    for line in
        ["Uid:\t65534\t65534", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"]
    {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert!(status.contains("Seccomp:\t2"), "{status}");
    kill_process(Pid::from_raw(agents[0].cast_signed()).expect("one"), Signal::KILL).expect("it is ours");
    managed.wait("it comes again", || managed.agents().first().is_some_and(|agent| *agent != agents[0]));
    managed.wait("and answers", || managed.sees("-v2c -c public"));
    let logged = managed.site.gateway.logged();
    assert!(logged.contains("the sub-agent of snmpd has failed, and is started again in 1 s"), "{logged}");

    managed.configure(&["delete service snmp"]);
    managed.wait("it ends", || managed.agents().is_empty());
    assert!(!managed.sees("-v2c -c public"));
    assert!(managed.site.show(&["show", "snmp"]).starts_with("SNMP is off\n"));
    managed.configure(COMMUNITIES);
    managed.wait("it starts again", || managed.sees("-v2c -c public"));
    // With the daemon, all of it ends.
    let agents = managed.agents();
    managed.site.gateway.signal(Signal::KILL);
    managed.wait("it ends with the daemon", || agents.iter().all(|agent| has_ended(*agent)));
}

#[test]
fn an_snmpd_that_hangs_or_is_missing_costs_the_daemon_nothing() {
    let Some(managed) = Managed::start() else { return };
    let root = &managed.site.root;
    fs::rename(root.at("usr/sbin/snmpd"), root.at("usr/sbin/away")).expect("it is there");
    managed.configure(COMMUNITIES);
    let is_told = || managed.site.show(&["show", "snmp"]).contains("does not answer at /");
    managed.wait("it waits", is_told);
    let shown = managed.site.show(&["show", "snmp"]);
    for said in
        ["No such file", "fix: systemctl restart snmpd", "snmpd is not installed", "apt-get install snmpd"]
    {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    let told = || {
        managed
            .site
            .gateway
            .logged()
            .matches("No such file or directory (os error 2); it is tried again")
            .count()
    };
    managed.wait("the log has it", || told() > 0);
    // Its package starts it.
    fs::rename(root.at("usr/sbin/away"), root.at("usr/sbin/snmpd")).expect("it is there");
    let mut command = managed.site.lab.command("a", root.at("usr/bin/systemctl"));
    assert!(command.args(["restart", "snmpd"]).status().expect("it runs").success());
    wait_until(super::LOOKED_AT, || managed.sees("-v2c -c public")).expect("it was waited for");
    assert_eq!(told(), 1, "once");

    managed.signal(Signal::STOP);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE.min(Duration::from_secs(8)) {
        let asked = Instant::now();
        managed.site.show(&["show", "snmp"]);
        managed.configure(&[&format!(
            "set system config-management commit-revisions {}",
            7 + begun.elapsed().as_millis() % 90
        )]);
        assert!(asked.elapsed() < PATIENCE, "{:?}", asked.elapsed());
    }
    assert_eq!(managed.agents().len(), 1, "it goes on");
    managed.signal(Signal::CONT);
    managed.wait("it answers again", || managed.sees("-v2c -c public"));
}

#[test]
fn traps_of_version_3_reach_their_receivers() {
    let Some(managed) = Managed::start() else { return };
    let Some(snmptrapd) = peer("snmptrapd") else { return };
    let root = &managed.site.root;
    // Traps have the number of the sender; for those that it confirms, the receiver has keys for its own.
    let receiver = "createUser -e 0x80001f8804706f737465726e alice SHA OpenSesame1 AES OpenBarley2\n\
                    authUser log alice priv\ncreateUser teller SHA OpenSesame3\nauthUser log teller auth\n";
    root.write("receiver/snmptrapd.conf", receiver, 0o600);
    let [folder, kept, log, pid] =
        ["receiver", "receiver/kept", "receiver/traps", "receiver/pid"].map(|it| root.named(it));
    let mut command = managed.site.lab.command("a", "sh");
    let words = format!("exec {snmptrapd} -f -On -Lf {log} -p {pid} udp:1162");
    let environment =
        [("MIBS", ""), ("SNMPCONFPATH", folder.as_str()), ("SNMP_PERSISTENT_DIR", kept.as_str())];
    let _receiver = start(command.args(["-c", &words]).envs(environment));
    wait_until(SOON, || root.at("receiver/pid").exists()).expect("it listens");
    managed.configure(&[
        "set service snmp listen-address 127.0.0.1 port 1161",
        "set service snmp v3 engineid 80001f8804706f737465726e",
        "set service snmp v3 user alice auth plaintext-password OpenSesame1",
        "set service snmp v3 user alice auth type sha",
        "set service snmp v3 user alice privacy plaintext-password OpenBarley2",
        "set service snmp v3 user alice privacy type aes",
        "set service snmp v3 trap-target 127.0.0.1 user alice",
        "set service snmp v3 trap-target 127.0.0.1 type trap",
        "set service snmp v3 trap-target 127.0.0.1 port 1162",
        "set service snmp v3 trap-target 127.0.0.2 user teller",
        "set service snmp v3 trap-target 127.0.0.2 auth plaintext-password OpenSesame3",
        "set service snmp v3 trap-target 127.0.0.2 auth type sha",
        "set service snmp v3 trap-target 127.0.0.2 port 1162",
    ]);
    for address in ["127.0.0.1", "127.0.0.2"] {
        // snmpd tells that it was started.
        let traps = || root.read("receiver/traps").unwrap_or_default();
        managed.wait(&format!("{address} is told: {}", traps()), || {
            traps().contains(&format!("->[{address}]:1162"))
        });
    }
}

#[test]
fn users_of_version_3_ask_with_their_keys_and_passwords_are_in_no_log() {
    let Some(managed) = Managed::start() else { return };
    let root = &managed.site.root;
    managed.configure(&[
        "set service snmp listen-address 127.0.0.1 port 1161",
        "set service snmp v3 user alice auth plaintext-password 'open sesame #1'",
        "set service snmp v3 user alice auth type sha",
        "set service snmp v3 user alice privacy plaintext-password 'open barley $2'",
        "set service snmp v3 user alice privacy type aes",
        "set service snmp v3 user bob auth plaintext-password OpenBarley3",
        "set service snmp v3 user bob auth type sha",
        "set service snmp v3 user bob group few",
        "set service snmp v3 group few view few",
        "set service snmp v3 view few oid 1.3.6.1.2.1.1",
    ]);
    let alice = |password: &str| {
        format!("-v3 -u alice -l authPriv -a SHA -A '{password}' -x AES -X 'open barley $2'")
    };
    managed.wait("alice sees the objects", || managed.sees(&alice("open sesame #1")));
    assert!(!managed.sees("-v3 -u alice -l authNoPriv -a SHA -A 'open sesame #1'"), "not without encryption");
    assert!(!managed.sees(&alice("open sesame #2")));
    let bob = managed.walked("-v3 -u bob -l authNoPriv -a SHA -A OpenBarley3");
    assert!(
        bob.contains("No more variables") || bob.contains("No Such Object"),
        "it is not in the view: {bob}"
    );
    assert_eq!(root.mode("etc/snmp/postern/snmpd.conf"), 0o600);

    managed.configure(&[
        "set service snmp v3 user alice auth plaintext-password 'close sesame'",
        "delete service snmp v3 user bob",
    ]);
    managed.wait("another password counts", || managed.sees(&alice("close sesame")));
    assert!(!managed.sees(&alice("open sesame #1")), "the old one does not");
    assert!(managed.walked("-v3 -u bob -l authNoPriv -a SHA -A OpenBarley3").is_empty(), "he is gone");
    let shown = ["commands", "json"].map(|form| managed.site.show(&["show", "configuration", form]));
    let said = [managed.site.gateway.logged(), managed.site.show(&["show", "system", "managed"])];
    for text in shown.iter().chain(&said) {
        for secret in ["sesame", "barley", "OpenBarley3"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}
