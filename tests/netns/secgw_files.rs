//! `postern secgw` between capture files: ports of `net_pcap`, without DPDK.

use crate::support::{postern, skip};
use bench::secgw::{Load, Spread, Way};
use packet::header::esp::ESP;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Debian's, which has python3-scapy.
const PYTHON: &str = "/usr/bin/python3";

/// Opens the ESP of a capture file with the key of [`Load`], and writes what comes out to another one.
const OPEN: &str = "
import sys
from scapy.layers.inet import IP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.utils import rdpcap, wrpcap
outer = IP(src='172.16.1.5', dst='172.16.2.5')
opened = []
for frame in rdpcap(sys.argv[1]):
    packet = frame[IP]
    sa = SecurityAssociation(ESP, spi=packet[ESP].spi, crypt_algo='AES-GCM', crypt_key=b'\\xa1' * 20, tunnel_header=outer)
    opened.append(sa.decrypt(packet))
wrpcap(sys.argv[2], opened, linktype=101)
";

fn secgw(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(postern());
    command.current_dir(folder).args(["secgw", "--api", "api"]).args(words);
    command.stdin(Stdio::null()).output().expect("it starts")
}

/// A gateway from one capture file to another, which ends by itself; what it prints at its end.
fn through(folder: &Path, way: Way, [from, to]: [&str; 2]) -> String {
    let [from, to] = [format!("net_pcap0,rx_pcap={from}"), format!("net_pcap1,tx_pcap={to}")];
    let mut words = vec!["-l", "0", "--vdev", &from, "--vdev", &to, "--", "-f", "x.cfg"];
    words.extend(way.words().split(' '));
    let output = secgw(folder, &words);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("the capture files have ended"), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn frames_of_a_file_are_sealed_into_another_and_opened_by_a_second_gateway_and_by_scapy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let sizes = vec![64, 594, 1418];
    let load = Load { name: "x".into(), sizes, flows: 3000, rules: 50, spread: Spread::All, reassemble: 0 };
    std::fs::write(file("x.cfg"), load.file()).expect("it can be written");
    let mut clear = load.frames();
    // What no policy is for is not in the other file.
    let foreign = clear.len();
    clear.push(clear[0].iter().enumerate().map(|(at, &byte)| if at == 30 { 11 } else { byte }).collect());
    port::pcap::write_frames(&file("clear"), clear.iter().map(Vec::as_slice)).expect("it can be written");
    clear.truncate(foreign);
    let printed = through(folder.path(), Way::Outbound, ["clear", "sealed"]);
    for line in [
        "port 0 net_pcap0: received 3001 frames",
        "sa out 5 aes-128-gcm: 60 packets",
        // Its checksum is wrong, which a gateway does not look at.
        "dropped denied: 1 ",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    let printed = through(folder.path(), Way::Inbound, ["sealed", "opened"]);
    assert!(printed.contains("port 1 net_pcap1: received 0 frames, 0 bytes; sent 3000 frames"), "{printed}");
    let packets = |name: &str| port::pcap::read(&file(name)).expect("it is whole");
    let expected: Vec<&[u8]> = clear.iter().map(|frame| &frame[14..]).collect();
    assert!(packets("opened").iter().map(Vec::as_slice).eq(expected.iter().copied()), "each as it was");
    let sealed = packets("sealed");
    assert!(sealed.len() == 3000 && sealed.iter().all(|packet| packet[9] == ESP), "only ESP leaves");

    if !Command::new(PYTHON)
        .args(["-c", "import scapy.layers.ipsec, cryptography"])
        .status()
        .is_ok_and(|status| status.success())
    {
        skip("needs python3-scapy (make setup)");
        return;
    }
    let output = Command::new(PYTHON)
        .current_dir(folder.path())
        .args(["-c", OPEN, "sealed", "by-scapy"])
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(packets("by-scapy").iter().map(Vec::as_slice).eq(expected), "scapy opens what we seal");
}

#[test]
fn esp_in_udp_passes_from_file_to_file_with_a_nat_between_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let load =
        Load { name: "x".into(), sizes: vec![200], flows: 90, rules: 3, spread: Spread::All, reassemble: 0 };
    std::fs::write(file("x.cfg"), load.file().replace(" mode ", " udp-encap mode "))
        .expect("it can be written");
    let clear = load.frames();
    port::pcap::write_frames(&file("clear"), clear.iter().map(Vec::as_slice)).expect("it can be written");
    through(folder.path(), Way::Outbound, ["clear", "sealed"]);
    let mut sealed = port::pcap::read(&file("sealed")).expect("it is whole");
    assert_eq!(sealed.len(), 90);
    for packet in &mut sealed {
        let ports = [4500_u16, 4500].map(u16::to_be_bytes).concat();
        assert_eq!((packet[9], &packet[20..24]), (17, &ports[..]), "UDP from 4500 to 4500");
        // The NAT has another source port.
        packet[20..22].copy_from_slice(&33_333_u16.to_be_bytes());
    }
    let frames: Vec<Vec<u8>> = sealed.iter().map(|packet| [&clear[0][..14], packet].concat()).collect();
    port::pcap::write_frames(&file("mapped"), frames.iter().map(Vec::as_slice)).expect("it can be written");
    through(folder.path(), Way::Inbound, ["mapped", "opened"]);
    let opened = port::pcap::read(&file("opened")).expect("it is whole");
    assert!(opened.iter().map(Vec::as_slice).eq(clear.iter().map(|frame| &frame[14..])), "each as it was");
}

