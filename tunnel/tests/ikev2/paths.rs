//! Peer addresses and the owners of packets, under attack by authenticated peers and by observers that replay datagrams.

use crate::mallory::Mallory;
use crate::network::{A, B, Network, exchange};
use crate::support::{acquainted, assert_agree, begin, connected, connection, esp_offer, net, seconds};
use crypto::SecretBytes;
use crypto::exchange::Group;
use std::net::{IpAddr, SocketAddr};
use tunnel::esp::{Mode, TrafficSelector};
use tunnel::ikev2::message::numbers::{notify, payload};
use tunnel::ikev2::message::{Envelope, Exchange, Notify, Payload, emit};
use tunnel::ikev2::proposal::EspOffer;
use tunnel::ikev2::selectors::host;
use tunnel::ikev2::{Authentication, Cause, Connection, ConnectionId, Event, Identity, Path};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("literal")
}

/// Between the gateways, and nothing else.
fn between_hosts(connection: &mut Connection, mode: Mode) {
    let child = &mut connection.children[0];
    child.mode = mode;
    (child.local, child.remote) = (vec![], vec![]);
}

/// A host and the source addresses of its callers.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) victim: &'static str,
    pub(crate) gateway: &'static str,
    pub(crate) mallory: &'static str,
}

pub(crate) const V4: Family = Family { victim: "192.0.2.1", gateway: "192.0.2.2", mallory: "203.0.113.66" };
const V6: Family = Family { victim: "2001:db8::1", gateway: "2001:db8::2", mallory: "2001:db8:66::1" };

/// B's connection for Mallory, with its own secret and no remote prefix.
fn third(family: Family, mode: Mode) -> Connection {
    let mut third = connection(B);
    between_hosts(&mut third, mode);
    "zz".clone_into(&mut third.name);
    (third.local, third.remote) = (Some(ip(family.gateway)), None);
    third.remote_identity = Some(Identity::Fqdn("mallory.example".to_owned()));
    third.authentication = Authentication::SharedKey(SecretBytes::new(b"secret of mallory".to_vec()));
    third
}

/// A is connected to B host to host; B serves Mallory as well.
pub(crate) fn served(
    family: Family,
    mode: Mode,
    change: impl Fn(usize, &mut Connection),
) -> (Network, ConnectionId) {
    let (mut network, _) = acquainted(4242, |_, _| {});
    for (at, address) in [(A, family.victim), (B, family.gateway)] {
        network.hosts[at] = crate::network::Host::new(address, 4242 + at as u64);
    }
    let mut ids = Vec::new();
    for at in [A, B] {
        let mut one = connection(at);
        between_hosts(&mut one, mode);
        let (ours, theirs) =
            if at == A { (family.victim, family.gateway) } else { (family.gateway, family.victim) };
        (one.local, one.remote) = (Some(ip(ours)), Some(ip(theirs)));
        change(at, &mut one);
        ids.push(network.add(at, one));
    }
    let mut third = third(family, mode);
    change(2, &mut third);
    let third = network.add(B, third);
    begin(&mut network, A, ids[A]);
    network.run(seconds(5));
    assert_eq!(network.hosts[B].installed.len(), 1, "A is connected");
    (network, third)
}

/// Mallory, authenticated, without a Child SA, on the ports for NAT.
pub(crate) fn authenticated(network: &mut Network, family: Family) -> Mallory {
    authenticated_as(network, family, true)
}

/// The same, with or without a NAT that it claims.
pub(crate) fn authenticated_as(network: &mut Network, family: Family, claims_nat: bool) -> Mallory {
    let mut mallory = Mallory::new();
    mallory.address = SocketAddr::new(ip(family.mallory), 500);
    mallory.to = SocketAddr::new(ip(family.gateway), 500);
    mallory.claims_nat = claims_nat;
    mallory.identity = b"\x02\0\0\0mallory.example";
    mallory.secret = b"secret of mallory";
    let mut mallory = mallory.begin(network);
    mallory.float();
    let childless: Vec<_> = mallory.auth_payloads().into_iter().take(2).collect();
    let reply = mallory.ask(network, Exchange::IkeAuth, &childless).expect("it is answered");
    assert_eq!(reply.error(), None);
    mallory
}

