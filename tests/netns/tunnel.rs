//! What a tunnel carries, over which networks, and with which help of the kernel.

use crate::support::{
    PATIENCE, PLAN, answers, daemon, dropped, joined, offload, sites, tcp_arrives_whole, udp_echoes,
};
use lab::wait_until;
use lab::wireguard::{Plan, Tunnel};

const MEGABYTES: usize = 20 << 20;

#[test]
fn tcp_and_udp_pass_in_both_directions_and_versions() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    for inside in [&tunnel.inside, &tunnel.inside_v6] {
        tcp_arrives_whole(&lab, "a", "b", &inside[1], MEGABYTES).expect("a to b");
        tcp_arrives_whole(&lab, "b", "a", &inside[0], MEGABYTES).expect("b to a");
        let sizes = [0, 1, 15, 16, 17, 64, 500, 1300, 1352];
        assert_eq!(udp_echoes(&lab, "a", "b", &inside[1], &sizes).expect("UDP"), sizes.len());
    }
    let interface = &tunnel.gateways[0].interface;
    for name in ["tun-tso", "tun-gro", "udp-gso", "udp-gro"] {
        let (state, packets, fallbacks) = offload(interface, name);
        assert!(state == "on" && packets > 1000 && fallbacks == 0, "{name}: {state}, {packets}, {fallbacks}");
    }
}

#[test]
fn the_outside_may_be_ipv6() {
    let Some(mut lab) = sites() else { return };
    let plan = Plan { outside: ["fd77::1", "fd77::2"], mtu: 1400, ..PLAN };
    let tunnel = Tunnel::start(&mut lab, &daemon(), &plan).expect("a tunnel");
    tcp_arrives_whole(&lab, "a", "b", &tunnel.inside[1], MEGABYTES).expect("v4 in v6");
    tcp_arrives_whole(&lab, "b", "a", &tunnel.inside_v6[0], MEGABYTES).expect("v6 in v6");
}

#[test]
fn any_mtu_that_fits_a_packet_works() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    for mtu in [576u32, 1280, 9000, 34_736, 65_475] {
        for (site, gateway) in ["a", "b"].iter().zip(&tunnel.gateways) {
            lab.ip(site, &format!("link set {} mtu {mtu}", gateway.interface)).expect("TUN takes it");
        }
        tcp_arrives_whole(&lab, "a", "b", &tunnel.inside[1], 4 << 20)
            .unwrap_or_else(|e| panic!("MTU {mtu}: {e}"));
        let largest = (mtu as usize - 28).min(65_447);
        let sizes = [largest - 1, largest];
        assert_eq!(udp_echoes(&lab, "a", "b", &tunnel.inside[1], &sizes).expect("UDP"), 2, "MTU {mtu}");
    }
}

#[test]
fn every_offload_can_be_switched_off() {
    for name in
        ["tun-tso", "tun-uso", "tun-gro", "udp-gso", "udp-gro", "tun-tso,tun-uso,tun-gro,udp-gso,udp-gro"]
    {
        let Some((lab, tunnel)) = joined(&["--without", name]) else { return };
        tcp_arrives_whole(&lab, "a", "b", &tunnel.inside[1], MEGABYTES)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        for one in name.split(',') {
            let (state, packets, _) = offload(&tunnel.gateways[0].interface, one);
            assert_eq!((state.as_str(), packets), ("switched off", 0), "{one}");
        }
    }
}

/// The segments of a send must fit the outer path; where they do not, the kernel refuses to cut, and would fragment.
#[test]
fn a_path_too_small_for_segments_falls_back_and_loses_nothing() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    for site in ["a", "b"] {
        lab.ip(site, "link set outside mtu 1400").expect("veth takes it");
    }
    tcp_arrives_whole(&lab, "a", "b", &tunnel.inside[1], MEGABYTES).expect("fragments arrive");
    let (state, _, fallbacks) = offload(&tunnel.gateways[0].interface, "udp-gso");
    assert!(state == "on" && fallbacks > 0, "{state}, {fallbacks}");
    assert_eq!(dropped(&tunnel.gateways[0].interface, "send-failed"), 0);
}

