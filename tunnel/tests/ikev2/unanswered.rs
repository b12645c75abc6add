//! A peer that is called and does not answer, or not any more, or to which no route leads.

use crate::network::{A, B};
use crate::support::{acquainted, begin, seconds};
use std::time::Duration;
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::{Asked, Cause, Event};

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
