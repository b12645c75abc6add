//! Peers that know no more than the first exchanges, and refuse all others (RFC 7296 sections 1.3 and 4).

use crate::mallory::{Mallory, SPI, share};
use crate::network::{A, B, Datagram, Network};
use crate::support::{HOUR, acquainted, begin, child, esp_offer, established, ike_offer, seconds};
use crypto::SecretBytes;
use crypto::prf::Prf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tunnel::ikev2::keys::{IkeKeys, Nonces, Role, Signed, Spis, shared_key_mac};
use tunnel::ikev2::message::numbers::{method, notify};
use tunnel::ikev2::message::{
    Authentication, Body, Delete, Envelope, Exchange, Header, Identification, KeyExchange, Message, Notify,
    Payload, Payloads, ProposalSpi, emit, emit_clear,
};
use tunnel::ikev2::proposal::{EspOffer, IkeOffer};
use tunnel::ikev2::{Cause, CloseReason, Connection, Event, Start, WhenLost};

const NONCE: [u8; 32] = [5; 32];
const IDENTITY: &[u8] = b"\x02\0\0\0host2.example";

/// A responder in the place of host B that has one Child SA in a session, and replaces nothing.
#[derive(Default)]
struct Minimal {
    sessions: Vec<Session>,
    /// What it has to say.
    answers: Vec<Datagram>,
    /// Wishes that it has refused.
    refused: usize,
    /// Sessions that were ended by the other side.
    ended: usize,
}

struct Session {
    spis: Spis,
    keys: IkeKeys,
    /// Its answer to the first message, and the nonce of that.
    first: Vec<u8>,
    nonce: Vec<u8>,
}

impl Minimal {
    fn receive(&mut self, datagram: &Datagram) {
        let Ok(message) = Message::parse(&datagram.bytes) else { return };
        if message.header.is_response {
            return;
        }
        let bytes = match &message.body {
            Body::Clear(payloads) => self.begin(&message.header, payloads),
            Body::Encrypted(sealed) => {
                let spi = message.header.responder_spi;
                let Some(session) = self.sessions.iter().find(|it| it.spis.responder == spi) else { return };
                let chain = session.keys.opener.open(sealed).expect("authentic");
                self.answer(&message.header, sealed.first, &chain)
            }
            // It does not say that it understands any.
            Body::Fragment { .. } => return,
        };
        self.answers.push(Datagram { from: datagram.to, to: datagram.from, bytes });
    }

    /// Deletes the Child SA of its last session.
    fn delete(&mut self) {
        let session = self.sessions.last_mut().expect("there is one");
        let (first, chain) = emit(&[Payload::Delete(Delete::Esp(vec![SPI]))]);
        let header = Header {
            initiator_spi: session.spis.initiator,
            responder_spi: session.spis.responder,
            exchange: Exchange::Informational,
            from_initiator: false,
            is_response: false,
            message_id: 0,
        };
        let random = &mut crypto::random::System::default();
        let bytes = session.keys.sealer.seal(&header, first, Envelope::Whole, &chain, random);
        let at = |address: &str| address.parse().expect("literal");
        self.answers.push(Datagram { from: at("192.0.2.2:500"), to: at("192.0.2.1:500"), bytes });
    }

    fn begin(&mut self, header: &Header, payloads: &Payloads<'_>) -> Vec<u8> {
        let selected = IkeOffer::select(&[ike_offer()], payloads.sa.as_ref().expect("honest")).expect("ours");
        let (share, nonce) = (share(), payloads.nonce.expect("honest"));
        let shared = share.agree(payloads.ke.expect("honest").public).expect("valid");
        let responder = 0x4d69_6e69_6d61_6c00 + self.sessions.len() as u64;
        let spis = Spis { initiator: header.initiator_spi, responder };
        let nonces = Nonces { initiator: nonce, responder: &NONCE };
        let keys = IkeKeys::first(&selected.suite, Role::Responder, spis, nonces, &shared);
        let answer = [
            Payload::Sa(vec![selected.answer(ProposalSpi::None)]),
            Payload::Ke(KeyExchange { group: 31, public: share.public() }),
            Payload::Nonce(&NONCE),
            // It says more than it can.
            Payload::Notify(Notify::new(notify::MULTIPLE_AUTH_SUPPORTED, &[])),
        ];
        let first = emit_clear(&Header { responder_spi: responder, ..header.response() }, &answer);
        self.sessions.push(Session { spis, keys, first: first.clone(), nonce: nonce.to_vec() });
        first
    }

