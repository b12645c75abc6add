//! OpenIKED, with the kernel's ESP. On Linux it has no AEAD for that, and no SHA-256: its PF_KEY cannot name them.

use super::{ITS, Pair, Peer, SECRET};
use rustix::process::Signal;
use std::fmt::Write as _;

/// Each algorithm at least once; a peer that is called has an even number.
const PEERS: &[Peer] = &[
    Peer {
        number: 1,
        we_call: true,
        ike: ["aes256gcm128", "", "prfsha256", "19"],
        esp: ["aes256", "sha512", "disable"],
        theirs: ["enc aes-256-gcm prf hmac-sha2-256 group ecp256", "enc aes-256 auth hmac-sha2-512"],
        more: &["esp-group E# life-packets 1000", "ike-group I# lifetime 6"],
        their_more: "",
    },
    Peer {
        number: 2,
        we_call: false,
        ike: ["aes128gcm128", "", "prfsha512", "31"],
        esp: ["aes128", "sha1", "dh-group31"],
        theirs: [
            "enc aes-128-gcm prf hmac-sha2-512 group curve25519",
            "enc aes-128 auth hmac-sha1 group curve25519",
        ],
        more: &[],
        their_more: "ikelifetime 12 lifetime 8",
    },
    Peer {
        number: 3,
        we_call: true,
        ike: ["aes256", "sha256", "prfsha256", "14"],
        esp: ["aes192", "sha384", "dh-group14"],
        theirs: [
            "enc aes-256 auth hmac-sha2-256 prf hmac-sha2-256 group modp2048",
            "enc aes-192 auth hmac-sha2-384 group modp2048",
        ],
        more: &[
            "ike-group I# dead-peer-detection interval 2",
            "ike-group I# dead-peer-detection action restart",
        ],
        their_more: "",
    },
    Peer {
        number: 4,
        we_call: false,
        ike: ["aes128", "sha1", "prfsha1", "15"],
        esp: ["aes128ctr", "sha512", "dh-group21"],
        theirs: [
            "enc aes-128 auth hmac-sha1 prf hmac-sha1 group modp3072",
            "enc aes-128-ctr auth hmac-sha2-512 group ecp521",
        ],
        more: &[],
        their_more: "",
    },
    Peer {
        number: 5,
        we_call: true,
        ike: ["3des", "sha512", "prfsha384", "20"],
        esp: ["3des", "sha1", "dh-group20"],
        theirs: [
            "enc 3des auth hmac-sha2-512 prf hmac-sha2-384 group ecp384",
            "enc 3des auth hmac-sha1 group ecp384",
        ],
        more: &[],
        their_more: "",
    },
];

/// Its configuration of all of them.
fn its_configuration() -> String {
    let mut text = "set fragmentation\nset dpd_check_interval 2\n".to_owned();
    for peer in PEERS {
        let ([ours, its], address, [ike, esp]) = (peer.networks(), peer.address(), peer.theirs);
        let start = if peer.we_call { "passive" } else { "active" };
        let _ = writeln!(
            text,
            "ikev2 \"{}\" {start} esp from {its} to {ours} local {ITS} peer {address} ikesa {ike} childsa {esp} \
             srcid {ITS} dstid {address} {} psk \"{SECRET}\"",
            peer.name(),
            peer.their_more
        );
    }
    text
}

impl Pair {
    /// Starts iked, and waits until it has loaded its configuration and calls the peers that it is to call.
    fn start_iked(&self) {
        let said = self.run(
            "rm -f /log
             iked -d -v > /log 2>&1 &
             until grep -q 'initiating \"p4\"' /log 2> /dev/null; do sleep 1; done
             ikectl show sa && echo STARTED",
        );
        assert!(said.contains("STARTED"), "{said}\n{}", self.tell());
    }
}

/// A machine in which iked runs.
fn with_iked() -> Option<Pair> {
    let mut pair = Pair::start("iked", PEERS)?;
    // Until its configuration is loaded, iked answers first messages, and then forgets the half-open SAs without a word. IKE_AUTH
    // would be retransmitted for minutes.
    pair.ours.kill(&mut pair.lab, Signal::KILL);
    // It does not start without a key of its own, even if it has no use for one.
    let key = include_str!("../../../crypto/tests/keys/ec-p256.pem");
    let folders = ["ca", "certs", "crls", "private", "pubkeys/ipv4"].map(|name| format!("/etc/iked/{name}"));
    pair.run(&format!("mkdir -p {}", folders.join(" ")));
    pair.write("/etc/iked/private/local.key", key);
    pair.write("/etc/iked.conf", &its_configuration());
    pair.start_iked();
    pair.ours.restart(&mut pair.lab);
    Some(pair)
}

#[test]
fn openiked_and_we_call_each_other_and_both_replace_keys() {
    let Some(pair) = with_iked() else { return };
    pair.all_work(PEERS);
    for peer in PEERS.iter().skip(2) {
        pair.carries_files(peer);
    }
    for peer in &PEERS[..2] {
        let (spis, ike) = (pair.spis(peer), pair.ike(peer));
        pair.is_busy(peer, 2000);
        pair.wait("both SAs are new", || pair.spis(peer) != spis && pair.ike(peer) != ike);
        pair.works(peer);
    }
}

#[test]
fn openiked_or_we_end_or_die_and_come_again() {
    let Some(mut pair) = with_iked() else { return };
    pair.all_work(PEERS);
    pair.ours.kill(&mut pair.lab, Signal::KILL);
    pair.ours.restart(&mut pair.lab);
    pair.all_work(PEERS.iter().filter(|peer| peer.we_call));
    pair.run(
        "killall -KILL iked; sleep 1; xfrm xfrm state flush; xfrm xfrm policy flush; rm -f /run/iked.sock",
    );
    pair.start_iked();
    pair.all_work(PEERS.iter().filter(|peer| !peer.we_call));
}
