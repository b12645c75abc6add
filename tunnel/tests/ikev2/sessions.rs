//! What becomes of a session: rekeying, deletion, death.

use crate::network::{A, B, Network};
use crate::support::{
    HOUR, acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, child, connected,
    established, seconds,
};
use crypto::exchange::Group;
use tunnel::esp::Mode;
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::{CannotInitiate, ChildState, CloseReason, Event, Start, WhenLost};

pub(crate) fn closed(network: &Network, host: usize) -> Vec<CloseReason> {
    let reason = |event: &Event| match event {
        Event::Closed { reason, .. } => Some(*reason),
        _ => None,
    };
    network.hosts[host].events.iter().filter_map(reason).collect()
}

fn rekey_child(network: &mut Network, host: usize) {
    let spi = network.hosts[host].spis()[0];
    network.command(host, |endpoint, now, out| endpoint.rekey_child(now, spi, out));
}

/// What becomes of the Child SAs of a host.
fn states(network: &Network, host: usize) -> Vec<ChildState> {
    let sessions = network.hosts[host].endpoint.sessions();
    let details = sessions.into_iter().filter_map(|session| session.details);
    details.flat_map(|details| details.children).map(|child| child.state).collect()
}

#[test]
fn it_is_known_what_becomes_of_a_child_that_is_replaced() {
    let (mut network, _) = connected(31, |_, _| {});
    rekey_child(&mut network, A);
    let mut seen = [vec![], vec![]];
    for _ in 0..1000 {
        network.run(seconds(1) / 1000);
        for host in [A, B] {
            seen[host].extend(states(&network, host));
        }
    }
    assert!(seen[A].contains(&ChildState::Deleting) && !seen[A].contains(&ChildState::Rekeyed));
    assert!(seen[B].contains(&ChildState::Rekeyed) && !seen[B].contains(&ChildState::Deleting));
    assert_eq!(
        [states(&network, A), states(&network, B)],
        [[ChildState::Installed], [ChildState::Installed]]
    );
}

#[test]
fn a_rekeyed_child_replaces_the_old_one_on_both_sides() {
    for host in [A, B] {
        for groups in [vec![], vec![Group::Ecp256]] {
            let (mut network, _) =
                connected(30, |_, connection| connection.children[0].esp[0].groups.clone_from(&groups));
            let before = [network.hosts[A].spis(), network.hosts[B].spis()];
            rekey_child(&mut network, host);
            network.run(seconds(1));
            assert_one_session(&network);
            assert_ne!(before, [network.hosts[A].spis(), network.hosts[B].spis()]);
            assert!(network.hosts.iter().all(|host| !host.sending(0).expect("installed").held));
        }
    }
}

#[test]
fn forward_secrecy_survives_a_wrong_guess_of_the_group() {
    let (mut network, _) = connected(31, |host, connection| {
        connection.children[0].esp[0].groups =
            if host == A { vec![Group::X25519, Group::Ecp256] } else { vec![Group::Ecp256] };
    });
    rekey_child(&mut network, A);
    network.run(seconds(1));
    assert_one_session(&network);
    let creates =
        network.exchanges().into_iter().filter(|(exchange, _)| *exchange == Exchange::CreateChildSa);
    assert_eq!(creates.count(), 4);
}

/// While a child is rekeyed, what one side sends the other side receives, whatever is lost on the way.
#[test]
fn no_packet_is_lost_while_a_child_is_rekeyed() {
    for seed in 0..200 {
        let (mut network, _) = connected(3000 + seed, |_, _| {});
        network.weather.lost = 150;
        network.weather.delay = seconds(1);
        rekey_child(&mut network, usize::from(seed % 2 == 0));
        for _ in 0..600 {
            network.run(std::time::Duration::from_millis(100));
            for (one, other) in [(A, B), (B, A)] {
                let sending = network.hosts[one].sending(0).expect("always one");
                let spi = sending.install.sa.outbound.spi;
                assert!(
                    network.hosts[other].installed.contains_key(&spi),
                    "seed {seed}: {one} sends under {spi:x}"
                );
            }
        }
        network.weather = crate::network::Weather::default();
        network.run(seconds(300));
        assert_one_session(&network);
    }
}

