//! Peers that die or restart: their sessions are found out and replaced.

use crate::mallory::{self, Mallory};
use crate::network::{A, B, Host};
use crate::sessions::closed;
use crate::support::{
    DETECTION, acquainted, assert_agree, assert_one_session, begin, child, connected, established, restart,
    seconds,
};
use tunnel::ikev2::{CloseReason, Connection, WhenLost};

#[test]
fn a_dead_peer_is_noticed_and_the_connection_restarted() {
    let (mut network, _) = connected(41, |host, connection| {
        connection.dead_peer_detection = Some(DETECTION);
        if host == A {
            connection.when_lost = WhenLost::Restart;
        }
    });
    network.run(seconds(300));
    assert!(closed(&network, A).is_empty(), "it lives");
    network.hosts[B].is_dead = true;
    network.run(seconds(85));
    assert!(closed(&network, A).is_empty(), "it may still answer");
    network.run(seconds(10));
    assert_eq!(closed(&network, A), [CloseReason::Dead]);
    assert!(network.hosts[A].installed.is_empty());
    // It comes back as one that knows nothing.
    restart(&mut network, B, 999);
    network.run(seconds(60));
    assert_one_session(&network);
}

#[test]
fn traffic_is_a_sign_of_life() {
    let (mut network, _) = connected(42, |_, connection| connection.dead_peer_detection = Some(DETECTION));
    let before = network.log.len();
    for _ in 0..30 {
        network.run(seconds(10));
        for host in [A, B] {
            let spi = network.hosts[host].spis()[0];
            network.command(host, |endpoint, now, _| endpoint.note_traffic(now, spi));
        }
    }
    assert_eq!(network.log.len(), before, "nothing was asked");
}

#[test]
fn a_peer_that_has_lost_its_memory_takes_its_own_place() {
    let (mut network, _) = connected(43, |_, _| {});
    let id = restart(&mut network, A, 998);
    begin(&mut network, A, id);
    network.run(seconds(60));
    assert_one_session(&network);
    assert_eq!(closed(&network, B), [CloseReason::Replaced]);
}

/// Two ways to one gateway are two connections between the same identities.
#[test]
fn of_two_connections_between_the_same_identities_neither_ends_the_other() {
    let (mut network, ids) = acquainted(58, |host, connection| {
        let (ours, theirs) = if host == A { (1, 2) } else { (2, 1) };
        connection.children.push(child("second", ours + 10, theirs + 10));
        if host == A {
            connection.children.pop();
        }
    });
    let second = crate::support::connection(A);
    let second = network.add(A, Connection { children: vec![child("second", 11, 12)], ..second });
    for id in [ids[A], second] {
        begin(&mut network, A, id);
        network.run(seconds(5));
    }
    assert_eq!([A, B].map(|host| established(&network.hosts[host])), [2, 2]);
    assert_agree(&network, 2);
}

/// From A's side this looks as if both had called at once, one time in two with an old session that B should end.
#[test]
fn a_peer_that_lost_its_memory_soon_after_our_call_leaves_no_session_of_its_past() {
    for seed in 0..20 {
        let (mut network, _) = connected(500 + seed, |_, _| {});
        let id = restart(&mut network, B, 900 + seed);
        begin(&mut network, B, id);
        network.run(seconds(600));
        assert_one_session(&network);
    }
}

/// libreswan says nothing of its first contact, and every death of it would leave a session for hours.
#[test]
fn a_peer_that_lost_its_memory_and_does_not_say_so_leaves_no_session_of_its_past() {
    for seed in 0..10 {
        for we_called in [false, true] {
            let (mut network, ids) = acquainted(600 + seed, |_, _| {});
            begin(&mut network, if we_called { B } else { A }, ids[usize::from(we_called)]);
            network.run(seconds(5));
            assert_agree(&network, 1);
            network.hosts[A] = Host::new("192.0.2.1", 998);
            let mut again = Mallory::new().begin(&mut network);
            assert_eq!(again.authenticate(&mut network).error(), None);
            network.run(seconds(300));
            assert_eq!(closed(&network, B).len(), 1);
            let sending = network.hosts[B].sending(0).map(|installed| installed.install.sa.outbound.spi);
            assert_eq!((network.hosts[B].installed.len(), sending), (1, Some(mallory::SPI)));
        }
    }
}
