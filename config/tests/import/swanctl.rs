//! swanctl.conf.

use super::{assert_complete, assert_lines, files, left, line_of, lines, peers, refused, text};
use config::import::Format;

fn is_option(line: &str) -> bool {
    line.contains(" = ") && !line.starts_with('#')
}

#[test]
fn connections_are_peers_with_what_they_inherit() {
    let imported = files(Format::Swanctl, &["swanctl.conf"], &[]);
    let peer = "vpn ipsec site-to-site peer";
    assert_lines(
        &imported,
        &[
            &format!("{peer} berlin local-address 203.0.113.1"),
            &format!("{peer} berlin authentication local-id hub.example.org"),
            &format!("{peer} berlin connection-type initiate"),
            &format!("{peer} berlin tunnel 1 local prefix 10.3.0.0/16"),
            &format!("{peer} berlin tunnel 2 local prefix 10.4.0.80/32"),
            &format!("{peer} berlin tunnel 2 protocol 6"),
            &format!("{peer} berlin tunnel 2 local port 80"),
            &format!("{peer} paris remote-address paris.example.org"),
            &format!("{peer} paris disable"),
            &format!("{peer} vienna authentication remote-id vienna.example.org"),
            "vpn ipsec ike-group berlin proposal 1 encryption aes256gcm128",
            "vpn ipsec ike-group berlin proposal 1 prf prfsha384",
            "vpn ipsec ike-group berlin proposal 1 dh-group 20",
            "vpn ipsec ike-group berlin proposal 2 hash sha256",
            "vpn ipsec ike-group berlin lifetime 7200",
            "vpn ipsec ike-group berlin close-action trap",
            "vpn ipsec ike-group berlin dead-peer-detection action restart",
            "vpn ipsec esp-group berlin-lan pfs dh-group20",
            "vpn ipsec esp-group berlin-web pfs disable",
            "vpn ipsec esp-group berlin-web life-bytes 500000000",
            "vpn ipsec esp-group vienna mode transport",
            "vpn ipsec authentication psk berlin secret 'it'\"'\"'s \"open\" # sesame'",
            "vpn ipsec authentication psk paris secret-type base64",
            "vpn ipsec authentication psk vienna secret-type hex",
        ],
    );
    assert!(!lines(&imported).iter().any(|line| line.contains("clients") || line.contains("peer old")));
    assert!(imported.warnings.is_empty(), "{:?}", imported.warnings);
    for option in ["connections.clients", "connections.old", "connections.paris.if_id_out"] {
        assert!(left(&imported, option).1, "{option}");
    }
    assert!(left(&imported, "connections.old").0.contains("IKEv1"));
    assert_complete(&imported, "swanctl.conf", is_option);
    assert_complete(&imported, "etc/swanctl.d/vienna.conf", is_option);
    assert_eq!(line_of(&imported, "connections.vienna.remote_addrs"), 3);
}

/// A connection with these settings, of its own and of its parts.
fn connection(own: &str, local: &str, remote: &str, child: &str) -> String {
    format!(
        "connections {{ a {{ remote_addrs = 192.0.2.2\n {own}\n local {{ auth = psk\n {local}\n }}\n remote {{ auth = psk\n \
         id = b\n {remote}\n }}\n children {{ c {{ local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16\n {child}\n }} }} }} }}\n\
         secrets {{ ike {{ secret = \"a secret\"\n }} }}"
    )
}

