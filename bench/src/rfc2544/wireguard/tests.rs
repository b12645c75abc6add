//! The tester as a WireGuard peer: handshakes, renewed keys, every inverted bit, and devices that do it wrongly.

use super::super::addresses::Addresses;
use super::super::device::{Change, Known, Virtual, tester_of};
use super::super::end::{End, Fate};
use super::super::frame::tests::{PORTS, back, path, path_of};
use super::super::frame::{Path, Protocol, Reader, Seen, Tag, Template};
use super::super::neighbour::Neighbour;
use super::super::outer::ROOM;
use super::super::tester::Tester;
use super::super::trial::{Load, Purpose, Trial};
use super::*;
use crypto::engine::aws_lc::AwsLc;
use packet::Batch;

const TAG: Tag = Tag { trial: 7, sequence: 99, time: 5 };
const OUTER: [[&str; 2]; 2] =
    [["192.0.2.2:51820", "192.0.2.1:51821"], ["[2001:db8::2]:51820", "[2001:db8::1]:51821"]];
/// The station behind each port, and the port.
const MACS: [[u8; 12]; 2] = [[2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]];

fn wireguard([own, endpoint]: [&str; 2]) -> WireGuard {
    WireGuard {
        ports: [true; 2],
        private_key: Secret::new([7; 32]),
        preshared_key: Secret::new([9; 32]),
        device: PrivateKey::new(Secret::new([8; 32])).public(),
        own: own.parse().expect("literal"),
        endpoint: endpoint.parse().expect("literal"),
    }
}

fn peers(wireguard: &WireGuard) -> [WireGuardPeer; 2] {
    let engine: Arc<dyn Engine> = Arc::new(AwsLc);
    let mut peers = wireguard.looped_ends(&engine);
    peers.iter_mut().zip(MACS).for_each(|(peer, macs)| peer.set_stations(macs));
    peers
}

/// A batch with these frames, each with room for outer headers.
fn batch(frames: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::new(1 << 16);
    for (index, frame) in frames.iter().enumerate() {
        batch.append(ROOM + frame.len()).expect("it fits")[ROOM..].copy_from_slice(frame);
        batch.shrink(index, ROOM, frame.len());
    }
    batch
}

/// Lets two peers talk until nothing is left to send.
fn talk(peers: &mut [WireGuardPeer; 2], now: u64) {
    for _ in 0..4 {
        for from in 0..2 {
            peers[from].tick(now);
            let frames = peers[from].take_outgoing();
            let fates = peers[1 - from].open(&mut batch(&frames), now).fates.to_vec();
            assert_eq!(fates, vec![Fate::Nothing; frames.len()], "messages of the protocol");
        }
    }
}

/// Two peers with a session.
fn connected(wireguard: &WireGuard) -> [WireGuardPeer; 2] {
    let mut peers = peers(wireguard);
    peers[1].renew(0);
    talk(&mut peers, 1_000);
    assert!(peers.iter().all(|peer| peer.is_ready(2_000)), "both have a key");
    peers
}

fn frame_of(path: &Path) -> Vec<u8> {
    let template = Template::new(path, 60);
    let mut frame = vec![0; template.length()];
    template.write(&mut frame, TAG);
    frame
}

#[test]
fn both_families_pass_inside_and_outside_and_every_inverted_bit_is_corruption() {
    for (outer, ports) in OUTER.into_iter().flat_map(|outer| PORTS.map(|ports| (outer, ports))) {
        let (wireguard, path) = (wireguard(outer), path_of(Protocol::Udp, ports, 1));
        let mut peers = connected(&wireguard);
        let (frame, reader) = (frame_of(&path), Reader::new(&path));
        let mut sealed = batch(std::slice::from_ref(&frame));
        assert!(peers[0].seal(&mut sealed, 3_000).expect("the engine works"), "there is a key");
        let bytes = sealed.packet(0).to_vec();
        assert_eq!(bytes[..12], MACS[0]);
        assert_eq!(bytes.len(), wireguard.longest(frame.len()), "`longest` is exact");
        let is_v6 = bytes[12..14] == [0x86, 0xdd];
        for length in 0..bytes.len() {
            let fate = peers[1].open(&mut batch(&[bytes[..length].to_vec()]), 4_000).fates[0];
            assert!(!matches!(fate, Fate::Opened { .. }), "{outer:?} {ports:?}, {length} bytes: {fate:?}");
        }
        for bit in 12 * 8..bytes.len() * 8 {
            // Traffic class, flow label and hop limit of IPv6.
            if is_v6 && ((14 * 8 + 4..18 * 8).contains(&bit) || bit / 8 == 21) {
                continue;
            }
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 0x80 >> (bit % 8);
            let mut damaged = batch(&[damaged]);
            let fates = peers[1].open(&mut damaged, 4_000).fates;
            assert_eq!(fates, [Fate::Corrupt], "{outer:?} {ports:?}, bit {bit}");
        }
        for is_repeated in [false, true] {
            let mut sealed = batch(std::slice::from_ref(&bytes));
            assert_eq!(peers[1].open(&mut sealed, 5_000).fates, [Fate::Opened { is_repeated, sa: 0 }]);
            assert_eq!(reader.read_packet(sealed.packet(0)), Seen::Ours(TAG), "{outer:?} {ports:?}");
        }
    }
}

#[test]
fn what_is_not_wireguard_is_left_as_it_is() {
    for outer in OUTER {
        let mut peers = connected(&wireguard(outer));
        let own = wireguard(outer).own.ip();
        let asked = Neighbour::new([2; 6], &[own], Some(own)).request().expect("it asks");
        let clear = Protocol::ALL.into_iter().flat_map(|it| PORTS.map(|ports| path_of(it, ports, 1)));
        for frame in clear.map(|path| frame_of(&path)).chain([asked]) {
            let mut one = batch(std::slice::from_ref(&frame));
            assert_eq!(peers[1].open(&mut one, 3_000).fates, [Fate::Frame], "{frame:x?}");
            assert_eq!(one.packet(0), frame);
        }
    }
}

