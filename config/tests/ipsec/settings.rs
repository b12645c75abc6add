//! What is set arrives, in whichever spelling.

use super::{CERTIFICATES, KEYS, address, groups_of, guide, loaded, second, secret_of, site};
use config::diff::{self, Change};
use config::settings::IpSec;
use config::settings::ipsec::{
    Action, Authentication, Group, Identity, Mode, Patience, Peer, Pfs, Prf, Remote, Revocation, Start,
};
use config::{parse, print};

#[test]
fn defaults_hold_where_nothing_is_set() {
    let (ipsec, warnings) = loaded(&site(""));
    assert!(warnings.is_empty(), "{warnings:?}");
    let peer = &ipsec.peers["a"];
    assert_eq!((peer.start, peer.replay_window, peer.remote_id.clone()), (Start::Initiate, None, None));
    assert_eq!(secret_of(peer), b"a b");
    let (ike, tunnel) = (&peer.ike, &peer.tunnels[&1]);
    assert_eq!((ike.lifetime_seconds, ike.close_action), (Some(28_800), Action::Clear));
    assert!(ike.dead_peer_detection.is_none());
    assert_eq!((tunnel.esp.mode, tunnel.esp.lifetime_seconds, tunnel.esp.rekey), (Mode::Tunnel, 3600, true));
    assert_eq!((tunnel.esp.pfs, tunnel.esp.groups(ike)), (Pfs::AsIke, &[Group::Ecp256][..]));
    assert_eq!((tunnel.protocol, tunnel.priority, tunnel.mtu), (None, None, None));
    assert_eq!(IpSec::default(), loaded("").0);
    assert_eq!(ipsec.retransmission, Patience::default());
}

/// The groups of the guide, and the presets that stand for them.
#[test]
fn a_preset_is_the_group_of_the_guide() {
    let ike = "set vpn ipsec ike-group I";
    let esp = "set vpn ipsec esp-group E";
    let plain = format!(
        "{ike} proposal 1 dh-group 14\n{ike} proposal 1 encryption aes256gcm128\n{ike} proposal 1 hash sha256\n"
    );
    for (preset, ike_lines, esp_lines) in [
        (
            "bulk",
            &[][..],
            ["lifetime 3600", "mode tunnel", "pfs disable", "proposal 1 encryption aes128gcm128"],
        ),
        (
            "low-latency",
            &["lifetime 14400"],
            ["lifetime 1800", "mode tunnel", "pfs dh-group14", "proposal 1 encryption aes128gcm64"],
        ),
        (
            "max-security",
            &["lifetime 7200", "proposal 1 dh-group 16", "proposal 1 encryption aes256gcm128"],
            ["lifetime 1800", "mode tunnel", "pfs dh-group16", "proposal 1 encryption aes256gcm128"],
        ),
    ] {
        let lines = |set: &str, lines: &[&str]| {
            lines.iter().map(|line| format!("{set} {line}\n")).collect::<String>()
        };
        let (typed_ike, preset_ike) = match ike_lines {
            [] => (plain.clone(), plain.clone()),
            typed => (lines(ike, typed), format!("{ike} preset {preset}\n")),
        };
        let typed = groups_of(&(typed_ike + &lines(esp, &esp_lines)), "I", "E");
        let found = groups_of(&(preset_ike + &format!("{esp} preset {preset}\n")), "I", "E");
        assert_eq!(found, typed, "{preset}");
    }
}

#[test]
fn what_a_group_says_goes_before_its_preset() {
    let text = "set vpn ipsec ike-group I preset max-security
set vpn ipsec ike-group I proposal 5 encryption aes128gcm128
set vpn ipsec ike-group I proposal 5 dh-group 19
set vpn ipsec ike-group I proposal 5 hash sha256
set vpn ipsec esp-group E preset max-security
set vpn ipsec esp-group E lifetime 600
set vpn ipsec esp-group E pfs disable";
    let (ike, esp, _) = groups_of(text, "I", "E");
    assert_eq!((ike.lifetime_seconds, ike.proposals.len(), ike.proposals[0].number), (Some(7200), 1, 5));
    assert_eq!((esp.lifetime_seconds, esp.pfs, esp.proposals.len()), (600, Pfs::Off, 1));
    let tree = parse(text).expect("it is valid");
    assert!(
        print::commands(&tree, true).contains("esp-group E preset max-security"),
        "it stays as it was typed"
    );
    assert!(!print::commands(&tree, true).contains("esp-group E proposal"));
    let errors = parse("set vpn ipsec esp-group E preset fast").expect_err("there is no such preset");
    assert!(errors[0].to_string().contains("bulk"), "{}", errors[0]);
}

