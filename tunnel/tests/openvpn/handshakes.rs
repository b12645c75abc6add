//! Sessions begin, carry packets, get new keys and end.

use crate::network::{CLIENT, SERVER, STORM, Setup};
use crate::{assert_carries, seconds};
use packet::DropReason;
use tunnel::openvpn::Cause;
use tunnel::openvpn::data::Framing;
use tunnel::openvpn::limits::CONTROL_PACKET;
use tunnel::openvpn::packet::Lead;

#[test]
fn a_client_connects_with_tls_crypt_and_packets_pass() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.connect(CLIENT);
    network.run(seconds(1));
    assert_eq!(network.hosts[CLIENT].closed, []);
    assert!(network.is_connected(CLIENT) && network.is_connected(SERVER));
    assert!(network.hosts[CLIENT].options.contains(&String::from("cipher AES-256-GCM")));
    assert_carries(&mut network, 7);
}

#[test]
fn a_session_begins_in_any_weather() {
    for seed in 0..20 {
        let setup = Setup::new();
        let mut network = setup.network(setup.tls_crypt(), seed);
        network.weather = STORM;
        network.connect(CLIENT);
        network.run(seconds(55));
        assert!(network.is_connected(CLIENT), "{seed}: {:?}", network.hosts[CLIENT].closed);
        network.weather = crate::network::CLEAR;
        network.run(seconds(1));
        assert_carries(&mut network, 7);
    }
}

#[test]
fn a_client_without_an_answer_ends_after_the_hand_window() {
    let setup = Setup::new();
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.weather.lost = 1000;
    network.connect(CLIENT);
    network.run(seconds(61));
    assert_eq!(network.hosts[CLIENT].closed, [Cause::HandshakeTimeout]);
    assert_eq!(network.log.len(), 5, "after 0, 2, 6, 14 and 30 seconds");
}

#[test]
fn a_server_ends_the_compression_of_its_clients() {
    for (announced, option) in [("1", "compress stub-v2"), ("0", "comp-lzo no")] {
        let mut setup = Setup::new();
        (setup.server_ends_compression, setup.client_framing) = (true, Some(Framing::Swapped));
        setup.client_information = vec![(String::from("IV_COMP_STUBv2"), String::from(announced))];
        let mut network = setup.network(setup.tls_crypt(), 1);
        network.connect(CLIENT);
        network.run(seconds(1));
        assert!(network.hosts[CLIENT].options.contains(&String::from(option)), "{option}");
        assert_carries(&mut network, 7);
    }
}

#[test]
fn two_kinds_of_framing_do_not_pass() {
    let mut setup = Setup::new();
    setup.client_framing = Some(Framing::Before);
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.connect(CLIENT);
    network.run(seconds(1));
    assert!(network.is_connected(CLIENT) && network.is_connected(SERVER));
    let session = *network.hosts[SERVER].connected.keys().next_back().expect("connected");
    network.send(SERVER, session, &crate::inner(7));
    network.run(seconds(1));
    assert_eq!(network.hosts[CLIENT].dropped(DropReason::Compressed), 1);
}

/// The longest control packet, and how many there were, until a client has connected.
fn control_packets(setup: &Setup) -> (usize, usize) {
    let mut network = setup.network(setup.tls_crypt(), 1);
    network.connect(CLIENT);
    network.run(seconds(20));
    let limit = setup.control_packet;
    assert!(network.is_connected(CLIENT), "{limit}: {:?}", network.hosts[CLIENT].closed);
    let lengths = network.log.iter().map(|(_, sent)| &sent.bytes).filter_map(|bytes| {
        let lead = Lead::parse(*bytes.first()?)?;
        (!lead.opcode.is_data()).then_some(bytes.len())
    });
    let lengths: Vec<usize> = lengths.collect();
    assert_carries(&mut network, 7);
    (lengths.iter().max().copied().unwrap_or_default(), lengths.len())
}

#[test]
fn control_packets_are_as_long_as_the_limit_allows() {
    // IPv6 and UDP.
    const HEADERS: usize = 48;
    let (longest, usual) = control_packets(&Setup::new());
    assert!((900..=CONTROL_PACKET - HEADERS).contains(&longest), "{longest}");
    for limit in [154, 400, 600] {
        let (longest, count) = control_packets(&Setup { control_packet: limit, ..Setup::new() });
        assert!(longest <= limit - HEADERS && count > usual, "{limit}: {longest}, {count} packets");
    }
}
