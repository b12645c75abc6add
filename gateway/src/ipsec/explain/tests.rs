//! The explanations, and the lines to type.

use super::*;
use crypto::pki::{ChainError, ChainFailure, DateTime, DistinguishedName};
use ipnet::IpNet;
use rustix::io::Errno;
use std::net::IpAddr;
use tunnel::esp::TrafficSelector;
use tunnel::ikev2::{Asked, AuthMessage, Unproved};

fn names() -> Names {
    let group = |name: &str, free| Group { name: name.to_owned(), free, pfs: None };
    Names {
        peer: "berlin".to_owned(),
        ike_group: group("BERLIN", 2),
        esp_groups: [("berlin-tunnel-7".to_owned(), group("SITES", 3))].into(),
        proof: Proof::Secret("set vpn ipsec authentication psk sites secret".to_owned()),
        local_id: "paris.example".to_owned(),
        second: None,
    }
}

fn told(cause: &Cause) -> IpsecFailure {
    told_with(&names(), cause)
}

fn told_with(names: &Names, cause: &Cause) -> IpsecFailure {
    let path = Path {
        local: "192.0.2.1:500".parse().expect("literal"),
        remote: "192.0.2.2:500".parse().expect("literal"),
    };
    failure(Some(names), path, true, cause, Duration::from_secs(7))
}

#[test]
fn a_failure_that_is_not_authentic_is_marked() {
    let path = "192.0.2.1:500".parse().expect("literal");
    let path = Path { local: path, remote: path };
    let told = |authentic| failure(None, path, authentic, &Cause::Mode, Duration::ZERO).what;
    assert_eq!(told(false), format!("{} (unauthenticated, from 192.0.2.1)", told(true)));
}

#[test]
fn a_peer_whose_packets_are_those_of_another_is_told_so() {
    let packets = vec![tunnel::ikev2::selectors::host([203, 0, 113, 7].into())];
    let cause = Cause::Contested { packets, owner: "road.example".to_owned() };
    let told = told(&cause);
    assert_eq!(told.what, "packets to 203.0.113.7/32 are those of road.example, which is connected");
    let set = "set vpn ipsec site-to-site peer berlin tunnel 7 remote prefix";
    assert!(told.fix[0].starts_with(set), "{:?}", told.fix);
}

fn proposals(of: &str, ours: &str, theirs: &[&str]) -> Vec<String> {
    let theirs = theirs.iter().map(|&text| text.to_owned()).collect();
    told(&Cause::NoProposal { of: of.to_owned(), ours: vec![ours.to_owned()], theirs }).fix
}

#[test]
fn what_the_peer_accepts_for_ike_becomes_a_proposal() {
    let ours = "aes256gcm128-prfsha256-ecp256";
    let set = "set vpn ipsec ike-group BERLIN proposal 2";
    assert_eq!(
        proposals("IKE", ours, &["3des-sha1-prfsha1-modp1024", "aes128-sha256-prfsha256-modp2048"]),
        ["encryption aes128", "hash sha256", "dh-group 14"].map(|words| format!("{set} {words}"))
    );
    assert_eq!(
        proposals("IKE", ours, &["aes128gcm96-prfsha512-prfsha1-x25519"]),
        ["encryption aes128gcm96", "dh-group 31", "prf prfsha512"].map(|words| format!("{set} {words}"))
    );
}

#[test]
fn a_proposal_that_is_not_supported_here_is_passed_over() {
    let strange = "encryption transform 23 (256 bits)-sha256-prfsha256-modp2048";
    let fix =
        proposals("IKE", "aes128-sha256-prfsha256-ecp256", &[strange, "aes256-sha256-prfsha256-ecp256"]);
    assert_eq!(fix[0], "set vpn ipsec ike-group BERLIN proposal 2 encryption aes256");
    let path = Path {
        local: "192.0.2.1:500".parse().expect("literal"),
        remote: "192.0.2.2:500".parse().expect("literal"),
    };
    let theirs = vec![strange.to_owned()];
    let cause = Cause::NoProposal { of: "IKE".to_owned(), ours: Vec::new(), theirs };
    let told = failure(Some(&names()), path, true, &cause, Duration::ZERO);
    assert_eq!(told.details[1], format!("the peer offers {strange}"));
    let fix = proposals("IKE", "aes128-sha256-prfsha256-ecp256", &[strange]);
    assert!(fix[0].contains("have it offer aes128-sha256-prfsha256-ecp256"), "{fix:?}");
}