/// A wish for a Child SA for these packets.
pub(crate) fn wish(mode: Mode, theirs: TrafficSelector, ours: &str) -> Vec<Payload<'static>> {
    let mut list = vec![
        Payload::Sa(EspOffer::propose(&[esp_offer()], crate::mallory::SPI)),
        Payload::Nonce(&[7; 32]),
        Payload::TsI(vec![theirs]),
        Payload::TsR(vec![host(ip(ours))]),
    ];
    if mode == Mode::Transport {
        list.insert(0, Payload::Notify(Notify::new(notify::USE_TRANSPORT_MODE, &[])));
    }
    list
}

/// The remote selectors that a connection has at B.
pub(crate) fn taken(network: &Network, of: ConnectionId) -> Vec<TrafficSelector> {
    let installed = network.hosts[B].installed.values().filter(|it| it.install.connection == of);
    installed.flat_map(|it| it.install.sa.remote.clone()).collect()
}

/// Sends a request from an address that is not its own, then the same from its own; returns what came back to the latter.
fn spoof(
    network: &mut Network,
    mallory: &mut Mallory,
    source: SocketAddr,
    payloads: &[Payload<'_>],
) -> usize {
    let (first, chain) = emit(payloads);
    let header = mallory.header(Exchange::CreateChildSa, mallory.next);
    let datagram = mallory.seal(&header, Envelope::Whole, first, &chain);
    let own = std::mem::replace(&mut mallory.address, source);
    mallory.send(network, datagram.clone());
    mallory.address = own;
    let before = network.log.len();
    mallory.send(network, datagram);
    mallory.next += 1;
    network.log[before..].iter().filter(|(_, sent)| sent.to == own).count()
}

/// One datagram with a forged source gave an authenticated peer the packets of another one.
#[test]
fn a_forged_source_takes_nothing_from_others() {
    for (family, mode) in [V4, V6].into_iter().flat_map(|it| [(it, Mode::Tunnel), (it, Mode::Transport)]) {
        let victim = ip(family.victim);
        for (protocol, port) in [(0, 4500), (47, 4500), (6, 4500), (0, 500), (17, 1024)] {
            let (mut network, third) = served(family, mode, |_, _| {});
            let mut mallory = authenticated(&mut network, family);
            let theirs = TrafficSelector { protocol, ..host(victim) };
            let wish = wish(mode, theirs, family.gateway);
            let told = spoof(&mut network, &mut mallory, (victim, port).into(), &wish);
            assert_eq!(told, 0, "it is answered where the request came from");
            mallory.ask(&mut network, Exchange::Informational, &[]).expect("it is there");
            // In transport mode it gets the packets of its own address, whatever it calls that.
            let expected = if mode == Mode::Transport { Some(ip(family.mallory)) } else { None };
            let got = taken(&network, third);
            assert!(got.iter().all(|it| Some(*it.addresses.start()) == expected), "{mode:?} {got:?}");
        }
    }
}

#[test]
fn nor_does_one_in_any_other_exchange() {
    let victim = ip(V4.victim);
    for case in 0..4 {
        let (mut network, third) = served(V4, Mode::Tunnel, |_, _| {});
        let mut mallory = authenticated(&mut network, V4);
        let own = mallory.address;
        let spoofed: SocketAddr = (victim, 4500).into();
        match case {
            // A sign of life moves the path; what is asked for honestly after that is bound to where it authenticated.
            0 => {
                mallory.address = spoofed;
                mallory.ask(&mut network, Exchange::Informational, &[]).expect("answered to the victim");
                mallory.address = own;
            }
            // The IKE SA is replaced from there, and the new one is no other peer's.
            1 => mallory.rekey(&mut network, spoofed),
            // ESP with a forged source does the same.
            2 => {
                let path = Path { local: mallory.to, remote: spoofed };
                let childish = wish(Mode::Tunnel, host(ip(V4.mallory)), V4.gateway);
                mallory.ask(&mut network, Exchange::CreateChildSa, &childish).expect("its own");
                let mut spis = network.hosts[B].installed.iter();
                let (&spi, _) = spis.find(|(_, it)| it.install.connection == third).expect("installed");
                network.command(B, |endpoint, now, out| endpoint.note_moved(now, spi, path, out));
            }
            // Fragments from here and there.
            _ => {
                let (first, chain) = emit(&wish(Mode::Tunnel, host(victim), V4.gateway));
                let header = mallory.header(Exchange::CreateChildSa, mallory.next);
                let (one, two) = chain.split_at(chain.len() / 2);
                let one = mallory.seal(&header, Envelope::Fragment(1, 2), first, one);
                let two = mallory.seal(&header, Envelope::Fragment(2, 2), payload::NONE, two);
                mallory.send(&mut network, one);
                mallory.address = spoofed;
                mallory.send(&mut network, two);
                mallory.address = own;
                mallory.next += 1;
            }
        }
        let reply =
            mallory.ask(&mut network, Exchange::CreateChildSa, &wish(Mode::Tunnel, host(victim), V4.gateway));
        let reply = reply.expect("it is answered");
        assert_eq!(reply.error(), Some(notify::TS_UNACCEPTABLE), "case {case}");
        assert!(taken(&network, third).iter().all(|it| *it == host(ip(V4.mallory))), "case {case}");
    }
}

/// The same while we ask: what we want of a peer is bound to where it authenticated.
#[test]
fn what_we_ask_for_is_bound_as_well() {
    let (mut network, third) = served(V4, Mode::Tunnel, |_, _| {});
    let mut mallory = authenticated(&mut network, V4);
    mallory.address = (ip(V4.victim), 4500).into();
    mallory.ask(&mut network, Exchange::Informational, &[]).expect("answered to the victim");
    let before = network.log.len();
    network.command(B, |endpoint, now, out| {
        // A connection that only answers asks for a child that a packet waits for when its peer is connected.
        let _ = endpoint.initiate(now, third, out);
    });
    let asked =
        network.log[before..].iter().find(|(_, sent)| exchange(&sent.bytes).0 == Exchange::CreateChildSa);
    let request = mallory.open(&asked.expect("it asks").1.bytes);
    assert_eq!(request.payloads().ts_r, Some(vec![host(ip(V4.mallory))]));
}

/// What Mallory gets at B whose connection is changed so, asking for `asked`; the victim has `owned`.
fn asks(
    owned: (&str, &str),
    configured: (Option<(&str, &str)>, Option<u8>),
    asked: TrafficSelector,
) -> Option<u16> {
    let (mut network, third) = served(V4, Mode::Tunnel, |at, it| {
        let range = net(owned.0, owned.1);
        match at {
            A => it.children[0].local = vec![range],
            B => it.children[0].remote = vec![range],
            _ => {
                it.children[0].remote =
                    configured.0.map(|(first, last)| net(first, last)).into_iter().collect();
                it.children[0].priority = configured.1;
            }
        }
    });
    let mut mallory = authenticated(&mut network, V4);
    let wish = wish(Mode::Tunnel, asked, V4.gateway);
    let error = mallory.ask(&mut network, Exchange::CreateChildSa, &wish).expect("answered").error();
    assert_eq!(error.is_none(), !taken(&network, third).is_empty());
    if error.is_some() {
        let contested = |event: &Event| matches!(event, Event::Failed { cause: Cause::Contested { .. }, .. });
        assert!(network.hosts[B].count(contested) <= 1);
    }
    error
}

#[test]
fn a_peer_is_refused_the_packets_of_another_in_tunnel_mode() {
    let lan = ("10.9.0.0", "10.9.0.255");
    let all = ("0.0.0.0", "255.255.255.255");
    let refused = Some(notify::TS_UNACCEPTABLE);
    // The same network, all of it or a part, in whatever words.
    for part in [net("10.9.0.0", "10.9.0.255"), host(ip("10.9.0.7")), net("10.9.0.9", "10.9.0.77")] {
        for protocol in [0, 6, 47] {
            let part = TrafficSelector { protocol, ..part.clone() };
            assert_eq!(asks(lan, (Some(lan), None), part.clone()), refused, "{part:?}");
            // A wider one, of which it asks for nothing but what is another's.
            assert_eq!(asks(lan, (Some(("10.0.0.0", "10.255.255.255")), None), part.clone()), refused);
            assert_eq!(asks(lan, (Some(all), None), part), refused);
        }
    }
    // Ranges that overlap without either lying in the other, as close as each other.
    assert_eq!(
        asks(lan, (Some(("10.9.0.128", "10.9.1.127")), None), net("10.9.0.128", "10.9.1.127")),
        refused
    );
    // At an address in a foreign network, which is not configured for this peer.
    assert_eq!(asks(("203.0.113.0", "203.0.113.255"), (None, None), host(ip(V4.mallory))), refused);
    // What the configuration orders, both have.
    assert_eq!(asks(lan, (Some(all), None), net(all.0, all.1)), None, "the rest is its own");
    assert_eq!(asks(all, (Some(lan), None), net(lan.0, lan.1)), None, "it is closer");
    assert_eq!(asks(all, (None, None), host(ip(V4.mallory))), None, "everything is what is left over");
    assert_eq!(asks(lan, (Some(lan), Some(1)), net(lan.0, lan.1)), None, "the administrator prefers it");
    assert_eq!(asks(lan, (Some(lan), Some(254)), net(lan.0, lan.1)), None, "also before none");
    assert_eq!(asks(lan, (Some(("10.8.0.0", "10.8.0.255")), None), net("10.8.0.0", "10.8.0.255")), None);
}

/// A peer with its own secret and no configured name claims the name of another peer.
#[test]
fn a_borrowed_name_does_not_help() {
    let lan = net("10.9.0.0", "10.9.0.255");
    for named in [false, true] {
        let (mut network, third) = served(V4, Mode::Tunnel, |at, it| match at {
            A => it.children[0].local = vec![lan.clone()],
            B => it.children[0].remote = vec![lan.clone()],
            _ => {
                it.children[0].remote = vec![lan.clone()];
                it.remote_identity = None;
            }
        });
        let mut mallory = Mallory::new();
        mallory.address = SocketAddr::new(ip(V4.mallory), 500);
        mallory.identity = if named { b"\x02\0\0\0host1.example" } else { b"\x02\0\0\0any" };
        mallory.secret = b"secret of mallory";
        let mut mallory = mallory.begin(&mut network);
        let childless: Vec<_> = mallory.auth_payloads().into_iter().take(2).collect();
        mallory.ask(&mut network, Exchange::IkeAuth, &childless).expect("answered");
        let wish = wish(Mode::Tunnel, lan.clone(), V4.gateway);
        let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &wish).expect("answered");
        assert_eq!(reply.error(), Some(notify::TS_UNACCEPTABLE), "{named}");
        assert!(taken(&network, third).is_empty());
    }
}

