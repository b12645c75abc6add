//! `postern secgw --reassemble` between hosts that send packets longer than any link carries.

use crate::secgw::{Ends, ask, file, scene, start_with, watch};
use crate::support::PATIENCE;
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

/// One pair of hosts in a tunnel over IPv4, one in a tunnel over IPv6: each SA is for packets of one family.
pub const PAIRS: [&str; 2] = ["192.168.2.2", "fd04::2"];

/// The file with the policies that `--reassemble` and a long `--mtu` take, as they imply `-l`.
pub fn of_one_family() -> String {
    let file = file(&vec!["a1"; 20].join(":"));
    let goes = |line: &&str| {
        let of = |family, spis: [&str; 2]| {
            line.starts_with(&format!("sp {family} "))
                && spis.iter().any(|spi| line.contains(&format!("protect {spi} ")))
        };
        of("ipv4", ["7", "8"]) || of("ipv6", ["5", "6"])
    };
    file.lines().filter(|line| !goes(line)).map(|line| format!("{line}\n")).collect()
}

fn pings(lab: &Lab) {
    for to in PAIRS {
        let answers = || lab.run("host", "ping", &["-c", "1", "-W", "1", to]).is_ok();
        wait_until(2 * PATIENCE, answers).unwrap_or_else(|error| panic!("{to}: {error}"));
        for size in ["1390", "1480", "5000", "20000"] {
            let words = ["-c", "3", "-i", "0.05", "-W", "10", "-M", "dont", "-s", size, to];
            let said =
                lab.run("host", "ping", &words).unwrap_or_else(|error| panic!("{to}, {size}: {error}"));
            assert!(said.contains(" 0% packet loss"), "{said}");
        }
    }
}

#[test]
fn long_packets_pass_two_encryptors_with_two_lcores_each_and_nothing_in_clear() {
    let Some(mut lab) = scene(2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("both.cfg");
    std::fs::write(&path, of_one_family()).expect("it can be written");
    let queues = "(0,0,0),(0,1,1),(1,0,1),(1,1,0)";
    let left = ["net_af_xdp0,iface=p0,queue_count=2", "net_af_xdp1,iface=u0"];
    let right = ["net_tap0,iface=dtap0", "net_af_packet0,iface=u0,qpairs=2"];
    let words = ["--reassemble", "64"];
    let vdevs = |[one, two]: [&'static str; 2]| ["--vdev", one, "--vdev", two];
    let left = start_with(&mut lab, "left", &path, &vdevs(left), queues, &words);
    let right = start_with(&mut lab, "right", &path, &vdevs(right), queues, &words);
    let (stop, is_ready) = (AtomicBool::new(false), AtomicBool::new(false));
    let (esp, clear) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| lab.enter("wire", || watch(&stop, &is_ready)).expect("no panic"));
        // A failure below must not wait for the watcher for ever.
        let ends = Ends(&stop);
        wait_until(PATIENCE, || is_ready.load(Ordering::Relaxed)).expect("it opens its port");
        pings(&lab);
        drop(ends);
        watcher.join().expect("it does not panic")
    });
    assert!(esp.iter().all(|&count| count >= 60), "{esp:?}");
    assert!(clear.is_empty(), "{clear:02x?}");
    let (shown, status) = ask(&path, &["show", "secgw"]);
    assert!(status == Some(0) && shown.contains("were put together from fragments"), "{shown}");
    lab.kill(left, Signal::INT);
    lab.kill(right, Signal::TERM);
    for namespace in ["left", "right"] {
        let text = std::fs::read_to_string(path.with_extension(namespace)).expect("statistics at the end");
        for reason in
            ["fragmented", "reassembly-timeout", "reassembly-full", "overlapping-fragments", "bad-tag"]
        {
            assert!(!text.contains(&format!("dropped {reason}")), "{text}");
        }
    }
}
