use super::*;
use crate::api::model::{Handoff, Offload, Segments, StageTime, Thread};
use crate::bottleneck::{Processors, Throttled};
use std::time::{Duration, Instant};

/// Nothing was counted yet.
fn nothing() -> Reading {
    let worker = |name: &str| Worker {
        interface: "wg0".to_owned(),
        worker: name.to_owned(),
        wake_ups: 0,
        receives: 0,
        empty_receives: 0,
        received_packets: 0,
        received_bytes: 0,
        sends: 0,
        sent_bytes: 0,
        bursts: Vec::new(),
    };
    let thread = |id, name: &str| Thread {
        id,
        name: name.to_owned(),
        nanoseconds: 0,
        waited: 0,
        processors: String::new(),
    };
    let stage = |(direction, stage): (&str, &str)| StageTime {
        interface: "wg0".to_owned(),
        direction: direction.to_owned(),
        stage: stage.to_owned(),
        nanoseconds: 0,
        packets: 0,
    };
    let drop = |reason: &str| Drop {
        interface: "wg0".to_owned(),
        reason: reason.to_owned(),
        meaning: "what it means".to_owned(),
        outbound: 0,
        inbound: 0,
        handshake: 0,
    };
    let stages = [("out", "encrypt"), ("out", "transmit"), ("in", "receive"), ("in", "decrypt")];
    let drops = [
        "peer-congested",
        "inside-queue-full",
        "socket-ipv4-full",
        "too-big",
        "bad-tag",
        "esp-socket-ipv6-full",
    ];
    Reading {
        at: Instant::now(),
        threads: vec![thread(5, "wg0 out"), thread(6, "wg0 in"), thread(7, "wg0 control")],
        handoffs: Vec::new(),
        workers: vec![worker("out"), worker("in")],
        stages: stages.map(stage).to_vec(),
        segments: ["out", "in"]
            .map(|direction| Segments {
                interface: "wg0".to_owned(),
                direction: direction.to_owned(),
                all: 0,
                resent: 0,
            })
            .to_vec(),
        drops: drops.map(drop).to_vec(),
        offloads: Vec::new(),
        pinned: Vec::new(),
        processors: Some(Processors { count: 2, all: 0, idle: 0, stolen: 0 }),
        throttled: Some(Throttled::of(0, 0)),
    }
}

/// Two seconds later: 20,000 packets of 1,400 bytes each way by half-busy workers, on processors of which half the time was idle.
fn later() -> Reading {
    let mut reading = nothing();
    reading.at += Duration::from_secs(2);
    for worker in &mut reading.workers {
        (worker.received_packets, worker.received_bytes) = (20_000, 28_000_000);
    }
    for thread in &mut reading.threads {
        thread.nanoseconds = 1_000_000_000;
    }
    for (stage, time) in reading.stages.iter_mut().zip([300_000, 700_000, 600_000, 200_000]) {
        (stage.nanoseconds, stage.packets) = (time, 1000);
    }
    reading.processors = Some(Processors { count: 2, all: 400, idle: 200, stolen: 0 });
    reading
}

/// What limits each direction, from the first reading to this one.
fn found(reading: &Reading) -> [Bottleneck; 2] {
    let at = reading.at.checked_sub(Duration::from_secs(2)).expect("the machine runs for longer");
    let before = Reading { at, ..nothing() };
    diagnose(&before, reading).try_into().expect("one interface, two directions")
}

/// The thread of the outbound worker runs and waits for so much of the time.
fn with_thread(run: f64, waited: f64) -> Reading {
    let mut reading = later();
    let thread = &mut reading.threads[0];
    (thread.nanoseconds, thread.waited) = ((run * 2e9) as u64, (waited * 2e9) as u64);
    reading
}

#[test]
fn a_gateway_with_reserve_is_not_the_limit() {
    let [out, inbound] = found(&later());
    for it in [&out, &inbound] {
        assert_eq!((it.limit, it.load, it.packets_per_second), (Limit::Elsewhere, 0.5, 10_000.0), "{it:?}");
        assert!(it.sentence.contains("used 50% of a processor") && it.remedy.is_none(), "{it:?}");
        assert!(it.evidence.iter().any(|line| line.contains("112 Mbit/s")), "{it:?}");
    }
    let stages: Vec<(&str, f64)> = out.stages.iter().map(|it| (&*it.stage, it.nanoseconds)).collect();
    assert_eq!(stages, [("encrypt", 300.0), ("transmit", 700.0)]);
    let before = later();
    assert!(diagnose(&before, &later()).iter().all(|it| it.limit == Limit::NoTraffic));
}

#[test]
fn a_busy_thread_is_limited_by_its_largest_part() {
    let mut reading = with_thread(0.97, 0.01);
    let [out, _] = found(&reading);
    assert_eq!(out.limit, Limit::OneCore);
    assert!(out.sentence.contains("transmit takes most of its time, 70%") && out.remedy.is_none(), "{out:?}");
    reading.stages[0].nanoseconds = 800_000;
    let [out, _] = found(&reading);
    assert_eq!(out.limit, Limit::Cipher);
    let remedy = |reading: &Reading| found(reading)[0].remedy.clone().unwrap_or_default();
    assert_eq!(remedy(&reading), "a processor is idle: set interfaces wireguard wg0 threads auto");
    reading.handoffs.push(Handoff {
        interface: "wg0".to_owned(),
        crypto_threads: 2,
        handed_off: 0,
        taken_back: 0,
        waiting: 0,
    });
    assert!(remedy(&reading).contains("agree on a faster one"));
    reading.pinned.push("chacha20-poly1305".to_owned());
    assert!(
        remedy(&reading).contains("delete system crypto engine chacha20-poly1305"),
        "{}",
        remedy(&reading)
    );
}

