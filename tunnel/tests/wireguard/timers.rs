//! Timers: rekeying, keepalives, retransmission, and the end of keys.

use super::{DATA, INITIATION, RESPONSE, SECOND, connected, seconds};
use crate::network::{A, B, Datagram, Network, at};
use packet::DropReason;
use std::time::Duration;

#[test]
fn keys_are_renewed_every_two_minutes_and_no_packet_is_lost() {
    let mut network = connected(4);
    let mut sent = 0;
    for _ in 0..5900 {
        network.send(A, b"a.to.b..........");
        network.send(B, b"b.to.a..........");
        sent += 1;
        network.run(Duration::from_millis(100));
    }
    assert_eq!(network.hosts[A].received.len(), sent);
    assert_eq!(network.hosts[B].received.len(), sent);
    // Ten minutes: the first handshake and one every 120 seconds.
    assert_eq!(network.count(INITIATION), 5);
    assert_eq!(network.count(RESPONSE), 5);
}

#[test]
fn an_initiator_that_only_receives_renews_with_its_keepalives() {
    let mut network = connected(5);
    for _ in 0..164 {
        network.send(B, b"b.to.a..........");
        network.run(SECOND);
    }
    assert_eq!(network.count(INITIATION), 1 + 1, "a keepalive of A renewed the key at 120 seconds");
}

#[test]
fn an_initiator_that_only_receives_renews_after_165_seconds() {
    let mut network = connected(29);
    network.run(seconds(158));
    network.send(B, b"at 160 seconds..");
    network.run(SECOND);
    assert_eq!(network.count(INITIATION), 1, "its key is young enough");
    network.run(seconds(5));
    // Its keepalive is due at 170 seconds only: what renews the key is this packet.
    network.send(B, b"at 166 seconds..");
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (2, 2));
    assert_eq!(network.last(INITIATION).from, network.hosts[A].address, "B did not initiate: it waits for A");
    assert_eq!(network.hosts[A].received.len(), 2);
}

#[test]
fn a_peer_that_only_receives_sends_a_keepalive_after_ten_seconds() {
    let mut network = connected(6);
    network.run(seconds(60));
    let keepalives = network.hosts[A].keepalives_received + network.hosts[B].keepalives_received;
    // B answered A's packet with data, so only A owes an answer; nothing answers a keepalive.
    assert_eq!((network.hosts[B].keepalives_received, keepalives), (1, 1));
    let (sent_at, _) = network.log.last().expect("the keepalive");
    assert_eq!(
        *sent_at - at(101).monotonic,
        seconds(10) + Duration::from_millis(1),
        "ten seconds after it arrived"
    );
}

#[test]
fn idle_peers_stay_silent() {
    let mut network = connected(7);
    network.run(seconds(30));
    let before = network.log.len();
    network.run(seconds(3600));
    assert_eq!(network.log.len(), before);
}

#[test]
fn a_persistent_keepalive_keeps_its_interval_over_new_keys() {
    let mut network = connected(8);
    network.keep_alive(A, seconds(25));
    network.run(seconds(1000));
    let silences: Vec<Duration> = network.log.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(silences.iter().all(|&silence| silence <= seconds(26)), "{silences:?}");
    assert!(
        (38..=60).contains(&network.hosts[B].keepalives_received),
        "{}",
        network.hosts[B].keepalives_received
    );
}

#[test]
fn silence_after_data_begins_a_handshake_after_fifteen_seconds() {
    let mut network = connected(9);
    network.run(seconds(30));
    network.weather.lost = 1000;
    let silent_since = network.now().monotonic;
    network.send(A, b"into the dark...");
    let before = network.count(INITIATION);
    network.run(Duration::from_millis(14_900));
    assert_eq!(network.count(INITIATION), before);
    network.run(Duration::from_millis(500));
    assert_eq!(network.count(INITIATION), before + 1);
    let (initiated, _) = network.log.last().expect("the initiation");
    assert!(*initiated - silent_since >= seconds(15));
}

#[test]
fn handshakes_are_repeated_with_jitter_and_given_up_after_ninety_seconds() {
    let mut network = Network::new(10);
    network.weather.lost = 1000;
    network.send(A, b"into the dark...");
    network.run(seconds(300));
    let times: Vec<_> = network.log.iter().map(|(time, _)| *time).collect();
    assert_eq!(times.len(), 18);
    let gaps: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|&gap| gap >= seconds(5) && gap <= Duration::from_millis(5334)), "{gaps:?}");
    assert!(gaps.windows(2).any(|pair| pair[0] != pair[1]), "jitter");
    // The packet was given up with the handshake.
    network.weather.lost = 0;
    network.send(A, b"a later packet..");
    network.run(SECOND);
    assert_eq!(network.hosts[B].received, [b"a later packet.."]);
}

#[test]
fn a_key_of_three_minutes_neither_sends_nor_receives() {
    let mut network = connected(19);
    let old = network.last(DATA);
    network.weather.lost = 1000;
    network.run(seconds(180));
    network.arrive(Datagram { to: network.hosts[A].address, from: network.hosts[B].address, ..old });
    assert_eq!(network.drops(A, DropReason::KeyExpired), 1);
    let before = network.count(DATA);
    network.send(A, b"must not be sent");
    network.run(SECOND);
    assert_eq!(network.count(DATA), before);
}

#[test]
fn all_keys_are_erased_nine_minutes_after_the_last_handshake() {
    let mut network = connected(20);
    network.run(seconds(530));
    assert!(!network.hosts[A].installed.is_empty());
    network.run(seconds(11));
    for host in &network.hosts {
        assert!(host.installed.is_empty() && host.sending.is_none());
    }
}
