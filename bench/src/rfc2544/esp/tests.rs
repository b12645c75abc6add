//! ESP with known keys: every cipher and form, every inverted bit, and devices that do it wrongly.

use super::super::device::{Change, Known, Virtual, tester_of};
use super::super::end::{End, Fate};
use super::super::frame::tests::{PORTS, path, path_of};
use super::super::frame::{Path, Protocol, Reader, Seen, Tag, Template};
use super::super::streams::stream_of;
use super::super::tester::Tester;
use super::super::trial::{Load, Purpose, Trial};
use super::*;
use crypto::engine::aws_lc::AwsLc;
use packet::Batch;

const TAG: Tag = Tag { trial: 7, sequence: 99, time: 5 };
/// Outer addresses of both families.
const OUTER: [[&str; 2]; 2] = [["192.0.2.1", "198.51.100.1"], ["2001:db8::1", "2001:db8:7::1"]];

fn outer([source, destination]: [&str; 2]) -> OuterAddresses {
    let [source, destination] = [source, destination].map(|it| it.parse().expect("literal"));
    OuterAddresses { source, destination }
}

fn sa(spi: u32, name: &str) -> EspSa {
    let transform = Transform::by_name(name).expect("it is known");
    let keys = (0..transform.key_material_length()).map(|byte| byte as u8 ^ spi as u8).collect();
    let keys = SecretBytes::new(keys);
    EspSa { spi, transform, keys, extended_from: None, tunnel: Some(outer(OUTER[0])), in_udp: false }
}

/// Tunnels over both families and transport mode, each with and without UDP.
fn forms(name: &str) -> Vec<EspSa> {
    let tunnels = [Some(outer(OUTER[0])), Some(outer(OUTER[1])), None];
    let forms = tunnels.into_iter().flat_map(|tunnel| [false, true].map(|in_udp| (tunnel, in_udp)));
    forms.zip(2000..).map(|((tunnel, in_udp), spi)| EspSa { tunnel, in_udp, ..sa(spi, name) }).collect()
}

/// ESP at these ports; the device seals with SPI 1000, and opens 2000 and 2001.
fn esp(name: &str, ports: [bool; 2]) -> Esp {
    Esp {
        ports,
        sealed_by_device: vec![sa(1000, name)],
        opened_by_device: [vec![sa(2000, name)], vec![sa(2001, name)]],
        ..Esp::default()
    }
}

/// A batch with one frame of `length` bytes of a path.
fn frame_of(path: &Path, length: usize) -> Batch {
    let (mut batch, template) = (Batch::new(8192), Template::new(path, length));
    let room = crate::rfc2544::outer::ROOM;
    let frame = batch.append(room + template.length()).expect("it fits");
    template.write(&mut frame[room..], TAG);
    batch.shrink(0, room, template.length());
    batch
}

fn frame(length: usize) -> Batch {
    frame_of(&path(), length)
}

fn addresses() -> Addresses {
    Addresses::between(PORTS[0].map(|it| it.parse().expect("literal")))
}

fn end(esp: &Esp, port: usize) -> EspEnd {
    esp.end(port, &addresses(), &AwsLc).expect("keys of the right length").expect("ESP at this port")
}

/// Seals at the first port, and opens at the second.
fn pair(esp: &Esp) -> (Sealer, Opener) {
    let [first, second] = [0, 1].map(|port| end(esp, port));
    (first.sealer.expect("it seals"), second.opener)
}

#[test]
fn frames_are_opened_as_they_were_sealed_with_every_kind_of_cipher() {
    let reader = Reader::new(&path());
    for transform in Transform::all() {
        for extended_from in [None, Some(1), Some(0xffff_fffe)] {
            let name = transform.name();
            let mut both = esp(&name, [true, true]);
            both.opened_by_device[0] = vec![EspSa { extended_from, ..sa(2000, &name) }];
            let (mut sealer, mut opener) = pair(&both);
            for length in [60, 61, 74, 1514] {
                let mut batch = frame(length);
                sealer.seal(&mut batch, 0).expect("the engine works");
                let sealed = batch.packet(0).to_vec();
                assert_eq!(&sealed[..14], &frame(length).packet(0)[..14], "the Ethernet header");
                assert!(sealed.len() > length && sealed.len() <= both.longest(length), "{name} {length}");
                let fates = opener.open(&mut batch).fates;
                assert_eq!(fates, [Fate::Opened { is_repeated: false, sa: 1 }], "{name}");
                assert_eq!(reader.read_packet(batch.packet(0)), Seen::Ours(TAG), "{name} {length}");
                let again = batch.len();
                batch.append(sealed.len()).expect("it fits").copy_from_slice(&sealed);
                let fates = opener.open(&mut batch).fates;
                assert_eq!(fates[again], Fate::Opened { is_repeated: true, sa: 1 }, "{name}");
            }
        }
    }
}

