//! Rekeying under traffic: no packet is lost, whichever side initiates.

use super::{Ours, ours, pings, sites, theirs};
use lab::Lab;
use lab::strongswan::StrongSwan;

/// Ours begins to replace a Child SA after nine tenths of so many packets, and an IKE SA after eight or nine tenths of its
/// lifetime.
const WE_BEGIN: &[&str] = &["esp-group E life-packets 2000", "ike-group I lifetime 6"];
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

/// As many pings in a second as leave ten seconds for all: none may be lost.
const OFTEN: (u32, &str) = (4000, "0.0025");

/// Both ends, with the tunnel up.
fn started(lab: &mut Lab, more: &[&str], charon: [&str; 3]) -> (Ours, StrongSwan) {
    let [connection, child, charon] = charon;
    let charon = StrongSwan::start(lab, "b", &theirs(connection, child), charon).expect("it starts");
    let daemon = Ours::start(lab, "a", &ours(more));
    daemon.wait_for_tunnels(lab, &charon);
    (daemon, charon)
}

/// Sends pings, none of which may be lost.
fn none_is_lost(lab: &Lab, (count, interval): (u32, &str), daemon: &Ours, charon: &StrongSwan) {
    let counts = pings(lab, "a", "10.2.0.1", &["-c", &count.to_string(), "-i", interval, "-W", "3"]);
    assert_eq!(counts, (count, count), "{}", daemon.tell(charon));
}

/// Pings through rekeyings.
fn pinged(lab: &mut Lab, pace: (u32, &str), more: &[&str], charon: [&str; 3]) -> Run {
    let (daemon, charon) = started(lab, more, charon);
    none_is_lost(lab, pace, &daemon, &charon);
    daemon.wait_for_tunnels(lab, &charon);
    Run { log: charon.log() }
}

#[test]
fn we_replace_keys_and_no_packet_is_lost() {
    let Some(mut lab) = sites() else { return };
    let run = pinged(&mut lab, OFTEN, WE_BEGIN, [""; 3]);
    let children = run.count("parsed CREATE_CHILD_SA request");
    assert!(children >= 2, "{children} exchanges:\n{}", run.log);
    assert!(run.count("rekeyed between") >= 1, "an IKE SA\n{}", run.log);
}

#[test]
fn charon_replaces_keys_and_no_packet_is_lost() {
    let Some(mut lab) = sites() else { return };
    let run = pinged(&mut lab, OFTEN, &[], IT_BEGINS);
    let children = run.count("generating CREATE_CHILD_SA request");
    assert!(children >= 3, "{children} exchanges:\n{}", run.log);
    assert!(run.count("rekeyed between") >= 1, "an IKE SA\n{}", run.log);
}

#[test]
fn both_replace_keys_at_once_and_no_packet_is_lost() {
    let Some(mut lab) = sites() else { return };
    // So slow to hear that requests often cross. The exchanges must not take as long as the last tenth of our packets:
    // after them we may send no more under the old keys.
    let ike = "rekey_time = 5s\n rand_time = 1s\n over_time = 10s";
    // Both count packets, as the clocks of two sides say nothing about a machine that sends pings slowly: we begin after
    // 900, charon after 840 to 960.
    let child = "rekey_packets = 960\n rand_packets = 120\n life_packets = 2000\n rekey_time = 0";
    let we_begin = ["esp-group E life-packets 1000", "ike-group I lifetime 6"];
    let (daemon, charon) = started(&mut lab, &we_begin, [ike, child, "receive_delay = 100"]);
    let counts = || {
        let run = Run { log: charon.log() };
        ["parsed CREATE_CHILD_SA request", "generating CREATE_CHILD_SA request"].map(|way| run.count(way))
    };
    // The side that begins first resets the other side's count, so one round may have requests of one side only.
    for _ in 0..20 {
        none_is_lost(&lab, (1000, "0.005"), &daemon, &charon);
        if counts().iter().all(|&count| count >= 2) {
            return daemon.wait_for_tunnels(&lab, &charon);
        }
    }
    panic!("requests of ours, of charon's: {:?}\n{}", counts(), daemon.tell(&charon));
}
