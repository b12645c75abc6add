//! Responders that do not keep to the protocol, or are not who they should be.

use crate::mallory::share;
use crate::network::{A, B, Datagram, exchange};
use crate::support::{
    acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, connected, established,
    ike_offer, seconds,
};
use crypto::SecretBytes;
use tunnel::ikev2::limits::REFUSED_TIME;
use tunnel::ikev2::message::numbers::notify;
use tunnel::ikev2::message::{Exchange, Header, KeyExchange, Notify, Payload, ProposalSpi, emit_clear};
use tunnel::ikev2::proposal::IkeOffer;
use tunnel::ikev2::{Authentication, Cause, Event};

#[test]
fn an_initiator_survives_every_answer() {
    let share = share();
    let sa = || Payload::Sa(IkeOffer::propose(&[ike_offer()], ProposalSpi::None));
    let ke = |group, public| Payload::Ke(KeyExchange { group, public });
    let nonce = || Payload::Nonce(&[7; 32]);
    let notify = |kind, data| Payload::Notify(Notify::new(kind, data));
    let answers: Vec<Vec<Payload<'_>>> = vec![
        vec![],
        vec![sa(), nonce()],
        vec![sa(), ke(31, share.public())],
        vec![ke(31, share.public()), nonce()],
        vec![sa(), ke(19, share.public()), nonce()],
        vec![sa(), ke(31, &[0; 32]), nonce()],
        vec![notify(notify::INVALID_KE_PAYLOAD, &[0, 2])],
        vec![notify(notify::INVALID_KE_PAYLOAD, &[0, 31])],
        vec![notify(notify::INVALID_KE_PAYLOAD, &[])],
        vec![notify(notify::COOKIE, &[])],
        vec![notify(notify::COOKIE, &[1; 65])],
        vec![notify(notify::NO_PROPOSAL_CHOSEN, &[])],
    ];
    for answer in answers {
        for (responder_spi, is_dead) in [(0, true), (0, false), (5, true), (5, false)] {
            let (mut network, ids) = acquainted(52, |_, _| {});
            network.hosts[B].is_dead = is_dead;
            begin(&mut network, A, ids[A]);
            let first = network.log[0].1.clone();
            let (header, ..) = Header::parse(&first.bytes).expect("ours");
            let bytes = emit_clear(&Header { responder_spi, ..header.response() }, &answer);
            network.arrive(Datagram { from: first.to, to: first.from, bytes });
            assert_eq!(established(&network.hosts[A]), 0);
            network.run(seconds(600));
            assert_nothing_leaks(&network, usize::from(!is_dead));
        }
    }
}

/// Section 2.21.1: an attacker that sends an answer before the genuine one, but cannot drop that one, prevents nothing.
#[test]
fn the_true_answer_may_come_after_others() {
    let share = share();
    let success = |nonce| {
        vec![
            Payload::Sa(IkeOffer::propose(&[ike_offer()], ProposalSpi::None)),
            Payload::Ke(KeyExchange { group: 31, public: share.public() }),
            Payload::Nonce(nonce),
        ]
    };
    let refusal = |kind| vec![Payload::Notify(Notify::new(kind, &[]))];
    let forged = [
        vec![refusal(notify::NO_PROPOSAL_CHOSEN)],
        vec![refusal(notify::INVALID_SYNTAX), refusal(notify::NO_PROPOSAL_CHOSEN)],
        vec![success(&[7; 32])],
        vec![success(&[7; 32]), refusal(notify::NO_PROPOSAL_CHOSEN), success(&[8; 32])],
    ];
    for (answers, is_slow) in forged.iter().flat_map(|answers| [false, true].map(|slow| (answers, slow))) {
        let (mut network, ids) = acquainted(56, |_, _| {});
        begin(&mut network, A, ids[A]);
        let first = network.log[0].1.clone();
        let (header, ..) = Header::parse(&first.bytes).expect("ours");
        // The true answer may come while we work on another one.
        network.longest_job[A] = seconds(u64::from(is_slow));
        for answer in answers {
            let bytes = emit_clear(&Header { responder_spi: 5, ..header.response() }, answer);
            network.arrive(Datagram { from: first.to, to: first.from, bytes });
        }
        network.run(seconds(20));
        assert_one_session(&network);
    }
}

#[test]
fn an_unauthenticated_error_is_reported_if_no_valid_answer_arrives() {
    let (mut network, ids) = acquainted(57, |_, _| {});
    network.hosts[B].is_dead = true;
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    let (header, ..) = Header::parse(&first.bytes).expect("ours");
    let refusal = [Payload::Notify(Notify::new(notify::NO_PROPOSAL_CHOSEN, &[]))];
    let bytes = emit_clear(&header.response(), &refusal);
    for _ in 0..3 {
        network.arrive(Datagram { from: first.to, to: first.from, bytes: bytes.clone() });
    }
    assert!(matches!(network.hosts[A].events[..], [Event::Calling { .. }, Event::Doubted { .. }]));
    network.run(seconds(10));
    assert_eq!(network.log.len(), 3, "it asked again");
    let [
        Event::Calling { .. },
        Event::Doubted { cause: Cause::NoProposal { .. }, .. },
        Event::Failed { authentic: false, cause: Cause::NoProposal { .. }, .. },
    ] = &network.hosts[A].events[..]
    else {
        panic!("{:?}", network.hosts[A].events);
    };
    assert_nothing_leaks(&network, 0);
}

