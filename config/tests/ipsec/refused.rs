//! Wrong settings are refused; unusual ones get a warning.

use super::{CERTIFICATES, KEYS, load, loaded, second, site};
use config::{ConfigError, parse};

/// The only thing that is wrong, and what to do.
fn wrong(text: &str) -> ConfigError {
    let mut errors = load(text).expect_err(text);
    assert_eq!(errors.len(), 1, "{errors:#?}");
    errors.remove(0)
}

fn check_refused(extra: &str, reason: &str, fix: &str) {
    let error = wrong(&site(extra));
    assert!(error.reason.contains(reason), "{extra}: {}", error.reason);
    assert!(error.fix.as_ref().is_some_and(|it| it.contains(fix)), "{extra}: {:?}", error.fix);
    assert!(error.location.line > 0, "{extra}: it has a place");
}

#[test]
fn what_does_not_go_together_is_refused_with_what_to_type() {
    let line = "set vpn ipsec site-to-site peer a";
    let delete = "delete vpn ipsec site-to-site peer a";
    for (extra, reason, fix) in [
        (format!("{delete} ike-group"), "ike-group is not set", "peer a ike-group SITE-IKE"),
        (format!("{line} ike-group SITE-KE"), "there is no ike-group SITE-KE", "did you mean SITE-IKE?"),
        (
            format!("{line} ike-group BERLIN"),
            "there is no ike-group BERLIN",
            "set vpn ipsec ike-group BERLIN",
        ),
        (
            format!("{delete} tunnel 1 esp-group"),
            "tunnel 1: esp-group is not set",
            "tunnel 1 esp-group SITE-ESP",
        ),
        (
            format!("{line} tunnel 1 esp-group SITE-ESPP"),
            "there is no esp-group SITE-ESPP",
            "did you mean SITE-ESP?",
        ),
        (format!("{delete} tunnel"), "peer a has no tunnel", "tunnel 1 local prefix"),
        (
            format!("{line} local-address 2001:db8::1"),
            "one is IPv4, one is IPv6",
            "local-address to our IPv4",
        ),
        (
            format!("{line} tunnel 1 local prefix 2001:db8::/32"),
            "2001:db8::/32 is IPv6, and no remote prefix is",
            "remote prefix to one of IPv6",
        ),
        (format!("{line} tunnel 1 local port 80"), "local port is set without protocol", "protocol tcp"),
        (format!("{line} vti bind vti0"), "not supported yet", "delete vpn ipsec site-to-site peer a vti"),
        (
            "delete vpn ipsec authentication psk".to_owned(),
            "no psk has this peer as id: 192.0.2.2",
            "set vpn ipsec authentication psk a id 192.0.2.2",
        ),
        (
            "delete vpn ipsec authentication psk a id\nset vpn ipsec authentication psk a id 192.0.2.20"
                .to_owned(),
            "no psk has this peer as id: 192.0.2.2",
            "did you mean the psk with id 192.0.2.20?",
        ),
    ] {
        check_refused(&extra, reason, fix);
    }
}

#[test]
fn a_second_round_needs_both_identities_and_a_secret_of_them() {
    let line = "set vpn ipsec site-to-site peer a authentication second";
    let both = format!("{line} local-id two.a.example\n{line} remote-id two.b.example");
    check_refused(
        &both,
        "no psk has two.b.example as id",
        "set vpn ipsec authentication psk NAME id two.b.example",
    );
    let psk = "set vpn ipsec authentication psk two";
    let psk = format!("{psk} id two.a.example\n{psk} id two.b.example\n{psk} secret second");
    check_refused(
        &format!("{psk}\n{line} local-id two.a.example"),
        "second has no remote-id",
        "remote-id ID",
    );
    let any = format!("{psk}\n{both}\n{line} remote-id %any");
    check_refused(&any, "second has no remote-id", "remote-id ID");
    let (settings, _) = loaded(&site(&format!("{psk}\n{both}")));
    let second = settings.peers["a"].second.as_ref().expect("it has one");
    assert_eq!((&*second.psk, second.secret.expose()), ("two", &b"second"[..]));
    assert_eq!(
        [&second.local_id, &second.remote_id].map(ToString::to_string),
        ["two.a.example", "two.b.example"]
    );
}

