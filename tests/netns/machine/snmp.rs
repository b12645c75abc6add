//! `postern agentx` below a real snmpd: walks, counters, traps, and an snmpd that is started again.

use super::programs::{Running, peer, start};
use crate::daemon::started;
use crate::support::{PATIENCE, postern, tcp_arrives_whole};
use lab::files::Files;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::process::Command;

const TREE: &str = ".1.3.6.1.4.1.8072.9999.9999.7678";

/// A machine whose snmpd has its files in a folder.
struct Machine {
    lab: Lab,
    files: Files,
    snmpd: String,
}

impl Machine {
    fn command(&self, command: &str) -> Command {
        let mut words = self.lab.command("a", "sh");
        // Not the folder itself: snmpd keeps a file of the same name there.
        let folder = self.at("kept");
        words.args(["-c", &format!("exec {command}")]).env("MIBS", "").env("SNMP_PERSISTENT_DIR", folder);
        words
    }

    fn at(&self, name: &str) -> String {
        self.files.at(name).display().to_string()
    }

    fn snmpd(&self) -> Running {
        let (file, pid) = (self.at("snmpd.conf"), self.at("pid"));
        let without = "-I -smux,mteTrigger,mteTriggerConf";
        let log = self.at("log");
        start(&mut self.command(&format!("{} -f -C -c {file} {without} -p {pid} -Lf {log}", self.snmpd)))
    }

    /// The answer to a request for a name: values by their names.
    fn ask(&self, program: &str, name: &str) -> BTreeMap<String, String> {
        let words = format!("{program} -v2c -c public -t 5 -r 0 -On 127.0.0.1:1161 {name}");
        let output = self.command(&words).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let each = text.lines().filter_map(|line| line.split_once(" = "));
        each.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

#[test]
fn snmpd_walks_over_tunnels_restarts_and_sends_traps() {
    let Some((lab, a, b, _)) = started() else { return };
    let programs = ["snmpd", "snmptrapd", "snmpwalk", "snmpbulkwalk", "snmpget"].map(peer);
    let [Some(snmpd), Some(snmptrapd), Some(walk), Some(bulk), Some(get)] = programs else { return };
    tcp_arrives_whole(&lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    let mut machine = Machine { lab, files: Files::default(), snmpd };
    let master = machine.at("agentx/master");
    let text = format!(
        "agentaddress udp:127.0.0.1:1161\nmaster agentx\nagentXSocket {master}\n\
         agentXPerms 0660 0755 root root\nrocommunity public\n\
         trap2sink 127.0.0.1:1162 public\n"
    );
    machine.files.write("snmpd.conf", &text, 0o600);
    machine.files.write("snmptrapd.conf", "disableAuthorization yes\n", 0o600);
    let (file, pid, log) = (machine.at("snmptrapd.conf"), machine.at("trapd"), machine.at("traps"));
    let words = format!("{snmptrapd} -f -C -c {file} -On -Lf {log} -p {pid} udp:127.0.0.1:1162");
    let _traps = start(&mut machine.command(&words));
    let mut command = machine.lab.command("a", postern());
    command.args(["agentx", "--api"]).arg(&a.socket).args(["--master", &master]);
    // Before snmpd: it is waited for.
    let _agent = start(&mut command);
    let running = machine.snmpd();
    let walked = || machine.ask(&walk, TREE);
    wait_until(PATIENCE, || walked().len() > 20).expect("the objects are there");
    let values = walked();
    let row =
        values.keys().find_map(|name| name.strip_prefix(&format!("{TREE}.1.2.1.4."))).expect("a tunnel");
    let column = |number| format!("{TREE}.1.2.1.{number}.{row}");
    assert_eq!(values[&column(4)], "STRING: \"other\"");
    assert_eq!(values[&column(6)], "INTEGER: 1", "it is up");
    let counted = |values: &BTreeMap<String, String>| -> u64 {
        values[&column(8)].strip_prefix("Counter64: ").and_then(|it| it.parse().ok()).expect("a counter")
    };
    assert!(counted(&values) > 1 << 20, "{values:?}");
    assert!(values.keys().eq(machine.ask(&bulk, TREE).keys()), "in bulk the same");
    tcp_arrives_whole(&machine.lab, "a", "b", "10.66.0.2", 1 << 20).expect("the tunnel carries");
    let has_moved = || counted(&machine.ask(&get, &column(8))) > counted(&values) + (1 << 20);
    wait_until(PATIENCE, has_moved).expect("the counter moves");
    drop(running);
    let _running = machine.snmpd();
    wait_until(PATIENCE, || walked().contains_key(&column(8)))
        .unwrap_or_else(|error| panic!("{error}: {:?}, {:?}", walked(), machine.files.read("log")));
    // The peer ends, and pings that get no answer make WireGuard notice.
    let process = b.process.expect("it was started");
    b.signal(Signal::KILL);
    wait_until(PATIENCE, || machine.lab.ended(process).is_some()).expect("it ends");
    let is_told = || {
        let _ = machine.lab.run("a", "ping", &["-c", "1", "-W", "1", "10.66.0.2"]);
        let said = machine.files.read("traps").unwrap_or_default();
        said.contains(&format!("{TREE}.0.1")) && said.contains(&format!("{} = INTEGER: 3", column(6)))
    };
    wait_until(3 * PATIENCE, is_told)
        .unwrap_or_else(|error| panic!("{error}: {:?}", machine.files.read("traps")));
}
