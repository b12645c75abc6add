//! What charon asks for and Postern does not support: charon gets the notify of the protocol, and `explain` says it in words.

use super::{Ours, ours, sites, theirs};
use lab::strongswan::StrongSwan;

/// Something that charon asks for.
struct Wish {
    name: &'static str,
    /// Of the usual of charon's this is replaced by that.
    theirs: [&'static str; 2],
    /// In what we say of the peer.
    said: &'static [&'static str],
    /// In charon's log, of our answer; several spellings.
    logged: &'static [&'static str],
}

const WISHES: &[Wish] = &[
    Wish {
        name: "EAP",
        theirs: ["local { auth = psk\n id", "local { auth = eap-md5\n eap_id = road\n id"],
        said: &["192.168.77.2 asks for EAP, which is not supported", "have the peer authenticate by"],
        logged: &["received AUTHENTICATION_FAILED notify error"],
    },
    Wish {
        name: "a virtual address",
        theirs: ["encap = yes", "encap = yes\n vips = 0.0.0.0"],
        said: &[
            "the peer asks for a virtual address, which is not supported",
            "tunnel 1 remote prefix PREFIX",
        ],
        // Nothing of ours is an error: there is no CFG_REPLY in the answer.
        logged: &["CPRQ(ADDR"],
    },
    Wish {
        name: "IKEv1",
        theirs: ["version = 2", "version = 1"],
        said: &[
            "the peer asks for IKEv1, which is not supported",
            "key-exchange ikev2",
            "(unauthenticated, from 192.168.77.2)",
        ],
        // Our INVALID_MAJOR_VERSION, of which charon 5.9 names but the exchange: it takes none that is not encrypted.
        logged: &["received unencrypted informational: from 192.168.77.1", "INVALID_MAJOR"],
    },
];

#[test]
fn what_charon_asks_for_and_is_not_supported_is_named_on_both_sides() {
    super::all(WISHES, |wish| wish.name, refused);
}

fn refused(wish: &Wish) {
    let Some(mut lab) = sites() else { return };
    let usual = theirs("", "");
    let [old, new] = wish.theirs;
    let swanctl = usual.replacen(old, new, 1);
    assert_ne!(swanctl, usual, "{}: nothing is replaced", wish.name);
    let daemon = Ours::start(&mut lab, "a", &ours(&["PEER connection-type none"]));
    let charon = StrongSwan::start(&mut lab, "b", &swanctl, "").expect("it starts");
    // It need not end well; what each side says of it does.
    let _ = charon.initiate(&lab, "net");
    daemon.wait(&charon, wish.name, || {
        let said = daemon.peer()["failure"].to_string();
        wish.said.iter().all(|words| said.contains(words))
    });
    daemon.wait(&charon, wish.name, || {
        let log = charon.log();
        wish.logged.iter().any(|words| log.contains(words))
    });
}