#[test]
fn what_would_make_a_tunnel_weaker_or_wider_is_held_back() {
    let disabled = |text_of: &str| {
        let imported = text(Format::Swanctl, text_of);
        let line = lines(&imported)
            .into_iter()
            .find(|line| line.contains("site-to-site") && line.ends_with(" disable"));
        line.map(|line| line.split(' ').nth(6).expect("a word").to_owned())
    };
    let [peer, tunnel] = ["disable", "tunnel"].map(|word| Some(word.to_owned()));
    assert_eq!(disabled(&connection("", "", "", "")), None);
    for own in ["if_id_in = 5", "proposals = aes256-sha256-ke1_mlkem768"] {
        assert_eq!(disabled(&connection(own, "", "", "")), peer, "{own}");
    }
    for remote in ["groups = vpn", "cert_policy = 1.2.3", "certs = b.pem", "ca_id = \"CN=a\""] {
        assert_eq!(disabled(&connection("", "", remote, "")), peer, "{remote}");
    }
    for child in ["mark_in = 5", "policies = no", "esp_proposals = des-md5"] {
        assert_eq!(disabled(&connection("", "", "", child)), peer, "{child}");
    }
    for child in [
        "remote_ts = 10.2.0.0/16[tcp/1-5]",
        "remote_ts = 10.2.0.0/16[tcp],10.3.0.0/16",
        "remote_ts = ::1-ffff::",
    ] {
        assert_eq!(disabled(&connection("", "", "", child)), tunnel, "{child}");
    }
}

#[test]
fn a_connection_that_cannot_be_served_is_left_whole() {
    for (own, local, remote, child, why) in [
        ("version = 1", "", "", "", "IKEv1"),
        ("pools = p", "", "", "", "virtual addresses"),
        ("vips = 0.0.0.0", "", "", "", "virtual addresses"),
        ("ppk_required = yes", "", "", "", "RFC 8784"),
        ("remote-2 { auth = eap\n }", "", "", "", "several rounds"),
        ("", "", "auth = eap-tls", "", "eap-tls is not supported"),
        ("", "auth = pubkey", "", "", "different ways"),
        ("", "", "", "mode = drop", "not dropped"),
    ] {
        let imported = text(Format::Swanctl, &connection(own, local, remote, child));
        assert!(
            !lines(&imported).iter().any(|line| line.contains("site-to-site")),
            "{own}{local}{remote}{child}"
        );
        let (found, security) = left(&imported, "connections.a");
        assert!(found.contains(why) && security, "{found}");
    }
    let imported = text(Format::Swanctl, &connection("", "", "", "ah_proposals = sha256"));
    assert!(left(&imported, "connections.a.children.c").0.contains("AH"));
}

#[test]
fn a_proposal_that_is_left_out_is_named() {
    let imported = text(
        Format::Swanctl,
        &connection("proposals = aes256-sha256-ke1_mlkem768, aes256-sha256-x25519", "", "", ""),
    );
    assert_lines(&imported, &["vpn ipsec ike-group a proposal 1 dh-group 31"]);
    assert!(left(&imported, "connections.a.proposals").0.contains("ke1_mlkem768"));
}

#[test]
fn the_defaults_are_those_of_the_source() {
    let imported = text(Format::Swanctl, &connection("", "", "", ""));
    assert_lines(
        &imported,
        &[
            "vpn ipsec ike-group a lifetime 14400",
            "vpn ipsec esp-group a lifetime 3600",
            "vpn ipsec esp-group a pfs disable",
            "vpn ipsec site-to-site peer a connection-type none",
            "vpn ipsec authentication psk psk1 id %any",
        ],
    );
    let imported = text(
        Format::Swanctl,
        &connection("reauth_time = 3h\nrekey_time = 0", "", "", "rekey_time = 0\nlife_time = 2h"),
    );
    let wanted = [
        "ike-group a ikev2-reauth",
        "ike-group a lifetime 10800",
        "esp-group a lifetime 7200",
        "esp-group a disable-rekey",
    ];
    assert_lines(&imported, &wanted.map(|line| format!("vpn ipsec {line}")).each_ref().map(String::as_str));
}

