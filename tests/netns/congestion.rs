//! More packets than there is room for: a slow peer does not hold up a fast one, and what the kernel loses is shown.

use crate::support::{PATIENCE, ask, daemon, dropped, joined, lab, tcp_arrives_whole, udp_echoes};
use lab::hub::{self, FAST, Hub, OUTSIDE, SLOW};
use lab::wireguard::Gateway;
use lab::{Lab, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than the slow link takes, twenty times over.
const FLOOD_PACKETS: usize = 10;
const FLOOD_EVERY: Duration = Duration::from_millis(1);

/// The hub `a`, with a tunnel to `b`, over a link of 5 Mbit/s with a long queue, and one to `c`.
fn hub_of(outside: [&str; 4]) -> Option<(Lab, Gateway)> {
    let mut lab = lab(&["a", "b", "c"])?;
    hub::connect(&lab).expect("veth and IPv6 exist");
    let hub = Hub::start(&mut lab, &daemon(), outside).expect("two tunnels");
    hub::slow_down(&lab, 5).expect("the kernel has tbf");
    Some((lab, hub.gateway))
}

/// Sends to an address until `stop` is set.
fn flood(lab: &Lab, address: &str, stop: &AtomicBool) {
    let to: SocketAddr = SocketAddr::new(address.parse().expect("literal"), 9);
    lab.enter("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        while !stop.load(Ordering::Relaxed) {
            (0..FLOOD_PACKETS).for_each(|_| _ = socket.send_to(&[0; 1300], to));
            std::thread::sleep(FLOOD_EVERY);
        }
    })
    .expect("it has the namespace");
}

/// Packets for a peer that were not sent, as the API shows them.
fn unsent(interface: &str, peer: &str) -> u64 {
    let said = ask(&["show", "interfaces", "wireguard", "--api", &format!("/run/postern/{interface}.sock")]);
    let peers = said["interfaces"][0]["peers"].as_array().expect("a list").clone();
    let endpoint = |shown: &serde_json::Value| {
        shown["endpoint"]
            .as_str()
            .and_then(|text| text.parse::<SocketAddr>().ok())
            .map(|at| at.ip().to_string())
    };
    let peer = peers.iter().find(|shown| endpoint(shown).as_deref() == Some(peer)).expect("it is listed");
    peer["unsent_packets"].as_u64().expect("a number")
}

#[test]
fn a_peer_behind_a_slow_link_holds_up_no_other() {
    for outside in OUTSIDE {
        let Some((lab, hub)) = hub_of(outside) else { return };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| flood(&lab, SLOW, &stop));
            let is_congested = || dropped(&hub.interface, "peer-congested") > 0;
            let congested = wait_until(PATIENCE, is_congested);
            let echoes = congested.and_then(|()| udp_echoes(&lab, "a", "c", FAST, &[100; 20]));
            // At 5 Mbit/s it would take a minute; with a place in that queue for each segment, much longer.
            let whole = tcp_arrives_whole(&lab, "a", "c", FAST, 40 << 20);
            stop.store(true, Ordering::Relaxed);
            // One may be late on a busy machine; behind the queue of the slow link none would be in time.
            assert!(echoes.is_ok_and(|whole| whole >= 15), "round trips of over a second");
            whole.expect("it arrives while the other link is full");
        });
        assert!(unsent(&hub.interface, outside[2]) > 0);
        assert_eq!(unsent(&hub.interface, outside[3]), 0, "the other peer loses nothing");
        assert_eq!(dropped(&hub.interface, "send-failed"), 0);
    }
}

#[test]
fn what_finds_its_socket_full_after_its_source_address_went_is_counted_as_congestion() {
    let Some((lab, hub)) = hub_of(OUTSIDE[0]) else { return };
    for change in
        ["address add 192.168.79.1/32 dev slow", "route add 192.168.77.2/32 dev slow src 192.168.79.1"]
    {
        lab.ip("a", change).expect("it is changed");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&lab, SLOW, &stop));
        let lost = || dropped(&hub.interface, "peer-congested");
        let congested = wait_until(PATIENCE, || lost() > 0);
        // From here the peer was called until now.
        let changed = lab.ip("a", "address delete 192.168.77.1/24 dev slow");
        let before = lost();
        let goes_on = wait_until(PATIENCE, || lost() > before + 100);
        stop.store(true, Ordering::Relaxed);
        congested.and_then(|()| changed.map(drop)).and(goes_on).expect("the link stays full");
    });
    assert_eq!(dropped(&hub.interface, "send-failed"), 0);
}

/// Sends so many datagrams of a kilobyte.
fn send(lab: &Lab, from: &str, to: &str, count: usize) {
    let to: SocketAddr = to.parse().expect("literal");
    lab.enter(from, || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
        (0..count).for_each(|_| _ = socket.send_to(&[0; 1000], to));
    })
    .expect("it has the namespace");
}

#[test]
fn what_the_kernel_loses_before_we_have_it_is_shown() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    let gateway = &tunnel.gateways[0];
    let lost = |reason| dropped(&gateway.interface, reason);
    assert_eq!([lost("inside-queue-full"), lost("socket-ipv4-full"), lost("socket-ipv6-full")], [0; 3]);
    let process = Pid::from_raw(gateway.process.id() as i32).expect("a process id");
    kill_process(process, Signal::STOP).expect("it lives");
    // A thousand packets may wait inside, and 16 MiB outside.
    send(&lab, "a", &format!("{}:9", tunnel.inside[1]), 5000);
    send(&lab, "b", "192.168.77.1:51820", 20_000);
    kill_process(process, Signal::CONT).expect("it lives");
    assert!(lost("inside-queue-full") >= 3000, "{}", lost("inside-queue-full"));
    assert!(lost("socket-ipv4-full") > 0);
    assert_eq!(lost("socket-ipv6-full"), 0, "nothing came there");
}