/// A connection to one address, for any identity, leads to one peer: another does not get its place by asking for other
/// packets. (One for any address is a profile, and leads to many.)
#[test]
fn a_tunnel_leads_to_one_peer() {
    let (mut network, _) = acquainted(57, |host, it| {
        if host == B {
            (it.remote, it.remote_identity) = (Some(ip("198.51.100.1")), None);
            it.children[0].remote = vec![net("10.0.0.0", "10.255.255.255")];
        }
    });
    let call = |network: &mut Network, name: &'static [u8], address: &str, wanted: TrafficSelector| {
        let mut one = Mallory::new();
        (one.identity, one.address) = (name, address.parse().expect("literal"));
        one.spi += u64::from(address.len() as u32) + u64::from(name[6]);
        let mut one = one.begin(network);
        let childless: Vec<_> = one.auth_payloads().into_iter().take(2).collect();
        one.ask(network, Exchange::IkeAuth, &childless).expect("answered");
        let mut list = vec![
            Payload::Sa(EspOffer::propose(&[esp_offer()], crate::mallory::SPI)),
            Payload::Nonce(&[7; 32]),
            Payload::TsI(vec![wanted]),
        ];
        list.push(Payload::TsR(vec![net("10.2.0.0", "10.2.0.255")]));
        one.ask(network, Exchange::CreateChildSa, &list).expect("answered").error()
    };
    let (one, other) = (host(ip("10.9.0.5")), host(ip("10.9.0.6")));
    assert_eq!(call(&mut network, b"\x02\0\0\0a.example", "198.51.100.1:500", one), None);
    let error = call(&mut network, b"\x02\0\0\0b.example", "198.51.100.1:501", other.clone());
    assert_eq!(error, Some(notify::TS_UNACCEPTABLE));
    assert_eq!(
        call(&mut network, b"\x02\0\0\0a.example", "198.51.100.1:1502", other),
        None,
        "the same again"
    );
}

