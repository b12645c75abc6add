//! Peers that do not keep to the protocol: the classes of faults for which other implementations have CVEs.

use crate::mallory::{Mallory, SPI, create_payloads, share};
use crate::network::{A, B, Network};
use crate::support::{acquainted, begin, connected, esp_offer, established, ike_offer, net, seconds};
use tunnel::ikev2::limits::REFUSED_TIME;
use tunnel::ikev2::message::numbers::{method, notify, payload, protocol, transform};
use tunnel::ikev2::message::{
    Authentication, Body, Delete, Envelope, Exchange, Header, KeyExchange, Message, Notify, Payload,
    Proposal, ProposalSpi, emit, emit_clear,
};
use tunnel::ikev2::proposal::{EspOffer, IkeOffer};
use tunnel::ikev2::{CloseReason, Event, Load, State};

const EXCHANGES: [Exchange; 7] = [
    Exchange::IkeSaInit,
    Exchange::IkeAuth,
    Exchange::CreateChildSa,
    Exchange::Informational,
    Exchange::Other(0),
    Exchange::Other(43),
    Exchange::Other(255),
];

const NOTHING: Load = Load { ike_spis: 0, child_spis: 0, claims: 0, half_open: 0, fragments: 0 };

fn waiting() -> Network {
    acquainted(50, |_, _| {}).0
}

fn is_established(network: &Network) -> bool {
    established(&network.hosts[B]) == 1
}

/// CVE-2026-78135, CVE-2014-2338, CVE-2015-8023, CVE-2021-45079: something is done before authentication.
#[test]
fn before_authentication_every_exchange_but_one_is_ignored() {
    for exchange in EXCHANGES.into_iter().filter(|exchange| *exchange != Exchange::IkeAuth) {
        let mut network = waiting();
        let mut mallory = Mallory::half_open(&mut network);
        for payloads in
            [vec![], create_payloads(), mallory.auth_payloads(), vec![Payload::Delete(Delete::Ike)]]
        {
            assert!(mallory.ask(&mut network, exchange, &payloads).is_none(), "{exchange:?}");
        }
        assert!(network.hosts[B].installed.is_empty() && !is_established(&network));
        // And it disturbs nothing.
        assert_eq!(mallory.authenticate(&mut network).error(), None);
        assert!(is_established(&network));
    }
}

#[test]
fn before_authentication_numbers_flags_and_directions_must_be_right() {
    let mut network = waiting();
    let mut mallory = Mallory::half_open(&mut network);
    let (first, chain) = emit(&mallory.auth_payloads());
    let good = mallory.header(Exchange::IkeAuth, 1);
    for header in [
        Header { message_id: 0, ..good },
        Header { message_id: 2, ..good },
        Header { is_response: true, ..good },
        Header { initiator_spi: 1, ..good },
        Header { from_initiator: false, initiator_spi: good.responder_spi, responder_spi: 1, ..good },
    ] {
        let datagram = mallory.seal(&header, Envelope::Whole, first, &chain);
        assert!(mallory.send(&mut network, datagram).is_empty(), "{header:?}");
        assert!(!is_established(&network));
    }
    assert_eq!(mallory.authenticate(&mut network).error(), None);
}

#[test]
fn in_the_clear_nothing_but_the_first_exchange_is_read() {
    let mut network = waiting();
    let mut mallory = Mallory::half_open(&mut network);
    for exchange in EXCHANGES {
        let clear = emit_clear(&mallory.header(exchange, 1), &mallory.auth_payloads());
        assert!(mallory.send(&mut network, clear).is_empty(), "{exchange:?}");
    }
    assert_eq!(mallory.authenticate(&mut network).error(), None);
    for exchange in EXCHANGES {
        for payloads in [vec![Payload::Delete(Delete::Ike)], create_payloads()] {
            let clear = emit_clear(&mallory.header(exchange, 2), &payloads);
            assert!(mallory.send(&mut network, clear).is_empty(), "{exchange:?}");
        }
    }
    assert!(is_established(&network));
}

