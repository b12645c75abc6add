//! What a running daemon may do: its user, the rights of each of its threads, and its files.

use crate::daemon::{key_pair, lines};
use crate::ipsec::configuration;
use crate::support::{ask, postern, sites, skip};
use lab::postern::Postern;
use lab::{Lab, Process, has_program, run, wait_until};
use rustix::process::Signal;
use rustix::process::getpriority_process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
/// A user that every machine has.
const USER: &str = "nobody";
const UID: u32 = 65_534;

// linux/capability.h
const DAC_READ_SEARCH: u64 = 1 << 2;
const NET_BIND_SERVICE: u64 = 1 << 10;
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const IPC_LOCK: u64 = 1 << 14;
const BPF: u64 = 1 << 39;

/// A daemon that root has started to run as another user, with a configuration that only root may read.
struct Modest {
    gateway: Postern,
    process: Process,
}

impl Modest {
    fn start(lab: &mut Lab, text: &str) -> Self {
        let mut gateway = Postern::new(lab, "a", postern()).expect("a folder");
        fs::set_permissions(gateway.folder(), Permissions::from_mode(0o700)).expect("it is ours");
        write(gateway.folder(), text);
        let command = gateway.command_of(lab, &["run", "--user", USER]);
        let process = gateway.spawn(lab, command, "info").expect("it starts");
        let modest = Self { gateway, process };
        modest.says("is in force", 1);
        modest
    }

    fn log(&self) -> String {
        self.gateway.logged()
    }

    /// Waits until something was logged so often.
    fn says(&self, what: &str, times: usize) {
        wait_until(PATIENCE, || self.log().matches(what).count() >= times)
            .unwrap_or_else(|error| panic!("{error}: {}", self.log()));
    }

    fn signal(&self, signal: Signal) {
        self.gateway.signal(signal);
    }

    fn proc(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.process.id()).into()
    }
}

/// As an editor does it: another file in place of the first.
fn write(folder: &Path, text: &str) {
    let new = folder.join("new");
    fs::write(&new, text).expect("a file");
    fs::set_permissions(&new, Permissions::from_mode(0o600)).expect("it is ours");
    fs::rename(new, folder.join("conf")).expect("the same folder");
}

fn wireguard(interface: &str, lines: &[String]) -> String {
    let set = format!("set interfaces wireguard {interface}");
    lines.iter().map(|line| format!("{set} {line}\n")).collect()
}

fn both() -> String {
    let (ours, theirs) = (key_pair(), key_pair());
    let keyed = [&[format!("private-key {}", ours.0)][..], &lines(0, &theirs.1, &[])].concat();
    wireguard("wg0", &keyed) + &configuration(0)
}

/// What is held of a thread.
#[derive(Debug, PartialEq, Eq)]
struct Held {
    capabilities: u64,
    niceness: i64,
    /// Of system calls: two of the process, and one more.
    filters: u64,
}

/// What each thread must be held to, by what its name ends in; the first that fits.
fn table(name: &str) -> Option<Held> {
    let rows: [(&str, u64, i64, u64); 16] = [
        ("postern", NET_ADMIN | NET_BIND_SERVICE | NET_RAW, 0, 2),
        (" out", 0, 0, 3),
        (" in", 0, 0, 3),
        (" raw", 0, 0, 3),
        ("ipsec0 control", 0, 15, 2),
        (" control", NET_ADMIN | NET_BIND_SERVICE, 15, 2),
        ("ipsec0 jobs", 0, 15, 2),
        ("ipsec0 ike", 0, 15, 3),
        ("secgw opener", NET_ADMIN | NET_RAW | BPF | IPC_LOCK, 0, 2),
        ("routes", NET_ADMIN, 0, 2),
        (" link", NET_ADMIN, 0, 2),
        ("socket", 0, 0, 2),
        ("engines", 0, 0, 2),
        ("name servers", 0, 0, 2),
        ("tokio-rt-worker", 0, 0, 2),
        // Helpers of engines behind drivers, where there are any: as the thread that needed them first.
        ("crypto drop", 0, 0, 2),
    ];
    let row = rows.into_iter().find(|(end, ..)| name.ends_with(end))?;
    // Relative to that of the process, which is this test's.
    let of_process = i64::from(getpriority_process(None).expect("of this thread"));
    Some(Held { capabilities: row.1, niceness: (of_process + row.2).min(19), filters: row.3 })
}

