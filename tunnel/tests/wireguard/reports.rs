//! Reports about peers and callers.

use super::{SECOND, connected, seconds};
use crate::network::{A, B, Network};
use crypto::Secret;
use packet::DropReason;
use tunnel::wireguard::Event;

#[test]
fn peers_that_come_and_go_are_reported_once() {
    let mut network = connected(45);
    let (a, b) = (network.hosts[A].peer, network.hosts[B].peer);
    for _ in 0..300 {
        network.send(A, b"to b");
        network.run(SECOND);
    }
    assert_eq!(network.hosts.each_ref().map(|host| &host.events[..]), [&[Event::Up(a)], &[Event::Up(b)]]);
    // B is gone.
    network.weather.lost = 1000;
    for _ in 0..120 {
        network.send(A, b"to b");
        network.run(SECOND);
    }
    assert_eq!(network.hosts[A].events, [Event::Up(a), Event::Silent(a)]);
    network.run(seconds(540));
    assert_eq!(network.hosts[B].events, [Event::Up(b), Event::Idle(b)]);
    network.weather.lost = 0;
    network.send(A, b"to b");
    network.run(SECOND);
    assert_eq!(network.hosts[A].events.last(), Some(&Event::Up(a)));
    assert_eq!(network.hosts[B].events.last(), Some(&Event::Up(b)));
}

/// What went wrong at a host.
fn trouble(network: &Network, host: usize) -> tunnel::wireguard::Trouble {
    let this = &network.hosts[host];
    this.device.status(network.now().monotonic, this.peer).expect("it is there").trouble
}

#[test]
fn what_keeps_a_peer_away_is_counted_until_a_handshake_is_finished() {
    let mut network = Network::new(46);
    network.set_private_key(B, None);
    network.send(A, b"to b");
    network.run(seconds(30));
    assert!((5..=6).contains(&trouble(&network, A).unanswered), "{:?}", trouble(&network, A));
    network.set_private_key(B, Some([2; 32]));
    network.run(seconds(10));
    assert_eq!(trouble(&network, A), tunnel::wireguard::Trouble::default());
    // Preshared keys that differ.
    let mut network = Network::new(47);
    let peer = network.hosts[B].peer;
    network.hosts[B].device.set_preshared_key(peer, Secret::new([9; 32]));
    network.send(A, b"to b");
    network.run(SECOND);
    assert_eq!((trouble(&network, A).bad_responses, trouble(&network, B).unconfirmed), (1, 1));
}

#[test]
fn who_calls_without_being_a_peer_is_reported() {
    let mut network = Network::new(48);
    // A has another key than B knows.
    network.set_private_key(A, Some([5; 32]));
    network.send(A, b"to b");
    network.run(SECOND);
    let unknown = crypto::PrivateKey::new(Secret::new([5; 32])).public();
    assert_eq!(network.hosts[B].events, [Event::UnknownPeer(unknown)]);
    // B has another key than A knows.
    network.set_private_key(B, Some([6; 32]));
    network.run(seconds(6));
    assert_eq!(network.hosts[B].events.last(), Some(&Event::NotForUs));
    assert_eq!(network.drops(B, DropReason::BadMac), 1);
}
