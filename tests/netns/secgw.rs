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

/// Of the longest packet that the wire carries in a test.
const LONGEST_FRAME: usize = 9014;

/// The addresses of the hosts, left and right.
pub const ADDRESSES: [(&str, &str); 4] = [
    ("192.168.1.2", "192.168.2.2"),
    ("192.168.3.2", "192.168.4.2"),
    ("fd01::2", "fd02::2"),
    ("fd03::2", "fd04::2"),
];

pub fn file(key: &str) -> String {
    FILE.replace("KEY", key).replace("CBC", &vec!["c5"; 16].join(":"))
}

/// Makes a veth pair between two namespaces, up at both ends, with so many queues.
pub fn connect(lab: &Lab, (a, from, b, to): (&str, &str, &str, &str), queues: usize) {
    let (namespace_a, namespace_b) = (lab.namespace(a), lab.namespace(b));
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    let line = format!(
        "link add {from} netns {namespace_a} {queues} type veth peer name {to} netns {namespace_b} {queues}"
    );
    lab::run("ip", line.split(' ')).expect("a veth pair can be made");
    for (namespace, interface) in [(a, from), (b, to)] {
        lab.run(namespace, "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=1")])
            .expect("it can be set");
        lab.ip(namespace, &format!("link set {interface} up")).expect("it is there");
    }
}

/// host ─ left ─ wire ─ right, whose own kernel is the host behind its TAP interface. All ports are veth pairs but that one. All have so many
/// queues.
pub fn scene(queues: usize) -> Option<Lab> {
    scene_with(queues, queues)
}

/// The same, with so many queues of the TAP interface.
pub fn scene_with(queues: usize, tap_queues: usize) -> Option<Lab> {
    let lab = crate::support::lab(&["host", "left", "wire", "right"])?;
    for ends in [("host", "eth0", "left", "p0"), ("left", "u0", "wire", "w0"), ("wire", "w1", "right", "u0")]
    {
        connect(&lab, ends, queues);
    }
    lab.ip("wire", "link add br0 type bridge").expect("a bridge can be made");
    for interface in ["w0", "w1", "br0"] {
        let master = if interface == "br0" { "" } else { "master br0" };
        lab.ip("wire", &format!("link set {interface} {master} up")).expect("it is there");
    }
    let kind = if tap_queues > 1 { "multi_queue" } else { "" };
    lab.ip("right", &format!("tuntap add dtap0 mode tap {kind}")).expect("it can be made");
    for (namespace, interface) in [("host", "eth0"), ("right", "dtap0")] {
        lab.run(namespace, "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=0")])
            .expect("it can be set");
        lab.ip(namespace, &format!("link set {interface} address 02:00:00:00:00:01 up"))
            .expect("it is there");
    }
    for namespace in ["host", "right"] {
        route(&lab, namespace);
    }
    Some(lab)
}

/// Gives a host its addresses, and routes to the other one.
pub fn route(lab: &Lab, namespace: &str) {
    for (left, right) in ADDRESSES {
        let (interface, near, far) =
            if namespace == "host" { ("eth0", left, right) } else { ("dtap0", right, left) };
        let (length, nodad) = if near.contains(':') { (64, "nodad") } else { (24, "") };
        let network = far.trim_end_matches('2');
        let network = if far.contains(':') { network.to_owned() } else { format!("{network}0") };
        let gateway = format!("{}9", near.trim_end_matches('2'));
        for words in [
            format!("address replace {near}/{length} dev {interface} {nodad}"),
            format!("neigh replace {gateway} lladdr 02:00:00:00:00:99 dev {interface}"),
            format!("route replace {network}/{length} via {gateway} dev {interface}"),
        ] {
            lab.ip(namespace, &words).expect(&words);
        }
    }
}

/// Starts an encryptor with two devices; its statistics go to a file when it ends.
pub fn start(lab: &mut Lab, namespace: &str, file: &Path, devices: [&str; 2]) -> Process {
    start_on(lab, namespace, file, &["--vdev", devices[0], "--vdev", devices[1]], "(0,0,0),(1,0,0)")
}

/// The same with lcores 0 and 1, of which each has these queues, and with these words about devices.
pub fn start_on(lab: &mut Lab, namespace: &str, file: &Path, devices: &[&str], queues: &str) -> Process {
    start_with(lab, namespace, file, devices, queues, &[])
}

