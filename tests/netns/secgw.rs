//! `postern secgw` as two encryptors with one file, between hosts whose kernels know nothing of it.

use crate::support::{PATIENCE, postern};
use lab::{Lab, Process, wait_until};
use packet::header::esp::ESP;
use packet::header::flow::Upper;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters};
use port::{Receive, af_packet};
use rustix::process::Signal;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The file of both encryptors: each uses the SAs of its side. 5 and 6 are tunnels over IPv4, 7 and 8 over IPv6, each for packets of
/// both families.
const FILE: &str = "\
sp ipv4 out esp protect 5 pri 1 dst 192.168.2.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp protect 6 pri 1 dst 192.168.1.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp protect 7 pri 1 dst 192.168.4.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp protect 8 pri 1 dst 192.168.3.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp discard pri 9 dst 192.168.2.9/32 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 5 pri 1 dst 192.168.2.0/24 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 6 pri 1 dst 192.168.1.0/24 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 7 pri 1 dst 192.168.4.0/24 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 8 pri 1 dst 192.168.3.0/24 sport 0:65535 dport 0:65535
sp ipv6 out esp protect 5 pri 1 dst fd02::/64 sport 0:65535 dport 0:65535
sp ipv6 out esp protect 6 pri 1 dst fd01::/64 sport 0:65535 dport 0:65535
sp ipv6 out esp protect 7 pri 1 dst fd04::/64 sport 0:65535 dport 0:65535
sp ipv6 out esp protect 8 pri 1 dst fd03::/64 sport 0:65535 dport 0:65535
sp ipv6 in esp protect 5 pri 1 dst fd02::/64 sport 0:65535 dport 0:65535
sp ipv6 in esp protect 6 pri 1 dst fd01::/64 sport 0:65535 dport 0:65535
sp ipv6 in esp protect 7 pri 1 dst fd04::/64 sport 0:65535 dport 0:65535
sp ipv6 in esp protect 8 pri 1 dst fd03::/64 sport 0:65535 dport 0:65535
sa out 5 aead_algo aes-128-gcm aead_key KEY mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
sa in 5 aead_algo aes-128-gcm aead_key KEY mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
sa out 6 cipher_algo aes-128-cbc cipher_key CBC auth_algo sha1-hmac auth_key KEY mode ipv4-tunnel src 172.16.2.5 dst 172.16.1.5
sa in 6 cipher_algo aes-128-cbc cipher_key CBC auth_algo sha1-hmac auth_key KEY mode ipv4-tunnel src 172.16.2.5 dst 172.16.1.5
sa out 7 cipher_algo aes-128-cbc cipher_key CBC auth_algo sha1-hmac auth_key KEY mode ipv6-tunnel src fd10::5 dst fd20::5
sa in 7 cipher_algo aes-128-cbc cipher_key CBC auth_algo sha1-hmac auth_key KEY mode ipv6-tunnel src fd10::5 dst fd20::5
sa out 8 aead_algo aes-128-gcm aead_key KEY mode ipv6-tunnel src fd20::5 dst fd10::5
sa in 8 aead_algo aes-128-gcm aead_key KEY mode ipv6-tunnel src fd20::5 dst fd10::5
rt ipv4 dst 172.16.0.0/16 port 1
rt ipv4 dst 192.168.0.0/16 port 0
rt ipv6 dst fd10::/16 port 1
rt ipv6 dst fd20::/16 port 1
rt ipv6 dst fd01::/16 port 0
rt ipv6 dst fd02::/16 port 0
rt ipv6 dst fd03::/16 port 0
rt ipv6 dst fd04::/16 port 0
neigh port 0 02:00:00:00:00:01
neigh port 1 02:00:00:00:00:ff
";

/// The addresses of the hosts, left and right.
const ADDRESSES: [(&str, &str); 4] = [
    ("192.168.1.2", "192.168.2.2"),
    ("192.168.3.2", "192.168.4.2"),
    ("fd01::2", "fd02::2"),
    ("fd03::2", "fd04::2"),
];

fn file(key: &str) -> String {
    FILE.replace("KEY", key).replace("CBC", &vec!["c5"; 16].join(":"))
}

/// host ─ left ─ wire ─ right, whose own kernel is the host behind its TAP interface. All ports are veth pairs but that one.
fn scene() -> Option<Lab> {
    let lab = crate::support::lab(&["host", "left", "wire", "right"])?;
    for (a, from, b, to) in
        [("host", "eth0", "left", "p0"), ("left", "u0", "wire", "w0"), ("wire", "w1", "right", "u0")]
    {
        let (namespace_a, namespace_b) = (lab.namespace(a), lab.namespace(b));
        let words = [
            "link",
            "add",
            from,
            "netns",
            &namespace_a,
            "type",
            "veth",
            "peer",
            "name",
            to,
            "netns",
            &namespace_b,
        ];
        lab::run("ip", words).expect("a veth pair can be made");
        for (namespace, interface) in [(a, from), (b, to)] {
            lab.run(namespace, "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=1")])
                .expect("it can be set");
            lab.ip(namespace, &format!("link set {interface} up")).expect("it is there");
        }
    }
    lab.ip("wire", "link add br0 type bridge").expect("a bridge can be made");
    for interface in ["w0", "w1", "br0"] {
        let master = if interface == "br0" { "" } else { "master br0" };
        lab.ip("wire", &format!("link set {interface} {master} up")).expect("it is there");
    }
    lab.ip("right", "tuntap add dtap0 mode tap").expect("it can be made");
    for (namespace, interface) in [("host", "eth0"), ("right", "dtap0")] {
        lab.run(namespace, "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=0")])
            .expect("it can be set");
        lab.ip(namespace, &format!("link set {interface} address 02:00:00:00:00:01 up"))
            .expect("it is there");
    }
    for (left, right) in ADDRESSES {
        for (namespace, interface, near, far) in
            [("host", "eth0", left, right), ("right", "dtap0", right, left)]
        {
            let (length, nodad) = if near.contains(':') { (64, "nodad") } else { (24, "") };
            let network = far.trim_end_matches('2');
            let network = if far.contains(':') { network.to_owned() } else { format!("{network}0") };
            let gateway = format!("{}9", near.trim_end_matches('2'));
            for words in [
                format!("address add {near}/{length} dev {interface} {nodad}"),
                format!("neigh replace {gateway} lladdr 02:00:00:00:00:99 dev {interface}"),
                format!("route replace {network}/{length} via {gateway} dev {interface}"),
            ] {
                lab.ip(namespace, &words).expect(&words);
            }
        }
    }
    Some(lab)
}

