//! `postern secgw --dpdk`: ports of DPDK's own drivers, without huge pages.

use crate::lcores::carries_by;
use crate::secgw::{file, route, scene_with, start};
use crate::secgw_configured::{ask, configuration, is_up};
use crate::support::{PATIENCE, postern, skip};
use bench::secgw::{Load, Spread, Way};
use lab::postern::Postern;
use lab::{Lab, Process, wait_until};
use packet::header::esp::ESP;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

// linux/capability.h
const NET_ADMIN: u64 = 1 << 12;
const NET_RAW: u64 = 1 << 13;
const IPC_LOCK: u64 = 1 << 14;
const SYS_RAWIO: u64 = 1 << 17;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;
/// For net_af_xdp.
const MORE: u64 = SYS_RAWIO | SYS_ADMIN | PERFMON;

/// Whether the library is beside the program; without it a test says so and passes.
fn has_dpdk() -> bool {
    let library = postern().with_file_name("libpostern_dpdk.so");
    if !library.exists() {
        skip(&format!(
            "there is no {}: cargo build -p postern-dpdk-shim --features build",
            library.display()
        ));
    }
    library.exists()
}

/// No thread of DPDK has more rights than its devices need, and no worker has any.
fn threads_keep_few_rights(process: Process, more: u64) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs");
    let mut names = Vec::new();
    for task in tasks.flatten() {
        let status = std::fs::read_to_string(task.path().join("status")).expect("it runs");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
            line.trim_start_matches(':').trim().to_owned()
        };
        let (name, seccomp) = (field("Name"), field("Seccomp"));
        let has = u64::from_str_radix(&field("CapPrm"), 16).expect("a mask");
        let may = match name.as_str() {
            "secgw 0" | "secgw 1" => 0,
            // What the process keeps for its API and its files.
            "postern" => u64::MAX,
            "dpdk" | "eal-intr-thread" => NET_ADMIN | NET_RAW | BPF | IPC_LOCK | more,
            _ => NET_ADMIN,
        };
        assert_eq!((has & !may, seccomp.as_str()), (0, "2"), "{name}: {status}");
        names.push(name);
    }
    for expected in ["dpdk", "eal-intr-thread", "secgw 0", "secgw 1"] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
}

