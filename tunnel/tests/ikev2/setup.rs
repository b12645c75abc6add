//! IKE_SA_INIT and IKE_AUTH.

use crate::network::{A, B, Nat, Network, Weather, exchange};
use crate::support::{
    DETECTION, acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, cbc, child,
    connected, established, gcm, net, seconds,
};
use crypto::SecretBytes;
use crypto::cipher::{self, Cipher, Encryption as Plain, Integrity};
use crypto::exchange::Group;
use crypto::prf::Prf;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tunnel::esp::{Mode, Transform};
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::proposal::{Encryption, EspOffer, IkeOffer, Sequence};
use tunnel::ikev2::{Authentication, Cause, Connection, Event, Follows, Identity, Path, Start};

const INIT: [(Exchange, bool); 2] = [(Exchange::IkeSaInit, false), (Exchange::IkeSaInit, true)];
const AUTH: [(Exchange, bool); 2] = [(Exchange::IkeAuth, false), (Exchange::IkeAuth, true)];

/// Why something failed at a host.
fn causes(network: &Network, host: usize) -> Vec<Cause> {
    let failed = |event: &Event| match event {
        Event::Failed { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    network.hosts[host].events.iter().filter_map(failed).collect()
}

#[test]
fn two_round_trips_make_a_child_sa() {
    let (network, ids) = connected(1, |_, _| {});
    assert_eq!(network.exchanges(), [INIT, AUTH].concat());
    assert_one_session(&network);
    for host in [A, B] {
        let install = &network.hosts[host].sending(0).expect("installed").install;
        assert_eq!((install.connection, install.child, install.encapsulation), (ids[host], 0, false));
        assert_eq!((install.path.local.port(), install.path.remote.port()), (500, 500));
        let events = &network.hosts[host].events[..];
        let calling = events.iter().take_while(|event| matches!(event, Event::Calling { .. })).count();
        assert_eq!(calling, [1, 0][host], "the first calls");
        let [established, up] = &events[calling..] else { panic!("{events:?}") };
        let Event::Established { suite, identity, .. } = established else { panic!("{established:?}") };
        assert_eq!(suite.to_string(), "aes256gcm128-prfsha256-x25519");
        assert_eq!(identity.to_string(), ["host2.example", "host1.example"][host]);
        assert!(matches!(up, Event::ChildUp { suite, .. } if suite.to_string() == "aes256gcm128"));
    }
}

#[test]
fn every_suite_of_the_issue_sets_up() {
    let plain =
        [Plain::TripleDesCbc, Plain::AesCbc(16), Plain::AesCbc(24), Plain::AesCbc(32), Plain::AesCtr(32)];
    let aead = [
        Encryption::Aead(Cipher::Aes128Gcm, 8),
        Encryption::Aead(Cipher::Aes192Gcm, 12),
        Encryption::Aead(Cipher::Aes128Ccm, 16),
        Encryption::Aead(Cipher::ChaCha20Poly1305, 16),
    ];
    let groups =
        [Group::Modp1024, Group::Modp2048, Group::Ecp256, Group::Ecp384, Group::Ecp521, Group::X25519];
    let ciphers = plain.into_iter().map(Encryption::Plain).chain(aead);
    for (number, cipher) in ciphers.enumerate() {
        let offer = IkeOffer {
            encryption: vec![cipher],
            integrity: vec![Integrity::ALL[number % Integrity::ALL.len()]],
            prf: vec![Prf::ALL[number % Prf::ALL.len()]],
            groups: vec![groups[number % groups.len()]],
        };
        let esp = EspOffer {
            encryption: vec![cipher],
            integrity: offer.integrity.clone(),
            groups: vec![],
            sequence: vec![Sequence::Extended],
        };
        let (network, _) = connected(2, |_, connection| {
            connection.ike = vec![offer.clone()];
            connection.children[0].esp = vec![esp.clone()];
        });
        assert_agree(&network, 1);
        assert!(network.hosts[A].sending(0).expect("installed").install.sa.extended_sequence);
    }
}

#[test]
fn null_and_gmac_are_for_esp_alone() {
    for (cipher, expected) in [
        (
            Encryption::Plain(Plain::Null),
            Transform::Pair(cipher::Pair { encryption: Plain::Null, integrity: Integrity::HmacSha256 }),
        ),
        (Encryption::Gmac(Cipher::Aes128Gcm), Transform::Gmac(Cipher::Aes128Gcm)),
    ] {
        let (network, _) =
            connected(3, |_, connection| connection.children[0].esp[0].encryption = vec![cipher]);
        assert_eq!(network.hosts[A].sending(0).expect("installed").install.sa.transform, expected);
        let (mut network, ids) = acquainted(3, |_, connection| connection.ike[0].encryption = vec![cipher]);
        let refused = network.command(A, |endpoint, now, out| endpoint.initiate(now, ids[A], out));
        assert!(refused.is_err());
    }
}

#[test]
fn a_wrong_guess_of_the_group_costs_one_round_trip() {
    let (network, _) = connected(4, |host, connection| {
        connection.ike[0].groups =
            if host == A { vec![Group::X25519, Group::Ecp256] } else { vec![Group::Ecp256] };
    });
    assert_eq!(network.exchanges(), [INIT, INIT, AUTH].concat());
    assert_one_session(&network);
}

#[test]
fn a_group_that_was_not_offered_is_not_taken() {
    let (mut network, _) = connected(5, |host, connection| {
        connection.ike[0].groups = if host == A { vec![Group::X25519] } else { vec![Group::Ecp256] };
    });
    network.run(seconds(5));
    let [Cause::NoProposal { of, ours, theirs }, ..] = &causes(&network, B)[..] else { panic!("a cause") };
    assert_eq!(of, "IKE");
    assert_eq!(ours[..], ["aes256gcm128-prfsha256-ecp256"]);
    assert_eq!(theirs[..], ["aes256gcm128-prfsha256-x25519"]);
    assert!(matches!(&causes(&network, A)[..], [Cause::NoProposal { theirs, .. }] if theirs.is_empty()));
    assert_nothing_leaks(&network, 0);
}

#[test]
fn wrong_secrets_and_identities_are_refused_and_leave_nothing() {
    type Change = fn(&mut Connection);
    let changes: [(Change, &str); 4] = [
        (|it| it.authentication = Authentication::SharedKey(SecretBytes::new(b"another".to_vec())), "secret"),
        (|it| it.authentication = Authentication::SharedKey(SecretBytes::new(Vec::new())), "none"),
        (|it| it.remote_identity = Some(Identity::Fqdn("someone.else".to_owned())), "remote"),
        (|it| it.local_identity = Identity::Fqdn("someone.else".to_owned()), "local"),
    ];
    for (change, name) in changes {
        for changed in [A, B] {
            let (network, _) = connected(6, |host, connection| {
                if host == changed {
                    change(connection);
                }
            });
            assert_agree(&network, 0);
            assert_nothing_leaks(&network, 0);
            assert!(
                !causes(&network, A).is_empty() && !causes(&network, B).is_empty(),
                "{name} at {changed}"
            );
        }
    }
}

/// CVE-2024-2357: a connection without its secret.
#[test]
fn an_empty_secret_on_both_sides_does_not_authenticate() {
    let (network, _) = connected(7, |_, connection| {
        connection.authentication = Authentication::SharedKey(SecretBytes::new(Vec::new()));
    });
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 0);
}

#[test]
fn the_answer_is_checked_as_well_as_the_question() {
    // A takes anyone who has the secret.
    let (network, _) = connected(8, |host, connection| {
        if host == A {
            connection.remote_identity = None;
        } else {
            connection.local_identity = Identity::Fqdn("not.the.one".to_owned());
        }
    });
    assert_agree(&network, 1);
    // B believes A, but A does not believe B.
    let (network, _) = connected(8, |host, connection| {
        if host == B {
            connection.local_identity = Identity::KeyId(vec![1]);
        }
    });
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 0);
}

