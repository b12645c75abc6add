//! A peer that is called and does not answer, or not any more, or to which no route leads.

use crate::network::{A, B};
use crate::support::{acquainted, begin, seconds};
use crypto::exchange::Group;
use std::time::Duration;
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::{Asked, Cause, Connection, Event};

#[test]
fn an_ike_auth_that_is_not_answered_is_told_from_a_peer_that_is_not_there() {
    let (mut network, [a, _]) = acquainted(403, |_, _| {});
    begin(&mut network, A, a);
    while !network.exchanges().contains(&(Exchange::IkeSaInit, true)) {
        network.run(Duration::from_millis(1));
    }
    network.hosts[B].is_dead = true;
    network.run(seconds(2));
    let early = |event: &Event| match event {
        Event::Unanswered { asked: Asked::Auth(message), sent, .. } => {
            *sent == 1 && message.datagrams == 1 && message.largest > 100
        }
        _ => false,
    };
    assert_eq!(network.hosts[A].count(early), 1, "{:?}", network.hosts[A].events);
    network.run(seconds(200));
    let at_last =
        |event: &Event| matches!(event, Event::Failed { authentic: true, cause: Cause::NoAuthAnswer(_), .. });
    assert_eq!(network.hosts[A].count(at_last), 1, "{:?}", network.hosts[A].events);
}

#[test]
fn a_peer_to_which_no_route_leads_is_told_so() {
    let (mut network, [a, _]) = acquainted(404, |_, it| it.local = None);
    let begun = network.command(A, |endpoint, now, out| endpoint.initiate(now, a, out));
    assert!(begun.is_err());
    let told = |event: &Event| matches!(event, Event::Failed { authentic: true, cause: Cause::NoRoute, path, .. } if path.remote.port() == 500);
    assert_eq!(network.hosts[A].count(told), 1, "{:?}", network.hosts[A].events);
}

#[test]
fn a_call_without_ike_auth_is_told_while_it_is_awaited() {
    let (mut network, [a, _]) = acquainted(405, |_, _| {});
    begin(&mut network, A, a);
    while !network.exchanges().contains(&(Exchange::IkeSaInit, true)) {
        network.run(Duration::from_millis(1));
    }
    network.hosts[A].is_dead = true;
    let told = |event: &Event| matches!(event, Event::Unfinished { path } if path.local.port() == 500);
    network.run(seconds(4));
    assert_eq!(network.hosts[B].count(told), 0, "{:?}", network.hosts[B].events);
    network.run(seconds(60));
    assert_eq!(network.hosts[B].count(told), 1, "{:?}", network.hosts[B].events);
}

#[test]
fn a_refusal_is_told_at_once_and_waits_for_a_better_answer() {
    let other = |host: usize, it: &mut Connection| {
        if host == A {
            it.ike[0].groups = vec![Group::Modp2048];
        }
    };
    let (mut network, [a, _]) = acquainted(406, other);
    begin(&mut network, A, a);
    network.run(Duration::from_millis(500));
    let told = |event: &Event| matches!(event, Event::Doubted { cause: Cause::NoProposal { .. }, .. });
    let failed = |event: &Event| matches!(event, Event::Failed { .. });
    let host = &network.hosts[A];
    assert_eq!((host.count(told), host.count(failed)), (1, 0), "{:?}", host.events);
    network.run(seconds(8));
    let host = &network.hosts[A];
    assert_eq!((host.count(told), host.count(failed)), (1, 1), "{:?}", host.events);
}
