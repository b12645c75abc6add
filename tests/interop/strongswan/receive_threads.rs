//! Several receiving threads at our side, and charon's replay window of 32 packets at the other.

use super::{Ours, ours, sites, theirs};
use lab::strongswan::StrongSwan;
use lab::traffic;

/// What charon says of a packet that is behind its window.
const LATE: &str = "ESP sequence number verification failed";

#[test]
fn charons_window_of_32_packets_loses_nothing_to_several_threads() {
    let Some(mut lab) = sites() else { return };
    let charon = StrongSwan::start(&mut lab, "b", &theirs("", "replay_window = 32"), "").expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &ours(&["receive-threads 4", "threads 4"]));
    daemon.wait_for_tunnels(&lab, &charon);
    traffic::serve(&mut lab, "b").expect("it starts");
    for reverse in [false, true] {
        let carried = traffic::tcp(&lab, "a", "10.2.0.1", 8, reverse, 2).expect("the tunnel carries");
        assert!(carried.bytes > 1e6, "{carried:?}");
    }
    assert_eq!(charon.log().matches(LATE).count(), 0, "{}", daemon.tell(&charon));
    let drops = daemon.ask("/v1/drops").expect("it answers");
    let replayed =
        drops["drops"].as_array().expect("a list").iter().find(|drop| drop["reason"] == "replayed");
    let replayed = replayed.expect("it is listed");
    assert_eq!((&replayed["inbound"], &replayed["outbound"]), (&0.into(), &0.into()), "{replayed}");
}