#[test]
fn everything_that_can_be_set_arrives() {
    let (ipsec, _) = loaded(&site(
        "set vpn ipsec esp-group SITE-ESP lifetime 1800
set vpn ipsec esp-group SITE-ESP life-bytes 26843545600000
set vpn ipsec esp-group SITE-ESP life-packets 1000
set vpn ipsec esp-group SITE-ESP disable-rekey
set vpn ipsec esp-group SITE-ESP pfs disable
set vpn ipsec ike-group SITE-IKE lifetime 0
set vpn ipsec ike-group SITE-IKE close-action start
set vpn ipsec ike-group SITE-IKE dead-peer-detection
set vpn ipsec ike-group SITE-IKE disable-mobike
set vpn ipsec ike-group SITE-IKE ikev2-reauth
set vpn ipsec ike-group SITE-IKE proposal 1 prf prfsha512
set vpn ipsec interface eth0
set vpn ipsec disable-uniqreqids
set vpn ipsec log level 2
set vpn ipsec log subsystem ike
set vpn ipsec options disable-route-autoinstall
set vpn ipsec options retransmission base 1.5
set vpn ipsec site-to-site peer a authentication local-id @Here
set vpn ipsec site-to-site peer a authentication remote-id there@example.org
set vpn ipsec site-to-site peer a description 'the other side'
set vpn ipsec site-to-site peer a connection-type trap
set vpn ipsec site-to-site peer a force-udp-encapsulation
set vpn ipsec site-to-site peer a replay-window 1024
set vpn ipsec site-to-site peer a remote-address vpn.example.org
set vpn ipsec site-to-site peer a tunnel 1 protocol tcp
set vpn ipsec site-to-site peer a tunnel 1 local port 179
set vpn ipsec site-to-site peer a tunnel 1 remote port 180
set vpn ipsec site-to-site peer a tunnel 1 priority 7
set vpn ipsec site-to-site peer a tunnel 2 disable",
    ));
    let peer = &ipsec.peers["a"];
    assert_eq!(peer.local_id, Some(Identity::Domain("here".to_owned())));
    assert_eq!(peer.remote_id, Some(Identity::Email("there@example.org".to_owned())));
    assert_eq!(peer.remote_addresses[1], Remote::Name("vpn.example.org".to_owned()));
    assert_eq!((peer.start, peer.prefers_udp), (Start::OnTraffic, true));
    assert_eq!((peer.replay_window, peer.reauthenticate), (Some(1024), true));
    let ike = &peer.ike;
    assert_eq!((ike.lifetime_seconds, ike.close_action), (None, Action::Restart));
    assert_eq!(ike.proposals[0].prfs, [Prf::HmacSha512]);
    let detection = ike.dead_peer_detection.expect("set");
    assert_eq!((detection.interval_seconds, detection.timeout_seconds), (30, 120));
    assert_eq!(peer.tunnels.len(), 1, "one is disabled");
    let tunnel = &peer.tunnels[&1];
    assert_eq!((tunnel.protocol, tunnel.local.port, tunnel.remote.port), (Some(6), Some(179), Some(180)));
    assert_eq!(tunnel.priority, Some(7));
    let esp = &tunnel.esp;
    assert_eq!((esp.life_bytes, esp.life_packets), (Some(26_843_545_600_000), Some(1000)));
    assert_eq!((esp.rekey, esp.groups(ike)), (false, &[][..]));
    assert_eq!((ipsec.disable_route_autoinstall, ipsec.retransmission.base_percent), (true, 150));
}