/// CVE-2013-6467, CVE-2014-9221, CVE-2015-3991: a payload is missing or there twice.
#[test]
fn a_first_message_lacks_nothing_and_repeats_nothing() {
    let mut network = waiting();
    let mut mallory = Mallory::new();
    let payloads = mallory.init_payloads();
    for at in 0..payloads.len() {
        let mut missing = payloads.clone();
        missing.remove(at);
        assert!(mallory.init(&mut network, &missing).is_empty());
        let mut twice = payloads.clone();
        twice.push(payloads[at].clone());
        assert!(mallory.init(&mut network, &twice).is_empty());
    }
    assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
}

#[test]
fn ike_auth_lacks_nothing_and_repeats_nothing() {
    for at in 0..5 {
        for repeat in [false, true] {
            let mut network = waiting();
            let mut mallory = Mallory::half_open(&mut network);
            let mut payloads = mallory.auth_payloads();
            if repeat {
                payloads.push(payloads[at].clone());
            } else {
                payloads.remove(at);
            }
            let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
            let expected =
                if repeat || at > 1 { notify::INVALID_SYNTAX } else { notify::AUTHENTICATION_FAILED };
            assert_eq!(reply.error(), Some(expected), "payload {at}, {repeat}");
            assert!(reply.payloads().auth.is_none() && reply.payloads().id_r.is_none(), "it tells nothing");
            network.run(REFUSED_TIME);
            assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
        }
    }
}

/// CVE-2021-45079 is of this kind: a side claims to have authenticated in another way.
#[test]
fn no_other_method_stands_in_for_the_secret() {
    let lengths = [0, 1, 31, 32, 33];
    for method in [0, method::RSA, method::SHARED_KEY, method::NULL, method::SIGNATURE, 255] {
        for length in lengths {
            let mut network = waiting();
            let mut mallory = Mallory::half_open(&mut network);
            let mut payloads = mallory.auth_payloads();
            let data = vec![0; length];
            payloads[1] = Payload::Auth(Authentication { method, data: &data });
            let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
            assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
            network.run(REFUSED_TIME);
            assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
        }
    }
    // An EAP message in place of a proof.
    let mut network = waiting();
    let mut mallory = Mallory::half_open(&mut network);
    let mut payloads = mallory.auth_payloads();
    payloads[1] = Payload::Eap(&[3, 0, 0, 4]);
    let reply = mallory.ask(&mut network, Exchange::IkeAuth, &payloads).expect("it is answered");
    assert_eq!(reply.error(), Some(notify::AUTHENTICATION_FAILED));
}

/// CVE-2015-3240, CVE-2023-41913: public values of no use, and of wrong lengths.
#[test]
fn public_values_are_checked() {
    let zeros = [0; 32];
    let mut low_order = [0; 32];
    low_order[0] = 1;
    let long = [1; 33];
    for public in [&zeros[..], &low_order, &long, &zeros[..31], &[]] {
        let mut network = waiting();
        let mut mallory = Mallory::new();
        let mut payloads = mallory.init_payloads();
        payloads[1] = Payload::Ke(KeyExchange { group: 31, public });
        let answers = mallory.init(&mut network, &payloads);
        let Ok(Message { body: Body::Clear(answer), .. }) = Message::parse(&answers[0]) else {
            panic!("clear")
        };
        assert_eq!(answer.error(), Some(notify::INVALID_SYNTAX));
        assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
    }
}

/// Section 2.5.
#[test]
fn a_later_version_is_told_which_one_we_speak() {
    for (version, expected) in [(0x30, Some(notify::INVALID_MAJOR_VERSION)), (0x10, None)] {
        let mut network = waiting();
        let mallory = Mallory::new();
        let mut first = emit_clear(&mallory.header(Exchange::IkeSaInit, 0), &mallory.init_payloads());
        first[17] = version;
        let answers = mallory.send(&mut network, first);
        let told = answers.first().map(|answer| match Message::parse(answer).expect("well formed").body {
            Body::Clear(payloads) => payloads.error(),
            _ => None,
        });
        assert_eq!(told, expected.map(Some));
        assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
    }
}

