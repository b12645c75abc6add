//! What every engine promises to the data path, tested with all engines of this machine.

mod support;

use crypto::Cipher;
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::{Engine, Job, Key, LoadError, PairJob, PairKey};
use std::sync::Arc;
use support::engines;

const SIZES: [usize; 13] = [0, 1, 15, 16, 17, 63, 64, 65, 255, 1400, 1420, 9000, 65_000];

/// The only acceptable error is a missing cipher, and AWS-LC must have them all.
fn assert_lacks(engine: &dyn Engine, error: &LoadError) {
    assert!(matches!(error, LoadError::Unsupported { .. }), "{error}");
    assert_ne!(engine.name(), "aws-lc", "{error}");
}

/// Runs a test for every engine and each of its ciphers.
fn for_every_cipher(claim: impl Fn(&dyn Engine, Cipher, Arc<dyn Key>)) {
    for engine in engines() {
        for &cipher in Cipher::ALL {
            match engine.load(cipher, &vec![7; cipher.key_length()]) {
                Ok(key) => claim(&*engine, cipher, key),
                Err(error) => assert_lacks(&*engine, &error),
            }
        }
    }
}

/// Runs a test for every engine and each of its pairs.
fn for_every_pair(claim: impl Fn(&dyn Engine, Pair, Arc<dyn PairKey>)) {
    for engine in engines() {
        for &encryption in Encryption::ALL {
            for &integrity in Integrity::ALL {
                let pair = Pair { encryption, integrity };
                // Three different keys: with equal ones 3DES is DES.
                let secret: Vec<u8> = (1..=encryption.key_length() as u8).collect();
                match engine.load_pair(pair, &secret, &vec![9; integrity.key_length()]) {
                    Ok(key) => claim(&*engine, pair, key),
                    Err(error) => assert_lacks(&*engine, &error),
                }
            }
        }
    }
}

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i * 7 + size) as u8).collect()
}

fn jobs<'a>(texts: &'a mut [Vec<u8>], tags: &'a mut [Vec<u8>], aad: &'a [u8]) -> Vec<Job<'a>> {
    let numbered = texts.iter_mut().zip(tags).enumerate();
    numbered.map(|(i, (text, tag))| Job { nonce: [i as u8; 12], aad, text, tag, authentic: false }).collect()
}

#[test]
fn a_burst_of_mixed_sizes_opens_to_what_was_sealed() {
    for_every_cipher(|engine, cipher, key| {
        for &tag_length in cipher.tag_lengths() {
            let mut texts: Vec<Vec<u8>> = SIZES.iter().map(|&size| bytes(size)).collect();
            let plain = texts.clone();
            let mut tags = vec![vec![0; tag_length]; SIZES.len()];
            key.seal(&mut jobs(&mut texts, &mut tags, b"head")).expect("the engine works");
            assert!(texts.iter().zip(&plain).all(|(sealed, plain)| plain.len() < 15 || sealed != plain));
            let mut opened = jobs(&mut texts, &mut tags, b"head");
            key.open(&mut opened).expect("the engine works");
            let name = engine.name();
            assert!(opened.iter().all(|job| job.authentic), "{name} {cipher}, tags of {tag_length} bytes");
            drop(opened);
            assert_eq!(texts, plain, "{name} {cipher}");
        }
    });
}

#[test]
fn all_engines_compute_the_same() {
    let built_in = &engines()[0];
    for_every_cipher(|engine, cipher, key| {
        let reference = built_in.load(cipher, &vec![7; cipher.key_length()]).expect("it has every cipher");
        for &tag_length in cipher.tag_lengths() {
            for aad in [&b""[..], b"8 bytes.", b"thirteen byte"] {
                let seal = |key: &dyn Key| {
                    let mut texts: Vec<Vec<u8>> = SIZES.iter().map(|&size| bytes(size)).collect();
                    let mut tags = vec![vec![0; tag_length]; SIZES.len()];
                    key.seal(&mut jobs(&mut texts, &mut tags, aad)).expect("the engine works");
                    (texts, tags)
                };
                assert!(seal(&*key) == seal(&*reference), "{} {cipher} {tag_length}", engine.name());
            }
        }
    });
}

#[test]
fn one_wrong_bit_is_detected_and_harms_no_other_packet() {
    for_every_cipher(|engine, cipher, key| {
        for &tag_length in cipher.tag_lengths() {
            for broken in 0..3 {
                let (mut texts, mut tags) = (vec![vec![1u8; 100]; 3], vec![vec![0; tag_length]; 3]);
                key.seal(&mut jobs(&mut texts, &mut tags, b"")).expect("the engine works");
                texts[broken][99] ^= 0x80;
                let mut jobs = jobs(&mut texts, &mut tags, b"");
                key.open(&mut jobs).expect("the engine works");
                for (i, job) in jobs.iter().enumerate() {
                    assert_eq!(job.authentic, i != broken, "{} {cipher}", engine.name());
                }
            }
        }
    });
}

