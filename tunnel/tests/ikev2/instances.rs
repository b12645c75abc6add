//! Profiles: one connection serves many peers at once, each as an instance with its own session and its own packets.

use crate::mallory::Mallory;
use crate::network::{B, Network};
use crate::support::{acquainted, child, esp_offer, established, net, seconds};
use std::net::SocketAddr;
use tunnel::esp::TrafficSelector;
use tunnel::ikev2::limits::{CONTESTED_TIME, DOUBT_TIME, INSTANCES};
use tunnel::ikev2::message::numbers::notify;
use tunnel::ikev2::message::{Delete, Exchange, Notify, Payload};
use tunnel::ikev2::proposal::EspOffer;
use tunnel::ikev2::{Cause, CloseReason, ConnectionId, Event, Outbox};

/// B is a hub for peers of any address and identity that have the secret, with any part of 10.0.0.0/8.
fn hub(seed: u64) -> (Network, ConnectionId) {
    let (network, [_, profile]) = acquainted(seed, |host, it| {
        if host == B {
            (it.remote, it.remote_identity) = (None, None);
            it.children[0].remote = vec![net("10.0.0.0", "10.255.255.255")];
        }
    });
    (network, profile)
}

/// The identities of two branches, as the body of an identification payload.
const NORTH: &[u8] = b"\x02\0\0\0north.example";
const SOUTH: &[u8] = b"\x02\0\0\0south.example";

/// 10.`number`.0.0/16
fn lan(number: u8) -> TrafficSelector {
    net(&format!("10.{number}.0.0"), &format!("10.{number}.255.255"))
}

/// A branch that has sent its first message, with the `number`th SPI.
fn begun(network: &mut Network, identity: &'static [u8], address: &str, number: u64) -> Mallory {
    let mut branch = Mallory::at(address.parse().expect("literal"));
    branch.identity = identity;
    branch.spi += number << 16;
    branch.begin(network)
}

/// A branch, authenticated without a Child SA; `more` is added to IKE_AUTH.
fn authenticated(
    network: &mut Network,
    identity: &'static [u8],
    (address, number): (&str, u64),
    more: Option<Payload<'static>>,
) -> (Mallory, Option<u16>) {
    let mut branch = begun(network, identity, address, number);
    let mut payloads: Vec<_> = branch.auth_payloads().into_iter().take(2).collect();
    payloads.extend(more);
    let error = branch.ask(network, Exchange::IkeAuth, &payloads).expect("answered").error();
    (branch, error)
}

/// The error with which B answers a branch that asks for these packets.
fn asks(network: &mut Network, branch: &mut Mallory, wanted: TrafficSelector) -> Option<u16> {
    let list = [
        Payload::Sa(EspOffer::propose(&[esp_offer()], branch.spi as u32 ^ (branch.spi >> 16) as u32)),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![wanted]),
        Payload::TsR(vec![net("10.2.0.0", "10.2.0.255")]),
    ];
    branch.ask(network, Exchange::CreateChildSa, &list).expect("answered").error()
}

const NORTH_AT: (&str, u64) = ("198.51.100.1:500", 1);
const SOUTH_AT: (&str, u64) = ("198.51.100.2:500", 2);

/// The connections of the installed SAs, with their remote selectors.
fn held(network: &Network) -> Vec<(ConnectionId, Vec<TrafficSelector>)> {
    let installed = network.hosts[B].installed.values();
    let mut held: Vec<_> =
        installed.map(|it| (it.install.connection, it.install.sa.remote.clone())).collect();
    held.sort_by_key(|(connection, _)| *connection);
    held
}

fn contested(network: &Network) -> usize {
    network.hosts[B].count(|event| matches!(event, Event::Failed { cause: Cause::Contested { .. }, .. }))
}

