//! Set-ups from either side, over different paths.

use super::{Ours, TheirSa, ours, pings, site_labs, sites, theirs};
use crate::support::tcp_arrives_whole;
use lab::Lab;
use lab::strongswan::StrongSwan;

/// TCP both ways.
fn carries(lab: &Lab, count: usize) {
    for (from, to, address) in [("a", "b", "10.2.0.1"), ("b", "a", "10.1.0.1")] {
        tcp_arrives_whole(lab, from, to, address, count)
            .unwrap_or_else(|error| panic!("from {from}: {error}"));
    }
}

/// What both sides say is there is the same.
fn both_say_the_same(lab: &Lab, ours: &Ours, charon: &StrongSwan) {
    let (peer, listed) = (ours.peer(), charon.sas(lab).expect("it answers"));
    assert_eq!(peer["up"], true, "{peer:#}");
    assert_eq!(peer["suite"], "aes256gcm128-prfsha256-ecp256");
    assert!(listed.contains("AES_GCM_16-256/PRF_HMAC_SHA2_256/ECP_256"), "{listed}");
    let (tunnel, sas) = (&peer["tunnels"][0], TheirSa::all(&listed));
    let [sa] = &*sas else { panic!("{listed}") };
    assert_eq!(sa.child, "net");
    assert!(sa.is(&tunnel["sas"][0]), "{sa:?}\n{tunnel:#}");
    assert_eq!([&sa.local, &sa.remote], [&tunnel["remote"][0], &tunnel["local"][0]]);
    assert!(listed.contains("ESP:AES_GCM_16-256"), "{listed}");
    assert_eq!(tunnel["sas"][0]["suite"], "aes256gcm128");
}

#[test]
fn we_call_charon_and_it_calls_us() {
    for we_call in [true, false] {
        let Some(mut lab) = sites() else { return };
        let our_start = if we_call { "initiate" } else { "none" };
        // The responder must be started first.
        let begin =
            |lab: &mut Lab| Ours::start(lab, "a", &ours(&[&format!("PEER connection-type {our_start}")]));
        let (charon, daemon) = if we_call {
            let charon = StrongSwan::start(&mut lab, "b", &theirs("", ""), "").expect("it starts");
            (charon, begin(&mut lab))
        } else {
            let daemon = begin(&mut lab);
            let calls = theirs("", "start_action = start");
            (StrongSwan::start(&mut lab, "b", &calls, "").expect("it starts"), daemon)
        };
        daemon.wait_for_tunnels(&lab, &charon);
        carries(&lab, 4 << 20);
        both_say_the_same(&lab, &daemon, &charon);
    }
}

#[test]
fn the_first_packet_calls_charon() {
    let Some(mut lab) = sites() else { return };
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", ""), "").expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &ours(&["PEER connection-type trap"]));
    assert_eq!(daemon.peer()["up"], false);
    let counts = pings(&lab, "a", "10.2.0.1", &["-c", "3", "-i", "0.5", "-W", "5"]);
    assert_eq!(counts, (3, 3), "the first waits for its key\n{}", daemon.tell(&charon));
}

/// Site a or b behind a NAT: its packets come from 192.168.78.254.
pub fn behind_nat(hidden: &str) -> Option<Lab> {
    let lab = site_labs(&["a", "b", "nat"])?;
    let (open, hidden_address, open_address) = match hidden {
        "a" => ("b", "192.168.77.1/24", "192.168.78.2/24"),
        _ => ("a", "192.168.77.2/24", "192.168.78.1/24"),
    };
    lab.connect((hidden, "outside", hidden_address), ("nat", "within", "192.168.77.254/24")).expect("veth");
    lab.connect((open, "outside", open_address), ("nat", "without", "192.168.78.254/24")).expect("veth");
    lab.ip(hidden, "route add default via 192.168.77.254").expect("a route");
    lab.run("nat", "sysctl", &["-qw", "net.ipv4.ip_forward=1"]).expect("it forwards");
    lab.run("nat", "iptables", &["-t", "nat", "-A", "POSTROUTING", "-o", "without", "-j", "MASQUERADE"])
        .expect("it translates");
    Some(lab)
}

#[test]
fn we_reach_charon_through_nat() {
    if !lab::has_program("iptables") {
        return crate::support::skip("needs iptables");
    }
    let Some(mut lab) = behind_nat("a") else { return };
    let charon = theirs("local_addrs = 192.168.78.2\n remote_addrs = %any", "");
    let charon = StrongSwan::start(&mut lab, "b", &charon, "").expect("it starts");
    let configuration = ours(&[]).replace("remote-address 192.168.77.2", "remote-address 192.168.78.2");
    let daemon = Ours::start(&mut lab, "a", &configuration);
    daemon.wait_for_tunnels(&lab, &charon);
    carries(&lab, 1 << 20);
    let listed = charon.sas(&lab).expect("it answers");
    assert!(listed.contains("remote '192.168.77.1' @ 192.168.78.254["), "{listed}");
}

#[test]
fn charon_reaches_us_through_nat() {
    if !lab::has_program("iptables") {
        return crate::support::skip("needs iptables");
    }
    let Some(mut lab) = behind_nat("b") else { return };
    let configuration = ours(&["PEER connection-type none", "PEER local-address 192.168.78.1"])
        .replace("remote-address 192.168.77.2", "remote-address any");
    let daemon = Ours::start(&mut lab, "a", &configuration);
    let charon = theirs("remote_addrs = 192.168.78.1", "start_action = start");
    let charon = StrongSwan::start(&mut lab, "b", &charon, "").expect("it starts");
    daemon.wait_for_tunnels(&lab, &charon);
    carries(&lab, 1 << 20);
    assert_eq!(daemon.peer()["remote_address"], "192.168.78.254");
}
