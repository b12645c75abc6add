//! Bad networks, bad senders, and sudden deaths.

use crate::support::{PATIENCE, PLAN, answers, daemon, dropped, joined, sites, tcp_arrives_whole};
use lab::wait_until;
use lab::wireguard::{Gateway, Tunnel};
use rustix::process::Signal;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn data_arrives_whole_over_a_network_that_spoils_it() {
    let faults = ["--fault", "lose=0.01,reorder=0.01,duplicate=0.01,corrupt=0.005,seed=7"];
    let Some((lab, tunnel)) = joined(&faults) else { return };
    tcp_arrives_whole(&lab, "a", "b", &tunnel.inside[1], 4 << 20).expect("TCP repairs what is lost");
    let interface = &tunnel.gateways[1].interface;
    for reason in ["injected-fault", "bad-tag", "replayed"] {
        assert!(dropped(interface, reason) > 0, "{reason}");
    }
}

#[test]
fn a_killed_gateway_is_back_within_one_handshake() {
    let Some((mut lab, mut tunnel)) = joined(&[]) else { return };
    let before = tunnel.gateways[1].get().expect("it answers");
    let configuration: String = before
        .lines()
        .filter(|line| {
            let key = line.split('=').next().unwrap_or_default();
            matches!(key, "private_key" | "listen_port" | "public_key" | "endpoint" | "allowed_ip")
        })
        .map(|line| format!("{line}\n"))
        .collect();
    let interface = tunnel.gateways[1].interface.clone();
    lab.kill(tunnel.gateways[1].process, Signal::KILL);
    assert!(std::path::Path::new(&format!("/var/run/wireguard/{interface}.sock")).exists(), "left behind");
    // The same name again: nothing that was left behind may stop it.
    tunnel.gateways[1] = Gateway::start(&mut lab, &daemon(), "b", &interface).expect("it starts again");
    tunnel.gateways[1].set(&configuration).expect("accepted");
    lab.ip("b", &format!("address add {}/24 dev {interface}", tunnel.inside[1])).expect("it is new");
    lab.ip("b", &format!("link set {interface} up")).expect("it is there");
    // The restarted side initiates with its first packet.
    wait_until(PATIENCE, || answers(&lab, "b", &tunnel.inside[0])).expect("one handshake");
    assert!(answers(&lab, "a", &tunnel.inside[1]));
}

#[test]
fn a_link_that_goes_down_and_up_needs_no_help() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    let interface = &tunnel.gateways[0].interface;
    lab.ip("a", &format!("link set {interface} down")).expect("it is there");
    let released =
        || lab.run("a", "ss", &["-ulnH", "sport = :51820"]).is_ok_and(|text| text.trim().is_empty());
    wait_until(PATIENCE, released).expect("an interface that is down does not listen");
    lab.ip("a", &format!("link set {interface} up")).expect("it is there");
    wait_until(PATIENCE, || answers(&lab, "a", &tunnel.inside[1])).expect("a new handshake");
}

/// The longest time that a flood lasts when it is not stopped.
const FLOOD: Duration = Duration::from_secs(60);

/// Sends datagrams from many addresses, as fast as they go, until it is stopped; tells whether it was.
fn flood(lab: &lab::Lab, datagrams: &[Vec<u8>], stop: &AtomicBool) -> bool {
    lab.enter("c", || {
        let address = |source: u8| SocketAddr::from(([192, 168, 78, source], 4000));
        let sockets: Vec<UdpSocket> =
            (2..250).filter_map(|source| UdpSocket::bind(address(source)).ok()).collect();
        let deadline = Instant::now() + FLOOD;
        while Instant::now() < deadline {
            for socket in &sockets {
                for datagram in datagrams.iter().cycle().take(50) {
                    let _ = socket.send_to(datagram, "192.168.78.1:51820");
                }
                if stop.load(Ordering::Relaxed) {
                    return true;
                }
            }
        }
        false
    })
    .expect("entered")
}