#[test]
fn a_profile_serves_two_peers_at_once_each_with_its_part() {
    let (mut network, profile) = hub(500);
    let (mut north, _) = authenticated(&mut network, NORTH, NORTH_AT, None);
    let (mut south, _) = authenticated(&mut network, SOUTH, SOUTH_AT, None);
    assert_eq!(asks(&mut network, &mut north, lan(3)), None);
    assert_eq!(asks(&mut network, &mut south, lan(4)), None);
    let held = held(&network);
    let [(one, of_one), (other, of_other)] = &held[..] else { panic!("{held:?}") };
    assert_eq!((&of_one[..], &of_other[..]), (&[lan(3)][..], &[lan(4)][..]));
    assert!(one != other && *one != profile && *other != profile, "each has an ID of its own");
    let hub = &network.hosts[B];
    assert_eq!(hub.instances.values().copied().collect::<Vec<_>>(), [profile; 2]);
    assert_eq!([one, other].map(|id| hub.endpoint.profile(*id)), [Some(profile); 2]);
    assert_eq!((hub.endpoint.profile(profile), hub.endpoint.load().instances), (None, 2));
    // One ends, the other one stays.
    north.ask(&mut network, Exchange::Informational, &[Payload::Delete(Delete::Ike)]).expect("answered");
    assert_eq!(network.hosts[B].instances.keys().collect::<Vec<_>>(), [other]);
    assert_eq!(network.hosts[B].installed.len(), 1);
}

#[test]
fn two_instances_never_have_the_same_packets_whichever_asks_for_more() {
    for (seed, first, second) in [(501, lan(3), lan(3)), (502, net("10.0.0.0", "10.255.255.255"), lan(3))] {
        for (first, second) in [(first.clone(), second.clone()), (second, first)] {
            let (mut network, _) = hub(seed);
            let (mut north, _) = authenticated(&mut network, NORTH, NORTH_AT, None);
            let (mut south, _) = authenticated(&mut network, SOUTH, SOUTH_AT, None);
            assert_eq!(asks(&mut network, &mut north, first), None);
            assert_eq!(asks(&mut network, &mut south, second), Some(notify::TS_UNACCEPTABLE));
            assert_eq!(contested(&network), 1);
            assert_eq!(asks(&mut network, &mut north, lan(3)), None, "its own are not in its way");
        }
    }
}

/// A profile with a small network within a large one: elsewhere the small one would precede.
#[test]
fn nested_networks_of_a_profile_do_not_order_its_instances() {
    let (mut network, [_, _]) = acquainted(503, |host, it| {
        if host == B {
            (it.remote, it.remote_identity) = (None, None);
            it.children[0].remote = vec![net("10.0.0.0", "10.255.255.255"), lan(3)];
            let mut other = child("other", 2, 0);
            (other.remote, other.priority) = (vec![lan(3)], Some(1));
            it.children.push(other);
        }
    });
    let (mut north, _) = authenticated(&mut network, NORTH, NORTH_AT, None);
    let (mut south, _) = authenticated(&mut network, SOUTH, SOUTH_AT, None);
    assert_eq!(asks(&mut network, &mut north, net("10.3.0.0", "10.4.255.255")), None);
    assert_eq!(asks(&mut network, &mut south, lan(3)), Some(notify::TS_UNACCEPTABLE));
}

#[test]
fn an_instance_that_died_loses_its_packets_to_one_that_asks_for_them() {
    let (mut network, _) = hub(504);
    let (mut north, _) = authenticated(&mut network, NORTH, NORTH_AT, None);
    assert_eq!(asks(&mut network, &mut north, lan(3)), None);
    drop(north);
    network.run(DOUBT_TIME + seconds(1));
    let (mut south, _) = authenticated(&mut network, SOUTH, SOUTH_AT, None);
    assert_eq!(asks(&mut network, &mut south, lan(3)), Some(notify::TS_UNACCEPTABLE), "it may be alive");
    network.run(CONTESTED_TIME);
    assert_eq!(asks(&mut network, &mut south, lan(3)), None);
    assert_eq!((network.hosts[B].instances.len(), network.hosts[B].installed.len()), (1, 1));
}

#[test]
fn a_peer_that_comes_back_is_the_same_instance() {
    for initial_contact in [true, false] {
        let (mut network, _) = hub(505);
        let (mut north, _) = authenticated(&mut network, NORTH, NORTH_AT, None);
        assert_eq!(asks(&mut network, &mut north, lan(3)), None);
        let instance = held(&network)[0].0;
        let contact = Payload::Notify(Notify::new(notify::INITIAL_CONTACT, &[]));
        let more = initial_contact.then_some(contact);
        let (mut again, _) = authenticated(&mut network, NORTH, ("198.51.100.9:500", 7), more);
        assert_eq!(asks(&mut network, &mut again, lan(3)), None, "its past is not in its way");
        network.run(seconds(300));
        let replaced = network.hosts[B].count(|event| match event {
            Event::Closed { reason, connection, .. } => {
                *connection == instance && matches!(reason, CloseReason::Replaced | CloseReason::Dead)
            }
            _ => false,
        });
        assert!(replaced >= 1, "initial contact: {initial_contact}, {:?}", network.hosts[B].events);
        let left: Vec<_> = held(&network).into_iter().filter(|(id, _)| *id != instance).collect();
        assert_eq!(left, [], "there is one instance of it");
        assert!(network.hosts[B].instances.len() <= 1);
    }
}

