//! Ports of `postern secgw`: interfaces that another process has, addresses, deferred NAPI, and what the kernel counts.

use crate::secgw::{self, answers, ask, file, is_up, scene, start_with};
use crate::support::{PATIENCE, postern};
use lab::{Lab, Process, wait_until};
use packet::{Batch, DropCounters};
use port::{Transmit, af_packet};
use rustix::process::Signal;
use std::fs::File;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

/// A gateway with two TAP interfaces, of which `t0` is the test's; it logs to a file.
fn start(lab: &mut Lab, folder: &Path) -> Process {
    let path = folder.join("alone.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let mut command = lab.command("alone", postern());
    command.args(["secgw", "-l", "0", "--no-pci", "--vdev", "net_tap0,iface=t0"]);
    command.args(["--vdev", "net_tap1,iface=t1", "--", "-P", "-p", "0x3", "-u", "0x2", "-f"]).arg(&path);
    command.args(["--config", "(0,0,0),(1,0,0)", "--api"]).arg(folder.join("sock"));
    command.stdout(File::create(folder.join("statistics")).expect("it can be made"));
    command.stderr(File::create(folder.join("log")).expect("it can be made"));
    lab.start(&mut command).expect("it starts")
}

#[test]
fn a_tap_interface_that_another_process_is_closing_is_waited_for_but_not_for_long() {
    let Some(mut lab) = crate::support::lab(&["alone"]) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let said = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    let open = |lab: &Lab| lab.enter("alone", || port::tap::open("t0").expect("it can be made"));
    let held = open(&lab).expect("no panic");
    let gateway = start(&mut lab, folder.path());
    std::thread::sleep(Duration::from_secs(1));
    assert!(lab.ended(gateway).is_none() && lab.ip("alone", "link show t1").is_err(), "{}", said());
    drop(held);
    wait_until(PATIENCE, || said().contains("packets are forwarded"))
        .unwrap_or_else(|error| panic!("{error}: {}", said()));
    lab.kill(gateway, Signal::TERM);

    let held = open(&lab).expect("no panic");
    let gateway = start(&mut lab, folder.path());
    let mut status = None;
    wait_until(PATIENCE, || {
        status = lab.ended(gateway);
        status.is_some()
    })
    .expect("it gives up");
    assert!(status.is_some_and(|status| !status.success()), "{status:?}");
    assert!(said().contains("interface t0 exists already and is in use"), "{}", said());
    drop(held);
}

/// The settings of deferred NAPI of an interface.
pub fn deferred(lab: &Lab, interface: &str) -> String {
    let files = ["napi_defer_hard_irqs", "gro_flush_timeout"]
        .map(|name| format!("/sys/class/net/{interface}/{name}"));
    let values = lab.run("left", "cat", &[&files[0], &files[1]]).expect("they are there");
    values.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Sends a frame of this kind and length by an interface of the host.
fn send(lab: &Lab, kind: [u8; 4], length: usize) {
    let frame = [&[2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1][..], &kind, &vec![0x45; length - 16]].concat();
    let sent = lab.enter("host", || {
        let (mut batch, drops) = (Batch::new(64 * 1024), DropCounters::default());
        batch.append(frame.len()).expect("it fits").copy_from_slice(&frame);
        batch.close_train(0, None, 0);
        let mut transmit = af_packet::open_transmit("eth0").expect("it is there");
        transmit.transmit(&mut batch, &drops);
        transmit.take_refusal()
    });
    assert_eq!(sent.expect("no panic"), None);
}

#[test]
fn ports_answer_for_their_addresses_defer_napi_and_show_what_the_kernel_drops() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    // Longer than a chunk of AF_XDP for packets of 1,500 bytes.
    for (namespace, interface) in [("host", "eth0"), ("left", "p0")] {
        lab.ip(namespace, &format!("link set {interface} mtu 3000")).expect("it can be set");
    }
    let before = deferred(&lab, "p0");
    let devices = ["--vdev", "net_af_xdp0,iface=p0,defer_napi=1", "--vdev", "net_af_xdp1,iface=u0"];
    let words = ["--address", "(0,192.168.1.9),(0,192.168.3.9),(0,fd01::9),(0,fd03::9)"];
    let left = start_with(&mut lab, "left", &path, &devices, "(0,0,0),(1,0,0)", &words);
    let right = secgw::start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    is_up(&lab, "with static entries");
    assert_ne!(deferred(&lab, "p0"), before);
    assert_eq!(deferred(&lab, "p0"), "2 20000");
    // The host has to ask now.
    for address in ["192.168.1.9", "192.168.3.9", "fd01::9", "fd03::9"] {
        lab.ip("host", &format!("neigh del {address} dev eth0")).expect("it is there");
    }
    is_up(&lab, "with addresses of the port");
    let entries = lab.ip("host", "neigh show dev eth0").expect("they are there");
    for address in ["192.168.1.9 ", "fd03::9 "] {
        let entry =
            entries.lines().find(|line| line.starts_with(address)).unwrap_or_else(|| panic!("{entries}"));
        assert!(entry.contains("lladdr") && !entry.contains("PERMANENT"), "{entry}");
    }
    lab.ip("host", "neigh replace 192.168.1.8 nud incomplete dev eth0").ok();
    assert!(!answers(&lab, "192.168.1.8"), "nobody has this address");

    send(&lab, [0x81, 0, 0, 5], 100);
    send(&lab, [8, 0, 0x45, 0], 2500);
    lab.run("host", "bash", &["-c", "echo x > /dev/udp/192.168.2.2/9"]).expect("it is sent");
    let shown = |part: &str| ask(&path, &["show", "secgw", part]).0;
    wait_until(PATIENCE, || {
        let ports = shown("ports");
        ports.contains("rx_dropped") && ports.contains("checksums_completed")
    })
    .unwrap_or_else(|error| panic!("{error}: {}", shown("ports")));
    assert!(shown("drops").contains("vlan-tag"), "{}", shown("drops"));

    // A port that is made again is deferred again.
    lab.ip("left", "link delete p0").expect("it is there");
    secgw::connect(&lab, ("host", "eth0", "left", "p0"), 1);
    wait_until(2 * PATIENCE, || deferred(&lab, "p0") == "2 20000").expect("it is open again");
    lab.kill(left, Signal::TERM);
    lab.kill(right, Signal::TERM);
    assert_eq!(deferred(&lab, "p0"), before, "it is put back");
}

/// What a host cuts in its network card, and a veth therefore carries uncut, is longer than a slot of the ring.
#[test]
fn tcp_passes_packet_ports_whose_other_ends_leave_cutting_to_a_network_card() {
    const BYTES: usize = 8 << 20;
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, file(&vec!["a1"; 20].join(":"))).expect("it can be written");
    let left = secgw::start(&mut lab, "left", &path, ["net_af_packet0,iface=p0", "net_af_packet1,iface=u0"]);
    let right = secgw::start(&mut lab, "right", &path, ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0"]);
    is_up(&lab, "at the start");
    for address in ["192.168.2.2:5000", "[fd02::2]:5000"] {
        let listener = lab.enter("right", || TcpListener::bind(address)).expect("no panic");
        let listener = listener.expect("it can listen");
        let received = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let (mut stream, _) = listener.accept()?;
                std::io::copy(&mut stream, &mut std::io::sink())
            });
            let sent = lab.enter("host", || {
                let mut stream = TcpStream::connect(address)?;
                stream.set_write_timeout(Some(2 * PATIENCE))?;
                stream.write_all(&vec![7; BYTES])
            });
            sent.expect("no panic").expect("it goes on");
            reader.join().expect("no panic").expect("it goes on")
        });
        assert_eq!(received, BYTES as u64, "{address}");
    }
    let (drops, _) = ask(&path, &["show", "secgw", "drops"]);
    assert!(!drops.contains("truncated") && !drops.contains("bad-offload"), "{drops}");
    lab.kill(left, Signal::TERM);
    lab.kill(right, Signal::TERM);
}
