//! Renewals, collisions, moves, exits and refusals between a client and a server.

use crate::certificates::Issued;
use crate::host::Core;
use crate::network::{CLEAR, CLIENT, MOST_CLIENTS, Network, SERVER, START, STORM, Setup, Weather};
use crate::{assert_carries, connected, inner, seconds};
use std::collections::HashSet;
use std::time::Duration;
use tunnel::openvpn::action::Report;
use tunnel::openvpn::channel::PacketError;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::data::Header;
use tunnel::openvpn::keepalive::{Keepalive, Silence};
use tunnel::openvpn::key_method::Credentials;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::{OURS, proto};
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::wrap::v2::{Metadata, ServerKey};
use tunnel::openvpn::wrap::{Role, StaticKey};
use tunnel::openvpn::{Cause, Verdict, verify};

fn timing(renegotiate: u64) -> Timing {
    Timing { renegotiate: Some(seconds(renegotiate)), ..Timing::default() }
}

/// Both sides send an inner packet every 100 ms; returns those that arrived, at the server and at the client.
fn stream(network: &mut Network, duration: Duration) -> (usize, [usize; 2]) {
    let session = *network.hosts[SERVER].connected.keys().next().expect("connected");
    network.hosts.iter_mut().for_each(|host| host.received.clear());
    let packets = duration.as_millis() / 100;
    for number in 0..packets {
        network.send(CLIENT, 0, &inner(number as u16));
        network.send(SERVER, session, &inner(number as u16));
        network.run(Duration::from_millis(100));
    }
    network.run(seconds(1));
    let distinct = |host: usize| {
        let received: HashSet<_> = network.hosts[host].received.iter().collect();
        assert_eq!(received.len(), network.hosts[host].received.len(), "nothing arrives twice");
        received.len()
    };
    (packets as usize, [distinct(SERVER), distinct(CLIENT)])
}

/// The key IDs of the data packets that a host has sent, in order.
fn key_ids(network: &Network, host: usize) -> Vec<u8> {
    let from = network.hosts[host].address;
    let headers = network.log.iter().filter(|(_, sent)| sent.from == from);
    let mut ids: Vec<u8> = headers
        .filter_map(|(_, sent)| match Header::parse(&sent.bytes)? {
            Header::V1 { key_id, .. } | Header::V2 { key_id, .. } => Some(key_id),
        })
        .collect();
    ids.dedup();
    ids
}

#[test]
fn keys_are_renewed_by_the_client_the_server_or_both_and_no_packet_is_lost() {
    for (client, server) in [(20, 3600), (3600, 20), (20, 20)] {
        let mut setup = Setup::new();
        (setup.client_timing, setup.server_timing) = (timing(client), timing(server));
        let mut network = connected(&setup, 1);
        let (sent, received) = stream(&mut network, seconds(300));
        assert_eq!(received, [sent; 2], "{client} {server}");
        let ids = key_ids(&network, CLIENT);
        assert!(ids.len() > 10, "{ids:?}");
        assert_eq!(ids[..10], [0, 1, 2, 3, 4, 5, 6, 7, 1, 2]);
        for host in [SERVER, CLIENT] {
            assert!(
                network.hosts[host].inbound.len() <= 3,
                "the new key, the one in use, and the one before"
            );
        }
    }
}

#[test]
fn a_client_ends_the_session_with_a_server_that_is_revoked_and_keeps_others() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    let renew = |network: &mut Network, revoked: &[&Issued]| {
        let check = || {
            let mut check = setup.authority.check(Role::Server);
            check.add_list(&setup.authority.revocation_list(revoked)).expect("a list");
            check
        };
        let tls = verify::client_config(Some(setup.client.identity()), check()).expect("valid");
        network.call(CLIENT, |core, now, out| match core {
            Core::Client(client) => client.renew_tls(now, tls, &check(), out),
            Core::Server(_) => panic!("a client"),
        });
    };
    renew(&mut network, &[&setup.client]);
    assert_carries(&mut network, 1);
    renew(&mut network, &[&setup.server]);
    assert!(matches!(network.hosts[CLIENT].closed[..], [Cause::RefusedByUs(_)]));
    network.connect(CLIENT);
    network.run(seconds(1));
    assert!(!network.is_connected(CLIENT), "nor is there another one");
}