#[test]
fn a_flood_of_anything_leaves_valid_peers_served_and_memory_bounded() {
    let Some(mut lab) = crate::support::lab(&["a", "b", "c"]) else { return };
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))
        .expect("veth exists");
    lab.connect(("a", "attack", "192.168.78.1/24"), ("c", "attack", "192.168.78.2/24")).expect("veth exists");
    for source in 3..250 {
        lab.ip("c", &format!("address add 192.168.78.{source}/24 dev attack")).expect("an address");
    }
    let tunnel = Tunnel::start(&mut lab, &daemon(), &PLAN).expect("a tunnel");
    let before = tunnel.gateways[0].process.memory().expect("it lives");
    // Initiations and responses that are none, cookie replies, data of no session, and what is nothing at all.
    let kinds = [(1u8, 148usize), (2, 92), (3, 64), (4, 128), (9, 100)];
    let datagrams: Vec<Vec<u8>> = kinds
        .iter()
        .map(|&(kind, length)| {
            let mut datagram = vec![kind; length];
            datagram[1..4].fill(0);
            datagram
        })
        .collect();
    let (stop, arrived) = (AtomicBool::new(false), || dropped(&tunnel.gateways[0].interface, "unknown-sa"));
    std::thread::scope(|scope| {
        let (lab, stop) = (&lab, &stop);
        let flooding = scope.spawn(move || flood(lab, &datagrams, stop));
        wait_until(PATIENCE, || arrived() > 0).expect("the flood arrives");
        // A valid peer that initiates again, in the middle of it: its old session is gone.
        let interface = &tunnel.gateways[1].interface;
        lab.ip("b", &format!("link set {interface} down")).expect("it is there");
        lab.ip("b", &format!("link set {interface} up")).expect("it is there");
        let served = wait_until(FLOOD, || answers(lab, "b", &tunnel.inside[0]));
        let until_then = arrived();
        let still_comes = wait_until(PATIENCE, || arrived() > until_then);
        stop.store(true, Ordering::Relaxed);
        assert!(flooding.join().expect("it ends"), "the flood ended before the peer was served: {served:?}");
        served.expect("it is served");
        still_comes.expect("the flood was still there when the peer was served");
    });
    let after = tunnel.gateways[0].process.memory().expect("it lives");
    assert!(after < before + (32 << 20), "{before} bytes before, {after} after");
    let interface = &tunnel.gateways[0].interface;
    assert!(dropped(interface, "not-ours") > 0 && dropped(interface, "unknown-sa") > 0);
    assert!(dropped(interface, "bad-mac") + dropped(interface, "control-queue-full") > 0);
}

#[test]
fn sessions_of_others_are_not_touched_when_a_peer_goes() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    let gateway = &tunnel.gateways[0];
    for number in 0..200u32 {
        gateway
            .set(&format!(
                "public_key={number:08x}{}\nallowed_ip=10.200.0.{}/32\n",
                "cd".repeat(28),
                number % 256
            ))
            .expect("accepted");
    }
    let handshake = gateway.value("last_handshake_time_nsec").expect("it answers");
    for number in 0..200u32 {
        gateway.set(&format!("public_key={number:08x}{}\nremove=true\n", "cd".repeat(28))).expect("accepted");
    }
    assert!(answers(&lab, "a", &tunnel.inside[1]));
    assert_eq!(gateway.value("last_handshake_time_nsec").expect("it answers"), handshake);
}

#[test]
fn two_tunnels_on_one_machine_do_not_mix() {
    let Some(mut lab) = sites() else { return };
    let first = Tunnel::start(&mut lab, &daemon(), &PLAN).expect("a tunnel");
    let plan = lab::wireguard::Plan { name: "s", port: 51_821, net: "10.78", ..PLAN };
    let second = Tunnel::start(&mut lab, &daemon(), &plan).expect("a tunnel");
    tcp_arrives_whole(&lab, "a", "b", &first.inside[1], 1 << 20).expect("the first");
    tcp_arrives_whole(&lab, "a", "b", &second.inside[1], 1 << 20).expect("the second");
    assert_eq!(dropped(&first.gateways[0].interface, "bad-tag"), 0);
}
