//! Transport mode, whose selectors are the addresses that a NAT changes (RFC 7296 section 2.23.1).

use crate::network::{A, B, Host, Nat, Network};
use crate::support::{acquainted, assert_nothing_leaks, begin, connected, net, seconds};
use std::net::IpAddr;
use std::time::Duration;
use tunnel::esp::{Mode, TrafficSelector, Transport};
use tunnel::ikev2::selectors::host;
use tunnel::ikev2::{Cause, Connection, ConnectionId, Event, Identity, Install};

const OUTSIDE: &str = "203.0.113.7";

fn address(text: &str) -> IpAddr {
    text.parse().expect("literal")
}

/// Between the gateways, and nothing else.
fn transport(connection: &mut Connection) {
    let child = &mut connection.children[0];
    child.mode = Mode::Transport;
    (child.local, child.remote) = (vec![], vec![]);
}

/// Two hosts, of which one is behind a NAT, and known to the other by the address of that.
fn acquainted_through_nat(
    hidden: usize,
    force: bool,
    change: impl Fn(usize, &mut Connection),
) -> (Network, [ConnectionId; 2]) {
    let (mut network, ids) = acquainted(900, |host, connection| {
        transport(connection);
        connection.force_encapsulation = force;
        if host != hidden {
            connection.remote = Some(address(OUTSIDE));
        }
        change(host, connection);
    });
    network.nat = Some(Nat { inside: network.hosts[hidden].address, outside: address(OUTSIDE), shift: 0 });
    (network, ids)
}

fn through_nat(
    hidden: usize,
    force: bool,
    change: impl Fn(usize, &mut Connection),
) -> (Network, [ConnectionId; 2]) {
    let (mut network, ids) = acquainted_through_nat(hidden, force, change);
    // As behind a NAT that passes on what comes to ports 500 and 4500.
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    (network, ids)
}

fn installed(host: &Host) -> &Install {
    &host.sending(0).expect("installed").install
}

/// The only addresses of an SA, which are those of its packets: ours and the other side's.
fn ends(install: &Install) -> [IpAddr; 2] {
    let Transport { local, remote, .. } = install.transport.expect("in transport mode");
    for (address, selectors) in [(local, &install.sa.local), (remote, &install.sa.remote)] {
        assert!(selectors.iter().all(|it| it.addresses == (address..=address)), "{selectors:?}");
    }
    [local, remote]
}

fn is_translated(install: &Install) -> bool {
    install.transport.is_some_and(|it| it.translated)
}

/// Each side has the addresses as it sees them.
fn assert_translated(network: &Network, hidden: usize) {
    let (inside, open) = (&network.hosts[hidden], &network.hosts[1 - hidden]);
    assert_eq!(ends(installed(inside)), [inside.address, open.address]);
    assert_eq!(ends(installed(open)), [open.address, address(OUTSIDE)]);
    let spis = |install: &Install| (install.sa.inbound.spi, install.sa.outbound.spi);
    let ((one, other), twin) = (spis(installed(inside)), spis(installed(open)));
    assert_eq!((other, one), twin);
    for host in &network.hosts {
        let install = installed(host);
        assert_eq!(
            (install.sa.mode, is_translated(install), install.encapsulation),
            (Mode::Transport, true, true)
        );
    }
}

#[test]
fn each_side_has_the_addresses_as_it_sees_them() {
    for (hidden, force) in [(A, false), (A, true), (B, false), (B, true)] {
        let (network, _) = through_nat(hidden, force, |_, _| {});
        assert_translated(&network, hidden);
        assert_nothing_leaks(&network, 1);
    }
}

#[test]
fn and_still_has_after_rekeying_by_either_side() {
    for (hidden, force, who) in [(A, false, A), (A, true, B), (B, false, A), (B, true, B)] {
        let (mut network, _) = through_nat(hidden, force, |_, _| {});
        let before = network.hosts[who].spis();
        network.command(who, |endpoint, now, out| endpoint.rekey_child(now, before[0], out));
        network.run(seconds(60));
        assert_ne!(network.hosts[who].spis(), before);
        assert_translated(&network, hidden);
        assert_nothing_leaks(&network, 1);
    }
}

