//! WireGuard gateways that restart while their peers have keys.

use crate::daemon::{Site, key_pair, lines, started};
use crate::support::{PATIENCE, answers, ask, daemon, joined, sites};
use lab::wait_until;
use lab::wireguard::Gateway;
use rustix::process::Signal;

/// The answer comes from the kernel behind the other gateway, microseconds after the first packet under the new keys.
#[test]
fn the_first_packet_of_a_gateway_that_was_restarted_is_answered() {
    let Some((mut lab, mut tunnel)) = joined(&[]) else { return };
    let before = tunnel.gateways[1].get().expect("it answers");
    let is_set = |line: &&str| {
        let key = line.split('=').next().unwrap_or_default();
        matches!(key, "private_key" | "listen_port" | "public_key" | "endpoint" | "allowed_ip")
    };
    let configuration: String = before.lines().filter(is_set).map(|line| format!("{line}\n")).collect();
    let interface = tunnel.gateways[1].interface.clone();
    for round in 0..3 {
        lab.kill(tunnel.gateways[1].process, Signal::KILL);
        tunnel.gateways[1] = Gateway::start(&mut lab, &daemon(), "b", &interface).expect("it starts again");
        tunnel.gateways[1].set(&configuration).expect("accepted");
        lab.ip("b", &format!("address add {}/24 dev {interface}", tunnel.inside[1])).expect("it is new");
        lab.ip("b", &format!("link set {interface} up")).expect("it is there");
        // One packet, and no other until its answer is given up.
        let ping = lab.run("b", "ping", &["-c", "1", "-W", "30", &tunnel.inside[0]]);
        ping.unwrap_or_else(|error| panic!("round {round}: the first answer is lost: {error}"));
    }
}

/// Nothing is sent through the tunnel meanwhile.
#[test]
fn a_gateway_that_is_started_calls_its_peers() {
    let Some((mut lab, a, mut b, _)) = started() else { return };
    let handshake = |site: &Site| site.peer("other")["latest_handshake"].as_u64();
    wait_until(PATIENCE, || handshake(&a).is_some() && handshake(&b).is_some()).expect("both have called");
    lab.kill(b.process.take().expect("it runs"), Signal::KILL);
    // What it left behind would look as if it already served.
    let _ = std::fs::remove_file(&b.socket);
    b.start(&mut lab);
    wait_until(PATIENCE, || handshake(&b).is_some()).expect("it calls after its restart");
    wait_until(PATIENCE, || answers(&lab, "a", "10.66.0.2")).expect("what its peer sends is understood");
}

#[test]
fn a_peer_with_another_key_is_explained_and_logged_where_it_calls() {
    let Some(mut lab) = sites() else { return };
    let (a_keys, b_keys, other) = (key_pair(), key_pair(), key_pair());
    let (mut a, mut b) = (Site::new(&lab, "a", &a_keys.0), Site::new(&lab, "b", &b_keys.0));
    a.write(&lines(0, &b_keys.1, &[]));
    b.write(&lines(1, &other.1, &[]));
    a.start(&mut lab);
    b.start(&mut lab);
    let explained = |site: &Site| {
        let socket = site.socket.to_string_lossy().into_owned();
        let said = ask(&["explain", "interfaces", "wireguard", "wg0", "peer", "other", "--api", &socket]);
        said["interfaces"][0]["peers"][0].clone()
    };
    let fix = format!("set interfaces wireguard wg0 peer other public-key {}", a_keys.1);
    let says = |site: &Site, what: &str| explained(site)["findings"].to_string().contains(what);
    wait_until(PATIENCE, || says(&b, &fix)).unwrap_or_else(|error| panic!("{error}: {}", explained(&b)));
    let log = std::fs::read_to_string(&b.log).expect("it logs");
    let line = format!("calls with the public key {}, which no peer has", a_keys.1);
    assert!(log.contains(&line), "{log}");
    wait_until(PATIENCE, || explained(&a)["state"] == "down" && says(&a, "has not answered"))
        .unwrap_or_else(|error| panic!("{error}: {}", explained(&a)));
    // With the right key it is up, and the log says who.
    b.write(&lines(1, &a_keys.1, &[]));
    assert!(b.reload().contains("in force"));
    wait_until(PATIENCE, || explained(&b)["state"] == "up")
        .unwrap_or_else(|error| panic!("{error}: {}", explained(&b)));
    wait_until(PATIENCE, || {
        std::fs::read_to_string(&b.log)
            .is_ok_and(|log| log.contains("interface wg0: peer other at 192.168.77.1:51820 is up"))
    })
    .expect("it is logged");
}