#[test]
fn no_advice_weakens_a_connection() {
    let ours = "aes256gcm128-prfsha256-ecp256";
    for weak in [
        "aes128-sha256-prfsha256-modp1024",
        "aes128-sha256-prfsha256-modp1536",
        "aes128-sha1-prfsha1-modp2048",
        "aes128gcm128-prfsha1-modp2048",
        "3des-sha256-prfsha256-modp2048",
        "aes128gcm64-prfsha256-modp2048",
    ] {
        let fix = proposals("IKE", ours, &[weak]);
        assert!(fix.len() == 1 && fix[0].ends_with(&format!("have it offer {ours}")), "{weak}: {fix:?}");
    }
    let mixed = proposals("IKE", ours, &["3des-aes256-sha1-sha512-prfsha1-prfsha512-modp1024-modp4096"]);
    let set = "set vpn ipsec ike-group BERLIN proposal 2";
    assert_eq!(mixed, ["encryption aes256", "hash sha512", "dh-group 16"].map(|it| format!("{set} {it}")));
    let of = "berlin-tunnel-7";
    for weak in
        ["aes128-sha1-noesn", "3des-sha256-noesn", "null-sha256-noesn", "aes128-sha256-modp1024-noesn"]
    {
        let fix = proposals(of, "aes128-sha256-ecp256-esn", &[weak]);
        assert!(fix.len() == 1 && fix[0].contains("have it offer"), "{weak}: {fix:?}");
    }
}

#[test]
fn advice_for_ike_lets_the_tunnels_replace_their_keys() {
    let mut names = names();
    names.esp_groups[0].1.pfs = Some(19);
    let theirs = vec!["aes128gcm128-prfsha256-modp2048".to_owned()];
    let ours = vec!["aes256gcm128-prfsha256-ecp256".to_owned()];
    let cause = Cause::NoProposal { of: "IKE".to_owned(), ours, theirs };
    let fix = told_with(&names, &cause).fix;
    assert_eq!(fix.last().map(String::as_str), Some("set vpn ipsec esp-group SITES pfs enable"));
    names.esp_groups[0].1.pfs = Some(14);
    assert!(told_with(&names, &cause).fix.iter().all(|line| !line.contains("pfs")), "it has the group");
}

#[test]
fn what_is_not_supported_is_named() {
    for (cause, words) in [
        (Cause::Version1, "the peer asks for IKEv1, which is not supported"),
        (Cause::AsksEap { identity: "road".to_owned() }, "road asks for EAP, which is not supported"),
        (Cause::AsksAddress, "the peer asks for a virtual address, which is not supported"),
    ] {
        let told = told(&cause);
        assert_eq!(told.what, words);
        assert!(!told.fix.is_empty());
    }
}

#[test]
fn a_wrong_name_of_ours_is_told_with_the_right_one() {
    let (asked, ours) = ("hub.example".to_owned(), "192.0.2.1".to_owned());
    let fix = told(&Cause::OtherName { asked, ours }).fix;
    assert_eq!(fix[0], "set vpn ipsec site-to-site peer berlin authentication local-id hub.example");
    let fix = told(&Cause::Refused).fix;
    assert!(fix[1].contains("local-id NAME: we say that we are paris.example"), "{fix:?}");
}

#[test]
fn a_call_without_an_answer_is_told_with_its_count() {
    let path = Path {
        local: "192.0.2.1:500".parse().expect("literal"),
        remote: "192.0.2.2:500".parse().expect("literal"),
    };
    let told = unanswered(path, Asked::Init, 2, Duration::from_millis(2800), Duration::from_secs(7));
    assert_eq!(
        told.what,
        "192.0.2.2 has not answered 2 messages to UDP port 500 within 3 s, and is called again"
    );
    assert!(told.fix[0].starts_with("ping 192.0.2.2"));
}

#[test]
fn an_unanswered_ike_auth_is_told_from_a_peer_that_is_not_there() {
    let path = Path {
        local: "192.0.2.1:4500".parse().expect("literal"),
        remote: "192.0.2.2:4500".parse().expect("literal"),
    };
    let told = |datagrams, largest| {
        let asked = Asked::Auth(AuthMessage { datagrams, largest });
        unanswered(path, asked, 1, Duration::from_secs(1), Duration::from_secs(7))
    };
    let small = told(1, 300);
    assert!(
        small.what.starts_with("192.0.2.2 has answered IKE_SA_INIT, but not IKE_AUTH to UDP port 4500"),
        "{}",
        small.what
    );
    assert!(small.what.contains("UDP port 4500, once within 1 s"), "{}", small.what);
    assert!(small.details.is_empty() && small.fix[0].starts_with("let UDP port 4500 through"), "{small:?}");
    assert!(told(3, 1200).details[0].contains("3 datagrams: all of them must arrive"));
    assert!(told(1, 3000).details[0].contains("fragments of IP"));
    let at_last = failure(
        None,
        path,
        true,
        &Cause::NoAuthAnswer(AuthMessage { datagrams: 1, largest: 300 }),
        Duration::ZERO,
    );
    assert_eq!(at_last.fix, small.fix);
}