#[test]
fn a_side_that_moved_keeps_the_address_that_it_authenticated_at() {
    let (mut network, ids) = through_nat(A, false, |_, _| {});
    let moved = address("203.0.113.99");
    network.nat.as_mut().expect("there is one").outside = moved;
    // B hears of A, and follows.
    network.command(A, |endpoint, now, out| endpoint.rekey(now, ids[A], out));
    network.run(seconds(5));
    assert_eq!(network.hosts[B].path.expect("known").remote.ip(), moved);
    let spi = network.hosts[B].spis()[0];
    network.command(B, |endpoint, now, out| endpoint.rekey_child(now, spi, out));
    network.run(seconds(60));
    assert_ne!(network.hosts[B].spis(), [spi]);
    assert_eq!(ends(installed(&network.hosts[B]))[1], address(OUTSIDE));
    assert_eq!(network.hosts[B].path.expect("known").remote.ip(), moved, "its packets go where it is");
    assert_eq!(ends(installed(&network.hosts[A])), [network.hosts[A].address, network.hosts[B].address]);
}

#[test]
fn protocols_and_ports_are_those_that_both_have() {
    let of = |text: &str, protocol, ports| TrafficSelector { protocol, ports, ..host(address(text)) };
    let (network, _) = through_nat(A, true, |host, connection| {
        let child = &mut connection.children[0];
        let any = 0..=u16::MAX;
        if host == A {
            // What the packet is that made it ask comes first.
            child.local = vec![of("192.0.2.1", 6, 1234..=1234), of("192.0.2.1", 6, any.clone())];
            child.remote = vec![of("192.0.2.2", 6, 80..=80), of("192.0.2.2", 6, any)];
        } else {
            child.local = vec![of("192.0.2.2", 6, 80..=443)];
            child.remote = vec![of(OUTSIDE, 0, any)];
        }
    });
    let sas = [A, B].map(|host| &installed(&network.hosts[host]).sa);
    let any = 0..=u16::MAX;
    assert_eq!(sas[A].local, [of("192.0.2.1", 6, any.clone())]);
    assert_eq!(sas[A].remote, [of("192.0.2.2", 6, 80..=443)]);
    assert_eq!(sas[B].local, [of("192.0.2.2", 6, 80..=443)]);
    assert_eq!(sas[B].remote, [of(OUTSIDE, 6, any)]);
    assert_translated(&network, A);
}

#[test]
fn a_nat_that_is_only_pretended_translates_nothing() {
    let (network, _) = connected(901, |_, connection| {
        transport(connection);
        connection.force_encapsulation = true;
    });
    crate::support::assert_agree(&network, 1);
    for (one, other) in [(A, B), (B, A)] {
        let install = installed(&network.hosts[one]);
        assert_eq!(ends(install), [one, other].map(|host| network.hosts[host].address));
        assert_eq!((install.encapsulation, is_translated(install)), (true, false));
    }
}

#[test]
fn a_peer_that_asks_for_other_addresses_gets_only_its_own() {
    for claimed in ["198.51.100.77", "192.0.2.2"] {
        let (mut network, ids) = acquainted_through_nat(A, false, |host, connection| {
            if host == A {
                connection.children[0].local = vec![own_host(claimed)];
            } else {
                // It may be anywhere, and gets what it asks for.
                connection.remote = None;
                connection.children[0].remote = vec![net("0.0.0.0", "255.255.255.255")];
            }
        });
        begin(&mut network, A, ids[A]);
        let mut seen = 0;
        for _ in 0..5000 {
            network.run(Duration::from_millis(1));
            for sa in network.hosts[B].installed.values() {
                assert_eq!(ends(&sa.install)[1], address(OUTSIDE));
                seen += 1;
            }
        }
        assert!(seen > 0, "it was there until A saw that it is not what A wants");
        assert!(network.hosts[A].installed.is_empty() && network.hosts[B].installed.is_empty());
    }
}

fn own_host(text: &str) -> TrafficSelector {
    host(address(text))
}

#[test]
fn more_than_one_address_is_not_of_transport_mode() {
    let (network, _) = through_nat(A, false, |host, connection| {
        if host == A {
            connection.children[0].local = vec![net("192.0.2.0", "192.0.2.1")];
        }
    });
    assert!(network.hosts[A].installed.is_empty() && network.hosts[B].installed.is_empty());
    assert_nothing_leaks(&network, 1);
}

#[test]
fn tunnel_mode_is_for_addresses_that_no_nat_sees() {
    // Each side sees other addresses than its peer does, and an inner address that a peer claims is not accepted.
    let tunnel = |_: usize, connection: &mut Connection| connection.children[0].mode = Mode::Tunnel;
    let (network, _) = through_nat(A, true, tunnel);
    assert!(network.hosts[A].installed.is_empty() && network.hosts[B].installed.is_empty());
    let (network, _) = through_nat(A, true, |host, connection| {
        tunnel(host, connection);
        if host == B {
            connection.children[0].remote = vec![own_host("192.0.2.1")];
        }
    });
    crate::support::assert_agree(&network, 1);
    assert_eq!(installed(&network.hosts[B]).transport, None);
}

