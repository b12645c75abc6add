//! More packets than there is room for: a slow peer does not hold up a fast one, and what the kernel loses is shown.

use crate::support::{PATIENCE, ask, daemon, dropped, joined, lab, tcp_arrives_whole, udp_echoes};
use lab::wireguard::{Gateway, private_key};
use lab::{Lab, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than the slow link takes, twenty times over.
const FLOOD_PACKETS: usize = 10;
const FLOOD_EVERY: Duration = Duration::from_millis(1);

/// The hub's addresses towards the two, and theirs.
const OUTSIDE: [[&str; 4]; 2] = [
    ["192.168.77.1", "192.168.78.1", "192.168.77.2", "192.168.78.2"],
    ["fd77::1", "fd78::1", "fd77::2", "fd78::2"],
];

fn key(end: u8) -> (String, String) {
    let key = private_key(51_820, end);
    (base16ct::lower::encode_string(key.secret().expose()), base16ct::lower::encode_string(&key.public().0))
}

/// The hub `a`, and two others, each with a link to it.
fn three_sites() -> Option<Lab> {
    let lab = lab(&["a", "b", "c"])?;
    lab.connect(("a", "slow", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24")).expect("veth exists");
    lab.connect(("a", "fast", "192.168.78.1/24"), ("c", "outside", "192.168.78.2/24")).expect("veth exists");
    for (site, device, address) in [
        ("a", "slow", "fd77::1"),
        ("b", "outside", "fd77::2"),
        ("a", "fast", "fd78::1"),
        ("c", "outside", "fd78::2"),
    ] {
        lab.ip(site, &format!("address add {address}/64 dev {device} nodad")).expect("IPv6 exists");
    }
    Some(lab)
}

/// A hub `a` with a tunnel to `b`, over a link of 5 Mbit/s with a long queue, and one to `c`; tells the hub's interface.
fn hub(lab: &mut Lab, [to_slow, to_fast, slow, fast]: [&str; 4]) -> Gateway {
    let peers = [("b", slow, "10.77.0.2"), ("c", fast, "10.77.0.3")];
    let at = |remote: &str| SocketAddr::new(remote.parse().expect("literal"), 51_820);
    let interface = lab.interface("h");
    let hub = Gateway::start(lab, &daemon(), "a", &interface).expect("it starts");
    let mut request = format!("private_key={}\nlisten_port=51820\n", key(0).0);
    for (end, (_, remote, inside)) in (1..).zip(peers) {
        let (public, endpoint) = (key(end).1, at(remote));
        let peer = ["public_key", &public, "\nendpoint", &endpoint.to_string(), "\nallowed_ip", inside];
        request.push_str(&peer.chunks(2).map(|pair| pair.join("=")).collect::<String>());
        request.push_str("/32\n");
    }
    hub.set(&request).expect("accepted");
    let up = |lab: &Lab, namespace, interface: &str, address| {
        lab.ip(namespace, &format!("address add {address}/24 dev {interface}")).expect("an address");
        lab.ip(namespace, &format!("link set {interface} up")).expect("it comes up");
    };
    up(lab, "a", &hub.interface, "10.77.0.1");
    for ((end, (namespace, _, inside)), hub_address) in (1..).zip(peers).zip([to_slow, to_fast]) {
        let interface = lab.interface(namespace);
        let peer = Gateway::start(lab, &daemon(), namespace, &interface).expect("it starts");
        let (private, public, endpoint) = (key(end).0, key(0).1, at(hub_address));
        let request = format!(
            "private_key={private}\nlisten_port=51820\npublic_key={public}\nendpoint={endpoint}\nallowed_ip=10.77.0.1/32\n"
        );
        peer.set(&request).expect("accepted");
        up(lab, namespace, &interface, inside);
        wait_until(PATIENCE, || crate::support::answers(lab, "a", inside)).expect("a tunnel");
    }
    let shaper = "qdisc add dev slow root tbf rate 5mbit burst 64k limit 32m";
    lab.run("a", "tc", &shaper.split(' ').collect::<Vec<_>>()).expect("the kernel has tbf");
    hub
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
        let Some(mut lab) = three_sites() else { return };
        let hub = hub(&mut lab, outside);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| flood(&lab, "10.77.0.2", &stop));
            let is_congested = || dropped(&hub.interface, "peer-congested") > 0;
            let congested = wait_until(PATIENCE, is_congested);
            let echoes = congested.and_then(|()| udp_echoes(&lab, "a", "c", "10.77.0.3", &[100; 20]));
            // At 5 Mbit/s it would take a minute; with a place in that queue for each segment, much longer.
            let whole = tcp_arrives_whole(&lab, "a", "c", "10.77.0.3", 40 << 20);
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
    let Some(mut lab) = three_sites() else { return };
    let hub = hub(&mut lab, OUTSIDE[0]);
    for change in
        ["address add 192.168.79.1/32 dev slow", "route add 192.168.77.2/32 dev slow src 192.168.79.1"]
    {
        lab.ip("a", change).expect("it is changed");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&lab, "10.77.0.2", &stop));
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
