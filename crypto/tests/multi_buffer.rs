//! The engine that seals several packets at once, with each instruction set of this machine, beside AWS-LC.

use crypto::Cipher;
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::multi_buffer::MultiBuffer;
use crypto::engine::{Engine, Job, Key};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

const CIPHER: Cipher = Cipher::ChaCha20Poly1305;

/// A packet with its nonce, and its tag once it is sealed.
#[derive(Clone, PartialEq, Eq)]
struct Packet {
    nonce: [u8; 12],
    aad: Vec<u8>,
    text: Vec<u8>,
    tag: [u8; 16],
}

fn packet(random: &mut ChaCha20Rng, length: usize, aad: usize) -> Packet {
    let mut packet = Packet { nonce: [0; 12], aad: vec![0; aad], text: vec![0; length], tag: [0; 16] };
    random.fill_bytes(&mut packet.nonce);
    random.fill_bytes(&mut packet.aad);
    random.fill_bytes(&mut packet.text);
    packet
}

fn jobs(packets: &mut [Packet]) -> Vec<Job<'_>> {
    packets
        .iter_mut()
        .map(|Packet { nonce, aad, text, tag }| Job { nonce: *nonce, aad, text, tag, authentic: false })
        .collect()
}

fn seal(key: &dyn Key, packets: &[Packet]) -> Vec<Packet> {
    let mut sealed = packets.to_vec();
    key.seal(&mut jobs(&mut sealed)).expect("it cannot fail");
    sealed
}

fn key(engine: &dyn Engine, secret: &[u8; 32]) -> std::sync::Arc<dyn Key> {
    engine.load(CIPHER, secret).expect("it has this cipher")
}

/// Seals as AWS-LC does, opens again, and takes no packet with a changed bit.
fn agrees(engine: &MultiBuffer, random: &mut ChaCha20Rng, packets: &[Packet]) {
    let mut secret = [0; 32];
    random.fill_bytes(&mut secret);
    let (ours, theirs) = (key(engine, &secret), key(&AwsLc, &secret));
    let name = engine.version();
    let describe = || packets.iter().map(|it| (it.text.len(), it.aad.len())).collect::<Vec<_>>();
    let mut sealed = seal(&*ours, packets);
    assert!(sealed == seal(&*theirs, packets), "{name}: {:?}", describe());
    let wrong = random.random_range(0..packets.len());
    let broken = &mut sealed[wrong];
    match random.random_range(0..3) {
        0 if !broken.text.is_empty() => {
            let at = random.random_range(0..broken.text.len());
            broken.text[at] ^= 1 << random.random_range(0..8);
        }
        1 if !broken.aad.is_empty() => {
            let at = random.random_range(0..broken.aad.len());
            broken.aad[at] ^= 1 << random.random_range(0..8);
        }
        _ => broken.tag[random.random_range(0..16)] ^= 1 << random.random_range(0..8),
    }
    let mut opened = jobs(&mut sealed);
    ours.open(&mut opened).expect("it cannot fail");
    let authentic: Vec<bool> = opened.iter().map(|job| job.authentic).collect();
    drop(opened);
    for (place, (opened, packet)) in sealed.iter().zip(packets).enumerate() {
        assert_eq!(authentic[place], place != wrong, "{name}: {place} of {:?}", describe());
        assert!(place == wrong || opened.text == packet.text, "{name}: {place} of {:?}", describe());
    }
}

#[test]
fn every_length_is_sealed_as_by_aws_lc() {
    let mut random = ChaCha20Rng::seed_from_u64(1);
    for engine in MultiBuffer::all() {
        for first in (0..=9000).step_by(25) {
            let packets: Vec<Packet> =
                (first..first + 25).map(|length| packet(&mut random, length, 0)).collect();
            agrees(&engine, &mut random, &packets);
        }
    }
}

#[test]
fn every_burst_of_equal_packets_is_sealed_as_by_aws_lc() {
    let mut random = ChaCha20Rng::seed_from_u64(2);
    for engine in MultiBuffer::all() {
        for burst in 1..=70 {
            for length in [0, 16, 64, 512, 1408] {
                let aad = [0, 8, 12, 13][burst % 4];
                let packets: Vec<Packet> = (0..burst).map(|_| packet(&mut random, length, aad)).collect();
                agrees(&engine, &mut random, &packets);
            }
        }
    }
}

#[test]
fn bursts_of_any_lengths_are_sealed_as_by_aws_lc() {
    let mut random = ChaCha20Rng::seed_from_u64(3);
    for engine in MultiBuffer::all() {
        for _ in 0..400 {
            let burst = random.random_range(1..=64);
            let most = [70, 300, 1500, 9000][random.random_range(0..4)];
            let packets: Vec<Packet> = (0..burst)
                .map(|_| {
                    let (length, aad) = (random.random_range(0..=most), random.random_range(0..=70));
                    packet(&mut random, length, aad)
                })
                .collect();
            agrees(&engine, &mut random, &packets);
        }
    }
}

/// RFC 8439 section 2.8.2.
#[test]
fn the_example_of_the_rfc_is_sealed() {
    let secret: [u8; 32] = std::array::from_fn(|at| 0x80 + at as u8);
    let text = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, sunscreen would be it.";
    let packet = Packet {
        nonce: [7, 0, 0, 0, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47],
        aad: vec![0x50, 0x51, 0x52, 0x53, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7],
        text: text.to_vec(),
        tag: [0; 16],
    };
    for engine in MultiBuffer::all() {
        let sealed = seal(&*key(&engine, &secret), &vec![packet.clone(); 3]);
        for packet in sealed {
            assert_eq!(packet.text[..8], [0xd3, 0x1a, 0x8d, 0x34, 0x64, 0x8e, 0x60, 0xdb]);
            assert_eq!(
                packet.tag,
                [
                    0x1a, 0xe1, 0x0b, 0x59, 0x4f, 0x09, 0xe2, 0x6a, 0x7e, 0x90, 0x2e, 0xcb, 0xd0, 0x60, 0x06,
                    0x91
                ]
            );
        }
    }
}

#[test]
fn other_ciphers_are_left_to_other_engines() {
    for engine in MultiBuffer::all() {
        for cipher in Cipher::ALL.iter().filter(|cipher| **cipher != CIPHER) {
            assert!(engine.load(*cipher, &vec![0; cipher.key_length()]).is_err(), "{cipher}");
        }
        assert!(engine.load(CIPHER, &[0; 31]).is_err());
    }
}
