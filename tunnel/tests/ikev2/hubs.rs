//! Hubs: what a first message costs that may be for any of thousands of peers.

use crate::mallory::Mallory;
use crate::network::{A, B, Network};
use crate::support::{acquainted, assert_agree, begin, connection, gcm, ike_offer, seconds};
use crypto::exchange::Group;
use std::time::Duration;
use tunnel::ikev2::message::numbers::{group, notify, transform};
use tunnel::ikev2::message::{
    Attribute, Body, Exchange, Header, KeyExchange, Message, Notify, Payload, Proposal, ProposalSpi,
    Transform, emit_clear,
};
use tunnel::ikev2::proposal::{Algorithm, IkeOffer};
use tunnel::ikev2::{Connection, Event, Identity};

/// A peer of a hub: it may be anywhere, and has a name.
fn spoke(number: usize) -> Connection {
    let mut one = connection(B);
    one.remote = None;
    one.name = format!("site {number}");
    one.remote_identity = Some(Identity::Fqdn(format!("site{number}.example")));
    let mut second = ike_offer();
    second.groups = vec![Group::Ecp256];
    one.ike = vec![ike_offer(), second];
    one
}

/// Two hosts, of which B is a hub with so many other peers.
fn hub(seed: u64, peers: usize) -> (Network, tunnel::ikev2::ConnectionId) {
    let (mut network, ids) = acquainted(seed, |host, connection| {
        if host == B {
            connection.remote = None;
        }
    });
    for number in 0..peers {
        network.add(B, spoke(number));
    }
    (network, ids[A])
}

/// As many proposals as a message may hold, in which all is right but the group, which comes last.
fn hopeless() -> Vec<Proposal> {
    let unknown = |id| Transform { kind: transform::ENCRYPTION, id, attribute: Attribute::None };
    let right = IkeOffer::propose(&[ike_offer()], ProposalSpi::None).remove(0).transforms;
    let (cipher, prf) = (gcm().transform(), right[1]);
    let transforms: Vec<Transform> = (1000..1010)
        .map(unknown)
        .chain([cipher, prf, Transform::new(transform::GROUP, group::MODP_1024)])
        .collect();
    (1..=64)
        .map(|number| Proposal {
            number,
            protocol: 1,
            spi: ProposalSpi::None,
            transforms: transforms.clone(),
        })
        .collect()
}

fn first(spi: u64, proposals: &[Proposal], cookie: Option<&[u8]>) -> Vec<u8> {
    let header = Header {
        initiator_spi: spi,
        responder_spi: 0,
        exchange: Exchange::IkeSaInit,
        from_initiator: true,
        is_response: false,
        message_id: 0,
    };
    let cookie = cookie.map(|cookie| Payload::Notify(Notify::new(notify::COOKIE, cookie)));
    let exchange = KeyExchange { group: 2, public: &[1; 128] };
    let rest = [Payload::Sa(proposals.to_vec()), Payload::Ke(exchange), Payload::Nonce(&[9; 16])];
    emit_clear(&header, &cookie.into_iter().chain(rest).collect::<Vec<_>>())
}

/// What B answers, as the type of the first notification; `None` for nothing.
fn told(network: &mut Network, mallory: &Mallory, bytes: Vec<u8>) -> Option<(u16, Vec<u8>)> {
    let answer = mallory.send(network, bytes).pop()?;
    let Ok(Message { body: Body::Clear(read), .. }) = Message::parse(&answer) else { panic!("clear") };
    let notify = read.notifies.first()?;
    Some((notify.kind, notify.data.to_vec()))
}

#[test]
fn a_refused_first_message_costs_the_same_however_many_peers_there_are() {
    let compared = |peers| {
        let (mut network, _) = hub(50, peers);
        let before = network.hosts[B].endpoint.compared();
        let answer = told(&mut network, &Mallory::new(), first(1, &hopeless(), None));
        assert_eq!(answer.map(|(kind, _)| kind), Some(notify::NO_PROPOSAL_CHOSEN));
        network.hosts[B].endpoint.compared() - before
    };
    let few = compared(10);
    assert!(few > 0);
    assert_eq!(few, compared(10_000));
}

#[test]
fn more_proposals_cost_no_more_comparisons() {
    let compared = |count: usize| {
        let (mut network, _) = hub(51, 100);
        told(&mut network, &Mallory::new(), first(1, &hopeless()[..count], None)).expect("answered");
        network.hosts[B].endpoint.compared()
    };
    assert_eq!(compared(1), compared(64));
}

#[test]
fn a_peer_of_a_large_hub_comes_in_by_its_name() {
    let (mut network, id) = hub(52, 10_000);
    begin(&mut network, A, id);
    network.run(seconds(5));
    assert_agree(&network, 1);
    let connected = |event: &Event| match event {
        Event::Established { identity, .. } => identity.to_string() == "host1.example",
        _ => false,
    };
    assert_eq!(network.hosts[B].count(connected), 1);
}

#[test]
fn a_peer_that_is_removed_takes_its_proposals_with_it() {
    let (mut network, _) = hub(53, 0);
    let mut odd = spoke(1);
    odd.ike[0].groups = vec![Group::Ecp521];
    let offers = [IkeOffer { groups: vec![Group::Ecp521], ..ike_offer() }];
    let id = network.add(B, odd);
    let proposals = IkeOffer::propose(&offers, ProposalSpi::None);
    let answer = |network: &mut Network, spi| {
        told(network, &Mallory::new(), first(spi, &proposals, None)).map(|(kind, _)| kind)
    };
    assert_eq!(answer(&mut network, 1), Some(notify::INVALID_KE_PAYLOAD));
    network.command(B, |endpoint, now, out| endpoint.remove_connection(now, id, out));
    assert_eq!(answer(&mut network, 2), Some(notify::NO_PROPOSAL_CHOSEN));
}

