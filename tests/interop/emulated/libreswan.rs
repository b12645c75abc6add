//! libreswan: pluto, with the kernel's ESP.

use super::{Pair, Peer, SECRET};
use rustix::process::Signal;
use std::fmt::Write as _;

/// It asks often whether we live, and soon knows if we do not.
const DETECTION: &str = "dpddelay=1\n dpdtimeout=10\n dpdaction=restart\n retransmit-timeout=4";

/// Each algorithm at least once; a peer that is called has an even number.
const PEERS: &[Peer] = &[
    Peer {
        number: 1,
        we_call: true,
        ike: ["aes256gcm128", "", "prfsha256", "19"],
        esp: ["aes256gcm128", "", "disable"],
        theirs: ["aes_gcm256-sha2_256-ecp_256", "aes_gcm256"],
        more: &["esp-group E# lifetime 30", "ike-group I# lifetime 6"],
        their_more: "pfs=no",
    },
    Peer {
        number: 2,
        we_call: false,
        ike: ["aes128gcm128", "", "prfsha512", "31"],
        esp: ["aes128gcm128", "", "dh-group31"],
        theirs: ["aes_gcm128-sha2_512-dh31", "aes_gcm128;dh31"],
        more: &[],
        their_more: DETECTION,
    },
    Peer {
        number: 3,
        we_call: true,
        ike: ["aes256", "sha256", "prfsha256", "14"],
        esp: ["aes256", "sha256", "dh-group14"],
        theirs: ["aes256-sha2_256-modp2048", "aes256-sha2_256-modp2048"],
        more: &["site-to-site peer p# force-encapsulation disable"],
        their_more: "",
    },
    Peer {
        number: 4,
        we_call: false,
        ike: ["aes128", "sha1", "prfsha1", "15"],
        esp: ["aes128", "sha1", "dh-group15"],
        theirs: ["aes128-sha1-modp3072", "aes128-sha1-modp3072"],
        more: &[],
        // It stays on port 500 whatever we say.
        their_more: "encapsulation=no\n dpddelay=1\n dpdtimeout=10\n dpdaction=restart\n retransmit-timeout=4",
    },
    Peer {
        number: 5,
        we_call: true,
        ike: ["chacha20poly1305", "", "prfsha384", "20"],
        esp: ["chacha20poly1305", "", "dh-group20"],
        theirs: ["chacha20_poly1305-sha2_384-ecp_384", "chacha20_poly1305;dh20"],
        more: &[
            "ike-group I# dead-peer-detection interval 2",
            "ike-group I# dead-peer-detection action restart",
        ],
        their_more: "",
    },
    Peer {
        number: 6,
        we_call: false,
        ike: ["aes256", "sha512", "prfsha512", "21"],
        esp: ["aes256", "sha512", "dh-group21"],
        theirs: ["aes256-sha2_512-ecp_521", "aes256-sha2_512-ecp_521"],
        more: &[],
        their_more: DETECTION,
    },
    Peer {
        number: 7,
        we_call: true,
        ike: ["aes256gcm128", "", "prfsha256", "19"],
        esp: ["aes128gcm128", "", "disable"],
        theirs: ["aes_gcm256-sha2_256-ecp_256", "aes_gcm128"],
        more: &["esp-group E# mode transport", "site-to-site peer p# force-encapsulation disable"],
        their_more: "pfs=no",
    },
    Peer {
        number: 8,
        we_call: false,
        ike: ["aes256gcm128", "", "prfsha256", "19"],
        esp: ["aes256", "sha256", "disable"],
        theirs: ["aes_gcm256-sha2_256-ecp_256", "aes256-sha2_256"],
        more: &["esp-group E# mode transport"],
        their_more: "pfs=no\n dpddelay=1\n dpdtimeout=10\n dpdaction=restart\n retransmit-timeout=4",
    },
];

/// A machine in which pluto runs.
fn with_pluto() -> Option<Pair> {
    let pair = Pair::start("pluto", PEERS)?;
    pair.write("/etc/ipsec.conf", &its_configuration());
    pair.write("/etc/ipsec.secrets", &format!(": PSK \"{SECRET}\""));
    pair.start_pluto();
    Some(pair)
}

