//! `postern demo secgw`: two encryptors between two hosts, with traffic, the frames on the wire between them, and the counters.

use crate::Outcome;
use crate::report::Machine;
use lab::{Lab, Process};
use packet::header::esp::ESP;
use packet::header::flow::Upper;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters};
use port::{Receive, af_packet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long encryptors may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many frames of the wire are printed.
const SHOWN: usize = 6;

/// The file of both encryptors: SA 5 is for packets from left to right, SA 6 for those from right to left. KEY and OTHER are random.
const FILE: &str = "\
sp ipv4 out esp protect 5 pri 1 dst 192.168.2.0/24 sport 0:65535 dport 0:65535
sp ipv4 out esp protect 6 pri 1 dst 192.168.1.0/24 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 5 pri 1 dst 192.168.2.0/24 sport 0:65535 dport 0:65535
sp ipv4 in esp protect 6 pri 1 dst 192.168.1.0/24 sport 0:65535 dport 0:65535
sp ipv6 out esp discard pri 1 sport 0:65535 dport 0:65535
sp ipv6 in esp discard pri 1 sport 0:65535 dport 0:65535
sa out 5 aead_algo aes-128-gcm aead_key KEY mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
sa in 5 aead_algo aes-128-gcm aead_key KEY mode ipv4-tunnel src 172.16.1.5 dst 172.16.2.5
sa out 6 aead_algo aes-128-gcm aead_key OTHER mode ipv4-tunnel src 172.16.2.5 dst 172.16.1.5
sa in 6 aead_algo aes-128-gcm aead_key OTHER mode ipv4-tunnel src 172.16.2.5 dst 172.16.1.5
rt ipv4 dst 172.16.0.0/16 port 1
rt ipv4 dst 192.168.0.0/16 port 0
neigh port 0 02:00:00:00:00:01
neigh port 1 02:00:00:00:00:02
";

/// Makes the namespaces, sends packets between the hosts, and prints what the wire and the encryptors have seen.
pub fn run() -> Outcome<()> {
    println!("{}", Machine::here().head());
    println!("  host a ──────── encryptor ═══════ wire ═══════ encryptor ──────── host b");
    println!("  192.168.1.2     172.16.1.5                     172.16.2.5     192.168.2.2\n");
    let mut lab = Lab::new(&["a", "left", "right", "b"])?;
    connect(&lab)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("both.cfg");
    std::fs::write(&file, FILE.replace("KEY", &key()?).replace("OTHER", &key()?))?;
    let sockets = ["left", "right"].map(|namespace| folder.path().join(format!("{namespace}.sock")));
    for (namespace, socket) in ["left", "right"].into_iter().zip(&sockets) {
        start(&mut lab, namespace, &file, socket)?;
    }
    lab::wait_until(PATIENCE, || sockets.iter().all(|socket| socket.exists()))?;
    println!("four namespaces, two processes with one file: packets are forwarded\n");
    let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let lines = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| lab.enter("right", || watch(&stop, &is_ready)));
        let sent =
            lab::wait_until(PATIENCE, || is_ready.load(Ordering::Relaxed)).and_then(|()| traffic(&lab));
        stop.store(true, Ordering::Relaxed);
        let lines = watcher.join().map_err(|_| "the watcher has panicked")???;
        sent.map(|()| lines)
    })?;
    println!("the wire at the right encryptor, first frames of {}:", lines.len());
    lines.iter().take(SHOWN).for_each(|line| println!("  {line}"));
    let clear = lines.iter().filter(|line| !line.contains("ESP(")).count();
    println!("frames in clear: {clear}\n");
    println!("postern show secgw, at the left encryptor:");
    let shown = lab::output(
        std::process::Command::new(std::env::current_exe()?)
            .args(["show", "secgw", "--api"])
            .arg(&sockets[0]),
    )?;
    println!("{shown}");
    Ok(())
}

/// Twenty bytes, as the format writes a key of AES-128-GCM with its salt.
fn key() -> Outcome<String> {
    let mut bytes = [0; 20];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes.map(|byte| format!("{byte:02x}")).join(":"))
}