/// The same with more words of ipsec-secgw.
pub fn start_with(
    lab: &mut Lab,
    namespace: &str,
    file: &Path,
    devices: &[&str],
    queues: &str,
    words: &[&str],
) -> Process {
    let mut command = lab.command(namespace, postern());
    let output = File::create(file.with_extension(namespace)).expect("it can be made");
    command.args(["secgw", "-l", "0-1", "--no-pci"]).args(devices).arg("--");
    command.args(["-P", "-p", "0x3", "-u", "0x2", "-w", "64", "-f"]).arg(file);
    command
        .args(["--config", queues])
        .args(words)
        .arg("--api")
        .arg(file.with_extension(format!("{namespace}.sock")));
    command.stdout(output);
    lab.start(&mut command).expect("it starts")
}

pub fn answers(lab: &Lab, to: &str) -> bool {
    lab.run("host", "ping", &["-c", "1", "-W", "1", to]).is_ok()
}

pub fn is_up(lab: &Lab, when: &str) {
    for (_, right) in ADDRESSES {
        wait_until(2 * PATIENCE, || answers(lab, right))
            .unwrap_or_else(|error| panic!("{when}, {right}: {error}"));
    }
}

/// Reads the wire until it is told to stop, and then what has arrived before; calls `each` with every frame, of at most so many bytes.
pub fn read_wire(longest: usize, stop: &AtomicBool, is_ready: &AtomicBool, mut each: impl FnMut(&[u8])) {
    // Each end sees what the encryptor at it sends. Slots for longer frames are fewer.
    let mut ends = ["w0", "w1"].map(|end| af_packet::open_queues(end, 1, longest).expect("it can be opened"));
    is_ready.store(true, Ordering::Relaxed);
    let (mut batch, drops) = (Batch::new(256 * 1024), DropCounters::default());
    loop {
        let is_over = stop.load(Ordering::Relaxed);
        batch.clear();
        for receive in ends.iter_mut().flatten() {
            receive.receive(&mut batch, &drops).expect("the interface stays");
        }
        match (batch.is_empty(), is_over) {
            (true, true) => return,
            (true, false) => std::thread::sleep(Duration::from_millis(1)),
            _ => batch.live(0..batch.len()).for_each(|index| each(batch.packet(index))),
        }
    }
}

/// The frames with ESP in both families, and all others with IP, until it is told to stop.
pub fn watch(stop: &AtomicBool, is_ready: &AtomicBool) -> ([usize; 2], Vec<Vec<u8>>) {
    let (mut esp, mut others) = ([0, 0], Vec::new());
    read_wire(LONGEST_FRAME, stop, is_ready, |frame| {
        let Ok(ip) = IpPacket::parse(&frame[14..]) else { return };
        match Upper::of(&ip).protocol {
            ESP => esp[usize::from(matches!(ip, IpPacket::V6(..)))] += 1,
            _ => others.push(frame.to_vec()),
        }
    });
    (esp, others)
}

/// Tells the watcher to stop when it is dropped.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An operational command, asked of the left encryptor.
pub fn ask(file: &Path, words: &[&str]) -> (String, Option<i32>) {
    let mut command = std::process::Command::new(postern());
    let output = command.args(words).arg("--api").arg(file.with_extension("left.sock")).output();
    let output = output.expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (text.into_owned(), output.status.code())
}

