//! Which packets: less than we want, several tunnels to one peer, and IPv6 inside and outside.

use super::{Ours, TheirSa, ours, sites, theirs};
use crate::support::{answers, tcp_arrives_whole};
use lab::strongswan::StrongSwan;

#[test]
fn charon_narrows_what_we_want() {
    let Some(mut lab) = sites() else { return };
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", ""), "").expect("it starts");
    let wide = ours(&[]).replace("10.1.0.0/24", "10.1.0.0/16").replace("10.2.0.0/24", "10.2.0.0/16");
    let daemon = Ours::start(&mut lab, "a", &wide);
    daemon.wait_for_tunnels(&lab, &charon);
    let tunnel = &daemon.peer()["tunnels"][0];
    assert_eq!([&tunnel["local"][0], &tunnel["remote"][0]], ["10.1.0.0/24", "10.2.0.0/24"]);
    assert!(answers(&lab, "a", "10.2.0.1"));
    assert!(!answers(&lab, "a", "10.2.1.1"), "outside of what was agreed");
}

#[test]
fn we_narrow_what_charon_wants() {
    let Some(mut lab) = sites() else { return };
    let daemon = Ours::start(&mut lab, "a", &ours(&["PEER connection-type none"]));
    let wide = "local_ts = 10.2.0.0/16\n remote_ts = 10.1.0.0/16\n start_action = start";
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", wide), "").expect("it starts");
    daemon.wait_for_tunnels(&lab, &charon);
    let sas = TheirSa::all(&charon.sas(&lab).expect("it answers"));
    assert_eq!([&*sas[0].local, &*sas[0].remote], ["10.2.0.0/24", "10.1.0.0/24"]);
    assert!(answers(&lab, "b", "10.1.0.1"));
}

#[test]
fn several_tunnels_lead_to_one_charon() {
    let Some(mut lab) = sites() else { return };
    for (site, number) in [("a", 1), ("b", 2)] {
        lab.ip(site, &format!("address add 172.16.{number}.1/24 dev lo")).expect("an address");
    }
    let more = ["PEER tunnel 2 local prefix 172.16.1.0/24", "PEER tunnel 2 remote prefix 172.16.2.0/24"];
    let v6 = ["PEER tunnel 3 local prefix fd00:1::/64", "PEER tunnel 3 remote prefix fd00:2::/64"];
    let second = "} second { local_ts = 172.16.2.0/24\n remote_ts = 172.16.1.0/24\n esp_proposals = aes256gcm16\n\
        } third { local_ts = fd00:2::/64\n remote_ts = fd00:1::/64\n esp_proposals = aes256gcm16";
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", second), "").expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &ours(&[more, v6].concat()));
    daemon.wait_for_tunnels(&lab, &charon);
    assert_eq!(daemon.peer()["tunnels"].as_array().map(Vec::len), Some(3));
    for address in ["10.2.0.1", "172.16.2.1", "fd00:2::1"] {
        tcp_arrives_whole(&lab, "a", "b", address, 1 << 20)
            .unwrap_or_else(|error| panic!("{address}: {error}\n{}", daemon.tell(&charon)));
    }
}

#[test]
fn ipv6_outside_carries_both_inside() {
    let Some(mut lab) = sites() else { return };
    for (site, end) in [("a", 1), ("b", 2)] {
        lab.ip(site, &format!("address add fd77::{end}/64 dev outside nodad")).expect("IPv6 exists");
    }
    let v6 = |text: String| text.replace("192.168.77.1", "fd77::1").replace("192.168.77.2", "fd77::2");
    let third = "} third { local_ts = fd00:2::/64\n remote_ts = fd00:1::/64\n esp_proposals = aes256gcm16";
    let more = ["PEER tunnel 3 local prefix fd00:1::/64", "PEER tunnel 3 remote prefix fd00:2::/64"];
    let charon = StrongSwan::start(&mut lab, "b", &v6(theirs("", third)), "").expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &v6(ours(&more)));
    daemon.wait_for_tunnels(&lab, &charon);
    for (from, to, address) in [("a", "b", "10.2.0.1"), ("b", "a", "10.1.0.1"), ("a", "b", "fd00:2::1")] {
        tcp_arrives_whole(&lab, from, to, address, 1 << 20)
            .unwrap_or_else(|error| panic!("{address}: {error}\n{}", daemon.tell(&charon)));
    }
}