    fn answer(&mut self, header: &Header, first: u8, chain: &[u8]) -> Vec<u8> {
        let payloads = Payloads::parse(first, chain).expect("well formed");
        let number = self.sessions.iter().position(|it| it.spis.responder == header.responder_spi);
        let session = &mut self.sessions[number.expect("it was found")];
        let refusal = || vec![Payload::Notify(Notify::new(notify::NO_ADDITIONAL_SAS, &[]))];
        let proof;
        let list = match header.exchange {
            Exchange::IkeAuth => {
                let signed = Signed { message: &session.first, nonce: &session.nonce, identity: IDENTITY };
                let octets = signed.octets(Prf::HmacSha256, &session.keys.proof.local);
                let secret = SecretBytes::new(b"a secret of both".to_vec());
                proof = shared_key_mac(Prf::HmacSha256, &secret, &octets).expose().to_vec();
                let wanted = payloads.sa.as_deref().expect("honest");
                let selected = EspOffer::select_first(&[esp_offer()], wanted).expect("ours");
                vec![
                    Payload::IdR(Identification::parse(IDENTITY).expect("ours")),
                    Payload::Auth(Authentication { method: method::SHARED_KEY, data: &proof }),
                    Payload::Sa(vec![selected.answer(ProposalSpi::Child(SPI))]),
                    Payload::TsI(payloads.ts_i.clone().expect("honest")),
                    Payload::TsR(payloads.ts_r.clone().expect("honest")),
                ]
            }
            Exchange::CreateChildSa => {
                self.refused += 1;
                refusal()
            }
            _ => {
                self.ended += usize::from(payloads.deletes.contains(&Delete::Ike));
                vec![]
            }
        };
        let (first, chain) = emit(&list);
        let header = Header { from_initiator: false, ..header.response() };
        let random = &mut crypto::random::System::default();
        session.keys.sealer.seal(&header, first, Envelope::Whole, &chain, random)
    }
}

/// A calls a minimal peer in the place of B.
fn with_minimal(change: impl Fn(&mut Connection)) -> (Network, Arc<Mutex<Minimal>>) {
    let (mut network, ids) = acquainted(950, |host, connection| {
        if host == A {
            change(connection);
        }
    });
    network.hosts[B].is_dead = true;
    let minimal = Arc::new(Mutex::new(Minimal::default()));
    let receiver = Arc::clone(&minimal);
    network.on_the_way = Some(Box::new(move |datagram| {
        receiver.lock().expect("one thread").receive(datagram);
        false
    }));
    begin(&mut network, A, ids[A]);
    (network, minimal)
}

/// Lets time pass, and has the peer answer; `look` is asked each second.
fn run(network: &mut Network, minimal: &Mutex<Minimal>, time: Duration, look: impl Fn(&Network)) {
    let end = network.now + time;
    while network.now < end {
        for _ in 0..10 {
            network.run(Duration::from_millis(100));
            let answers = std::mem::take(&mut minimal.lock().expect("one thread").answers);
            for answer in answers {
                network.arrive(answer);
            }
        }
        look(network);
    }
}

fn reasons(network: &Network, host: usize) -> Vec<CloseReason> {
    let reason = |event: &Event| match event {
        Event::Closed { reason, .. } => Some(*reason),
        _ => None,
    };
    network.hosts[host].events.iter().filter_map(reason).collect()
}

fn failures(network: &Network, host: usize) -> usize {
    network.hosts[host].count(|event| matches!(event, Event::Failed { .. }))
}

#[test]
fn an_sa_that_cannot_be_rekeyed_is_replaced_by_a_new_session() {
    // The Child SA is old first, or the IKE SA is.
    for (ike, esp) in [(100 * HOUR, HOUR), (HOUR, 100 * HOUR)] {
        let (mut network, minimal) = with_minimal(|connection| {
            connection.lifetime = ike;
            connection.children[0].lifetime = esp;
        });
        run(&mut network, &minimal, seconds(5), |_| {});
        assert_eq!(network.hosts[A].installed.len(), 1);
        run(&mut network, &minimal, 4 * HOUR, |network| {
            assert!(network.hosts[A].sending(0).is_some(), "there is always one");
        });
        let minimal = minimal.lock().expect("one thread");
        let sessions = minimal.sessions.len();
        assert!((5..=6).contains(&sessions), "{sessions} in four hours");
        assert_eq!((minimal.refused, minimal.ended), (sessions - 1, sessions - 1), "each is asked once");
        assert!(reasons(&network, A).iter().all(|reason| *reason == CloseReason::Replaced));
        assert_eq!((established(&network.hosts[A]), failures(&network, A)), (1, 0));
    }
}

/// RFC 4739: both sides say after each round whether another one follows.
#[test]
fn a_responder_that_leaves_out_the_second_round_gets_no_session() {
    let (mut network, minimal) = with_minimal(|connection| {
        connection.further = vec![crate::rounds::second(A)];
    });
    run(&mut network, &minimal, seconds(30), |network| {
        assert!(network.hosts[A].installed.is_empty() && established(&network.hosts[A]) == 0);
    });
    assert!(minimal.lock().expect("one thread").ended > 0, "it is told, as it has made a session");
    let told = |event: &Event| matches!(event, Event::Failed { cause: Cause::MissingRound, .. });
    assert_eq!(network.hosts[A].count(told), 1, "{:?}", network.hosts[A].events);
    assert_eq!(network.hosts[A].endpoint.load(), tunnel::ikev2::Load::default());
}

