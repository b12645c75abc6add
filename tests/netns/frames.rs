//! Ports that carry Ethernet frames, and the tester that uses them: `postern bench rfc2544` through a bridge, a router, and a device that
//! damages frames.

use crate::support::postern;
use crate::tester::{counts, is_carried, measure, measure_in, scene};
use lab::{Lab, wait_until};
use packet::{Batch, DropCounters};
use port::af_packet;
use port::fault::{Fault, Faults};
use port::xdp::{self, Mode, XdpOptions, XdpReceive, XdpTransmit};
use port::{Receive, Transmit};
use serde_json::Value;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn a_bridge_and_a_router_are_measured_by_either_wire_and_keep_their_interfaces() {
    let Some(lab) = scene() else { return };
    lab.ip("device", "link add br0 type bridge").expect("a bridge can be made");
    for interface in ["d0", "d1"] {
        lab.ip("device", &format!("link set {interface} master br0")).expect("it is there");
    }
    lab.ip("device", "link set br0 up").expect("it is there");
    for wire in ["packet", "af-xdp"] {
        let words = format!("--tx t0 --rx t1 --wire {wire} --both --protocol tcp");
        is_carried(&measure(&lab, &words), wire);
        let links = lab.ip("tester", "-details link show").expect("they are there");
        assert!(!links.contains("xdp") && !links.contains("promiscuity 1"), "{wire} leaves nothing: {links}");
    }
    esp_is_carried(&lab);
    // The bridge once more, between TAP interfaces in its own namespace.
    for interface in ["tap0", "tap1"] {
        lab.ip("device", &format!("tuntap add {interface} mode tap")).expect("it can be made");
        lab.ip("device", &format!("link set {interface} master br0 up")).expect("it is there");
    }
    is_carried(&measure_in(&lab, "device", "--tx tap0 --rx tap1 --wire tap --test throughput"), "tap");
    lab.ip("device", "link delete br0").expect("it is there");
    for (interface, address) in [("d0", "198.18.0.1/24"), ("d1", "198.19.0.1/24")] {
        lab.ip("device", &format!("address add {address} dev {interface}")).expect("it is there");
    }
    lab.run("device", "sysctl", &["-qw", "net.ipv4.ip_forward=1"]).expect("it can be set");
    let words = "--tx t0 --rx t1 --routers 198.18.0.1 198.19.0.1 --defer-napi --test latency";
    let report = measure(&lab, words);
    is_carried(&report, "router");
    assert_eq!(report["wire"], "af-xdp");
    let deferred =
        lab.run("tester", "cat", &["/sys/class/net/t0/napi_defer_hard_irqs"]).expect("it is there");
    assert_eq!(deferred.trim(), "0", "it is put back");
    is_routed_over_ipv6(&lab);
    let mut command = lab.command("tester", postern());
    let words = "bench rfc2544 --tx t0 --rx none0 --quick";
    let output = command.args(words.split(' ')).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("no interface none0") && said.contains("fix: "),
        "{said}"
    );
}

/// The router once more, over IPv6 and to many networks behind each port: it finds the tester by neighbour discovery, and the reverse.
fn is_routed_over_ipv6(lab: &Lab) {
    for (interface, address) in [("d0", "2001:2::1/49"), ("d1", "2001:2:0:8000::1/49")] {
        lab.ip("device", &format!("address add {address} dev {interface} nodad")).expect("it is there");
    }
    lab.run("device", "sysctl", &["-qw", "net.ipv6.conf.all.forwarding=1"]).expect("it can be set");
    let routers = "--ipv6 --routers 2001:2::1 2001:2:0:8000::1";
    let words = format!("--tx t0 --rx t1 {routers} --both --streams 12 --protocol icmp --test throughput");
    let report = measure(lab, &words);
    is_carried(&report, "router over IPv6");
    assert_eq!((&report["family"], &report["streams"]), (&"ipv6".into(), &12.into()));
    let streams = report["sizes"][0]["streams"].as_array().expect("a list");
    let of = |name: &str| streams.iter().map(|it| it[name].as_u64().expect("a count")).collect::<Vec<_>>();
    assert!(streams.len() == 24 && of("received").iter().all(|&count| count > 0), "{report:#}");
    assert_eq!(of("received").iter().sum::<u64>(), counts(&report)[1], "each frame is of one stream");
}