/// What a frame is behind ESP, read as the tester does.
fn seen(opener: &mut Opener, reader: &Reader, batch: &mut Batch) -> Seen {
    let fate = opener.open(batch).fates[0];
    match fate {
        Fate::Opened { .. } => reader.read_packet(batch.packet(0)),
        Fate::Corrupt => Seen::Corrupt(None),
        fate => panic!("{fate:?}"),
    }
}

#[test]
fn every_form_of_esp_carries_both_families_and_every_inverted_bit_is_corruption() {
    for name in ["aes-128-gcm", "aes-128-cbc+hmac-sha256-128", "null+hmac-sha1-96"] {
        for (sa, ports) in forms(name).into_iter().flat_map(|sa| PORTS.map(|ports| (sa.clone(), ports))) {
            let what = format!("{name}, {:?}, UDP {}, {ports:?}", sa.tunnel, sa.in_udp);
            let mut esp = esp(name, [true, true]);
            esp.opened_by_device[0] = vec![sa.clone()];
            let path = path_of(Protocol::Udp, ports, 1);
            let addresses = Addresses::between(ports.map(|it| it.parse().expect("literal")));
            let ends = [0, 1].map(|port| esp.end(port, &addresses, &AwsLc).expect("right keys"));
            let [Some(EspEnd { sealer: Some(mut sealer), .. }), Some(EspEnd { mut opener, .. })] = ends
            else {
                panic!("ESP at both ports")
            };
            let mut batch = frame_of(&path, 60);
            sealer.seal(&mut batch, 0).expect("the engine works");
            let sealed = batch.packet(0).to_vec();
            let is_v6 = sealed[12..14] == [0x86, 0xdd];
            let outer_is_v6 = sa.tunnel.map_or(ports == PORTS[1], |it| it.source.is_ipv6());
            assert_eq!(is_v6, outer_is_v6, "{what}");
            assert!(sealed.len() <= esp.longest(frame_of(&path, 60).packet(0).len()), "{what}");
            let reader = Reader::new(&path);
            assert_eq!(seen(&mut opener, &reader, &mut batch), Seen::Ours(TAG), "{what}");
            assert_eq!(batch.packet(0), &frame_of(&path, 60).packet(0)[14..], "{what}");
            for length in 0..sealed.len() {
                let mut batch = Batch::new(8192);
                batch.append(length).expect("it fits").copy_from_slice(&sealed[..length]);
                let fate = opener.open(&mut batch).fates[0];
                assert!(!matches!(fate, Fate::Opened { .. }), "{what}, {length} bytes: {fate:?}");
            }
            for bit in 12 * 8..sealed.len() * 8 {
                // Traffic class, flow label and hop limit of IPv6.
                if is_v6 && ((14 * 8 + 4..18 * 8).contains(&bit) || bit / 8 == 21) {
                    continue;
                }
                let mut batch = Batch::new(8192);
                batch.append(sealed.len()).expect("it fits").copy_from_slice(&sealed);
                batch.packet_mut(0)[bit / 8] ^= 0x80 >> (bit % 8);
                let seen = seen(&mut opener, &reader, &mut batch);
                assert!(matches!(seen, Seen::Corrupt(_)), "{what}, bit {bit}: {seen:?}");
            }
        }
    }
}