#[test]
fn a_call_that_stops_or_comes_from_elsewhere_is_told_of_the_peer_that_is_waited_for() {
    let path = Path {
        local: "192.0.2.1:500".parse().expect("literal"),
        remote: "192.0.2.2:500".parse().expect("literal"),
    };
    let told = unfinished(path, Duration::from_secs(7));
    let what = "IKE_SA_INIT came from 192.0.2.2:500 and was answered, and no IKE_AUTH has followed (unauthenticated)";
    assert_eq!((told.what.as_str(), told.at), (what, 7));
    assert_eq!(told.fix[0], "let UDP ports 500 and 4500 through on the way from 192.0.2.2 and back");
    let [from, expected] = ["198.51.100.254", "198.51.100.1"].map(|it| it.parse().expect("literal"));
    let told = unknown_caller("berlin", from, expected, 7);
    let what =
        "198.51.100.254 called, and no peer is configured for it; this one is expected at 198.51.100.1";
    assert_eq!(told.what, what);
    let set = "set vpn ipsec site-to-site peer berlin remote-address 198.51.100.254";
    assert_eq!(told.fix[0], format!("if that is this peer: {set}"));
    assert!(config::parse(set).is_ok());
}

#[test]
fn what_this_machine_refuses_to_send_is_said_in_words() {
    let path = Path {
        local: "192.0.2.1:500".parse().expect("literal"),
        remote: "192.0.2.2:500".parse().expect("literal"),
    };
    for (refusal, words) in [
        (Errno::NETUNREACH, "no route to 192.0.2.2: Network is unreachable"),
        (Errno::HOSTUNREACH, "192.0.2.2 is unreachable"),
        (Errno::ACCESS, "prohibit what goes to 192.0.2.2"),
        (Errno::INVAL, "discard what goes to 192.0.2.2"),
        (Errno::PERM, "a packet filter of this machine refuses UDP to 192.0.2.2, port 500"),
        (Errno::NOBUFS, "this machine cannot send to 192.0.2.2: No buffer space available"),
    ] {
        let told = unsent(path, refusal, Duration::from_secs(7));
        assert!(told.what.contains(words) && told.fix[0].contains("192.0.2.2"), "{told:?}");
    }
}

#[test]
fn what_the_peer_accepts_for_esp_becomes_a_proposal_or_secrecy() {
    let of = "berlin-tunnel-7";
    let set = "set vpn ipsec esp-group SITES";
    assert_eq!(
        proposals(of, "aes256gcm128-esn-noesn", &["aes128-sha256-noesn"]),
        [format!("{set} proposal 3 encryption aes128"), format!("{set} proposal 3 hash sha256")]
    );
    assert_eq!(
        proposals(of, "aes128-sha256-ecp256-esn", &["aes128-sha256-modp2048-noesn"]),
        [format!("{set} pfs dh-group14")]
    );
    assert_eq!(
        proposals(of, "aes128-sha256-ecp256-esn", &["aes128-sha256-noesn"]),
        [format!("{set} pfs disable")]
    );
}

#[test]
fn a_peer_that_does_not_say_what_it_accepts_is_to_be_asked() {
    let fix = proposals("IKE", "aes256gcm128-prfsha256-ecp256", &[]);
    assert!(fix[0].starts_with("set vpn ipsec ike-group BERLIN proposal 2 encryption"), "{fix:?}");
}

#[test]
fn a_wrong_secret_is_named_as_the_configuration_names_it() {
    let cause = Cause::NotAuthentic {
        identity: "192.0.2.2".to_owned(),
        why: Unproved::Proof("the pre-shared keys differ".to_owned()),
    };
    assert!(told(&cause).fix[0].starts_with("set vpn ipsec authentication psk sites secret SECRET"));
}

