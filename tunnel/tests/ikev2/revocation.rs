//! Peers whose certificates may be revoked: they wait while that is being asked.

use crate::certificates::{Authority, authority, list, plain, use_certificate};
use crate::network::{A, B, Nat, Network, exchange};
use crate::support::{
    acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, connection, established,
    seconds,
};
use crypto::pki::{Evidence, Revocation};
use std::sync::Arc;
use std::time::Duration;
use tunnel::ikev2::limits::{HALF_OPEN_TIME, HELD_TIME, HELD_TOTAL};
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::{Cause, ConnectionId, Event, Patience, Unproved};

/// Two hosts of which one must know that the other one is not revoked, shortly after A has begun.
fn strict(seed: u64, host: usize) -> (Network, [ConnectionId; 2], Arc<Evidence>, Authority) {
    let (root, evidence) = (authority(), Arc::new(Evidence::new(|| {})));
    let (mut network, ids) = acquainted(seed, |this, connection| {
        let mut credentials = plain(this, &root);
        if this == host {
            credentials.trust.set_revocation(Revocation::Strict);
            credentials.trust.use_evidence(Arc::clone(&evidence));
        }
        use_certificate(connection, credentials);
    });
    begin(&mut network, A, ids[A]);
    network.run(seconds(1));
    (network, ids, evidence, root)
}

/// What a host says of the other one's proof.
fn doubts(network: &Network, host: usize) -> Vec<&Unproved> {
    let events = network.hosts[host].events.iter();
    let why = events.filter_map(|event| match event {
        Event::Failed { cause: Cause::NotAuthentic { why, .. }, .. } => Some(why),
        _ => None,
    });
    why.collect()
}

fn answers_to_auth(network: &Network) -> usize {
    network.exchanges().iter().filter(|it| **it == (Exchange::IkeAuth, true)).count()
}

#[test]
fn who_calls_before_the_list_is_there_waits_for_it() {
    for host in [A, B] {
        let (mut network, _, evidence, root) = strict(80, host);
        network.run(seconds(7));
        assert!(doubts(&network, host).is_empty() && established(&network.hosts[host]) == 0, "it is held");
        let wall = network.now().wall;
        let queries = evidence.due(wall);
        assert_eq!(queries.len(), 1, "{queries:?}");
        evidence.answer(&queries[0], wall, Ok(list(&root, &[]))).expect("a list");
        network.run(seconds(1));
        assert_agree(&network, 1);
        network.run(seconds(10));
        assert_one_session(&network);
    }
}

#[test]
fn requests_that_come_again_meanwhile_are_not_answered_twice() {
    let (mut network, _, evidence, root) = strict(81, B);
    network.run(seconds(9));
    let requests = network.exchanges().iter().filter(|it| **it == (Exchange::IkeAuth, false)).count();
    assert!(requests > 1, "A has asked again");
    assert_eq!(answers_to_auth(&network), 0);
    let wall = network.now().wall;
    evidence.answer(&evidence.due(wall)[0], wall, Ok(list(&root, &[]))).expect("a list");
    network.run(seconds(1));
    assert_agree(&network, 1);
    let answers: Vec<&Vec<u8>> = { network.log.iter() }
        .filter(|(_, datagram)| exchange(&datagram.bytes) == (Exchange::IkeAuth, true))
        .map(|(_, datagram)| &datagram.bytes)
        .collect();
    assert!(answers.iter().all(|answer| *answer == answers[0]), "one answer");
}

#[test]
fn what_comes_of_the_question_decides() {
    for host in [A, B] {
        for (answer, said) in [(None, "refused the connection"), (Some(true), "is revoked")] {
            let (mut network, _, evidence, root) = strict(82, host);
            let wall = network.now().wall;
            let query = evidence.due(wall).remove(0);
            let serials: &[&[u8]] = if answer == Some(true) { &[&[7], &[8]] } else { &[] };
            let fetched = answer.map(|_| list(&root, serials)).ok_or("refused the connection".to_owned());
            let _ = evidence.answer(&query, wall, fetched);
            network.run(seconds(1));
            let doubts = doubts(&network, host);
            assert!(doubts.len() == 1 && doubts[0].to_string().contains(said), "{doubts:?}");
            assert!(!matches!(doubts[0], Unproved::Awaited(_)), "{doubts:?}");
            network.run(HALF_OPEN_TIME + seconds(300));
            assert_nothing_leaks(&network, 0);
        }
    }
}

