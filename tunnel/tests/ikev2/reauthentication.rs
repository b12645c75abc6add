//! Reauthentication: a new session replaces the old one before it ends.

use crate::network::{A, B, Network};
use crate::sessions::closed;
use crate::support::{
    HOUR, assert_agree, assert_nothing_leaks, assert_one_session, child, connected, connection, seconds,
};
use std::collections::BTreeSet;
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::{CloseReason, Event, Start};

#[test]
fn reauthentication_replaces_the_session_before_the_old_one_ends() {
    let (mut network, _) = connected(47, |host, connection| {
        let (ours, theirs) = if host == A { (1, 2) } else { (2, 1) };
        connection.children.push(child("second", ours + 10, theirs + 10));
        connection.reauthenticate = true;
        connection.lifetime = HOUR;
        connection.children.iter_mut().for_each(|child| child.lifetime = 1000 * HOUR);
    });
    network.weather.delay = seconds(1);
    let mut most = 0;
    for _ in 0..4 * 3600 * 2 {
        network.run(std::time::Duration::from_millis(500));
        for host in &network.hosts {
            most = most.max(host.installed.len());
            assert!(host.sending(0).is_some() && host.sending(1).is_some(), "always one");
        }
    }
    assert!((3..=4).contains(&most), "both for a moment: {most}");
    assert_agree(&network, 2);
    assert_nothing_leaks(&network, 1);
    let established = |event: &Event| matches!(event, Event::Established { .. });
    assert!((4..=6).contains(&network.hosts[B].count(established)));
    assert_eq!(network.hosts[A].count(|event| matches!(event, Event::Rekeyed { .. })), 0);
    let reasons = closed(&network, A);
    assert!(reasons.iter().all(|reason| *reason == CloseReason::Replaced), "{reasons:?}");
}

/// The other side rekeys the new session as soon as it is there, and has no time for its second child.
#[test]
fn the_old_session_ends_when_the_new_one_has_its_children() {
    let mut refused = 0;
    for seed in 0..20 {
        let (mut network, ids) = connected(600 + seed, |host, connection| {
            let (ours, theirs) = if host == A { (1, 2) } else { (2, 1) };
            connection.children.push(child("second", ours + 10, theirs + 10));
            connection.reauthenticate = host == A;
            connection.lifetime = if host == A { HOUR } else { 10 * HOUR };
        });
        let before = network.hosts[B].count(|event| matches!(event, Event::Established { .. }));
        let mut has_rekeyed = false;
        for _ in 0..3600 * 100 {
            network.run(std::time::Duration::from_millis(10));
            let is_new = network.hosts[B].count(|event| matches!(event, Event::Established { .. })) > before;
            if is_new && !has_rekeyed {
                has_rekeyed = true;
                network.command(B, |endpoint, now, out| endpoint.rekey(now, ids[B], out));
            }
            if has_rekeyed {
                assert!(
                    network.hosts[A].sending(1).is_some(),
                    "seed {seed}: the second child is always there"
                );
            }
            if is_new && !closed(&network, A).is_empty() {
                break;
            }
        }
        refused += usize::from(network.hosts[A].count(|event| matches!(event, Event::Rekeyed { .. })) == 0);
        network.run(seconds(20));
        assert_agree(&network, 2);
    }
    assert!(refused > 0, "it was refused at least once");
}

#[test]
fn reauthentication_is_tried_again_while_there_is_time() {
    let (mut network, _) = connected(48, |_, connection| {
        connection.reauthenticate = true;
        connection.lifetime = HOUR;
    });
    // New first messages are lost for most of the time in which it could be done.
    network.on_the_way =
        Some(Box::new(|datagram| crate::network::exchange(&datagram.bytes).0 != Exchange::IkeSaInit));
    network.run(seconds(3300));
    assert_agree(&network, 1);
    network.on_the_way = None;
    network.run(seconds(290));
    assert_agree(&network, 1);
    network.run(seconds(600));
    assert_one_session(&network);
}

fn established(network: &Network, host: usize) -> usize {
    network.hosts[host].count(|event| matches!(event, Event::Established { .. }))
}

/// The peer rekeys the IKE SA again and again: it must prove all the same who it is.
#[test]
fn rekeying_by_the_peer_does_not_put_off_reauthentication() {
    for rekeys in [A, B] {
        let (mut network, ids) = connected(49, |host, connection| {
            connection.reauthenticate = host != rekeys;
            connection.lifetime = if host == rekeys { 1000 * HOUR } else { HOUR };
            connection.children[0].lifetime = 1000 * HOUR;
        });
        for _ in 0..18 {
            network.run(seconds(600));
            network.command(rekeys, |endpoint, now, out| endpoint.rekey(now, ids[rekeys], out));
        }
        network.run(seconds(60));
        assert_agree(&network, 1);
        let count = established(&network, 1 - rekeys);
        assert!((4..=5).contains(&count), "in three hours, {rekeys} rekeys: {count}");
    }
}