#[test]
fn what_cannot_be_served_is_refused_with_what_to_type() {
    let line = "set vpn ipsec site-to-site peer a";
    for (extra, reason, fix) in [
        (
            "set vpn ipsec authentication psk b secret s".to_owned(),
            "psk b: id is not set",
            "psk b id ADDRESS",
        ),
        (
            "set vpn ipsec authentication psk b id b".to_owned(),
            "psk b: secret is not set",
            "psk b secret 'SECRET'",
        ),
        (
            "set vpn ipsec authentication psk a secret-type hex".to_owned(),
            "does not match secret-type",
            "secret-type plaintext",
        ),
        (
            "set vpn ipsec ike-group SITE-IKE key-exchange ikev1".to_owned(),
            "ikev1 is not supported",
            "key-exchange ikev2, here and at the peer",
        ),
        (
            "set vpn ipsec esp-group SITE-ESP pfs dh-group22".to_owned(),
            "dh-group22 is not supported",
            "dh-group14",
        ),
        (
            "set vpn ipsec esp-group SITE-ESP mode transport".to_owned(),
            "does not allow prefixes",
            "SITE-ESP mode tunnel",
        ),
        (
            "set vpn ipsec esp-group SITE-ESP proposal 1 encryption camellia256".to_owned(),
            "proposal 1 encryption camellia256 is not supported",
            "aes256gcm128",
        ),
        (
            "set vpn ipsec ike-group SITE-IKE proposal 1 encryption null".to_owned(),
            "proposal 1 encryption null is not supported",
            "aes256gcm128",
        ),
        (
            "set vpn ipsec ike-group SITE-IKE proposal 1 dh-group 22".to_owned(),
            "proposal 1 dh-group 22 is not supported",
            "set vpn ipsec ike-group SITE-IKE proposal 1 dh-group 19, here and at the peer",
        ),
        (
            "set vpn ipsec ike-group SITE-IKE proposal 1 prf prfmd5".to_owned(),
            "proposal 1 prf prfmd5 is not supported",
            "proposal 1 prf prfsha256",
        ),
        (
            format!(
                "{line} authentication mode x509\n{line} authentication x509 ca-certificate root\nset pki ca root certificate AAAA"
            ),
            "x509: certificate is not set",
            "x509 certificate NAME, the name of a pki certificate",
        ),
    ] {
        check_refused(&extra, reason, fix);
    }
}

#[test]
fn a_packet_has_one_tunnel_to_go_through() {
    for (local, remote, is_right) in [
        ("10.1.0.0/16", "10.2.0.0/16", false),
        ("10.1.0.0/16", "10.3.0.0/16", true),
        ("10.1.7.0/24", "10.2.7.0/24", true),
        ("0.0.0.0/0", "0.0.0.0/0", true),
        ("10.1.0.0/16", "10.0.0.0/8", true),
        ("10.1.7.0/24", "10.0.0.0/8", false),
        ("10.0.0.0/8", "10.2.7.0/24", false),
        ("10.0.0.0/8", "10.3.7.0/24", true),
        ("2001:db8::/32", "2001:db9::/32", true),
    ] {
        let text = site(&second(local, remote));
        if is_right {
            assert_eq!(loaded(&text).0.peers.len(), 2, "{local} to {remote}");
            continue;
        }
        let error = wrong(&text);
        assert!(error.reason.contains("peer b tunnel 1: peer a tunnel 1 is for the same packets"), "{error}");
        assert!(error.fix.is_some_and(|fix| fix.contains("peer b tunnel 1 priority 2")));
        assert_eq!(error.location.line, 20);
    }
    let path = "set vpn ipsec site-to-site peer b";
    let same = second("10.1.0.0/16", "10.2.0.0/16");
    for told_apart in ["tunnel 1 priority 2", "tunnel 1 protocol gre", "tunnel 1 disable", "disable"] {
        loaded(&site(&format!("{same}\n{path} {told_apart}")));
    }
}

