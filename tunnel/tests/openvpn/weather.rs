//! Hundreds of sessions over seeded networks that lose, duplicate, reorder and damage datagrams, while keys are renewed by
//! both sides and clients move.

use crate::host::Seeded;
use crate::network::{CLEAR, CLIENT, Network, SERVER, Setup, Weather};
use crate::{assert_carries, inner, seconds};
use crypto::prf::Prf;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::HashSet;
use std::time::Duration;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::{OURS, proto};
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::wrap::v2::ServerKey;
use tunnel::openvpn::wrap::{StaticKey, WrapKeys};

const SEEDS: u64 = 60;

/// A setup and a network that differ by seed in all that matters to renewals.
fn network(seed: u64, wraps: fn(&Setup) -> (ServerWrap, ClientWrap), random: &mut ChaCha8Rng) -> Network {
    let mut setup = Setup::new();
    let renegotiate = |random: &mut ChaCha8Rng| Timing {
        renegotiate: Some(seconds(random.random_range(15..40))),
        hand_window: seconds(random.random_range(20..60)),
        transition: seconds(random.random_range(10..60)),
    };
    (setup.client_timing, setup.server_timing) = (renegotiate(random), renegotiate(random));
    if random.random_range(0..3) == 0 {
        setup.client_features = OURS & !(proto::DATA_EPOCH | proto::DYNAMIC_TLS_CRYPT);
    }
    if random.random_range(0..4) == 0 {
        let cipher = DataCipher::by_name("AES-256-CBC").expect("known");
        (setup.server_ciphers, setup.client_ciphers) = (vec![cipher], vec![cipher]);
    }
    let mut network = setup.network(wraps(&setup), seed);
    network.weather = Weather {
        lost: random.random_range(0..200),
        duplicated: random.random_range(0..200),
        damaged: random.random_range(0..60),
        delay: Duration::from_millis(random.random_range(2..500)),
    };
    network
}

/// Runs a session for 150 s, with a packet each way in each half second and three moves; returns how often it ended.
fn live(network: &mut Network, seed: u64, random: &mut ChaCha8Rng) -> usize {
    network.connect(CLIENT);
    let mut ended = 0;
    for step in 0..300u16 {
        if step % 100 == 50 {
            network.hosts[CLIENT].address = ([198, 51, 100, random.random()], 6000 + step).into();
        }
        if !network.hosts[CLIENT].closed.is_empty() {
            ended += network.hosts[CLIENT].closed.len();
            network.hosts[CLIENT].closed.clear();
            network.connect(CLIENT);
        }
        network.send(CLIENT, 0, &inner(step));
        if let Some(session) = network.hosts[SERVER].connected.keys().next_back().copied() {
            network.send(SERVER, session, &inner(step));
        }
        network.run(Duration::from_millis(500));
        for host in [SERVER, CLIENT] {
            let sessions = network.hosts[host].connected.len().max(1);
            let keys = network.hosts[host].inbound.len();
            assert!(keys <= 3 * sessions, "{seed}: {keys} keys of {sessions} sessions");
        }
    }
    for host in [SERVER, CLIENT] {
        let received = &network.hosts[host].received;
        let distinct: HashSet<_> = received.iter().collect();
        assert_eq!(distinct.len(), received.len(), "{seed}: nothing arrives twice");
    }
    ended
}

/// Sessions survive all that the network does.
fn survive(wraps: fn(&Setup) -> (ServerWrap, ClientWrap)) {
    for seed in 0..SEEDS {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let mut network = network(seed, wraps, random);
        let ended = live(&mut network, seed, random);
        // A session that was up does not end; the first handshake may.
        assert!(ended <= 2, "{seed}: {ended}");
        network.weather = CLEAR;
        network.run(seconds(70));
        if !network.is_connected(CLIENT) {
            network.connect(CLIENT);
            network.run(seconds(2));
        }
        assert_carries(&mut network, 60_000);
        let epochs = network.hosts[SERVER].requests.iter().filter(|request| request.is_renewal).count();
        assert!(epochs >= 3, "{seed}: {epochs} renewals");
    }
}

#[test]
fn sessions_survive_under_tls_crypt() {
    survive(Setup::tls_crypt);
}

#[test]
fn sessions_survive_under_tls_auth() {
    survive(|setup| {
        let keys = |direction| WrapKeys::tls_auth(Prf::HmacSha1, setup.key.clone(), Some(direction));
        (ServerWrap::Shared(keys(0)), ClientWrap::Shared(keys(1)))
    });
}

#[test]
fn sessions_survive_under_tls_crypt_v2() {
    survive(|_| {
        let random = &mut Seeded::new(5);
        let key = ServerKey::random(random);
        let own = key.wrap(StaticKey::random(random), None).expect("short");
        (ServerWrap::PerClient { key, allow_without_cookie: false, max_age: None }, ClientWrap::Own(own))
    });
}

/// Damaged packets reach TLS, which ends: the client connects again.
#[test]
fn clients_come_back_without_a_wrap() {
    for seed in 0..SEEDS {
        let random = &mut ChaCha8Rng::seed_from_u64(seed);
        let none = |_: &Setup| (ServerWrap::Shared(WrapKeys::none()), ClientWrap::Shared(WrapKeys::none()));
        let mut network = network(seed, none, random);
        live(&mut network, seed, random);
        network.weather = CLEAR;
        network.run(seconds(130));
        if !network.is_connected(CLIENT) {
            network.connect(CLIENT);
            network.run(seconds(2));
        }
        assert_carries(&mut network, 60_000);
    }
}
