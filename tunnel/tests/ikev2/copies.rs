//! Repeated and copied messages: where they are answered, and which of them move the path.

use crate::mallory::Mallory;
use crate::network::{A, B, Datagram, Network, exchange};
use crate::paths::{V4, authenticated, authenticated_as, ip, served, taken, wish};
use crate::support::{acquainted, assert_agree, begin, seconds};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tunnel::esp::Mode;
use tunnel::ikev2::message::{Envelope, Exchange, emit};
use tunnel::ikev2::selectors::host;
use tunnel::ikev2::{Cause, Event};

#[test]
fn a_repeated_request_is_answered_where_the_first_came_from() {
    for claims_nat in [false, true] {
        let (mut network, _) = served(V4, Mode::Tunnel, |_, _| {});
        let mut mallory = authenticated_as(&mut network, V4, claims_nat);
        let (first, chain) = emit(&[]);
        let header = mallory.header(Exchange::Informational, mallory.next);
        let datagram = mallory.seal(&header, Envelope::Whole, first, &chain);
        mallory.send(&mut network, datagram.clone());
        let own = mallory.address;
        for repeater in ["198.51.100.9:4500", "203.0.113.66:1", "192.0.2.1:4500"] {
            mallory.address = repeater.parse().expect("literal");
            let before = network.log.len();
            mallory.send(&mut network, datagram.clone());
            let to: Vec<SocketAddr> = network.log[before..].iter().map(|(_, sent)| sent.to).collect();
            assert_eq!(to, [own], "repeated from {repeater}");
        }
    }
}

/// Section 2.23: a repeated request moves nothing, nor does an old one, nor one whose turn has not come.
#[test]
fn only_what_is_new_and_in_its_turn_moves_the_path() {
    let (mut network, third) = served(V4, Mode::Tunnel, |_, _| {});
    let mut mallory = authenticated(&mut network, V4);
    let childish = wish(Mode::Tunnel, host(ip(V4.mallory)), V4.gateway);
    mallory.ask(&mut network, Exchange::CreateChildSa, &childish).expect("its own");
    assert_eq!(taken(&network, third), [host(ip(V4.mallory))]);
    let own = mallory.address;
    let path = |network: &Network| network.hosts[B].path.expect("installed").remote;
    assert_eq!(path(&network), own);
    let (first, chain) = emit(&[]);
    for number in [mallory.next - 2, mallory.next - 1, mallory.next + 1, u32::MAX] {
        let header = mallory.header(Exchange::Informational, number);
        let datagram = mallory.seal(&header, Envelope::Whole, first, &chain);
        mallory.address = "198.51.100.9:4500".parse().expect("literal");
        mallory.send(&mut network, datagram);
        assert_eq!(path(&network), own, "number {number}");
    }
    // Its turn.
    mallory.ask(&mut network, Exchange::Informational, &[]).expect("answered");
    assert_eq!(path(&network), mallory.address);
}

/// An observer that sends a copy of IKE_AUTH from its own address before the original arrives must not draw ESP to itself, with
/// ESP always in UDP, which is the default, and without.
#[test]
fn a_copy_of_ike_auth_from_another_address_is_ignored() {
    for force in [[false, false], [true, false], [false, true], [true, true]] {
        for port in [500, 4500, 9] {
            let (mut network, ids) = acquainted(55, |host, connection| {
                connection.force_encapsulation = force[host];
                if host == B {
                    connection.remote = None;
                }
            });
            let copied = Arc::new(Mutex::new(None));
            let copy = Arc::clone(&copied);
            network.on_the_way = Some(Box::new(move |datagram| {
                if exchange(&datagram.bytes) == (Exchange::IkeAuth, false) {
                    return copy.lock().expect("not poisoned").replace(datagram.clone()).is_some();
                }
                true
            }));
            begin(&mut network, A, ids[A]);
            network.run(Duration::from_millis(500));
            let copied = copied.lock().expect("not poisoned").clone().expect("it was sent");
            let from = SocketAddr::new(ip("198.51.100.66"), port);
            let before = network.log.len();
            network.arrive(Datagram { from, ..copied });
            assert!(network.hosts[B].installed.is_empty(), "{force:?}");
            assert_eq!(network.log.len(), before, "it is not answered");
            let moved = |event: &Event| {
                matches!(event, Event::Failed { authentic: false, cause: Cause::Moved { .. }, .. })
            };
            assert_eq!(network.hosts[B].count(moved), 1);
            network.run(seconds(5));
            assert_agree(&network, 1);
            let path = network.hosts[B].path.expect("installed");
            assert_eq!(path.remote.ip(), network.hosts[A].address);
        }
    }
}

/// A refusal is sent again only to the source of the first request.
#[test]
fn a_refused_ike_auth_is_not_answered_to_who_copies_it() {
    let (mut network, _) = acquainted(56, |_, _| {});
    let mut mallory = Mallory::new();
    mallory.claims_nat = true;
    mallory.secret = b"a guess";
    let mut mallory = mallory.begin(&mut network);
    mallory.float();
    let (first, chain) = emit(&mallory.auth_payloads());
    let header = mallory.header(Exchange::IkeAuth, 1);
    let datagram = mallory.seal(&header, Envelope::Whole, first, &chain);
    assert_eq!(mallory.send(&mut network, datagram.clone()).len(), 1);
    let own = mallory.address;
    mallory.address.set_port(9);
    let before = network.log.len();
    mallory.send(&mut network, datagram);
    let to: Vec<SocketAddr> = network.log[before..].iter().map(|(_, sent)| sent.to).collect();
    assert_eq!(to, [own]);
}

/// An altered copy of the answer to IKE_SA_INIT arrives before the genuine one. The responder cannot know that it was altered:
/// it makes the SA, whose deletion is lost, and repeats its answer when the genuine one is tried.
#[test]
fn an_altered_answer_before_the_genuine_one_does_not_leave_both_sides_with_different_sas() {
    let (mut network, ids) = acquainted(980, |_, _| {});
    network.on_the_way = Some(Box::new(|datagram| {
        !matches!(exchange(&datagram.bytes), (Exchange::IkeSaInit, true) | (Exchange::Informational, _))
    }));
    begin(&mut network, A, ids[A]);
    network.run(Duration::from_millis(100));
    let is_answer = |sent: &&Datagram| exchange(&sent.bytes) == (Exchange::IkeSaInit, true);
    let genuine = network.log.iter().map(|(_, sent)| sent).find(is_answer).expect("B has answered").clone();
    let mut altered = genuine.clone();
    // The type of the last notification.
    *altered.bytes.last_mut().expect("it is not empty") ^= 1;
    network.arrive(altered);
    network.arrive(genuine);
    network.run(seconds(20));
    assert_eq!(network.hosts[B].count(|event| matches!(event, Event::Established { .. })), 1);
    assert_agree(&network, 1);
}
