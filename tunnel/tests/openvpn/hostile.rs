//! What senders that have not authenticated can cause.

use crate::host::{Core, Seeded};
use crate::network::{CLIENT, Network, SERVER, Setup};
use crate::{assert_carries, connected, seconds};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::SocketAddr;
use tunnel::openvpn::channel::PacketError;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::limits::{MAX_PENDING, MAX_PENDING_SOURCE, RESET_ANSWERS};
use tunnel::openvpn::packet::{Body, Lead, Opcode, SessionId};
use tunnel::openvpn::server::{Rate, ServerWrap};
use tunnel::openvpn::wrap::v2::ServerKey;
use tunnel::openvpn::wrap::{PacketId, Role, StaticKey, WrapKeys};
use tunnel::openvpn::{Action, Outbox, PeerAddress};

fn without_wrap(setup: &Setup) -> Network {
    setup.network((ServerWrap::Shared(WrapKeys::none()), ClientWrap::Shared(WrapKeys::none())), 1)
}

const ID: PacketId = PacketId { number: 1, time: 0 };

fn packet(opcode: Opcode, session: SessionId, body: &Body<'_>) -> Vec<u8> {
    WrapKeys::none().seal(Lead { opcode, key_id: 0 }, session, ID, &body.emit())
}

fn first_packet(session: SessionId) -> Vec<u8> {
    let body = Body { acks: [].into_iter().collect(), receiver: None, message: Some(0), payload: &[] };
    packet(Opcode::ClientResetV2, session, &body)
}

/// The answer to a first packet, acknowledged.
fn third_packet(session: SessionId, answer: &[u8]) -> Vec<u8> {
    let cookie = WrapKeys::none().open(answer).expect("well-formed").session;
    let body = Body { acks: [0].into_iter().collect(), receiver: Some(cookie), message: None, payload: &[] };
    packet(Opcode::Ack, session, &body)
}

fn session_count(network: &Network) -> usize {
    match &network.hosts[SERVER].core {
        Core::Server(server) => server.session_count(),
        Core::Client(_) => unreachable!("a server"),
    }
}

fn arrive(network: &mut Network, from: SocketAddr, bytes: Vec<u8>) -> Option<Vec<u8>> {
    let (now, before) = (network.now(), network.log.len());
    network.hosts[SERVER].handle(now, from, &bytes);
    network.collect();
    network.log.get(before).map(|(_, sent)| sent.bytes.clone())
}

#[test]
fn first_packets_cost_no_state_and_are_answered_in_bounds() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    let mut answers = 0;
    for number in 0..1000u64 {
        let from = ([203, 0, 113, 7], number as u16).into();
        let first = first_packet(SessionId(number.to_be_bytes()));
        let answer = arrive(&mut network, from, first.clone());
        assert!(answer.as_ref().is_none_or(|answer| answer.len() <= first.len() + 12), "no amplification");
        answers += u32::from(answer.is_some());
    }
    assert_eq!((answers, session_count(&network)), (RESET_ANSWERS.0, 0));
    network.run(seconds(10));
    network.connect(CLIENT);
    network.run(seconds(1));
    assert_carries(&mut network, 1);
}

#[test]
fn a_session_needs_the_cookie_of_its_address() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    let (session, from): (_, SocketAddr) = (SessionId([5; 8]), "203.0.113.7:4000".parse().expect("literal"));
    let answer = arrive(&mut network, from, first_packet(session)).expect("answered");
    let third = third_packet(session, &answer);
    for elsewhere in ["203.0.113.7:4001", "203.0.113.8:4000"] {
        arrive(&mut network, elsewhere.parse().expect("literal"), third.clone());
    }
    let other = third_packet(SessionId([6; 8]), &answer);
    arrive(&mut network, from, other);
    assert_eq!(session_count(&network), 0);
    arrive(&mut network, from, third);
    assert_eq!(session_count(&network), 1);
    network.run(seconds(61));
    assert_eq!(session_count(&network), 0, "it ends with the hand window");
}

/// A packet that arrives in UDP or over TCP; the answer, which goes back the same way.
fn arrive_by(network: &mut Network, from: PeerAddress, bytes: &[u8]) -> Option<Vec<u8>> {
    let (now, mut out) = (network.now(), Outbox::new());
    let Core::Server(server) = &mut network.hosts[SERVER].core else { unreachable!("a server") };
    let _ = server.handle_packet(now, from, bytes, &mut out);
    out.into_iter().find_map(|action| match action {
        Action::Transmit { to, packet, .. } => {
            assert_eq!(to, from);
            Some(packet)
        }
        _ => None,
    })
}