#[test]
fn a_missing_status_is_not_awaited_for_ever() {
    for host in [A, B] {
        let (mut network, _, evidence, _) = strict(83, host);
        assert_eq!(evidence.due(network.now().wall).len(), 1, "it is asked, and not answered");
        network.run(HELD_TIME.saturating_sub(seconds(2)));
        assert!(doubts(&network, host).is_empty());
        network.run(seconds(2));
        let doubts = doubts(&network, host);
        assert!(matches!(doubts[..], [Unproved::Awaited(_)]), "{doubts:?}");
        network.run(HALF_OPEN_TIME + seconds(300));
        assert_nothing_leaks(&network, 0);
    }
}

/// A refused message is kept, so that the refusal can be sent again; but it takes no place from messages that wait.
#[test]
fn refused_peers_take_no_places_from_those_that_wait() {
    let (root, evidence) = (authority(), Arc::new(Evidence::new(|| {})));
    let configured = |host: usize| {
        let mut connection = connection(host);
        let mut credentials = plain(host, &root);
        if host == B {
            connection.remote = None;
            credentials.trust.set_revocation(Revocation::Strict);
            credentials.trust.use_evidence(Arc::clone(&evidence));
        }
        use_certificate(&mut connection, credentials);
        connection
    };
    let mut network = Network::new(86);
    network.add(B, configured(B));
    network.hosts[A].endpoint.set_patience(Patience { first: seconds(1), base_percent: 100, attempts: 60 });
    let ids: Vec<ConnectionId> = (0..=HELD_TOTAL).map(|_| network.add(A, configured(A))).collect();
    // A source has fewer half-open SAs than may wait.
    for (number, ids) in ids.chunks(25).enumerate() {
        let outside = [198, 51, 100, number as u8].into();
        network.nat = Some(Nat { inside: network.hosts[A].address, outside, shift: 0 });
        for id in ids {
            begin(&mut network, A, *id);
        }
        network.run(seconds(1));
    }
    assert_eq!(network.hosts[B].endpoint.load().half_open, HELD_TOTAL + 1);
    network.run(seconds(5));
    assert_eq!(answers_to_auth(&network), 0, "one has no place, and is not refused either");
    // The limit of all that wait has passed, and none of the refused has been forgotten yet.
    network.run(HELD_TIME.saturating_sub(seconds(8)) + seconds(4));
    assert!(answers_to_auth(&network) >= HELD_TOTAL);
    network.hosts[A].is_dead = true;
    network.run(seconds(1));
    assert_eq!(established(&network.hosts[B]), 0);
    let wall = network.now().wall;
    evidence.answer(&evidence.due(wall)[0], wall, Ok(list(&root, &[]))).expect("a list");
    network.run(seconds(1));
    assert!(established(&network.hosts[B]) > 0, "it waited in the place of a refused one");
}

/// What is held is a whole message: only who has the key of the certificate has one held.
#[test]
fn who_has_not_signed_does_not_wait() {
    let (root, evidence) = (authority(), Arc::new(Evidence::new(|| {})));
    let (mut network, ids) = acquainted(84, |host, connection| {
        let mut credentials = plain(host, &root);
        if host == B {
            credentials.trust.set_revocation(Revocation::Strict);
            credentials.trust.use_evidence(Arc::clone(&evidence));
        } else {
            credentials.key = plain(host, &root).key;
        }
        use_certificate(connection, credentials);
    });
    begin(&mut network, A, ids[A]);
    network.run(seconds(1));
    let doubts = doubts(&network, B);
    assert!(matches!(doubts[..], [Unproved::Proof(why)] if why.contains("signature")), "{doubts:?}");
}

#[test]
fn what_ends_while_it_is_held_leaves_nothing() {
    for host in [A, B] {
        for ended in [A, B] {
            let (mut network, ids, evidence, root) = strict(85, host);
            let wall = network.now().wall;
            let query = evidence.due(wall).remove(0);
            network.command(ended, |endpoint, now, out| endpoint.remove_connection(now, ids[ended], out));
            network.run(Duration::from_millis(500));
            evidence.answer(&query, wall, Ok(list(&root, &[]))).expect("a list");
            network.run(HALF_OPEN_TIME + seconds(300));
            assert_nothing_leaks(&network, 0);
        }
    }
}
