//! A peer with two addresses: what happens when one of them fails, and when it works again.

use super::{INITIATION, RESPONSE, SECOND, seconds};
use crate::network::{A, B, Datagram, Network};
use std::net::SocketAddr;
use std::time::Duration;
use tunnel::wireguard::device::Outbox;
use tunnel::wireguard::{DeviceAction, Event, Reason};

const SECOND_ADDRESS: &str = "198.51.100.2:2000";

/// A has a session with B at its first address, and knows its second.
fn with_two_addresses(seed: u64) -> (Network, [SocketAddr; 2]) {
    let mut network = Network::new(seed);
    let both = [network.hosts[B].address, SECOND_ADDRESS.parse().expect("literal")];
    network.hosts[B].second = Some(both[1]);
    let (now, mut out) = (network.now().monotonic, Outbox::new());
    let peer = network.hosts[A].peer;
    network.hosts[A].device.set_addresses(now, peer, both.to_vec(), &mut out);
    assert_eq!(talk(&mut network, 10), 10);
    (network, both)
}

/// A packet each way a second, for so many seconds; how many came back.
fn talk(network: &mut Network, duration: u64) -> usize {
    let before = network.hosts[A].received.len();
    for _ in 0..duration {
        network.send(A, b"a.to.b..........");
        let heard = network.hosts[B].received.len();
        network.run(Duration::from_millis(100));
        for _ in heard..network.hosts[B].received.len() {
            network.send(B, b"b.to.a..........");
        }
        network.run(Duration::from_millis(900));
    }
    network.hosts[A].received.len() - before
}

fn reason(network: &Network) -> Option<Reason> {
    let host = &network.hosts[A];
    host.device.addresses(host.peer, host.endpoint).1
}

#[test]
fn traffic_goes_on_by_the_second_address_and_back_by_the_first() {
    let (mut network, [first, second]) = with_two_addresses(60);
    network.silent = vec![first];
    network.deaf = vec![first];
    assert_eq!(talk(&mut network, 29), 0, "silence for 15 s, and three tries of 5 s");
    assert_eq!(network.hosts[A].endpoint, Some(first));
    assert!(talk(&mut network, 4) > 0);
    assert_eq!((network.hosts[A].endpoint, reason(&network)), (Some(second), Some(Reason::Fallback)));
    // For ten minutes the first is probed in vain: no packet is lost, and keys are renewed as ever.
    assert_eq!(talk(&mut network, 600), 600);
    assert_eq!(network.hosts[A].endpoint, Some(second));
    let probes = network.log.iter().filter(|(_, it)| it.bytes[0] == INITIATION && it.to == first).count();
    assert!((20..30).contains(&probes), "{probes}");
    network.silent.clear();
    network.deaf.clear();
    assert_eq!(talk(&mut network, 36), 36, "it goes back without a loss");
    assert_eq!((network.hosts[A].endpoint, reason(&network)), (Some(first), Some(Reason::First)));
    let peer = network.hosts[A].peer;
    assert_eq!(
        network.hosts[A].events,
        [Event::Up(peer), Event::Fallback(peer, second), Event::Returned(peer)]
    );
}

#[test]
fn a_first_address_that_hears_and_is_not_heard_does_not_take_the_session() {
    let (mut network, [first, second]) = with_two_addresses(61);
    network.silent = vec![first];
    talk(&mut network, 40);
    assert_eq!(network.hosts[A].endpoint, Some(second));
    assert_eq!(talk(&mut network, 300), 300);
    // Without traffic of A, B follows the probe, and comes back when it has ended.
    network.run(seconds(30));
    let before = network.hosts[A].received.len();
    let mut sent = 0;
    for _ in 0..100 {
        network.send(B, b"b.to.a..........");
        sent += 1;
        network.run(SECOND);
    }
    let lost = sent - (network.hosts[A].received.len() - before);
    assert!(lost <= 4 * 5, "{lost} of {sent}: at most the 5 s of each probe");
    assert_eq!(network.hosts[A].endpoint, Some(second));
}

#[test]
fn a_session_at_the_second_address_outlives_its_keys() {
    let (mut network, [first, second]) = with_two_addresses(62);
    network.deaf = vec![first];
    talk(&mut network, 40);
    assert_eq!(
        network.hosts[A].endpoint,
        Some(second),
        "calls of the peer that cannot be answered do not hide it"
    );
    // An hour without traffic: nothing is probed for nothing.
    network.run(seconds(300));
    let before = network.log.len();
    network.run(seconds(3600));
    assert_eq!(network.log.len(), before);
    assert_eq!(talk(&mut network, 10), 10);
    assert_eq!(network.hosts[A].endpoint, Some(second));
}

