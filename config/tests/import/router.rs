//! VyOS and EdgeOS.

use super::{assert_complete, assert_lines, files, left, line_of, lines, refused, text};
use config::import::{Format, Outcome};

fn is_option(line: &str) -> bool {
    !line.is_empty()
        && !line.ends_with('{')
        && line != "}"
        && !line.starts_with("//")
        && !line.starts_with("/*")
}

#[test]
fn a_saved_configuration_of_vyos_1_4_is_taken_but_for_what_is_no_vpn() {
    let imported = files(Format::Vyos, &["vyos-1.4.boot"], &[]);
    assert_lines(
        &imported,
        &[
            "interfaces wireguard wg10 ip adjust-mss 1380",
            "interfaces wireguard wg10 peer berlin allowed-ips 10.201.0.0/24",
            "vpn ipsec authentication psk berlin secret 'it'\"'\"'s \"open\" sesame'",
            "vpn ipsec ike-group IKE dead-peer-detection action restart",
            "vpn ipsec site-to-site peer berlin tunnel 1 remote prefix 10.2.0.0/16",
            "vpn ipsec site-to-site peer madrid disable",
            "interfaces ethernet eth0 address 203.0.113.1/24",
            "nat source rule 100 outbound-interface name eth0",
            "nat source rule 100 translation address masquerade",
        ],
    );
    for option in
        ["firewall", "vpn ipsec remote-access", "interfaces vti vti1", "interfaces wireguard wg10 vrf red"]
    {
        assert!(left(&imported, option).1, "{option}");
    }
    for option in ["system login", "system host-name", "service ssh"] {
        assert!(!left(&imported, option).1, "{option}");
    }
    let firewall = &imported.entries[0];
    assert_eq!((firewall.place.line, firewall.place.last_line), (1, 7));
    assert_eq!(line_of(&imported, "vpn ipsec ike-group IKE proposal 1 dh-group"), 105);
    assert_complete(&imported, "vyos-1.4.boot", is_option);
}

#[test]
fn words_and_defaults_of_vyos_1_2_are_translated() {
    let imported = files(Format::EdgeOs, &["vyos-1.2.boot"], &[]);
    assert_lines(
        &imported,
        &[
            "interfaces wireguard wg0 private-key 4N9AUaEQn0Kxr6DwUD0J6dJwhfOjMZ5T3DaWH8BFAmk=",
            "interfaces wireguard wg0 peer berlin allowed-ips 10.200.0.2/32",
            "interfaces wireguard wg0 peer berlin address 198.51.100.7",
            "interfaces wireguard wg0 peer berlin public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
            "vpn ipsec ike-group IKE key-exchange ikev2",
            "vpn ipsec ike-group IKE dead-peer-detection action trap",
            "vpn ipsec site-to-site peer 198.51.100.7 authentication pre-shared-secret 'Open#Sesame'",
            "vpn ipsec site-to-site peer 198.51.100.7 tunnel 0 remote prefix 10.2.0.0/16",
        ],
    );
    assert_complete(&imported, "vyos-1.2.boot", is_option);
}

#[test]
fn peers_of_edgeos_get_names_and_their_keys_are_read() {
    let imported = files(Format::EdgeOs, &["edgeos.boot"], &[]);
    assert_lines(
        &imported,
        &[
            "interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
            "interfaces wireguard wg0 port 51820",
            "interfaces wireguard wg0 peer Berlin-office public-key xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
            "interfaces wireguard wg0 peer Berlin-office allowed-ips 10.201.0.0/24",
            "interfaces wireguard wg0 peer Berlin-office port 51820",
            "interfaces wireguard wg0 peer peer1 allowed-ips 192.168.33.102/32",
            "vpn ipsec site-to-site peer 192.0.2.1 tunnel 1 local prefix 192.168.1.0/24",
        ],
    );
    assert!(left(&imported, "vpn ipsec ike-group FOO0 key-exchange").0.contains("IKEv1"));
    assert!(left(&imported, "vpn ipsec auto-firewall-nat-exclude").1);
    assert_complete(&imported, "edgeos.boot", is_option);
}

