//! Authenticated peers that violate the protocol: what they gain is bounded, and others are not affected.

use crate::hostile::{EXCHANGES, NOTHING, is_established, waiting};
use crate::mallory::{Mallory, SPI, create_payloads, share};
use crate::network::{B, Network};
use crate::support::{acquainted, esp_offer, established, ike_offer, net, seconds};
use tunnel::ikev2::message::numbers::{notify, payload, protocol};
use tunnel::ikev2::message::{Delete, Exchange, Header, KeyExchange, Notify, Payload, Proposal, ProposalSpi};
use tunnel::ikev2::proposal::{EspOffer, IkeOffer};
use tunnel::ikev2::{CloseReason, Event};

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

/// What was put off may have been done by the peer meanwhile: then no request follows whose answer would say so.
#[test]
fn temporary_failures_that_are_far_apart_end_nothing() {
    let mut network = waiting();
    let mut mallory = Mallory::established(&mut network);
    let refusal = [Payload::Notify(Notify::new(notify::TEMPORARY_FAILURE, &[]))];
    for number in 0..4 {
        let old = network.hosts[B].spis()[0];
        network.command(B, |endpoint, now, out| endpoint.rekey_child(now, old, out));
        mallory.respond(&mut network, Exchange::CreateChildSa, number, &refusal);
        // The peer rekeys the child itself.
        let mut rekey = another_child(SPI + number + 1);
        let spi = Some((protocol::ESP, SPI + number));
        rekey.push(Payload::Notify(Notify { kind: notify::REKEY_SA, spi, data: &[] }));
        mallory.ask(&mut network, Exchange::CreateChildSa, &rekey).expect("it is answered");
        let delete = Payload::Delete(Delete::Esp(vec![SPI + number]));
        mallory.ask(&mut network, Exchange::Informational, &[delete]).expect("it is answered");
        network.run(seconds(100));
        assert!(is_established(&network), "failure {number}");
    }
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

/// A request for a Child SA that mallory receives with this SPI.
fn another_child(spi: u32) -> Vec<Payload<'static>> {
    let mut payloads = create_payloads();
    payloads[0] = Payload::Sa(EspOffer::propose(&[esp_offer()], spi));
    payloads
}

#[test]
fn children_that_are_replaced_and_not_deleted_are_bounded() {
    let mut network = of_many_networks();
    let mut mallory = Mallory::established(&mut network);
    for number in 0..1000 {
        let mut rekey = another_child(SPI + number + 1);
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
        let payloads = another_child(SPI + number);
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