#[test]
fn two_lcores_read_a_file_each_and_one_that_breaks_off_ends_only_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let load =
        Load { name: "x".into(), sizes: vec![64], flows: 900, rules: 3, spread: Spread::All, reassemble: 0 };
    std::fs::write(file("x.cfg"), load.file()).expect("it can be written");
    let clear = load.frames();
    for (name, frames) in [("a", &clear[..100]), ("b", &clear[100..])] {
        port::pcap::write_frames(&file(name), frames.iter().map(Vec::as_slice)).expect("it can be written");
    }
    let whole = std::fs::read(file("a")).expect("it is there");
    std::fs::write(file("a"), &whole[..whole.len() - 1]).expect("it can be written");
    let words = "-l 0-1 --vdev net_pcap0,rx_pcap=a,rx_pcap=b --vdev net_pcap1,tx_pcap=sealed -- -P -p 3 -u 2 -f x.cfg \
                 --config (0,0,0),(0,1,1)";
    let output = secgw(folder.path(), &words.split_whitespace().collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("broken here"), "{}: {said}", output.status);
    let sealed = port::pcap::read(&file("sealed")).expect("it is whole");
    assert_eq!(sealed.len(), 899, "all but the frame that is not whole");
    assert!(sealed.iter().all(|packet| packet[9] == ESP));
}

#[test]
fn files_that_are_no_ports_are_refused_with_what_to_do_and_none_is_emptied() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("x.cfg"), "").expect("it can be written");
    let frame = [2; 60];
    for name in ["in", "other"] {
        port::pcap::write_frames(&file(name), [&frame[..]]).expect("it can be written");
    }
    std::os::unix::fs::symlink("in", file("link")).expect("it can be made");
    std::fs::write(file("no"), "no capture").expect("it can be written");
    let before = std::fs::read(file("in")).expect("it is there");
    for (first, second, said) in [
        ("rx_pcap=missing", "tx_pcap=out", "port 0: missing: No such file"),
        ("rx_pcap=no", "tx_pcap=out", "fix: a file of tcpdump -w"),
        ("rx_pcap=/dev/zero", "tx_pcap=out", "no regular file"),
        ("rx_pcap=in,tx_pcap=./in", "tx_pcap=out", "port 0 writes ./in, which port 0 has too"),
        ("tx_pcap=link", "rx_pcap=in", "port 0 writes link, which port 1 has too"),
        ("rx_pcap=in,tx_pcap=out", "tx_pcap=./out", "port 1 writes ./out, which port 0 has too"),
        ("rx_pcap=in,rx_pcap=other", "tx_pcap=out", "has 2 rx_pcap files, and --config names 1 queues"),
        ("rx_pcap=in", "tx_pcap=out,tx_pcap=other", "write tx_pcap once"),
        ("rx_pcap=", "tx_pcap=out", "rx_pcap names no file"),
        ("rx_pcap=in,infinite_rx=2", "tx_pcap=out", "it is 0 or 1"),
        ("rx_iface=eth1", "tx_pcap=out", "fix: write iface=eth1"),
        ("rx_pcap=in", "tx_pcap=missing/out", "missing/out: No such file"),
    ] {
        let [first, second] = [format!("net_pcap0,{first}"), format!("net_pcap1,{second}")];
        let words = ["--vdev", &first, "--vdev", &second, "--", "-p", "3", "-f", "x.cfg", "--config"];
        let output = secgw(folder.path(), &[&words[..], &["(0,0,0),(1,0,0)"]].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(said), "{first} {second}: {text}");
        assert_eq!(std::fs::read(file("in")).expect("it is there"), before, "{first} {second}");
    }
}
