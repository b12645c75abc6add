//! A NAT on the way that forgets: it gives the side behind it another port, and the other side finds it there.

use super::{Ours, PATIENCE, ours, pings, reaches, theirs, ways::behind_nat};
use crate::support::skip;
use lab::strongswan::StrongSwan;
use lab::{Lab, has_program, wait_until};
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::time::Duration;

/// Silence of the peer after which we ask whether it lives.
const ASKS: [&str; 2] =
    ["ike-group I dead-peer-detection interval 2", "ike-group I dead-peer-detection action restart"];
/// The ports that the NAT has for others after it has forgotten.
const OTHER_PORTS: &str = "30000-30099";

fn has_iptables() -> bool {
    let has = has_program("iptables");
    if !has {
        skip("needs iptables");
    }
    has
}

/// We are behind the NAT, and call.
fn with_us_behind(more: &[&str]) -> Option<(Lab, Ours, StrongSwan)> {
    let mut lab = behind_nat("a")?;
    let charon = theirs("local_addrs = 192.168.78.2\n remote_addrs = %any", "");
    let charon = StrongSwan::start(&mut lab, "b", &charon, "").expect("it starts");
    let configuration = ours(more).replace("remote-address 192.168.77.2", "remote-address 192.168.78.2");
    let daemon = Ours::start(&mut lab, "a", &configuration);
    daemon.wait_for_tunnels(&lab, &charon);
    Some((lab, daemon, charon))
}

/// charon is behind the NAT, and calls.
fn with_charon_behind(more: &[&str], settings: &str) -> Option<(Lab, Ours, StrongSwan)> {
    let mut lab = behind_nat("b")?;
    let more = [more, &["PEER connection-type none", "PEER local-address 192.168.78.1"]].concat();
    let configuration = ours(&more).replace("remote-address 192.168.77.2", "remote-address any");
    let daemon = Ours::start(&mut lab, "a", &configuration);
    let charon = theirs("remote_addrs = 192.168.78.1", "start_action = start");
    let charon = StrongSwan::start(&mut lab, "b", &charon, settings).expect("it starts");
    daemon.wait_for_tunnels(&lab, &charon);
    Some((lab, daemon, charon))
}

/// The NAT forgets all that it translates, and takes other ports from now on.
fn forget(lab: &Lab) {
    let nat = |arguments: &[&str]| lab.run("nat", "iptables", &[&["-t", "nat"], arguments].concat());
    nat(&["-F", "POSTROUTING"]).expect("it has rules");
    let other = ["-p", "udp", "-j", "MASQUERADE", "--to-ports", OTHER_PORTS];
    nat(&[&["-A", "POSTROUTING", "-o", "without"][..], &other].concat()).expect("it takes another");
    lab.enter("nat", flush_connections).expect("the namespace is there").expect("the kernel forgets");
}

/// What `conntrack -F` does: IPCTNL_MSG_CT_DELETE of everything, acknowledged.
fn flush_connections() -> rustix::io::Result<()> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(NETFILTER),
    )?;
    let mut message = [0; 20];
    message[..4].copy_from_slice(&20u32.to_ne_bytes());
    // NFNL_SUBSYS_CTNETLINK and IPCTNL_MSG_CT_DELETE; NLM_F_REQUEST and NLM_F_ACK.
    message[4..6].copy_from_slice(&0x0102u16.to_ne_bytes());
    message[6..8].copy_from_slice(&5u16.to_ne_bytes());
    rustix::net::sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0u8; 64];
    let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // NLMSG_ERROR: its first field is 0 if nothing was wrong.
    let code = answer[..length].get(16..20).map_or(-1, |it| i32::from_ne_bytes(it.try_into().expect("four")));
    if code == 0 { Ok(()) } else { Err(rustix::io::Errno::from_raw_os_error(-code)) }
}

/// The port of the peer, as our IKE knows it.
fn port_of_charon(daemon: &Ours) -> u16 {
    let remote = daemon.peer()["ike"]["remote"].as_str().unwrap_or_default().to_owned();
    remote.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0)
}

