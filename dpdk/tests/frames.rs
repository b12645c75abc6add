//! Frames through real drivers of DPDK, in one process: two memif ports that are connected to each other, and a capture file.

use dpdk::port::{BURST, Frame, LONGEST, PortOptions, ReceiveQueue, TransmitQueue};
use dpdk::{DeviceError, Eal, Library, StartError};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const OPTIONS: PortOptions =
    PortOptions { receive_queues: 1, transmit_queues: 1, mtu: 1500, is_promiscuous: false };

/// Says that a test cannot run.
fn skip(reason: &str) {
    assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set: {reason}");
    // The test harness would capture eprintln: what is skipped must be seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
}

/// What comes within a second, until there are so many.
fn received(queue: &mut ReceiveQueue, count: usize) -> Vec<Vec<u8>> {
    let (begun, mut frames) = (Instant::now(), Vec::new());
    while frames.len() < count && begun.elapsed() < Duration::from_secs(5) {
        queue.receive(BURST, |frame| frames.push(frame.expect("one buffer").to_vec()));
    }
    frames
}

fn received_now(queue: &mut ReceiveQueue) -> usize {
    queue.receive(BURST, |_| ())
}

fn open(eal: &'static Eal, number: u16) -> (ReceiveQueue, TransmitQueue) {
    let (mut receive, mut transmit) = eal.open_port(number, &OPTIONS).expect("it opens");
    (receive.remove(0), transmit.remove(0))
}

#[test]
fn frames_pass_between_ports_in_order_and_a_port_is_closed_with_its_queues() {
    let library = match Library::find() {
        Ok(library) => library,
        Err(error) => return skip(&error.to_string()),
    };
    assert!(library.version().starts_with("DPDK "), "{}", library.version());
    let socket = format!("socket=/postern-test-{},socket-abstract=yes", std::process::id());
    let mut words: Vec<String> =
        "--no-huge -m 64 --no-pci --no-shconf --no-telemetry --iova-mode=va --lcores 0@0"
            .split(' ')
            .map(str::to_owned)
            .collect();
    words.extend(["--vdev".into(), format!("net_memif0,role=server,{socket}")]);
    words.extend(["--vdev".into(), format!("net_memif1,role=client,{socket}")]);
    static PREPARED: AtomicBool = AtomicBool::new(false);
    let eal = Eal::start(library, &words, || PREPARED.store(true, Ordering::Relaxed)).expect("it starts");
    assert!(PREPARED.load(Ordering::Relaxed));
    assert!(matches!(Eal::start(library, &words, || ()), Err(StartError::Twice)));

    let names: Vec<String> = eal.ports().into_iter().map(|port| port.name).collect();
    assert_eq!(names, ["net_memif0", "net_memif1"]);
    let ((mut from_first, mut to_first), (mut from_second, mut to_second)) = (open(eal, 0), open(eal, 1));
    assert_eq!((from_first.facts().driver.as_str(), to_second.facts().number), ("net_memif", 1));
    assert!(matches!(eal.open_port(0, &OPTIONS), Err(DeviceError::Busy(_))));
    assert!(matches!(eal.open_port(2, &OPTIONS), Err(DeviceError::Absent { present: 2, .. })));
    let begun = Instant::now();
    while !(from_first.is_up() && from_second.is_up()) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the two connect to each other");
        std::thread::sleep(Duration::from_millis(1));
    }

    // The client gives the server buffers when it first receives.
    assert_eq!(received_now(&mut from_first) + received_now(&mut from_second), 0);
    // Shorter ones than Ethernet has are filled up.
    let lengths = [1, 59, 60, 61, 1514, LONGEST];
    let frames: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![length as u8; length]).collect();
    let refs: Vec<Frame<'_>> = frames.iter().map(|frame| Frame::new(frame)).collect();
    for (to, from) in [(&mut to_first, &mut from_second), (&mut to_second, &mut from_first)] {
        assert_eq!(to.send(&refs), refs.len());
        let there = received(from, frames.len());
        assert_eq!(there.len(), frames.len());
        for (frame, there) in frames.iter().zip(&there) {
            assert_eq!(there.len(), frame.len().max(60));
            assert_eq!(&there[..frame.len()], frame);
            assert!(there[frame.len()..].iter().all(|&byte| byte == 0), "no old bytes leave");
        }
    }
    let (sent, taken) = (to_first.counts(), from_second.counts());
    assert_eq!((sent.sent, taken.received), (6, 6));

    // A full ring takes what fits.
    let bursts = std::iter::repeat_with(|| to_first.send(&vec![refs[2]; BURST]));
    let taken: usize = bursts.take(1000).take_while(|&count| count > 0).sum();
    assert!((BURST..1000 * BURST).contains(&taken), "{taken}");
    assert_eq!(received(&mut from_second, taken).len(), taken);

    drop((from_second, to_second));
    let begun = Instant::now();
    while to_first.is_up() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the other end is gone");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(to_first.send(&refs), 0);

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out.pcap");
    eal.add_device("net_pcap0", &format!("tx_pcap={}", file.display())).expect("it is added");
    let number = eal.ports().into_iter().find(|port| port.driver == "net_pcap").expect("it is there").number;
    let (receive, mut transmit) = open(eal, number);
    assert_eq!(transmit.send(&refs), refs.len());
    drop((receive, transmit));
    let written = std::fs::metadata(&file).expect("closed with the port").len();
    let expected: usize = frames.iter().map(|frame| 16 + frame.len().max(60)).sum();
    assert_eq!(written as usize, 24 + expected);
    assert!(eal.add_device("net_none0", "").is_err());
}