/// ESP with known keys through the bridge, in both directions; interfaces that do not fit it are refused.
fn esp_is_carried(lab: &Lab) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let keys = |count: usize| vec!["5a"; count].join(":");
    let text = format!(
        "sa in 2000 aead_algo aes-128-gcm aead_key {} mode ipv4-tunnel src 192.0.2.1 dst 192.0.2.2\n\
         sa in 2001 cipher_algo aes-128-cbc cipher_key {} auth_algo sha256-hmac auth_key {} mode ipv4-tunnel src 192.0.2.2 dst 192.0.2.1\n",
        keys(20),
        keys(16),
        keys(32)
    );
    std::fs::write(file.path(), text).expect("it can be written");
    let words =
        format!("--tx t0 --rx t1 --both --esp {} --esp-side both --test throughput", file.path().display());
    let report = measure(lab, &words);
    is_carried(&report, "esp");
    let seals = &report["esp"]["seals"];
    assert_eq!((&seals[0][0], &seals[1][0]), (&2000.into(), &2001.into()), "{report:#}");
    let mut command = lab.command("tester", postern());
    command.args("bench rfc2544 --seconds 0.1 --size 1518".split(' ')).args(words.split(' '));
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("ip link set t0 mtu 15"), "{said}");
}

/// Forwards frames from `d0` to `d1` with faults, until it is told to stop.
fn damage(faults: Faults, stop: &AtomicBool, is_ready: &AtomicBool) {
    let (receive, _) = af_packet::open("d0").expect("it can be opened");
    let (_, mut transmit) = af_packet::open("d1").expect("it can be opened");
    let (mut batch, drops) = (Batch::new(256 * 1024), DropCounters::default());
    let mut receive = Fault::new(receive, faults, Arc::default());
    is_ready.store(true, Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) {
        batch.clear();
        if receive.receive(&mut batch, &drops).expect("the interface stays") == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        transmit.transmit(&mut batch, &drops);
    }
}

#[test]
fn a_device_that_loses_duplicates_reorders_or_corrupts_is_reported_as_that() {
    let Some(lab) = scene() else { return };
    for (fault, wire) in
        [("lose", "packet"), ("duplicate", "af-xdp"), ("reorder", "packet"), ("corrupt", "af-xdp")]
    {
        let faults: Faults = format!("{fault}=0.1,seed=7").parse().expect("it is well-formed");
        let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
        let report = std::thread::scope(|scope| {
            scope.spawn(|| {
                lab.enter("device", || damage(faults, &stop, &is_ready)).expect("it does not panic");
            });
            wait_until(Duration::from_secs(30), || is_ready.load(Ordering::Relaxed))
                .expect("it opens its ports");
            let report = measure(&lab, &format!("--tx t0 --rx t1 --wire {wire} --test throughput"));
            stop.store(true, Ordering::Relaxed);
            report
        });
        let [sent, _, lost, duplicated, reordered, corrupted] = counts(&report);
        let near = |count: u64| count * 20 > sent && count * 5 < sent;
        let few = |count: u64| count * 100 <= sent;
        // Frames held back for later are not delivered if no later frame comes.
        let right = match fault {
            "lose" => near(lost) && duplicated + reordered + corrupted == 0,
            "duplicate" => near(duplicated) && reordered + corrupted == 0,
            "reorder" => near(reordered) && duplicated + corrupted == 0,
            _ => corrupted * 25 > sent && corrupted * 5 < sent && duplicated + reordered == 0,
        };
        let whole = fault == "lose" || few(lost.saturating_sub(sent / 20));
        assert!(sent > 300 && right && whole, "{fault}: {report:#}");
    }
}

#[test]
fn the_protocol_of_document_002_runs_through_two_encryptors_and_through_one() {
    if crate::support::lab(&["root"]).is_none() {
        return;
    }
    let mut command = Command::new(postern());
    command.args(
        "bench document-002 --json --seconds 0.02 --size 256 --part frame-sizes --part encryptor".split(' '),
    );
    command.args("--peer ipsec-secgw --peer-directory /proc/none".split(' '));
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("ipsec-secgw is not measured: ") && said.contains("3/3 Encryptor: 256"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["missing"][0][0], "ipsec-secgw");
    let entries = report["entries"].as_array().expect("a list");
    assert_eq!(entries.len(), 3, "the pair, and one encryptor in one and both directions: {report:#}");
    for entry in entries {
        assert_eq!((&entry["device"], &entry["error"]), (&"postern".into(), &Value::Null), "{entry:#}");
        let trials = entry["result"]["trials"].as_array().expect("a list");
        let through: Vec<&Value> = trials.iter().filter(|it| it["purpose"] != "calibration").collect();
        let directions = if entry["both"] == true { 2 } else { 1 };
        for direction in 0..directions {
            let received = |it: &&Value| it["directions"][direction]["received"].as_u64().expect("a count");
            assert!(through.iter().map(received).sum::<u64>() > 100, "{entry:#}");
        }
        let of = |name: &str| through.iter().map(|it| it[name].as_u64().expect("a count")).sum::<u64>();
        let wrong = ["corrupted", "clear", "repeated", "duplicated", "reordered"].map(of);
        assert_eq!(wrong, [0; 5], "every frame was decrypted as it was sent: {entry:#}");
    }
    assert_eq!(entries[0]["fixed"].as_array().map(Vec::len), Some(2), "the document's rates: {report:#}");
}