#[test]
fn the_second_round_is_told_from_the_first() {
    let second = Proof::Secret("set vpn ipsec authentication psk two secret".to_owned());
    let names = Names { second: Some(("two.example".to_owned(), second)), ..names() };
    let set = "set vpn ipsec site-to-site peer berlin authentication";
    let unproved = |identity: &str, why| Cause::NotAuthentic { identity: identity.to_owned(), why };
    let wrong = || Unproved::Proof("the pre-shared keys differ".to_owned());
    let told = |cause| told_with(&names, &cause);
    let other = told(unproved("two.example", wrong()));
    assert!(other.what.contains("in the second round"), "{}", other.what);
    assert_eq!(other.fix, ["set vpn ipsec authentication psk two secret SECRET, the same on both sides"]);
    assert!(told(unproved("192.0.2.2", wrong())).fix[0].contains("psk sites secret"));
    let fix = told(unproved("moon", Unproved::Identity)).fix;
    assert_eq!(
        fix,
        [
            format!("{set} remote-id moon"),
            format!("or, if it is that of the second round: {set} second remote-id moon")
        ]
    );
    let fix = told(Cause::MissingRound).fix;
    assert_eq!(fix[1], "or do without: delete vpn ipsec site-to-site peer berlin authentication second");
    assert!(told(Cause::ExtraRound).fix[0].starts_with(&format!("{set} second local-id")));
}

#[test]
fn an_identity_can_be_typed_as_it_is_told() {
    let set = "set vpn ipsec site-to-site peer berlin authentication remote-id";
    for (identity, typed) in [
        ("moon", "moon"),
        ("C=CH, O=strongSwan, CN=moon", "'C=CH, O=strongSwan, CN=moon'"),
        ("@#0a1b", "'@#0a1b'"),
        ("o'hara", "'o'\"'\"'hara'"),
    ] {
        let other = Cause::NotAuthentic { identity: identity.to_owned(), why: Unproved::Identity };
        for cause in [other, Cause::NoSuchPeer { identity: identity.to_owned() }] {
            let fix = told(&cause).fix;
            assert_eq!(fix, [format!("{set} {typed}")]);
            let tree = config::parse(&fix[0]).unwrap_or_else(|errors| panic!("{errors:?}"));
            let peer = tree.at(&["vpn", "ipsec", "site-to-site", "peer", "berlin", "authentication"]);
            assert_eq!(peer.and_then(|tree| tree.value("remote-id")), Some(identity));
        }
    }
}

#[test]
fn a_call_to_another_address_of_ours_is_told_from_one_of_a_unauthenticated_source() {
    let ours = told(&Cause::NoConnection);
    assert_eq!(ours.fix[0], "set vpn ipsec site-to-site peer berlin local-address 192.0.2.1");
    let path = Path {
        local: "192.0.2.1:500".parse().expect("literal"),
        remote: "192.0.2.2:500".parse().expect("literal"),
    };
    let unknown = failure(None, path, true, &Cause::NoConnection, Duration::from_secs(7));
    assert_eq!(unknown.fix, ["set vpn ipsec site-to-site peer NAME remote-address 192.0.2.2"]);
}

#[test]
fn what_a_peer_wants_in_the_tunnel_is_told_in_words_that_there_are() {
    let address = |text: &str| text.parse::<IpAddr>().expect("literal");
    let range = TrafficSelector {
        protocol: 17,
        ports: 53..=53,
        addresses: address("10.3.0.0")..=address("10.3.0.2"),
    };
    let told = told(&Cause::NoSelectors { ours: [vec![], vec![]], theirs: [vec![range], vec![]] });
    let set = "set vpn ipsec site-to-site peer berlin tunnel 7";
    let lines = ["local prefix 10.3.0.0/31", "local prefix 10.3.0.2/32", "protocol 17", "local port 53"];
    let (or, typed) = told.fix.split_last().expect("there are some");
    assert_eq!(typed, lines.map(|words| format!("{set} {words}")));
    assert!(or.contains("the tunnel of the peer"), "{or}");
    let text: String = typed.iter().map(|line| line.to_owned() + "\n").collect();
    assert!(config::parse(&text).is_ok(), "{text}");
}

#[test]
fn a_peer_without_a_secret_is_not_told_to_set_one() {
    let unknown = Cause::NotAuthentic {
        identity: "moon".to_owned(),
        why: Unproved::Proof("nobody who is trusted has signed it".to_owned()),
    };
    for (proof, words) in [(Proof::Certificate, "x509 "), (Proof::Key, "rsa ")] {
        let names = Names { proof, ..names() };
        for cause in [&unknown, &Cause::Refused] {
            let fix = told_with(&names, cause).fix;
            let is_right = fix[0].contains(&format!("authentication {words}"));
            assert!(is_right && !fix[0].contains("secret"), "{fix:?}");
        }
    }
}