#[test]
fn keys_are_renewed_in_any_weather() {
    for seed in 0..8 {
        let mut setup = Setup::new();
        (setup.client_timing, setup.server_timing) = (timing(60), timing(60));
        let mut network = connected(&setup, seed);
        network.weather = STORM;
        let (sent, received) = stream(&mut network, seconds(400));
        for received in received {
            assert!(received > sent * 6 / 10, "{seed}: {received} of {sent}");
        }
        assert!(key_ids(&network, CLIENT).len() > 3, "{seed}");
        network.weather = CLEAR;
        network.run(seconds(70));
        assert_carries(&mut network, 9);
    }
}

/// The data packets of a host with epoch keys, of which the number of an SA begins in epoch 1.
fn has_epochs(network: &Network, host: usize) -> bool {
    let from = network.hosts[host].address;
    let is_data = |bytes: &[u8]| Header::parse(bytes).is_some();
    let mut data = network.log.iter().filter(|(_, sent)| sent.from == from && is_data(&sent.bytes));
    data.next_back().is_some_and(|(_, sent)| sent.bytes[4..6] == [0, 1])
}

#[test]
fn data_keys_have_epochs_if_both_sides_know_them() {
    let unknown = !proto::DATA_EPOCH;
    for (server, client, expected) in [(!0, !0, true), (unknown, !0, false), (!0, unknown, false)] {
        let mut setup = Setup::new();
        (setup.server_features, setup.client_features) = (OURS & server, OURS & client);
        setup.client_timing = timing(20);
        let mut network = connected(&setup, 1);
        let told = network.hosts[CLIENT].options.iter().any(|option| option.contains("aead-epoch"));
        assert_eq!(told, expected);
        let (sent, received) = stream(&mut network, seconds(60));
        assert_eq!(received, [sent; 2]);
        assert_eq!([SERVER, CLIENT].map(|host| has_epochs(&network, host)), [expected; 2]);
    }
}

#[test]
fn a_cipher_in_cbc_mode_has_no_epochs() {
    let mut setup = Setup::new();
    let cipher = DataCipher::by_name("AES-128-CBC").expect("known");
    (setup.server_ciphers, setup.client_ciphers) = (vec![cipher], vec![cipher]);
    let mut network = connected(&setup, 1);
    assert!(!network.hosts[CLIENT].options.iter().any(|option| option.contains("aead-epoch")));
    assert_carries(&mut network, 4);
}

#[test]
fn both_begin_to_renew_at_the_same_moment() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    let session = *network.hosts[SERVER].connected.keys().next().expect("connected");
    network.call(CLIENT, |core, now, out| match core {
        Core::Client(client) => client.handle_renewal(now, out),
        Core::Server(_) => unreachable!("a client"),
    });
    network.call(SERVER, |core, now, out| match core {
        Core::Server(server) => server.handle_renewal(now, session, out),
        Core::Client(_) => unreachable!("a server"),
    });
    network.run(seconds(70));
    assert_carries(&mut network, 3);
    assert_eq!((key_ids(&network, CLIENT), key_ids(&network, SERVER)), (vec![1], vec![1]));
}

#[test]
fn a_client_that_moves_is_followed_by_its_data_only() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    let old = network.hosts[CLIENT].address;
    network.hosts[CLIENT].address = "198.51.100.7:6000".parse().expect("literal");
    // A replay from another address does not move the session.
    network.send(CLIENT, 0, &inner(1));
    let mut copy = network.log.last().expect("sent").1.clone();
    network.run(seconds(1));
    assert_carries(&mut network, 2);
    copy.from = "203.0.113.1:1".parse().expect("literal");
    network.arrive(copy);
    assert_eq!(network.hosts[SERVER].dropped(packet::DropReason::Replayed), 1);
    assert_carries(&mut network, 3);
    assert!(!network.hosts[SERVER].connected.values().any(|address| *address == old));
    network.call(CLIENT, |core, now, out| match core {
        Core::Client(client) => client.handle_renewal(now, out),
        Core::Server(_) => unreachable!("a client"),
    });
    network.run(seconds(70));
    assert_carries(&mut network, 4);
    assert_eq!(key_ids(&network, CLIENT), [0, 1], "keys are renewed at the new address");
}