/// Reloads the left encryptor for as long as a train of pings lasts, each time with one more rule; then with a wrong file.
fn keeps_all_over_reloads(lab: &Lab, file: &Path) {
    let right = std::fs::read_to_string(file).expect("it is there");
    let is_over = AtomicBool::new(false);
    let reloads = std::thread::scope(|scope| {
        let pings = scope.spawn(|| {
            let words = ["-c", "300", "-i", "0.01", "-W", "20", "-q", "192.168.2.2"];
            let answered = lab.run("host", "ping", &words);
            is_over.store(true, Ordering::Relaxed);
            answered
        });
        let mut reloads = 0_u32;
        while reloads < 3 || !is_over.load(Ordering::Relaxed) {
            reloads += 1;
            let [.., third, fourth] = u32::to_be_bytes(reloads);
            let rule = format!(
                "sp ipv4 out esp discard pri 9 dst 10.0.{third}.{fourth}/32 sport 0:65535 dport 0:65535"
            );
            std::fs::write(file, format!("{rule}\n{right}")).expect("it can be written");
            let (said, status) = ask(file, &["reload", "secgw"]);
            assert!(status == Some(0) && said.ends_with("the file is in force\n"), "{said}");
        }
        let said = pings.join().expect("no panic").expect("all are answered");
        assert!(said.contains(" 0% packet loss"), "{said}");
        reloads
    });
    std::fs::write(file, format!("{right}route 10.0.0.0/8 port 1\n")).expect("it can be written");
    let (said, status) = ask(file, &["reload", "secgw"]);
    let place = format!("{}:{}: error: ", file.display(), right.lines().count() + 1);
    assert!(status == Some(1) && said.contains(&place) && said.contains("as before"), "{said}");
    std::fs::write(file, right).expect("it can be written");
    let (shown, status) = ask(file, &["show", "secgw", "--json"]);
    assert_eq!(status, Some(0), "{shown}");
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown[0]["reloads"], reloads);
    let of_sa = |direction: &str, spi: u32| {
        let sas = shown[0]["sas"].as_array().expect("a list");
        let mut found = sas.iter().filter(|sa| sa["direction"] == direction && sa["spi"] == spi);
        found.next().and_then(|sa| sa["packets"].as_u64()).expect("it is there")
    };
    assert!(of_sa("out", 5) >= 300 && of_sa("in", 6) >= 300, "{shown}");
    for (part, said) in
        [("sa", "aes-128-gcm"), ("rules", "protect 5"), ("ports", "unprotected"), ("neighbours", ":ff")]
    {
        let (text, _) = ask(file, &["show", "secgw", part]);
        assert!(text.contains(said), "{part}: {text}");
    }
    assert!(ask(file, &["show", "secgw", "drops"]).0.contains("denied"));
}

#[test]
fn two_encryptors_with_one_file_carry_both_families_in_both_and_nothing_in_clear() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let left = start(&mut lab, "left", &path, ["net_af_packet0,iface=p0", "net_af_xdp0,iface=u0"]);
    let right = start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let (esp, clear) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| lab.enter("wire", || watch(&stop, &is_ready)).expect("no panic"));
        // A failure below must not wait for the watcher for ever.
        let ends = Ends(&stop);
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
        keeps_all_over_reloads(&lab, &path);
        drop(ends);
        watcher.join().expect("it does not panic")
    });
    for (namespace, wire) in [("left", "w0"), ("right", "w1")] {
        lab.ip(namespace, "link delete u0").expect("it is there");
        assert!(!answers(&lab, "192.168.2.2"), "{namespace} has no such port");
        connect(&lab, (namespace, "u0", "wire", wire), 1);
        lab.ip("wire", &format!("link set {wire} master br0")).expect("it is there");
        is_up(&lab, "after its interface was made again");
    }
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
    // The last file that was read has one more line before; the count is from before all reloads.
    assert!(
        left.contains("sp out, line 6, discard: 1 packets, 84 bytes") && left.contains("dropped denied: "),
        "{left}"
    );
    assert!(right.contains("sp in, line 6, protect 5: ") && !right.contains("dropped bad-tag"), "{right}");
}

#[test]
fn a_gateway_without_a_socket_reads_its_file_only_when_it_is_told_to() {
    let Some(mut lab) = crate::support::lab(&["alone"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (path, log) = (folder.path().join("alone.cfg"), folder.path().join("log"));
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let mut command = lab.command("alone", postern());
    command.args([
        "secgw",
        "-l",
        "0",
        "--no-pci",
        "--vdev",
        "net_tap0,iface=t0",
        "--vdev",
        "net_tap1,iface=t1",
    ]);
    command
        .args(["--", "-P", "-p", "0x3", "-u", "0x2", "-f"])
        .arg(&path)
        .args(["--config", "(0,0,0),(1,0,0)"]);
    // No process can make a file there.
    command.args(["--api", "/proc/secgw.sock"]);
    command.stdout(File::create(folder.path().join("statistics")).expect("it can be made"));
    command.stderr(File::create(&log).expect("it can be made"));
    let gateway = lab.start(&mut command).expect("it starts");
    let said = || std::fs::read_to_string(&log).expect("it is there");
    let reads = || said().matches("read again: nothing has changed").count();
    wait_until(PATIENCE, || said().contains("packets are forwarded"))
        .unwrap_or_else(|_| panic!("{}", said()));
    assert!(said().contains("postern show secgw will not find this gateway"), "{}", said());
    for times in 1..=3 {
        gateway.signal(Signal::HUP);
        wait_until(PATIENCE, || reads() >= times).unwrap_or_else(|_| panic!("{}", said()));
        assert_eq!(reads(), times, "{}", said());
    }
    lab.kill(gateway, Signal::TERM);
}