#[test]
fn sha1_is_what_is_left_when_all_else_fails() {
    let names = Names { proof: Proof::Certificate, ..names() };
    let theirs = Cause::NotAuthentic { identity: "moon".to_owned(), why: Unproved::Sha1 };
    for cause in [theirs, Cause::OnlySha1] {
        let told = told_with(&names, &cause);
        assert!(told.what.contains("SHA-1"), "{}", told.what);
        let line = "set vpn ipsec site-to-site peer berlin authentication x509 accept-sha1";
        let last = told.fix.last().expect("there are some");
        assert!(last.starts_with(line) && last.contains("last resort"), "{last}");
        assert!(config::parse(line).is_ok());
        let fix = told_with(&Names { proof: Proof::Key, ..names.clone() }, &cause).fix;
        assert!(fix.iter().all(|line| !line.contains("accept-sha1")), "{fix:?}");
    }
}

#[test]
fn selectors_are_told_from_both_sides_and_mended_from_here() {
    let net = |text: &str| {
        let net: IpNet = text.parse().expect("literal");
        vec![TrafficSelector { protocol: 0, ports: 0..=u16::MAX, addresses: net.network()..=net.broadcast() }]
    };
    let told = told(&Cause::NoSelectors {
        ours: [net("10.1.0.0/16"), net("10.2.0.0/16")],
        theirs: [net("10.3.0.0/16"), net("10.2.0.0/16")],
    });
    assert_eq!(
        told.details,
        ["here: local 10.1.0.0/16, remote 10.2.0.0/16", "the peer: local 10.2.0.0/16, remote 10.3.0.0/16"]
    );
    let tunnel = "vpn ipsec site-to-site peer berlin tunnel 7";
    assert_eq!(
        told.fix,
        [
            format!("delete {tunnel} local prefix 10.1.0.0/16"),
            format!("set {tunnel} local prefix 10.3.0.0/16"),
            "here; or change the tunnel of the peer, if this side is right".to_owned()
        ]
    );
}

#[test]
fn the_address_of_a_gateway_is_not_deleted_where_no_prefix_is_set() {
    let host = |address: [u8; 4]| vec![tunnel::ikev2::selectors::host(address.into())];
    let told = told(&Cause::NoSelectors {
        ours: [host([192, 0, 2, 1]), host([192, 0, 2, 2])],
        theirs: [host([10, 3, 0, 1]), host([192, 0, 2, 2])],
    });
    assert_eq!(told.fix[0], "set vpn ipsec site-to-site peer berlin tunnel 7 local prefix 10.3.0.1/32");
}

#[test]
fn a_certificate_of_the_peer_that_is_not_valid_is_renewed_there_or_a_clock_is_set() {
    let subject: DistinguishedName = "C=CH, O=Sites, CN=berlin".parse().expect("right");
    let date = DateTime::new(2028, 1, 1, 0, 0, 0).expect("right");
    for (failure, lines) in [
        (
            ChainFailure::Expired(date),
            &[
                "have its authority issue a new certificate for C=CH, O=Sites, CN=berlin, and the peer send that one",
                "or set the clock of this machine, if it is wrong: it says 1970-01-01T00:00:07Z; timedatectl",
            ][..],
        ),
        (
            ChainFailure::NotYetValid(date),
            &[
                "set the clock of this machine, if it is behind: it says 1970-01-01T00:00:07Z; timedatectl",
                "or that of the machine that issued the certificate, if it was ahead, and have its authority issue a new \
                 certificate for C=CH, O=Sites, CN=berlin, and the peer send that one",
            ][..],
        ),
        (
            ChainFailure::Revoked,
            &[
                "have its authority issue a new certificate for C=CH, O=Sites, CN=berlin, and the peer send that one",
            ][..],
        ),
        (
            ChainFailure::UnknownAuthority(subject.clone()),
            &[
                "set vpn ipsec site-to-site peer berlin authentication x509 ca-certificate NAME, of who signed the peer's \
               certificate",
            ][..],
        ),
    ] {
        let why = Unproved::Certificate(Box::new(ChainError { subject: subject.clone(), failure }));
        let cause = Cause::NotAuthentic { identity: "berlin".to_owned(), why };
        let told = told_with(&Names { proof: Proof::Certificate, ..names() }, &cause);
        assert_eq!(told.fix, lines, "{}", told.what);
    }
}