#[test]
fn what_ends_a_profile_ends_its_instances() {
    let end: [fn(&mut tunnel::ikev2::Endpoint, tunnel::Now, ConnectionId, &mut Outbox); 2] = [
        |endpoint, now, id, out| endpoint.close(now, id, out),
        |endpoint, now, id, out| endpoint.remove_connection(now, id, out),
    ];
    for end in end {
        let (mut network, profile) = hub(506);
        for (identity, at, number) in [(NORTH, NORTH_AT, 3), (SOUTH, SOUTH_AT, 4)] {
            let (mut branch, _) = authenticated(&mut network, identity, at, None);
            assert_eq!(asks(&mut network, &mut branch, lan(number)), None);
        }
        network.command(B, |endpoint, now, out| end(endpoint, now, profile, out));
        assert!(network.hosts[B].installed.is_empty(), "at once");
        network.run(seconds(300));
        assert_eq!(network.hosts[B].endpoint.load(), tunnel::ikev2::Load::default());
        assert!(network.hosts[B].instances.is_empty());
    }
}

#[test]
fn one_instance_is_closed_and_the_other_stays() {
    let (mut network, profile) = hub(507);
    for (identity, at, number) in [(NORTH, NORTH_AT, 3), (SOUTH, SOUTH_AT, 4)] {
        let (mut branch, _) = authenticated(&mut network, identity, at, None);
        assert_eq!(asks(&mut network, &mut branch, lan(number)), None);
    }
    let [(north, _), (south, _)] = held(&network).try_into().expect("two");
    network.command(B, |endpoint, now, out| endpoint.close(now, north, out));
    assert_eq!(held(&network), [(south, vec![lan(4)])]);
    // A hub does not know where the peers of a profile are.
    for id in [north, profile] {
        let begun = network.command(B, |endpoint, now, out| endpoint.initiate(now, id, out));
        assert!(begun.is_err(), "{id:?}");
    }
}

#[test]
fn a_change_of_the_profile_reaches_its_instances() {
    let (mut network, profile) = hub(508);
    let (mut north, _) = authenticated(&mut network, NORTH, NORTH_AT, None);
    assert_eq!(asks(&mut network, &mut north, lan(3)), None);
    let mut changed = crate::support::connection(B);
    (changed.remote, changed.remote_identity) = (None, None);
    changed.children = vec![child("other", 2, 9)];
    let kept = network
        .command(B, |endpoint, now, out| endpoint.update_connection(now, profile, changed, &[None], out));
    assert!(kept, "it goes on");
    network.run(seconds(1));
    assert!(network.hosts[B].installed.is_empty(), "its child is not configured any more");
    assert_eq!(established(&network.hosts[B]), 1, "its session is");
}

/// All holders of a secret can claim any identity.
#[test]
fn a_profile_has_so_many_instances_and_no_more() {
    let (mut network, _) = hub(509);
    let names: Vec<&'static [u8]> = (0..=INSTANCES)
        .map(|number| &*[&b"\x02\0\0\0"[..], format!("{number}.example").as_bytes()].concat().leak())
        .collect();
    for (number, name) in names.iter().enumerate() {
        let address = SocketAddr::from(([198, 18, (number >> 8) as u8, number as u8], 500)).to_string();
        let (_, error) = authenticated(&mut network, name, (&address, number as u64 + 1), None);
        let is_full = number == INSTANCES;
        assert_eq!(error, is_full.then_some(notify::AUTHENTICATION_FAILED), "{number}");
    }
    assert_eq!(network.hosts[B].endpoint.load().instances, INSTANCES);
    let full = |event: &Event| matches!(event, Event::Failed { cause: Cause::TooManyInstances { .. }, .. });
    assert_eq!(network.hosts[B].count(full), 1);
    // A known one may come back.
    let (_, error) = authenticated(&mut network, names[5], ("198.18.200.1:500", 1 << 20), None);
    assert_eq!(error, None);
}
