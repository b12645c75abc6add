//! A port of DPDK as batches see it: two memif ports in one process that are connected to each other.

use dpdk::port::PortOptions;
use dpdk::{Eal, Library};
use packet::batch::{HEADROOM, TAILROOM};
use packet::{Batch, DropCounters, DropReason};
use port::dpdk::{DpdkPort, open};
use port::{Receive, Transmit, Wake};
use rustix::io::Errno;
use std::io::Write;
use std::time::{Duration, Instant};

/// Some seconds are for a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it takes too long");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn eal() -> Option<&'static Eal> {
    let library = match Library::find() {
        Ok(library) => library,
        Err(error) => {
            assert!(std::env::var_os("NO_SKIP").is_none(), "NO_SKIP is set: {error}");
            // The test harness would capture eprintln: what is skipped must be seen.
            let _ = writeln!(std::io::stderr(), "SKIPPED: {error}");
            return None;
        }
    };
    let socket = format!("socket=/postern-test-{},socket-abstract=yes", std::process::id());
    let words = format!(
        "--no-huge -m 64 --no-pci --no-shconf --no-telemetry --iova-mode=va --lcores 0@0 \
         --vdev net_memif0,role=server,{socket} --vdev net_memif1,role=client,{socket}"
    );
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    Some(Eal::start(library, &words, || ()).expect("it starts"))
}

fn port(eal: &'static Eal, number: u16) -> DpdkPort {
    let options = PortOptions { receive_queues: 1, transmit_queues: 2, mtu: 1500, is_promiscuous: true };
    open(eal, number, &options).expect("it opens")
}

#[test]
fn frames_leave_a_batch_and_come_into_another_and_each_lost_one_is_counted() {
    let Some(eal) = eal() else { return };
    let (mut batch, drops) = (Batch::new(256 * 1024), DropCounters::default());
    let append = |batch: &mut Batch, length: usize, count: usize| {
        batch.clear();
        for number in 0..count {
            batch.append(length).expect("there is room").fill(number as u8);
        }
        batch.close_train(0, None, 0);
    };
    let mut first = port(eal, 0);
    assert_eq!(first.transmit.len(), 2, "two halves share what the driver has");
    append(&mut batch, 60, 3);
    first.transmit[0].transmit(&mut batch, &drops);
    assert_eq!((drops.read(DropReason::SendFailed), batch.live(0..3).count()), (3, 0), "nobody is there");
    assert_eq!(first.transmit[0].take_refusal(), Some(Errno::NETDOWN));
    assert_eq!(first.link.is_up(), Some(false));

    let mut second = port(eal, 1);
    until(|| first.link.is_up() == Some(true) && second.link.is_up() == Some(true));
    // The client gives the server buffers when it first receives.
    batch.clear();
    assert_eq!(second.receive[0].receive(&mut batch, &drops).expect("it is open"), 0);
    append(&mut batch, 100, 70);
    batch.discard(4);
    *batch.packet_mut(5).first_mut().expect("it has bytes") = 0xff;
    first.transmit[1].transmit(&mut batch, &drops);
    let mut there = Batch::new(256 * 1024);
    until(|| {
        second.receive[0].receive(&mut there, &drops).expect("it is open");
        there.len() == 69
    });
    assert_eq!((there.packet(3), there.packet(4)[0], there.packet(5)), (&[3; 100][..], 0xff, &[6; 100][..]));
    there.grow(1, HEADROOM, TAILROOM);
    there.packet_mut(1)[..HEADROOM].fill(7);
    assert_eq!(there.packet(0), [0; 100], "a frame that grows leaves the one before it as it was");

    append(&mut batch, 2049, 1);
    first.transmit[0].transmit(&mut batch, &drops);
    assert_eq!(drops.read(DropReason::TooBig), 1);
    let mut taken = 0;
    until(|| {
        append(&mut batch, 64, 100);
        first.transmit[0].transmit(&mut batch, &drops);
        taken += batch.live(0..100).count();
        drops.read(DropReason::RingFull) > 0
    });
    let mut come = 0;
    until(|| {
        there.clear();
        come += second.receive[0].receive(&mut there, &drops).expect("it is open");
        come == taken
    });
    let refused = drops.read(DropReason::SendFailed) + drops.read(DropReason::RingFull);
    let counted: u64 = first.transmit.iter_mut().map(|half| half.counters()[0].1).sum();
    assert_eq!(counted, refused);

    let wake = Wake::new().expect("there are descriptors left");
    second.receive[0].wait(&wake).expect("it ends soon without a frame");
    assert!(second.receive[0].descriptor().is_none());
    let link = second.link.clone();
    drop(second);
    assert_eq!(link.is_up(), None, "closed with its last half");
    until(|| first.link.is_up() == Some(false));
    append(&mut batch, 60, 1);
    first.transmit[0].transmit(&mut batch, &drops);
    assert_eq!(drops.read(DropReason::SendFailed), 4);
}
