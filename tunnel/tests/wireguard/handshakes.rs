//! Handshakes: replays, cookies, crossing initiations and restarts.

use super::{COOKIE_REPLY, INITIATION, RESPONSE, SECOND, connected, seconds};
use crate::network::{A, B, Datagram, Network};
use crypto::Secret;
use packet::DropReason;
use std::time::Duration;
use tunnel::wireguard::device::Outbox;

#[test]
fn a_replayed_initiation_is_refused() {
    let mut network = connected(11);
    let initiation = network.last(INITIATION);
    network.run(SECOND);
    network.arrive(initiation);
    assert_eq!(network.drops(B, DropReason::ReplayedHandshake), 1);
}

#[test]
fn a_clock_that_goes_back_does_not_lock_us_out() {
    let mut network = connected(12);
    let peer = network.hosts[A].peer;
    let mut out = Outbox::new();
    let mut earlier = network.now();
    earlier.monotonic = earlier.monotonic + seconds(6);
    earlier.wall -= seconds(86_400);
    network.hosts[A].device.handle_renewal(earlier, peer, &mut out);
    let Some(tunnel::wireguard::DeviceAction::Send { message, .. }) = out.pop() else {
        panic!("an initiation")
    };
    let datagram = Datagram { from: network.hosts[A].address, to: network.hosts[B].address, bytes: message };
    network.arrive(datagram);
    assert_eq!(network.drops(B, DropReason::ReplayedHandshake), 0);
    assert_eq!(network.count(RESPONSE), 2);
}

#[test]
fn one_peer_cannot_make_us_compute_without_end() {
    let mut network = connected(13);
    let peer = network.hosts[A].peer;
    let mut consumed = 0;
    for step in 1..=20u64 {
        let mut out = Outbox::new();
        let mut now = network.now();
        now.monotonic = now.monotonic + seconds(6 * step);
        network.hosts[A].device.handle_renewal(now, peer, &mut out);
        let Some(tunnel::wireguard::DeviceAction::Send { message, .. }) = out.pop() else {
            panic!("an initiation")
        };
        let to = network.hosts[B].address;
        let before = network.count(RESPONSE);
        network.arrive(Datagram { from: network.hosts[A].address, to, bytes: message });
        consumed += network.count(RESPONSE) - before;
    }
    assert_eq!(consumed, 1, "all arrived in the same 20 ms");
    assert_eq!(network.drops(B, DropReason::RateLimited), 19);
}

/// A network on which A has sent a packet to B, which is under load.
fn under_load(seed: u64) -> Network {
    let mut network = Network::new(seed);
    network.hosts[B].under_load = true;
    network.send(A, b"hello from a....");
    network.run(SECOND);
    network
}

#[test]
fn under_load_a_cookie_must_be_answered() {
    let mut network = under_load(14);
    assert_eq!((network.count(COOKIE_REPLY), network.count(RESPONSE)), (1, 0));
    assert_eq!(network.drops(B, DropReason::CookieRequired), 1);
    network.run(seconds(6));
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (2, 1));
    assert_eq!(network.hosts[B].received, [b"hello from a...."]);
}

#[test]
fn a_cookie_reply_does_not_move_the_peer() {
    let mut network = under_load(15);
    let mut reply = network.last(COOKIE_REPLY);
    reply.from = "198.51.100.9:9".parse().expect("literal");
    network.arrive(reply);
    assert_eq!(network.hosts[A].endpoint, Some(network.hosts[B].address));
}

#[test]
fn a_new_preshared_key_counts_from_the_next_handshake() {
    let mut network = connected(21);
    for host in [A, B] {
        let peer = network.hosts[host].peer;
        network.hosts[host].device.set_preshared_key(peer, Secret::new([7; 32]));
    }
    network.run(seconds(121));
    network.send(A, b"renews the keys.");
    network.run(SECOND);
    assert_eq!((network.count(RESPONSE), network.drops(A, DropReason::BadHandshake)), (2, 0));
    let peer = network.hosts[A].peer;
    network.hosts[A].device.set_preshared_key(peer, Secret::new([8; 32]));
    network.run(seconds(121));
    network.send(A, b"renews the keys.");
    network.run(SECOND);
    assert_eq!(network.drops(A, DropReason::BadHandshake), 1, "they do not agree any more");
}

#[test]
fn a_bad_response_does_not_end_the_wait_for_the_good_one() {
    let mut network = Network::new(22);
    network.send(A, b"hello from a....");
    let initiation = network.last(INITIATION);
    network.arrive(initiation);
    let good = network.last(RESPONSE);
    let mut bad = good.clone();
    // Not damaged where MAC1 would notice: as if B had another preshared key.
    let peer = network.hosts[A].peer;
    network.hosts[A].device.set_preshared_key(peer, Secret::new([5; 32]));
    bad.from = "198.51.100.9:9".parse().expect("literal");
    network.arrive(bad);
    assert_eq!(network.drops(A, DropReason::BadHandshake), 1);
    network.hosts[A].device.set_preshared_key(peer, Secret::zero());
    network.arrive(good);
    assert!(network.hosts[A].sending.is_some());
}