/// Refused again and again with one cookie, a source comes to its quota.
#[test]
fn refused_messages_of_one_source_count_against_its_quota() {
    let (mut network, id) = hub(54, 10);
    let mallory = Mallory::at("198.51.100.1:500".parse().expect("literal"));
    let cookie = (0..100).find_map(|_| {
        let (kind, data) = told(&mut network, &mallory, first(1, &hopeless(), None))?;
        (kind == notify::COOKIE).then_some(data)
    });
    let cookie = cookie.expect("after a few it is asked for a cookie");
    let answered = |network: &mut Network| {
        let mut answers = (0..200).map(|_| told(network, &mallory, first(1, &hopeless(), Some(&cookie))));
        let count = answers.by_ref().take_while(Option::is_some).count();
        assert!(answers.all(|answer| answer.is_none()), "after that nothing is read of it");
        count
    };
    let count = answered(&mut network);
    assert!((30..=40).contains(&count), "{count} were answered");
    let compared = network.hosts[B].endpoint.compared();
    assert_eq!(answered(&mut network), 0);
    assert_eq!(network.hosts[B].endpoint.compared(), compared, "nor is anything compared");
    begin(&mut network, A, id);
    network.run(seconds(5));
    assert_agree(&network, 1);
    network.run(seconds(31));
    assert!(told(&mut network, &mallory, first(2, &hopeless(), None)).is_some(), "later it may try again");
}

#[test]
fn one_source_that_is_refused_is_soon_asked_for_a_cookie_and_others_are_not() {
    let (mut network, _) = hub(55, 10);
    let at = |address: &str| Mallory::at(address.parse().expect("literal"));
    let (one, other) = (at("198.51.100.1:500"), at("198.51.100.2:500"));
    let mut kind = |mallory: &Mallory, spi| {
        told(&mut network, mallory, first(spi, &hopeless(), None)).map(|(kind, _)| kind)
    };
    let kinds: Vec<_> = (1..7).filter_map(|spi| kind(&one, spi)).collect();
    let refused = notify::NO_PROPOSAL_CHOSEN;
    assert_eq!(kinds, [refused, refused, refused, refused, notify::COOKIE, notify::COOKIE]);
    assert_eq!(kind(&other, 1), Some(refused));
}

/// What cannot be read is a first message, too.
#[test]
fn malformed_first_messages_make_cookies_necessary_and_are_not_answered_for_ever() {
    let critical = |spi| {
        let mut bytes = first(spi, &hopeless()[..1], None);
        // The first payload becomes one that must be known and is not.
        bytes[16] = 200;
        bytes[29] |= 0x80;
        bytes
    };
    let cut = |spi| {
        let mut bytes = first(spi, &hopeless()[..1], None);
        let last = bytes.len() - 20;
        bytes[last] ^= 0xff;
        bytes[30] ^= 0xff;
        bytes
    };
    let without_nonce = |spi| {
        let bytes = first(spi, &hopeless()[..1], None);
        let (header, ..) = Header::parse(&bytes).expect("ours");
        emit_clear(&header, &[Payload::Sa(hopeless()), Payload::Ke(KeyExchange { group: 2, public: &[1] })])
    };
    let kinds: [&dyn Fn(u64) -> Vec<u8>; 3] = [&critical, &cut, &without_nonce];
    for (seed, kind) in (56..).zip(kinds) {
        let (mut network, _) = hub(seed, 1);
        let mut answers = 0;
        for number in 0..1000u16 {
            let address = ([198, 51, (number >> 8) as u8, number as u8], 500).into();
            let mallory = Mallory::at(address);
            answers += usize::from(told(&mut network, &mallory, kind(u64::from(number) + 1)).is_some());
        }
        assert!(answers <= 70, "{answers} were answered");
        let mallory = Mallory::at("203.0.113.1:500".parse().expect("literal"));
        let answer = told(&mut network, &mallory, first(1, &hopeless(), None));
        assert_eq!(answer.map(|(kind, _)| kind), Some(notify::COOKIE), "all of them were counted");
    }
}

/// Peers behind one NAT that begin with another group than ours each waste one message, and come in nevertheless.
#[test]
fn a_peer_that_comes_in_has_wasted_nothing() {
    let (mut network, ids) = acquainted(60, |host, connection| {
        if host == A {
            connection.ike[0].groups = vec![Group::Ecp256, Group::X25519];
        }
    });
    for round in 0..40 {
        begin(&mut network, A, ids[A]);
        network.run(seconds(1));
        assert_agree(&network, 1);
        network.command(A, |endpoint, now, out| endpoint.close(now, ids[A], out));
        network.run(Duration::from_millis(100));
        assert!(network.hosts[A].installed.is_empty(), "round {round}");
    }
    let cookies = network.log.iter().filter(|(_, datagram)| {
        matches!(Message::parse(&datagram.bytes), Ok(Message { body: Body::Clear(read), .. })
            if read.notify(notify::COOKIE).is_some())
    });
    assert_eq!(cookies.count(), 0);
}