/// Starts an encryptor with two devices; its statistics go to a file when it ends.
fn start(lab: &mut Lab, namespace: &str, file: &Path, devices: [&str; 2]) -> Process {
    let mut command = lab.command(namespace, postern());
    let output = File::create(file.with_extension(namespace)).expect("it can be made");
    command.args(["secgw", "-l", "0", "--no-pci", "--vdev", devices[0], "--vdev", devices[1], "--"]);
    command.args(["-P", "-p", "0x3", "-u", "0x2", "-w", "64", "-f"]).arg(file);
    command.args(["--config", "(0,0,0),(1,0,0)"]).stdout(output);
    lab.start(&mut command).expect("it starts")
}

fn answers(lab: &Lab, to: &str) -> bool {
    lab.run("host", "ping", &["-c", "1", "-W", "1", to]).is_ok()
}

fn is_up(lab: &Lab, when: &str) {
    for (_, right) in ADDRESSES {
        wait_until(2 * PATIENCE, || answers(lab, right))
            .unwrap_or_else(|error| panic!("{when}, {right}: {error}"));
    }
}

/// Reads the wire until it is told to stop; returns the frames with ESP in both families, and all others with IP.
fn watch(stop: &AtomicBool, is_ready: &AtomicBool) -> ([usize; 2], Vec<Vec<u8>>) {
    // Each end sees what the encryptor at it sends.
    let mut ends = ["w0", "w1"].map(|end| af_packet::open(end).expect("it can be opened").0);
    is_ready.store(true, Ordering::Relaxed);
    let (mut batch, drops) = (Batch::new(256 * 1024), DropCounters::default());
    let (mut esp, mut others) = ([0, 0], Vec::new());
    while !stop.load(Ordering::Relaxed) {
        batch.clear();
        for receive in &mut ends {
            receive.receive(&mut batch, &drops).expect("the interface stays");
        }
        if batch.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for index in batch.live(0..batch.len()) {
            let Ok(ip) = IpPacket::parse(&batch.packet(index)[14..]) else { continue };
            match Upper::of(&ip).protocol {
                ESP => esp[usize::from(matches!(ip, IpPacket::V6(..)))] += 1,
                _ => others.push(batch.packet(index).to_vec()),
            }
        }
    }
    (esp, others)
}

#[test]
fn two_encryptors_with_one_file_carry_both_families_in_both_and_nothing_in_clear() {
    let Some(mut lab) = scene() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let left = start(&mut lab, "left", &path, ["net_af_packet0,iface=p0", "net_af_xdp0,iface=u0"]);
    let right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let (esp, clear) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| lab.enter("wire", || watch(&stop, &is_ready)).expect("no panic"));
        wait_until(PATIENCE, || is_ready.load(Ordering::Relaxed)).expect("it opens its port");
        is_up(&lab, "at the start");
        for words in ["192.168.2.2 -s 1400", "192.168.4.2 -s 8", "fd02::2 -s 1300", "fd04::2 -s 8"] {
            let words: Vec<&str> = ["-c", "3", "-W", "10"].into_iter().chain(words.split(' ')).collect();
            lab.run("host", "ping", &words).expect("each is answered");
        }
        assert!(!answers(&lab, "192.168.2.9"), "a policy discards it");
        for (namespace, interface) in [("left", "u0"), ("left", "p0"), ("right", "u0")] {
            lab.ip(namespace, &format!("link set {interface} down")).expect("it is there");
            assert!(!answers(&lab, "192.168.2.2"), "{interface} is down");
            lab.ip(namespace, &format!("link set {interface} up")).expect("it is there");
            is_up(&lab, interface);
        }
        stop.store(true, Ordering::Relaxed);
        watcher.join().expect("it does not panic")
    });
    assert!(esp.iter().all(|&count| count >= 20), "{esp:?}");
    assert!(clear.is_empty(), "{clear:02x?}");
    lab.kill(left, Signal::INT);
    lab.kill(right, Signal::TERM);
    let counts = |namespace: &str| {
        std::fs::read_to_string(path.with_extension(namespace)).expect("statistics at the end")
    };
    let (left, right) = (counts("left"), counts("right"));
    for line in ["sa out 5 aes-128-gcm: ", "sa in 6 aes-128-cbc with sha1-hmac: ", "sa out 7 ", "sa in 8 "] {
        let found = left.lines().find(|found| found.starts_with(line));
        assert!(found.is_some_and(|found| !found.contains(": 0 packets")), "{line}: {left}");
    }
    assert!(
        left.contains("sp out, line 5, discard: 1 packets") && left.contains("dropped denied: "),
        "{left}"
    );
    assert!(right.contains("sp in, line 6, protect 5: ") && !right.contains("dropped bad-tag"), "{right}");
}