#[test]
fn what_is_no_choice_of_ours_gets_no_sa() {
    let mut network = waiting();
    let mut mallory = Mallory::new();
    let honest = mallory.init_payloads();
    let Payload::Sa(proposals) = &honest[0] else { panic!("it is first") };
    for kind in [transform::ENCRYPTION, transform::PRF, transform::GROUP] {
        let mut proposals = proposals.clone();
        proposals[0].transforms.retain(|one| one.kind != kind);
        let mut payloads = honest.clone();
        payloads[0] = Payload::Sa(proposals);
        let answers = mallory.init(&mut network, &payloads);
        let Ok(Message { body: Body::Clear(answer), .. }) = Message::parse(&answers[0]) else {
            panic!("clear")
        };
        assert_eq!(answer.error(), Some(notify::NO_PROPOSAL_CHOSEN), "CVE-2016-5391 for type {kind}");
    }
    assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
}

#[test]
fn an_established_session_takes_two_exchanges() {
    for exchange in EXCHANGES {
        let mut network = waiting();
        let mut mallory = Mallory::established(&mut network);
        let reply = mallory.ask(&mut network, exchange, &[]).expect("it is answered");
        match exchange {
            Exchange::Informational => assert_eq!(reply.error(), None),
            _ => assert_eq!(reply.error(), Some(notify::INVALID_SYNTAX), "{exchange:?}"),
        }
        // One that lacks everything is none.
        let survives = exchange == Exchange::Informational;
        assert_eq!(is_established(&network), survives);
        assert_eq!(network.hosts[B].installed.len(), usize::from(survives));
    }
}

#[test]
fn an_unknown_critical_payload_fails_the_request_and_not_the_sa() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let reply =
        mallory.ask_raw(&mut network, Exchange::Informational, 200, &[0, 0x80, 0, 4]).expect("answered");
    let payloads = reply.payloads();
    let notify = payloads.notify(notify::UNSUPPORTED_CRITICAL_PAYLOAD).expect("it says so");
    assert_eq!(notify.data, [200]);
    let reply = mallory.ask_raw(&mut network, Exchange::Informational, 200, &[0, 0, 0, 4]).expect("answered");
    assert_eq!(reply.error(), None);
    assert!(is_established(&network));
}

#[test]
fn what_cannot_be_read_ends_the_session() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let reply = mallory.ask_raw(&mut network, Exchange::Informational, payload::NOTIFY, &[0, 0, 0, 3]);
    assert_eq!(reply.expect("it is answered").error(), Some(notify::INVALID_SYNTAX));
    assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
    let closed = |event: &Event| matches!(event, Event::Closed { reason: CloseReason::Misbehaved, .. });
    assert_eq!(network.hosts[B].count(closed), 1);
    assert!(network.hosts[B].installed.is_empty());
}

#[test]
fn a_child_lacks_nothing() {
    for at in 0..4 {
        let mut network = waiting();
        let mut mallory = Mallory::established(&mut network);
        let mut payloads = create_payloads();
        payloads.remove(at);
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &payloads).expect("it is answered");
        assert_eq!(reply.error(), Some(notify::INVALID_SYNTAX), "payload {at}");
        assert_eq!(network.hosts[B].endpoint.load(), NOTHING, "section 2.21.3: that is fatal");
        assert!(network.hosts[B].installed.is_empty());
    }
}

/// Section 2.21.3: a peer that cannot parse a message has deleted its IKE SA.
#[test]
fn invalid_syntax_ends_the_session_of_who_is_told_so() {
    let refusal = [Payload::Notify(Notify::new(notify::INVALID_SYNTAX, &[]))];
    for rekeyed in [None, Some(false), Some(true)] {
        let mut network = waiting();
        let mut mallory = Mallory::established(&mut network);
        let spi = network.hosts[B].spis()[0];
        let id = network.hosts[B].installed[&spi].install.connection;
        network.command(B, |endpoint, now, out| match rekeyed {
            None => {}
            Some(false) => endpoint.rekey_child(now, spi, out),
            Some(true) => endpoint.rekey(now, id, out),
        });
        if rekeyed.is_some() {
            mallory.respond(&mut network, Exchange::CreateChildSa, 0, &refusal);
        } else {
            mallory.ask(&mut network, Exchange::Informational, &refusal).expect("it is answered");
        }
        assert_eq!(network.hosts[B].endpoint.load(), NOTHING);
        let closed = |event: &Event| matches!(event, Event::Closed { reason: CloseReason::ByPeer, .. });
        assert_eq!(network.hosts[B].count(closed), 1);
    }
}