fn fields(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect()
}

/// What the threads of a process are called, and what is wrong with them by the table.
fn threads(tasks: &Path) -> (Vec<String>, Vec<String>) {
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    for task in fs::read_dir(tasks).expect("it lives") {
        let task = task.expect("an entry").path();
        let status = fields(&task.join("status"));
        // One that has just ended.
        let Some(name) = status.get("Name").cloned() else { continue };
        let number = |key: &str, radix| u64::from_str_radix(&status[key], radix).expect("a number");
        let Ok(stat) = fs::read_to_string(task.join("stat")) else { continue };
        // proc(5): the name, which may contain spaces, is the 2nd field, niceness the 19th, the policy the 41st.
        let stat: Vec<&str> = stat.rsplit(')').next().expect("the rest").split_whitespace().collect();
        let held = Held {
            capabilities: number("CapEff", 16),
            niceness: stat[19 - 3].parse().expect("a number"),
            filters: number("Seccomp_filters", 10),
        };
        let mut must = |is: bool, what: String| wrong.extend((!is).then(|| format!("{name}: {what}")));
        must(Some(&held) == table(&name).as_ref(), format!("{held:?}"));
        let more = number("CapPrm", 16) & !number("CapEff", 16);
        must(more == if name == "postern" { DAC_READ_SEARCH } else { 0 }, format!("permitted {more:x}"));
        must(["CapInh", "CapAmb"].map(|key| number(key, 16)) == [0, 0], "inheritable".to_owned());
        must([number("NoNewPrivs", 10), number("Seccomp", 10)] == [1, 2], "not confined".to_owned());
        must(stat[41 - 3] == "0", format!("policy {}", stat[41 - 3]));
        let ids = format!("{UID}\t{UID}\t{UID}\t{UID}");
        must([&status["Uid"], &status["Gid"], &status["Groups"]] == [&ids, &ids, ""], "user".to_owned());
        seen.push(name);
    }
    (seen, wrong)
}

#[test]
fn every_thread_is_held_to_what_its_work_needs() {
    let Some(mut lab) = sites() else { return };
    let modest = Modest::start(&mut lab, &both());
    let tasks = modest.proc("task");
    let roles = [
        ["postern", "wg0 out", "wg0 in", "wg0 control", "wg0 link", "ipsec0 out", "ipsec0 in"],
        ["ipsec0 raw", "ipsec0 control", "ipsec0 ike", "ipsec0 link", "routes", "socket", "engines"],
    ];
    // One that has just started has its name and its rights a moment later.
    let settled = || {
        let (seen, wrong) = threads(&tasks);
        wrong.is_empty()
            && roles
                .as_flattened()
                .iter()
                .chain(&["secgw opener"])
                .all(|role| seen.iter().any(|name| name == role))
    };
    wait_until(PATIENCE, settled).unwrap_or_else(|error| panic!("{error}: {:?}", threads(&tasks)));
}

#[test]
fn keys_are_in_no_core_dump_and_no_other_process_of_the_user_reads_them() {
    let Some(mut lab) = sites() else { return };
    let modest = Modest::start(&mut lab, &both());
    let limits = fs::read_to_string(modest.proc("limits")).expect("it lives");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("it is there");
    assert_eq!(core.split_whitespace().nth(4), Some("0"), "{core}");
    // proc(5): of a process that is not dumpable, these belong to root.
    assert_eq!(fs::metadata(modest.proc("environ")).expect("it lives").uid(), 0);
    let locked = fields(&modest.proc("status"))["VmLck"] != "0 kB";
    assert_ne!(locked, modest.log().contains("memory cannot be locked"), "locked, or said why not");
}