#[test]
fn a_silent_peer_is_noticed_and_an_idle_one_is_not() {
    let mut setup = Setup::new();
    setup.server_ping = [Some(seconds(10)), Some(seconds(60))];
    let mut network = setup.network(setup.tls_crypt(), 1);
    let push = ["ping 10", "ping-restart 60"].map(str::to_owned).to_vec();
    network.hosts[SERVER].verdict = Some(Verdict::Accept { push });
    network.connect(CLIENT);
    network.run(seconds(300));
    assert!(network.is_connected(SERVER) && network.is_connected(CLIENT), "both send pings");
    network.weather = Weather { lost: 1000, ..CLEAR };
    network.run(seconds(61));
    assert_eq!([&network.hosts[SERVER].closed, &network.hosts[CLIENT].closed], [&[Cause::Gone(60)]; 2]);
    assert!(network.hosts[SERVER].inbound.is_empty());
}

#[test]
fn a_client_has_times_of_its_own_if_its_server_pushes_none() {
    for (exits, cause) in [(false, Cause::Gone(30)), (true, Cause::PingExit(30))] {
        let mut setup = Setup::new();
        setup.client_keepalive =
            Keepalive { ping: Some(seconds(10)), silence: Some(Silence { after: seconds(30), exits }) };
        setup.server_ping = [None, Some(seconds(15))];
        let mut network = connected(&setup, 1);
        network.run(seconds(29));
        assert!(network.is_connected(SERVER), "the client sends pings");
        network.run(seconds(2));
        assert_eq!(network.hosts[CLIENT].closed, [cause], "the server does not");
    }
}

#[test]
fn a_pushed_time_replaces_the_clients_own() {
    let mut setup = Setup::new();
    setup.client_keepalive = Keepalive::restarting(None, Some(seconds(30)));
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.hosts[SERVER].verdict = Some(Verdict::Accept { push: vec![String::from("ping-exit 50")] });
    network.connect(CLIENT);
    network.run(seconds(45));
    assert!(network.is_connected(CLIENT));
    network.run(seconds(10));
    assert_eq!(network.hosts[CLIENT].closed, [Cause::PingExit(50)]);
}

#[test]
fn a_key_of_tls_crypt_v2_is_accepted_up_to_its_age() {
    let made = |days: u64| Metadata::Made(seconds(START - days * 24 * 3600));
    let no_time = Metadata::User(b"laptop".to_vec());
    for (metadata, is_accepted) in
        [(Some(made(29)), true), (Some(made(31)), false), (Some(no_time), false), (None, false)]
    {
        let (setup, random) = (Setup::new(), &mut crate::host::Seeded::new(5));
        let key = ServerKey::random(random);
        let own = key.wrap(StaticKey::random(random), metadata.as_ref()).expect("short");
        let max_age = Some(seconds(30 * 24 * 3600));
        let server = ServerWrap::PerClient { key, allow_without_cookie: false, max_age };
        let mut network = setup.network((server, ClientWrap::Own(own)), 1);
        network.connect(CLIENT);
        network.run(seconds(1));
        assert_eq!(network.is_connected(CLIENT), is_accepted, "{metadata:?}");
        let refused = &network.hosts[SERVER].refused;
        assert_eq!(refused.first(), (!is_accepted).then_some(&PacketError::OldKey));
    }
}

#[test]
fn a_client_that_stops_is_gone_at_once() {
    for control_exit in [true, false] {
        let mut setup = Setup::new();
        if !control_exit {
            setup.client_features &= !proto::CONTROL_EXIT;
        }
        let mut network = connected(&setup, 1);
        network.call(CLIENT, |core, now, out| match core {
            Core::Client(client) => client.stop(now, out),
            Core::Server(_) => unreachable!("a client"),
        });
        network.run(seconds(1));
        assert_eq!(network.hosts[SERVER].closed, [Cause::Exited], "{control_exit}");
        assert_eq!(network.hosts[CLIENT].closed, [Cause::Stopped]);
    }
}