#[test]
fn ports_of_dpdk_carry_many_flows_by_two_lcores_and_their_threads_keep_few_rights() {
    if !has_dpdk() {
        return;
    }
    let Some(mut lab) = scene_with(1, 2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    let left = "--dpdk -m 96 --vdev net_af_xdp0,iface=p0 --vdev net_af_xdp1,iface=u0";
    let right =
        "--dpdk -m 96 --vdev net_tap0,iface=dtap0,mac=02:00:00:00:00:01 --vdev net_af_packet0,iface=u0";
    let words: [Vec<&str>; 2] = [left, right].map(|words| words.split(' ').collect());
    let queues = ["(0,0,0),(1,0,1)", "(0,0,0),(0,1,1),(1,0,0)"];
    // net_tap takes its interface down for a moment, and with it the routes.
    let started = |lab: &Lab| {
        wait_until(PATIENCE, || path.with_extension("right.sock").exists()).expect("its ports are open");
        route(lab, "right");
    };
    let shown = carries_by(&mut lab, &path, [&words[0], &words[1]], queues, started, |left, right| {
        threads_keep_few_rights(left, MORE);
        threads_keep_few_rights(right, 0);
    });
    assert_eq!(shown["ports"][0]["interface"], "net_af_xdp0", "{shown:#}");
    for lcore in shown["lcores"].as_array().expect("a list") {
        let count = |name: &str| lcore[name].as_u64().expect("a count");
        assert!(count("received") > 100 && count("sent") > 100, "{shown:#}");
    }
    let links = lab.ip("left", "-details link show").expect("they are there");
    assert!(!links.contains("xdp") && !links.contains("promiscuity 1"), "nothing is left: {links}");
}

#[test]
fn the_daemon_opens_and_closes_ports_of_dpdk_if_it_began_with_them() {
    if !has_dpdk() {
        return;
    }
    let Some(mut lab) = scene_with(1, 1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let mut left = Postern::new(&lab, "left", postern()).expect("a folder");
    let of_dpdk = |arguments: &str| {
        let ports = [("0", "p0"), ("1", "u0")];
        ports.iter().fold(configuration(&[]), |text, (port, interface)| {
            let of_port = format!("set interfaces secgw sgw0 port {port}");
            let text = text.replace(&format!("{of_port} driver packet\n"), "");
            let device = format!("net_af_packet{port},iface={interface}{arguments}");
            let lines = format!("{of_port} driver dpdk\n{of_port} device {device}\n");
            text.replace(&format!("{of_port} interface {interface}\n"), &lines)
        })
    };
    // A daemon that began without such ports has given up what DPDK needs.
    left.write(&configuration(&[]));
    let daemon = left.start(&mut lab, "info", PATIENCE);
    let daemon = daemon.unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    let _right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    is_up(&lab, &left, "with ports of the kernel");
    left.write(&of_dpdk(""));
    let said = ask(&left, "reload");
    assert!(said.contains("DPDK does not run") && said.contains("restart the daemon"), "{said}");

    lab.kill(daemon, Signal::TERM);
    left.start(&mut lab, "info", PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", left.logged()));
    is_up(&lab, &left, "with ports of DPDK");
    let shown = ask(&left, "show secgw ports");
    assert!(shown.contains("net_af_packet0") && shown.contains("net_af_packet1"), "{shown}");
    left.write(&configuration(&[]));
    let said = ask(&left, "reload");
    assert!(!said.contains("error"), "{said}");
    is_up(&lab, &left, "with ports of the kernel again");
    for arguments in [",blocksz=8192", ""] {
        left.write(&of_dpdk(arguments));
        let said = ask(&left, "reload");
        assert!(!said.contains("error"), "{said}");
        is_up(&lab, &left, "with other arguments of the devices");
    }
}

/// A gateway from one capture file to another, until it has sent so many frames.
fn through(lab: &mut Lab, folder: &Path, way: Way, [from, to]: [&str; 2], count: u64) {
    let place = |name: &str| folder.join(name).display().to_string();
    let mut command = lab.command("root", postern());
    command.args("secgw --dpdk --no-pci -m 128 -l 0 --vdev crypto_openssl0".split(' '));
    command.args(["--vdev", &format!("net_pcap0,rx_pcap={}", place(from))]);
    command.args(["--vdev", &format!("net_pcap1,tx_pcap={}", place(to)), "--", "-f", &place("x.cfg")]);
    let socket = folder.join("api");
    command.args(way.words().split(' ')).arg("--api").arg(&socket).stdout(Stdio::null());
    let gateway = lab.start(&mut command).expect("it starts");
    let sent = || {
        let mut show = Command::new(postern());
        let output =
            show.args(["show", "secgw", "--json", "--api"]).arg(&socket).output().expect("it starts");
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        shown[0]["ports"][1]["sent"].as_u64()
    };
    wait_until(PATIENCE, || sent() == Some(count)).unwrap_or_else(|error| panic!("{error}: {:?}", sent()));
    let mut show = Command::new(postern());
    let output = show.args(["show", "crypto", "--api"]).arg(&socket).output().expect("it starts");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let engine =
        shown.lines().find(|line| line.starts_with("dpdk-openssl ")).unwrap_or_else(|| panic!("{shown}"));
    assert!(engine.contains("crypto_openssl0") && !engine.contains("wrong"), "{shown}");
    // The file is whole when its port is closed.
    lab.kill(gateway, Signal::INT);
}

#[test]
fn frames_of_a_capture_file_are_sealed_into_another_and_opened_out_of_it() {
    if !has_dpdk() {
        return;
    }
    let Some(mut lab) = crate::support::lab(&["root"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    let sizes = vec![64, 1418];
    let load = Load { name: "x".into(), sizes, flows: 50, rules: 5, spread: Spread::All, reassemble: 0 };
    std::fs::write(file("x.cfg"), load.file()).expect("it can be written");
    let clear = load.frames();
    port::pcap::write_frames(&file("clear"), clear.iter().map(Vec::as_slice)).expect("it can be written");
    through(&mut lab, folder.path(), Way::Outbound, ["clear", "sealed"], 50);
    through(&mut lab, folder.path(), Way::Inbound, ["sealed", "opened"], 50);
    let packets = |name: &str| port::pcap::read(&file(name)).expect("it is whole");
    assert_eq!(packets("opened"), packets("clear"), "each packet comes back as it was");
    let sealed = packets("sealed");
    let protocols: Vec<u8> = sealed.iter().map(|packet| packet[9]).collect();
    assert_eq!(protocols, [ESP; 50], "only ESP leaves");
}

/// An encryptor for the tester's addresses, with its neighbours by the tester's hardware addresses.
fn encryptor() -> String {
    let key = vec!["5a"; 20].join(":");
    let sa = |way: &str, [near, far]: [&str; 2]| {
        format!(
            "sa {way} 5 aead_algo aes-128-gcm aead_key {key} mode ipv4-tunnel src 192.0.2.{near} dst 192.0.2.{far}\n"
        )
    };
    let policy = |way: &str, network: &str| {
        format!("sp ipv4 {way} esp protect 5 pri 1 dst {network} sport 0:65535 dport 0:65535\n")
    };
    policy("out", "198.19.0.0/16")
        + &policy("in", "198.18.0.0/16")
        + &sa("out", ["1", "2"])
        + &sa("in", ["2", "1"])
        + "rt ipv4 dst 192.0.2.2/32 port 1\nrt ipv4 dst 198.18.0.0/16 port 0\n\
           neigh port 0 02:25:44:00:00:01\nneigh port 1 02:25:44:00:00:02\n"
}

/// Words of EAL for two ports of net_memif.
fn memif(role: &str, folder: &Path) -> String {
    let device = |number| {
        let socket = folder.join(format!("{number}.sock"));
        format!("--vdev net_memif{number},role={role},socket={},socket-abstract=no", socket.display())
    };
    format!("--no-pci -m 96 {} {}", device(0), device(1))
}

#[test]
fn the_tester_sends_by_ports_of_dpdk_and_opens_what_a_gateway_with_such_ports_seals() {
    if !has_dpdk() {
        return;
    }
    let Some(mut lab) = crate::support::lab(&["root"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.cfg");
    std::fs::write(&file, encryptor()).expect("it can be written");
    let mut command = lab.command("root", postern());
    command.args("secgw --dpdk -l 0".split(' ')).args(memif("server", folder.path()).split(' '));
    command.args("-- -P -p 3 -u 2 --config (0,0,0),(1,0,0) -f".split(' ')).arg(&file);
    command.arg("--api").arg(folder.path().join("api")).stdout(Stdio::null());
    let gateway = lab.start(&mut command).expect("it starts");
    wait_until(PATIENCE, || folder.path().join("api").exists()).expect("its ports are open");

    let mut command = lab.command("root", postern());
    command.args("bench rfc2544 --json --line 0.004 --seconds 0.1 --size 512 --test throughput".split(' '));
    command.args("--both --wire dpdk --tx net_memif0 --rx net_memif1 --esp".split(' ')).arg(&file);
    let output = command.arg("--eal").arg(memif("client", folder.path())).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["ports"][0], "net_memif, DPDK", "{report:#}");
    let trials = report["sizes"][0]["trials"].as_array().expect("a list");
    let through = trials.iter().filter(|trial| trial["purpose"] != "calibration");
    let [sent, received, wrong] = through.fold([0; 3], |sum, trial| {
        let of = |name: &str| trial[name].as_u64().expect("a count");
        let wrong = of("corrupted") + of("duplicated") + of("reordered");
        [sum[0] + of("sent"), sum[1] + of("received"), sum[2] + wrong]
    });
    assert!(sent > 100 && received * 10 > sent * 9 && wrong == 0, "{report:#}");
    lab.kill(gateway, Signal::INT);
}

#[test]
fn what_dpdk_does_not_have_is_refused_with_what_to_do() {
    if !has_dpdk() || crate::support::lab(&["root"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.cfg");
    std::fs::write(&file, "rt ipv4 dst 10.0.0.0/8 port 0\n").expect("it can be written");
    let refused = |before: &str, behind: &str| {
        let mut command = Command::new(postern());
        command.args("secgw --dpdk --no-pci -m 64 -l 0".split(' ')).args(before.split_whitespace()).arg("--");
        let output = command.args(behind.split(' ')).arg("-f").arg(&file).output().expect("it starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (before, behind, said) in [
        ("--vdev net_null0", "-p 5 --config (2,0,0)", "port 2: DPDK has 1 ports, and no port 2"),
        (
            "--vdev net_memif0",
            "-p 1 --config (0,0,0),(0,1,0),(0,2,0) --nothing",
            "--nothing is no option here",
        ),
        ("--vdev net_none0", "-p 1 --config (0,0,0)", "DPDK does not start with these words of EAL"),
        (
            "--vdev net_pcap0,rx_pcap=/nowhere --vdev net_null0",
            "-p 1 --config (0,0,0)",
            "DPDK has no device net_pcap0",
        ),
        (
            "--vdev net_af_xdp0,iface=lo",
            "-p 1 --config (0,0,0),(0,1,0)",
            "net_af_xdp0 has at most 1 queues to receive from, and lcores receive from 2",
        ),
    ] {
        let text = refused(before, behind);
        assert!(text.contains(said), "{before} -- {behind}: {text}");
    }
}