/// A calls under two names, as two hosts behind one NAT would; `ports` are those of the first and the second at B. Returns
/// why B refused the second.
fn two_behind_one_nat(is_nat: bool, ports: [u16; 2]) -> (Network, [ConnectionId; 2], Vec<Cause>) {
    two_at_one_address(is_nat, ports, ["road0.example", "road1.example"])
}

/// The same under names of choice.
fn two_at_one_address(
    is_nat: bool,
    ports: [u16; 2],
    names: [&str; 2],
) -> (Network, [ConnectionId; 2], Vec<Cause>) {
    let (mut network, ids) = acquainted(902, |_, connection| transport(connection));
    for (host, id) in [A, B].into_iter().zip(ids) {
        network.command(host, |endpoint, now, out| endpoint.remove_connection(now, id, out));
    }
    if is_nat {
        let inside = network.hosts[A].address;
        network.nat = Some(Nat { inside, outside: address(OUTSIDE), shift: 0 });
    }
    let seen = if is_nat { address(OUTSIDE) } else { network.hosts[A].address };
    let at = |host: usize, port: u16| {
        let address = [network.hosts[A].address, network.hosts[B].address][host];
        TrafficSelector { protocol: 6, ports: port..=port, ..tunnel::ikev2::selectors::host(address) }
    };
    let mut connections = Vec::new();
    for (number, (port, name)) in ports.into_iter().zip(names).enumerate() {
        let name = Identity::Fqdn(name.to_owned());
        let mut a = crate::support::connection(A);
        transport(&mut a);
        (a.name, a.local_identity) = (format!("road {number}"), name.clone());
        a.children[0].remote = vec![at(B, port)];
        let mut b = crate::support::connection(B);
        transport(&mut b);
        (b.name, b.remote_identity, b.remote) = (format!("road {number}"), Some(name), Some(seen));
        b.children[0].local = vec![at(B, port)];
        connections.push((a, b));
    }
    let mut calls = Vec::new();
    for (a, b) in connections {
        network.add(B, b);
        calls.push(network.add(A, a));
    }
    for id in &calls {
        begin(&mut network, A, *id);
        network.run(seconds(5));
    }
    let failed = |event: &Event| match event {
        Event::Failed { cause, .. } => Some(cause.clone()),
        _ => None,
    };
    let causes = network.hosts[B].events.iter().filter_map(failed).collect();
    (network, calls.try_into().expect("two"), causes)
}

#[test]
fn of_two_behind_one_nat_the_second_does_not_get_the_packets_of_the_first() {
    let (mut network, ids, causes) = two_behind_one_nat(true, [80, 80]);
    assert_eq!(network.hosts[B].installed.len(), 1);
    let [Cause::Contested { packets, owner }] = &causes[..] else { panic!("{causes:?}") };
    assert_eq!((&packets[..], &owner[..]), (&[own_host(OUTSIDE)][..], "road0.example"));
    let first = network.hosts[B].spis()[0];
    network.command(B, |endpoint, now, out| endpoint.rekey_child(now, first, out));
    network.run(seconds(60));
    assert_ne!(network.hosts[B].spis(), [first], "its own are not in its way");
    // When the first is gone, the second has them.
    network.command(A, |endpoint, now, out| endpoint.remove_connection(now, ids[0], out));
    network.run(seconds(5));
    assert!(network.hosts[B].installed.is_empty());
    begin(&mut network, A, ids[1]);
    network.run(seconds(5));
    assert_eq!(network.hosts[B].installed.len(), 1);
    assert_nothing_leaks(&network, 1);
}

#[test]
fn packets_that_ports_tell_apart_are_carried_for_both() {
    let (network, _, causes) = two_behind_one_nat(true, [80, 443]);
    assert_eq!((network.hosts[B].installed.len(), &causes[..]), (2, &[][..]));
}

#[test]
fn a_host_may_have_several_connections() {
    let (network, _, causes) = two_at_one_address(false, [80, 80], ["road.example"; 2]);
    assert_eq!((network.hosts[B].installed.len(), &causes[..]), (2, &[][..]));
    // Two names may be two hosts, whether a NAT is seen or not.
    let (network, _, causes) = two_behind_one_nat(false, [80, 80]);
    assert_eq!((network.hosts[B].installed.len(), causes.len()), (1, 1));
}
