//! The protocol between two devices.

mod failover;
mod handshakes;
mod network;
mod reports;
mod timers;

use crypto::Secret;
use network::{A, B, Network, Weather, at};
use packet::DropReason;
use std::time::Duration;
use tunnel::wireguard::device::Outbox;

const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE_REPLY: u8 = 3;
const DATA: u8 = 4;

const SECOND: Duration = Duration::from_secs(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A network on which A has sent a packet to B and B has answered.
fn connected(seed: u64) -> Network {
    let mut network = Network::new(seed);
    network.send(A, b"hello from a....");
    network.run(SECOND);
    network.send(B, b"hello from b....");
    network.run(SECOND);
    assert_eq!(network.hosts[B].received.pop().as_deref(), Some(&b"hello from a...."[..]));
    assert_eq!(network.hosts[A].received.pop().as_deref(), Some(&b"hello from b...."[..]));
    network
}

#[test]
fn a_packet_without_a_key_waits_for_the_handshake() {
    let network = connected(1);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
    assert_eq!(network.hosts[B].endpoint, Some(network.hosts[A].address), "B learned where A is");
}

#[test]
fn packets_wait_in_order_and_the_oldest_give_way() {
    let mut network = Network::new(2);
    for number in 0..200u8 {
        network.send(A, &[number; 16]);
    }
    network.run(SECOND);
    let received: Vec<u8> = network.hosts[B].received.iter().map(|packet| packet[0]).collect();
    let expected: Vec<u8> = (72..200).collect();
    assert_eq!(received, expected);
}

#[test]
fn an_initiator_with_nothing_to_send_confirms_with_a_keepalive() {
    let mut network = Network::new(3);
    network.keep_alive(A, seconds(25));
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.hosts[B].keepalives_received), (1, 1));
    assert!(network.hosts[B].sending.is_some(), "confirmed");
}

#[test]
fn a_peer_that_moves_is_followed_by_its_data() {
    let mut network = connected(16);
    network.hosts[A].address = "198.51.100.1:3000".parse().expect("literal");
    network.send(B, b"to the old place");
    network.run(SECOND);
    assert!(network.hosts[A].received.is_empty());
    network.send(A, b"from a new place");
    network.run(SECOND);
    network.send(B, b"to the new place");
    network.run(SECOND);
    assert_eq!(network.hosts[A].received, [b"to the new place"]);
    assert_eq!(network.count(INITIATION), 1, "no handshake was needed");
}

#[test]
fn damaged_data_does_not_move_the_peer() {
    let mut network = connected(17);
    let mut forged = network.last(DATA);
    forged.from = "198.51.100.9:9".parse().expect("literal");
    forged.to = network.hosts[B].address;
    let host_b_index = *network.hosts[B].installed.keys().next().expect("a session");
    forged.bytes[4..8].copy_from_slice(&host_b_index.to_le_bytes());
    forged.bytes[8] = 77;
    network.arrive(forged);
    assert_eq!(network.drops(B, DropReason::BadTag), 1);
    assert_eq!(network.hosts[B].endpoint, Some(network.hosts[A].address));
}

#[test]
fn a_replayed_packet_is_dropped_also_after_a_rekey() {
    let mut network = connected(18);
    network.send(A, b"once and no more");
    network.run(SECOND);
    let packet = network.last(DATA);
    network.arrive(packet.clone());
    assert_eq!(network.drops(B, DropReason::Replayed), 1);
    network.run(seconds(118));
    network.send(A, b"renews the keys.");
    network.run(SECOND);
    assert_eq!(network.count(RESPONSE), 2);
    network.arrive(packet);
    assert_eq!(network.drops(B, DropReason::Replayed), 2);
}

#[test]
fn a_stopped_device_sends_and_answers_nothing() {
    let mut network = connected(25);
    for host in &mut network.hosts {
        host.device.stop(&mut Outbox::new());
        host.sending = None;
    }
    let before = network.log.len();
    network.send(A, b"is not sent.....");
    network.run(seconds(60));
    assert_eq!(network.log.len(), before);
    let initiation = network.last(INITIATION);
    network.arrive(initiation);
    assert_eq!(network.drops(B, DropReason::NotOurs), 1);
}

