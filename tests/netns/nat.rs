//! Two daemons, of which one is behind a NAT, or both.

use crate::ipsec::Gateway;
use crate::support::{PATIENCE, answers, lab, skip, tcp_arrives_whole_at, udp_echoes};
use lab::{Lab, has_program, wait_until};

/// The site behind the NAT, the one that is not, and what that one knows the first by.
const HIDDEN: &str = "192.168.77.1";
const OPEN: &str = "192.168.78.2";
const OUTSIDE: &str = "192.168.78.254";

/// Two sites, and a NAT between them that lets nothing through but IKE and what is in UDP with it.
fn behind_nat() -> Option<Lab> {
    if !has_program("iptables") {
        skip("needs iptables");
        return None;
    }
    let lab = lab(&["a", "b", "nat"])?;
    lab.connect(("a", "outside", "192.168.77.1/24"), ("nat", "within", "192.168.77.254/24")).expect("veth");
    lab.connect(("b", "outside", "192.168.78.2/24"), ("nat", "without", "192.168.78.254/24")).expect("veth");
    lab.ip("a", "route add default via 192.168.77.254").expect("a route");
    lab.run("nat", "sysctl", &["-qw", "net.ipv4.ip_forward=1"]).expect("it forwards");
    for rule in [
        "-t nat -A POSTROUTING -o without -j MASQUERADE",
        "-A FORWARD -p udp -m multiport --ports 500,4500 -j ACCEPT",
        "-P FORWARD DROP",
    ] {
        lab.run("nat", "iptables", &rule.split(' ').collect::<Vec<_>>()).expect("a rule");
    }
    Some(lab)
}

/// What an end is configured with: the first is behind the NAT, and calls.
fn configuration(end: usize, more: &str) -> String {
    let (local, remote, start) = [(HIDDEN, OPEN, "initiate"), (OPEN, OUTSIDE, "none")][end];
    let remote_id = [OPEN, HIDDEN][end];
    let (ike, esp) = ("set vpn ipsec ike-group HOSTS proposal 1", "set vpn ipsec esp-group HOSTS");
    let (psk, peer) = ("set vpn ipsec authentication psk hosts", "set vpn ipsec site-to-site peer other");
    format!(
        "{ike} encryption aes256gcm128\n{ike} dh-group 31\n{ike} prf prfsha256\n\
         {esp} proposal 1 encryption aes256gcm128\n{esp} mode transport\n\
         {psk} id {HIDDEN}\n{psk} id {OPEN}\n{psk} secret right\n\
         {peer} authentication mode pre-shared-secret\n\
         {peer} authentication local-id {local}\n\
         {peer} authentication remote-id {remote_id}\n\
         {peer} connection-type {start}\n\
         {peer} ike-group HOSTS\n\
         {peer} local-address {local}\n\
         {peer} remote-address {remote}\n\
         {peer} tunnel 1 esp-group HOSTS\n\
         {more}\n"
    )
}

fn started(more: &str) -> Option<(Lab, [Gateway; 2])> {
    let mut lab = behind_nat()?;
    // The responder is started first.
    let mut gateways = ["a", "b"].map(|site| Gateway::new(&lab, site));
    for (end, gateway) in gateways.iter_mut().enumerate().rev() {
        gateway.write(&configuration(end, more));
        gateway.0.start(&mut lab);
    }
    gateways[0].comes_up("other");
    Some((lab, gateways))
}

/// What a gateway says its only tunnel is for.
fn ends(gateway: &Gateway) -> [String; 2] {
    let tunnel = gateway.peer("other")["tunnels"][0].clone();
    ["local", "remote"].map(|side| tunnel[side][0].as_str().unwrap_or_default().to_owned())
}

#[test]
fn transport_mode_carries_through_nat() {
    for more in ["", "set vpn ipsec site-to-site peer other force-encapsulation disable"] {
        let Some((lab, [a, b])) = started(more) else { return };
        let tell =
            || format!("{}\n{}", a.says("show vpn ipsec sa detail"), b.says("show vpn ipsec sa detail"));
        assert_eq!(ends(&a), [HIDDEN, OPEN].map(|host| format!("{host}/32")));
        assert_eq!(ends(&b), [OPEN, OUTSIDE].map(|host| format!("{host}/32")));
        assert!(answers(&lab, "a", OPEN) && answers(&lab, "b", OUTSIDE), "{}", tell());
        tcp_arrives_whole_at(&lab, "a", "b", [OPEN; 2], 4 << 20)
            .unwrap_or_else(|error| panic!("{error}\n{}", tell()));
        tcp_arrives_whole_at(&lab, "b", "a", [HIDDEN, OUTSIDE], 4 << 20)
            .unwrap_or_else(|error| panic!("{error}\n{}", tell()));
        let sizes = [1, 100, 1300];
        assert_eq!(udp_echoes(&lab, "a", "b", OPEN, &sizes).expect("sockets"), sizes.len(), "{}", tell());
    }
}