/// RFC 4478: the responder says how long an authentication counts, and the initiator begins in time.
#[test]
fn an_initiator_without_reauthentication_follows_the_lifetime_of_the_responder() {
    let (mut network, _) = connected(50, |host, connection| {
        connection.reauthenticate = host == B;
        connection.lifetime = if host == B { HOUR } else { 24 * HOUR };
        connection.children[0].lifetime = 1000 * HOUR;
        if host == B {
            connection.remote = None;
        }
    });
    for _ in 0..4 * 3600 {
        network.run(seconds(1));
        assert!(network.hosts[A].sending(0).is_some(), "always one");
    }
    assert_agree(&network, 1);
    assert!((4..=6).contains(&established(&network, B)), "{}", established(&network, B));
    let reasons = closed(&network, B);
    assert!(reasons.iter().all(|reason| *reason == CloseReason::ByPeer), "none has expired: {reasons:?}");
}

/// The lifetime was unlimited, and the peer rekeys.
#[test]
fn a_new_lifetime_counts_from_the_authentication_too() {
    let (mut network, ids) = connected(53, |_, connection| {
        connection.lifetime = 100_000 * HOUR;
        connection.children[0].lifetime = 100_000 * HOUR;
    });
    network.run(10 * HOUR);
    for host in [A, B] {
        let mut config = connection(host);
        config.children[0].lifetime = 100_000 * HOUR;
        (config.lifetime, config.reauthenticate) = (HOUR, true);
        network.command(host, |endpoint, now, out| {
            assert!(endpoint.update_connection(now, ids[host], config, &[Some(0)], out));
        });
    }
    network.run(seconds(60));
    assert_eq!(established(&network, B), 2, "it is long over");
    assert_agree(&network, 1);
    network.run(3 * HOUR);
    assert!((5..=7).contains(&established(&network, B)), "{}", established(&network, B));
    assert_agree(&network, 1);
}

/// A peer that begins nothing is asked by the responder, if that may begin.
#[test]
fn a_responder_begins_if_the_initiator_does_not() {
    for (may_begin, lifetime) in [(true, HOUR), (false, HOUR), (true, seconds(60)), (false, seconds(60))] {
        let (mut network, _) = connected(51, |host, connection| {
            connection.reauthenticate = host == B;
            connection.lifetime = if host == B { lifetime } else { 24 * HOUR };
            connection.children[0].lifetime = 1000 * HOUR;
            if host == B && may_begin {
                connection.start = Start::OnTraffic;
            }
        });
        // A does not get an answer to a new first message, so that only B can begin.
        network.on_the_way = Some(Box::new(|datagram| {
            let is_first = crate::network::exchange(&datagram.bytes).0 == Exchange::IkeSaInit;
            !(is_first
                && datagram.from.ip() == "192.0.2.1".parse::<std::net::IpAddr>().expect("literal")
                && datagram.bytes[8..16] == [0; 8])
        }));
        network.run(lifetime.saturating_sub(seconds(6)));
        assert_eq!(established(&network, B), if may_begin { 2 } else { 1 });
        network.run(seconds(10));
        assert_eq!(network.hosts[B].sending(0).is_some(), may_begin, "without it, the session ends");
    }
}

#[test]
fn all_spis_of_a_peer_lead_to_one_receiving_thread_whatever_replaces_its_sas() {
    const THREADS: u8 = 5;
    for reauthenticate in [false, true] {
        let (mut network, _) = connected(48, |_, connection| {
            connection.reauthenticate = reauthenticate;
            connection.lifetime = HOUR;
            connection.children[0].lifetime = HOUR / 2;
        });
        let before = [A, B].map(|host| network.hosts[host].spis());
        network.hosts.iter_mut().for_each(|host| host.endpoint.set_receivers(THREADS));
        let mut seen = [BTreeSet::new(), BTreeSet::new()];
        for _ in 0..6 * 360 {
            network.run(seconds(10));
            for (host, seen) in network.hosts.iter().zip(&mut seen) {
                seen.extend(host.spis());
            }
        }
        for (before, mut seen) in before.into_iter().zip(seen) {
            for spi in &before {
                assert!(seen.remove(spi));
            }
            assert!(seen.len() >= 10, "{seen:?}");
            // The first peer has the first thread.
            assert!(seen.iter().all(|spi| spi.to_be_bytes()[0] % THREADS == 0), "{seen:x?}");
            let rest: BTreeSet<u32> = seen.iter().map(|spi| spi & 0x00ff_ffff).collect();
            assert_eq!(rest.len(), seen.len(), "the rest is random");
        }
    }
}