#[test]
fn ever_new_cookies_are_not_returned_for_ever() {
    let (mut network, ids) = acquainted(53, |_, _| {});
    network.hosts[B].is_dead = true;
    begin(&mut network, A, ids[A]);
    for number in 0..100u8 {
        let last = network.log.last().expect("one was sent").1.clone();
        let (header, ..) = Header::parse(&last.bytes).expect("ours");
        let bytes =
            emit_clear(&header.response(), &[Payload::Notify(Notify::new(notify::COOKIE, &[number + 1]))]);
        network.arrive(Datagram { from: last.to, to: last.from, bytes });
    }
    assert_eq!(network.log.len(), 7);
    network.run(seconds(60));
    assert_eq!(network.log.len(), 9, "the last one is sent again for a while");
    assert_nothing_leaks(&network, 0);
}

#[test]
fn a_cookie_that_comes_twice_is_returned_once() {
    let (mut network, ids) = acquainted(60, |_, _| {});
    network.hosts[B].is_dead = true;
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    let (header, ..) = Header::parse(&first.bytes).expect("ours");
    let bytes = emit_clear(&header.response(), &[Payload::Notify(Notify::new(notify::COOKIE, &[7; 8]))]);
    for _ in 0..10 {
        network.arrive(Datagram { from: first.to, to: first.from, bytes: bytes.clone() });
    }
    assert_eq!(network.log.len(), 2);
}

/// Seen with charon under load: it asks for a cookie when a message comes again that it has answered already.
#[test]
fn a_cookie_that_crosses_the_answer_delays_nothing() {
    let (mut network, ids) = acquainted(56, |_, _| {});
    begin(&mut network, A, ids[A]);
    let first = network.log[0].1.clone();
    let (header, ..) = Header::parse(&first.bytes).expect("ours");
    let bytes = emit_clear(&header.response(), &[Payload::Notify(Notify::new(notify::COOKIE, &[1]))]);
    network.arrive(Datagram { from: first.to, to: first.from, bytes });
    assert_eq!(network.log.len(), 2, "it comes with the cookie");
    network.run(seconds(1));
    assert_agree(&network, 1);
    network.run(REFUSED_TIME);
    assert_nothing_leaks(&network, 1);
}

#[test]
fn a_refusal_that_was_lost_is_said_again() {
    let (mut network, ids) = acquainted(57, |host, connection| {
        if host == A {
            connection.authentication = Authentication::SharedKey(SecretBytes::new(b"another".to_vec()));
        }
    });
    let mut lost = 0;
    network.on_the_way = Some(Box::new(move |datagram| {
        let (header, ..) = Header::parse(&datagram.bytes).expect("ours");
        let is_refusal = header.is_response && header.exchange == Exchange::IkeAuth;
        lost += usize::from(is_refusal);
        !is_refusal || lost > 1
    }));
    begin(&mut network, A, ids[A]);
    network.run(seconds(10));
    let told = |event: &Event| matches!(event, Event::Failed { cause: Cause::Refused, .. });
    assert_eq!(network.hosts[A].count(told), 1, "{:?}", network.hosts[A].events);
    network.run(REFUSED_TIME);
    assert_nothing_leaks(&network, 0);
}

#[test]
fn a_copied_request_is_not_answered_to_its_sender() {
    let (mut network, _) = connected(59, |_, _| {});
    let asked = (Exchange::IkeAuth, false);
    let copied = network.log.iter().find(|(_, one)| exchange(&one.bytes) == asked).expect("sent").1.clone();
    let before = network.log.len();
    network.arrive(Datagram { from: "198.51.100.66:500".parse().expect("literal"), ..copied.clone() });
    network.arrive(copied.clone());
    let answers: Vec<_> = network.log[before..].iter().map(|(_, sent)| sent.to).collect();
    assert_eq!(answers, [copied.from; 2], "both go where the first one came from");
}

/// An impostor that answers in the place of B, with its own keys, is rejected without the secret.
#[test]
fn an_impostor_gets_nothing() {
    let (mut network, ids) = acquainted(54, |host, connection| {
        if host == B {
            connection.authentication = Authentication::SharedKey(SecretBytes::new(b"a guess".to_vec()));
        }
    });
    begin(&mut network, A, ids[A]);
    network.run(seconds(5) + REFUSED_TIME);
    assert!(network.hosts[A].installed.is_empty());
    assert_nothing_leaks(&network, 0);
}