#[test]
fn a_client_that_the_server_disconnects_is_told() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    let session = *network.hosts[SERVER].connected.keys().next().expect("connected");
    network.call(SERVER, |core, now, out| match core {
        Core::Server(server) => server.disconnect(now, session, "RESTART", out),
        Core::Client(_) => unreachable!("a server"),
    });
    network.run(seconds(1));
    assert_eq!(network.hosts[CLIENT].closed, [Cause::Told(String::from("RESTART"))]);
}

#[test]
fn a_client_that_connects_again_replaces_its_session() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    network.connect(CLIENT);
    network.run(seconds(1));
    assert_eq!(network.hosts[SERVER].closed, [Cause::Replaced]);
    assert_eq!(network.hosts[SERVER].connected.len(), 1);
    assert_carries(&mut network, 5);
}

#[test]
fn a_refused_client_learns_why_and_a_late_verdict_admits() {
    let mut setup = Setup::new();
    setup.credentials = Credentials { user: String::from("berta"), ..Credentials::default() };
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.hosts[SERVER].verdict = Some(Verdict::Refuse { reason: String::from("no such user") });
    network.connect(CLIENT);
    network.run(seconds(10));
    assert_eq!(network.hosts[SERVER].requests[0].credentials.user, "berta");
    assert_eq!(network.hosts[CLIENT].closed, [Cause::Refused(String::from("no such user"))]);
    assert_eq!(network.hosts[SERVER].closed, [Cause::RefusedByUs(String::from("no such user"))]);
    network.hosts[SERVER].verdict = None;
    network.connect(CLIENT);
    network.run(seconds(20));
    let (session, key_id) = network.hosts[SERVER].unanswered.pop().expect("asked");
    assert!(!network.is_connected(CLIENT));
    network.call(SERVER, |core, now, out| match core {
        Core::Server(server) => server.admit(now, session, key_id, Verdict::Accept { push: Vec::new() }, out),
        Core::Client(_) => unreachable!("a server"),
    });
    network.run(seconds(1));
    assert_carries(&mut network, 6);
}

#[test]
fn a_session_without_a_verdict_ends_with_the_hand_window() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.hosts[SERVER].verdict = None;
    network.connect(CLIENT);
    network.run(seconds(59));
    assert_eq!(network.hosts[SERVER].closed, []);
    network.run(seconds(3));
    assert_eq!(network.hosts[SERVER].closed, [Cause::NoVerdict]);
}

#[test]
fn sides_without_a_common_cipher_say_so() {
    let mut setup = Setup::new();
    setup.client_ciphers = vec![DataCipher::by_name("AES-128-CBC").expect("known")];
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.connect(CLIENT);
    network.run(seconds(10));
    let expected =
        "no common cipher: we offer AES-256-GCM:AES-128-GCM:CHACHA20-POLY1305, the peer accepts AES-128-CBC";
    assert_eq!(network.hosts[SERVER].closed[0].to_string(), expected);
    assert!(matches!(network.hosts[CLIENT].closed[0], Cause::Refused(_)));
}

#[test]
fn long_options_arrive_whole() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    let push: Vec<String> = (0..200).map(|number| format!("route 10.{number}.0.0 255.255.0.0")).collect();
    network.hosts[SERVER].verdict = Some(Verdict::Accept { push: push.clone() });
    network.connect(CLIENT);
    network.run(seconds(1));
    assert_eq!(network.hosts[CLIENT].options[..200], push);
}

#[test]
fn options_and_reasons_cannot_become_other_commands() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    let bad = [String::from("setenv NAME a,redirect-gateway def1"), "x".repeat(2000)];
    let push = [&bad[..], &[String::from("ping 10")]].concat();
    network.hosts[SERVER].verdict = Some(Verdict::Accept { push });
    network.connect(CLIENT);
    network.run(seconds(1));
    assert_eq!(network.hosts[CLIENT].options[0], "ping 10");
    assert_eq!(network.hosts[SERVER].reports, [Report::NotPushed(bad.to_vec())]);
    let session = *network.hosts[SERVER].connected.keys().next().expect("connected");
    network.call(SERVER, |core, now, out| match core {
        Core::Server(server) => server.disconnect(now, session, "HALT,a\0PUSH_REPLY", out),
        Core::Client(_) => unreachable!("a server"),
    });
    network.run(seconds(1));
    assert_eq!(network.hosts[CLIENT].closed, [Cause::Told(String::from("HALT,a PUSH_REPLY"))]);
}