#[test]
fn older_spellings_mean_what_they_meant_and_say_what_replaces_them() {
    let line = "set vpn ipsec site-to-site peer a";
    for (extra, said, holds) in [
        (
            "set vpn ipsec ike-group SITE-IKE ikev2-reauth yes".to_owned(),
            "without a value",
            (|ipsec| ipsec.peers["a"].reauthenticate) as fn(&IpSec) -> bool,
        ),
        ("set vpn ipsec ike-group SITE-IKE mobike disable".to_owned(), "disable-mobike", |_| true),
        ("set vpn ipsec ike-group SITE-IKE close-action hold".to_owned(), "trap", |ipsec| {
            ipsec.peers["a"].ike.close_action == Action::Trap
        }),
        ("set vpn ipsec ike-group SITE-IKE close-action restart".to_owned(), "start", |ipsec| {
            ipsec.peers["a"].ike.close_action == Action::Restart
        }),
        ("set vpn ipsec ike-group SITE-IKE dead-peer-detection action hold".to_owned(), "trap", |ipsec| {
            ipsec.peers["a"].ike.dead_peer_detection.is_some_and(|it| it.action == Action::Trap)
        }),
        (format!("{line} force-encapsulation enable"), "force-udp-encapsulation", |ipsec| {
            ipsec.peers["a"].prefers_udp
        }),
        (format!("{line} force-encapsulation disable"), "without UDP", |ipsec| !ipsec.peers["a"].prefers_udp),
        (format!("{line} authentication id here"), "local-id", |ipsec| {
            ipsec.peers["a"].local_id == Some(Identity::Domain("here".to_owned()))
        }),
        (format!("{line} authentication pre-shared-secret other"), "psk NAME secret", |ipsec| {
            secret_of(&ipsec.peers["a"]) == b"other"
        }),
        ("set vpn ipsec ipsec-interfaces interface eth1".to_owned(), "is ignored", |_| true),
        ("set vpn ipsec interface eth1".to_owned(), "is ignored", |_| true),
        ("set vpn ipsec logging log-modes ike".to_owned(), "system log subsystem ipsec", |_| true),
        ("set vpn ipsec logging log-level 1".to_owned(), "vpn ipsec log level", |_| true),
        ("set vpn ipsec nat-traversal enable".to_owned(), "is ignored", |_| true),
        ("set vpn ipsec auto-update 60".to_owned(), "is ignored", |_| true),
        (
            "set vpn ipsec nat-networks allowed-network 10.0.0.0/8 exclude 10.1.0.0/16".to_owned(),
            "is ignored",
            |_| true,
        ),
        (format!("{line} tunnel 1 allow-nat-networks disable"), "is ignored", |_| true),
        (format!("{line} tunnel 1 allow-public-networks disable"), "is ignored", |_| true),
        ("set vpn ipsec ike-group SITE-IKE mode aggressive".to_owned(), "IKEv1", |_| true),
        (format!("{line} dhcp-interface eth0"), "local-address any", |_| true),
    ] {
        let (ipsec, warnings) = loaded(&site(&extra));
        assert!(holds(&ipsec), "{extra}");
        assert!(warnings.len() == 1 && warnings[0].contains(said), "{extra}: {warnings:?}");
    }
    for extra in [
        "set vpn ipsec esp-group SITE-ESP compression disable".to_owned(),
        format!("{line} ikev2-reauth inherit"),
    ] {
        assert_eq!(loaded(&site(&extra)).1, [""; 0], "{extra}");
    }
}

#[test]
fn what_leads_into_a_tunnel_without_prefixes_is_the_address_of_the_peer() {
    let prefixes = "delete vpn ipsec site-to-site peer a tunnel 1 local\n\
         delete vpn ipsec site-to-site peer a tunnel 1 remote\n";
    let warnings = |remote: &str, extra: &str| {
        let right = "remote-address 192.0.2.2";
        let text = site(extra).replace(right, &format!("remote-address {remote}"));
        let id = "set vpn ipsec site-to-site peer a authentication remote-id 192.0.2.2";
        loaded(&format!("{text}\n{id}\nset vpn ipsec authentication psk a id vpn.example.org")).1
    };
    for remote in ["any", "vpn.example.org"] {
        let said = warnings(remote, prefixes);
        assert!(said.iter().any(|line| line.contains("peer a tunnel 1 has no remote prefix")), "{said:?}");
        let said = warnings(remote, "");
        assert!(!said.iter().any(|line| line.contains("tunnel 1")), "{said:?}");
    }
    assert_eq!(warnings("192.0.2.2", prefixes), [""; 0]);
}