/// The queues of an interface by generic AF_XDP, each with a memory of its own, or all with one.
fn queues(interface: &str, shares_memory: bool) -> (Vec<XdpReceive>, Vec<XdpTransmit>) {
    let options = XdpOptions { modes: &[Mode::Generic], shares_memory, ..XdpOptions::default() };
    xdp::open(interface, options).expect("it can be opened").into_iter().unzip()
}

/// Forwards frames between `d0` and `d1`, by each of their two queues in turn; the frames that left by the second queues.
fn alternate(stop: &AtomicBool, is_ready: &AtomicBool) -> [u64; 2] {
    let ((from_first, to_first), (from_second, to_second)) = (queues("d0", false), queues("d1", true));
    let mut ways = [(from_first, to_second), (from_second, to_first)];
    let (mut batch, drops, mut second) = (Batch::new(256 * 1024), DropCounters::default(), [0; 2]);
    let mut turns = [0; 2];
    is_ready.store(true, Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) {
        let mut count = 0;
        for (way, (receive, transmit)) in ways.iter_mut().enumerate() {
            assert_eq!((receive.len(), transmit.len()), (2, 2), "both queues are open");
            for queue in receive {
                batch.clear();
                let received = queue.receive(&mut batch, &drops).expect("the interface stays");
                if received > 0 {
                    turns[way] += 1;
                    transmit[turns[way] % 2].transmit(&mut batch, &drops);
                    second[way] += received as u64 * (turns[way] % 2) as u64;
                    count += received;
                }
            }
        }
        if count == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    second
}

#[test]
fn all_queues_are_received_and_generic_xdp_carries_what_drivers_do_not() {
    let Some(lab) = crate::support::lab(&["tester", "device"]) else { return };
    let [tester, device] = ["tester", "device"].map(|name| lab.namespace(name));
    for number in 0..2 {
        let words = format!(
            "link add t{number} netns {tester} numrxqueues 2 numtxqueues 2 type veth \
             peer name d{number} netns {device} numrxqueues 2 numtxqueues 2"
        );
        lab::run("ip", words.split_whitespace()).expect("a veth pair can be made");
        lab.ip("device", &format!("link set d{number} up")).expect("it is there");
    }
    // A bridge has no XDP of its own.
    for words in [
        "link add b0 type bridge",
        "link set t0 master b0",
        "link set t0 up",
        "link set t1 up",
        "link set b0 up",
    ] {
        lab.ip("tester", words).expect("a bridge can be made");
    }
    let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let (report, second) = std::thread::scope(|scope| {
        let forward =
            scope.spawn(|| lab.enter("device", || alternate(&stop, &is_ready)).expect("it can be entered"));
        wait_until(Duration::from_secs(30), || is_ready.load(Ordering::Relaxed)).expect("it opens its ports");
        let report = measure(&lab, "--tx b0 --rx t1 --wire af-xdp --both --test throughput");
        stop.store(true, Ordering::Relaxed);
        (report, forward.join().expect("it does not panic"))
    });
    let ports = [0, 1].map(|port| report["ports"][port].as_str().expect("a name").to_owned());
    assert!(ports[0].contains("generic") && ports[1].contains("queues: 2"), "{ports:?}");
    // Frames of different queues may pass each other.
    let [sent, received, _, duplicated, _, corrupted] = counts(&report);
    assert!(second[0] * 10 > sent, "the second queue of t1 has its part: {second:?}, {report:#}");
    assert!(sent > 300 && received * 10 > sent * 9, "{second:?}, {report:#}");
    assert_eq!([duplicated, corrupted], [0; 2], "{report:#}");
    let links = lab.ip("tester", "-details link show").expect("they are there");
    assert!(!links.contains("xdp"), "nothing is left: {links}");
}
