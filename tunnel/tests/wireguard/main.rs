//! The protocol, played by two devices against each other.

mod network;

use crypto::Secret;
use network::{A, B, Datagram, Network, Weather, at};
use packet::DropReason;
use std::time::Duration;
use tunnel::wireguard::Event;
use tunnel::wireguard::device::Outbox;

const INITIATION: u8 = 1;
const RESPONSE: u8 = 2;
const COOKIE_REPLY: u8 = 3;
const DATA: u8 = 4;

const SECOND: Duration = Duration::from_secs(1);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A network on which A has sent a packet to B and B has answered.
fn connected(seed: u64) -> Network {
    let mut network = Network::new(seed);
    network.send(A, b"hello from a....");
    network.run(SECOND);
    network.send(B, b"hello from b....");
    network.run(SECOND);
    assert_eq!(network.hosts[B].received.pop().as_deref(), Some(&b"hello from a...."[..]));
    assert_eq!(network.hosts[A].received.pop().as_deref(), Some(&b"hello from b...."[..]));
    network
}

#[test]
fn a_packet_without_a_key_waits_for_the_handshake() {
    let network = connected(1);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
    assert_eq!(network.hosts[B].endpoint, Some(network.hosts[A].address), "B learned where A is");
}

#[test]
fn packets_wait_in_order_and_the_oldest_give_way() {
    let mut network = Network::new(2);
    for number in 0..200u8 {
        network.send(A, &[number; 16]);
    }
    network.run(SECOND);
    let received: Vec<u8> = network.hosts[B].received.iter().map(|packet| packet[0]).collect();
    let expected: Vec<u8> = (72..200).collect();
    assert_eq!(received, expected);
}

#[test]
fn an_initiator_with_nothing_to_send_confirms_with_a_keepalive() {
    let mut network = Network::new(3);
    network.keep_alive(A, seconds(25));
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.hosts[B].keepalives_received), (1, 1));
    assert!(network.hosts[B].sending.is_some(), "confirmed");
}

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
    let Some(tunnel::wireguard::Action::Send { message, .. }) = out.pop() else { panic!("an initiation") };
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
        let Some(tunnel::wireguard::Action::Send { message, .. }) = out.pop() else {
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

#[test]
fn under_load_a_cookie_must_be_answered() {
    let mut network = Network::new(14);
    network.hosts[B].under_load = true;
    network.send(A, b"hello from a....");
    network.run(SECOND);
    assert_eq!((network.count(COOKIE_REPLY), network.count(RESPONSE)), (1, 0));
    assert_eq!(network.drops(B, DropReason::CookieRequired), 1);
    network.run(seconds(6));
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (2, 1));
    assert_eq!(network.hosts[B].received, [b"hello from a...."]);
}

#[test]
fn a_cookie_reply_does_not_move_the_peer() {
    let mut network = Network::new(15);
    network.hosts[B].under_load = true;
    network.send(A, b"hello from a....");
    network.run(SECOND);
    let mut reply = network.last(COOKIE_REPLY);
    reply.from = "198.51.100.9:9".parse().expect("literal");
    network.arrive(reply);
    assert_eq!(network.hosts[A].endpoint, Some(network.hosts[B].address));
}

#[test]
fn a_peer_that_moves_is_followed_by_its_data() {
    let mut network = connected(16);
    network.hosts[A].address = "198.51.100.1:3000".parse().expect("literal");
    network.send(B, b"to the old place");
    network.run(SECOND);
    assert!(network.hosts[A].received.is_empty());
    network.send(A, b"from a new place");
    network.run(SECOND);
    network.send(B, b"to the new place");
    network.run(SECOND);
    assert_eq!(network.hosts[A].received, [b"to the new place"]);
    assert_eq!(network.count(INITIATION), 1, "no handshake was needed");
}

#[test]
fn damaged_data_does_not_move_the_peer() {
    let mut network = connected(17);
    let mut forged = network.last(DATA);
    forged.from = "198.51.100.9:9".parse().expect("literal");
    forged.to = network.hosts[B].address;
    let host_b_index = *network.hosts[B].installed.keys().next().expect("a session");
    forged.bytes[4..8].copy_from_slice(&host_b_index.to_le_bytes());
    forged.bytes[8] = 77;
    network.arrive(forged);
    assert_eq!(network.drops(B, DropReason::BadTag), 1);
    assert_eq!(network.hosts[B].endpoint, Some(network.hosts[A].address));
}