#[test]
fn a_peer_may_be_called_in_all_the_ways_there_were() {
    let peer = |name: &str, extra: &str| {
        let text = site(extra).replace("peer a ", &format!("peer {name} "));
        let remote = format!("set vpn ipsec site-to-site peer {name} remote-address 192.0.2.2\n");
        let secret = format!("set vpn ipsec site-to-site peer {name} authentication pre-shared-secret s");
        let (mut ipsec, _) = loaded(&format!("{}\n{secret}", text.replace(&remote, "")));
        ipsec.peers.remove(name).expect("it is there")
    };
    let at = |peer: &Peer| (peer.remote_addresses.clone(), peer.remote_id.clone(), peer.start);
    let domain = |name: &str| Some(Identity::Domain(name.to_owned()));
    let named = peer("vpn.example.org", "");
    assert_eq!(
        at(&named),
        (vec![Remote::Name("vpn.example.org".to_owned())], domain("vpn.example.org"), Start::Initiate)
    );
    assert_eq!(at(&peer("@branch", "")), (vec![], domain("branch"), Start::Respond));
    let v6 = peer("2001:db8::1", "delete vpn ipsec site-to-site peer 2001:db8::1 local-address");
    assert_eq!(v6.remote_addresses, [Remote::Address(address("2001:db8::1"))]);
    assert_eq!(at(&peer("0.0.0.0", "")), (vec![], None, Start::Respond));
    assert_eq!(at(&peer("any", "")), (vec![], None, Start::Respond));
    let other = peer("192.0.2.9", "set vpn ipsec site-to-site peer 192.0.2.9 authentication remote-id %any");
    assert_eq!(at(&other), (vec![Remote::Address(address("192.0.2.9"))], None, Start::Initiate));
}

#[test]
fn certificates_are_found_in_pki() {
    let (ipsec, warnings) = loaded(&site(CERTIFICATES));
    let Authentication::X509(x509) = &ipsec.peers["a"].authentication else { panic!("x509") };
    assert_eq!((&*x509.certificate, x509.private_key.expose()), (&[8, 32, 130][..], &[12, 48, 195][..]));
    assert_eq!((&*x509.authorities[0].certificate, x509.authorities.len()), (&[0, 0, 0][..], 1));
    assert_eq!(x509.authorities[0].revocation_lists, [[4, 16, 65]]);
    assert!(warnings.len() == 1 && warnings[0].contains("no remote-id"), "{warnings:?}");
    assert!(!x509.accept_sha1);
}

#[test]
fn keys_are_found_in_pki() {
    let (ipsec, warnings) = loaded(&site(KEYS));
    let Authentication::Rsa(rsa) = &ipsec.peers["a"].authentication else { panic!("rsa") };
    assert_eq!((rsa.private_key.expose(), &*rsa.public_key), (&[4, 16, 65][..], &[8, 32, 130][..]));
    assert_eq!(warnings, [""; 0]);
}

#[test]
fn sha1_is_accepted_where_that_is_asked_for() {
    let line = "set vpn ipsec site-to-site peer a authentication x509 accept-sha1";
    let (ipsec, warnings) = loaded(&site(&format!("{CERTIFICATES}\n{line}")));
    let Authentication::X509(x509) = &ipsec.peers["a"].authentication else { panic!("x509") };
    assert!(x509.accept_sha1);
    assert!(warnings.iter().any(|said| said.contains("accept-sha1 is weak")), "{warnings:?}");
}

#[test]
fn what_must_be_known_of_revocation_and_from_where_arrives() {
    let line = "set vpn ipsec site-to-site peer a authentication x509 revocation";
    for (word, expected) in
        [("relaxed", Revocation::Relaxed), ("ifuri", Revocation::IfUri), ("strict", Revocation::Strict)]
    {
        let file = "set pki ca root crl-file /etc/postern/root.crl";
        let (ipsec, _) = loaded(&site(&format!("{CERTIFICATES}\n{line} {word}\n{file}")));
        let Authentication::X509(x509) = &ipsec.peers["a"].authentication else { panic!("x509") };
        assert_eq!(x509.revocation, expected);
        assert_eq!(x509.authorities[0].revocation_files, ["/etc/postern/root.crl"]);
    }
}

