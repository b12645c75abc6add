//! `postern secgw --mtu` between hosts whose links carry jumbo frames.

use crate::secgw::{Ends, scene, start_with, watch};
use crate::secgw_fragments::{PAIRS, of_one_family};
use crate::support::{PATIENCE, postern};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the headers of ping, ESP and a tunnel over IPv6 add at most.
const ADDED: usize = 160;

/// Sets the MTU of all interfaces but that of the right host.
pub fn set_mtu(lab: &Lab, mtu: usize) {
    for (namespace, interface) in [
        ("host", "eth0"),
        ("left", "p0"),
        ("left", "u0"),
        ("wire", "w0"),
        ("wire", "w1"),
        ("wire", "br0"),
        ("right", "u0"),
    ] {
        lab.ip(namespace, &format!("link set {interface} mtu {mtu}")).expect("it is there");
    }
}

/// Pings of this size that nothing on the way may cut; what the wire carried.
fn pings(lab: &Lab, size: usize) -> [usize; 2] {
    let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let (esp, clear) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| lab.enter("wire", || watch(&stop, &is_ready)).expect("no panic"));
        let ends = Ends(&stop);
        wait_until(PATIENCE, || is_ready.load(Ordering::Relaxed)).expect("it opens its port");
        for to in PAIRS {
            let size = size.to_string();
            let words = ["-c", "1", "-W", "1", "-M", "do", "-s", &size, to];
            wait_until(2 * PATIENCE, || lab.run("host", "ping", &words).is_ok())
                .unwrap_or_else(|error| panic!("{to}, {size}: {error}"));
        }
        drop(ends);
        watcher.join().expect("it does not panic")
    });
    assert!(clear.is_empty(), "{clear:02x?}");
    esp
}

#[test]
fn jumbo_frames_pass_two_encryptors_uncut_and_a_link_that_is_too_short_is_refused() {
    let Some(mut lab) = scene(1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, of_one_family()).expect("it can be written");
    let queues = "(0,0,0),(1,0,0)";
    for (mtu, driver) in [(3826, "net_af_xdp"), (9000, "net_af_packet")] {
        let (bytes, [p0, u0]) =
            (mtu.to_string(), ["0,iface=p0", "1,iface=u0"].map(|of| format!("{driver}{of}")));
        let (words, ports) = (["--mtu", &bytes], ["--vdev", &p0, "--vdev", &u0]);
        set_mtu(&lab, 1600);
        let (program, file) = (postern().display().to_string(), path.display().to_string());
        let refused = [&["secgw", "-l", "0", "--no-pci"], &ports[..], &["--"], &words[..]].concat();
        let refused = [&refused[..], &["-p", "3", "-u", "2", "-f", &file, "--config", queues]].concat();
        let said = lab.run("left", &program, &refused).expect_err("it does not start").to_string();
        let expected = format!("p0 has an MTU of 1600, and packets are up to {mtu} bytes long");
        assert!(said.contains(&expected) && said.contains(&format!("set dev p0 mtu {mtu}")), "{said}");
        set_mtu(&lab, mtu);
        let left = start_with(&mut lab, "left", &path, &ports, queues, &words);
        let right = ["--vdev", "net_tap0,iface=dtap0", "--vdev", &u0];
        let right = start_with(&mut lab, "right", &path, &right, queues, &words);
        let esp = pings(&lab, mtu - ADDED);
        // A packet each way.
        assert!(esp.iter().all(|&count| count >= 2), "{esp:?}");
        for (namespace, process) in [("left", left), ("right", right)] {
            lab.kill(process, Signal::INT);
            let text =
                std::fs::read_to_string(path.with_extension(namespace)).expect("statistics at the end");
            // The other gateway has no fragments of ESP.
            for reason in ["truncated", "too-big", "send-failed", "fragmented"] {
                assert!(!text.contains(&format!("dropped {reason}")), "{text}");
            }
        }
    }
}
