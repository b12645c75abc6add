//! Rekeying under traffic: no packet is lost, whoever begins.

use super::{Ours, ours, pings, sites, theirs};
use bench::lab::Lab;
use bench::strongswan::StrongSwan;

/// Ours begins to replace a Child SA after nine tenths of so many packets, and an IKE SA after eight or nine tenths of its
/// lifetime.
const WE_BEGIN: &[&str] = &["esp-group E life-packets 1000", "ike-group I lifetime 4"];
/// What charon does as often.
const IT_BEGINS: [&str; 3] = [
    "rekey_time = 3s\n rand_time = 0s\n over_time = 10s",
    "rekey_time = 2s\n rand_time = 0s\n life_time = 20s",
    "",
];

/// A run of pings through rekeyings.
struct Run {
    /// What charon has logged of exchanges: IKE SAs rekeyed by it, and by us.
    log: String,
}

impl Run {
    /// How often charon has logged this.
    fn count(&self, words: &str) -> usize {
        self.log.matches(words).count()
    }
}

/// Pings for ten seconds, none of which may be lost.
fn pinged(lab: &mut Lab, more: &[&str], [connection, child, charon]: [&str; 3]) -> Run {
    let charon = StrongSwan::start(lab, "b", &theirs(connection, child), charon).expect("it starts");
    let daemon = Ours::start(lab, "a", &ours(more));
    daemon.wait_for_tunnels(lab, &charon);
    let counts = pings(lab, "a", "10.2.0.1", &["-c", "4000", "-i", "0.0025", "-W", "3"]);
    assert_eq!(counts, (4000, 4000), "{}", daemon.tell(&charon));
    daemon.wait_for_tunnels(lab, &charon);
    Run { log: charon.log() }
}

#[test]
fn we_replace_keys_and_no_packet_is_lost() {
    let Some(mut lab) = sites() else { return };
    let run = pinged(&mut lab, WE_BEGIN, [""; 3]);
    let children = run.count("parsed CREATE_CHILD_SA request");
    assert!(children >= 4, "{children} exchanges:\n{}", run.log);
    assert!(run.count("rekeyed between") >= 1, "an IKE SA\n{}", run.log);
}

#[test]
fn charon_replaces_keys_and_no_packet_is_lost() {
    let Some(mut lab) = sites() else { return };
    let run = pinged(&mut lab, &[], IT_BEGINS);
    let children = run.count("generating CREATE_CHILD_SA request");
    assert!(children >= 5, "{children} exchanges:\n{}", run.log);
    assert!(run.count("rekeyed between") >= 2, "IKE SAs\n{}", run.log);
}

#[test]
#[ignore = "a charon this slow goes on under the old keys beyond our hard limit of packets: key-expired"]
fn both_replace_keys_at_once_and_no_packet_is_lost() {
    let Some(mut lab) = sites() else { return };
    // So slow to hear that requests often cross.
    let ike = "rekey_time = 5s\n rand_time = 1s\n over_time = 10s";
    let child = "rekey_time = 2s\n rand_time = 0s\n life_time = 20s";
    let we_begin = ["esp-group E life-packets 1000", "ike-group I lifetime 6"];
    let run = pinged(&mut lab, &we_begin, [ike, child, "receive_delay = 150"]);
    for way in ["parsed CREATE_CHILD_SA request", "generating CREATE_CHILD_SA request"] {
        assert!(run.count(way) >= 2, "{way}:\n{}", run.log);
    }
}
