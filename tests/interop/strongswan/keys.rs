//! Who is who by keys without certificates, `authentication mode rsa`: both sides have the public key of the other.

use super::authorities::{Authorities, sites};
use super::certificates::signed;
use super::{Ours, all, ours, reaches, theirs};
use crate::support::answers;
use lab::Lab;
use lab::strongswan::StrongSwan;

/// Which keys both sides have, and how they sign.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// What we take for charon's key, and charon for ours.
    believed: [&'static str; 2],
    /// How charon signs, in its words.
    signs: &'static str,
    /// Settings of charon's.
    settings: &'static str,
    /// How charon says that it has signed, and we: when it calls, and when we do.
    said: [&'static str; 3],
}

const RIGHT: Case = Case {
    name: "charon with PKCS#1",
    believed: ["b.pub", "a.pub"],
    signs: "pubkey",
    settings: "",
    said: ["RSA_EMSA_PKCS1_SHA2_256", "RSA_EMSA_PKCS1_SHA2_256", "RSA_EMSA_PSS_SHA2_256"],
};

const RIGHT_ONES: &[Case] = &[
    RIGHT,
    Case {
        name: "charon with PSS",
        signs: "ike:rsa/pss-sha512",
        said: ["RSA_EMSA_PSS_SHA2_512", "RSA_EMSA_PSS_SHA2_256", "RSA_EMSA_PSS_SHA2_256"],
        ..RIGHT
    },
];

/// What is wrong, why it is refused, and what to type.
const WRONG_ONES: &[(Case, [&str; 2])] = &[
    (
        Case { name: "another key of charon's", believed: ["c.pub", "a.pub"], ..RIGHT },
        ["its signature is invalid", "authentication rsa remote-key NAME"],
    ),
    (
        Case { name: "another key of ours", believed: ["b.pub", "c.pub"], ..RIGHT },
        ["rejected our authentication", "authentication rsa local-key NAME"],
    ),
    (
        Case { name: "without RFC 7427", settings: "signature_authentication = no", ..RIGHT },
        ["SHA-1", "have the peer sign by RFC 7427"],
    ),
];

impl Case {
    fn start(&self, lab: &mut Lab) -> (Ours, StrongSwan) {
        let keys = Authorities::without(&["a", "b", "c"], "rsa --size 2048").expect("the tool works");
        let charon = self.charon(lab, &keys);
        let lines = [
            "PEER authentication mode rsa",
            "PEER authentication rsa local-key ours",
            "PEER authentication rsa remote-key theirs",
            "PEER connection-type trap",
        ];
        let pki = |what: &str, file: &str| format!("set pki key-pair {what} key {}\n", keys.base64(file));
        let pairs = pki("ours public", "a.pub")
            + &pki("ours private", "a.key")
            + &pki("theirs public", self.believed[0]);
        (Ours::start(lab, "a", &(ours(&lines) + &pairs)), charon)
    }

    fn charon(&self, lab: &mut Lab, keys: &Authorities) -> StrongSwan {
        let (signs, [_, believed]) = (self.signs, self.believed);
        let swanctl = theirs("", "")
            .replacen(
                "auth = psk\n id = 192.168.77.2",
                &format!("auth = {signs}\n pubkeys = b.pub\n id = 192.168.77.2"),
                1,
            )
            .replacen(
                "auth = psk\n id = 192.168.77.1",
                &format!("auth = pubkey\n pubkeys = {believed}\n id = 192.168.77.1"),
                1,
            );
        let charon = StrongSwan::start(lab, "b", "", self.settings).expect("it starts");
        for (file, folder) in [("b.key", "private"), ("b.pub", "pubkey"), (believed, "pubkey")] {
            keys.hand(file, &charon.file(folder)).expect("a copy");
        }
        charon.reconfigure(lab, &swanctl).expect("it reads them");
        charon
    }

    /// A tunnel that charon begins, and then one that we begin.
    fn joins_both_ways(&self) {
        let Some(mut lab) = sites() else { return };
        let (daemon, charon) = self.start(&mut lab);
        charon.initiate(&lab, "net").unwrap_or_else(|error| {
            panic!("{}: charon calls: {error}\n{}", self.name, daemon.tell(&charon));
        });
        daemon.wait_for_tunnels(&lab, &charon);
        assert!(reaches(&lab, "b", "10.1.0.1"), "{}: charon calls\n{}", self.name, daemon.tell(&charon));
        charon.swanctl(&lab, &["--terminate", "--ike", "site"]).expect("it ends");
        daemon.wait(&charon, "both have ended it", || daemon.peer()["up"] == false);
        assert!(reaches(&lab, "a", "10.2.0.1"), "{}: we call\n{}", self.name, daemon.tell(&charon));
        daemon.wait_for_tunnels(&lab, &charon);
        let [its, when_called, when_calling] = self.said;
        signed(&charon.log(), "'192.168.77.2' (myself)", [its, its]);
        signed(&charon.log(), "'192.168.77.1'", [when_called, when_calling]);
        assert_eq!(daemon.peer()["authentication"], "key");
    }

    fn is_refused_both_ways(&self, said: [&str; 2]) {
        let Some(mut lab) = sites() else { return };
        let (daemon, charon) = self.start(&mut lab);
        let is_said = || {
            let failure = daemon.peer()["failure"].to_string();
            said.iter().all(|words| failure.contains(words))
        };
        assert!(charon.initiate(&lab, "net").is_err(), "{}: charon calls", self.name);
        assert!(!answers(&lab, "a", "10.2.0.1"), "{}: we call", self.name);
        daemon.wait(&charon, self.name, is_said);
        assert_eq!(daemon.peer()["up"], false, "{}", self.name);
        assert_eq!(daemon.peer()["tunnels"][0]["sas"].as_array().map(Vec::len), Some(0), "{}", self.name);
    }
}

#[test]
fn keys_alone_show_who_is_who_to_both() {
    all(RIGHT_ONES, |case| case.name, Case::joins_both_ways);
}

#[test]
fn keys_of_others_and_sha1_are_refused() {
    all(WRONG_ONES, |(case, _)| case.name, |(case, said)| case.is_refused_both_ways(*said));
}