/// Its configuration of all of them.
fn its_configuration() -> String {
    let mut text = "config setup\n logfile=/log\n logappend=yes\n dnssec-enable=no\n".to_owned();
    for peer in PEERS {
        let ([ours, its], address, [ike, esp]) = (peer.networks(), peer.address(), peer.theirs);
        let (start, its_address) = (if peer.we_call { "add" } else { "start" }, peer.its_address());
        let networks = format!("leftsubnet={its}\n rightsubnet={ours}");
        let what = if peer.is_transport() { "type=transport" } else { &networks };
        let _ = write!(
            text,
            "\nconn {}\n ikev2=insist\n left={its_address}\n right={address}\n leftid={its_address}\n\
             \x20rightid={address}\n {what}\n authby=secret\n leftupdown=%disabled\n\
             \x20ike={ike}\n esp={esp}\n auto={start}\n {}\n",
            peer.name(),
            peer.their_more
        );
    }
    text
}

impl Pair {
    /// Starts pluto, which then reads its configuration by itself.
    fn start_pluto(&self) {
        let said = self.run(
            "mkdir -p /run/pluto /var/lib/ipsec/nss /etc/ipsec.d/policies; rm -f /run/pluto/*\n\
             [ -e /var/lib/ipsec/nss/cert9.db ] || certutil -N -d sql:/var/lib/ipsec/nss --empty-password\n\
             pluto --config /etc/ipsec.conf && echo STARTED",
        );
        assert!(said.contains("STARTED"), "{said}\n{}", self.tell());
    }

    /// Replaces a connection's SAs as pluto does when they are old.
    fn pluto_rekeys(&self, peer: &Peer) {
        let (spis, ike) = (self.spis(peer), self.ike(peer));
        // The first is what libreswan 5 calls it.
        let said = self.run(&format!(
            "whack --rekey-child --name {0} || whack --rekey-ipsec --name {0}; whack --rekey-ike --name {0}",
            peer.name()
        ));
        for words in ["initiator rekeyed Child SA", "initiator rekeyed IKE SA"] {
            assert!(said.contains(words), "{said}\n{}", self.tell());
        }
        self.wait("both SAs are new", || self.spis(peer) != spis && self.ike(peer) != ike);
    }
}

#[test]
fn libreswan_and_we_call_each_other_and_both_replace_keys() {
    let Some(pair) = with_pluto() else { return };
    pair.all_work(PEERS);
    for peer in PEERS {
        let without_udp = [3, 4, 7].contains(&peer.number);
        assert_eq!(pair.said_of(peer)["tunnels"][0]["in_udp"], !without_udp, "{}", peer.name());
    }
    for peer in PEERS.iter().step_by(2) {
        pair.carries_files(peer);
    }
    for peer in &PEERS[1..] {
        pair.pluto_rekeys(peer);
        pair.works(peer);
    }
    // We begin, too, and soon; it then sends with the new keys before we have its answer.
    let first = &PEERS[0];
    let (spis, ike) = (pair.spis(first), pair.ike(first));
    pair.wait("both SAs are new", || {
        let said = pair.is_busy(first, 500);
        assert!(said.contains(" 0% packet loss"), "{said}\n{}", pair.tell());
        pair.spis(first) != spis && pair.ike(first) != ike
    });
    pair.all_work(PEERS);
}

#[test]
fn libreswan_or_we_end_or_die_and_come_again() {
    let Some(mut pair) = with_pluto() else { return };
    pair.all_work(PEERS);
    pair.ours.kill(&mut pair.lab, Signal::KILL);
    pair.ours.restart(&mut pair.lab);
    // It notices after a while that we have lost what it called us for.
    pair.all_work(PEERS);
    pair.run("whack --shutdown; while killall -0 pluto 2> /dev/null; do sleep 1; done");
    pair.wait("it has deleted the SA", || PEERS.iter().all(|peer| pair.said_of(peer)["up"] == false));
    pair.start_pluto();
    pair.all_work(PEERS);
    pair.run("killall -KILL pluto; sleep 1; xfrm xfrm state flush; xfrm xfrm policy flush");
    pair.start_pluto();
    pair.all_work(PEERS.iter().filter(|peer| !peer.we_call));
}