#[test]
fn children_of_other_protocols_and_packets_are_refused() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let good = EspOffer::propose(&[esp_offer()], SPI)[0].clone();
    for proposal in [
        Proposal { protocol: protocol::AH, ..good.clone() },
        Proposal { spi: ProposalSpi::Child(0), ..good.clone() },
        Proposal { protocol: 99, spi: ProposalSpi::None, ..good },
    ] {
        let mut payloads = create_payloads();
        payloads[0] = Payload::Sa(vec![proposal]);
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &payloads).expect("it is answered");
        assert_eq!(reply.error(), Some(notify::NO_PROPOSAL_CHOSEN));
    }
    for selectors in [vec![net("192.168.0.0", "192.168.255.255")], vec![net("::", "::1")]] {
        let mut payloads = create_payloads();
        payloads[2] = Payload::TsR(selectors);
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &payloads).expect("it is answered");
        assert_eq!(reply.error(), Some(notify::TS_UNACCEPTABLE));
    }
    assert_eq!(network.hosts[B].installed.len(), 1);
    assert_eq!(network.hosts[B].endpoint.load().child_spis, 1);
}

/// CVE-2023-38710: rekeying of an SA that is not there, or of a protocol that is none.
#[test]
fn only_what_is_there_is_rekeyed() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    for spi in [Some((protocol::ESP, 1)), Some((protocol::AH, SPI)), Some((protocol::ESP, 0)), None] {
        let mut payloads = create_payloads();
        payloads.push(Payload::Notify(Notify { kind: notify::REKEY_SA, spi, data: &[] }));
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &payloads).expect("it is answered");
        assert_eq!(reply.error(), Some(notify::CHILD_SA_NOT_FOUND), "{spi:?}");
    }
    assert_eq!(network.hosts[B].installed.len(), 1);
}

/// CVE-2026-78133 is of this kind: the same SA is replaced again and again, and deleted meanwhile.
#[test]
fn what_is_replaced_is_not_replaced_again() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let mut rekey = create_payloads();
    rekey[0] = Payload::Sa(EspOffer::propose(&[esp_offer()], SPI + 1));
    rekey.push(Payload::Notify(Notify {
        kind: notify::REKEY_SA,
        spi: Some((protocol::ESP, SPI)),
        data: &[],
    }));
    let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &rekey).expect("it is answered");
    assert_eq!(reply.error(), None);
    for _ in 0..3 {
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &rekey).expect("it is answered");
        assert_eq!(reply.error(), Some(notify::TEMPORARY_FAILURE));
    }
    let delete = [
        Payload::Delete(Delete::Esp(vec![SPI, SPI, SPI + 1, SPI + 1, 0])),
        Payload::Delete(Delete::Ah(vec![SPI])),
    ];
    let reply = mallory.ask(&mut network, Exchange::Informational, &delete).expect("it is answered");
    let [Delete::Esp(deleted)] = &reply.payloads().deletes[..] else { panic!("what was deleted is told") };
    assert_eq!(deleted.len(), 2);
    assert!(network.hosts[B].installed.is_empty());
    let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &rekey).expect("it is answered");
    assert_eq!(reply.error(), Some(notify::CHILD_SA_NOT_FOUND));
}

/// Section 2.25: such a failure ends soon, or both sides have different ideas of what there is.
#[test]
fn temporary_failures_do_not_last_for_ever() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let spi = network.hosts[B].spis()[0];
    network.command(B, |endpoint, now, out| endpoint.rekey_child(now, spi, out));
    let refusal = [Payload::Notify(Notify::new(notify::TEMPORARY_FAILURE, &[]))];
    let mut number = 0;
    let asked = |network: &Network, number| {
        let (header, ..) = Header::parse(&network.log.last().expect("it asks").1.bytes).expect("ours");
        (header.exchange, header.message_id, header.is_response) == (Exchange::CreateChildSa, number, false)
    };
    let begun = network.now;
    while is_established(&network) && network.now - begun < seconds(300) {
        network.run(seconds(1));
        if asked(&network, number) {
            mallory.respond(&mut network, Exchange::CreateChildSa, number, &refusal);
            number += 1;
        }
    }
    assert!((seconds(240)..seconds(250)).contains(&(network.now - begun)), "{number} refusals");
}