#[test]
fn set_lines_are_read_as_the_router_prints_them() {
    let imported = files(Format::Vyos, &["vyos-commands.set"], &[]);
    assert_lines(&imported, &["interfaces wireguard wg0 peer berlin allowed-ips 0.0.0.0/0"]);
    assert_eq!(lines(&imported).len(), 5);
    let all =
        imported.entries.iter().find(|entry| entry.option.ends_with("allowed-ips")).expect("it is there");
    assert!(matches!(&all.outcome, Outcome::Translated(why) if why.contains("routes")));
    let firewall = &imported.entries[0];
    assert_eq!((firewall.place.line, firewall.place.last_line, firewall.option.as_str()), (1, 2, "firewall"));
}

#[test]
fn a_secret_in_an_unknown_place_is_not_shown() {
    for line in [
        "set vpn ipsec authentication psk berlin OpenSesame",
        "set vpn l2tp remote-access ipsec-settings authentication pre-shared-secret OpenSesame",
        "set system login user vyos authentication plaintext-password OpenSesame",
        "set vpn ipsec site-to-site peer a authentication x509 key password OpenSesame",
        "set interfaces wireguard wg0 private-key OpenSesame/",
    ] {
        let imported = text(Format::Vyos, line);
        // The name of a key in the router is the name of its file.
        let shown = format!("{:?} {:?}", imported.entries, imported.problems);
        assert!(!shown.contains("OpenSesame") || line.contains("private-key"), "{shown}");
        assert!(!imported.entries.is_empty(), "{line}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    for (content, said) in [
        ("interfaces {\n  wireguard wg0 {\n", "it:2:17: the block is never closed"),
        ("interfaces {\n}\n}\n", "it:3:1: no block is open here"),
        ("set interfaces wireguard wg0 description 'a", "it:1:42: the closing quote is missing"),
        ("interface wg0\n", "it:1:1: this is no line of set"),
    ] {
        let found = refused(Format::Vyos, content);
        assert!(found.starts_with(said), "{found}");
    }
}

#[test]
fn a_rule_of_nat_is_taken_in_newer_words_and_disabled_where_a_part_of_it_is_not_known() {
    let content = "nat {\n source {\n  rule 10 {\n   outbound-interface eth0\n   protocol all\n   source {\n    address 10.2.0.0/24\n   }\n   \
                translation {\n    address masquerade\n   }\n  }\n  rule 20 {\n   outbound-interface any\n   source {\n    group {\n     \
                address-group LAN\n    }\n   }\n   translation {\n    address masquerade\n   }\n  }\n }\n}\n";
    let imported = text(Format::Vyos, content);
    assert_lines(
        &imported,
        &[
            "nat source rule 10 outbound-interface name eth0",
            "nat source rule 10 source address 10.2.0.0/24",
            "nat source rule 20 translation address masquerade",
            "nat source rule 20 disable",
        ],
    );
    assert!(!lines(&imported).contains(&"set nat source rule 10 disable"));
    assert!(left(&imported, "nat source rule 20 source group address-group").1);
}

#[test]
fn a_peer_without_a_description_has_no_name_of_another_peer() {
    const KEYS: [&str; 3] = [
        "4N9AUaEQn0Kxr6DwUD0J6dJwhfOjMZ5T3DaWH8BFAmk=",
        "bQXiIwDbjusJsEXJdUW6jti8XjI3330SteGSGHLcin4=",
        "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    ];
    let peers =
        KEYS.into_iter().zip(["", "   description peer1\n", ""]).zip(1..).map(|((key, own), number)| {
            format!("  peer {key} {{\n{own}   allowed-ips 10.{number}.0.0/16\n  }}\n")
        });
    let named = "  peer peer2 {\n   allowed-ips 10.9.0.0/16\n  }\n";
    let peers: String = peers.collect();
    let content = format!("interfaces {{\n wireguard wg0 {{\n{peers}{named} }}\n}}\n");
    let imported = text(Format::EdgeOs, &content);
    for (key, (name, network)) in KEYS.into_iter().zip([("peer3", 1), ("peer1", 2), ("peer4", 3)]) {
        for value in [format!("public-key {key}"), format!("allowed-ips 10.{network}.0.0/16")] {
            let line = format!("set interfaces wireguard wg0 peer {name} {value}");
            assert!(lines(&imported).contains(&&*line), "no {line} in\n{}", lines(&imported).join("\n"));
        }
    }
}