#[test]
fn peers_that_cannot_be_told_apart_are_refused() {
    let twin = second("10.3.0.0/16", "10.4.0.0/16").replace("192.0.2.3", "192.0.2.2");
    let twin = format!("{twin}\nset vpn ipsec site-to-site peer b local-address 192.0.2.1");
    let error = wrong(&site(&twin));
    assert!(error.reason.contains("peer b: peer a has the same addresses and identities"), "{error}");
    loaded(&site(&format!("{twin}\nset vpn ipsec site-to-site peer b authentication remote-id b")));
}

#[test]
fn a_certificate_that_cannot_be_used_is_refused_where_it_is_named() {
    let line = "set vpn ipsec site-to-site peer a authentication x509";
    for (extra, reason, fix) in [
        (format!("{line} certificate our"), "there is no pki certificate our", "did you mean ours?"),
        (
            format!("{line} certificate berlin"),
            "there is no pki certificate berlin",
            "set pki certificate berlin",
        ),
        (format!("{line} ca-certificate rot"), "there is no pki ca rot", "did you mean root?"),
        (
            "delete pki certificate ours private".to_owned(),
            "pki certificate ours has no private key",
            "set pki certificate ours private key BASE64",
        ),
        (
            "delete pki ca root certificate".to_owned(),
            "pki ca root has no certificate",
            "set pki ca root certificate BASE64",
        ),
        (
            "set pki certificate ours private password-protected".to_owned(),
            "has a passphrase, which is not supported",
            "openssl pkey",
        ),
        ("set pki certificate ours revoke".to_owned(), "pki certificate ours is revoked", "delete pki"),
        (format!("delete {} ca-certificate", &line[4..]), "ca-certificate is not set", "ca-certificate NAME"),
        (
            "delete vpn ipsec site-to-site peer a authentication mode".to_owned(),
            "authentication x509 is set, but authentication mode is not",
            "authentication mode x509",
        ),
    ] {
        let error = wrong(&site(&format!("{CERTIFICATES}\n{extra}")));
        assert!(error.reason.contains(reason), "{}", error.reason);
        assert!(error.fix.as_ref().is_some_and(|it| it.contains(fix)), "{:?}", error.fix);
    }
}

#[test]
fn a_key_that_cannot_be_used_is_refused_where_it_is_named() {
    let line = "set vpn ipsec site-to-site peer a authentication";
    let delete = "delete vpn ipsec site-to-site peer a authentication";
    for (extra, reason, fix) in [
        (format!("{line} rsa local-key our"), "there is no pki key-pair our", "did you mean ours?"),
        (
            format!("{delete} rsa remote-key"),
            "remote-key is not set",
            "rsa remote-key NAME, the name of a pki key-pair",
        ),
        (
            "delete pki key-pair ours private".to_owned(),
            "pki key-pair ours has no private key",
            "set pki key-pair ours private key BASE64",
        ),
        (
            "delete pki key-pair theirs public".to_owned(),
            "pki key-pair theirs has no public key",
            "set pki key-pair theirs public key BASE64",
        ),
        (
            "set pki key-pair ours private password-protected".to_owned(),
            "has a passphrase, which is not supported",
            "openssl pkey",
        ),
        (format!("{delete} mode"), "authentication rsa is set, but authentication mode is not", "mode rsa"),
        (format!("{delete} remote-id"), "mode rsa needs a remote-id", "remote-id 192.0.2.2"),
        (format!("{line} remote-id %any"), "mode rsa needs a remote-id", "remote-id 192.0.2.2"),
    ] {
        check_refused(&format!("{KEYS}\n{extra}"), reason, fix);
    }
}

