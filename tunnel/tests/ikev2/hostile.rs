//! Peers that do not keep to the protocol: the classes of faults for which other implementations have CVEs.

use crate::mallory::{Mallory, create_payloads};
use crate::network::{A, B, Network};
use crate::support::{acquainted, begin, connected, established, seconds};
use tunnel::ikev2::limits::REFUSED_TIME;
use tunnel::ikev2::message::numbers::{method, notify, transform};
use tunnel::ikev2::message::{
    Authentication, Body, Delete, Envelope, Exchange, Header, KeyExchange, Message, Payload, emit, emit_clear,
};
use tunnel::ikev2::{Load, State};

pub(crate) const EXCHANGES: [Exchange; 7] = [
    Exchange::IkeSaInit,
    Exchange::IkeAuth,
    Exchange::CreateChildSa,
    Exchange::Informational,
    Exchange::Other(0),
    Exchange::Other(43),
    Exchange::Other(255),
];

pub(crate) const NOTHING: Load =
    Load { ike_spis: 0, child_spis: 0, claims: 0, instances: 0, half_open: 0, fragments: 0 };

pub(crate) fn waiting() -> Network {
    acquainted(50, |_, _| {}).0
}

pub(crate) fn is_established(network: &Network) -> bool {
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
