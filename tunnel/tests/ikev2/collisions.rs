//! Both sides want the same at the same time (RFC 7296 sections 2.8.1, 2.8.2 and 2.25), on good and on bad networks.

use crate::network::{A, B, Network, Weather};
use crate::support::{
    HOUR, acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, child, connected,
    established, seconds,
};
use crypto::exchange::Group;
use std::time::Duration;
use tunnel::ikev2::{CloseReason, ConnectionId, Event, Start};

fn rekey_child(network: &mut Network, host: usize) {
    let count = network.hosts[host].spis().len();
    if count > 0 {
        let spi = network.hosts[host].spis()[network.pick(count)];
        network.command(host, |endpoint, now, out| endpoint.rekey_child(now, spi, out));
    }
}

fn rekey_ike(network: &mut Network, host: usize, ids: [ConnectionId; 2]) {
    network.command(host, |endpoint, now, out| endpoint.rekey(now, ids[host], out));
}

/// Waits until everything that was begun has ended.
fn settle(network: &mut Network) {
    network.weather = Weather { delay: Duration::from_millis(10), ..Weather::default() };
    network.run(seconds(500));
}

fn assert_no_one_closed(network: &Network) {
    for host in &network.hosts {
        assert_eq!(host.count(|event| matches!(event, Event::Closed { .. })), 0, "{:?}", host.events);
    }
}

#[test]
fn of_two_new_children_one_survives() {
    for seed in 0..200 {
        let (mut network, _) = connected(5000 + seed, |_, _| {});
        rekey_child(&mut network, A);
        rekey_child(&mut network, B);
        network.run(seconds(1));
        assert_one_session(&network);
        assert!(network.hosts.iter().all(|host| !host.sending(0).expect("installed").held));
    }
}

/// Packets on both sides ask for the same at once.
#[test]
fn of_two_children_asked_for_at_once_one_survives() {
    for seed in 0..200 {
        let (mut network, ids) = connected(5500 + seed, |_, connection| connection.start = Start::OnTraffic);
        let spi = network.hosts[A].spis()[0];
        network.command(A, |endpoint, now, out| endpoint.delete_child(now, spi, out));
        network.run(seconds(30));
        assert_agree(&network, 0);
        for host in [A, B] {
            network
                .command(host, |endpoint, now, out| endpoint.handle_traffic(now, ids[host], 0, out))
                .expect("known");
        }
        network.run(seconds(60));
        assert_one_session(&network);
    }
}

#[test]
fn of_two_new_ike_sas_one_survives() {
    for seed in 0..200 {
        let (mut network, ids) = connected(6000 + seed, |_, _| {});
        let before = network.hosts[A].spis();
        rekey_ike(&mut network, A, ids);
        rekey_ike(&mut network, B, ids);
        network.run(seconds(60));
        assert_eq!(network.hosts[A].spis(), before);
        assert_one_session(&network);
        assert_no_one_closed(&network);
        // Both sides mean the same one.
        rekey_child(&mut network, A);
        network.run(seconds(1));
        rekey_child(&mut network, B);
        network.run(seconds(1));
        assert_agree(&network, 1);
    }
}

#[test]
fn a_child_and_the_ike_sa_may_be_rekeyed_at_once() {
    for seed in 0..200 {
        let (mut network, ids) = connected(7000 + seed, |_, _| {});
        rekey_child(&mut network, A);
        rekey_ike(&mut network, B, ids);
        settle(&mut network);
        assert_one_session(&network);
        assert_no_one_closed(&network);
    }
}

/// Everything at once, at random, for some minutes, with what is lost, doubled, reordered and damaged. Returns whether
/// a session has died of it.
fn collide(seed: u64, longest_job: Duration) -> bool {
    let (mut network, ids) = connected(10_000 + seed, |host, connection| {
        let (ours, theirs) = if host == A { (1, 2) } else { (2, 1) };
        connection.children.push(child("second", ours + 10, theirs + 10));
        // What a lost message seems to kill is not what is tested here.
        connection.lifetime = 1000 * HOUR;
        for child in &mut connection.children {
            child.lifetime = 1000 * HOUR;
            if !longest_job.is_zero() {
                child.esp[0].groups = vec![Group::X25519];
            }
        }
    });
    assert_agree(&network, 2);
    network.longest_job = [longest_job; 2];
    network.weather = Weather {
        lost: [0, 100, 300][seed as usize % 3],
        duplicated: 100,
        damaged: 20,
        delay: Duration::from_millis([20, 500, 3000][seed as usize / 3 % 3]),
    };
    for _ in 0..20 {
        let host = network.pick(2);
        match network.pick(5) {
            0 => rekey_ike(&mut network, host, ids),
            1..=3 => rekey_child(&mut network, host),
            _ => {}
        }
        let pause = network.pick(2000) as u64;
        network.run(Duration::from_millis(pause));
        // The window of an IKE SA is 1, and a session has few of them.
        assert!([A, B].iter().all(|host| network.working(*host) <= 8), "seed {seed}");
    }
    settle(&mut network);
    let is_dead = |event: &Event| matches!(event, Event::Closed { reason: CloseReason::Dead, .. });
    if network.hosts.iter().any(|host| host.count(is_dead) > 0) {
        return true;
    }
    for host in [A, B] {
        for child in [0, 1] {
            let of_child = network.hosts[host].installed.values().filter(|sa| sa.install.child == child);
            assert_eq!(of_child.count(), 1, "seed {seed}: host {host}, child {child}");
        }
    }
    assert_agree(&network, 2);
    assert_nothing_leaks(&network, 1);
    assert_no_one_closed(&network);
    false
}

#[test]
fn whatever_collides_one_of_each_survives() {
    let dead = (0..2000).filter(|&seed| collide(seed, Duration::ZERO)).count();
    assert!(dead < 100, "{dead} of 2000 died of the weather");
}

#[test]
fn whatever_collides_while_keys_are_made_one_of_each_survives() {
    let dead = (0..600)
        .filter(|&seed| collide(seed, Duration::from_millis([50, 1000, 5000][seed as usize / 9 % 3])));
    let dead = dead.count();
    assert!(dead < 30, "{dead} of 600 died of the weather");
}

#[test]
fn both_sides_may_begin_at_once() {
    for seed in 0..300 {
        let (mut network, ids) = acquainted(8000 + seed, |_, _| {});
        network.weather.delay = Duration::from_millis(100);
        begin(&mut network, A, ids[A]);
        let head_start = network.pick(300) as u64;
        network.run(Duration::from_millis(head_start));
        begin(&mut network, B, ids[B]);
        network.run(seconds(60));
        assert_eq!([A, B].map(|host| established(&network.hosts[host])), [1, 1], "seed {seed}");
        assert_one_session(&network);
    }
}

#[test]
fn both_sides_may_begin_at_once_for_ever_on_a_bad_network() {
    for seed in 0..100 {
        let (mut network, _) = acquainted(9000 + seed, |_, connection| connection.start = Start::Initiate);
        network.weather = Weather { lost: 200, duplicated: 100, damaged: 20, delay: seconds(1) };
        network.run(seconds(300));
        settle(&mut network);
        network.run(seconds(600));
        assert_one_session(&network);
    }
}
