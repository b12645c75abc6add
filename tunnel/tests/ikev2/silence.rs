//! Tunnels that may be dead: a peer whose address changes, and a peer from which nothing comes back.

use crate::mallory::{Mallory, create_payloads};
use crate::network::{A, B, Network, exchange};
use crate::support::{DETECTION, acquainted, connected, established, seconds};
use std::net::SocketAddr;
use tunnel::ikev2::limits::SILENCE_TIME;
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::{CloseReason, Details, Event, Follows, Path};

/// B's only session.
fn details(network: &Network) -> Details {
    network.hosts[B].endpoint.sessions().remove(0).details.expect("established")
}

/// Mallory, who is honest here, with a Child SA on the ports for NAT: before which sides it sees one.
fn behind_nat(network: &mut Network, [theirs, ours]: [bool; 2]) -> Mallory {
    let mut peer = Mallory::new();
    (peer.claims_nat, peer.claims_nat_of_other) = (theirs, ours);
    let mut peer = peer.begin(network);
    peer.float();
    assert_eq!(peer.authenticate(network).error(), None);
    peer
}

fn moved(address: &str) -> SocketAddr {
    address.parse().expect("literal")
}

/// Where B's requests went since `from`.
fn asked(network: &Network, from: usize) -> Vec<SocketAddr> {
    let requests = network.log[from..].iter().filter(|(_, sent)| {
        exchange(&sent.bytes) == (Exchange::Informational, false)
            && sent.from.ip() == network.hosts[B].address
    });
    requests.map(|(_, sent)| sent.to).collect()
}

#[test]
fn behind_two_nats_another_port_is_followed_and_another_address_is_not() {
    for (nats, follows) in [
        ([true, true], Follows::Port),
        ([true, false], Follows::Anywhere),
        ([false, true], Follows::Nothing),
        ([false, false], Follows::Nothing),
    ] {
        for address in ["192.0.2.1:61000", "192.0.2.1:1", "198.51.100.9:4500", "198.51.100.9:61000"] {
            let (mut network, _) = acquainted(90, |_, it| it.force_encapsulation = true);
            let mut peer = behind_nat(&mut network, nats);
            let install = &network.hosts[B].installed.values().next().expect("installed").install;
            let (spi, before) = (install.sa.inbound.spi, install.path.remote);
            assert_eq!(install.follows, follows, "{nats:?}");
            let to = moved(address);
            let is_followed = follows.allows(before, to);
            // Only what is new says where it is.
            peer.address = to;
            peer.ask(&mut network, Exchange::Informational, &[]).expect("answered where it came from");
            let path = network.hosts[B].path.expect("installed");
            assert_eq!(path.remote, if is_followed { to } else { before }, "{nats:?} {to}");
            assert_eq!(details(&network).stray, Some(to).filter(|_| !is_followed));
            // The same by ESP.
            let (mut network, _) = acquainted(90, |_, it| it.force_encapsulation = true);
            behind_nat(&mut network, nats);
            let path = Path { local: moved("192.0.2.2:4500"), remote: to };
            let new = network.hosts[B].spis()[0];
            assert_eq!(new, spi);
            network.command(B, |endpoint, now, out| endpoint.note_moved(now, spi, path, out));
            let path = network.hosts[B].path.expect("installed");
            assert_eq!(path.remote, if is_followed { to } else { before }, "{nats:?} {to}");
        }
    }
}

