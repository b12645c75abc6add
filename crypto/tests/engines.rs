//! One suite that every engine passes.

use crypto::engine::{Cipher, Engine, Job, aws_lc::AwsLc};
use std::sync::Arc;

fn engines() -> Vec<Arc<dyn Engine>> {
    vec![Arc::new(AwsLc)]
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    base16ct::lower::decode_vec(digits).expect("hex")
}

/// Seals one message and returns ciphertext and tag.
fn seal(
    engine: &dyn Engine,
    cipher: Cipher,
    key: &[u8],
    nonce: [u8; 12],
    aad: &[u8],
    text: &[u8],
) -> (Vec<u8>, [u8; 16]) {
    let key = engine.load(cipher, key).expect("the engine has the cipher");
    let (mut text, mut tag) = (text.to_vec(), [0; 16]);
    key.seal(&mut [Job { nonce, aad, text: &mut text, tag: &mut tag, authentic: false }])
        .expect("the engine works");
    (text, tag)
}

#[test]
fn example_of_rfc_8439_section_2_8_2() {
    let key: Vec<u8> = (0x80..0xa0).collect();
    let nonce = bytes("070000004041424344454647").try_into().expect("12 bytes");
    let aad = bytes("50515253c0c1c2c3c4c5c6c7");
    let text =
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
                 sunscreen would be it.";
    let expected = bytes(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b
         1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
         3ff4def08e4b7a9de576d26586cec64b6116",
    );
    for engine in engines() {
        let (sealed, tag) = seal(&*engine, Cipher::ChaCha20Poly1305, &key, nonce, &aad, text);
        assert_eq!(sealed, expected, "{}", engine.name());
        assert_eq!(tag.to_vec(), bytes("1ae10b594f09e26a7e902ecbd0600691"), "{}", engine.name());
    }
}

#[test]
fn test_case_4_of_the_gcm_specification() {
    let key = bytes("feffe9928665731c6d6a8f9467308308");
    let nonce = bytes("cafebabefacedbaddecaf888").try_into().expect("12 bytes");
    let aad = bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let text = bytes(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525
         b16aedf5aa0de657ba637b39",
    );
    let expected = bytes(
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa05
         1ba30b396a0aac973d58e091",
    );
    for engine in engines() {
        let (sealed, tag) = seal(&*engine, Cipher::Aes128Gcm, &key, nonce, &aad, &text);
        assert_eq!(sealed, expected, "{}", engine.name());
        assert_eq!(tag.to_vec(), bytes("5bc94fbc3221a5db94fae95ae7121a47"), "{}", engine.name());
    }
}

#[test]
fn a_batch_of_mixed_sizes_opens_to_what_was_sealed() {
    for engine in engines() {
        for &cipher in Cipher::ALL {
            let key = engine.load(cipher, &vec![7; cipher.key_length()]).expect("the engine has the cipher");
            let sizes = [0usize, 1, 15, 16, 17, 63, 64, 65, 255, 1400, 1420, 9000, 65_000];
            let mut texts: Vec<Vec<u8>> =
                sizes.iter().map(|&size| (0..size).map(|i| (i * 7 + size) as u8).collect()).collect();
            let plain = texts.clone();
            let mut tags = vec![[0u8; 16]; sizes.len()];
            let nonce = |i: usize| [i as u8; 12];
            let mut jobs: Vec<Job<'_>> = texts
                .iter_mut()
                .zip(&mut tags)
                .enumerate()
                .map(|(i, (text, tag))| Job { nonce: nonce(i), aad: b"head", text, tag, authentic: false })
                .collect();
            key.seal(&mut jobs).expect("the engine works");
            key.open(&mut jobs).expect("the engine works");
            assert!(jobs.iter().all(|job| job.authentic), "{} {}", engine.name(), cipher.name());
            drop(jobs);
            assert_eq!(texts, plain, "{} {}", engine.name(), cipher.name());
        }
    }
}

#[test]
fn one_wrong_bit_is_found_and_spoils_no_other_packet() {
    for engine in engines() {
        for &cipher in Cipher::ALL {
            let key = engine.load(cipher, &vec![7; cipher.key_length()]).expect("the engine has the cipher");
            for broken in 0..3 {
                let (mut texts, mut tags) = (vec![vec![1u8; 100]; 3], [[0u8; 16]; 3]);
                for (text, tag) in texts.iter_mut().zip(&mut tags) {
                    key.seal(&mut [Job { nonce: [0; 12], aad: b"", text, tag, authentic: false }])
                        .expect("works");
                }
                texts[broken][99] ^= 0x80;
                let mut jobs: Vec<Job<'_>> = texts
                    .iter_mut()
                    .zip(&mut tags)
                    .map(|(text, tag)| Job { nonce: [0; 12], aad: b"", text, tag, authentic: false })
                    .collect();
                key.open(&mut jobs).expect("the engine works");
                for (i, job) in jobs.iter().enumerate() {
                    assert_eq!(job.authentic, i != broken, "{} {}", engine.name(), cipher.name());
                }
            }
        }
    }
}

#[test]
fn wrong_nonce_tag_or_aad_is_not_authentic() {
    for engine in engines() {
        for &cipher in Cipher::ALL {
            let secret = vec![7; cipher.key_length()];
            let (sealed, tag) = seal(&*engine, cipher, &secret, [1; 12], b"aad", b"text");
            let key = engine.load(cipher, &secret).expect("the engine has the cipher");
            let mut wrong_tag = tag;
            wrong_tag[15] ^= 1;
            let opens = |nonce: u8, aad: &[u8], mut tag: [u8; 16]| {
                let mut text = sealed.clone();
                let mut jobs =
                    [Job { nonce: [nonce; 12], aad, text: &mut text, tag: &mut tag, authentic: false }];
                key.open(&mut jobs).expect("the engine works");
                jobs[0].authentic
            };
            let name = format!("{} {}", engine.name(), cipher.name());
            assert!(opens(1, b"aad", tag), "{name}");
            assert!(!opens(2, b"aad", tag), "{name}");
            assert!(!opens(1, b"aae", tag), "{name}");
            assert!(!opens(1, b"aad", wrong_tag), "{name}");
        }
    }
}

#[test]
fn many_threads_use_one_key() {
    for engine in engines() {
        let key = engine.load(Cipher::ChaCha20Poly1305, &[7; 32]).expect("the engine has the cipher");
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let key = &key;
                scope.spawn(move || {
                    for round in 0..200u8 {
                        let (mut text, mut tag) = ([thread ^ round; 333], [0; 16]);
                        let nonce = [thread, round, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                        let mut jobs =
                            [Job { nonce, aad: b"", text: &mut text, tag: &mut tag, authentic: false }];
                        key.seal(&mut jobs).expect("the engine works");
                        key.open(&mut jobs).expect("the engine works");
                        assert!(jobs[0].authentic);
                        assert_eq!(text, [thread ^ round; 333]);
                    }
                });
            }
        });
    }
}

#[test]
fn a_key_of_the_wrong_length_is_refused_with_the_right_one() {
    for engine in engines() {
        let error = engine.load(Cipher::Aes256Gcm, &[0; 31]).err().expect("31 bytes are no AES-256 key");
        assert_eq!(error.to_string(), "a key of aes-256-gcm has 32 bytes, not 31");
    }
}
