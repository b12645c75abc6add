//! A peer that comes back under another name, where any name will do.

use crate::mallory::Mallory;
use crate::network::{A, B, Network};
use crate::support::{acquainted, begin, seconds};
use tunnel::ikev2::limits::{CONTESTED_TIME, DOUBT_TIME};
use tunnel::ikev2::message::{Exchange, Header};
use tunnel::ikev2::{Cause, CloseReason, ConnectionId, Event, Identity, Start};

/// B serves anyone who has the secret. Mallory, who is honest here, is connected as host 1, and A is called otherwise.
fn with_holder(seed: u64) -> (Network, [ConnectionId; 2], Mallory) {
    let (mut network, ids) = acquainted(seed, |host, it| {
        if host == A {
            it.local_identity = Identity::Fqdn("renamed.example".to_owned());
            it.start = Start::OnTraffic;
        } else {
            it.remote_identity = None;
        }
    });
    let holder = Mallory::established(&mut network);
    (network, ids, holder)
}

fn contested(network: &Network) -> usize {
    network.hosts[B].count(|event| matches!(event, Event::Failed { cause: Cause::Contested { .. }, .. }))
}

/// How often B has ended a session whose peer did not answer.
fn dead(network: &Network) -> usize {
    network.hosts[B].count(|event| matches!(event, Event::Closed { reason: CloseReason::Dead, .. }))
}

#[test]
fn a_peer_that_returns_under_another_name_waits_until_its_old_session_has_not_answered() {
    let (mut network, [a, _], holder) = with_holder(401);
    // It is gone, and comes back as another.
    drop(holder);
    network.run(DOUBT_TIME + seconds(1));
    begin(&mut network, A, a);
    network.run(seconds(5));
    assert_eq!((contested(&network), network.hosts[A].installed.len()), (1, 0), "the old session may live");
    network.run(CONTESTED_TIME);
    assert_eq!(dead(&network), 1, "it was asked at once, and has not answered");
    assert!(network.hosts[B].installed.is_empty());
    network.command(A, |endpoint, now, out| endpoint.handle_traffic(now, a, 0, out)).expect("it may ask");
    network.run(seconds(5));
    assert_eq!((network.hosts[A].installed.len(), network.hosts[B].installed.len()), (1, 1));
    assert_eq!(contested(&network), 1);
}

/// The request that waits for its share is sent before the check, and must not take longer to be given up.
#[test]
fn an_old_session_that_computes_keys_is_given_up_as_soon() {
    let (mut network, [a, b], holder) = with_holder(403);
    drop(holder);
    network.run(DOUBT_TIME + seconds(1));
    network.longest_job[B] = seconds(1_000_000);
    network.command(B, |endpoint, now, out| endpoint.rekey(now, b, out));
    assert_eq!(network.working(B), 1, "B generates");
    network.longest_job[B] = seconds(0);
    begin(&mut network, A, a);
    network.run(seconds(5));
    assert_eq!((contested(&network), dead(&network)), (1, 0));
    network.finish_all(B);
    network.run(CONTESTED_TIME);
    assert_eq!(dead(&network), 1, "the request for a new IKE SA is not answered");
    assert!(network.hosts[B].installed.is_empty());
}

/// Answers what B has asked last of the holder, if it has asked anything; returns the number of that.
fn answer(network: &mut Network, holder: &mut Mallory) -> Option<u32> {
    let asked = network.log.iter().rev().find_map(|(_, sent)| {
        let (header, ..) = Header::parse(&sent.bytes).ok()?;
        let is_asked = (header.exchange, header.is_response) == (Exchange::Informational, false);
        (is_asked && header.initiator_spi == holder.spi).then_some(header.message_id)
    })?;
    holder.respond(network, Exchange::Informational, asked, &[]);
    Some(asked)
}

#[test]
fn a_living_peer_keeps_its_packets_however_often_another_wants_them() {
    let (mut network, [a, _], mut holder) = with_holder(402);
    let spis = network.hosts[B].spis();
    begin(&mut network, A, a);
    let mut asked = None;
    for _ in 0..30 {
        network.run(seconds(5));
        let _ = network.command(A, |endpoint, now, out| endpoint.handle_traffic(now, a, 0, out));
        asked = answer(&mut network, &mut holder).max(asked);
    }
    assert!(asked > Some(5) && asked < Some(40), "it is asked again and again, within limits: {asked:?}");
    assert_eq!((network.hosts[B].spis(), dead(&network)), (spis, 0));
    assert!(contested(&network) > 1 && network.hosts[A].installed.is_empty());
}
