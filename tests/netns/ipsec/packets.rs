//! Which packets enter and leave the two gateways, encrypted and not, of what size and from which address.

use super::{Gateway, OUTSIDE, OUTSIDE_6, started, started_in};
use crate::support::{PATIENCE, answers, sites, sites_and, tcp_arrives_whole};
use lab::{Lab, wait_until};
use rustix::process::Signal;
use std::net::UdpSocket;
use std::time::Duration;

/// Whether packets of this machine would go to the other site, and by which interface.
fn way(lab: &Lab) -> String {
    lab.ip("a", "route get 10.20.0.1").unwrap_or_else(|error| error.to_string())
}

fn goes_nowhere(lab: &Lab) {
    let way = || way(lab);
    let closed = wait_until(PATIENCE, || way().contains("No route to host"));
    closed.unwrap_or_else(|error| panic!("{error}: {}", way()));
}

fn goes_inside(lab: &Lab) {
    let way = || way(lab);
    let open = wait_until(PATIENCE, || way().contains("ipsec0"));
    open.unwrap_or_else(|error| panic!("{error}: {}", way()));
    wait_until(PATIENCE, || answers(lab, "a", "10.20.0.1")).expect("the tunnel carries");
}

#[test]
fn what_is_protected_does_not_leave_in_clear_whatever_becomes_of_the_interface() {
    let Some((mut lab, [mut a, _b])) = started(|_, text| text) else { return };
    let in_clear = "10.20.0.0/16 via 192.168.77.2";
    lab.ip("a", &format!("route add {in_clear}")).expect("a route");
    goes_inside(&lab);
    lab.ip("a", "link set ipsec0 down").expect("it goes down");
    goes_nowhere(&lab);
    lab.ip("a", "link set ipsec0 up").expect("it goes up");
    goes_inside(&lab);
    lab.ip("a", "route flush table 220").expect("routes");
    lab.ip("a", "rule delete priority 220").expect("a rule");
    assert!(a.0.reload().contains("in force"));
    goes_inside(&lab);
    lab.ip("a", "link delete ipsec0").expect("it goes");
    goes_nowhere(&lab);
    assert!(a.0.reload().contains("in force"));
    goes_inside(&lab);
    let kill = |lab: &mut Lab, a: &mut Gateway| {
        lab.kill(a.0.process.take().expect("it was started"), Signal::KILL);
        let _ = std::fs::remove_file(&a.0.socket);
    };
    kill(&mut lab, &mut a);
    goes_nowhere(&lab);
    a.0.start(&mut lab);
    goes_inside(&lab);
    kill(&mut lab, &mut a);
    a.write("set system allow-empty\n");
    a.0.start(&mut lab);
    wait_until(PATIENCE, || way(&lab).contains("via 192.168.77.2")).expect("nothing is left");
    let rules = lab.ip("a", "rule show").expect("rules");
    assert!(!rules.contains("220"), "{rules}");
}

#[test]
fn a_tunnel_between_the_gateways_carries_what_they_send_to_each_other() {
    // Their outer packets are from where the tunnel leads, and come in.
    let between = |_, text: String| {
        let lines = text.lines().filter(|line| !line.contains("peer other tunnel 1 local"));
        lines
            .filter(|line| !line.contains("peer other tunnel 1 remote"))
            .fold(String::new(), |all, line| all + line + "\n")
    };
    let Some((lab, [a, b])) = started(between) else { return };
    a.comes_up("other");
    assert!(answers(&lab, "a", OUTSIDE[1]), "{}", b.says("show vpn ipsec sa"));
    tcp_arrives_whole(&lab, "a", "b", OUTSIDE[1], 1 << 20).expect("the tunnel carries");
}

/// How many of three datagrams arrive at the first site, from an address of `from`.
fn arrive_at_a(lab: &Lab, from: &str, source: &str, to: &str) -> usize {
    let server = lab.enter("a", || UdpSocket::bind((to, 0))).expect("it is entered").expect("a port");
    server.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    let target = server.local_addr().expect("it is bound");
    let sent = lab.enter(from, || {
        let client = UdpSocket::bind((source, 0))?;
        (0..3).try_for_each(|_| client.send_to(b"in clear", target).map(|_| ()))
    });
    sent.expect("it is entered").expect("it is sent");
    std::iter::from_fn(|| server.recv(&mut [0; 64]).ok()).take(3).count()
}

#[test]
fn what_is_from_behind_a_peer_does_not_come_in_unprotected() {
    let Some(lab) = sites_and(&["r"]) else { return };
    lab.connect(("a", "wan", "192.168.78.1/24"), ("r", "wan", "192.168.78.2/24")).expect("veth exists");
    for address in ["10.20.0.66/32", "10.30.0.66/32"] {
        lab.ip("r", &format!("address add {address} dev lo")).expect("an address");
    }
    lab.ip("r", "route add 10.10.0.0/16 via 192.168.78.1").expect("a route");
    lab.ip("a", "route add 10.30.0.0/16 via 192.168.78.2").expect("a route");
    let (lab, [a, _b]) = started_in(lab, |_, text| text);
    a.comes_up("other");
    assert_eq!(arrive_at_a(&lab, "r", "10.30.0.66", "10.10.0.1"), 3, "no tunnel leads there");
    assert_eq!(arrive_at_a(&lab, "r", "10.20.0.66", "10.10.0.1"), 0, "a tunnel leads there");
    assert_eq!(arrive_at_a(&lab, "b", "10.20.0.1", "10.10.0.1"), 3, "through the tunnel");
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 1 << 20).expect("the tunnel carries");
}

