//! `receive-threads`: peers are spread over several threads, in UDP and without it, also after rekeying.

use super::{GROUPS, Gateway, SECRET, peer};
use crate::receive_threads::pings;
use crate::support::{PATIENCE, ask, sites};
use lab::{Lab, wait_until};
use serde_json::Value;
use std::fmt::Write;

/// Receiving threads of the gateway under test.
const THREADS: usize = 4;
/// Its peers: the first half in UDP, the others without.
const PEERS: usize = 2 * THREADS;
/// Pings to each: more than the packets after which the gateway rekeys.
const PINGS: usize = 1100;

fn name(number: usize) -> String {
    format!("p{number}")
}

/// What an end is configured with: all peers are at addresses of the second site, which calls.
fn configuration(end: usize, more: &str) -> String {
    let mut text =
        format!("{GROUPS}{SECRET} right\nset vpn ipsec authentication psk sites id 192.168.77.1\n");
    for number in 0..PEERS {
        let theirs = format!("192.168.77.{}", 10 + number);
        let inside = [10, 20].map(|net| format!("10.{net}.{number}.0/24"));
        let inside = inside.each_ref().map(String::as_str);
        let _ = writeln!(text, "set vpn ipsec authentication psk sites id {theirs}");
        text += &peer(end, &name(number), ["192.168.77.1", &theirs], inside, ["none", "initiate"][end]);
        if number >= THREADS {
            let name = name(number);
            let _ = writeln!(text, "set vpn ipsec site-to-site peer {name} force-encapsulation disable");
        }
    }
    text + more
}

/// Both sites, with all tunnels up.
fn crowded(lab: &mut Lab, more: &str) -> [Gateway; 2] {
    for number in 0..PEERS {
        lab.ip("b", &format!("address add 192.168.77.{}/24 dev outside", 10 + number)).expect("an address");
        for (site, net) in [("a", 10), ("b", 20)] {
            lab.ip(site, &format!("address add 10.{net}.{number}.1/32 dev lo")).expect("an address");
        }
    }
    let gateways = [("a", more), ("b", "")].map(|(site, more)| {
        let mut gateway = Gateway::new(lab, site);
        gateway.write(&configuration((site == "b").into(), more));
        gateway.0.start(lab);
        gateway
    });
    (0..PEERS).for_each(|number| gateways[0].comes_up(&name(number)));
    gateways
}

/// The threads of a gateway, with what each does.
fn threads(gateway: &Gateway) -> Vec<Value> {
    let said = ask(&["show", "datapath", "threads", "--api", &gateway.0.socket.to_string_lossy()]);
    said["threads"].as_array().expect("a list").clone()
}

/// The first bytes of a peer's inbound SPIs, modulo the number of threads.
fn steered(gateway: &Gateway, peer: &str) -> Vec<usize> {
    gateway.spis(peer).into_iter().map(|spi| (spi >> 24) as usize % THREADS).collect()
}

#[test]
fn peers_are_spread_over_the_threads_and_nothing_is_lost_while_they_rekey() {
    let Some(mut lab) = sites() else { return };
    let more =
        format!("set vpn ipsec receive-threads {THREADS}\nset vpn ipsec esp-group SITES life-packets 1000\n");
    let gateways = crowded(&mut lab, &more);
    let hub = &gateways[0];
    let of_all = |hub: &Gateway| (0..PEERS).map(|number| hub.spis(&name(number))).collect::<Vec<_>>();
    let before = of_all(hub);
    let homes: Vec<Vec<usize>> = (0..PEERS).map(|number| steered(hub, &name(number))).collect();
    for thread in 0..THREADS {
        assert_eq!(homes.iter().filter(|home| **home == [thread]).count(), 2, "{homes:?}");
    }
    let addresses: Vec<_> = (0..PEERS).map(|number| format!("10.10.{number}.1")).collect();
    let (answered, busy) = std::thread::scope(|scope| {
        let pinging = scope.spawn(|| pings(&lab, "b", &addresses, PINGS, "0.003"));
        let busy = threads(hub);
        (pinging.join().expect("it does not panic"), busy)
    });
    assert_eq!(answered, PEERS * PINGS);
    for role in ["in", "raw"] {
        for number in 0..THREADS {
            let name = if number == 0 { format!("ipsec0 {role}") } else { format!("ipsec0 {role} {number}") };
            let thread = busy.iter().find(|thread| thread["name"] == name).expect("it is listed");
            assert!(thread["load"].as_f64().is_some_and(|load| load > 0.0), "{name}: {busy:?}");
        }
    }
    let senders = busy.iter().filter_map(|it| it["name"].as_str()).filter(|it| it.contains(" out"));
    assert_eq!(senders.count(), 1, "the packets of an SA have one sender");
    let settled = || of_all(hub).iter().all(|spis| spis.len() == 1);
    wait_until(PATIENCE, settled).expect("replaced SAs go");
    for (number, before) in before.iter().enumerate() {
        assert_ne!(hub.spis(&name(number)), *before, "it has rekeyed");
        assert_eq!(steered(hub, &name(number)), homes[number], "to the same thread");
    }
    for gateway in &gateways {
        let said = ask(&["show", "drops", "--all", "--api", &gateway.0.socket.to_string_lossy()]);
        let all = said["drops"].as_array().expect("a list");
        for reason in ["replayed", "unknown-sa", "bad-tag", "not-ours", "esp-socket-ipv4-full"] {
            let drop = all.iter().find(|drop| drop["reason"] == reason).expect("it is listed");
            let lost = ["outbound", "inbound", "handshake"].iter().filter_map(|way| drop[*way].as_u64());
            assert_eq!(lost.sum::<u64>(), 0, "{reason}: {drop}");
        }
    }
}

#[test]
fn another_number_of_receiving_threads_is_refused_and_the_peers_stay() {
    let Some((lab, [a, _b])) = super::started(|_, text| text) else { return };
    a.comes_up("other");
    let (before, file) = (a.spis("other"), super::configuration(0));
    a.write(&format!("{file}set vpn ipsec receive-threads 16\n"));
    let said = a.0.reload();
    assert!(said.contains("receiving threads, and 16 are wanted"), "{said}");
    assert!(said.contains("fix: delete vpn ipsec site-to-site, commit, and set it again"), "{said}");
    assert_eq!(a.spis("other"), before);
    assert!(crate::support::answers(&lab, "a", "10.20.0.1"));
}