#[test]
fn udp_and_tcp_have_sessions_of_their_own_at_one_address() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    let socket = SocketAddr::from(([203, 0, 113, 7], 4000));
    let (udp, tcp) = (PeerAddress::from(socket), PeerAddress::tcp(socket));
    let session = SessionId([5; 8]);
    let answer = arrive_by(&mut network, udp, &first_packet(session)).expect("answered");
    arrive_by(&mut network, tcp, &third_packet(session, &answer));
    assert_eq!(session_count(&network), 0, "the cookie is for UDP");
    arrive_by(&mut network, udp, &third_packet(session, &answer));
    let answer = arrive_by(&mut network, tcp, &first_packet(session)).expect("answered");
    arrive_by(&mut network, tcp, &third_packet(session, &answer));
    assert_eq!(session_count(&network), 2);
    network.connect(CLIENT);
    network.run(seconds(1));
    let (now, mut out) = (network.now(), Outbox::new());
    let number = *network.hosts[SERVER].connected.keys().next().expect("it is connected");
    let Core::Server(server) = &mut network.hosts[SERVER].core else { unreachable!("a server") };
    server.handle_connection_end(now, socket, &mut out);
    let ended = |action: &Action| match action {
        Action::Closed { address, .. } => Some(*address),
        _ => None,
    };
    assert_eq!(out.iter().filter_map(ended).collect::<Vec<_>>(), [tcp]);
    let elsewhere = SocketAddr::from(([203, 0, 113, 8], 4000));
    assert!(
        !server.handle_move(number, PeerAddress::tcp(elsewhere)) && server.handle_move(number, elsewhere)
    );
}

#[test]
fn one_client_address_at_two_ports_of_the_server_is_two_clients() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    let first = PeerAddress::from(SocketAddr::from(([203, 0, 113, 7], 4000)));
    let second = PeerAddress { binding: 1, ..first };
    let session = SessionId([5; 8]);
    let answer = arrive_by(&mut network, first, &first_packet(session)).expect("answered");
    arrive_by(&mut network, second, &third_packet(session, &answer));
    assert_eq!(session_count(&network), 0, "the cookie is for the first port");
    for from in [first, second] {
        let answer = arrive_by(&mut network, from, &first_packet(session)).expect("answered");
        arrive_by(&mut network, from, &third_packet(session, &answer));
    }
    assert_eq!(session_count(&network), 2);
    network.connect(CLIENT);
    network.run(seconds(1));
    let number = *network.hosts[SERVER].connected.keys().next().expect("it is connected");
    let Core::Server(server) = &mut network.hosts[SERVER].core else { unreachable!("a server") };
    let free = SocketAddr::from(([203, 0, 113, 8], 4000));
    assert!(!server.handle_move(number, second), "another client is there");
    assert!(
        server.handle_move(number, PeerAddress { binding: 1, ..free.into() }),
        "a client may move between ports"
    );
}

#[test]
fn the_limits_of_a_source_count_udp_and_tcp_together() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    for number in 0..200u16 {
        network.run(seconds(1) / 10);
        let session = SessionId([number as u8; 8]);
        let socket = SocketAddr::from(([203, 0, 113, 7], 1000 + number));
        let from = PeerAddress { is_tcp: number % 2 == 0, ..socket.into() };
        let answer = arrive_by(&mut network, from, &first_packet(session)).expect("answered");
        arrive_by(&mut network, from, &third_packet(session, &answer));
    }
    assert_eq!(session_count(&network), MAX_PENDING_SOURCE);
}

#[test]
fn a_few_sources_cannot_keep_all_others_out() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    for number in 0..MAX_PENDING_SOURCE as u8 {
        network.run(seconds(1) / 10);
        for source in 0..(MAX_PENDING / MAX_PENDING_SOURCE) as u8 {
            let session = SessionId([number; 8]);
            let from = ([203, 0, 113, 100 + source], 1000 + u16::from(number)).into();
            let answer = arrive(&mut network, from, first_packet(session)).expect("answered");
            arrive(&mut network, from, third_packet(session, &answer));
            network.run(seconds(1) / 250);
        }
    }
    assert_eq!(session_count(&network), MAX_PENDING);
    network.connect(CLIENT);
    network.run(seconds(1));
    assert!(network.is_connected(CLIENT), "one of them has made room");
    assert_eq!(session_count(&network), MAX_PENDING);
    assert_eq!(network.hosts[SERVER].closed.len(), 1);
}