#[test]
fn selectors_are_narrowed_to_what_both_have() {
    let (network, _) = connected(9, |host, connection| {
        if host == A {
            connection.children[0].local =
                vec![net("10.1.0.0", "10.1.255.255"), net("172.16.0.0", "172.16.0.255")];
        }
    });
    assert_agree(&network, 1);
    let sa = &network.hosts[A].sending(0).expect("installed").install.sa;
    assert_eq!(sa.local, [net("10.1.0.0", "10.1.0.255")]);
}

#[test]
fn without_common_packets_the_ike_sa_stays_alone() {
    let (network, _) = connected(10, |host, connection| {
        if host == A {
            connection.children[0].local = vec![net("10.99.0.0", "10.99.0.255")];
        }
    });
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 1);
    let [Cause::NoSelectors { ours, theirs }] = &causes(&network, B)[..] else { panic!("one cause") };
    assert_eq!(
        (&ours[1], &theirs[1]),
        (&vec![net("10.1.0.0", "10.1.0.255")], &vec![net("10.99.0.0", "10.99.0.255")])
    );
    assert!(matches!(&causes(&network, A)[..], [Cause::NoSelectors { .. }]));
}

#[test]
fn without_common_esp_algorithms_the_ike_sa_stays_alone() {
    let (network, _) = connected(11, |host, connection| {
        connection.children[0].esp[0].encryption = if host == A { vec![gcm()] } else { vec![cbc()] };
    });
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 1);
    let [Cause::NoProposal { of, ours, theirs }] = &causes(&network, B)[..] else { panic!("one cause") };
    assert_eq!(
        (&of[..], &ours[..], &theirs[..]),
        ("lan", &["aes128-sha256-noesn".to_owned()][..], &["aes256gcm128-noesn".to_owned()][..])
    );
}

