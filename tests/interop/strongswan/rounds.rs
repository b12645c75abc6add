//! Two rounds of authentication (RFC 4739): certificates, and then a secret, with either side as initiator.

use super::authorities::{Authorities, sites};
use super::certificates::{P256, signed};
use super::{Ours, PATIENCE, TheirSa, reaches};
use crate::support::answers;
use lab::strongswan::StrongSwan;
use lab::{Lab, wait_until};

/// The second round of charon.
const THEIRS: &str =
    "local-2 { auth = psk\n id = b.second.example\n }\n remote-2 { auth = psk\n id = a.second.example\n }";

/// Ours.
const OURS: [&str; 5] = [
    "authentication psk second id a.second.example",
    "authentication psk second id b.second.example",
    "authentication psk second secret 'a secret of both sites'",
    "PEER authentication second local-id a.second.example",
    "PEER authentication second remote-id b.second.example",
];

fn started(theirs: &str, ours: &[&str]) -> Option<(Lab, Ours, StrongSwan, Authorities)> {
    let mut lab = sites()?;
    let authorities = P256.authorities();
    let charon = P256.charon(&mut lab, &authorities, theirs);
    let daemon = Ours::start(&mut lab, "a", &P256.ours(&authorities, &["root"], ours));
    Some((lab, daemon, charon, authorities))
}

#[test]
fn both_sides_authenticate_twice_whichever_calls() {
    let Some((lab, daemon, charon, _authorities)) = started(THEIRS, &OURS) else { return };
    charon.initiate(&lab, "net").unwrap_or_else(|error| {
        panic!("charon calls: {error}\n{}", daemon.tell(&charon));
    });
    daemon.wait_for_tunnels(&lab, &charon);
    assert!(reaches(&lab, "b", "10.1.0.1"), "charon calls\n{}", daemon.tell(&charon));
    charon.swanctl(&lab, &["--terminate", "--ike", "site"]).expect("it ends");
    daemon.wait(&charon, "both have ended it", || daemon.peer()["up"] == false);
    assert!(reaches(&lab, "a", "10.2.0.1"), "we call\n{}", daemon.tell(&charon));
    daemon.wait_for_tunnels(&lab, &charon);
    let log = charon.log();
    signed(&log, "'C=CH, O=Sites, CN=a'", ["ECDSA"; 2]);
    signed(&log, "'a.second.example'", ["pre-shared key successful"; 2]);
    signed(&log, "'b.second.example' (myself)", ["pre-shared key"; 2]);
    assert_eq!(daemon.peer()["remote_id"], "C=CH, O=Sites, CN=b", "that of the first round");
}

#[test]
fn a_wrong_second_round_connects_neither_side() {
    let wrong_secret = OURS.map(|line| line.replace("a secret of both", "another secret of both"));
    let wrong_secret: Vec<&str> = wrong_secret.iter().map(String::as_str).collect();
    let wrong_id = THEIRS.replace("id = b.second.example", "id = c.second.example");
    for (theirs, ours, told) in [
        (THEIRS, &wrong_secret[..], "pre-shared keys differ"),
        (&wrong_id, &OURS[..], "another identity is configured"),
        ("", &OURS[..], "the peer does not authenticate a second time"),
        (THEIRS, &[][..], "the peer authenticates once more than configured"),
    ] {
        let Some((lab, daemon, charon, _authorities)) = started(theirs, ours) else { return };
        assert!(charon.initiate(&lab, "net").is_err(), "{told}: {}", daemon.tell(&charon));
        wait_until(PATIENCE, || daemon.log().contains(told))
            .unwrap_or_else(|error| panic!("{told}: {error}: {}", daemon.tell(&charon)));
        // The ping has us call.
        assert!(!answers(&lab, "a", "10.2.0.1"), "{told}: {}", daemon.tell(&charon));
        assert_eq!(daemon.peer()["up"], false);
        assert!(TheirSa::all(&charon.sas(&lab).expect("it answers")).is_empty(), "{told}");
    }
}
