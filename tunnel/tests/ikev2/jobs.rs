//! Sessions whose keys and signatures are being made elsewhere.

use crate::certificates::{acquainted_by_certificates, certified};
use crate::network::{A, B, Network};
use crate::support::{
    acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, child, connection, seconds,
};
use std::time::Duration;
use tunnel::ikev2::limits::{HALF_OPEN_TIME, REFUSED_TIME};
use tunnel::ikev2::{Cause, Connection, ConnectionId, Event, Start};

/// Two hosts whose jobs take their time, after `passed`.
fn slow(seed: u64, passed: Duration) -> (Network, [ConnectionId; 2]) {
    let (mut network, ids) = acquainted_by_certificates(seed);
    network.longest_job = [seconds(1); 2];
    begin(&mut network, A, ids[A]);
    network.run(passed);
    (network, ids)
}

#[test]
fn a_slow_job_is_waited_for() {
    for seed in 0..50 {
        let (network, _) = slow(700 + seed, seconds(20));
        assert_one_session(&network);
    }
}

#[test]
fn what_is_ended_while_it_is_made_leaves_nothing() {
    for step in 0..60 {
        for host in [A, B] {
            let (mut network, ids) = slow(701, Duration::from_millis(50 * step));
            network.command(host, |endpoint, now, out| endpoint.remove_connection(now, ids[host], out));
            network.run(seconds(300) + HALF_OPEN_TIME);
            assert_nothing_leaks(&network, 0);
        }
    }
}

#[test]
fn what_is_asked_of_it_meanwhile_is_not_forgotten() {
    let (mut network, ids) = acquainted(702, |host, connection| {
        connection.children.push(child("more", host as u8 + 1, 2 - host as u8));
        connection.start = Start::OnTraffic;
    });
    network.longest_job = [seconds(1); 2];
    for wanted in [0, 1] {
        let asked =
            network.command(A, |endpoint, now, out| endpoint.handle_traffic(now, ids[A], wanted, out));
        asked.expect("known");
        network.run(Duration::from_millis(10));
    }
    network.run(seconds(20));
    assert_agree(&network, 2);
    assert_nothing_leaks(&network, 1);
}

/// A peer is accepted only under the present configuration.
#[test]
fn a_configuration_changed_during_a_job_is_checked_again() {
    let mut refused = 0;
    for step in 0..60 {
        let (mut network, ids) = slow(703, Duration::from_millis(50 * step));
        network.command(B, |endpoint, now, out| {
            endpoint.update_connection(now, ids[B], connection(B), &[Some(0)], out);
        });
        network.run(seconds(10) + REFUSED_TIME);
        refused += network.hosts[B]
            .count(|event| matches!(event, Event::Failed { cause: Cause::NotAuthentic { .. }, .. }));
    }
    assert!(refused > 0, "one of them was being looked at");
}

#[test]
fn a_reconfigured_connection_comes_up_again() {
    for step in 0..60 {
        let connections = certified().map(|connection| Connection { start: Start::Initiate, ..connection });
        let (mut network, ids) = acquainted(706, |host, connection| {
            connection.clone_from(&connections[host]);
            if host == B {
                connection.start = Start::Respond;
            }
        });
        network.longest_job = [seconds(1); 2];
        network.run(Duration::from_millis(50 * step));
        network.command(A, |endpoint, now, out| {
            endpoint.update_connection(now, ids[A], connections[A].clone(), &[Some(0)], out);
        });
        // What is done by now comes before any timer.
        network.finish_all(A);
        network.run(seconds(300));
        assert_one_session(&network);
    }
}