/// a:eth0 ─ left:p0, left:u0 ─ right:u0, right:p0 ─ b:eth0. The hosts know the encryptors only as a station.
fn connect(lab: &Lab) -> Outcome<()> {
    for (a, from, b, to) in
        [("a", "eth0", "left", "p0"), ("left", "u0", "right", "u0"), ("right", "p0", "b", "eth0")]
    {
        let (namespace_a, namespace_b) = (lab.namespace(a), lab.namespace(b));
        let line =
            format!("link add {from} netns {namespace_a} type veth peer name {to} netns {namespace_b}");
        lab::run("ip", line.split(' '))?;
        for (namespace, interface) in [(a, from), (b, to)] {
            // The kernel's own multicast would be on the wire, too.
            lab.run(namespace, "sysctl", &["-qw", &format!("net.ipv6.conf.{interface}.disable_ipv6=1")])?;
            lab.ip(namespace, &format!("link set {interface} up mtu 1600"))?;
        }
    }
    for (host, near, far) in [("a", "192.168.1", "192.168.2"), ("b", "192.168.2", "192.168.1")] {
        for words in [
            "link set eth0 address 02:00:00:00:00:01 mtu 1400".to_owned(),
            format!("address add {near}.2/24 dev eth0"),
            format!("neigh replace {near}.1 lladdr 02:00:00:00:00:99 dev eth0"),
            format!("route add {far}.0/24 via {near}.1"),
        ] {
            lab.ip(host, &words)?;
        }
    }
    Ok(())
}

fn start(lab: &mut Lab, namespace: &str, file: &Path, socket: &PathBuf) -> Outcome<Process> {
    let mut command = lab.command(namespace, std::env::current_exe()?);
    command.args(["secgw", "-l", "0", "--no-pci", "--vdev", "net_af_packet0,iface=p0"]);
    command.args([
        "--vdev",
        "net_af_packet1,iface=u0",
        "--",
        "-P",
        "-p",
        "0x3",
        "-u",
        "0x2",
        "-w",
        "64",
        "-f",
    ]);
    command.arg(file).args(["--config", "(0,0,0),(1,0,0)", "--api"]).arg(socket);
    command.stdout(std::process::Stdio::null());
    if std::env::var_os("LOG_LEVEL").is_none() {
        command.env("LOG_LEVEL", "warn");
    }
    lab.start(&mut command)
}

/// Echo requests and answers, small and large.
fn traffic(lab: &Lab) -> Outcome<()> {
    for size in ["56", "1300"] {
        let words = ["-c", "100", "-i", "0.01", "-W", "5", "-q", "-s", size, "192.168.2.2"];
        let said = lab.run("a", "ping", &words)?;
        let line = said.lines().find(|line| line.contains("packet loss")).unwrap_or("no answer");
        println!("ping from a to b, {size} bytes: {line}");
    }
    println!();
    Ok(())
}

/// The IP packets that arrive from the wire, as tcpdump prints them.
fn watch(stop: &AtomicBool, is_ready: &AtomicBool) -> Outcome<Vec<String>> {
    let (mut receive, _) = af_packet::open("u0")?;
    is_ready.store(true, Ordering::Relaxed);
    let (mut batch, drops, mut lines) = (Batch::new(256 * 1024), DropCounters::default(), Vec::new());
    loop {
        // What arrived before the end is read.
        let is_last = stop.load(Ordering::Relaxed);
        batch.clear();
        receive.receive(&mut batch, &drops)?;
        for index in batch.live(0..batch.len()) {
            lines.extend(batch.packet(index).get(14..).and_then(line));
        }
        if is_last && batch.is_empty() {
            return Ok(lines);
        }
        if batch.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A packet as tcpdump prints it.
fn line(packet: &[u8]) -> Option<String> {
    let ip = IpPacket::parse(packet).ok()?;
    let (from, to, upper) = (ip.source(), ip.destination(), Upper::of(&ip));
    let length = upper.bytes.len();
    let number = |at: usize| {
        upper.bytes.get(at..at + 4).and_then(|bytes| Some(u32::from_be_bytes(bytes.try_into().ok()?)))
    };
    Some(match (upper.protocol, number(0), number(4)) {
        (ESP, Some(spi), Some(sequence)) => {
            format!("IP {from} > {to}: ESP(spi={spi:#010x},seq={sequence:#x}), length {length}")
        }
        (protocol, ..) => format!("IP {from} > {to}: protocol {protocol} in clear, length {length}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_on_the_wire_is_written_as_tcpdump_does() {
        let mut packet = vec![0; 40];
        packet[..20]
            .copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 50, 0, 0, 172, 16, 1, 5, 172, 16, 2, 5]);
        packet[20..28].copy_from_slice(&[0, 0, 0, 5, 0, 0, 0, 17]);
        let said = line(&packet).expect("it is IP");
        assert_eq!(said, "IP 172.16.1.5 > 172.16.2.5: ESP(spi=0x00000005,seq=0x11), length 20");
        packet[9] = 1;
        assert!(line(&packet).expect("it is IP").contains("protocol 1 in clear"));
        assert_eq!(line(&packet[..19]), None);
    }
}
