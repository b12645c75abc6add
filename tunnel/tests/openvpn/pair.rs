//! Two peers, site to site: no options are pushed, either end may begin again, and only one session counts.

use crate::host::{Core, Host};
use crate::network::{CLIENT, Network, SERVER, STORM, Setup};
use crate::{assert_carries, connected, seconds};
use tunnel::openvpn::Cause;
use tunnel::openvpn::channel::PacketError;
use tunnel::openvpn::data::Header;
use tunnel::openvpn::keepalive::{Keepalive, Silence};
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer::Timing;
use tunnel::openvpn::peer_info::{OURS, proto};

fn pair() -> Setup {
    Setup { is_pair: true, ..Setup::new() }
}

/// The headers of data packets, without repetitions.
fn headers(network: &Network, host: usize) -> Vec<Header> {
    let from = network.hosts[host].address;
    let sent = network.log.iter().filter(|(_, sent)| sent.from == from);
    let mut headers: Vec<Header> = sent.filter_map(|(_, sent)| Header::parse(&sent.bytes)).collect();
    headers.dedup_by_key(|header| header.word());
    headers
}

#[test]
fn peers_connect_without_a_push_and_export_one_peer_id() {
    let mut network = connected(&pair(), 1);
    assert_carries(&mut network, 1);
    let ids = [SERVER, CLIENT].map(|host| match headers(&network, host)[..] {
        [Header::V2 { peer_id, .. }] => peer_id,
        ref other => panic!("{} headers", other.len()),
    });
    assert_eq!(ids[0], ids[1]);
    assert!(ids[0] != 0 && network.hosts[CLIENT].options.is_empty());
    assert!(network.hosts[SERVER].commands.is_empty(), "options are not asked for");
    assert_eq!(network.hosts[CLIENT].found, [network.hosts[SERVER].address]);
}

#[test]
fn peers_without_each_feature_find_the_same_choice() {
    for features in [0, proto::DATA_V2, proto::DATA_V2 | proto::TLS_EXPORT, OURS & !proto::DATA_EPOCH] {
        for is_server in [true, false] {
            let mut setup = pair();
            *(if is_server { &mut setup.server_features } else { &mut setup.client_features }) = features;
            let mut network = connected(&setup, 2);
            assert_carries(&mut network, 2);
            let is_v1 = |header: &Header| matches!(header, Header::V1 { .. });
            assert_eq!(headers(&network, SERVER).iter().all(is_v1), features == 0, "{features}");
        }
    }
}

#[test]
fn the_server_of_tls_chooses_the_cipher_and_none_in_common_ends_both() {
    let mut setup = pair();
    let [aes256, aes128, chacha] = DataCipher::DEFAULT;
    setup.server_ciphers = vec![chacha, aes128];
    let mut network = connected(&setup, 3);
    assert_carries(&mut network, 3);
    setup.client_ciphers = vec![aes256];
    let mut network = setup.network(setup.tls_crypt(), 3);
    network.connect(CLIENT);
    network.run(seconds(1));
    for host in [SERVER, CLIENT] {
        assert!(!network.is_connected(host));
        assert!(matches!(network.hosts[host].closed[..], [Cause::NoCommonCipher(_)]), "{host}");
    }
}

#[test]
fn keys_are_renewed_in_any_weather() {
    let mut setup = pair();
    setup.server_timing = Timing { renegotiate: Some(seconds(20)), ..Timing::default() };
    let mut network = connected(&setup, 4);
    network.weather = STORM;
    for _ in 0..40 {
        let session = *network.hosts[SERVER].connected.keys().next().expect("connected");
        network.send(CLIENT, 0, &crate::inner(1));
        network.send(SERVER, session, &crate::inner(1));
        network.run(seconds(3));
    }
    network.weather = crate::network::CLEAR;
    network.run(seconds(5));
    network.hosts.iter_mut().for_each(|host| host.received.clear());
    assert_carries(&mut network, 4);
    assert!(headers(&network, SERVER).len() > 3, "renewed");
}