#[test]
fn an_option_that_nobody_knows_is_named() {
    let imported = text(Format::Swanctl, &connection("frobnicate = 7", "", "", "launch = moon"));
    assert!(
        left(&imported, "connections.a.frobnicate").1 && left(&imported, "connections.a.children.c.launch").1
    );
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    for (content, said) in [
        ("connections {\n a {\n", "it:3:1: a section is never closed"),
        ("connections {\n a }\n", "it:2:2: neither = nor {"),
        ("}\n", "it:1:1: no section is open"),
        ("a : b {\n}\n", "it:1:1: there is no section b"),
        ("a : a {\n}\n", "it:1:1: the references of sections are too deep"),
        ("a {\n x = \"open\n}\n", "it:2:6: the closing quote is missing"),
        ("a {\n = x\n}\n", "it:2:2: the name of a section or setting is missing"),
    ] {
        let found = refused(Format::Swanctl, content);
        assert!(found.starts_with(said), "{found}");
    }
}

/// A connection with children, each with a proposal of its own.
fn with_children(name: &str, children: &[(&str, &str)]) -> String {
    let children = children.iter().map(|(name, proposal)| {
        format!("{name} {{ remote_ts = 10.2.0.0/16\n esp_proposals = {proposal}\n }}\n")
    });
    format!(
        "{name} {{ remote_addrs = 192.0.2.2\n local {{ auth = psk\n }}\n remote {{ auth = psk\n id = {name}\n }}\n \
         children {{ {} }} }}\n",
        children.collect::<String>()
    )
}

#[test]
fn each_tunnel_has_its_own_esp_settings() {
    let connections = [
        with_children("hq", &[("lan", "aes256gcm16"), ("dmz", "aes128gcm16")]),
        with_children("hq-lan", &[("lan", "aes192gcm16")]),
        with_children(
            "b",
            &[("a-name-of-19-letters-1", "aes256gcm16"), ("a-name-of-19-letters-2", "aes128gcm16")],
        ),
    ];
    let content = format!(
        "connections {{ {} }}\nsecrets {{ ike {{ secret = \"a secret\"\n }} }}",
        connections.concat()
    );
    let imported = text(Format::Swanctl, &content);
    for (tunnel, encryption) in [
        ("hq tunnel 1", "aes256gcm128"),
        ("hq tunnel 2", "aes128gcm128"),
        ("hq-lan tunnel 1", "aes192gcm128"),
        ("b tunnel 1", "aes256gcm128"),
        ("b tunnel 2", "aes128gcm128"),
    ] {
        let path = format!("set vpn ipsec site-to-site peer {tunnel} esp-group ");
        let lines = lines(&imported);
        let group = lines.iter().find_map(|line| line.strip_prefix(&*path)).expect("a group");
        let proposals = format!("set vpn ipsec esp-group {group} proposal ");
        let found: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(&*proposals)).collect();
        assert_eq!(found, [format!("1 encryption {encryption}")], "{tunnel}");
    }
}

#[test]
fn connections_with_a_long_common_beginning_are_different_peers() {
    let long = "x".repeat(85);
    let of = |end: &str| with_children(&format!("{long}-{end}"), &[("lan", "aes256gcm16")]);
    let imported = text(Format::Swanctl, &format!("connections {{ {}{} }}", of("a"), of("b")));
    assert_eq!(peers(&imported).len(), 2, "{:#?}", lines(&imported));
}

#[test]
fn each_secret_has_its_own_name() {
    let names = ["ike-office", "ike_office", "ike-psk2", "ike", "ike-1", "ike-2", "ikeoffice-2"];
    let secret = |name: &&str| format!("{name} {{ id = {name}\n secret = \"of {name}\"\n }}\n");
    let content = format!("secrets {{ {} }}", names.iter().map(secret).collect::<String>());
    let imported = text(Format::Swanctl, &content);
    let of = |word: &str| -> Vec<(String, String)> {
        let lines = lines(&imported).into_iter().filter_map(|line| {
            let (name, value) = line.strip_prefix("set vpn ipsec authentication psk ")?.split_once(word)?;
            Some((value.trim_matches('\'').replace("of ", ""), name.to_owned()))
        });
        lines.collect()
    };
    let secrets = of(" secret ");
    assert_eq!(secrets, of(" id "), "each secret is for its own peer");
    let different: std::collections::BTreeSet<_> = secrets.iter().map(|(_, name)| name).collect();
    assert_eq!(different.len(), names.len(), "{secrets:?}");
}