#[test]
fn sessions_of_one_peer_are_bounded() {
    let mut network = waiting();
    for number in 0..10 {
        let mut mallory = Mallory::half_open(&mut network);
        assert_eq!(mallory.authenticate(&mut network).error(), None);
        assert_eq!(established(&network.hosts[B]), 4.min(number + 1));
    }
    network.run(seconds(60));
    assert_eq!(network.hosts[B].endpoint.load().ike_spis, 4);
    assert_eq!(network.hosts[B].installed.len(), 4);
}

/// Two hosts with so many networks that a peer may ask for a Child SA of each two of them at once.
fn of_many_networks() -> Network {
    let (network, _) = acquainted(45, |_, it| {
        let nets = |second: u8| {
            (0..15u8).map(move |at| net(&format!("10.{second}.{at}.0"), &format!("10.{second}.{at}.255")))
        };
        it.children[0].local.extend(nets(101));
        it.children[0].remote.extend(nets(102));
    });
    network
}

#[test]
fn children_that_are_replaced_and_not_deleted_are_bounded() {
    let mut network = of_many_networks();
    let mut mallory = Mallory::established(&mut network);
    for number in 0..1000 {
        let mut rekey = create_payloads();
        rekey[0] = Payload::Sa(EspOffer::propose(&[esp_offer()], SPI + number + 1));
        let spi = Some((protocol::ESP, SPI + number));
        rekey.push(Payload::Notify(Notify { kind: notify::REKEY_SA, spi, data: &[] }));
        mallory.ask(&mut network, Exchange::CreateChildSa, &rekey).expect("it is answered");
    }
    assert_eq!(network.hosts[B].installed.len(), 320);
}

#[test]
fn children_and_ike_sas_of_one_peer_are_bounded() {
    let mut network = of_many_networks();
    let mut mallory = Mallory::established(&mut network);
    for number in 1..400 {
        let mut payloads = create_payloads();
        payloads[0] = Payload::Sa(EspOffer::propose(&[esp_offer()], SPI + number));
        mallory.ask(&mut network, Exchange::CreateChildSa, &payloads).expect("it is answered");
    }
    assert_eq!(network.hosts[B].installed.len(), 256);
    // An IKE SA that was replaced replaces no more.
    let share = share();
    let rekey = |number: u64| {
        vec![
            Payload::Sa(IkeOffer::propose(&[ike_offer()], ProposalSpi::Ike(number))),
            Payload::Nonce(&[7; 32]),
            Payload::Ke(KeyExchange { group: 31, public: share.public() }),
        ]
    };
    let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &rekey(1)).expect("it is answered");
    assert_eq!(reply.error(), None);
    for number in 2..10 {
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &rekey(number)).expect("answered");
        assert_eq!(reply.error(), Some(notify::TEMPORARY_FAILURE));
    }
    assert_eq!(network.hosts[B].endpoint.load().ike_spis, 2);
}

#[test]
fn a_rekeyed_ike_sa_has_an_spi_a_group_and_a_value() {
    let share = share();
    let sa = |spi| Payload::Sa(IkeOffer::propose(&[ike_offer()], spi));
    let ke = |group, public| Payload::Ke(KeyExchange { group, public });
    let nonce = Payload::Nonce(&[7; 32]);
    let spi = ProposalSpi::Ike(5);
    for (payloads, expected) in [
        (vec![sa(ProposalSpi::None), nonce.clone(), ke(31, share.public())], notify::NO_PROPOSAL_CHOSEN),
        (vec![sa(ProposalSpi::Ike(0)), nonce.clone(), ke(31, share.public())], notify::NO_PROPOSAL_CHOSEN),
        (vec![sa(spi), nonce.clone()], notify::NO_PROPOSAL_CHOSEN),
        (vec![sa(spi), nonce.clone(), ke(19, share.public())], notify::INVALID_KE_PAYLOAD),
        (vec![sa(spi), nonce.clone(), ke(31, &[0; 32])], notify::INVALID_SYNTAX),
        (vec![sa(spi), ke(31, share.public())], notify::INVALID_SYNTAX),
    ] {
        let mut network = waiting();
        let mut mallory = Mallory::established(&mut network);
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &payloads).expect("it is answered");
        assert_eq!(reply.error(), Some(expected));
        let survives = expected != notify::INVALID_SYNTAX;
        assert_eq!(network.hosts[B].endpoint.load().ike_spis, usize::from(survives));
    }
}