#[test]
fn what_makes_packets_dear_is_said() {
    let mut reading = with_thread(0.97, 0.0);
    reading.workers[0].received_bytes = 20_000 * 84;
    let remedy = |reading: &Reading| found(reading)[0].remedy.clone().unwrap_or_default();
    assert!(remedy(&reading).contains("84 bytes in the mean"), "{}", remedy(&reading));
    reading.offloads.push(Offload {
        interface: "wg0".to_owned(),
        offload: "udp-gso".to_owned(),
        does: String::new(),
        state: OffloadState::SwitchedOff,
        calls: 0,
        packets: 0,
        fallbacks: 0,
    });
    assert!(remedy(&reading).contains("switched off: udp-gso"));
}

#[test]
fn a_thread_that_waits_for_a_processor_is_limited_by_others() {
    let busy = |run, waited| {
        let processors = Some(Processors { count: 2, all: 400, idle: 40, stolen: 0 });
        Reading { processors, ..with_thread(run, waited) }
    };
    assert_eq!(found(&busy(0.5, 0.45))[0].limit, Limit::Host);
    let [out, _] = found(&with_thread(0.5, 0.45));
    assert_eq!(out.limit, Limit::Quota, "processors were idle");
    assert!(out.sentence.contains("pinning"), "{out:?}");
    assert_eq!(found(&with_thread(0.5, 0.3))[0].limit, Limit::Elsewhere, "it has reserve");
    let mut reading = busy(0.1, 0.6);
    reading.drops[1].outbound = 5_000;
    assert_eq!(found(&reading)[0].limit, Limit::Host, "the queue is full because nothing empties it");
    let mut reading = with_thread(0.9, 0.05);
    reading.processors = Some(Processors { count: 2, all: 400, idle: 10, stolen: 80 });
    let [out, _] = found(&reading);
    assert_eq!(out.limit, Limit::Hypervisor);
    assert!(out.sentence.contains("20%"), "{}", out.sentence);
}

#[test]
fn losses_name_what_is_in_front_and_behind() {
    let cases = [
        (0, "peer-congested", Limit::Path),
        (0, "inside-queue-full", Limit::TunQueue),
        (1, "socket-ipv4-full", Limit::SocketBuffer),
        (1, "esp-socket-ipv6-full", Limit::SocketBuffer),
        (0, "too-big", Limit::Mtu),
        (1, "bad-tag", Limit::Drops),
    ];
    for (direction, reason, limit) in cases {
        for (lost, expected) in [(2_000, limit), (100, Limit::Elsewhere)] {
            let mut reading = later();
            let drop = reading.drops.iter_mut().find(|drop| drop.reason == reason).expect("one of them");
            *(if direction == 0 { &mut drop.outbound } else { &mut drop.inbound }) = lost;
            let found = found(&reading);
            assert_eq!(found[direction].limit, expected, "{reason}, {lost} lost");
            assert_eq!(found[1 - direction].limit, Limit::Elsewhere, "{reason}");
        }
    }
}

#[test]
fn losses_without_packets_that_pass_are_a_limit_too() {
    let mut reading = later();
    reading.workers[0].received_packets = 0;
    reading.drops[1].outbound = 5_000;
    assert_eq!(found(&reading)[0].limit, Limit::TunQueue);
}

#[test]
fn a_gateway_that_was_restarted_meanwhile_is_not_misjudged() {
    // Counters went back, and threads have other numbers.
    let (before, mut after) = (later(), nothing());
    after.at = before.at + Duration::from_secs(1);
    for thread in &mut after.threads {
        thread.id += 100;
        thread.nanoseconds = 500_000_000;
    }
    assert!(diagnose(&before, &after).iter().all(|it| it.limit == Limit::NoTraffic));
}

#[test]
fn segments_that_are_sent_again_tell_of_losses_elsewhere() {
    let mut reading = later();
    (reading.segments[0].all, reading.segments[0].resent) = (1000, 2);
    assert_eq!(found(&reading)[0].limit, Limit::Elsewhere, "two may be the end of a connection");
    reading.segments[0].resent = 12;
    let [out, inbound] = found(&reading);
    assert_eq!((out.limit, inbound.limit), (Limit::Loss, Limit::Elsewhere));
    assert!(
        out.sentence.contains("1.2% of TCP's segments") && out.sentence.contains("behind this"),
        "{out:?}"
    );
    assert!(out.evidence.iter().any(|line| line.contains("12 of 1000 segments")), "{out:?}");
    (reading.segments[1].all, reading.segments[1].resent) = (100_000, 150);
    assert_eq!(found(&reading)[1].limit, Limit::Elsewhere, "fewer than one in 500");
    reading.segments[1].resent = 250;
    assert!(found(&reading)[1].sentence.contains("in front of this gateway"));
}

#[test]
fn a_quota_is_named_before_what_it_causes() {
    let mut reading = with_thread(0.5, 0.5);
    reading.throttled = Some(Throttled::of(20, 9));
    let [out, _] = found(&reading);
    assert_eq!(out.limit, Limit::Quota);
    assert!(out.sentence.contains("45% of the periods") && out.remedy.is_some(), "{out:?}");
    reading.throttled = Some(Throttled::of(20, 1));
    reading.processors = Some(Processors { count: 2, all: 400, idle: 40, stolen: 0 });
    assert_eq!(found(&reading)[0].limit, Limit::Host);
}