#[test]
fn a_charon_whose_nat_forgets_is_followed() {
    if !has_iptables() {
        return;
    }
    // What keeps translations alive is not authentic, and moves no peer.
    let Some((lab, daemon, charon)) = with_charon_behind(&ASKS, "keep_alive = 1s") else { return };
    assert!(reaches(&lab, "b", "10.1.0.1"), "{}", daemon.tell(&charon));
    assert_eq!(port_of_charon(&daemon), 4500);
    forget(&lab);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(port_of_charon(&daemon), 4500, "nothing authentic has come");
    let counts = pings(&lab, "b", "10.1.0.1", &["-c", "3", "-i", "0.2", "-W", "3"]);
    assert_eq!(counts, (3, 3), "the answers go to the new port\n{}", daemon.tell(&charon));
    let asked = charon.log().matches("parsed INFORMATIONAL request").count();
    daemon.wait(&charon, "IKE goes there too", || (30_000..30_100).contains(&port_of_charon(&daemon)));
    daemon.wait(&charon, "it is asked at the new port whether it lives", || {
        charon.log().matches("parsed INFORMATIONAL request").count() > asked
    });
    for (from, address) in [("a", "10.2.0.1"), ("b", "10.1.0.1")] {
        assert!(reaches(&lab, from, address), "from {from}\n{}", daemon.tell(&charon));
    }
    assert_eq!(charon.log().matches("IKE_SA site[1] established").count(), 1);
    daemon.wait_for_tunnels(&lab, &charon);
}

#[test]
fn charon_follows_us_when_our_nat_forgets() {
    if !has_iptables() {
        return;
    }
    let Some((lab, daemon, charon)) = with_us_behind(&ASKS) else { return };
    assert!(reaches(&lab, "b", "10.1.0.1"), "{}", daemon.tell(&charon));
    // On a busy machine the first attempt can stay half-open, as number 1.
    let number = |listed: &str| {
        let words = listed.split_once("site: #").map(|(_, rest)| rest);
        words.and_then(|rest| rest.split(',').next()).expect("a session").to_owned()
    };
    let session = number(&charon.sas(&lab).expect("it answers"));
    forget(&lab);
    let moved = || charon.sas(&lab).is_ok_and(|listed| listed.contains("@ 192.168.78.254[300"));
    daemon.wait(&charon, "our question whether it lives shows where we are", moved);
    // Its ESP goes there only when it has replaced the keys, as kernel-libipsec moves no SA: what it sends before is lost.
    let answered = |from: &str, address: &str| pings(&lab, from, address, &["-c", "1", "-W", "2"]) == (1, 1);
    for (from, address) in [("a", "10.2.0.1"), ("b", "10.1.0.1")] {
        daemon.wait(&charon, &format!("a ping from {from} is answered"), || answered(from, address));
    }
    daemon.wait_for_tunnels(&lab, &charon);
    let listed = charon.sas(&lab).expect("it answers");
    assert_eq!(number(&listed), session, "it is the same session: {listed}");
}

#[test]
fn an_idle_tunnel_through_nat_is_kept_alive() {
    if !has_iptables() {
        return;
    }
    let Some((lab, daemon, charon)) = with_us_behind(&[]) else { return };
    // RFC 3948 section 2.3: one byte, which with the headers of IPv4 and UDP is 29.
    let keepalives = ["-p", "udp", "--dport", "4500", "-m", "length", "--length", "29"];
    let rule = [&["-t", "mangle", "-A", "FORWARD", "-i", "within"][..], &keepalives].concat();
    lab.run("nat", "iptables", &rule).expect("it counts");
    let counted = || {
        let listed = lab.run("nat", "iptables", &["-t", "mangle", "-nvxL", "FORWARD"]).expect("it lists");
        let line = listed.lines().find(|line| line.contains("length 29")).expect("the rule").to_owned();
        line.split_whitespace().next().and_then(|count| count.parse::<u32>().ok()).expect("a count")
    };
    assert_eq!(counted(), 0);
    wait_until(PATIENCE + PATIENCE, || counted() > 0)
        .unwrap_or_else(|error| panic!("{error}\n{}", daemon.tell(&charon)));
    assert_eq!(counted(), 1, "no more than are needed");
    assert!(reaches(&lab, "b", "10.1.0.1"), "{}", daemon.tell(&charon));
}
