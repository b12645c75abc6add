//! A peer that one connection names is served by that connection alone, whatever it calls itself, offers, or calls from.

use crate::certificates::{certified, certified_but};
use crate::mallory::Mallory;
use crate::network::{A, B, Network};
use crate::support::{acquainted, assert_agree, begin, cbc, connection, ike_offer, net, seconds};
use crypto::SecretBytes;
use std::time::Duration;
use tunnel::ikev2::message::numbers::notify;
use tunnel::ikev2::message::{Exchange, Header, Payload};
use tunnel::ikev2::{Authentication, Cause, Connection, ConnectionId, Event, Identity};

/// A hub that takes anyone besides the peer that `named` names, and what the peer begins; tells whether the connection for
/// anyone serves it, and why not.
fn served_by_anyone(
    seed: u64,
    connections: &[Connection; 2],
    change: impl Fn(usize, &mut Connection),
) -> (Network, [ConnectionId; 2], ConnectionId, bool) {
    let (mut network, ids) = acquainted(seed, |host, it| {
        it.clone_from(&connections[host]);
        change(host, it);
    });
    let mut anyone = connections[B].clone();
    (anyone.remote, anyone.remote_identity) = (None, None);
    let mut weaker = ike_offer();
    weaker.encryption = vec![cbc()];
    anyone.ike.push(weaker);
    let anyone = network.add(B, anyone);
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    let hub = &network.hosts[B];
    let is_served = hub.installed.values().any(|it| hub.configured(it) == anyone);
    (network, ids, anyone, is_served)
}

fn named(network: &Network, id: ConnectionId) -> Option<(String, String)> {
    network.hosts[B].events.iter().find_map(|event| match event {
        Event::Failed { connection, authentic: true, cause: Cause::Named { identity, named }, .. }
            if *connection == Some(id) =>
        {
            Some((identity.clone(), named.clone()))
        }
        _ => None,
    })
}

#[test]
fn another_name_of_the_same_certificate_does_not_choose_another_connection() {
    let connections = certified();
    let call_itself = |name: &'static str| {
        served_by_anyone(80, &connections, move |host, it| {
            if host == A {
                it.local_identity = name.parse().expect("a name");
            }
        })
    };
    let (network, ids, _, is_served) = call_itself("CN=host 1");
    assert!(!is_served && network.hosts[B].installed.is_empty());
    assert_eq!(named(&network, ids[B]), Some(("CN=host 1".to_owned(), "host1.example".to_owned())));
    let (network, _, _, is_served) = call_itself("host1.example");
    assert!(!is_served, "it is served as what it is named");
    assert_agree(&network, 1);
}

/// It must not open what a valid one does not.
#[test]
fn a_certificate_that_is_revoked_or_may_be_does_not_choose_another_connection() {
    for is_revoked in [true, false] {
        let (connections, strict) = certified_but(is_revoked);
        let (network, ids, _, is_served) = served_by_anyone(87, &connections, |host, it| match host {
            A => it.local_identity = "CN=host 1".parse().expect("a name"),
            _ => it.authentication = strict.clone(),
        });
        assert!(!is_served && network.hosts[B].installed.is_empty(), "revoked: {is_revoked}");
        assert!(named(&network, ids[B]).is_some(), "{:?}", network.hosts[B].events);
    }
}

/// Whose a certificate is besides takes a chain for each connection that names one of its names: that is a job, like the
/// signature before it.
#[test]
fn whether_another_connection_is_meant_is_a_job() {
    let connections = certified();
    let (mut network, ids) = acquainted(88, |host, it| {
        it.clone_from(&connections[host]);
        if host == A {
            it.local_identity = "CN=host 1".parse().expect("a name");
        }
    });
    let (remote, remote_identity) = (None, None);
    network.add(B, Connection { remote, remote_identity, ..connections[B].clone() });
    network.longest_job[B] = seconds(1000);
    begin(&mut network, A, ids[A]);
    for job in ["the keys", "the signatures"] {
        network.run(Duration::from_millis(100));
        network.finish_all(B);
        assert!(network.hosts[B].events.is_empty(), "{job}: {:?}", network.hosts[B].events);
    }
    assert!(named(&network, ids[B]).is_none());
    network.finish_all(B);
    assert!(named(&network, ids[B]).is_some(), "{:?}", network.hosts[B].events);
}

#[test]
fn weaker_algorithms_or_another_address_do_not_choose_another_connection() {
    let connections = certified();
    let weak = |host: usize, it: &mut Connection| {
        if host == A {
            it.ike[0].encryption = vec![cbc()];
        }
    };
    let moved = |host: usize, it: &mut Connection| {
        if host == B {
            it.remote = Some("203.0.113.9".parse().expect("literal"));
        }
    };
    let other_side = |host: usize, it: &mut Connection| {
        if host == B {
            it.local_identity = Identity::Fqdn("another.example".to_owned());
        }
    };
    let changes = [weak as fn(usize, &mut Connection), moved, other_side];
    for change in changes {
        let (network, ids, _, is_served) = served_by_anyone(81, &connections, change);
        assert!(!is_served && network.hosts[B].installed.is_empty());
        assert!(named(&network, ids[B]).is_some(), "{:?}", network.hosts[B].events);
    }
}