#[test]
fn what_is_weak_or_unsupported_is_said_and_the_rest_goes_on() {
    let esp = "set vpn ipsec esp-group SITE-ESP";
    let ike = "set vpn ipsec ike-group SITE-IKE";
    for (extra, said) in [
        (
            format!("{esp} proposal 2 encryption 3des\n{esp} proposal 2 hash sha256"),
            "its blocks have 64 bits",
        ),
        (
            format!("{esp} proposal 2 encryption aes128gcm64"),
            "aes128gcm64 is weak: its tags have 64 bits: set vpn ipsec esp-group SITE-ESP proposal 2 encryption aes256gcm128, here and at the peer",
        ),
        (format!("{esp} proposal 2 encryption null\n{esp} proposal 2 hash sha256"), "does not encrypt"),
        (format!("{esp} proposal 2 encryption aes256gmac"), "does not encrypt"),
        (
            format!("{esp} proposal 2 encryption aes256\n{esp} proposal 2 hash sha1"),
            "hash sha1 is weak: set vpn ipsec esp-group SITE-ESP proposal 2 hash sha256, here and at the peer",
        ),
        (format!("{esp} proposal 2 encryption aes256"), "has no hash: SHA-2 is offered"),
        (
            format!("{esp} pfs dh-group2"),
            "pfs dh-group2 is weak: its numbers are too short: set vpn ipsec esp-group SITE-ESP pfs dh-group14",
        ),
        (
            format!("{esp} proposal 2 encryption twofish256"),
            "twofish256 is not supported: the proposal is left out",
        ),
        (
            format!("{esp} proposal 2 encryption aes256\n{esp} proposal 2 hash md5"),
            "hash md5 is not supported",
        ),
        (
            format!("{ike} proposal 1 dh-group 5"),
            "dh-group 5 is weak: its numbers are too short: set vpn ipsec ike-group SITE-IKE proposal 1 dh-group 14, or 19",
        ),
        (format!("{ike} proposal 2 dh-group 22"), "dh-group 22 is not supported"),
        (
            format!(
                "{ike} proposal 1 prf prfmd5\n{ike} proposal 2 encryption aes256\n{ike} proposal 2 hash sha256\n{ike} proposal 2 dh-group 14"
            ),
            "prf prfmd5 is not supported",
        ),
        (format!("delete {} proposal 1 dh-group", &ike[4..]), "has no dh-group"),
        (format!("{ike} dead-peer-detection timeout 30"), "not longer than interval"),
        ("set vpn ipsec ike-group I mobike enable".to_owned(), "is ignored: MOBIKE is not supported yet"),
    ] {
        let (ipsec, warnings) = loaded(&site(&extra));
        assert_eq!(warnings.iter().filter(|it| it.contains(said)).count(), 1, "{extra}: {warnings:?}");
        // A group for PFS that IKE does not have is warned of, too.
        assert_eq!(warnings.len(), 1 + usize::from(extra.contains("pfs dh-group2")), "{extra}: {warnings:?}");
        assert_eq!(ipsec.peers.len(), 1);
    }
}

#[test]
fn what_vyos_has_and_we_do_not_says_what_to_do_instead() {
    for (line, fix) in [
        ("set vpn ipsec remote-access pool a", "remove the line"),
        ("set vpn ipsec profile a", "remove the line"),
        ("set vpn ipsec site-to-site peer a authentication x509 cert-file a", "under pki"),
        ("set vpn rsa-keys rsa-key-name a rsa-key b", "authentication mode rsa"),
        ("set interfaces vti vti0", "a tunnel with prefixes"),
    ] {
        let error = parse(line).expect_err("not supported").remove(0);
        assert!(error.reason.contains("but Postern does not support it"), "{error}");
        assert!(error.fix.is_some_and(|it| it.contains(fix)), "{line}");
    }
}

