//! Authentication is repeated in time, whichever side has begun (RFC 4478).

use super::{Ours, ours, sites, theirs};
use crate::support::answers;
use lab::strongswan::StrongSwan;
use lab::wait_until;
use std::time::Duration;

/// More than the longest lifetime here.
const LONG: Duration = Duration::from_secs(75);

/// Tunnels that are set up, and then again by a new authentication.
fn authenticates_again(more: &[&str], [connection, child]: [&str; 2], asked: impl Fn(&str) -> bool) {
    let Some(mut lab) = sites() else { return };
    let charon = StrongSwan::start(&mut lab, "b", &theirs(connection, child), "").expect("it starts");
    let daemon = Ours::start(&mut lab, "a", &ours(more));
    daemon.wait_for_tunnels(&lab, &charon);
    let established = || charon.log().matches("established between").count();
    let again = || asked(&charon.log()) && established() >= 2;
    wait_until(LONG, again).unwrap_or_else(|error| panic!("{error}\n{}", daemon.tell(&charon)));
    daemon.wait(&charon, "packets pass", || answers(&lab, "a", "10.2.0.1"));
    daemon.wait_for_tunnels(&lab, &charon);
}

#[test]
fn charon_follows_our_lifetime() {
    let more = ["PEER connection-type none", "ike-group I ikev2-reauth", "ike-group I lifetime 30"];
    let settings = ["rekey_time = 1h\n over_time = 5s", "start_action = start"];
    authenticates_again(&more, settings, |log| log.contains("received AUTH_LIFETIME of 30s"));
}

#[test]
fn we_authenticate_again() {
    let more = ["ike-group I ikev2-reauth", "ike-group I lifetime 30"];
    authenticates_again(&more, [""; 2], |log| log.matches("parsed IKE_SA_INIT request").count() >= 2);
}