#[test]
fn another_user_than_root_serves_changes_and_ends_as_root_would() {
    let Some(mut lab) = sites() else { return };
    let text = both();
    let modest = Modest::start(&mut lab, &text);
    let socket = modest.gateway.socket.to_string_lossy().into_owned();
    let interfaces = || {
        let said = ask(&["show", "interfaces", "wireguard", "--api", &socket]);
        said["interfaces"].as_array().map_or(0, Vec::len)
    };
    let there = fs::metadata(&modest.gateway.socket).expect("it is there");
    assert_eq!((there.uid(), there.mode() & 0o777, interfaces()), (UID, 0o600, 1));
    let everything = ["address 10.67.0.1/24", "port 443", "fwmark 7", "mtu 1400"].map(str::to_owned);
    let keyed = [&[format!("private-key {}", key_pair().0)][..], &everything[..]].concat();
    write(modest.gateway.folder(), &(text.clone() + &wireguard("wg1", &keyed)));
    modest.signal(Signal::HUP);
    modest.says("is in force", 2);
    assert_eq!(interfaces(), 2, "{}", modest.log());
    let port = || lab.run("a", "ss", &["-ulnH", "sport = :443"]).is_ok_and(|text| !text.trim().is_empty());
    wait_until(PATIENCE, port).expect("a port below 1024");
    write(modest.gateway.folder(), &text);
    modest.signal(Signal::HUP);
    modest.says("is in force", 3);
    assert_eq!(interfaces(), 1, "{}", modest.log());
    modest.signal(Signal::TERM);
    let mut status = None;
    let ended = wait_until(PATIENCE, || {
        status = lab.ended(modest.process);
        status.is_some()
    });
    ended.expect("it ends");
    assert!(status.is_some_and(|status| status.success()), "{}", modest.log());
    assert!(!modest.gateway.socket.exists() && lab.ip("a", "link show ipsec0").is_err());
}

#[test]
fn an_unknown_user_is_refused_with_how_to_make_it() {
    let arguments = ["run", "--user", "no-such-user", "--config", "/dev/null"];
    let output = std::process::Command::new(postern()).args(arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("fix: useradd"), "{said}");
}

/// The system calls of a group of systemd, with those of the groups in it.
fn calls_of(group: &str) -> BTreeSet<String> {
    if !group.starts_with('@') {
        return BTreeSet::from([group.to_owned()]);
    }
    let listed = run("systemd-analyze", ["syscall-filter", group]).expect("a group");
    let lines = listed.lines().skip(1).map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).flat_map(calls_of).collect()
}

/// systemd kills a process that makes another call.
#[test]
fn the_unit_allows_the_calls_by_which_processes_confine_themselves() {
    if !has_program("systemd-analyze") {
        return skip("systemd-analyze is not there");
    }
    let unit = include_str!("../../examples/systemd/postern.service");
    let words = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
        .flat_map(str::split_whitespace);
    let allowed: BTreeSet<String> = words.flat_map(calls_of).collect();
    let confine = ["seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"];
    // The rules of health ask with these whether the clock is synchronised; ProtectClock= would refuse that.
    for call in confine.into_iter().chain(["adjtimex", "clock_adjtime"]) {
        assert!(allowed.contains(call), "{call}");
    }
    assert!(!unit.contains("\nProtectClock=") && !unit.contains("CAP_SYS_TIME\n"), "{unit}");
    assert!(allowed.contains("epoll_wait") && !allowed.contains("ptrace"), "{allowed:?}");
}

#[test]
fn the_units_for_systemd_are_exposed_as_little_as_they_say() {
    if !has_program("systemd-analyze") {
        return skip("systemd-analyze is not there");
    }
    // In tenths.
    for (unit, threshold) in
        [("postern.service", "--threshold=24"), ("postern-machine@.service", "--threshold=21")]
    {
        let unit = format!("{}/../examples/systemd/{unit}", env!("CARGO_MANIFEST_DIR"));
        run("systemd-analyze", ["security", "--offline=true", threshold, &unit]).expect("as it says");
    }
}