#[test]
fn each_stream_has_its_sa_and_each_sa_its_numbers() {
    let (name, count) = ("aes-128-gcm", 6);
    let esp = Esp {
        ports: [true, true],
        opened_by_device: [forms(name), Vec::new()],
        by_stream: [(0..count).rev().collect(), Vec::new()],
        ..Esp::default()
    };
    let (mut sealer, mut opener) = pair(&esp);
    let template = Template::new(&path_of(Protocol::Udp, PORTS[0], count as usize), 60);
    let mut batch = Batch::new(1 << 20);
    for sequence in 100..400 {
        let frame = batch.append(60).expect("it fits");
        template.write(frame, Tag { sequence, ..TAG });
    }
    sealer.seal(&mut batch, 100).expect("the engine works");
    for (index, fate) in opener.open(&mut batch).fates.iter().enumerate() {
        let sa = count - 1 - stream_of(100 + index as u64, count as usize) as u32;
        assert_eq!(*fate, Fate::Opened { is_repeated: false, sa }, "{index}");
    }
    let used: Vec<u64> = opener.opened().into_iter().map(|sa| sa.2).collect();
    assert_eq!(used, sealer.sealed().map(|sa| sa.2 - 1).collect::<Vec<_>>());
    assert!(used.iter().sum::<u64>() == 300 && used.iter().all(|&count| count > 25), "{used:?}");
}

#[test]
fn what_is_not_esp_is_left_as_it_is() {
    let esp = Esp { sealed_by_device: forms("aes-128-gcm"), ports: [false, true], ..Esp::default() };
    let mut opener = end(&esp, 1).opener;
    for (protocol, ports) in Protocol::ALL.into_iter().flat_map(|it| PORTS.map(|ports| (it, ports))) {
        let mut batch = frame_of(&path_of(protocol, ports, 1), 100);
        let before = batch.packet(0).to_vec();
        assert_eq!(opener.open(&mut batch).fates, [Fate::Frame], "{protocol:?} {ports:?}");
        assert_eq!(batch.packet(0), before);
    }
    for own in esp.addresses(1) {
        let port = crate::rfc2544::neighbour::Neighbour::new([2; 6], &[own], Some(own));
        let request = port.request().expect("it asks");
        let mut batch = Batch::new(8192);
        batch.append(request.len()).expect("it fits").copy_from_slice(&request);
        assert_eq!(opener.open(&mut batch).fates, [Fate::Frame], "{own}");
    }
    assert_eq!(esp.addresses(1).len(), 2, "each once");
}

#[test]
fn sequence_numbers_end_before_they_repeat() {
    let of = |first_sequence, extended_from| {
        let mut esp = Esp { first_sequence, ..esp("aes-128-gcm", [true, false]) };
        esp.opened_by_device[0] = vec![EspSa { extended_from, ..sa(2000, "aes-128-gcm") }];
        end(&esp, 0).sealer.expect("ESP at the first port")
    };
    let mut last = of(Some((1 << 32) - 1), None);
    last.seal(&mut frame(60), 0).expect("there is one number");
    let error = last.seal(&mut frame(60), 0).expect_err("there is none").to_string();
    assert!(error.contains("SPI 2000") && error.contains("fix: "), "{error}");
    let mut extended = of(None, Some(1 << 32));
    extended.seal(&mut frame(60), 0).expect("there are more");
    assert_eq!(extended.sas[0].next, (1 << 32) + 1);
}

/// One trial of 5,000 frames a direction.
fn trial(mut tester: Tester<Virtual>) -> Trial {
    let load = Load {
        purpose: Purpose::FrameLoss,
        rate: 50_000.0,
        seconds: 0.1,
        burst: 1,
        frames: None,
        settle_seconds: 0.1,
        samples: None,
    };
    tester.run(&load).expect("memory does not fail")
}

const KNOWN: Known = Known { rate: 90_000.0, buffer: 200, delay: 40_000, spikes: None };

#[test]
fn what_a_device_does_to_esp_is_counted_apart() {
    for name in ["aes-256-gcm", "aes-128-cbc+hmac-sha1-96", "null+hmac-sha256-128"] {
        let run = |faults: &str| {
            let esp = esp(name, [true, true]);
            let same = [0, 1].map(|_| Box::new(|_: &mut Batch| {}) as Change);
            let tester = tester_of(KNOWN, faults, true, same);
            trial(tester.with_ends([0, 1].map(|port| Some(End::Esp(Box::new(end(&esp, port)))))))
        };
        let clean = run("").counts;
        assert_eq!((clean.sent, clean.received), (10_000, 10_000), "{name}");
        assert_eq!(clean.duplicated + clean.reordered + clean.corrupted + clean.repeated, 0, "{name}");
        let near = |count: u64| (130..280).contains(&count);
        let lossy = run("lose=0.02,seed=1");
        assert!(near(lossy.lost) && lossy.counts.corrupted + lossy.counts.duplicated == 0, "{lossy:?}");
        let twice = run("duplicate=0.02,seed=2");
        assert!(near(twice.counts.duplicated) && twice.lost + twice.counts.repeated == 0, "{twice:?}");
        let mixed = run("reorder=0.02,seed=3");
        assert!(near(mixed.counts.reordered) && mixed.counts.corrupted == 0, "{mixed:?}");
        let spoilt = run("corrupt=0.02,seed=4");
        assert!(near(spoilt.counts.corrupted + 30) && spoilt.lost == 0, "{spoilt:?}");
    }
}

