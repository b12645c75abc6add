//! `service path-monitor`: round-trip time, loss and MTU of tunnels, by probes through them.

mod reflector;

use crate::daemon::{Site, key_pair, lines};
use crate::ipsec;
use crate::support::{PATIENCE, answers, ask, postern, sites, sites_and};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What a search takes, at a probe a second: twenty sizes of which some are lost several times.
const SEARCH: Duration = Duration::from_secs(180);

/// Writes the configuration of a site: its interface, and lines of the path monitor.
fn write(site: &Site, wireguard: &[String], monitor: &[&str]) {
    let interface: String =
        wireguard.iter().map(|line| format!("set interfaces wireguard wg0 {line}\n")).collect();
    let key = format!("set interfaces wireguard wg0 private-key {}\n", site.private);
    let monitor: String = monitor.iter().map(|line| format!("set service path-monitor {line}\n")).collect();
    lab::postern::Postern::write(site, &(key + &interface + &monitor));
}

/// Two sites with a tunnel, and what each has of the path monitor.
fn started(monitors: [&[&str]; 2]) -> Option<(Lab, Site, Site, [Vec<String>; 2])> {
    Some(started_in(sites()?, monitors))
}

/// The same, in a lab that has these sites.
fn started_in(mut lab: Lab, monitors: [&[&str]; 2]) -> (Lab, Site, Site, [Vec<String>; 2]) {
    let (a_keys, b_keys) = (key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    let wireguard = [lines(0, &b_keys.1, &[]), lines(1, &a_keys.1, &[])];
    write(&a, &wireguard[0], monitors[0]);
    write(&b, &wireguard[1], monitors[1]);
    a.start(&mut lab);
    b.start(&mut lab);
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("a tunnel");
    (lab, a, b, wireguard)
}

/// The capabilities of the thread that sends probes, and its mode of seccomp.
fn rights(site: &Site) -> Option<(String, String)> {
    let process = site.process.expect("it was started").id();
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field =
            |name: &str| Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
        if field("Name:")? == "path" {
            return Some((field("CapPrm:")?, field("Seccomp:")?));
        }
    }
    None
}

/// What is known of the targets of a daemon.
fn paths(socket: &Path) -> Value {
    let output = Command::new(postern()).args(["show", "path", "--json", "--api"]).arg(socket).output();
    let output = output.expect("it runs");
    // It ends with 1 if something is wrong with a path.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    serde_json::from_slice::<Value>(&output.stdout).expect("JSON")[0].clone()
}

fn target(socket: &Path, name: &str) -> Value {
    let targets = paths(socket)["targets"].as_array().expect("a list").clone();
    targets.into_iter().find(|it| it["target"] == name).unwrap_or_else(|| panic!("{name} is not probed"))
}

