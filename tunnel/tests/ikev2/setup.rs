//! IKE_SA_INIT and IKE_AUTH.

use crate::network::{A, B};
use crate::support::{assert_agree, assert_nothing_leaks, connected};
use tunnel::ikev2::message::Exchange;

#[test]
fn two_round_trips_make_a_child_sa() {
    let (network, _) = connected(1, |_, _| {});
    let sent = [
        (Exchange::IkeSaInit, false),
        (Exchange::IkeSaInit, true),
        (Exchange::IkeAuth, false),
        (Exchange::IkeAuth, true),
    ];
    assert_eq!(network.exchanges(), sent);
    assert_agree(&network, 1);
    assert_nothing_leaks(&network, 1);
    let sa = &network.hosts[A].sending(0).expect("installed").install;
    assert!(!sa.encapsulation && !sa.hold);
    assert_eq!(network.hosts[B].sending(0).expect("installed").install.path.local.port(), 500);
}