#[test]
fn transport_mode_is_between_hosts_and_both_want_it() {
    let transport = |_: usize, connection: &mut Connection| {
        connection.children[0].mode = Mode::Transport;
        (connection.children[0].local, connection.children[0].remote) = (vec![], vec![]);
    };
    let (network, _) = connected(12, transport);
    assert_agree(&network, 1);
    let sa = &network.hosts[A].sending(0).expect("installed").install.sa;
    assert_eq!((sa.mode, &sa.local[..]), (Mode::Transport, &[net("192.0.2.1", "192.0.2.1")][..]));
    for tunnel in [A, B] {
        let (network, _) = connected(12, |host, connection| {
            transport(host, connection);
            if host == tunnel {
                connection.children[0].mode = Mode::Tunnel;
            }
        });
        assert_agree(&network, 0);
        assert_nothing_leaks(&network, 1);
    }
}

#[test]
fn several_children_come_one_after_another() {
    let (network, _) = connected(13, |host, connection| {
        let (ours, theirs) = if host == A { (1, 2) } else { (2, 1) };
        connection.children.push(child("second", ours + 10, theirs + 10));
        connection.children.push(child("third", ours + 20, theirs + 20));
    });
    assert_agree(&network, 3);
    assert_nothing_leaks(&network, 1);
    let third = network.hosts[B].sending(2).expect("installed");
    assert_eq!(third.install.sa.local, [net("10.22.0.0", "10.22.0.255")]);
}

#[test]
fn a_connection_without_children_is_an_ike_sa_alone() {
    let (network, _) = connected(14, |_, connection| connection.children.clear());
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 1);
}

#[test]
fn behind_a_nat_both_go_on_on_port_4500() {
    let (mut network, ids) = acquainted(15, |host, connection| {
        if host == B {
            connection.remote = None;
        }
    });
    network.hosts[A].address = "10.0.0.5".parse().expect("literal");
    let local = network.hosts[A].address;
    network.command(A, |endpoint, now, out| endpoint.remove_connection(now, ids[A], out));
    let mut connection = crate::support::connection(A);
    connection.local = Some(local);
    let id = network.add(A, connection);
    let outside = "203.0.113.7".parse().expect("literal");
    network.nat = Some(Nat { inside: local, outside, shift: 10_000 });
    begin(&mut network, A, id);
    network.run(seconds(5));
    assert_agree(&network, 1);
    let a = &network.hosts[A].sending(0).expect("installed").install;
    assert!(a.encapsulation);
    assert_eq!((a.path.local.port(), a.path.remote.port()), (4500, 4500));
    let b = &network.hosts[B].sending(0).expect("installed").install;
    assert!(b.encapsulation);
    assert_eq!(b.path.remote.to_string(), "203.0.113.7:14500");

    // A keeps the translation alive; when it changes all the same, B follows the next message.
    network.run(seconds(60));
    assert_eq!(network.hosts[A].keepalives, 3);
    assert_eq!(network.hosts[B].keepalives, 0);
    network.nat.as_mut().expect("there is one").shift = 20_000;
    network.command(A, |endpoint, now, out| endpoint.rekey(now, id, out));
    network.run(seconds(5));
    assert_eq!(network.hosts[B].path.expect("known").remote.to_string(), "203.0.113.7:24500");
}