#[test]
fn a_source_has_a_bounded_number_of_sessions() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    for number in 0..200u16 {
        network.run(seconds(1) / 10);
        let session = SessionId([number as u8; 8]);
        let from = ([203, 0, 113, 7], 1000 + number).into();
        let answer = arrive(&mut network, from, first_packet(session)).expect("answered");
        arrive(&mut network, from, third_packet(session, &answer));
    }
    assert_eq!(session_count(&network), MAX_PENDING_SOURCE);
    network.connect(CLIENT);
    network.run(seconds(1));
    assert!(network.is_connected(CLIENT), "a client at another source connects");
}

#[test]
fn random_and_changed_packets_change_nothing() {
    let setup = Setup::new();
    let mut network = connected(&setup, 3);
    let recorded: Vec<_> = network.log.iter().map(|(_, sent)| sent.clone()).collect();
    let mut random = ChaCha8Rng::seed_from_u64(9);
    for datagram in recorded.iter().cycle().take(4000) {
        let mut changed = datagram.clone();
        for _ in 0..random.random_range(1..4) {
            let position = random.random_range(0..changed.bytes.len());
            changed.bytes[position] = random.random();
        }
        let length = random.random_range(0..=changed.bytes.len());
        if random.random_range(0..3) == 0 {
            changed.bytes.truncate(length);
        }
        network.arrive(changed);
    }
    network.run(seconds(1));
    assert_carries(&mut network, 8);
    for datagram in recorded {
        network.arrive(datagram);
    }
    network.run(seconds(1));
    assert_carries(&mut network, 9);
    assert_eq!(network.hosts[SERVER].closed, []);
}

/// Clients of 2.5 with tls-crypt-v2 send their wrapped key once only.
#[test]
fn a_client_that_cannot_return_a_cookie_is_served_if_the_configuration_allows_it() {
    for (allow_without_cookie, sessions) in [(false, 0), (true, 1)] {
        let (setup, random) = (Setup::new(), &mut Seeded::new(5));
        let key = ServerKey::random(random);
        let own = key.wrap(StaticKey::random(random), None).expect("short");
        let body = Body { acks: [].into_iter().collect(), receiver: None, message: Some(0), payload: &[] };
        let lead = Lead { opcode: Opcode::ClientResetV3, key_id: 0 };
        let keys = WrapKeys::tls_crypt(own.key.clone(), Role::Client);
        let first = keys.seal(lead, SessionId([5; 8]), ID, &body.emit());
        let first = [&first[..], &own.wrapped].concat();
        let wraps =
            (ServerWrap::PerClient { key, allow_without_cookie, max_age: None }, ClientWrap::Own(own));
        let mut network = setup.network(wraps, 1);
        let from = "203.0.113.7:4000".parse().expect("literal");
        let answer = arrive(&mut network, from, first.clone());
        assert_eq!((answer.is_some(), session_count(&network)), (allow_without_cookie, sessions));
        let again = arrive(&mut network, from, first);
        assert_eq!((again, session_count(&network)), (None, sessions), "a replay");
        if let Some(answer) = answer {
            let opened = keys.open(&answer).expect("authentic");
            let body = Body::parse(opened.lead.opcode, &opened.body).expect("well-formed");
            assert_eq!((opened.lead.opcode, body.message), (Opcode::ServerReset, Some(0)));
            assert_eq!((&body.acks[..], body.receiver), (&[0][..], Some(SessionId([5; 8]))));
        }
    }
}

#[test]
fn a_source_begins_a_bounded_number_of_handshakes() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    let from = "203.0.113.7:4000".parse().expect("literal");
    let begin = |network: &mut Network, number: u8| {
        let session = SessionId([number; 8]);
        let answer = arrive(network, from, first_packet(session)).expect("answered");
        arrive(network, from, third_packet(session, &answer));
        session
    };
    let no_tls =
        Body { acks: [].into_iter().collect(), receiver: None, message: Some(1), payload: &[0xff; 64] };
    for number in 0..90 {
        let session = begin(&mut network, number);
        arrive(&mut network, from, packet(Opcode::Control, session, &no_tls));
    }
    assert_eq!((session_count(&network), network.hosts[SERVER].closed.len()), (0, MAX_PENDING_SOURCE));
    network.run(seconds(1));
    begin(&mut network, 200);
    assert_eq!(session_count(&network), 1);
}

#[test]
fn a_cookie_begins_one_session() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    let (session, from): (_, SocketAddr) = (SessionId([5; 8]), "203.0.113.7:4000".parse().expect("literal"));
    let answer = arrive(&mut network, from, first_packet(session)).expect("answered");
    let third = third_packet(session, &answer);
    let no_tls =
        Body { acks: [].into_iter().collect(), receiver: None, message: Some(1), payload: &[0xff; 64] };
    let no_tls = packet(Opcode::Control, session, &no_tls);
    for _ in 0..10 {
        arrive(&mut network, from, third.clone());
        arrive(&mut network, from, no_tls.clone());
    }
    assert_eq!((session_count(&network), network.hosts[SERVER].closed.len()), (0, 1));
    assert_eq!(network.hosts[SERVER].refused.last(), Some(&PacketError::OtherSession), "no session is left");
    assert!(network.hosts[SERVER].refused.contains(&PacketError::TooMany), "the cookie is spent");
}

