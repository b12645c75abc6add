//! Transport mode between two daemons, of which one is behind a NAT.

use crate::ipsec::Gateway;
use crate::support::{answers, lab, skip, tcp_arrives_whole_at, udp_echoes};
use bench::lab::{Lab, has_program};

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
    // Whoever is called is there first.
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