#[test]
fn a_site_behind_the_gateway_uses_the_tunnel() {
    let Some(mut lab) = crate::support::lab(&["host", "a", "b"]) else { return };
    lab.connect(("host", "lan", "10.99.0.2/24"), ("a", "lan", "10.99.0.1/24")).expect("veth exists");
    lab.connect(("a", "outside", "192.168.77.1/24"), ("b", "outside", "192.168.77.2/24"))
        .expect("veth exists");
    lab.ip("host", "route add default via 10.99.0.1").expect("a route");
    lab.run("a", "sysctl", &["-w", "net.ipv4.ip_forward=1"]).expect("sysctl");
    let tunnel = Tunnel::start(&mut lab, &daemon(), &PLAN).expect("a tunnel");
    let key = tunnel.gateways[1].get().expect("it answers");
    let peer = key.lines().find_map(|line| line.strip_prefix("public_key=")).expect("it has a peer");
    tunnel.gateways[1].set(&format!("public_key={peer}\nallowed_ip=10.99.0.0/24\n")).expect("accepted");
    lab.ip("b", &format!("route add 10.99.0.0/24 dev {}", tunnel.gateways[1].interface)).expect("a route");
    tcp_arrives_whole(&lab, "host", "b", &tunnel.inside[1], MEGABYTES).expect("from the host");
    tcp_arrives_whole(&lab, "b", "host", "10.99.0.2", MEGABYTES).expect("to the host");
}

#[test]
fn a_peer_that_moves_is_followed() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    lab.ip("a", "address add 192.168.77.9/24 dev outside").expect("an address");
    lab.ip("a", "address delete 192.168.77.1/24 dev outside").expect("it is there");
    lab.ip("a", "address add 192.168.77.9/24 dev outside").ok();
    assert!(answers(&lab, "a", &tunnel.inside[1]), "from the new address");
    let endpoint = tunnel.gateways[1].value("endpoint").expect("it answers");
    assert_eq!(endpoint.as_deref(), Some("192.168.77.9:51820"));
    assert!(answers(&lab, "b", &tunnel.inside[0]), "to the new address");
}

#[test]
fn a_packet_to_no_peer_gets_an_icmp_error() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    lab.ip("a", &format!("route add 10.88.0.0/16 dev {}", tunnel.gateways[0].interface)).expect("a route");
    let said = lab
        .run("a", "ping", &["-c", "1", "-W", "2", "10.88.0.1"])
        .expect_err("no peer has the address")
        .to_string();
    assert!(said.contains("Destination Host Unreachable"), "{said}");
    assert!(dropped(&tunnel.gateways[0].interface, "no-route") > 0);
}

#[test]
fn marked_datagrams_can_be_routed_apart() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    lab.ip("a", "rule add fwmark 77 prohibit").expect("a rule");
    assert!(answers(&lab, "a", &tunnel.inside[1]));
    tunnel.gateways[0].set("fwmark=77\n").expect("accepted");
    assert!(!answers(&lab, "a", &tunnel.inside[1]), "now the rule applies");
    assert!(dropped(&tunnel.gateways[0].interface, "send-failed") > 0);
    tunnel.gateways[0].set("fwmark=0\n").expect("accepted");
    assert!(answers(&lab, "a", &tunnel.inside[1]));
}

#[test]
fn a_gateway_with_two_addresses_answers_from_the_one_that_was_asked() {
    let Some((lab, tunnel)) = joined(&[]) else { return };
    lab.ip("b", "address add 192.168.77.22/24 dev outside").expect("an address");
    let peer = tunnel.gateways[0].value("public_key").expect("it answers").expect("it has a peer");
    tunnel.gateways[0].set(&format!("public_key={peer}\nendpoint=192.168.77.22:51820\n")).expect("accepted");
    assert!(answers(&lab, "a", &tunnel.inside[1]));
    let endpoint = || tunnel.gateways[0].value("endpoint").expect("it answers");
    assert_eq!(
        endpoint().as_deref(),
        Some("192.168.77.22:51820"),
        "it would be .2 had the answer come from there"
    );
    // And when that address goes, another is used.
    lab.ip("b", "address delete 192.168.77.22/24 dev outside").expect("it is there");
    let reached = || answers(&lab, "b", &tunnel.inside[0]);
    wait_until(PATIENCE, reached).expect("the kernel chose another address");
}
