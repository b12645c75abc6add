//! Reauthentication: a new session replaces the old one before it ends.

use crate::network::{A, B};
use crate::sessions::closed;
use crate::support::{
    HOUR, assert_agree, assert_nothing_leaks, assert_one_session, child, connected, seconds,
};
use std::collections::BTreeSet;
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::{CloseReason, Event};

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
