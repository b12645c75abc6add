//! The tester as a whole: in memory, and with devices of known rates.

use super::device::{Change, Known, Virtual, tester, tester_of};
use super::frame::tests::path_of;
use super::procedure::{Limit, Throughput};
use super::session::{calibrate, limit, measure};
use super::tester::Tester;
use super::trial::Purpose;
use super::*;
use packet::Batch;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

#[test]
fn a_line_of_a_gigabit_carries_the_known_frame_rates() {
    // RFC 2544 has them for 10 Mbit/s Ethernet: 14,880 and 812 frames a second.
    assert_eq!(line_rate(1e7, 64.0) as u64, 14_880);
    assert_eq!(line_rate(1e7, 1518.0) as u64, 812);
    assert!((FrameSize::Imix.mean() - 435.0).abs() < 1.0, "417 bytes of IP and 18 of Ethernet");
}

#[test]
fn results_near_the_testers_own_are_its_limit() {
    let found = |rate| Throughput { loss: 0.0, searches: vec![Some(rate)], rate: Some(rate), limit: None };
    assert_eq!(limit(&found(0.79e6), Some(1e6), None), None);
    assert_eq!(limit(&found(0.8e6), Some(1e6), None), Some(Limit::Tester));
    assert_eq!(limit(&found(14_880.0), Some(1e6), Some(14_881.0)), Some(Limit::Line));
    assert_eq!(limit(&Throughput { rate: None, ..found(1.0) }, Some(1e6), None), None);
}

/// ESP at both ports, with an SA for each direction.
fn esp() -> Esp {
    let sa = |spi: u32| EspSa {
        spi,
        transform: tunnel::esp::Transform::Aead(crypto::Cipher::Aes128Gcm, 16),
        keys: crypto::SecretBytes::new(vec![spi as u8; 20]),
        extended_from: None,
        tunnel: Some(OuterAddresses { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into() }),
        in_udp: false,
    };
    let opened_by_device = [vec![sa(2000)], vec![sa(2001)]];
    Esp { ports: [true; 2], opened_by_device, ..Esp::default() }
}

fn in_memory(protocol: Protocol, esp: Option<Esp>, tests: Vec<Test>) -> Options {
    let plan = Plan { searches: 1, ..Plan::quick().with_seconds(0.05) };
    Options {
        wire: Wire::Memory,
        interfaces: [String::new(), String::new()],
        addresses: Addresses::between(frame::tests::PORTS[0].map(|it| it.parse().expect("literal"))),
        both: true,
        protocol,
        protection: esp.map(Protection::Esp),
        sizes: vec![FrameSize::Bytes(64), FrameSize::Imix],
        tests,
        plan,
        line: Some(1e8),
        broadcasts: false,
        capture: None,
        defer_napi: false,
        core: 0,
        progress: false,
    }
}

#[test]
fn frames_in_memory_are_measured_as_they_are_with_and_without_esp() {
    let all = vec![Test::Latency, Test::FrameLoss, Test::BackToBack];
    are_measured(&in_memory(Protocol::Tcp, None, all));
    let sizes = vec![FrameSize::Imix];
    are_measured(&Options { sizes, ..in_memory(Protocol::Udp, Some(esp()), vec![Test::FrameLoss]) });
}

fn are_measured(options: &Options) {
    let report = run(options).expect("memory does not fail");
    for size in &report.sizes {
        assert!(size.most <= line_rate(1e8, 64.0) && size.calibration.most > 0.0);
        let trial = size.trials.iter().find(|it| it.purpose == Purpose::FrameLoss).expect("there is one");
        let counts = trial.counts;
        assert!(counts.received > 0 && counts.corrupted + counts.duplicated + counts.reordered == 0);
        assert_eq!(counts.clear + counts.repeated, 0);
    }
    let text = report.text();
    assert!(text.contains("not RFC 2544 conformant"), "{text}");
    let sealed: u64 = report.esp.iter().flat_map(|esp| &esp.seals).map(|seal| seal.2 - 1).sum();
    let sent: u64 = report.sizes.iter().flat_map(|it| &it.trials).map(|it| it.counts.sent).sum();
    assert_eq!(sealed > 0, options.protection.is_some());
    assert!(sealed <= sent && text.contains("sealed with SPI 2000 (aes-128-gcm)") == (sealed > 0), "{text}");
}

const KNOWN: Known = Known { rate: 50_000.0, buffer: 20, delay: 1_000, spikes: None };

/// Calibrates with ports of a rate, and measures a device of another; `line` is what the line carries, in frames a second.
fn measured(line: f64, own: f64, device: f64, plan: Plan) -> SizeResult {
    let line = Some(line * 8.0 * (64.0 + GAP as f64));
    let tests = vec![Test::Latency, Test::FrameLoss, Test::BackToBack];
    let options = Options { plan, line, both: false, ..in_memory(Protocol::Udp, None, tests) };
    let of = |rate| tester(Known { rate, ..KNOWN }, "", false);
    let (mut looped, mut trials, say) = (of(own), Vec::new(), |_: &str| {});
    let calibration = calibrate(&mut looped, &options.plan, &mut trials, &say).expect("memory does not fail");
    measure(&mut of(device), &options, FrameSize::Bytes(64), calibration, trials, &say)
        .expect("memory does not fail")
}