#[test]
fn a_second_child_that_is_refused_is_not_asked_for_again() {
    let (mut network, minimal) = with_minimal(|connection| connection.children.push(child("second", 11, 12)));
    run(&mut network, &minimal, seconds(2000), |_| {});
    assert_eq!(network.hosts[A].installed.len(), 1);
    assert_eq!(minimal.lock().expect("one thread").refused, 1);
    assert_eq!((reasons(&network, A), failures(&network, A)), (vec![], 1));
}

#[test]
fn a_child_that_is_gone_comes_back_in_another_session() {
    let (mut network, minimal) = with_minimal(|connection| connection.when_lost = WhenLost::Restart);
    run(&mut network, &minimal, seconds(60), |_| {});
    minimal.lock().expect("one thread").delete();
    run(&mut network, &minimal, seconds(60), |_| {});
    assert_eq!(network.hosts[A].installed.len(), 1);
    assert_eq!(reasons(&network, A), [CloseReason::Replaced]);
    let minimal = minimal.lock().expect("one thread");
    assert_eq!((minimal.sessions.len(), minimal.refused, minimal.ended), (2, 1, 1));
}

#[test]
fn the_new_session_is_tried_for_as_long_as_there_is_time() {
    let (mut network, minimal) = with_minimal(|connection| connection.children[0].lifetime = HOUR);
    run(&mut network, &minimal, seconds(5), |_| {});
    // First messages are not answered when the time has come.
    let receiver = Arc::clone(&minimal);
    network.on_the_way = Some(Box::new(move |datagram| {
        if crate::network::exchange(&datagram.bytes).0 != Exchange::IkeSaInit {
            receiver.lock().expect("one thread").receive(datagram);
        }
        false
    }));
    run(&mut network, &minimal, seconds(3300), |network| assert_eq!(network.hosts[A].installed.len(), 1));
    let receiver = Arc::clone(&minimal);
    network.on_the_way = Some(Box::new(move |datagram| {
        receiver.lock().expect("one thread").receive(datagram);
        false
    }));
    run(&mut network, &minimal, seconds(600), |network| assert!(network.hosts[A].sending(0).is_some()));
    assert_eq!(reasons(&network, A), [CloseReason::Replaced]);
    assert_eq!(minimal.lock().expect("one thread").refused, 1, "it has said so already");
}

/// Answers whatever B asks of Mallory; returns how often B asked for a Child SA or an IKE SA.
fn refuse_all(network: &mut Network, mallory: &mut Mallory, time: Duration) -> usize {
    let (end, mut number, mut asked) = (network.now + time, 0, 0);
    while network.now < end && established(&network.hosts[B]) > 0 {
        network.run(seconds(1));
        let is_next = |bytes: &[u8]| {
            let (header, ..) = Header::parse(bytes).expect("ours");
            let is_it = header.responder_spi == mallory.spis.responder
                && (header.message_id, header.is_response) == (number, false);
            is_it.then_some(header.exchange)
        };
        let Some(exchange) = network.log.iter().rev().find_map(|(_, datagram)| is_next(&datagram.bytes))
        else {
            continue;
        };
        let refusal = [Payload::Notify(Notify::new(notify::NO_ADDITIONAL_SAS, &[]))];
        let refusal = if exchange == Exchange::CreateChildSa { &refusal[..] } else { &[] };
        asked += refusal.len();
        mallory.respond(network, exchange, number, refusal);
        number += 1;
    }
    asked
}

#[test]
fn who_cannot_begin_a_new_session_asks_once_and_ends_the_old_one_when_it_is_too_old() {
    let (mut network, _) = acquainted(951, |_, connection| connection.children[0].lifetime = HOUR);
    let mut mallory = Mallory::established(&mut network);
    let begun = network.now;
    assert_eq!(refuse_all(&mut network, &mut mallory, 2 * HOUR), 1);
    assert!((HOUR..HOUR + seconds(10)).contains(&(network.now - begun)));
    network.run(seconds(200));
    assert_eq!(reasons(&network, B), [CloseReason::Expired]);
    assert_eq!(failures(&network, B), 1);
}

#[test]
fn who_was_called_calls_back_if_it_may() {
    let (mut network, _) = acquainted(952, |host, connection| {
        connection.children[0].lifetime = HOUR;
        connection.start = if host == B { Start::OnTraffic } else { Start::Respond };
    });
    // The peer is Mallory, and then host A, which has its address.
    network.hosts[A].is_dead = true;
    let mut mallory = Mallory::established(&mut network);
    network.hosts[A].is_dead = false;
    assert_eq!(refuse_all(&mut network, &mut mallory, seconds(3590)), 1);
    assert_eq!(network.hosts[A].installed.len(), 1, "the new session is with A");
    assert!(network.hosts[B].sending(0).is_some());
}