#[test]
fn what_is_printed_is_read_as_the_same_and_hides_secrets() {
    for text in guide::ALL
        .iter()
        .copied()
        .filter(|it| *it != guide::SMALLER_PACKETS)
        .chain([&*site(CERTIFICATES), &*site(KEYS)])
    {
        let tree = parse(text).expect("right");
        let printed = print::commands(&tree, true);
        assert_eq!(parse(&printed).expect("right"), tree);
        assert_eq!(loaded(&printed).0, loaded(text).0);
    }
    let shown = print::commands(&parse(&site(CERTIFICATES)).expect("right"), false);
    assert!(shown.contains("psk a secret ********\n") && shown.contains("private key ********\n"));
    assert!(!shown.contains("a b") && !shown.contains("DDDD") && shown.contains("certificate CCCC"));
    let (ipsec, _) = loaded(&site(CERTIFICATES));
    assert!(!format!("{ipsec:?}").contains("[12, 48, 195]"));
}

#[test]
fn a_reload_names_only_what_changed_and_touches_only_the_peer_concerned() {
    let peer = second("10.3.0.0/16", "10.4.0.0/16");
    let before = site(&peer);
    let after =
        site(&format!("{peer}\nset vpn ipsec site-to-site peer b tunnel 1 remote prefix 10.5.0.0/16"));
    let after = after.replace("psk b secret s", "psk b secret t");
    let trees = [&before, &after].map(|text| parse(text).expect("right"));
    let changes: Vec<String> = diff::diff(&trees[0], &trees[1]).iter().map(Change::to_string).collect();
    assert_eq!(
        changes,
        [
            "- vpn ipsec authentication psk b secret ********",
            "+ vpn ipsec authentication psk b secret ********",
            "+ vpn ipsec site-to-site peer b tunnel 1 remote prefix 10.5.0.0/16",
        ]
    );
    let [before, after] = [&before, &after].map(|text| loaded(text).0.peers);
    assert_eq!(before["a"], after["a"]);
    assert_ne!(before["b"].authentication, after["b"].authentication);
    assert_ne!(before["b"].tunnels, after["b"].tunnels);
    assert_eq!(before["b"].ike, after["b"].ike);
}

#[test]
fn ten_thousand_peers_are_checked_in_a_moment() {
    use std::fmt::Write;
    let mut text = site("");
    for number in 0..10_000 {
        let (high, low) = (number / 250, number % 250);
        let path = format!("set vpn ipsec site-to-site peer p{number}");
        let _ = write!(
            text,
            "\n{path} authentication pre-shared-secret s\n{path} ike-group SITE-IKE
{path} remote-address 198.18.{high}.{low}\n{path} tunnel 1 esp-group SITE-ESP
{path} tunnel 1 local prefix 172.16.0.0/12\n{path} tunnel 1 remote prefix 10.{}.{low}.0/24",
            high + 3
        );
    }
    let (ipsec, warnings) = loaded(&text);
    assert_eq!((ipsec.peers.len(), warnings.len()), (10_001, 1));
}

#[test]
fn a_network_that_is_on_both_sides_is_passed_by() {
    let path = "set vpn ipsec site-to-site peer a tunnel 1";
    let passed_by = |extra: &str| loaded(&site(extra)).0.peers["a"].tunnels[&1].passed_by();
    assert_eq!(passed_by(""), []);
    let ours = "10.1.0.0/16".parse().expect("a prefix");
    assert_eq!(passed_by(&format!("{path} remote prefix 0.0.0.0/0")), [ours]);
}

#[test]
fn a_group_for_later_keys_that_ike_does_not_have_is_warned_of() {
    let warned = |lines: &str| {
        let (_, warnings) = loaded(&site(lines));
        warnings.iter().any(|warning| warning.contains("its first rekeying fails"))
    };
    let other = "set vpn ipsec esp-group SITE-ESP pfs dh-group20";
    assert!(warned(other));
    assert!(!warned("set vpn ipsec esp-group SITE-ESP pfs dh-group19"), "IKE has it");
    assert!(!warned("set vpn ipsec esp-group SITE-ESP pfs enable"));
    assert!(!warned("set vpn ipsec esp-group SITE-ESP pfs disable"));
    assert!(!warned(&format!("{other}\nset vpn ipsec esp-group SITE-ESP disable-rekey")), "there are none");
}
