//! One of both ends, or dies, and comes again.

use super::{Ours, PATIENCE, ours, sites, theirs};
use crate::support::answers;
use lab::strongswan::StrongSwan;
use lab::{Lab, wait_until};
use rustix::process::Signal;

/// How charon's requests are repeated, that it does not take minutes to give up.
const QUICK: &str = "retransmit_tries = 2\n retransmit_timeout = 0.5\n retransmit_base = 1";

fn joined(more: &[&str], [connection, child, charon]: [&str; 3]) -> Option<(Lab, Ours, StrongSwan)> {
    let mut lab = sites()?;
    let charon = StrongSwan::start(&mut lab, "b", &theirs(connection, child), charon).expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &ours(more));
    daemon.wait_for_tunnels(&lab, &charon);
    assert!(answers(&lab, "a", "10.2.0.1"), "{}", daemon.tell(&charon));
    Some((lab, daemon, charon))
}

/// Waits until packets pass again, both ways.
fn recovers(lab: &Lab, daemon: &Ours, charon: &StrongSwan) {
    for (from, to) in [("a", "10.2.0.1"), ("b", "10.1.0.1")] {
        daemon.wait(charon, "packets pass again", || answers(lab, from, to));
    }
    daemon.wait_for_tunnels(lab, charon);
}

#[test]
fn a_charon_that_ends_says_so_and_is_called_again() {
    let Some((mut lab, daemon, mut charon)) = joined(&["ike-group I close-action start"], [""; 3]) else {
        return;
    };
    charon.end(&mut lab, Signal::TERM);
    wait_until(PATIENCE, || daemon.peer()["up"] == false).expect("it has deleted the SA");
    charon.restart(&mut lab).expect("it starts");
    recovers(&lab, &daemon, &charon);
}

#[test]
fn a_charon_that_died_calls_and_takes_the_place_of_its_past() {
    let settings = ["keyingtries = 0", "start_action = start", QUICK];
    let Some((mut lab, daemon, mut charon)) = joined(&["PEER connection-type none"], settings) else {
        return;
    };
    charon.kill(&mut lab);
    charon.restart(&mut lab).expect("it starts");
    recovers(&lab, &daemon, &charon);
}

#[test]
fn we_died_and_call_again() {
    let Some((mut lab, mut daemon, charon)) = joined(&[], [""; 3]) else { return };
    daemon.kill(&mut lab, Signal::KILL);
    daemon.restart(&mut lab);
    recovers(&lab, &daemon, &charon);
    assert!(charon.log().contains("destroying duplicate IKE_SA"), "{}", daemon.tell(&charon));
}

#[test]
fn the_end_of_the_daemon_deletes_the_sas_of_the_peer() {
    let Some((mut lab, daemon, charon)) = joined(&[], [""; 3]) else { return };
    daemon.kill(&mut lab, Signal::TERM);
    let gone = || charon.sas(&lab).is_ok_and(|listed| !listed.contains("site"));
    daemon.wait(&charon, "charon has no SA any more", gone);
}

#[test]
fn we_died_and_charon_notices_and_calls() {
    let settings = [
        "keyingtries = 0
 dpd_delay = 1s",
        "start_action = start
 dpd_action = restart",
        QUICK,
    ];
    let Some((mut lab, mut daemon, charon)) = joined(&["PEER connection-type none"], settings) else {
        return;
    };
    daemon.kill(&mut lab, Signal::KILL);
    daemon.wait(&charon, "charon gives us up", || charon.log().contains("giving up after 2 retransmits"));
    daemon.restart(&mut lab);
    recovers(&lab, &daemon, &charon);
}

#[test]
fn a_silent_charon_is_asked_whether_it_lives() {
    let detection =
        ["ike-group I dead-peer-detection interval 2", "ike-group I dead-peer-detection action restart"];
    let Some((_lab, daemon, charon)) = joined(&detection, [""; 3]) else { return };
    let asked = || charon.log().contains("parsed INFORMATIONAL request");
    daemon.wait(&charon, "charon is asked", asked);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(daemon.peer()["up"], true);
}

#[test]
fn packets_under_old_keys_are_ignored() {
    // A peer that initiates soon after us may have crossed our set-up: its old session ends when it does not answer a check.
    let detection =
        ["ike-group I dead-peer-detection interval 2", "ike-group I dead-peer-detection timeout 5"];
    let Some((mut lab, daemon, mut charon)) = joined(&detection, [""; 3]) else { return };
    charon.kill(&mut lab);
    charon.restart(&mut lab).expect("it starts");
    // We send to SPIs that charon has forgotten; then it calls.
    assert!(!answers(&lab, "a", "10.2.0.1"));
    charon.initiate(&lab, "net").expect("a new tunnel");
    recovers(&lab, &daemon, &charon);
}