/// Waits until this holds for a target.
fn becomes(socket: &Path, name: &str, patience: Duration, condition: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    let found = wait_until(patience, || {
        last = target(socket, name);
        condition(&last)
    });
    found.unwrap_or_else(|error| panic!("{error}: {last:#}"));
    last
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn is_measured(it: &Value) -> bool {
    it["answered"].as_u64().is_some_and(|answered| answered >= 3) && it["state"] == "answers"
}

#[test]
fn echo_and_stamp_measure_a_tunnel_and_notice_its_end() {
    let monitor = [
        "target echo address 10.66.0.2",
        "target echo interface wg0",
        "target stamp address 10.66.0.2",
        "target stamp interface wg0",
        "target stamp protocol stamp",
    ];
    let reflector = ["reflector listen-address 10.66.0.2"];
    let Some((mut lab, a, mut b, _)) = started([&monitor, &reflector]) else { return };
    for name in ["echo", "stamp"] {
        let path = becomes(&a.socket, name, 2 * PATIENCE, is_measured);
        let [least, mean, most] =
            ["rtt_least_seconds", "rtt_seconds", "rtt_most_seconds"].map(|it| number(&path[it]));
        assert!(0.0 < least && least <= mean && mean <= most && least < 1.0, "{path:#}");
        assert_eq!((&path["peer"], &path["problem"]), (&"other".into(), &Value::Null), "{path:#}");
        becomes(&a.socket, name, PATIENCE, |it| it["mtu"] == "fits" && it["path_mtu_bytes"] == 1420);
    }
    let shown = ask(&["show", "path", "echo", "--api", &a.socket.to_string_lossy()]);
    assert_eq!(shown[0]["targets"].as_array().map(Vec::len), Some(1));
    assert!(number(&paths(&b.socket)["reflector"]["answered"]) >= 3.0);
    let metrics = Command::new(postern()).args(["show", "metrics", "--api"]).arg(&a.socket).output();
    let metrics = String::from_utf8(metrics.expect("it runs").stdout).expect("text");
    for name in ["rtt_seconds", "loss_ratio", "path_mtu_bytes"] {
        assert!(
            metrics.contains(&format!("\npostern_tunnel_{name}{{protocol=\"wireguard\"")),
            "{name}: {metrics}"
        );
    }

    assert_eq!(rights(&a), Some(("0000000000000000".to_owned(), "2".to_owned())), "it has none");
    let process = b.process.expect("it was started");
    b.signal(Signal::KILL);
    wait_until(PATIENCE, || lab.ended(process).is_some()).expect("it ends");
    for name in ["echo", "stamp"] {
        let path = becomes(&a.socket, name, PATIENCE, |it| it["state"] == "silent");
        assert!(number(&path["loss_ratio"]) > 0.0 && path["remedy"].is_string(), "{path:#}");
        assert_eq!(path["mtu"], "fits", "lost probes of all sizes are no black hole: {path:#}");
    }
    b.start(&mut lab);
    for name in ["echo", "stamp"] {
        becomes(&a.socket, name, 2 * PATIENCE, |it| it["state"] == "answers");
    }
}

/// How long a relay keeps each datagram.
const KEPT: Duration = Duration::from_millis(100);

/// Sends what comes to a port of `b` on to its WireGuard port, and back, each time later.
fn relay(lab: &Lab, port: u16) {
    let bound = lab.enter("b", || -> std::io::Result<(UdpSocket, UdpSocket)> {
        let inside = UdpSocket::bind("127.0.0.1:0")?;
        inside.connect("127.0.0.1:51820")?;
        Ok((UdpSocket::bind(("192.168.77.2", port))?, inside))
    });
    let (outside, inside) = bound.expect("entered").expect("the ports are free");
    let (to_outside, to_inside) =
        (outside.try_clone().expect("one more"), inside.try_clone().expect("one more"));
    let (sender, caller) = std::sync::mpsc::channel();
    // They end with the test's process.
    std::thread::spawn(move || {
        let mut buffer = [0; 2000];
        while let Ok((length, from)) = outside.recv_from(&mut buffer) {
            std::thread::sleep(KEPT);
            let _ = sender.send(from);
            let _ = to_inside.send(&buffer[..length]);
        }
    });
    std::thread::spawn(move || {
        let (mut buffer, mut to) = ([0; 2000], None);
        loop {
            let Ok(length) = inside.recv(&mut buffer) else { continue };
            std::thread::sleep(KEPT);
            to = caller.try_iter().last().or(to);
            if let Some(to) = to {
                let _ = to_outside.send_to(&buffer[..length], to);
            }
        }
    });
}

#[test]
fn a_delay_of_the_path_is_measured_whatever_answers() {
    let Some(mut lab) = sites() else { return };
    let (a_keys, b_keys) = (key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    let by_relay = |line: String| line.replace("peer other port 51820", "peer other port 51999");
    let [mut ours, mut theirs] = [lines(0, &b_keys.1, &[]), lines(1, &a_keys.1, &[])];
    ours = ours.into_iter().map(by_relay).collect();
    theirs.retain(|line| !line.starts_with("peer other address") && !line.starts_with("peer other port"));
    write(
        &a,
        &ours,
        &[
            "interface wg0",
            "target echo address 10.66.0.2",
            "target echo interface wg0",
            "target stamp address 10.66.0.2",
            "target stamp interface wg0",
            "target stamp protocol stamp",
        ],
    );
    write(&b, &theirs, &["reflector listen-address 10.66.0.2"]);
    b.start(&mut lab);
    relay(&lab, 51999);
    a.start(&mut lab);
    for name in ["echo", "stamp"] {
        let path = becomes(&a.socket, name, 2 * PATIENCE, is_measured);
        let least = number(&path["rtt_least_seconds"]);
        // Both ways; machines that run tests are busy.
        assert!((0.2..0.7).contains(&least), "{path:#}");
    }
}

#[test]
fn a_hop_that_swallows_large_packets_is_named_and_the_fix_mends_it() {
    let monitor = ["interface wg0", "target b address 10.66.0.2", "target b interface wg0"];
    let Some((lab, a, _b, mut wireguard)) = started([&monitor, &[]]) else { return };
    // A hop of 1,380 bytes that tells nobody.
    let rule = "add table inet hop; add chain inet hop in { type filter hook prerouting priority -400; }; \
                add rule inet hop in meta length > 1380 drop";
    lab.run("b", "nft", &[rule]).expect("nft works");
    a.reload();
    let path = becomes(&a.socket, "b", SEARCH, |it| it["mtu"] == "black-hole");
    // WireGuard adds 60 bytes, and fills up to a multiple of 16.
    assert_eq!(
        (&path["path_mtu_bytes"], &path["tunnel_mtu_bytes"]),
        (&1312.into(), &1420.into()),
        "{path:#}"
    );
    assert_eq!(path["remedy"], "set interfaces wireguard wg0 mtu 1312");
    assert!(path["problem"].as_str().is_some_and(|it| it.contains("a black hole")), "{path:#}");
    let socket = a.socket.to_string_lossy().into_owned();
    let out = ask(&["show", "bottleneck", "wg0", "--api", &socket])[0].clone();
    assert_eq!((&out["limit"], &out["remedy"]), (&"path".into(), &path["remedy"]), "{out:#}");
    let firing = || {
        let said = Command::new(postern()).args(["doctor", "--api", &socket]).output().expect("it runs");
        String::from_utf8_lossy(&said.stdout).contains("loses packets of more than 1312 bytes")
    };
    wait_until(PATIENCE, firing).expect("doctor says it");

    wireguard[0].push("mtu 1312".to_owned());
    write(&a, &wireguard[0], &monitor);
    a.reload();
    let path = becomes(&a.socket, "b", PATIENCE, |it| it["mtu"] == "fits");
    assert_eq!((&path["path_mtu_bytes"], &path["problem"]), (&1312.into(), &Value::Null), "{path:#}");
}

#[test]
fn a_smaller_link_that_tells_is_no_black_hole() {
    let Some(lab) = sites_and(&["h"]) else { return };
    lab.connect(("b", "lan", "10.50.0.1/24"), ("h", "lan", "10.50.0.5/24")).expect("veth exists");
    for site in ["b", "h"] {
        lab.ip(site, "link set lan mtu 1300").expect("it is there");
    }
    lab.ip("h", "route add default via 10.50.0.1").expect("a route");
    let forward = || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
    lab.enter("b", forward).expect("it is there").expect("it forwards");
    let monitor = ["target h address 10.50.0.5", "target h interface wg0"];
    let (_lab, a, _b, _) = started_in(lab, [&monitor, &[]]);
    let path = becomes(&a.socket, "h", SEARCH, |it| it["mtu"] == "told");
    assert_eq!((&path["path_mtu_bytes"], &path["problem"]), (&1300.into(), &Value::Null), "{path:#}");
}

#[test]
fn a_target_that_goes_ends_and_a_port_in_use_refuses_a_commit() {
    let reflector = ["reflector listen-address 10.66.0.1"];
    let Some((lab, a, _b, wireguard)) = started([&reflector, &[]]) else { return };
    assert!(paths(&a.socket)["reflector"]["listen"][0] == "10.66.0.1:862");
    write(
        &a,
        &wireguard[0],
        &["target b address 10.66.0.2", "target b interface wg0", "target b protocol stamp"],
    );
    a.reload();
    assert_eq!(paths(&a.socket)["reflector"], Value::Null);
    // Nothing reflects at the other end, and no probe is answered by anything else.
    let path = becomes(&a.socket, "b", PATIENCE, |it| it["state"] == "silent");
    assert!(
        path["remedy"].as_str().is_some_and(|it| it.contains("reflector listen-address 10.66.0.2")),
        "{path:#}"
    );
    let taken = lab.take("a", "10.66.0.1:862").expect("free");
    write(&a, &wireguard[0], &reflector);
    let said = a.reload();
    assert!(
        said.contains("reflector listen-address 10.66.0.1:862")
            && said.contains("another program has the port"),
        "{said}"
    );
    drop(taken);
    assert_eq!(target(&a.socket, "b")["state"], "silent", "what was in force still is");
    let said = a.reload();
    assert!(said.contains("in force") && !said.contains("not in force"), "{said}");
    assert!(paths(&a.socket)["targets"].as_array().is_some_and(Vec::is_empty));
}

#[test]
fn the_same_probes_measure_ipsec() {
    let monitor = "set service path-monitor target echo address 10.20.0.1\n\
                   set service path-monitor target echo interface ipsec0\n\
                   set service path-monitor target stamp address 10.20.0.1\n\
                   set service path-monitor target stamp interface ipsec0\n\
                   set service path-monitor target stamp protocol stamp\n";
    let reflector = "set service path-monitor reflector listen-address 10.20.0.1\n";
    let Some((_lab, [a, _b])) = ipsec::started(|end, text| text + [monitor, reflector][end]) else { return };
    a.comes_up("other");
    for name in ["echo", "stamp"] {
        let path = becomes(&a.0.socket, name, 2 * PATIENCE, is_measured);
        assert_eq!((&path["peer"], &path["tunnel"]), (&"other".into(), &1.into()), "{path:#}");
        let fits = |it: &Value| it["mtu"] == "fits" || it["mtu"] == "told";
        becomes(&a.0.socket, name, 2 * PATIENCE, fits);
    }
}