#[test]
fn a_device_as_fast_as_the_tester_is_called_tester_limited_and_a_slower_one_is_not() {
    let plan = || Plan { bursts: 1, ..Plan::quick().with_seconds(0.01) };
    let fast = measured(1e6, 900_000.0, 850_000.0, plan());
    let own = fast.calibration.rates[2].expect("it carries something");
    assert!((850_000.0..950_000.0).contains(&own), "{own}");
    assert!(fast.throughput.iter().all(|it| it.limit == Some(Limit::Tester)), "{:?}", fast.throughput);
    let slow = measured(1e6, 900_000.0, 500_000.0, plan());
    assert!(
        slow.throughput.iter().all(|it| it.rate.is_some() && it.limit.is_none()),
        "{:?}",
        slow.throughput
    );
    let line = measured(1e6, 2e6, 1.5e6, plan());
    assert!(line.throughput.iter().all(|it| it.limit == Some(Limit::Line)), "{:?}", line.throughput);
    assert!(line.back_to_back.is_none(), "the device keeps up with the line");
}

#[test]
fn the_whole_procedure_of_the_rfcs_has_their_repetitions() {
    let plan = Plan::full().scaled(0.001);
    assert!(!plan.is_conformant);
    let found = measured(200_000.0, 150_000.0, 50_000.0, plan);
    let of = |purpose| found.trials.iter().filter(move |it| it.purpose == purpose);
    assert_eq!(found.throughput.iter().map(|it| it.searches.len()).collect::<Vec<_>>(), [5; 3]);
    let full = of(Purpose::Throughput).filter(|it| (it.seconds - 0.06).abs() < 1e-9).count();
    assert!(full >= 15, "each result of each search stands on a trial of 60 s: {full}");
    let rate = found.throughput[2].rate.expect("it forwards");
    // 20 frames of buffer in 60 ms are 0.7% of 50,000 a second.
    assert!((48_500.0..50_500.0).contains(&rate), "{rate}");
    let at = |share: f64| of(Purpose::Latency).filter(|it| it.rate == Some(rate * share)).count();
    assert_eq!((at(1.0), at(0.5), at(0.1)), (20, 1, 1));
    let losses: Vec<f64> = found.loss.iter().map(|it| it.loss).collect();
    assert!(losses.len() >= 9 && losses.ends_with(&[0.0, 0.0]) && losses[0] > 0.7, "{losses:?}");
    let bursts = found.back_to_back.expect("it is slower than the line");
    // While a burst comes at 200,000 a second, 50,000 a second leave: 20 / 0.75 frames fit.
    assert_eq!(bursts.frames.len(), 50);
    assert!((bursts.mean - 26.7).abs() < 1.5, "{bursts:?}");
    // RFC 9004 section 5.4: the buffer of 20 frames at the rate of the line.
    let corrected = bursts.implied_ms * (1.0 - rate / 200_000.0);
    assert!((bursts.corrected_ms - corrected).abs() < 1e-9 && (corrected - 0.1).abs() < 0.01, "{bursts:?}");
}

#[test]
fn broadcast_frames_are_beside_those_that_are_counted() {
    let seen: Arc<Mutex<u64>> = Arc::default();
    let counted = Arc::clone(&seen);
    let count = move |batch: &mut Batch| {
        let all = (0..batch.len()).filter(|&index| batch.packet(index)[..6] == [0xff; 6]).count();
        *counted.lock().expect("no test panics here") += all as u64;
    };
    let changes = [Box::new(count) as Change, Box::new(|_: &mut Batch| {})];
    let mut tester: Tester<Virtual> = tester_of(Known { rate: 90_000.0, ..KNOWN }, "", false, changes);
    tester.set_broadcasts(true);
    tester.load_frames(&[path_of(Protocol::Udp, frame::tests::PORTS[0], 1)], &[60]);
    let load = trial::Load {
        purpose: Purpose::FrameLoss,
        rate: 30_000.0,
        seconds: 0.33,
        burst: 1,
        frames: None,
        settle_seconds: 0.01,
        samples: None,
    };
    let counts = tester.run(&load).expect("memory does not fail").counts;
    assert_eq!((counts.sent, counts.received, counts.corrupted), (9_900, 9_900, 0));
    assert_eq!((*seen.lock().expect("no test panics here"), counts.foreign), (100, 100), "as a bridge does");
}

/// Frames by length and protocol.
type Seen = Arc<Mutex<BTreeMap<(usize, u8), u64>>>;

#[test]
fn the_mix_has_its_shares_in_every_protocol_and_both_directions() {
    for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp] {
        let seen: [Seen; 2] = Default::default();
        let changes = seen.clone().map(|seen| {
            let count = move |batch: &mut Batch| {
                for index in 0..batch.len() {
                    let frame = batch.packet(index);
                    *seen
                        .lock()
                        .expect("no test panics here")
                        .entry((frame.len(), frame[23]))
                        .or_default() += 1;
                }
            };
            Box::new(count) as Change
        });
        let mut tester: Tester<Virtual> = tester_of(Known { rate: 90_000.0, ..KNOWN }, "", true, changes);
        let [a, b] = frame::tests::PORTS[0];
        let paths = [[a, b], [b, a]].map(|ports| path_of(protocol, ports, 1));
        tester.load_frames(&paths, &FrameSize::Imix.lengths());
        let load = trial::Load {
            purpose: Purpose::FrameLoss,
            rate: 30_000.0,
            seconds: 0.1,
            burst: 1,
            frames: None,
            settle_seconds: 0.01,
            samples: None,
        };
        let counts = tester.run(&load).expect("memory does not fail").counts;
        assert_eq!((counts.sent, counts.received, counts.corrupted), (6_000, 6_000, 0), "{protocol:?}");
        let number = protocol.number(Family::V4);
        // 58.67% of 90 bytes of IP, 2% of 92, 23.66% of 594, 15.67% of 1418.
        let right = [(104, 1760), (106, 60), (608, 710), (1432, 470)]
            .map(|(length, count)| ((length, number), count));
        for seen in seen {
            assert_eq!(*seen.lock().expect("no test panics here"), BTreeMap::from(right), "{protocol:?}");
        }
    }
}