#[test]
fn a_rekeyed_ike_sa_keeps_the_children() {
    for host in [A, B] {
        let (mut network, ids) = connected(32, |_, _| {});
        let before = network.hosts[A].spis();
        for _ in 0..3 {
            network.command(host, |endpoint, now, out| endpoint.rekey(now, ids[host], out));
            network.run(seconds(1));
            assert_nothing_leaks(&network, 1);
        }
        assert_eq!(network.hosts[A].spis(), before);
        // The new IKE SA serves: children are rekeyed in it, by either side.
        rekey_child(&mut network, 1 - host);
        network.run(seconds(1));
        assert_agree(&network, 1);
        assert_ne!(network.hosts[A].spis(), before);
        assert!(closed(&network, A).is_empty() && closed(&network, B).is_empty());
    }
}

#[test]
fn an_ike_sa_is_rekeyed_with_another_group_if_need_be() {
    let (mut network, ids) = connected(33, |host, connection| {
        connection.ike[0].groups =
            if host == A { vec![Group::X25519, Group::Ecp256] } else { vec![Group::Ecp256, Group::X25519] };
    });
    network.command(A, |endpoint, now, out| endpoint.rekey(now, ids[A], out));
    network.run(seconds(1));
    assert_nothing_leaks(&network, 1);
    let rekeyed =
        |event: &Event| matches!(event, Event::Rekeyed { suite, .. } if suite.group == Group::Ecp256);
    assert_eq!([A, B].map(|host| network.hosts[host].count(rekeyed)), [1, 1]);
}

#[test]
fn lifetimes_are_kept_for_days() {
    let (mut network, _) = connected(34, |_, _| {});
    network.run(24 * HOUR);
    assert_one_session(&network);
    let rekeyed = |event: &Event| matches!(event, Event::Rekeyed { .. });
    // Both sides rekey; after each rekeying both counters restart. Children live for an hour, the IKE SA for four.
    let up = network.hosts[A].count(|event| matches!(event, Event::ChildUp { .. }));
    assert!((25..=40).contains(&up), "{up}");
    let rekeyed = network.hosts[A].count(rekeyed);
    assert!((6..=10).contains(&rekeyed), "{rekeyed}");
    assert!(closed(&network, A).is_empty() && closed(&network, B).is_empty());
}

#[test]
fn closing_ends_both_sides() {
    for host in [A, B] {
        let (mut network, ids) = connected(35, |_, _| {});
        network.command(host, |endpoint, now, out| endpoint.close(now, ids[host], out));
        assert!(network.hosts[host].installed.is_empty(), "at once");
        network.run(seconds(1));
        assert_agree(&network, 0);
        assert_nothing_leaks(&network, 0);
        assert_eq!(closed(&network, host), [CloseReason::Asked]);
        assert_eq!(closed(&network, 1 - host), [CloseReason::ByPeer]);
        assert_eq!(network.hosts[A].endpoint.next_timeout(), None, "no timer is left");
    }
}

#[test]
fn a_delete_behind_a_request_is_owed_until_the_answer_to_that_arrives() {
    for host in [A, B] {
        let (mut network, ids) = connected(40, |_, _| {});
        rekey_child(&mut network, host);
        network.command(host, |endpoint, now, out| endpoint.remove_connection(now, ids[host], out));
        assert!(network.hosts[host].endpoint.owes_deletes(), "the window is one request");
        while network.hosts[host].endpoint.owes_deletes() {
            network.run(std::time::Duration::from_millis(1));
        }
        network.run(seconds(1));
        assert_eq!(closed(&network, 1 - host), [CloseReason::ByPeer]);
        assert_agree(&network, 0);
    }
    let (mut network, ids) = connected(41, |_, _| {});
    network.command(A, |endpoint, now, out| endpoint.remove_connection(now, ids[A], out));
    assert!(!network.hosts[A].endpoint.owes_deletes(), "the Delete was sent at once");
}

