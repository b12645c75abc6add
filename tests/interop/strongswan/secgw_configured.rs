//! `interfaces secgw` with policies that name a peer of `vpn ipsec`: the daemon at site a has its SAs from charon at site b.

use super::secgw::{COUNTERS, OURS, counted, peer_c, scene};
use super::{Ours, PATIENCE, ours, pings, theirs};
use crate::support::postern;
use lab::strongswan::StrongSwan;
use lab::{Lab, wait_until};
use rustix::process::Signal;

/// Between the host, whose interface has the address 02:00:00:00:00:01, and charon.
const GATEWAY: &[&str] = &[
    "port 0 interface inside",
    "port 0 neighbour 02:00:00:00:00:01",
    "port 0 promiscuous",
    "port 0 side protected",
    "port 1 interface outside",
    "port 1 neighbour 02:00:00:00:00:02",
    "port 1 promiscuous",
    "port 1 side unprotected",
    "policy 10 direction out",
    "policy 10 action protect",
    "policy 10 ike b",
    "policy 10 source prefix 10.1.0.0/24",
    "policy 10 destination prefix 10.2.0.0/24",
    "policy 20 direction in",
    "policy 20 action protect",
    "policy 20 ike b",
    "policy 20 source prefix 10.2.0.0/24",
    "policy 20 destination prefix 10.1.0.0/24",
    "route 192.168.77.2/32 port 1",
    "route 10.1.0.0/24 port 0",
];

/// Policies of another peer, before those of this one.
const POLICIES_OF_C: &[&str] = &[
    "policy 1 direction out",
    "policy 1 action protect",
    "policy 1 ike c",
    "policy 1 destination prefix 10.3.0.0/24",
    "policy 2 direction in",
    "policy 2 action protect",
    "policy 2 ike c",
    "policy 2 source prefix 10.3.0.0/24",
];

/// The gateway, with more lines, and its peer.
fn configuration(more: &[&str]) -> String {
    let lines = GATEWAY.iter().chain(more);
    ours(OURS) + &lines.map(|line| format!("set interfaces secgw sgw0 {line}\n")).collect::<String>()
}