#[test]
fn a_message_under_the_key_before_is_still_opened() {
    let mut peers = connected(&wireguard(OUTER[0]));
    let mut late = batch(&[frame_of(&path())]);
    assert!(peers[0].seal(&mut late, 3_000).expect("the engine works"));
    let (late, later) = (late.packet(0).to_vec(), 70_000_000_000);
    assert!(!peers[1].is_ready(later), "a key of more than a minute");
    peers[1].renew(later);
    talk(&mut peers, later);
    assert!(peers.iter().all(|peer| peer.is_ready(later)) && peers[1].counts().handshakes == 2);
    let fates = peers[1].open(&mut batch(&[late]), later).fates.to_vec();
    assert_eq!(fates, [Fate::Opened { is_repeated: false, sa: 0 }]);
}

const KNOWN: Known = Known { rate: 90_000.0, buffer: 200, delay: 40_000, spikes: None };

/// A tester that is both peers of a device that passes frames on, and a look at its ports takes so long.
fn tester(faults: &str, paths: &[Path], look: u64) -> Tester<Virtual> {
    let same = [0, 1].map(|_| Box::new(|_: &mut Batch| {}) as Change);
    let ends = peers(&wireguard(OUTER[0])).map(|peer| Some(End::WireGuard(Box::new(peer))));
    let mut tester = tester_of(KNOWN, faults, true, same).with_ends(ends);
    tester.load_frames(paths, &[60]);
    tester.clock.look = look;
    for port in 0..2 {
        tester.set_stations(port, Addresses::mac(1 - port), Addresses::mac(port));
    }
    tester
}

fn run(tester: &mut Tester<Virtual>, rate: f64, seconds: f64) -> Trial {
    let (burst, frames, settle_seconds, samples) = (1, None, 0.1, None);
    let purpose = Purpose::FrameLoss;
    let load = Load { purpose, rate, seconds, burst, frames, settle_seconds, samples };
    tester.run(&load).expect("memory does not fail")
}

/// Handshakes of both peers.
fn handshakes(tester: &Tester<Virtual>) -> [u64; 2] {
    let peers = tester.ends().each_ref().map(|end| match end {
        Some(End::WireGuard(peer)) => peer.counts(),
        _ => panic!("WireGuard at both ports"),
    });
    peers.map(|counts| counts.handshakes)
}

#[test]
fn keys_are_renewed_within_long_trials_without_loss() {
    // 400 s: who sends renews after 120 s, who only receives after 165 s, and a key is of no use after 180 s.
    for (paths, keys) in [(vec![path(), back()], 4), (vec![path()], 3)] {
        let mut tester = tester("", &paths, 500_000);
        let trial = run(&mut tester, 50.0, 400.0);
        let all = 20_000 * paths.len() as u64;
        assert_eq!((trial.counts.sent, trial.counts.received), (all, all), "{trial:?}");
        assert_eq!(trial.counts.repeated + trial.counts.corrupted + trial.counts.clear, 0, "{trial:?}");
        assert_eq!(handshakes(&tester), [keys; 2]);
    }
}

#[test]
fn what_a_device_does_to_wireguard_is_counted_apart() {
    let counted = |faults: &str| {
        let mut tester = tester(faults, &[path(), back()], 1_000);
        (run(&mut tester, 50_000.0, 0.1), handshakes(&tester))
    };
    let (clean, handshakes) = counted("");
    assert_eq!((clean.counts.sent, clean.counts.received, handshakes), (10_000, 10_000, [1, 1]));
    let near = |count: u64| (130..280).contains(&count);
    let (lossy, _) = counted("lose=0.02,seed=1");
    assert!(near(lossy.lost) && lossy.counts.corrupted + lossy.counts.duplicated == 0, "{lossy:?}");
    let (twice, _) = counted("duplicate=0.02,seed=2");
    assert!(near(twice.counts.duplicated) && twice.lost + twice.counts.repeated == 0, "{twice:?}");
    let (mixed, _) = counted("reorder=0.02,seed=3");
    assert!(near(mixed.counts.reordered) && mixed.counts.corrupted == 0, "{mixed:?}");
    let (spoilt, _) = counted("corrupt=0.02,seed=4");
    assert!(near(spoilt.counts.corrupted + 30) && spoilt.lost == 0, "{spoilt:?}");
}

#[test]
fn a_device_that_does_not_answer_is_named_instead_of_measured() {
    let mut tester = tester("lose=1.0,seed=1", &[path()], 1_000_000);
    let (burst, frames, settle_seconds, samples) = (1, None, 0.1, None);
    let purpose = Purpose::FrameLoss;
    let load = Load { purpose, rate: 50.0, seconds: 0.1, burst, frames, settle_seconds, samples };
    let error = tester.run(&load).expect_err("nobody answers").to_string();
    assert!(error.contains("192.0.2.1:51821 did not answer") && error.contains("fix: "), "{error}");
}

#[test]
fn without_a_key_frames_wait() {
    let mut peers = peers(&wireguard(OUTER[0]));
    let mut waiting = batch(&[frame_of(&path())]);
    assert!(!peers[1].seal(&mut waiting, 1_000).expect("nothing fails"), "there is no key");
    assert_eq!(peers[1].take_outgoing().len(), 1, "a handshake begins");
    assert!(
        !peers[1].seal(&mut waiting, 2_000).expect("nothing fails") && peers[1].take_outgoing().is_empty()
    );
}
