//! Rekeyings whose key exchanges are being computed elsewhere.

use crate::mallory::{Mallory, SPI, share};
use crate::network::{A, B, Network, exchange};
use crate::support::{
    acquainted, assert_agree, assert_nothing_leaks, assert_one_session, connected, esp_offer, net, seconds,
};
use crypto::exchange::Group;
use std::time::Duration;
use tunnel::ikev2::message::numbers::{notify, protocol};
use tunnel::ikev2::message::{Exchange, Header, KeyExchange, Notify, Payload};
use tunnel::ikev2::proposal::EspOffer;
use tunnel::ikev2::{ConnectionId, Event};

/// What is rekeyed.
#[derive(Clone, Copy, Debug)]
enum What {
    Child,
    Ike,
}

const BOTH: [What; 2] = [What::Child, What::Ike];

/// Two hosts that are connected, with a key exchange for each Child SA; from now on jobs take up to this.
fn slow(seed: u64, longest_job: [Duration; 2]) -> (Network, [ConnectionId; 2]) {
    let (mut network, ids) =
        connected(seed, |_, connection| connection.children[0].esp[0].groups = vec![Group::X25519]);
    network.longest_job = longest_job;
    (network, ids)
}

fn rekey(network: &mut Network, host: usize, ids: [ConnectionId; 2], what: What) {
    match what {
        What::Ike => network.command(host, |endpoint, now, out| endpoint.rekey(now, ids[host], out)),
        What::Child => {
            let Some(spi) = network.hosts[host].spis().first().copied() else { return };
            network.command(host, |endpoint, now, out| endpoint.rekey_child(now, spi, out));
        }
    }
}

fn rekeyed(network: &Network, host: usize) -> usize {
    network.hosts[host].count(|event| matches!(event, Event::Rekeyed { .. }))
}

#[test]
fn a_rekeying_waits_for_its_keys() {
    for seed in 0..50 {
        for host in [A, B] {
            let (mut network, ids) = slow(720 + seed, [Duration::from_millis(900); 2]);
            let before = network.hosts[A].spis();
            rekey(&mut network, host, ids, What::Child);
            network.run(seconds(20));
            assert_ne!(network.hosts[A].spis(), before);
            assert_agree(&network, 1);
            rekey(&mut network, host, ids, What::Ike);
            network.run(seconds(20));
            assert_eq!([A, B].map(|host| rekeyed(&network, host)), [1, 1]);
            assert_one_session(&network);
        }
    }
}

/// No thread that serves others computes a key exchange: each is a job, also that of an answer.
#[test]
fn each_side_makes_its_keys_in_jobs() {
    for what in BOTH {
        let (mut network, ids) = slow(770, [seconds(1_000_000); 2]);
        rekey(&mut network, A, ids, what);
        let create = |network: &Network, is_response| {
            let of_kind = |&(exchange, response): &(Exchange, bool)| {
                exchange == Exchange::CreateChildSa && response == is_response
            };
            network.exchanges().iter().filter(|it| of_kind(it)).count()
        };
        assert_eq!((network.working(A), create(&network, false)), (1, 0), "{what:?}: A generates");
        network.finish_all(A);
        network.run(Duration::from_millis(100));
        assert_eq!((network.working(B), create(&network, true)), (1, 0), "{what:?}: B exchanges");
        network.finish_all(B);
        network.run(Duration::from_millis(100));
        assert_eq!((network.working(A), create(&network, true)), (1, 1), "{what:?}: A agrees");
        network.finish_all(A);
        network.longest_job = [Duration::ZERO; 2];
        network.run(seconds(10));
        assert_one_session(&network);
    }
}

#[test]
fn a_request_sent_again_while_its_keys_are_made_is_answered_once() {
    for what in BOTH {
        let (mut network, ids) = slow(780, [Duration::ZERO, seconds(1_000_000)]);
        let before = network.log.len();
        rekey(&mut network, A, ids, what);
        network.run(seconds(30));
        let sent = |network: &Network, host: usize| {
            let of_host =
                network.log[before..].iter().filter(|(_, it)| it.from.ip() == network.hosts[host].address);
            of_host.filter(|(_, it)| exchange(&it.bytes).0 == Exchange::CreateChildSa).count()
        };
        assert!(sent(&network, A) > 3, "{what:?}: it is sent again");
        assert_eq!((network.working(B), sent(&network, B)), (1, 0), "{what:?}");
        network.finish_all(B);
        network.longest_job = [Duration::ZERO; 2];
        network.run(seconds(30));
        assert_eq!(sent(&network, B), 1, "{what:?}");
        assert_one_session(&network);
    }
}

/// As if the secret of the answer, which was sent first, had been there at once.
#[test]
fn a_request_that_arrives_while_an_answer_is_handled_comes_after_it() {
    let (mut network, ids) = slow(790, [Duration::ZERO; 2]);
    let created = network.hosts[B].spis();
    rekey(&mut network, A, ids, What::Child);
    network.longest_job = [seconds(1_000_000), Duration::ZERO];
    network.run(Duration::from_millis(100));
    let new = network.hosts[B].spis().into_iter().find(|spi| !created.contains(spi)).expect("B has answered");
    network.command(B, |endpoint, now, out| endpoint.rekey_child(now, new, out));
    network.run(Duration::from_millis(100));
    assert!(network.hosts[B].installed.contains_key(&new));
    network.longest_job = [Duration::ZERO; 2];
    network.finish_all(A);
    // Sooner than anything is sent again.
    network.run(Duration::from_millis(300));
    assert!(!network.hosts[B].installed.contains_key(&new), "it is replaced");
    assert_one_session(&network);
}