/// Either end is killed, and begins again without a word.
#[test]
fn an_end_that_begins_again_replaces_its_session() {
    let mut setup = pair();
    let silence = Some(Silence { after: seconds(20), exits: false });
    setup.client_keepalive = Keepalive { ping: Some(seconds(5)), silence };
    setup.server_ping = [Some(seconds(5)), Some(seconds(20))];
    // Also with packets that are looked up by the same word.
    for features in [OURS, proto::DATA_V2, 0] {
        (setup.server_features, setup.client_features) = (features, features);
        let mut network = connected(&setup, 5);
        let address = network.hosts[CLIENT].address.to_string();
        let again = Core::Client(Box::new(setup.client(setup.tls_crypt().1, 77)));
        network.hosts[CLIENT] = Host::new(again, &address);
        network.connect(CLIENT);
        network.run(seconds(1));
        assert_eq!(network.hosts[SERVER].connected.len(), 1);
        assert_eq!(network.hosts[SERVER].closed, [Cause::Replaced]);
        assert_carries(&mut network, 5);
        let address = network.hosts[SERVER].address.to_string();
        let again = Core::Server(Box::new(setup.server(setup.tls_crypt().0, 78)));
        network.hosts[SERVER] = Host::new(again, &address);
        network.run(seconds(21));
        assert_eq!(network.hosts[CLIENT].closed, [Cause::Gone(20)]);
        network.connect(CLIENT);
        network.run(seconds(1));
        network.hosts.iter_mut().for_each(|host| host.received.clear());
        assert_carries(&mut network, 6);
    }
}

#[test]
fn an_end_that_stops_tells_the_other() {
    for features in [OURS, 0] {
        for stops in [SERVER, CLIENT] {
            let mut setup = pair();
            (setup.server_features, setup.client_features) = (features, features);
            let mut network = connected(&setup, 6);
            let session = *network.hosts[stops].connected.keys().next().expect("connected");
            network.call(stops, |core, now, out| match core {
                Core::Client(client) => client.stop(now, out),
                Core::Server(server) => server.stop(now, session, out),
            });
            network.run(seconds(1));
            assert_eq!(network.hosts[1 - stops].closed, [Cause::Exited]);
        }
    }
}

#[test]
fn a_peer_at_another_address_than_that_of_remote_is_refused() {
    let mut setup = pair();
    setup.only_at = Some(vec!["198.18.0.0:5000".parse().expect("literal")]);
    connected(&setup, 7);
    setup.only_at = Some(vec!["198.18.0.0:0".parse().expect("literal")]);
    connected(&setup, 7);
    setup.only_at = Some(vec!["198.18.0.0:5001".parse().expect("literal")]);
    let mut network = setup.network(setup.tls_crypt(), 7);
    network.connect(CLIENT);
    network.run(seconds(3));
    assert!(network.hosts[SERVER].refused.contains(&PacketError::OtherAddress));
    assert!(network.log.iter().all(|(_, sent)| sent.from != network.hosts[SERVER].address));
}

#[test]
fn a_peer_is_taken_from_the_address_that_its_name_has_now_and_its_session_goes_on() {
    let mut setup = pair();
    // Its name has no address at the start.
    setup.only_at = Some(Vec::new());
    let mut network = setup.network(setup.tls_crypt(), 9);
    let moved = |network: &mut Network, addresses: &[&str]| {
        let addresses = addresses.iter().map(|address| address.parse().expect("literal")).collect();
        network.call(SERVER, |core, _, _| match core {
            Core::Server(server) => server.set_addresses(addresses),
            Core::Client(_) => panic!("a server"),
        });
    };
    network.connect(CLIENT);
    network.run(seconds(3));
    assert!(!network.is_connected(SERVER));
    moved(&mut network, &["198.18.0.0:5000"]);
    network.run(seconds(30));
    assert!(network.is_connected(SERVER) && network.is_connected(CLIENT));
    moved(&mut network, &["198.18.0.9:5000"]);
    network.hosts[SERVER].refused.clear();
    network.call(CLIENT, |core, now, out| match core {
        Core::Client(client) => client.handle_renewal(now, out),
        Core::Server(_) => panic!("a client"),
    });
    network.run(seconds(5));
    assert!(network.hosts[SERVER].refused.is_empty() && network.is_connected(SERVER));
    assert_carries(&mut network, 9);
}

/// Only a client of a server takes commands: a peer, site to site, does not end or reconfigure the other.
#[test]
fn a_peer_takes_no_options_and_no_refusal() {
    let mut network = connected(&pair(), 8);
    let session = *network.hosts[SERVER].connected.keys().next().expect("connected");
    network.call(SERVER, |core, now, out| match core {
        Core::Server(server) => {
            server.send_options(now, session, &["route 10.0.0.0 255.0.0.0".to_owned()], out);
        }
        Core::Client(_) => panic!("a server"),
    });
    network.run(seconds(1));
    assert!(network.is_connected(CLIENT) && network.hosts[CLIENT].options.is_empty());
    assert_eq!(network.hosts[CLIENT].commands.len(), 1);
}