/// How many fragments the first site has made.
fn fragments_made(lab: &Lab) -> u64 {
    let said = lab.run("a", "cat", &["/proc/net/snmp"]).expect("it is there");
    let mut lines = said.lines().filter(|line| line.starts_with("Ip:")).map(str::split_whitespace);
    let (names, mut numbers) = (lines.next().expect("names"), lines.next().expect("numbers"));
    let at = names.into_iter().position(|name| name == "FragCreates").expect("it is counted");
    numbers.nth(at).expect("a number").parse().expect("a number")
}

/// Lets the way between the sites carry no more than this.
fn narrow(lab: &Lab, mtu: u16) {
    for site in ["a", "b"] {
        lab.ip(site, &format!("link set outside mtu {mtu}")).expect("an MTU");
    }
}

#[test]
fn what_the_way_to_a_peer_does_not_carry_is_not_sent() {
    let Some(lab) = sites() else { return };
    narrow(&lab, 1350);
    let (lab, [a, _b]) = started_in(lab, |_, text| text);
    a.comes_up("other");
    let whole = |size: &str| {
        lab.run("a", "ping", &["-c", "1", "-W", "1", "-M", "do", "-s", size, "10.20.0.1"]).is_ok()
    };
    assert!(whole("1200") && !whole("1300"));
    tcp_arrives_whole(&lab, "a", "b", "10.20.0.1", 4 << 20).expect("the tunnel carries");
    assert_eq!(fragments_made(&lab), 0);
    narrow(&lab, 1285);
    wait_until(PATIENCE, || !whole("1200")).expect("it is noticed");
    assert!(whole("1150"));
}

#[test]
fn datagrams_that_are_cut_need_an_mtu_where_ports_are_asked_for() {
    let Some((lab, [a, _b])) = started(|end, text| {
        let tunnel = "set vpn ipsec site-to-site peer other tunnel 1";
        let side = ["remote", "local"][end];
        text + &format!("{tunnel} protocol udp\n{tunnel} {side} port 9999\n")
    }) else {
        return;
    };
    a.comes_up("other");
    // Once: a child of another test keeps a port for the moment between its fork and its exec.
    let server = lab.enter("b", || UdpSocket::bind("10.20.0.1:9999")).expect("entered").expect("a port");
    server.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    let arrives = |size: usize| {
        let sent =
            lab.enter("a", || UdpSocket::bind("10.10.0.1:0")?.send_to(&vec![7; size], "10.20.0.1:9999"));
        sent.expect("it is entered").expect("it is sent");
        server.recv(&mut [0; 4096]).is_ok_and(|length| length == size)
    };
    assert!(arrives(100) && !arrives(3000));
    let text = std::fs::read_to_string(&a.0.file).expect("a file");
    a.write(&(text + "set vpn ipsec site-to-site peer other tunnel 1 mtu 9000\n"));
    assert!(a.0.reload().contains("in force"));
    a.comes_up("other");
    assert!(arrives(3000));
}

#[test]
fn a_peer_with_any_local_address_is_reached_at_each_address() {
    let Some(lab) = sites() else { return };
    lab.ip("a", "address add 192.168.77.9/24 dev outside").expect("an address");
    let change = |end, text: String| {
        let (mine, at_a) =
            (format!("local-address {}\n", OUTSIDE[0]), format!("remote-address {}\n", OUTSIDE[0]));
        match end {
            0 => text
                .replace(&mine, "local-address any\n")
                .replace("other connection-type initiate", "other connection-type trap"),
            _ => text
                .replace(&at_a, "remote-address 192.168.77.9\n")
                .replace("other connection-type none", "other connection-type initiate"),
        }
        .replace(&format!("local-address {}\n", OUTSIDE_6[0]), "local-address any\n")
    };
    let (_lab, [a, b]) = started_in(lab, change);
    b.comes_up("other");
    a.comes_up("second");
}

#[test]
fn the_source_of_our_own_packets_follows_our_addresses() {
    let Some((lab, [a, _b])) = started(|_, text| text) else { return };
    a.comes_up("other");
    assert!(way(&lab).contains("src 10.10.0.1"), "{}", way(&lab));
    lab.ip("a", "address add 10.10.0.9/32 dev lo").expect("an address");
    lab.ip("a", "address delete 10.10.0.1/32 dev lo").expect("another goes");
    wait_until(PATIENCE, || way(&lab).contains("src 10.10.0.9"))
        .unwrap_or_else(|error| panic!("{error}: {}", way(&lab)));
    goes_inside(&lab);
}