/// A device that seals what comes from the first port and opens what comes from the second, or does it wrongly.
fn encryptor(fault: &'static str) -> Tester<Virtual> {
    let (name, other) = ("aes-128-gcm", [false, true]);
    let near = esp(name, other);
    // Sealing and opening are the other way round at the tester, whose port is the second.
    let device = Esp {
        ports: [true, true],
        sealed_by_device: vec![sa(2001, name)],
        opened_by_device: [vec![sa(1000, name)], Vec::new()],
        ..Esp::default()
    };
    let (mut sealer, mut opener) = (end(&device, 0).sealer.expect("it seals"), end(&device, 0).opener);
    let mut count = 0;
    let seal = move |batch: &mut Batch| {
        count += 1;
        match fault {
            "clear" if count % 10 == 0 => {}
            "repeat" if count % 10 == 0 => {
                sealer.sas[0].next -= 1;
                sealer.seal(batch, 0).expect("the engine works");
            }
            _ => sealer.seal(batch, 0).expect("the engine works"),
        }
    };
    let open = move |batch: &mut Batch| {
        opener.open(batch);
        for index in 0..batch.len() {
            batch.grow(index, EthernetHeader::LENGTH, 0);
            batch.packet_mut(index)[..EthernetHeader::LENGTH].copy_from_slice(&frame(60).packet(0)[..14]);
        }
    };
    tester_of(KNOWN, "", true, [Box::new(seal), Box::new(open)])
        .with_ends([None, Some(End::Esp(Box::new(end(&near, 1))))])
}

#[test]
fn an_encryptor_is_tested_from_both_sides_and_its_leaks_and_repetitions_are_found() {
    let right = trial(encryptor(""));
    assert_eq!(right.directions.iter().map(|it| it.received).collect::<Vec<_>>(), [5_000; 2]);
    assert_eq!(right.counts.repeated + right.counts.clear + right.counts.corrupted, 0, "{right:?}");
    let leaking = trial(encryptor("clear")).counts;
    assert!((400..600).contains(&leaking.clear), "{leaking:?}");
    assert_eq!((leaking.received + leaking.clear, leaking.lost()), (10_000, 0), "{leaking:?}");
    let repeating = trial(encryptor("repeat")).counts;
    assert_eq!(repeating.received, 10_000, "{repeating:?}");
    assert!((400..600).contains(&repeating.repeated) && repeating.duplicated == 0, "{repeating:?}");
}

#[test]
fn a_device_that_takes_the_sa_of_another_policy_is_found() {
    // The device seals all frames with SPI 2000; the policies want it for every second stream.
    let name = "aes-128-gcm";
    let count = 2;
    let near = |by_stream: &[u32]| Esp {
        ports: [false, true],
        sealed_by_device: forms(name)[..2].to_vec(),
        by_stream: [by_stream.to_vec(), Vec::new()],
        ..Esp::default()
    };
    for (by_stream, wrong) in [(&[0, 0][..], 0), (&[0, 1], 1), (&[], 0)] {
        let device =
            Esp { ports: [true, true], opened_by_device: [forms(name), Vec::new()], ..Esp::default() };
        let mut sealer = end(&device, 0).sealer.expect("it seals");
        let seal = move |batch: &mut Batch| sealer.seal(batch, 0).expect("the engine works");
        let changes = [Box::new(seal) as Change, Box::new(|_: &mut Batch| {})];
        let mut tester = tester_of(KNOWN, "", false, changes)
            .with_ends([None, Some(End::Esp(Box::new(end(&near(by_stream), 1))))]);
        tester.load_frames(&[path_of(Protocol::Udp, PORTS[0], count)], &[60]);
        let trial = trial(tester);
        assert_eq!((trial.counts.received, trial.counts.corrupted), (5_000, 0), "{trial:?}");
        let of_second = trial.streams[0][1].received;
        assert_eq!(trial.counts.other_sa, of_second * wrong, "{by_stream:?}: {trial:?}");
    }
}