#[test]
fn wrong_words_and_values_are_placed_and_the_nearest_named() {
    for (line, column, fix) in [
        (
            "set vpn ipsec esp-group A proposal 1 encryption aes256gcm182",
            49,
            Some("did you mean aes256gcm128?"),
        ),
        ("set vpn ipsec esp-group A proposal 1 hahs sha256", 38, Some("did you mean hash?")),
        ("set vpn ipsec site-to-site pear a", 28, Some("did you mean peer?")),
        ("set vpn ipsec ike-group A key-exchange ikev3", 40, Some("did you mean ikev1?")),
        ("set vpn ipsec ike-group A proposal 0", 36, Some("write 1 or more")),
        ("set vpn ipsec esp-group A lifetime 29", 36, Some("write 30 or more")),
        ("set vpn ipsec site-to-site peer a tunnel 1 local prefix 10.0.0.1/8", 57, None),
        ("set vpn ipsec site-to-site peer a tunnel 1 mtu 575", 48, Some("write 576 or more")),
        ("set pki ca a certificate -----BEGIN", 26, None),
    ] {
        let error = parse(line).expect_err(line).remove(0);
        assert_eq!((error.location.column, error.fix.as_deref()), (column, fix), "{line}");
    }
}

#[test]
fn a_value_that_is_unsupported_is_shown_in_its_own_line() {
    for (group, word, value, instead) in [
        ("ike-group SITE-IKE", "hash", "md5", "sha256"),
        ("ike-group SITE-IKE", "dh-group", "1", "19"),
        ("ike-group SITE-IKE", "encryption", "camellia256", "aes256gcm128"),
        ("esp-group SITE-ESP", "hash", "md5", "sha256"),
    ] {
        let path = format!("vpn ipsec {group} proposal 1");
        let text = site(&format!("set {path} encryption aes256\nset {path} {word} {value}"));
        let error = wrong(&text);
        let line = text.lines().nth(error.location.line - 1).unwrap_or_default();
        assert!(line.ends_with(&format!("{path} {word} {value}")), "{word}: {line}");
        assert_eq!(error.fix, Some(format!("set {path} {word} {instead}, here and at the peer")));
    }
}

#[test]
fn what_vyos_takes_without_need_is_taken_with_a_warning() {
    let (ipsec, warnings) = loaded(&site(
        "delete vpn ipsec site-to-site peer a remote-address\nset vpn ipsec authentication psk a id %any",
    ));
    assert!(ipsec.peers["a"].remote_addresses.is_empty());
    let said = |warnings: &[String], what: &str| warnings.iter().any(|warning| warning.contains(what));
    assert!(said(&warnings, "peer a has no remote-address, so the peer must connect to us"), "{warnings:#?}");
    let (ipsec, warnings) = loaded(&site("set vpn ipsec esp-group SITE-ESP compression"));
    assert!(ipsec.peers.contains_key("a") && said(&warnings, "SITE-ESP compression is ignored"));
}

#[test]
fn extended_sequence_numbers_are_offered_unless_switched_off() {
    let of = |extra: &str| loaded(&site(extra)).0.peers["a"].tunnels[&1].esp.extended_sequence;
    assert!(of(""));
    assert!(!of("set vpn ipsec esp-group SITE-ESP disable-esn"));
}

#[test]
fn what_a_tunnel_leads_to_is_not_passed_by() {
    check_refused(
        "set vpn ipsec passthrough 10.2.0.0/16",
        "passthrough 10.2.0.0/16 is also a remote prefix of tunnel 1 of peer a",
        "delete vpn ipsec passthrough 10.2.0.0/16",
    );
    let wider = "set vpn ipsec passthrough 10.0.0.0/8\nset vpn ipsec passthrough 10.2.7.0/24";
    assert_eq!(loaded(&site(wider)).0.passthrough.len(), 2);
}
