//! Authentication by keys without certificates, of which each side knows the other's beforehand.

use crate::network::{A, B, Network};
use crate::support::{assert_agree, assert_nothing_leaks, assert_one_session, connected};
use crypto::SecretBytes;
use crypto::signature::SigningKey;
use std::sync::Arc;
use tunnel::ikev2::{Authentication, Cause, Event, RawKeys, Unproved};

const KEYS: [&str; 2] = [
    include_str!("../../../crypto/tests/keys/rsa2048-pkcs8.pem"),
    include_str!("../../../crypto/tests/keys/rsa3072.pem"),
];
const CURVE: &str = include_str!("../../../crypto/tests/keys/ec-p256.pem");

fn key(pem: &str) -> SigningKey {
    SigningKey::from_file(pem.as_bytes()).expect("a key")
}

/// Signs with one key, and expects the other side to sign with another.
fn raw(own: &str, peer: &str) -> Authentication {
    Authentication::RawKeys(Arc::new(RawKeys { own: key(own), peer: key(peer).public().clone() }))
}

fn why(network: &Network, host: usize) -> Unproved {
    let failed = |event: &Event| match event {
        Event::Failed { cause: Cause::NotAuthentic { why, .. }, .. } => Some(why.clone()),
        _ => None,
    };
    network.hosts[host].events.iter().find_map(failed).expect("it failed")
}

#[test]
fn each_side_knows_the_others_key() {
    for keys in [KEYS, [KEYS[0], CURVE], [CURVE, CURVE]] {
        let (network, _) = connected(80, |host, connection| {
            connection.authentication = raw(keys[host], keys[1 - host]);
        });
        assert_one_session(&network);
    }
}

#[test]
fn another_key_is_refused_on_either_side() {
    for bad in [A, B] {
        for other in [KEYS[1 - bad], CURVE] {
            let (network, _) = connected(81, |host, connection| {
                let own = if host == bad { other } else { KEYS[host] };
                connection.authentication = raw(own, KEYS[1 - host]);
            });
            assert_agree(&network, 0);
            assert_nothing_leaks(&network, 0);
            let wrong = Unproved::Proof("its signature is invalid".to_owned());
            assert_eq!(why(&network, 1 - bad), wrong);
        }
    }
}

#[test]
fn the_right_key_under_another_name_is_refused() {
    let (network, _) = connected(82, |host, connection| {
        connection.authentication = raw(KEYS[host], KEYS[1 - host]);
        if host == A {
            connection.local_identity = "C=CH, CN=somebody else".parse().expect("a name");
        }
    });
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 0);
}

#[test]
fn a_secret_does_not_stand_in_for_a_key_nor_the_reverse() {
    for host_with_key in [A, B] {
        let (network, _) = connected(83, |host, connection| {
            // Nor do the bytes of the public key, which is public.
            let public = SecretBytes::new(key(KEYS[host_with_key]).public().info().to_vec());
            connection.authentication = if host == host_with_key {
                raw(KEYS[host], KEYS[1 - host])
            } else {
                Authentication::SharedKey(public)
            };
        });
        assert_agree(&network, 0);
        assert_nothing_leaks(&network, 0);
    }
}
