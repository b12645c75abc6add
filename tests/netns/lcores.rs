//! `postern secgw` with two lcores: two queues of each port, and one queue of each port for another lcore.

use crate::secgw::{ADDRESSES, Ends, answers, ask, connect, file, is_up, read_wire, scene, start_on};
use crate::support::{PATIENCE, postern};
use lab::{Lab, Process, wait_until};
use packet::header::esp::ESP;
use packet::header::ip::IpPacket;
use rustix::process::Signal;
use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The UDP port that is answered on, flows to each address, and datagrams of a flow, of which each waits for the answer to the one before.
const PORT: u16 = 7000;
const FLOWS: usize = 16;
const DATAGRAMS: u32 = 40;
/// The longest frame: the last datagram, and its headers.
const LONGEST: usize = 1200;

/// Reads the wire until it is told to stop: SPI and number of each ESP packet, and all other frames with IP.
fn watch(stop: &AtomicBool, is_ready: &AtomicBool) -> (Vec<[u8; 8]>, Vec<Vec<u8>>) {
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    read_wire(LONGEST, stop, is_ready, |frame| {
        let packet = &frame[14..];
        let (protocol, start) = match IpPacket::parse(packet) {
            Ok(IpPacket::V4(..)) => (packet[9], 20),
            Ok(IpPacket::V6(..)) => (packet[6], 40),
            Err(_) => return,
        };
        match packet.get(start..).and_then(|rest| rest.first_chunk()) {
            Some(number) if protocol == ESP => numbers.push(*number),
            _ => others.push(packet.to_vec()),
        }
    });
    (numbers, others)
}

/// Answers the datagrams to an address until it is told to stop.
fn echo(address: IpAddr, stop: &AtomicBool, ready: &AtomicUsize) {
    let socket = UdpSocket::bind((address, PORT)).expect("the address is there");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("it can be set");
    ready.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 2048];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..length], from).expect("there is a route");
        }
    }
}

/// Sends the datagrams of a flow. Each is answered.
fn flow(from: IpAddr, to: IpAddr) {
    let socket = UdpSocket::bind((from, 0)).expect("the address is there");
    socket.connect(SocketAddr::new(to, PORT)).expect("there is a route");
    socket.set_read_timeout(Some(PATIENCE)).expect("it can be set");
    let mut bytes = [0; 2048];
    for number in 0..DATAGRAMS {
        socket.send(&[&number.to_be_bytes()[..], &vec![7; 20 * number as usize]].concat()).expect("it is up");
        socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{to}, {number}: {error}"));
        assert_eq!(bytes[..4], number.to_be_bytes(), "no datagram comes twice");
    }
}

/// All flows at once; what was on the wire meanwhile: SPI and number of each ESP packet, and all other frames with IP.
fn carry(lab: &Lab) -> (Vec<[u8; 8]>, Vec<Vec<u8>>) {
    carry_between(lab, &ADDRESSES)
}

/// The same with flows between these addresses of the hosts.
pub fn carry_between(lab: &Lab, addresses: &[(&str, &str)]) -> (Vec<[u8; 8]>, Vec<Vec<u8>>) {
    let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| lab.enter("wire", || watch(&stop, &is_ready)).expect("no panic"));
        let ends = Ends(&stop);
        wait_until(PATIENCE, || is_ready.load(Ordering::Relaxed)).expect("it opens its port");
        for (_, right) in addresses {
            wait_until(2 * PATIENCE, || answers(lab, right))
                .unwrap_or_else(|error| panic!("{right}: {error}"));
        }
        let ways: Vec<[IpAddr; 2]> = addresses
            .iter()
            .map(|(left, right)| [left, right].map(|address| address.parse().expect("literal")))
            .collect();
        let (stop, ready) = (&stop, AtomicUsize::new(0));
        let ready = &ready;
        std::thread::scope(|scope| {
            // They end with the flows, or when one of those fails.
            let echoes = Ends(stop);
            for &[_, right] in &ways {
                scope.spawn(move || lab.enter("right", || echo(right, stop, ready)).expect("no panic"));
            }
            wait_until(PATIENCE, || ready.load(Ordering::Relaxed) == ways.len()).expect("all are bound");
            let all = ways.iter().flat_map(|&way| [way; FLOWS]);
            let flows: Vec<_> = all
                .map(|[left, right]| {
                    scope.spawn(move || lab.enter("host", || flow(left, right)).expect("each is answered"))
                })
                .collect();
            for flow in flows {
                flow.join().expect("no datagram is lost");
            }
            drop(echoes);
        });
        drop(ends);
        watcher.join().expect("it does not panic")
    })
}

/// Carries flows both ways between two encryptors; the statistics of the left one.
fn carries(lab: &mut Lab, path: &Path, devices: [[&str; 2]; 2], queues: [&str; 2]) -> serde_json::Value {
    let words = devices.map(|[first, second]| ["--vdev", first, "--vdev", second]);
    carries_by(lab, path, [&words[0], &words[1]], queues, |_| (), |_, _| ())
}