#[test]
fn clients_that_return_their_cookie_do_not_use_up_the_answers() {
    let setup = Setup::new();
    let mut network = without_wrap(&setup);
    let clients = 3 * RESET_ANSWERS.0;
    for number in 0..clients {
        let (session, [high, low]) = (SessionId([7; 8]), (number as u16).to_be_bytes());
        let from = ([203, 0, high, low], 4000).into();
        let answer = arrive(&mut network, from, first_packet(session)).expect("answered");
        arrive(&mut network, from, third_packet(session, &answer));
    }
    assert_eq!(session_count(&network), clients as usize);
}

/// Of so many clients that send a first packet, how many get an answer, and how many have a session then.
fn begin(network: &mut Network, clients: std::ops::Range<u16>) -> (usize, usize) {
    let (mut answers, before) = (0, session_count(network));
    for number in clients {
        let (session, [high, low]) = (SessionId([7; 8]), number.to_be_bytes());
        let from = ([203, 0, high, low], 4000).into();
        let Some(answer) = arrive(network, from, first_packet(session)) else { continue };
        answers += 1;
        arrive(network, from, third_packet(session, &answer));
    }
    (answers, session_count(network) - before)
}

#[test]
fn new_sessions_are_limited_in_each_period_and_not_those_that_are_there() {
    let mut setup = Setup::new();
    setup.new_sessions = Some(Rate { most: 3, period: seconds(10) });
    let mut network = without_wrap(&setup);
    network.connect(CLIENT);
    network.run(seconds(1));
    assert_eq!(begin(&mut network, 0..5), (5, 2), "the client is the third");
    assert_eq!(network.hosts[SERVER].refused, [PacketError::TooOften; 3]);
    network.run(seconds(10));
    assert_eq!(begin(&mut network, 5..10), (5, 3), "in the next period");
    assert_carries(&mut network, 1);
}

#[test]
fn a_refused_client_connects_in_the_next_period_without_a_new_first_packet() {
    let mut setup = Setup::new();
    setup.new_sessions = Some(Rate { most: 1, period: seconds(5) });
    let mut network = without_wrap(&setup);
    assert_eq!(begin(&mut network, 0..1), (1, 1));
    network.connect(CLIENT);
    network.run(seconds(4));
    assert!(!network.is_connected(CLIENT));
    network.run(seconds(16));
    assert!(network.is_connected(CLIENT), "{:?}", network.hosts[CLIENT].closed);
}

#[test]
fn answers_to_clients_that_do_not_go_on_are_limited_as_configured() {
    let mut setup = Setup::new();
    setup.answers = Some(Rate { most: 5, period: seconds(10) });
    let mut network = without_wrap(&setup);
    let first = |network: &mut Network, number: u16| {
        arrive(network, ([203, 0, 113, 7], number).into(), first_packet(SessionId([3; 8]))).is_some()
    };
    assert_eq!(begin(&mut network, 0..20), (20, 20), "those that go on do not count");
    assert_eq!((0..20).filter(|number| first(&mut network, 100 + number)).count(), 5);
    network.run(seconds(4));
    assert_eq!((0..20).filter(|number| first(&mut network, 200 + number)).count(), 2);
}

#[test]
fn new_sessions_over_tcp_count_in_the_same_period_as_those_in_udp() {
    let mut setup = Setup::new();
    setup.new_sessions = Some(Rate { most: 3, period: seconds(10) });
    let mut network = without_wrap(&setup);
    let begun = |network: &mut Network, protocols: [bool; 6], source: u8| {
        let before = session_count(network);
        for (number, is_tcp) in (0..).zip(protocols) {
            let socket = SocketAddr::from(([203, 0, 113, source], 1000 + number));
            let (from, session) = (PeerAddress { is_tcp, ..socket.into() }, SessionId([number as u8; 8]));
            let answer = arrive_by(network, from, &first_packet(session)).expect("answered");
            arrive_by(network, from, &third_packet(session, &answer));
        }
        session_count(network) - before
    };
    assert_eq!(begun(&mut network, [true, false, true, false, true, true], 1), 3);
    network.run(seconds(10));
    assert_eq!(begun(&mut network, [true; 6], 2), 3, "over TCP alone, in the next period");
}