#[test]
fn closing_at_any_moment_leaves_nothing() {
    for milliseconds in 0..60 {
        for closing in [vec![A], vec![B], vec![A, B]] {
            let (mut network, ids) = acquainted(36, |_, _| {});
            begin(&mut network, A, ids[A]);
            network.run(std::time::Duration::from_millis(milliseconds));
            for host in closing {
                network.command(host, |endpoint, now, out| endpoint.close(now, ids[host], out));
            }
            network.run(seconds(600));
            assert_eq!(network.hosts[A].installed.len(), network.hosts[B].installed.len());
            assert_nothing_leaks(&network, established(&network.hosts[A]));
        }
    }
}

#[test]
fn a_deleted_child_is_gone_on_both_sides_and_the_ike_sa_stays() {
    let (mut network, _) = connected(37, |_, _| {});
    let spi = network.hosts[B].spis()[0];
    network.command(B, |endpoint, now, out| endpoint.delete_child(now, spi, out));
    network.run(seconds(1));
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 1);
    assert_eq!(network.hosts[A].count(|event| matches!(event, Event::ChildDown { .. })), 1);
}

#[test]
fn a_child_deleted_by_the_other_side_comes_back_where_that_is_wanted() {
    let (mut network, _) = connected(38, |host, connection| {
        if host == A {
            connection.when_lost = WhenLost::Restart;
        }
    });
    network.run(seconds(10));
    let spi = network.hosts[B].spis()[0];
    network.command(B, |endpoint, now, out| endpoint.delete_child(now, spi, out));
    network.run(seconds(1));
    assert_one_session(&network);
}

#[test]
fn a_child_that_the_other_side_deletes_each_time_is_not_made_in_a_loop() {
    for when_lost in [WhenLost::Restart, WhenLost::Clear] {
        let (mut network, ids) = connected(38, |host, connection| {
            if host == A {
                (connection.start, connection.when_lost) = (Start::OnTraffic, when_lost);
            }
        });
        network.log.clear();
        for _ in 0..600 {
            for spi in network.hosts[B].spis() {
                network.command(B, |endpoint, now, out| endpoint.delete_child(now, spi, out));
            }
            // It says so when it is too soon.
            let _ = network.command(A, |endpoint, now, out| endpoint.handle_traffic(now, ids[A], 0, out));
            network.run(std::time::Duration::from_millis(100));
        }
        let asked = network.exchanges();
        let asked = asked.iter().filter(|one| **one == (Exchange::CreateChildSa, false)).count();
        assert!((2..=8).contains(&asked), "{asked} in a minute");
    }
}

#[test]
fn deletions_of_the_same_child_may_cross() {
    let (mut network, _) = connected(39, |_, _| {});
    for host in [A, B] {
        let spi = network.hosts[host].spis()[0];
        network.command(host, |endpoint, now, out| endpoint.delete_child(now, spi, out));
    }
    network.run(seconds(1));
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 1);
}

#[test]
fn deletions_by_both_sides_may_cross() {
    let (mut network, ids) = connected(40, |_, _| {});
    for host in [A, B] {
        network.command(host, |endpoint, now, out| endpoint.close(now, ids[host], out));
    }
    network.run(seconds(60));
    assert_nothing_leaks(&network, 0);
}

#[test]
fn an_initiator_that_gets_no_answer_tries_for_ever() {
    let (mut network, _) = acquainted(44, |host, connection| {
        if host == A {
            connection.start = Start::Initiate;
        }
    });
    network.hosts[B].is_dead = true;
    network.run(HOUR);
    assert!(network.log.len() > 100);
    network.hosts[B].is_dead = false;
    network.run(seconds(300));
    assert_one_session(&network);
}