/// The same with these words about devices. Calls one function when both encryptors have started, and another before they end.
pub fn carries_by(
    lab: &mut Lab,
    path: &Path,
    devices: [&[&str]; 2],
    queues: [&str; 2],
    started: impl FnOnce(&Lab),
    look: impl FnOnce(Process, Process),
) -> serde_json::Value {
    std::fs::write(path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let left = start_on(lab, "left", path, devices[0], queues[0]);
    let right = start_on(lab, "right", path, devices[1], queues[1]);
    started(lab);
    let (numbers, clear) = carry(lab);
    look(left, right);
    let datagrams = ADDRESSES.len() * FLOWS * DATAGRAMS as usize;
    assert!(numbers.len() >= 2 * datagrams, "{} packets", numbers.len());
    let unique: HashSet<&[u8; 8]> = numbers.iter().collect();
    assert_eq!(unique.len(), numbers.len(), "no SA uses a number twice");
    assert!(clear.is_empty(), "{clear:02x?}");
    let (said, status) = ask(path, &["show", "secgw", "ports"]);
    assert!(status == Some(0) && said.contains("lcore"), "{said}");
    let (shown, _) = ask(path, &["show", "secgw", "--json"]);
    lab.kill(left, Signal::INT);
    lab.kill(right, Signal::TERM);
    let text = std::fs::read_to_string(path.with_extension("right")).expect("statistics at the end");
    for reason in ["replayed", "bad-tag", "unknown-sa"] {
        assert!(!text.contains(&format!("dropped {reason}")), "{text}");
    }
    serde_json::from_str::<serde_json::Value>(&shown).expect("JSON")[0].take()
}

#[test]
fn two_lcores_with_two_queues_carry_many_flows_without_loss_and_no_number_twice() {
    let Some(mut lab) = scene(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    let all = "(0,0,0),(0,1,1),(1,0,1),(1,1,0)";
    let devices = [
        ["net_af_xdp0,iface=p0,queue_count=2,shared_umem=1", "net_af_xdp1,iface=u0"],
        ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0,qpairs=2"],
    ];
    let shown = carries(&mut lab, &path, devices, [all, all]);
    for lcore in shown["lcores"].as_array().expect("a list") {
        let count = |name: &str| lcore[name].as_u64().expect("a count");
        assert!(count("received") > 100 && count("sent") > 100, "the kernel spreads flows: {shown:#}");
    }

    for (devices, queues, said) in [
        (
            devices[0][1],
            "(0,0,0),(0,1,1),(0,2,1),(1,0,0)",
            "has 2 queues, and frames are received from 3\n  fix: ethtool -L u0 rx 3 tx 3",
        ),
        (
            devices[0][1],
            "(0,0,0),(1,0,0)",
            "has 2 queues, and frames are received from 1\n  fix: ethtool -L u0 rx 1 tx 1",
        ),
        ("net_af_xdp1,iface=u0,start_queue=2", "(0,0,0),(1,0,0)", "has 0 queues from queue 2 on"),
    ] {
        let path = path.display().to_string();
        let words =
            ["secgw", "-l", "0-1", "--no-pci", "--vdev", devices, "--vdev", "net_af_packet0,iface=p0", "--"];
        let words = [&words[..], &["-p", "3", "-u", "2", "-f", &path, "--config", queues]].concat();
        let program = postern().display().to_string();
        let refused = lab.run("left", &program, &words).expect_err("it does not start").to_string();
        assert!(refused.contains(said), "{refused}");
    }
}

#[test]
fn a_port_of_two_lcores_is_opened_again_with_the_queues_of_both() {
    let Some(mut lab) = scene(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let queues = "(0,0,0),(0,1,1),(1,0,1),(1,1,0)";
    let left = ["--vdev", "net_af_packet0,iface=p0,qpairs=2", "--vdev", "net_af_xdp1,iface=u0"];
    let right = ["--vdev", "net_tap0,iface=dtap0", "--vdev", "net_af_packet0,iface=u0,qpairs=2"];
    let left = start_on(&mut lab, "left", &path, &left, queues);
    let right = start_on(&mut lab, "right", &path, &right, queues);
    is_up(&lab, "at the start");
    for (namespace, wire) in [("left", "w0"), ("right", "w1")] {
        lab.ip(namespace, "link delete u0").expect("it is there");
        assert!(!answers(&lab, "192.168.2.2"), "{namespace} has no such port");
        connect(&lab, (namespace, "u0", "wire", wire), 2);
        lab.ip("wire", &format!("link set {wire} master br0")).expect("it is there");
        is_up(&lab, "after its interface was made again");
    }
    let received = || -> Vec<u64> {
        let (shown, _) = ask(&path, &["show", "secgw", "--json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        let lcores = shown[0]["lcores"].as_array().expect("a list");
        lcores.iter().map(|lcore| lcore["received"].as_u64().expect("a count")).collect()
    };
    let before = received();
    let (numbers, clear) = carry(&lab);
    assert!(clear.is_empty(), "{clear:02x?}");
    assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len(), "no SA uses a number twice");
    for (before, after) in before.iter().zip(received()) {
        assert!(after > before + 100, "the kernel spreads flows: {before}, {after}");
    }
    lab.kill(left, Signal::INT);
    lab.kill(right, Signal::TERM);
}

#[test]
fn each_lcore_receives_from_one_port_and_sends_by_both() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    let devices = [
        ["net_af_xdp0,iface=p0", "net_af_xdp1,iface=u0"],
        ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"],
    ];
    let shown = carries(&mut lab, &path, devices, ["(0,0,0),(1,0,1)", "(0,0,1),(1,0,0)"]);
    let datagrams = (ADDRESSES.len() * FLOWS) as u64 * u64::from(DATAGRAMS);
    for place in [0, 1] {
        assert!(shown["lcores"][place]["received"].as_u64() >= Some(datagrams), "{shown:#}");
        assert!(shown["lcores"][place]["sent"].as_u64() >= Some(datagrams), "{shown:#}");
    }
}