/// The owner may be gone, and has only not been missed yet.
#[test]
fn an_owner_that_is_in_the_way_is_asked_whether_it_is_there() {
    let lan = net("10.9.0.0", "10.9.0.255");
    let (mut network, third) = served(V4, Mode::Tunnel, |at, it| match at {
        A => it.children[0].local = vec![lan.clone()],
        _ => it.children[0].remote = vec![lan.clone()],
    });
    network.hosts[A].is_dead = true;
    network.run(seconds(20));
    let mut mallory = authenticated(&mut network, V4);
    let wish = wish(Mode::Tunnel, lan.clone(), V4.gateway);
    let refused = mallory.ask(&mut network, Exchange::CreateChildSa, &wish).expect("answered");
    assert_eq!(refused.error(), Some(notify::TS_UNACCEPTABLE));
    network.run(seconds(300));
    let reply = mallory.ask(&mut network, Exchange::CreateChildSa, &wish).expect("answered");
    assert_eq!(reply.error(), None, "no peer has them any more");
    assert_eq!(taken(&network, third), [lan]);
}

/// A session keeps its packets when its peer's NAT mapping changes.
#[test]
fn a_peer_that_moved_keeps_its_packets_when_it_rekeys() {
    let (mut network, _) = connected(58, |_, it| {
        between_hosts(it, Mode::Transport);
        it.force_encapsulation = true;
        it.children[0].esp[0].groups = vec![Group::X25519];
    });
    assert_agree(&network, 1);
    let before = network.hosts[B].spis();
    let sending =
        |network: &Network| network.hosts[B].sending(0).expect("installed").install.sa.remote.clone();
    assert_eq!(sending(&network), [host(ip("192.0.2.1"))]);
    network.nat = Some(crate::network::Nat { inside: ip("192.0.2.1"), outside: ip("203.0.113.9"), shift: 3 });
    let spi = network.hosts[A].spis()[0];
    network.command(A, |endpoint, now, out| endpoint.rekey_child(now, spi, out));
    network.run(seconds(60));
    assert_agree(&network, 1);
    assert_ne!(network.hosts[B].spis(), before);
    assert_eq!(sending(&network), [host(ip("192.0.2.1"))]);
    assert_eq!(
        network.hosts[B].path.expect("installed").remote,
        "203.0.113.9:4503".parse().expect("literal")
    );
}

/// Section 2.11: what came without a NAT is answered where it came from, and nothing else goes there.
#[test]
fn without_a_nat_nothing_is_followed() {
    let (mut network, _) = acquainted(59, |_, _| {});
    let mut mallory = Mallory::established(&mut network);
    let path = network.hosts[B].path;
    mallory.address = "198.51.100.9:500".parse().expect("literal");
    mallory.ask(&mut network, Exchange::Informational, &[]).expect("answered");
    assert_eq!(network.hosts[B].path, path);
}