#[test]
fn removing_a_connection_ends_it_and_it_does_not_come_back() {
    let (mut network, ids) = connected(45, |_, connection| connection.start = Start::Initiate);
    network.command(A, |endpoint, now, out| endpoint.remove_connection(now, ids[A], out));
    network.run(seconds(5));
    assert_eq!(established(&network.hosts[A]), 0);
    network.run(seconds(300));
    assert_eq!((established(&network.hosts[A]), established(&network.hosts[B])), (0, 0));
}

#[test]
fn a_child_asked_for_twice_is_made_once() {
    let (mut network, ids) = connected(46, |host, connection| {
        let (ours, theirs) = if host == A { (1, 2) } else { (2, 1) };
        connection.children.push(child("second", ours + 10, theirs + 10));
    });
    assert_agree(&network, 2);
    for _ in 0..5 {
        begin(&mut network, A, ids[A]);
    }
    network.run(seconds(5));
    assert_agree(&network, 2);
}

#[test]
fn packets_do_not_initiate_a_connection_of_the_peer() {
    let (mut network, ids) = acquainted(50, |_, _| {});
    let asked = network.command(B, |endpoint, now, out| endpoint.handle_traffic(now, ids[B], 0, out));
    assert_eq!(asked, Err(CannotInitiate::NotOurs));
    assert!(network.exchanges().is_empty());
}

#[test]
fn packets_do_not_ask_again_and_again_for_what_is_refused() {
    // The other side does not have the packets, does not know us, or answers with what was not asked for.
    for (sessions, fault) in [(1, "packets"), (0, "identity"), (1, "mode")] {
        let (mut network, ids) = acquainted(49, |host, connection| {
            connection.start = Start::OnTraffic;
            match (host, fault) {
                (B, "packets") => connection.children = vec![child("other", 99, 98)],
                (B, "identity") => connection.remote_identity = Some("someone.else".parse().expect("a name")),
                (A, "mode") => connection.children[0].mode = Mode::Transport,
                _ => {}
            }
        });
        for _ in 0..300 {
            let asked = network.command(A, |endpoint, now, out| endpoint.handle_traffic(now, ids[A], 0, out));
            if let Err(error) = asked {
                assert!(
                    matches!(error, CannotInitiate::JustFailed(until) if until > network.now().monotonic)
                );
            }
            network.run(std::time::Duration::from_millis(100));
        }
        let asked = network.exchanges().iter().filter(|(_, is_response)| !is_response).count();
        assert!((3..=12).contains(&asked), "{asked} requests in half a minute");
        network.run(seconds(60));
        assert_eq!(established(&network.hosts[A]), sessions);
    }
}

#[test]
fn a_connection_changes_without_ending() {
    let change = |host: usize| {
        let mut connection = crate::support::connection(host);
        let (first, third) = (connection.children[0].clone(), {
            let (ours, theirs) = if host == A { (7, 8) } else { (8, 7) };
            child("third", ours, theirs)
        });
        connection.children = vec![third, first];
        connection.lifetime = HOUR;
        connection.start = if host == A { Start::Initiate } else { Start::Respond };
        connection
    };
    let (mut network, ids) = connected(51, |host, connection| {
        connection.start = if host == A { Start::Initiate } else { Start::Respond };
        connection.children.push(if host == A { child("second", 5, 6) } else { child("second", 6, 5) });
    });
    network.run(seconds(10));
    assert_agree(&network, 2);
    let before = network.hosts[A].spis();
    assert_eq!(before.len(), 2);
    for host in [B, A] {
        // The first is the second now, and the second is no more.
        let done = network.command(host, |endpoint, now, out| {
            endpoint.update_connection(now, ids[host], change(host), &[Some(1), None], out)
        });
        assert!(done);
    }
    network.run(seconds(10));
    assert_agree(&network, 2);
    let after = network.hosts[A].spis();
    assert_eq!(after.len(), 2);
    assert_eq!(after.iter().filter(|spi| before.contains(spi)).count(), 1, "one stays, one is new");
    network.run(seconds(3700));
    assert_agree(&network, 2);
    assert_nothing_leaks(&network, 1);
}