#[test]
fn and_goes_on_while_either_side_rekeys() {
    let Some((lab, [a, b])) = started("set vpn ipsec esp-group HOSTS life-packets 1000") else { return };
    let before = b.spis("other");
    for (from, to, at) in [("a", "b", [OPEN; 2]), ("b", "a", [HIDDEN, OUTSIDE])] {
        tcp_arrives_whole_at(&lab, from, to, at, 16 << 20)
            .unwrap_or_else(|error| panic!("{error}\n{}", b.says("show vpn ipsec sa detail")));
    }
    assert!(b.spis("other").iter().all(|spi| !before.contains(spi)), "it was rekeyed");
    assert_eq!(ends(&a), [HIDDEN, OPEN].map(|host| format!("{host}/32")));
    assert_eq!(ends(&b), [OPEN, OUTSIDE].map(|host| format!("{host}/32")));
}

/// The side of the NAT that the hidden site calls: behind it, the other one is hidden as well.
const INWARD: &str = "192.168.77.254";

/// Two sites with networks behind them, in tunnel mode, each behind a NAT as the other sees it.
fn both_hidden() -> Option<(Lab, [Gateway; 2])> {
    let mut lab = behind_nat()?;
    let forward = "-t nat -A PREROUTING -i within -p udp -m multiport --dports 500,4500 -j DNAT --to";
    let words: Vec<&str> = forward.split(' ').chain([OPEN]).collect();
    lab.run("nat", "iptables", &words).expect("a rule");
    let mut gateways = ["a", "b"].map(|site| Gateway::new(&lab, site));
    for (end, gateway) in gateways.iter_mut().enumerate().rev() {
        lab.ip(["a", "b"][end], &format!("address add 10.{}.0.1/32 dev lo", end + 1)).expect("an address");
        let peer = "set vpn ipsec site-to-site peer other";
        let networks = format!(
            "{peer} tunnel 1 local prefix 10.{}.0.0/16\n{peer} tunnel 1 remote prefix 10.{}.0.0/16",
            end + 1,
            2 - end
        );
        let text = configuration(end, &networks)
            .replace("mode transport", "mode tunnel")
            .replace(&format!("remote-address {OPEN}\n"), &format!("remote-address {INWARD}\n"));
        gateway.write(&text);
        gateway.0.start(&mut lab);
    }
    gateways[0].comes_up("other");
    Some((lab, gateways))
}

/// Where a gateway says that its peer is.
fn remote(gateway: &Gateway) -> String {
    gateway.peer("other")["ike"]["remote"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn behind_two_nats_a_peer_that_gets_another_port_is_followed() {
    let Some((lab, [a, b])) = both_hidden() else { return };
    assert!(answers(&lab, "a", "10.2.0.1") && answers(&lab, "b", "10.1.0.1"));
    assert_eq!(remote(&b), format!("{OUTSIDE}:4500"));
    let session = b.peer("other")["ike"]["number"].clone();
    // The NAT forgets what it has translated on a link that goes down, and gives other ports.
    let rule = "-t nat -I POSTROUTING -o without -p udp -j MASQUERADE --to-ports 20000-29999";
    lab.run("nat", "iptables", &rule.split(' ').collect::<Vec<_>>()).expect("a rule");
    lab.ip("nat", "link set without down").expect("a link");
    lab.ip("nat", "link set without up").expect("a link");
    let tell = || format!("{}\n{}", a.says("show vpn ipsec sa detail"), b.says("show vpn ipsec sa detail"));
    let is_back = wait_until(PATIENCE, || answers(&lab, "a", "10.2.0.1"));
    is_back.unwrap_or_else(|error| panic!("{error}\n{}", tell()));
    assert!(answers(&lab, "b", "10.1.0.1"), "{}", tell());
    let moved = || {
        let (port, address) = (remote(&b), format!("{OUTSIDE}:"));
        port.strip_prefix(&address).and_then(|port| port.parse().ok()).is_some_and(|port: u16| port >= 20_000)
    };
    wait_until(PATIENCE, moved).unwrap_or_else(|error| panic!("{error}\n{}", tell()));
    assert_eq!(b.peer("other")["ike"]["number"], session, "it is the same session");
}
