//! Refused set-ups: the side that refuses, and the reported cause.

use super::{Ours, ours, sites, theirs};
use lab::strongswan::StrongSwan;

/// Something that cannot work, and what we are to say of it.
struct Refusal {
    name: &'static str,
    /// Ours, besides the usual.
    ours: &'static [&'static str],
    /// Of the usual of charon's this is replaced by that.
    theirs: [&'static str; 2],
    /// In the failure of the peer, if we call.
    we_called: &'static [&'static str],
    /// In the failure of the peer, if charon calls.
    it_called: &'static [&'static str],
}

const REFUSALS: &[Refusal] = &[
    Refusal {
        name: "another secret",
        ours: &[],
        theirs: ["a secret of both sites", "a secret of charon's alone"],
        we_called: &["rejected our authentication", "set vpn ipsec authentication psk sites secret"],
        it_called: &["192.168.77.2 has not shown who it is", "secret"],
    },
    Refusal {
        name: "another identity",
        ours: &[],
        theirs: ["psk\n id = 192.168.77.2", "psk\n id = somebody.example"],
        we_called: &["rejected our authentication", "authentication local-id"],
        it_called: &["somebody.example"],
    },
    Refusal {
        name: "another proposal for IKE",
        ours: &["ike-group I proposal 1 encryption aes128gcm128"],
        theirs: ["", ""],
        we_called: &["no common proposal for IKE", "we accept aes128gcm128-prfsha256-ecp256"],
        it_called: &["no common proposal for IKE", "the peer offers aes256gcm128-prfsha256-ecp256"],
    },
    Refusal {
        name: "another proposal for ESP",
        ours: &["esp-group E proposal 1 encryption aes128gcm128"],
        theirs: ["", ""],
        we_called: &["no common proposal for b-tunnel-1", "we accept aes128gcm128"],
        it_called: &["no common proposal for", "the peer offers aes256gcm128"],
    },
    Refusal {
        name: "other networks",
        ours: &[],
        theirs: ["10.2.0.0/24", "10.3.0.0/24"],
        we_called: &["traffic selectors do not overlap", "local 10.1.0.0/24, remote 10.2.0.0/24"],
        it_called: &["traffic selectors do not overlap", "the peer: local 10.3.0.0/24, remote 10.1.0.0/24"],
    },
];

#[test]
fn what_cannot_work_is_explained_on_our_side() {
    std::thread::scope(|scope| {
        let all: Vec<_> = REFUSALS
            .iter()
            .flat_map(|refusal| [true, false].map(|we_call| (refusal, we_call)))
            .map(|(refusal, we_call)| scope.spawn(move || explained(refusal, we_call)))
            .collect();
        let wrong: Vec<String> = all
            .into_iter()
            .filter_map(|thread| thread.join().unwrap_or(Some("a panic".to_owned())))
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// What is not explained, if anything.
fn explained(refusal: &Refusal, we_call: bool) -> Option<String> {
    let mut lab = sites()?;
    let [usual, instead] = refusal.theirs;
    let swanctl = theirs("", "");
    let swanctl = if usual.is_empty() { swanctl } else { swanctl.replacen(usual, instead, 1) };
    let charon = StrongSwan::start(&mut lab, "b", &swanctl, "").expect("it starts");
    let start = if we_call { "PEER connection-type initiate" } else { "PEER connection-type none" };
    let daemon = Ours::start(&mut lab, "a", &ours(&[refusal.ours, &[start]].concat()));
    if !we_call {
        assert!(charon.initiate(&lab, "net").is_err(), "{}", refusal.name);
    }
    daemon.wait(&charon, refusal.name, || !daemon.peer()["failure"].is_null());
    let said = daemon.peer()["failure"].to_string();
    let expected = if we_call { refusal.we_called } else { refusal.it_called };
    let missing: Vec<_> = expected.iter().filter(|words| !said.contains(**words)).collect();
    let who = if we_call { "we call" } else { "it calls" };
    (!missing.is_empty()).then(|| format!("{}, {who}: {missing:?} not in {said}", refusal.name))
}