#[test]
fn a_peer_without_an_address_costs_no_handshake() {
    let mut network = Network::new(26);
    network.keep_alive(B, SECOND);
    network.send(B, b"where are you...");
    network.run(seconds(100));
    assert!(network.log.is_empty());
}

#[test]
fn changing_our_key_ends_all_sessions_and_removes_ourselves() {
    let mut network = connected(27);
    let mut out = Outbox::new();
    let peer = network.hosts[A].peer;
    // B's private key: from now on the peer is ourselves.
    assert_eq!(
        network.hosts[A].device.set_private_key(at(200).monotonic, Some(Secret::new([2; 32])), &mut out),
        Some(peer)
    );
    assert!(network.hosts[A].device.peers().is_empty());
    assert!(out.iter().any(|action| matches!(action, tunnel::wireguard::DeviceAction::Retire { .. })));
}

/// What must hold on any network: nothing arrives twice, nothing arrives that was not sent, and when the weather
/// clears everything arrives.
#[test]
fn any_weather_delivers_nothing_twice_and_nothing_false() {
    for seed in 1000..1200 {
        let mut network = Network::new(seed);
        let (rough, calm) = (
            Weather { lost: 200, duplicated: 100, damaged: 100, delay: Duration::from_millis(400) },
            Weather { delay: Duration::from_millis(5), ..Weather::default() },
        );
        network.weather = rough;
        let mut number = 0u64;
        let mut next = |prefix: u64| {
            number += 1;
            [prefix.to_le_bytes(), number.to_le_bytes()].concat()
        };
        for _ in 0..400 {
            network.send(A, &next(0));
            network.send(B, &next(1));
            network.run(Duration::from_millis(997));
        }
        for host in [A, B] {
            let received = &network.hosts[host].received;
            let distinct: std::collections::HashSet<_> = received.iter().collect();
            assert_eq!(distinct.len(), received.len(), "seed {seed}: a packet arrived twice");
            assert!(
                received.iter().all(|packet| packet.len() == 16 && packet[0] == 1 - host as u8),
                "seed {seed}"
            );
            assert!(received.len() > 200, "seed {seed}: {} of 400", received.len());
        }
        network.weather = calm;
        network.run(seconds(30));
        network.hosts[A].received.clear();
        network.hosts[B].received.clear();
        for _ in 0..20 {
            network.send(A, &next(0));
            network.send(B, &next(1));
            network.run(SECOND);
        }
        network.run(SECOND);
        assert_eq!(network.hosts[A].received.len(), 20, "seed {seed}");
        assert_eq!(network.hosts[B].received.len(), 20, "seed {seed}");
    }
}

#[test]
fn a_keepalive_asked_for_before_the_endpoint_is_known_calls_when_it_is() {
    let mut network = Network::unacquainted(40);
    network.keep_alive(A, seconds(25));
    network.run(SECOND);
    assert_eq!(network.count(INITIATION), 0);
    network.introduce(A, B);
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
}

#[test]
fn a_key_that_is_set_while_peers_are_to_be_kept_alive_calls_them() {
    let mut network = Network::new(42);
    network.set_private_key(A, None);
    network.keep_alive(A, seconds(25));
    network.run(seconds(60));
    assert_eq!(network.count(INITIATION), 0, "no peer is called without a key");
    network.set_private_key(A, Some([1; 32]));
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
    assert_eq!(network.hosts[B].keepalives_received, 1);
    // Another key ends the sessions, and calls for new ones. B does not know it.
    network.run(seconds(10));
    network.set_private_key(A, Some([7; 32]));
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (2, 1));
}

#[test]
fn who_is_eager_calls_as_soon_as_it_is_known_where_the_peer_is() {
    let mut network = Network::unacquainted(43);
    let now = network.now().monotonic;
    network.hosts[A].device.set_eager(now, true);
    network.run(SECOND);
    assert_eq!(network.count(INITIATION), 0);
    network.introduce(A, B);
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
    network.run(seconds(100));
    assert_eq!(network.count(INITIATION), 1, "once it is connected it has nothing to say");
}