#[test]
fn a_revoked_client_is_disconnected_when_the_list_changes() {
    let setup = Setup::new();
    let mut network = connected(&setup, 1);
    network.call(CLIENT, |core, now, out| match core {
        Core::Client(client) => client.handle_renewal(now, out),
        Core::Server(_) => unreachable!("a client"),
    });
    // New keys are being negotiated, which has no certificate yet.
    network.run(Duration::from_millis(3));
    for (revoked, stays) in [(&setup.server, true), (&setup.client, false)] {
        let mut check = setup.authority.check(Role::Client);
        check.add_list(&setup.authority.revocation_list(&[revoked])).expect("a list");
        network.call(SERVER, |core, now, out| match core {
            Core::Server(server) => server.check_again(now, &check, out),
            Core::Client(_) => unreachable!("a server"),
        });
        assert_eq!(network.is_connected(SERVER), stays);
    }
    assert_eq!(
        network.hosts[SERVER].closed,
        [Cause::RefusedByUs(String::from("it, or a CA of its chain, is revoked"))]
    );
}

#[test]
fn a_client_whose_renewal_is_refused_sends_no_more() {
    let mut setup = Setup::new();
    setup.client_timing = timing(20);
    let mut network = connected(&setup, 1);
    network.hosts[SERVER].verdict = Some(Verdict::Refuse { reason: String::from("expired") });
    network.run(seconds(22));
    assert!(network.hosts[SERVER].inbound.is_empty() && network.hosts[SERVER].requests[1].is_renewal);
    assert_eq!(network.hosts[CLIENT].closed, [Cause::Refused(String::from("expired"))]);
}

#[test]
fn the_metadata_of_a_clients_own_key_is_told_to_the_caller() {
    let setup = Setup::new();
    let random = &mut crate::host::Seeded::new(5);
    let key = ServerKey::random(random);
    let metadata = Metadata::User(b"laptop".to_vec());
    let own = key.wrap(StaticKey::random(random), Some(&metadata)).expect("short");
    let wraps =
        (ServerWrap::PerClient { key, allow_without_cookie: false, max_age: None }, ClientWrap::Own(own));
    let mut network = setup.network(wraps, 1);
    network.weather = STORM;
    network.connect(CLIENT);
    network.run(seconds(55));
    network.weather = CLEAR;
    assert_carries(&mut network, 1);
    assert_eq!(network.hosts[SERVER].requests[0].key_metadata, Some(metadata));
}

#[test]
fn many_clients_are_served_and_one_too_many_is_told() {
    const CLIENTS: u16 = 43;
    let setup = Setup::new();
    let mut network = setup.network_of(setup.tls_crypt(), CLIENTS, 1);
    for client in 1..=usize::from(CLIENTS) {
        network.connect(client);
    }
    network.run(seconds(10));
    assert_eq!(network.hosts[SERVER].connected.len(), MOST_CLIENTS);
    let refused = network.hosts[1..].iter().filter(|host| host.connected.is_empty());
    let causes: Vec<_> = refused.flat_map(|host| &host.closed).collect();
    assert_eq!(causes, [&Cause::Refused(String::from("the server is full")); 3]);
    let sessions: Vec<u32> = network.hosts[SERVER].connected.keys().copied().collect();
    for session in sessions {
        network.send(SERVER, session, &inner(session as u16));
    }
    network.run(seconds(1));
    let received: Vec<_> = network.hosts[1..].iter().flat_map(|host| &host.received).collect();
    assert_eq!(received.len(), MOST_CLIENTS);
    let distinct: HashSet<_> = received.into_iter().collect();
    assert_eq!(distinct.len(), MOST_CLIENTS, "each client gets its own packet");
}