#[test]
fn a_peer_that_no_connection_names_is_served_by_the_one_for_anyone() {
    let connections = certified();
    let (network, _, _, is_served) = served_by_anyone(82, &connections, |host, it| {
        if host == B {
            it.remote_identity = Some(Identity::Fqdn("host9.example".to_owned()));
        }
    });
    assert!(is_served);
    assert_agree(&network, 1);
}

/// A secret proves the name that is claimed with it, and no other.
#[test]
fn a_secret_of_another_peer_is_none_of_an_anonymous_one() {
    let connections = [A, B].map(connection);
    let (network, ids, _, is_served) = served_by_anyone(83, &connections, |host, it| {
        if host == B {
            it.remote = Some("203.0.113.9".parse().expect("literal"));
        }
    });
    assert!(!is_served && named(&network, ids[B]).is_some(), "the secret is that of the named one");
    let (network, _, _, is_served) = served_by_anyone(84, &connections, |host, it| {
        if host == B {
            it.remote = Some("203.0.113.9".parse().expect("literal"));
            it.authentication = Authentication::SharedKey(SecretBytes::new(b"of another".to_vec()));
        }
    });
    assert!(is_served, "hosts behind many NATs call themselves alike");
    assert_agree(&network, 1);
}

fn causes(network: &Network) -> Vec<(bool, &Cause)> {
    let failed = |event| match event {
        &Event::Failed { connection: Some(_), authentic, ref cause, .. } => Some((authentic, cause)),
        _ => None,
    };
    network.hosts[B].events.iter().filter_map(failed).collect()
}

#[test]
fn a_peer_that_asks_for_eap_is_told_from_one_that_misbehaves() {
    let (mut network, _) = acquainted(85, |_, _| {});
    let mut mallory = Mallory::half_open(&mut network);
    let mut payloads = mallory.auth_payloads();
    payloads.retain(|payload| !matches!(payload, Payload::Auth(_)));
    let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
    assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
    let expected = Cause::AsksEap { identity: "host1.example".to_owned() };
    assert_eq!(causes(&network), [(false, &expected)]);
}

#[test]
fn a_peer_that_asks_for_an_address_is_served_without_and_that_is_reported() {
    for fits in [true, false] {
        let (mut network, _) = acquainted(86, |_, _| {});
        let mut mallory = Mallory::half_open(&mut network);
        let mut payloads = mallory.auth_payloads();
        payloads.insert(2, Payload::Configuration(&[1, 0, 0, 0, 0, 1, 0, 0]));
        if !fits {
            payloads.retain(|payload| !matches!(payload, Payload::TsI(_)));
            payloads.push(Payload::TsI(vec![net("10.99.0.1", "10.99.0.1")]));
        }
        let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
        assert_eq!(reply.error(), (!fits).then_some(notify::TS_UNACCEPTABLE));
        assert_eq!(network.hosts[B].installed.len(), usize::from(fits));
        assert_eq!(causes(&network).last(), Some(&(true, &Cause::AsksAddress)), "said last, as it is why");
    }
}

/// The first message of IKEv1's main mode, as far as we read it.
fn version_1(exchange: u8, flags: u8, responder: u8, length: usize) -> Vec<u8> {
    let mut bytes = [&[7; 8][..], &[responder; 8], &[1, 0x10, exchange, flags, 0, 0, 0, 0]].concat();
    bytes.extend((length as u32).to_be_bytes());
    bytes.resize(length, 0);
    bytes
}

#[test]
fn version_1_is_told_that_it_is_not_supported() {
    let (mut network, ids) = acquainted(87, |_, _| {});
    let (main, aggressive) = (2, 4);
    for exchange in [main, aggressive] {
        let first = version_1(exchange, 0, 0, 200);
        let answers = Mallory::new().send(&mut network, first.clone());
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        let (header, kind, payloads) = Header::parse(answer).expect("of version 2");
        assert!(header.is_response && !header.from_initiator && answer.len() < first.len());
        assert_eq!((header.initiator_spi.to_be_bytes(), header.responder_spi), ([7; 8], 0));
        assert_eq!((kind, &payloads[6..8]), (41, &notify::INVALID_MAJOR_VERSION.to_be_bytes()[..]));
    }
    let is_told = |event: &Event| match event {
        Event::Failed { connection, authentic: false, cause: Cause::Version1, .. } => {
            *connection == Some(ids[B])
        }
        _ => false,
    };
    assert_eq!(network.hosts[B].count(is_told), 2);
    assert_eq!(network.hosts[B].endpoint.load(), tunnel::ikev2::Load::default(), "nothing is kept");
}

#[test]
fn what_is_no_beginning_of_version_1_is_not_answered() {
    let (mut network, _) = acquainted(88, |_, _| {});
    let informational = 5;
    let response = 0x20;
    for bytes in [
        version_1(informational, 0, 0, 200),
        version_1(2, response, 0, 200),
        version_1(2, 0, 9, 200),
        version_1(2, 0, 0, 28),
        version_1(2, 0, 0, 35),
        version_1(32, 1, 9, 200),
    ] {
        let answers = Mallory::new().send(&mut network, bytes.clone());
        assert!(answers.is_empty(), "{bytes:?}");
    }
    // Nor is a flood of beginnings.
    let mut answered = 0;
    for number in 0..1000u16 {
        let mallory = Mallory::at(([198, 51, (number >> 8) as u8, number as u8], 500).into());
        answered += mallory.send(&mut network, version_1(2, 0, 0, 200)).len();
    }
    assert!((60..=70).contains(&answered), "{answered} were answered");
}
