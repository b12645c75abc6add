//! Peers that are not reached, and why: what this machine itself refuses, and what is lost on the way.

use crate::ipsec::{Gateway, configuration};
use crate::support::{PATIENCE, sites, unavailable};
use lab::{Lab, has_program, wait_until};
use rustix::process::Signal;

/// Waits until `explain` says something.
fn comes_to_say(gateway: &Gateway, words: &str) -> String {
    let said = || gateway.explained("other").1;
    if let Err(error) = wait_until(PATIENCE, || said().contains(words)) {
        panic!("{words}: {error}\n{}\n{}", said(), gateway.0.logged());
    }
    said()
}

/// The first site, which calls what `change` makes of its configuration.
fn calling(lab: &mut Lab, change: impl Fn(String) -> String) -> Gateway {
    lab.ip("a", "address add 10.10.0.1/32 dev lo").expect("an address");
    let mut gateway = Gateway::new(lab, "a");
    gateway.write(&change(configuration(0)));
    gateway.0.start(lab);
    gateway
}

#[test]
fn a_peer_to_which_no_route_leads_is_named_at_once_and_forgotten_with_the_route() {
    let Some(mut lab) = sites() else { return };
    for own in [true, false] {
        let gateway = calling(&mut lab, |text| {
            let text = text.replace("192.168.77.2", "203.0.113.9");
            let local = "set vpn ipsec site-to-site peer other local-address 192.168.77.1\n";
            if own { text } else { text.replace(local, "") }
        });
        let said = comes_to_say(&gateway, "no route to 203.0.113.9: Network is unreachable");
        assert!(said.contains("fix: ip route add 203.0.113.9 via GATEWAY"), "{said}");
        assert!(!said.contains("unauthenticated"), "{said}");
        lab.ip("a", "route add 203.0.113.9 via 192.168.77.2").expect("a route");
        comes_to_say(&gateway, "203.0.113.9 has not answered");
        lab.ip("a", "route delete 203.0.113.9").expect("it is there");
        lab.ip("a", "address delete 10.10.0.1/32 dev lo").expect("it is there");
        lab.kill(gateway.0.process.expect("it was started"), Signal::TERM);
    }
}

/// Two sites, of which `site` drops UDP to a port where its packets pass this hook.
fn filtered(site: &str, hook: &str, port: u16) -> Option<Lab> {
    if !has_program("nft") {
        unavailable("nft is not installed");
        return None;
    }
    let lab = sites()?;
    let rules = format!(
        "add table inet t; add chain inet t c {{ type filter hook {hook} priority 0 ; }}; \
         add rule inet t c udp dport {port} counter drop"
    );
    lab.run(site, "nft", &[&rules]).expect("a filter");
    Some(lab)
}

#[test]
fn a_packet_filter_that_refuses_what_we_send_is_named() {
    let Some(mut lab) = filtered("a", "output", 500) else { return };
    let gateway = calling(&mut lab, |text| text);
    let words =
        "a packet filter of this machine refuses UDP to 192.168.77.2, port 500: Operation not permitted";
    let said = comes_to_say(&gateway, words);
    assert!(said.contains("fix: let out UDP 500 and 4500"), "{said}");
    // Until it has been sent a third time, seconds later.
    let listed = || lab.run("a", "nft", &["list ruleset"]).expect("it lists");
    let refused = || {
        let count = listed().split("counter packets ").nth(1)?.split(' ').next()?.parse::<u32>().ok();
        count.filter(|count| *count > 2)
    };
    wait_until(PATIENCE, || refused().is_some()).expect("it goes on");
    assert!(!gateway.0.logged().contains("has not answered"), "nothing was sent: {}", gateway.0.logged());
}

#[test]
fn an_ike_auth_that_is_lost_on_the_way_is_told_from_a_peer_that_is_not_there() {
    let Some(mut lab) = filtered("b", "input", 4500) else { return };
    let mut other = Gateway::new(&lab, "b");
    other.write(&configuration(1));
    other.0.start(&mut lab);
    let gateway = calling(&mut lab, |text| text);
    let said =
        comes_to_say(&gateway, "192.168.77.2 has answered IKE_SA_INIT, but not IKE_AUTH to UDP port 4500");
    assert!(said.contains("fix: let UDP port 4500 through"), "{said}");
    let said =
        comes_to_say(&other, "IKE_SA_INIT came from 192.168.77.1:500 and was answered, and no IKE_AUTH");
    assert!(said.contains("fix: let UDP ports 500 and 4500 through"), "{said}");
    lab.run("b", "nft", &["delete table inet t"]).expect("it is there");
    gateway.comes_up("other");
    assert!(!gateway.explained("other").1.contains("IKE_AUTH"));
}

#[test]
fn a_call_from_an_address_that_no_peer_has_is_told_of_the_peer_that_is_waited_for() {
    let Some(mut lab) = sites() else { return };
    let mut other = Gateway::new(&lab, "b");
    let elsewhere = "remote-address 192.168.77.9";
    other.write(&configuration(1).replace("remote-address 192.168.77.1", elsewhere));
    other.0.start(&mut lab);
    let _calling = calling(&mut lab, |text| text);
    let words = "192.168.77.1 called, and no peer is configured for it; this one is expected at 192.168.77.9";
    let said = comes_to_say(&other, words);
    assert!(!said.contains("nothing has come"), "{said}");
    let set = "set vpn ipsec site-to-site peer other remote-address 192.168.77.1";
    assert!(said.contains(&format!("fix: if that is this peer: {set}\n")), "{said}");
}