/// Tells A which address the name of B has; returns whether it is lost, and where it is called from now on, if that changes.
fn found(network: &mut Network, address: SocketAddr) -> (bool, Option<SocketAddr>) {
    let (now, mut out) = (network.now().monotonic, Outbox::new());
    let host = &mut network.hosts[A];
    let is_lost = host.device.is_lost(now, host.peer);
    host.device.set_found(now, host.peer, host.endpoint, (&[address], &[]), &mut out);
    let redirect = out.iter().find_map(|action| match action {
        DeviceAction::Redirect { remote, .. } => Some(*remote),
        _ => None,
    });
    host.endpoint = redirect.or(host.endpoint);
    (is_lost, redirect)
}

#[test]
fn a_peer_that_was_given_up_is_called_when_its_name_has_another_address() {
    let mut network = Network::new(66);
    let first = network.hosts[B].address;
    let second: SocketAddr = SECOND_ADDRESS.parse().expect("literal");
    let now = network.now().monotonic;
    network.hosts[A].device.set_eager(now, true);
    assert_eq!(talk(&mut network, 10), 10);
    assert_eq!(found(&mut network, first), (false, None), "it answers, and is where its name says");
    network.hosts[B].second = Some(second);
    (network.silent, network.deaf) = (vec![first], vec![first]);
    talk(&mut network, 60);
    network.run(seconds(600));
    let (sent, heard) = (network.count(INITIATION), network.count(RESPONSE));
    network.run(seconds(60));
    assert_eq!(network.count(INITIATION), sent, "it was given up");
    assert_eq!(found(&mut network, second), (true, Some(second)));
    network.run(seconds(1));
    assert!(network.count(RESPONSE) > heard, "it is called without a packet for it");
    assert_eq!(talk(&mut network, 10), 10);
}

#[test]
fn a_peer_whose_key_is_renewed_is_not_lost() {
    let (mut network, [first, _]) = with_two_addresses(67);
    for _ in 0..400 {
        network.send(A, b"a.to.b..........");
        let now = network.now().monotonic;
        assert!(
            !network.hosts[A].device.is_lost(now, network.hosts[A].peer),
            "one initiation is every renewal"
        );
        network.run(SECOND);
    }
    (network.silent, network.deaf) = (vec![first], vec![first]);
    talk(&mut network, 25);
    let now = network.now().monotonic;
    assert!(network.hosts[A].device.is_lost(now, network.hosts[A].peer));
}

#[test]
fn no_address_answers_and_then_any() {
    let (mut network, [first, second]) = with_two_addresses(63);
    for works in [first, second, first] {
        network.deaf = vec![first, second];
        talk(&mut network, 200);
        network.deaf.retain(|address| *address != works);
        talk(&mut network, 40);
        assert_eq!((network.hosts[A].endpoint, talk(&mut network, 10)), (Some(works), 10));
    }
    let fallbacks = network.hosts[A].events.iter().filter(|it| matches!(it, Event::Fallback(..))).count();
    assert!(fallbacks <= 3 * 2, "{fallbacks}: one round is logged each time");
}

#[test]
fn the_peer_is_followed_to_its_second_address_and_the_first_is_still_preferred() {
    let (mut network, [first, second]) = with_two_addresses(64);
    // B calls by its second address, as its first has no way out.
    network.silent = vec![first];
    network.hosts[B].sends_from_second = true;
    network.run(seconds(6));
    network.renew(B);
    network.run(SECOND);
    assert_eq!((network.hosts[A].endpoint, reason(&network)), (Some(second), Some(Reason::Followed)));
    network.silent.clear();
    talk(&mut network, 36);
    assert_eq!((network.hosts[A].endpoint, reason(&network)), (Some(first), Some(Reason::First)));
}

#[test]
fn nobody_moves_the_session_without_the_keys() {
    let (mut network, [first, second]) = with_two_addresses(65);
    let to = network.hosts[A].address;
    let index = network.hosts[A].installed.keys().next().copied().expect("a session");
    for round in 0..50u8 {
        // What was overheard, and what is made up, from the second address and from anywhere.
        for from in [second, "203.0.113.66:6".parse().expect("literal")] {
            for kind in [INITIATION, RESPONSE] {
                let mut bytes = network.last(kind).bytes;
                network.arrive(Datagram { from, to, bytes: bytes.clone() });
                bytes[8..12].copy_from_slice(&index.to_le_bytes());
                bytes[40] ^= round;
                network.arrive(Datagram { from, to, bytes });
            }
        }
        assert_eq!(talk(&mut network, 3), 3);
        assert_eq!((network.hosts[A].endpoint, reason(&network)), (Some(first), Some(Reason::First)));
    }
}