#[test]
fn both_may_initiate_at_once() {
    for seed in 100..150 {
        let mut network = Network::new(seed);
        network.introduce(B, A);
        network.send(A, b"a.to.b..........");
        network.send(B, b"b.to.a..........");
        network.run(SECOND);
        for _ in 0..50 {
            network.send(A, b"a.to.b..........");
            network.send(B, b"b.to.a..........");
            network.run(Duration::from_millis(20));
        }
        assert_eq!(network.hosts[A].received.len(), 51, "seed {seed}");
        assert_eq!(network.hosts[B].received.len(), 51, "seed {seed}");
    }
}

#[test]
fn a_restarted_peer_is_back_after_one_handshake() {
    let mut network = connected(23);
    let fresh = Network::new(24);
    let [_, restarted] = fresh.hosts;
    network.hosts[B] = restarted;
    network.introduce(B, A);
    network.run(seconds(2));
    network.send(B, b"i am back.......");
    network.run(SECOND);
    assert_eq!(network.hosts[A].received, [b"i am back......."]);
    network.send(A, b"so i see........");
    network.run(SECOND);
    assert_eq!(network.hosts[B].received, [b"so i see........"]);
}

#[test]
fn a_responder_does_not_call_back_while_its_response_is_under_way() {
    let mut network = Network::new(41);
    network.send(A, b"from a");
    network.run(Duration::from_micros(1500));
    assert_eq!(network.count(RESPONSE), 1);
    network.send(B, b"from b");
    network.run(SECOND);
    assert_eq!(network.count(INITIATION), 1, "only A's");
    assert_eq!(network.hosts[A].received.len(), 1);
    assert_eq!(network.hosts[B].received.len(), 1);
}

/// As after a power cut at both sites.
#[test]
fn two_that_are_started_at_once_and_both_call_are_connected() {
    for seed in 50..70 {
        let mut network = Network::unacquainted(seed);
        // Two ways of up to 40 ms: initiations cross each other, or one is answered before the other is sent.
        network.weather.delay = Duration::from_millis(seed * 2 - 98);
        let now = network.now().monotonic;
        for (host, other) in [(A, B), (B, A)] {
            network.hosts[host].device.set_eager(now, true);
            network.introduce(host, other);
        }
        network.run(SECOND);
        assert!(network.hosts.iter().all(|host| host.sending.is_some()), "seed {seed}");
        for round in 0..100u16 {
            network.send(A, &round.to_le_bytes());
            network.send(B, &round.to_le_bytes());
            network.run(SECOND);
        }
        let received = network.hosts.each_ref().map(|host| host.received.len());
        assert_eq!(received, [100, 100], "seed {seed}");
    }
}

/// The first packet under a key and the next initiation may come in one burst: the data path has used the key when its
/// protocol hears of it.
#[test]
fn a_session_that_the_data_path_has_confirmed_outlives_the_next_handshake() {
    let mut network = Network::new(44);
    network.keep_alive(B, seconds(3600));
    network.run(SECOND);
    network.send(A, b"in an older key.");
    network.run(SECOND);
    let before: Vec<u32> = network.hosts[B].installed.keys().copied().collect();
    // A is restarted, and B has answered.
    let keys = network.hosts[A].installed.clone();
    network.set_private_key(A, None);
    network.set_private_key(A, Some([1; 32]));
    network.run(seconds(6));
    network.hosts[B].confirms_late = true;
    network.send(A, b"after a restart.");
    network.run(SECOND);
    let new: Vec<u32> =
        network.hosts[B].installed.keys().copied().filter(|index| !before.contains(index)).collect();
    assert_eq!((new.len(), network.hosts[B].received.len(), keys.len()), (1, 2, 1));
    // A is started once more, before B's protocol has had its turn.
    network.set_private_key(A, None);
    network.set_private_key(A, Some([1; 32]));
    network.run(seconds(6));
    network.hosts[B].confirms_late = false;
    network.send(A, b"and once more...");
    network.run(SECOND);
    assert_eq!(network.hosts[B].received.len(), 3);
    assert!(network.hosts[B].installed.contains_key(&new[0]), "packets under it may still be on their way");
    network.send(B, b"an answer.......");
    network.run(SECOND);
    assert_eq!(network.hosts[A].received.last().map(Vec::as_slice), Some(&b"an answer......."[..]));
}