#[test]
fn a_wrong_nonce_tag_or_aad_is_not_authentic() {
    for_every_cipher(|engine, cipher, key| {
        let (mut sealed, mut tag) = (b"text".to_vec(), vec![0; 16]);
        let mut job = Job { nonce: [1; 12], aad: b"aad", text: &mut sealed, tag: &mut tag, authentic: false };
        key.seal(std::slice::from_mut(&mut job)).expect("the engine works");
        let mut wrong_tag = tag.clone();
        wrong_tag[15] ^= 1;
        let opens = |nonce: u8, aad: &[u8], tag: &[u8]| {
            let (mut text, mut tag) = (sealed.clone(), tag.to_vec());
            let mut jobs =
                [Job { nonce: [nonce; 12], aad, text: &mut text, tag: &mut tag, authentic: false }];
            key.open(&mut jobs).expect("the engine works");
            jobs[0].authentic
        };
        let name = format!("{} {cipher}", engine.name());
        assert!(opens(1, b"aad", &tag), "{name}");
        assert!(!opens(2, b"aad", &tag), "{name}");
        assert!(!opens(1, b"aae", &tag), "{name}");
        assert!(!opens(1, b"aad", &wrong_tag), "{name}");
    });
}

#[test]
fn many_threads_use_one_key() {
    for_every_cipher(|engine, cipher, key| {
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let (key, name) = (&key, engine.name());
                scope.spawn(move || {
                    for round in 0..100u8 {
                        let (mut text, mut tag) = ([thread ^ round; 333], [0; 16]);
                        let nonce = [thread, round, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                        let mut jobs =
                            [Job { nonce, aad: b"", text: &mut text, tag: &mut tag, authentic: false }];
                        key.seal(&mut jobs).expect("the engine works");
                        key.open(&mut jobs).expect("the engine works");
                        assert!(jobs[0].authentic, "{name} {cipher}");
                        assert_eq!(text, [thread ^ round; 333], "{name} {cipher}");
                    }
                });
            }
        });
    });
}

#[test]
fn a_device_without_ciphers_has_none() {
    let engines = engines();
    let Some(null) = engines.iter().find(|engine| engine.name() == "dpdk-null") else { return };
    for &cipher in Cipher::ALL {
        let error = null.load(cipher, &vec![7; cipher.key_length()]).err();
        assert!(matches!(error, Some(LoadError::Unsupported { .. })), "{cipher}");
    }
    let openssl = engines.iter().find(|engine| engine.name() == "dpdk-openssl").expect("it is there too");
    assert!(openssl.load(Cipher::Aes256Gcm, &[7; 32]).is_ok());
}

#[test]
fn a_key_of_the_wrong_length_is_refused_with_the_right_one() {
    for engine in engines() {
        let error = engine.load(Cipher::Aes256Gcm, &[0; 31]).err().expect("31 bytes are no AES-256 key");
        assert_eq!(error.to_string(), "a key of aes-256-gcm has 32 bytes, not 31");
    }
}

/// Packets with a 24-byte header and texts of lengths that `pair` allows.
fn packets(pair: Pair) -> Vec<Vec<u8>> {
    let sizes = SIZES.iter().map(|size| size.next_multiple_of(pair.encryption.block()));
    sizes.map(|size| bytes(24 + size)).collect()
}

fn pair_jobs<'a>(packets: &'a mut [Vec<u8>], tags: &'a mut [Vec<u8>]) -> Vec<PairJob<'a>> {
    let job = |(i, (packet, tag)): (usize, (&'a mut Vec<u8>, &'a mut Vec<u8>))| PairJob {
        iv: [i as u8; 16],
        packet,
        text: 24,
        suffix: &[0, 0, 0, 1],
        tag,
        authentic: false,
    };
    packets.iter_mut().zip(tags).enumerate().map(job).collect()
}

#[test]
fn a_burst_of_pairs_opens_to_what_was_sealed_by_any_engine() {
    let built_in = &engines()[0];
    for_every_pair(|engine, pair, key| {
        let name = format!("{} {pair}", engine.name());
        let secret: Vec<u8> = (1..=pair.encryption.key_length() as u8).collect();
        let reference =
            built_in.load_pair(pair, &secret, &vec![9; pair.integrity.key_length()]).expect("it has all");
        let plain = packets(pair);
        let mut sealed = plain.clone();
        let mut tags = vec![vec![0; pair.integrity.tag_length()]; sealed.len()];
        key.seal(&mut pair_jobs(&mut sealed, &mut tags)).expect("the engine works");
        assert!(sealed.iter().zip(&plain).all(|(sealed, plain)| sealed[..24] == plain[..24]), "{name}");
        let mut opened = sealed.clone();
        let mut jobs = pair_jobs(&mut opened, &mut tags);
        reference.open(&mut jobs).expect("the engine works");
        assert!(jobs.iter().all(|job| job.authentic), "{name}");
        drop(jobs);
        assert_eq!(opened, plain, "{name}");
        let mut jobs = pair_jobs(&mut sealed, &mut tags);
        key.open(&mut jobs).expect("the engine works");
        assert!(jobs.iter().all(|job| job.authentic), "{name}");
        drop(jobs);
        assert_eq!(sealed, plain, "{name}");
    });
}

#[test]
fn a_packet_that_is_not_authentic_stays_unchanged() {
    for_every_pair(|engine, pair, key| {
        let mut sealed = packets(pair);
        let mut tags = vec![vec![0; pair.integrity.tag_length()]; sealed.len()];
        key.seal(&mut pair_jobs(&mut sealed, &mut tags)).expect("the engine works");
        sealed[3][0] ^= 1;
        let mut opened = sealed.clone();
        let mut jobs = pair_jobs(&mut opened, &mut tags);
        jobs[5].suffix = &[0, 0, 0, 2];
        key.open(&mut jobs).expect("the engine works");
        for (i, job) in jobs.iter().enumerate() {
            assert_eq!(job.authentic, i != 3 && i != 5, "{} {pair}", engine.name());
        }
        drop(jobs);
        assert!(opened[3] == sealed[3] && opened[5] == sealed[5], "{} {pair}", engine.name());
    });
}