/// Packets that come from elsewhere say nothing of where ours go.
#[test]
fn a_peer_that_sends_from_elsewhere_is_asked_where_we_send_to() {
    for detection in [None, Some(DETECTION)] {
        let (mut network, _) = acquainted(91, |_, it| it.dead_peer_detection = detection);
        let mut peer = Mallory::established(&mut network);
        let (spi, old) = (network.hosts[B].spis()[0], peer.address);
        network.run(seconds(5));
        peer.address = moved("198.51.100.9:500");
        peer.ask(&mut network, Exchange::Informational, &[]).expect("answered");
        assert_eq!(details(&network).stray, Some(peer.address));
        let before = network.log.len();
        for _ in 0..9 {
            network.run(seconds(2));
            network.command(B, |endpoint, now, _| endpoint.note_strayed(now, spi, moved("198.51.100.9:500")));
        }
        let asked = asked(&network, before);
        assert!(!asked.is_empty() && asked.iter().all(|to| *to == old), "{asked:?}");
        let silent = details(&network).silent_since.expect("it does not answer");
        assert!(network.now - silent >= SILENCE_TIME);
        network.run(seconds(200));
        assert_eq!(established(&network.hosts[B]), 0);
        let dead = |event: &Event| matches!(event, Event::Closed { reason: CloseReason::Dead, .. });
        assert_eq!(network.hosts[B].count(dead), 1);
    }
}

/// Section 2.4: it is essential to see whether the other side is there when there is only outgoing traffic.
#[test]
fn what_is_sent_without_anything_coming_back_makes_us_ask() {
    for detection in [None, Some(DETECTION)] {
        let (mut network, _) = connected(92, |_, it| it.dead_peer_detection = detection);
        let spi = network.hosts[B].spis()[0];
        network.hosts[A].is_dead = true;
        let (began, before) = (network.now, network.log.len());
        while asked(&network, before).is_empty() {
            assert!(network.now - began < seconds(20), "it asks soon");
            network.command(B, |endpoint, now, _| endpoint.note_sent(now, spi));
            network.run(seconds(2));
        }
        assert!(network.now - began >= SILENCE_TIME);
        network.run(seconds(2));
        assert!(details(&network).silent_since.is_some(), "and says that nothing comes");
        network.run(seconds(200));
        assert_eq!(established(&network.hosts[B]), 0, "{detection:?}");
    }
}

#[test]
fn traffic_in_both_directions_is_a_sign_of_life_and_one_that_answers_stays() {
    let (mut network, _) = connected(93, |_, _| {});
    let spi = network.hosts[B].spis()[0];
    let before = network.log.len();
    for _ in 0..60 {
        network.command(B, |endpoint, now, _| {
            endpoint.note_sent(now, spi);
            endpoint.note_traffic(now, spi);
        });
        network.run(seconds(2));
    }
    assert_eq!(network.log.len(), before, "nothing is asked");
    for _ in 0..60 {
        network.command(B, |endpoint, now, _| endpoint.note_sent(now, spi));
        network.run(seconds(2));
    }
    let asked = asked(&network, before).len();
    assert!((8..=12).contains(&asked), "once in a while: {asked}");
    assert_eq!((established(&network.hosts[B]), details(&network).silent_since), (1, None));
}

/// An idle tunnel does not count as silent.
#[test]
fn an_idle_session_is_left_alone() {
    let (mut network, _) = connected(94, |_, _| {});
    let before = network.log.len();
    network.run(seconds(600));
    assert_eq!(network.log.len(), before);
}

/// The peer answers from elsewhere: where we send to, it was reached.
#[test]
fn an_answer_counts_wherever_it_comes_from() {
    let (mut network, _) = acquainted(95, |_, _| {});
    let mut peer = Mallory::established(&mut network);
    let spi = network.hosts[B].spis()[0];
    let before = network.log.len();
    network.command(B, |endpoint, now, _| endpoint.note_sent(now, spi));
    network.run(SILENCE_TIME);
    assert_eq!(asked(&network, before), [peer.address]);
    peer.address = moved("198.51.100.9:500");
    peer.respond(&mut network, Exchange::Informational, 0, &[]);
    network.run(seconds(60));
    assert_eq!(details(&network).silent_since, None);
    let reply = peer.ask(&mut network, Exchange::CreateChildSa, &create_payloads()).expect("answered");
    assert_eq!(reply.error(), None);
}
