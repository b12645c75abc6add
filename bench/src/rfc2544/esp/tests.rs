//! ESP with known keys: every cipher, every inverted bit, and devices that do it wrongly.

use super::super::device::{Known, Virtual, tester_of};
use super::super::frame::tests::path;
use super::super::frame::{Reader, Tag, Template};
use super::super::tester::Tester;
use super::super::trial::{Load, Purpose, Trial};
use super::*;
use crypto::engine::aws_lc::AwsLc;

const TAG: Tag = Tag { trial: 7, sequence: 99, time: 5 };

fn sa(spi: u32, name: &str) -> EspSa {
    let transform = Transform::by_name(name).expect("it is known");
    let keys = (0..transform.key_material_length()).map(|byte| byte as u8 ^ spi as u8).collect();
    let [source, destination] = [[192, 0, 2, 1], [198, 51, 100, 1]].map(Ipv4Addr::from);
    EspSa { spi, transform, keys: SecretBytes::new(keys), extended_from: None, source, destination }
}

/// ESP at these ports; the device seals with SPI 1000, and opens 2000 and 2001.
fn esp(name: &str, ports: [bool; 2]) -> Esp {
    let opened_by_device = [Some(sa(2000, name)), Some(sa(2001, name))];
    Esp { ports, sealed_by_device: vec![sa(1000, name)], opened_by_device, first_sequence: None }
}

/// A batch with one frame of `length` bytes.
fn frame(length: usize) -> Batch {
    let (mut batch, template) = (Batch::new(8192), Template::new(&path(), length));
    template.write(batch.append(length).expect("it fits"), TAG);
    batch
}

fn ends(esp: &Esp, from: usize) -> Ends {
    esp.ends(from, &AwsLc).expect("keys of the right length")
}

#[test]
fn frames_are_opened_as_they_were_sealed_with_every_kind_of_cipher() {
    let reader = Reader::new(&path());
    for transform in Transform::all() {
        for extended_from in [None, Some(1), Some(0xffff_fffe)] {
            let name = transform.name();
            let mut both = esp(&name, [true, true]);
            both.opened_by_device[0] = Some(EspSa { extended_from, ..sa(2000, &name) });
            let Ends { sealer: Some(mut sealer), opener: Some(mut opener) } = ends(&both, 0) else {
                panic!("ESP at both ports")
            };
            for length in [60, 61, 74, 1514] {
                let mut batch = frame(length);
                sealer.seal(&mut batch).expect("the engine works");
                let sealed = batch.packet(0).to_vec();
                assert_eq!(&sealed[..14], &frame(length).packet(0)[..14], "the Ethernet header");
                assert!(sealed.len() > length && sealed.len() <= both.longest(length), "{name} {length}");
                assert_eq!(opener.open(&mut batch), [Fate::Opened { is_repeated: false }], "{name}");
                assert_eq!(reader.read_packet(batch.packet(0)), Seen::Ours(TAG), "{name} {length}");
                let again = batch.len();
                batch.append(sealed.len()).expect("it fits").copy_from_slice(&sealed);
                assert_eq!(opener.open(&mut batch)[again], Fate::Opened { is_repeated: true }, "{name}");
            }
        }
    }
}

#[test]
fn every_inverted_bit_behind_the_hardware_addresses_is_corruption() {
    for name in ["aes-128-gcm", "aes-128-cbc+hmac-sha256-128", "null+hmac-sha1-96"] {
        let Ends { sealer: Some(mut sealer), opener: Some(mut opener) } = ends(&esp(name, [true, true]), 0)
        else {
            panic!("ESP at both ports")
        };
        let mut batch = frame(60);
        sealer.seal(&mut batch).expect("the engine works");
        let sealed = batch.packet(0).to_vec();
        for bit in 12 * 8..sealed.len() * 8 {
            let mut batch = Batch::new(8192);
            batch.append(sealed.len()).expect("it fits").copy_from_slice(&sealed);
            batch.packet_mut(0)[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opener.open(&mut batch), [Fate::Corrupt], "{name}, bit {bit}");
        }
    }
}

#[test]
fn sequence_numbers_end_before_they_repeat() {
    let of = |first_sequence, extended_from| {
        let mut esp = Esp { first_sequence, ..esp("aes-128-gcm", [true, false]) };
        esp.opened_by_device[0] = Some(EspSa { extended_from, ..sa(2000, "aes-128-gcm") });
        ends(&esp, 0).sealer.expect("ESP at the first port")
    };
    let mut last = of(Some((1 << 32) - 1), None);
    last.seal(&mut frame(60)).expect("there is one number");
    let error = last.seal(&mut frame(60)).expect_err("there is none").to_string();
    assert!(error.contains("SPI 2000") && error.contains("fix: "), "{error}");
    let mut extended = of(None, Some(1 << 32));
    extended.seal(&mut frame(60)).expect("there are more");
    assert_eq!(extended.next, (1 << 32) + 1);
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
            let same = [0, 1].map(|_| Box::new(|_: &mut Batch| {}) as super::super::device::Change);
            let tester = tester_of(KNOWN, faults, true, same);
            trial(tester.with_ends(vec![ends(&esp, 0), ends(&esp, 1)]))
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
        opened_by_device: [Some(sa(1000, name)), None],
        first_sequence: None,
    };
    let (mut sealer, mut opener) = (ends(&device, 0).sealer.expect("it seals"), ends(&device, 1).opener);
    let mut count = 0;
    let seal = move |batch: &mut Batch| {
        count += 1;
        match fault {
            "clear" if count % 10 == 0 => {}
            "repeat" if count % 10 == 0 => {
                sealer.next -= 1;
                sealer.seal(batch).expect("the engine works");
            }
            _ => sealer.seal(batch).expect("the engine works"),
        }
    };
    let open = move |batch: &mut Batch| {
        opener.as_mut().expect("it opens").open(batch);
        for index in 0..batch.len() {
            batch.grow(index, EthernetHeader::LENGTH, 0);
            batch.packet_mut(index)[..EthernetHeader::LENGTH].copy_from_slice(&frame(60).packet(0)[..14]);
        }
    };
    tester_of(KNOWN, "", true, [Box::new(seal), Box::new(open)])
        .with_ends(vec![ends(&near, 0), ends(&near, 1)])
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