#[test]
fn a_replayed_packet_is_dropped_also_after_a_rekey() {
    let mut network = connected(18);
    network.send(A, b"once and no more");
    network.run(SECOND);
    let packet = network.last(DATA);
    network.arrive(packet.clone());
    assert_eq!(network.drops(B, DropReason::Replayed), 1);
    network.run(seconds(118));
    network.send(A, b"renews the keys.");
    network.run(SECOND);
    assert_eq!(network.count(RESPONSE), 2);
    network.arrive(packet);
    assert_eq!(network.drops(B, DropReason::Replayed), 2);
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
fn a_stopped_device_sends_and_answers_nothing() {
    let mut network = connected(25);
    for host in &mut network.hosts {
        host.device.stop(&mut Outbox::new());
        host.sending = None;
    }
    let before = network.log.len();
    network.send(A, b"is not sent.....");
    network.run(seconds(60));
    assert_eq!(network.log.len(), before);
    let initiation = network.last(INITIATION);
    network.arrive(initiation);
    assert_eq!(network.drops(B, DropReason::NotOurs), 1);
}

#[test]
fn a_peer_without_an_address_costs_no_handshake() {
    let mut network = Network::new(26);
    network.keep_alive(B, SECOND);
    network.send(B, b"where are you...");
    network.run(seconds(100));
    assert!(network.log.is_empty());
}

#[test]
fn changing_our_key_ends_all_sessions_and_removes_ourselves() {
    let mut network = connected(27);
    let mut out = Outbox::new();
    let peer = network.hosts[A].peer;
    // B's private key: from now on the peer is ourselves.
    assert_eq!(
        network.hosts[A].device.set_private_key(at(200).monotonic, Some(Secret::new([2; 32])), &mut out),
        Some(peer)
    );
    assert!(network.hosts[A].device.peers().is_empty());
    assert!(out.iter().any(|action| matches!(action, tunnel::wireguard::Action::Retire { .. })));
}

/// What must hold on any network: nothing arrives twice, nothing arrives that was not sent, and when the weather
/// clears everything arrives.
#[test]
fn any_weather_delivers_nothing_twice_and_nothing_false() {
    for seed in 1000..1200 {
        let mut network = Network::new(seed);
        let (rough, calm) = (
            Weather { lost: 200, duplicated: 100, damaged: 100, delay: Duration::from_millis(400) },
            Weather { delay: Duration::from_millis(5), ..Weather::default() },
        );
        network.weather = rough;
        let mut number = 0u64;
        let mut next = |prefix: u64| {
            number += 1;
            [prefix.to_le_bytes(), number.to_le_bytes()].concat()
        };
        for _ in 0..400 {
            network.send(A, &next(0));
            network.send(B, &next(1));
            network.run(Duration::from_millis(997));
        }
        for host in [A, B] {
            let received = &network.hosts[host].received;
            let distinct: std::collections::HashSet<_> = received.iter().collect();
            assert_eq!(distinct.len(), received.len(), "seed {seed}: a packet arrived twice");
            assert!(
                received.iter().all(|packet| packet.len() == 16 && packet[0] == 1 - host as u8),
                "seed {seed}"
            );
            assert!(received.len() > 200, "seed {seed}: {} of 400", received.len());
        }
        network.weather = calm;
        network.run(seconds(30));
        network.hosts[A].received.clear();
        network.hosts[B].received.clear();
        for _ in 0..20 {
            network.send(A, &next(0));
            network.send(B, &next(1));
            network.run(SECOND);
        }
        network.run(SECOND);
        assert_eq!(network.hosts[A].received.len(), 20, "seed {seed}");
        assert_eq!(network.hosts[B].received.len(), 20, "seed {seed}");
    }
}

#[test]
fn a_keepalive_asked_for_before_the_endpoint_is_known_calls_when_it_is() {
    let mut network = Network::unacquainted(40);
    network.keep_alive(A, seconds(25));
    network.run(SECOND);
    assert_eq!(network.count(INITIATION), 0);
    network.introduce(A, B);
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
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

#[test]
fn a_key_that_is_set_while_peers_are_to_be_kept_alive_calls_them() {
    let mut network = Network::new(42);
    network.set_private_key(A, None);
    network.keep_alive(A, seconds(25));
    network.run(seconds(60));
    assert_eq!(network.count(INITIATION), 0, "no peer is called without a key");
    network.set_private_key(A, Some([1; 32]));
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
    assert_eq!(network.hosts[B].keepalives_received, 1);
    // Another key ends the sessions, and calls for new ones. B does not know it.
    network.run(seconds(10));
    network.set_private_key(A, Some([7; 32]));
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (2, 1));
}

#[test]
fn who_is_eager_calls_as_soon_as_it_is_known_where_the_peer_is() {
    let mut network = Network::unacquainted(43);
    let now = network.now().monotonic;
    network.hosts[A].device.set_eager(now, true);
    network.run(SECOND);
    assert_eq!(network.count(INITIATION), 0);
    network.introduce(A, B);
    network.run(SECOND);
    assert_eq!((network.count(INITIATION), network.count(RESPONSE)), (1, 1));
    network.run(seconds(100));
    assert_eq!(network.count(INITIATION), 1, "once it is connected it has nothing to say");
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