/// What a command says.
fn ask(lab: &Lab, daemon: &Ours, words: &str) -> String {
    let mut command = lab.command("a", postern());
    let output = command.args(words.split(' ')).arg("--api").arg(&daemon.gateway.socket).output();
    let output = output.expect("it starts");
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

/// Whether packets pass; the first ones ask for the SA.
fn comes_up(lab: &Lab, daemon: &Ours, charon: &StrongSwan, when: &str) {
    let answered = || lab.run("host", "ping", &["-c", "1", "-W", "1", "10.2.0.1"]).is_ok();
    wait_until(2 * PATIENCE, answered)
        .unwrap_or_else(|error| panic!("{when}: {error}\n{}\n--- charon:\n{}", daemon.log(), charon.log()));
}

#[test]
fn a_gateway_of_the_daemon_has_its_sas_from_a_peer_that_ipsec0_does_not_serve() {
    let Some(mut lab) = scene() else { return };
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", ""), "").expect("it starts");
    let deleted = || charon.log().matches("received DELETE for IKE_SA").count();
    let mut daemon = Ours::start(&mut lab, "a", &configuration(&[]));
    let rules = daemon.gateway.folder().join("rules");
    std::fs::write(&rules, COUNTERS).expect("it can be written");
    lab.run("b", "nft", &["-f", &rules.to_string_lossy()]).expect("the kernel takes them");
    comes_up(&lab, &daemon, &charon, "at the start");
    let is_served_twice =
        |lab: &Lab, daemon: &Ours| lab.ip("a", "link show ipsec0").is_ok() || !daemon.peers().is_empty();
    assert!(!is_served_twice(&lab, &daemon), "{:?}", daemon.peers());
    for (words, part) in
        [("ike", "b-tunnel-1"), ("ike", "192.168.77.2"), ("ike detail", "rekeying in"), ("rules", "ike b")]
    {
        let shown = ask(&lab, &daemon, &format!("show secgw {words}"));
        assert!(shown.contains(part), "{part}: {shown}");
    }

    // Another peer comes before this one, and goes. An SA of ours lasts 1,000 packets.
    let (counts, reloads) = std::thread::scope(|scope| {
        let pings =
            scope.spawn(|| pings(&lab, "host", "10.2.0.1", &["-c", "3000", "-i", "0.0025", "-W", "3"]));
        let mut reloads = 0;
        while !pings.is_finished() || reloads % 2 == 1 {
            let text = match reloads % 2 {
                0 => configuration(POLICIES_OF_C) + &peer_c(),
                _ => configuration(&[]),
            };
            daemon.reload(&text);
            reloads += 1;
        }
        (pings.join().expect("it ends"), reloads)
    });
    assert!(reloads > 1, "they were during the pings");
    assert_eq!(counts, (3000, 3000), "{}\n--- charon:\n{}", daemon.log(), charon.log());
    assert!(daemon.log().contains("b-tunnel-1 is rekeyed"), "{}", daemon.log());

    let said = ask(&lab, &daemon, "reset secgw ike nobody");
    assert!(said.contains("no policy names a peer nobody") && said.contains("one of b"), "{said}");
    let before = deleted();
    ask(&lab, &daemon, "reset secgw ike b");
    wait_until(PATIENCE, || deleted() > before).unwrap_or_else(|error| panic!("{error}"));
    comes_up(&lab, &daemon, &charon, "after its reset");

    // The gateway is made again, with its IKE. What it puts together leaves in frames of up to 1,500 bytes.
    lab.ip("host", "link set eth0 mtu 1500").expect("it is there");
    let before = deleted();
    daemon.reload(&configuration(&["reassemble 16"]));
    wait_until(PATIENCE, || deleted() > before).unwrap_or_else(|error| panic!("{error}"));
    comes_up(&lab, &daemon, &charon, "after it was made again");
    assert_eq!(
        pings(&lab, "host", "10.2.0.1", &["-c", "20", "-i", "0.01", "-s", "4000", "-W", "3"]),
        (20, 20),
        "{}",
        ask(&lab, &daemon, "show secgw")
    );

    // The peer goes to ipsec0, with its UDP ports, and back.
    let before = deleted();
    daemon.reload(&ours(OURS));
    wait_until(PATIENCE, || deleted() > before).unwrap_or_else(|error| panic!("{error}"));
    lab.ip("a", "link show ipsec0").unwrap_or_else(|error| panic!("{error}: {}", daemon.log()));
    assert!(daemon.peers().len() == 1 && ask(&lab, &daemon, "show secgw ike").contains("no gateway"));
    daemon.reload(&configuration(&[]));
    comes_up(&lab, &daemon, &charon, "of the gateway again");
    assert!(!is_served_twice(&lab, &daemon), "{:?}", daemon.peers());

    // One that no policy names would need the same ports.
    daemon.gateway.write(&(configuration(&[]) + &peer_c()));
    let said = ask(&lab, &daemon, "reload");
    assert!(said.contains("peer c: interfaces secgw sgw0 has UDP ports 500 and 4500"), "{said}");
    comes_up(&lab, &daemon, &charon, "all goes on as before");

    daemon.kill(&mut lab, Signal::KILL);
    daemon.gateway.write(&configuration(&[]));
    daemon.restart(&mut lab);
    comes_up(&lab, &daemon, &charon, "after the death of the daemon");
    let before = deleted();
    assert!(counted(&lab, "sealed") > 3000);
    assert_eq!(counted(&lab, "clear"), 0);
    daemon.kill(&mut lab, Signal::TERM);
    wait_until(PATIENCE, || deleted() > before)
        .unwrap_or_else(|error| panic!("our end is told: {error}\n{}", charon.log()));
}