#[test]
fn who_is_not_behind_the_nat_goes_where_packets_came_from() {
    let (mut network, ids) = connected(26, |host, connection| connection.force_encapsulation = host == A);
    let installed = |network: &Network, host: usize| {
        let install = &network.hosts[host].sending(0).expect("installed").install;
        (install.sa.inbound.spi, install.path, install.follows)
    };
    let ((a, from_a, a_follows), (b, from_b, b_follows)) = (installed(&network, A), installed(&network, B));
    assert_eq!((a_follows, b_follows), (Follows::Nothing, Follows::Anywhere), "A says that it is behind one");
    let moved = |path: Path| Path { remote: SocketAddr::new(path.remote.ip(), 33_000), ..path };
    network.command(A, |endpoint, now, out| endpoint.note_moved(now, a, moved(from_a), out));
    network.command(B, |endpoint, now, out| endpoint.note_moved(now, b, moved(from_b), out));
    assert_eq!(network.hosts[A].path, Some(from_a));
    assert_eq!(network.hosts[B].path, Some(moved(from_b)));
    network.log.clear();
    network.command(B, |endpoint, now, out| endpoint.rekey(now, ids[B], out));
    assert_eq!(
        network.log.last().map(|(_, datagram)| datagram.to.port()),
        Some(33_000),
        "IKE goes there too"
    );
}

#[test]
fn encapsulation_can_be_forced_by_either_side() {
    for forcing in [A, B] {
        let (network, _) = connected(16, |host, connection| connection.force_encapsulation = host == forcing);
        assert_agree(&network, 1);
        for host in [A, B] {
            let install = &network.hosts[host].sending(0).expect("installed").install;
            assert!(install.encapsulation, "{forcing} forces, {host} encapsulates");
            assert_eq!((install.path.local.port(), install.path.remote.port()), (4500, 4500));
        }
    }
}

#[test]
fn on_traffic_a_connection_is_set_up_once() {
    let (mut network, ids) = acquainted(23, |_, connection| connection.start = Start::OnTraffic);
    for _ in 0..10 {
        network.command(A, |endpoint, now, out| endpoint.handle_traffic(now, ids[A], 0, out)).expect("known");
    }
    network.run(seconds(1));
    network.command(A, |endpoint, now, out| endpoint.handle_traffic(now, ids[A], 0, out)).expect("known");
    network.run(seconds(5));
    assert_eq!(network.exchanges(), [INIT, AUTH].concat());
    assert_agree(&network, 1);
}

#[test]
fn large_identities_travel_in_fragments() {
    let (network, _) = connected(24, |host, connection| {
        let long = |number: usize| Identity::KeyId(vec![number as u8; 1000]);
        connection.local_identity = long(host);
        connection.remote_identity = Some(long(1 - host));
    });
    assert_agree(&network, 1);
    let auth = network.log.iter().filter(|(_, datagram)| exchange(&datagram.bytes).0 == Exchange::IkeAuth);
    assert_eq!(auth.clone().count(), 3, "the question, with both identities, in two fragments");
    assert!(auth.map(|(_, datagram)| datagram.bytes.len()).all(|length| length <= 1228));
}