/// CVE-2026-12413: the state of fragments is kept for one message, and only for a peer that has the keys.
#[test]
fn fragments_are_bounded_and_authentic() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let (first, chain) = emit(&create_payloads());
    let header = mallory.header(Exchange::CreateChildSa, mallory.next);
    let fragment = |mallory: &mut Mallory, number, total, chain: &[u8]| {
        mallory.seal(&header, Envelope::Fragment(number, total), first, chain)
    };
    for (number, total) in [(1, 65), (1, 65_535), (65_535, 65_535), (1, 2), (1, 1000), (3, 4)] {
        let datagram = fragment(&mut mallory, number, total, &[0; 100]);
        assert!(mallory.send(&mut network, datagram).is_empty(), "{number} of {total}");
    }
    // Forged pieces of the message to come change nothing.
    let half = chain.len() / 2;
    let mut pieces =
        [fragment(&mut mallory, 1, 5, &chain[..half]), fragment(&mut mallory, 5, 5, &chain[half..])];
    for piece in &mut pieces {
        let mut forged = piece.clone();
        let last = forged.len() - 1;
        forged[last] ^= 1;
        assert!(mallory.send(&mut network, forged).is_empty());
    }
    let middle: Vec<Vec<u8>> = (2..5).map(|number| fragment(&mut mallory, number, 5, &[])).collect();
    let mut answers = Vec::new();
    for piece in pieces.into_iter().chain(middle) {
        answers.extend(mallory.send(&mut network, piece));
    }
    assert_eq!(answers.len(), 1);
    assert_eq!(mallory.open(&answers[0]).error(), None);
    assert_eq!(network.hosts[B].installed.len(), 2);
}

#[test]
fn a_flipped_bit_of_any_message_does_nothing() {
    let (network, _) = connected(51, |_, _| {});
    let messages: Vec<_> = network.log.iter().map(|(_, datagram)| datagram.clone()).collect();
    for (number, message) in messages.iter().enumerate().skip(2) {
        for bit in (0..message.bytes.len() * 8).step_by(61) {
            let (mut network, ids) = acquainted(51, |_, _| {});
            begin(&mut network, A, ids[A]);
            // Up to the message in question all goes well; then it comes changed, and then as it was.
            while network.log.len() <= number {
                network.run(std::time::Duration::from_millis(1));
            }
            let mut changed = network.log[number].1.clone();
            changed.bytes[bit / 8] ^= 1 << (bit % 8);
            let host = if changed.to.ip() == network.hosts[A].address { A } else { B };
            let before = network.hosts[host].installed.len();
            network.arrive(changed);
            assert_eq!(network.hosts[host].installed.len(), before);
            network.run(seconds(5));
            assert_eq!(established(&network.hosts[A]), 1);
        }
    }
}

#[test]
fn an_unasked_answer_is_ignored() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let (first, chain) = emit(&create_payloads());
    for id in 0..3 {
        let header = Header { is_response: true, ..mallory.header(Exchange::CreateChildSa, id) };
        let datagram = mallory.seal(&header, Envelope::Whole, first, &chain);
        assert!(mallory.send(&mut network, datagram).is_empty());
    }
    assert_eq!(network.hosts[B].installed.len(), 1);
    let states: Vec<State> =
        network.hosts[B].endpoint.sessions().iter().map(|session| session.state).collect();
    assert_eq!(states, [State::Established]);
}

/// Datagrams of tcpdump's tests, of IKEv1 and IKEv2, whole and damaged, and what our fuzzers found.
#[test]
fn what_others_have_collected_leaves_nothing() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/ike");
    for entry in std::fs::read_dir(corpus).expect("it is there") {
        let path = entry.expect("a readable folder").path();
        let mut network = waiting();
        let bytes = std::fs::read(&path).expect("a readable file");
        let answers = Mallory::new().send(&mut network, bytes.clone());
        assert!(answers.len() <= 1 && answers.iter().all(|answer| answer.len() <= bytes.len()), "{path:?}");
        network.run(seconds(60));
        assert_eq!(network.hosts[B].endpoint.load(), NOTHING, "{path:?}");
    }
}
