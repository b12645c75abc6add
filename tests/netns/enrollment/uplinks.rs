//! Head office has two uplinks: a branch goes on by the second when the first dies, and goes back.

use super::Offices;
use super::failures::{Probes, say};
use crate::support::{PATIENCE, unavailable};
use lab::{Lab, has_program, wait_until};
use std::time::{Duration, Instant};

const FIRST: &str = "192.168.77.1:51820";
const SECOND: &str = "192.168.78.1:51820";
/// Silence is noticed after 15 s, three tries take 16 s.
const GOES_ON_WITHIN: Duration = Duration::from_secs(40);
/// The first address is tried every 30 s.
const GOES_BACK_WITHIN: Duration = Duration::from_secs(40);

/// Two offices with two links between them.
fn with_two_uplinks() -> Option<Offices> {
    if !has_program("nft") {
        unavailable("nft is not installed");
        return None;
    }
    let second = |lab: &Lab| {
        lab.connect(("a", "outside2", "192.168.78.1/24"), ("b", "outside2", "192.168.78.2/24"))
            .expect("veth exists");
    };
    Offices::beside(&[], second, &["address 192.168.77.1", "address 192.168.78.1"])
}

/// The first uplink of head office loses everything from now on.
fn die(lab: &Lab) {
    let rules = "add table netdev dead; \
         add chain netdev dead i { type filter hook ingress device outside priority 0 ; policy drop ; }; \
         add chain netdev dead o { type filter hook egress device outside priority 0 ; policy drop ; }";
    lab.run("a", "nft", &[rules]).expect("a filter");
}

fn live_again(lab: &Lab) {
    lab.run("a", "nft", &["delete table netdev dead"]).expect("it is there");
}

#[test]
fn a_branch_goes_on_by_the_second_address_of_head_office_and_back_by_the_first() {
    let Some(offices) = with_two_uplinks() else { return };
    offices.joins(&offices.token(&[]));
    assert!(Offices::saved(&offices.branch).contains("peer head-office backup-address 192.168.78.1"));
    let peer = || offices.branch.peer("head-office");
    assert_eq!(
        (&peer()["endpoint"], &peer()["endpoint_reason"]),
        (&FIRST.into(), &"the first of its addresses".into())
    );
    let probes = Probes::start(&offices.lab);
    probes.returned(PATIENCE).expect("the tunnel carries");
    die(&offices.lab);
    let took = probes.returned(GOES_ON_WITHIN).unwrap_or_else(|| panic!("{}", offices.branch.logged()));
    say(&format!("by the second address after {took:.1?}"));
    assert_eq!(peer()["endpoint"], SECOND);
    let why = peer()["endpoint_reason"].as_str().expect("it has two").to_owned();
    assert!(why.contains("192.168.77.1:51820 has not answered"), "{why}");
    // Probes of the first address in vain cost the session nothing.
    assert_eq!(probes.lost_for(Duration::from_secs(1)), 0);
    live_again(&offices.lab);
    let begun = Instant::now();
    wait_until(GOES_BACK_WITHIN, || peer()["endpoint"] == FIRST)
        .unwrap_or_else(|error| panic!("{error}\n{}", offices.branch.logged()));
    say(&format!("back by the first address after {:.1?}", begun.elapsed()));
    assert_eq!(peer()["endpoint_reason"], "the first of its addresses");
    probes.returned(PATIENCE).expect("the tunnel carries");
    let logged = offices.branch.logged();
    for words in ["does not answer: it is called at 192.168.78.1:51820", "answers at its first address again"]
    {
        assert!(logged.contains(words), "{words}: {logged}");
    }
}

#[test]
fn a_branch_joins_by_the_second_address_while_the_first_is_dead() {
    let Some(offices) = with_two_uplinks() else { return };
    let token = offices.token(&[]);
    die(&offices.lab);
    offices.joins(&token);
    let saved = Offices::saved(&offices.branch);
    assert!(
        saved.contains("peer head-office address 192.168.78.1"),
        "what has answered comes first: {saved}"
    );
    assert!(saved.contains("peer head-office backup-address 192.168.77.1"), "{saved}");
}