#[test]
fn what_is_changed_on_the_way_is_noticed() {
    // An attacker that removes the stronger offers from the first message is detected by AUTH, which covers it.
    let (mut network, ids) = acquainted(25, |_, connection| {
        let weak = IkeOffer { encryption: vec![cbc()], ..connection.ike[0].clone() };
        connection.ike.push(weak);
    });
    let changed = Arc::new(Mutex::new(0));
    let count = Arc::clone(&changed);
    network.on_the_way = Some(Box::new(move |datagram| {
        if exchange(&datagram.bytes) == (Exchange::IkeSaInit, false) {
            // AES-GCM with a tag of 16 becomes one of 8 bytes, which B does not take.
            let pattern = [1, 0, 0, 20];
            let at = datagram.bytes.windows(4).position(|bytes| bytes == pattern).expect("it is offered");
            datagram.bytes[at + 3] = 18;
            *count.lock().expect("not poisoned") += 1;
        }
        true
    }));
    begin(&mut network, A, ids[A]);
    network.run(seconds(300));
    assert!(*changed.lock().expect("not poisoned") > 0);
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 0);
}

#[test]
fn the_bad_network_is_overcome() {
    let mut count = 0;
    for seed in 0..200 {
        // Every other time in fragments.
        let long = |host: usize| Identity::KeyId(vec![host as u8; 1000]);
        let (mut network, ids) = acquainted(1000 + seed, |host, connection| {
            connection.dead_peer_detection = Some(DETECTION);
            if seed % 2 == 0 {
                (connection.local_identity, connection.remote_identity) = (long(host), Some(long(1 - host)));
            }
        });
        network.weather = Weather { lost: 200, duplicated: 200, damaged: 50, delay: seconds(2) };
        // Every third machine is a slow one.
        network.longest_job = [seconds(u64::from(seed % 3 == 0)); 2];
        begin(&mut network, A, ids[A]);
        network.run(seconds(170));
        network.weather = Weather { delay: std::time::Duration::from_millis(10), ..Weather::default() };
        network.run(seconds(400));
        let sessions = established(&network.hosts[A]);
        assert_agree(&network, sessions);
        assert_nothing_leaks(&network, sessions);
        count += sessions;
    }
    assert!(count > 180, "{count} of 200");
}

#[test]
fn an_endpoint_may_move_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<tunnel::ikev2::Endpoint>();
}

#[test]
fn a_named_peer_does_not_match_a_connection_for_any_identity() {
    let (mut network, ids) = acquainted(28, |host, connection| {
        if host == B {
            connection.remote_identity = None;
            connection.authentication = Authentication::SharedKey(SecretBytes::new(b"a group's".to_vec()));
        }
    });
    // Added later, and by its addresses less precise.
    let named = network.add(B, Connection { remote: None, ..crate::support::connection(B) });
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    assert_agree(&network, 1);
    assert_eq!(network.hosts[B].sending(0).expect("installed").install.connection, named);
}

#[test]
fn of_several_connections_the_one_of_the_identities_is_taken() {
    let (mut network, ids) = acquainted(26, |host, connection| {
        if host == B {
            connection.name = "the address's, but somebody else's".to_owned();
            connection.remote_identity = Some(Identity::Fqdn("someone.else".to_owned()));
        }
    });
    let mut anyone = crate::support::connection(B);
    anyone.remote = None;
    let meant = network.add(B, anyone);
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    assert_agree(&network, 1);
    assert_eq!(network.hosts[B].sending(0).expect("installed").install.connection, meant);
    // Once it is removed, no connection is left.
    network.command(B, |endpoint, now, out| endpoint.remove_connection(now, meant, out));
    network.run(seconds(5));
    begin(&mut network, A, ids[A]);
    network.run(seconds(15));
    assert!(matches!(&causes(&network, B)[..], [Cause::NoSuchPeer { .. }]));
    assert_nothing_leaks(&network, 0);
}

#[test]
fn a_connection_without_a_local_address_asks_for_one_when_it_initiates() {
    let (mut network, ids) = acquainted(71, |host, connection| {
        if host == A {
            connection.local = None;
        }
    });
    let begun = network.command(A, |endpoint, now, out| endpoint.initiate(now, ids[A], out));
    assert!(begun.is_err(), "there is none");
    network.command(A, |endpoint, _, _| {
        endpoint.set_source(Box::new(|_| Some([192, 0, 2, 1].into())));
    });
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    assert_agree(&network, 1);
}