/// As if the secret had been there at once: B deletes the SA that it has replaced, and needs no keys for another successor.
#[test]
fn an_sa_replaced_while_a_request_waits_is_not_rekeyed_once_more() {
    for has_exchange in [true, false] {
        let with_group = EspOffer { groups: vec![Group::X25519], ..esp_offer() };
        let offers = [with_group.clone(), esp_offer()];
        let (mut network, _) = acquainted(795, |_, it| it.children[0].esp = offers.to_vec());
        let mut peer = Mallory::established(&mut network);
        let old = network.hosts[B].spis()[0];
        network.command(B, |endpoint, now, out| endpoint.rekey_child(now, old, out));
        network.longest_job[B] = seconds(1_000_000);
        let (share, nonce) = (share(), [5; 32]);
        let key = Payload::Ke(KeyExchange { group: Group::X25519.id(), public: share.public() });
        let [theirs, ours] = [1, 2].map(|it| vec![net(&format!("10.{it}.0.0"), &format!("10.{it}.0.255"))]);
        let answer = [
            Payload::Sa(EspOffer::propose(std::slice::from_ref(&with_group), SPI + 1)),
            Payload::Nonce(&nonce),
            key.clone(),
            Payload::TsI(ours.clone()),
            Payload::TsR(theirs.clone()),
        ];
        peer.respond(&mut network, Exchange::CreateChildSa, 0, &answer);
        assert_eq!(network.working(B), 1, "B agrees");
        let offer = if has_exchange { with_group } else { esp_offer() };
        let of_old = Notify { kind: notify::REKEY_SA, spi: Some((protocol::ESP, SPI)), data: &[] };
        let mut request = vec![
            Payload::Notify(of_old),
            Payload::Sa(EspOffer::propose(&[offer], SPI + 2)),
            Payload::Nonce(&nonce),
        ];
        request.extend(has_exchange.then_some(key));
        request.extend([Payload::TsI(theirs), Payload::TsR(ours)]);
        assert!(peer.ask(&mut network, Exchange::CreateChildSa, &request).is_none(), "it waits");
        let before = network.log.len();
        network.finish_all(B);
        assert_eq!(
            (network.working(B), network.hosts[B].installed.len()),
            (0, 2),
            "the old SA and its successor"
        );
        let answered = network.log[before..].iter().find(|(_, sent)| {
            let (header, ..) = Header::parse(&sent.bytes).expect("well formed");
            header.is_response && header.message_id == peer.next
        });
        let answered = &answered.expect("B answers").1.bytes;
        assert_eq!(peer.open(answered).error(), Some(notify::TEMPORARY_FAILURE));
    }
}

#[test]
fn of_two_rekeyings_whose_keys_are_made_at_once_one_survives() {
    for seed in 0..100 {
        for what in BOTH {
            for other in BOTH {
                let (mut network, ids) = slow(800 + seed, [Duration::from_millis(200); 2]);
                rekey(&mut network, A, ids, what);
                let head_start = network.pick(300) as u64;
                network.run(Duration::from_millis(head_start));
                rekey(&mut network, B, ids, other);
                network.run(seconds(500));
                assert_one_session(&network);
                let is_closed = |event: &Event| matches!(event, Event::Closed { .. });
                assert!(network.hosts.iter().all(|host| host.count(is_closed) == 0), "{what:?}, {other:?}");
            }
        }
    }
}

/// At any time of a rekeying, the Child SA or the whole session is deleted by either side.
#[test]
fn what_is_deleted_while_its_keys_are_made_leaves_nothing() {
    for step in 0..40 {
        for (what, host) in BOTH.into_iter().flat_map(|what| [(what, A), (what, B)]) {
            for closes in [true, false] {
                let (mut network, ids) = slow(900 + step, [Duration::from_millis(500); 2]);
                rekey(&mut network, A, ids, what);
                network.run(Duration::from_millis(50 * step));
                if closes {
                    network.command(host, |endpoint, now, out| endpoint.close(now, ids[host], out));
                } else if let Some(spi) = network.hosts[host].spis().first().copied() {
                    network.command(host, |endpoint, now, out| endpoint.delete_child(now, spi, out));
                }
                network.run(seconds(600));
                if closes {
                    assert_nothing_leaks(&network, 0);
                } else {
                    let left = network.hosts[A].spis().len();
                    assert!(left <= 1, "{what:?}: {:x?}", network.hosts[A].spis());
                    assert_agree(&network, left);
                    assert_nothing_leaks(&network, 1);
                }
            }
        }
    }
}

/// A daemon that ends waits for its jobs, and then sends nothing more.
#[test]
fn one_that_ends_when_its_jobs_are_done_leaves_nothing_at_the_peer() {
    let (mut network, ids) = slow(940, [Duration::ZERO; 2]);
    rekey(&mut network, A, ids, What::Ike);
    network.longest_job = [seconds(1_000_000), Duration::ZERO];
    network.run(Duration::from_millis(100));
    assert_eq!((network.working(A), rekeyed(&network, B)), (1, 1), "A agrees");
    network.command(A, |endpoint, now, out| endpoint.remove_connection(now, ids[A], out));
    network.finish_all(A);
    network.hosts[A].is_dead = true;
    network.run(seconds(1));
    assert_eq!(network.hosts[B].endpoint.load().ike_spis, 0);
    assert!(network.hosts[B].installed.is_empty());
}

#[test]
fn an_ike_sa_that_expires_while_its_successor_is_made_leaves_nothing() {
    let (mut network, ids) = connected(950, |_, connection| connection.lifetime = seconds(100));
    network.longest_job = [seconds(1_000_000); 2];
    rekey(&mut network, A, ids, What::Ike);
    network.run(seconds(400));
    network.finish_all(A);
    network.finish_all(B);
    network.run(seconds(100));
    assert_nothing_leaks(&network, 0);
}
