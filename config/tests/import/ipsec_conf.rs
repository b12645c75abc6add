//! ipsec.conf and ipsec.secrets.

use super::{assert_complete, assert_lines, files, left, lines, refused, text};
use config::import::Format;

fn is_option(line: &str) -> bool {
    line.contains('=') && !line.starts_with('#') && !line.starts_with("also")
}

#[test]
fn strongswans_connections_to_one_peer_are_its_tunnels() {
    let imported = files(Format::IpsecConf, &["ipsec.conf"], &[]);
    let peer = "vpn ipsec site-to-site peer";
    assert_lines(
        &imported,
        &[
            &format!("{peer} berlin-lan local-address 203.0.113.1"),
            &format!("{peer} berlin-lan authentication local-id @hub.example.org"),
            &format!("{peer} berlin-lan connection-type initiate"),
            &format!("{peer} berlin-lan tunnel 1 remote prefix 10.3.0.0/16"),
            &format!("{peer} berlin-lan tunnel 2 local prefix 10.1.9.0/24"),
            &format!("{peer} paris authentication remote-id paris.example.org"),
            &format!("{peer} paris tunnel 1 protocol 6"),
            &format!("{peer} paris tunnel 1 local port 8443"),
            "vpn ipsec ike-group berlin-lan ikev2-reauth",
            "vpn ipsec ike-group berlin-lan lifetime 14400",
            "vpn ipsec ike-group berlin-lan proposal 1 dh-group 14",
            "vpn ipsec ike-group berlin-lan dead-peer-detection interval 20",
            "vpn ipsec esp-group berlin-lan-berlin-voice proposal 1 encryption aes128gcm128",
            "vpn ipsec authentication psk psk1 secret 'it'\"'\"'s open'",
            "vpn ipsec authentication psk psk2 id paris.example.org",
            // Text in quotes, although it begins like digits.
            "vpn ipsec authentication psk psk3 secret-type base64",
        ],
    );
    let text = lines(&imported).join("\n");
    assert!(!text.contains("ike-group paris ikev2-reauth"), "reauth=no");
    for option in ["conn bypass", "conn windows", "conn printer", "conn berlin-lan rightfirewall"] {
        assert!(left(&imported, option).1, "{option}");
        assert!(!text.contains(&option.replace("conn ", "peer ")));
    }
    assert!(left(&imported, "conn bypass").0.contains("bypass"));
    assert!(left(&imported, "conn printer").0.contains("IKEv1"));
    assert!(!left(&imported, "conn notes").1, "it is not loaded there either");
    assert_complete(&imported, "ipsec.conf", is_option);
    assert_complete(&imported, "ipsec.secrets", |line| line.contains(':'));
}

#[test]
fn libreswans_connections_are_seen_from_the_side_that_is_ours() {
    let local = ["192.0.2.2".parse().expect("an address")];
    let imported = files(Format::IpsecConf, &["libreswan.conf", "libreswan.secrets"], &local);
    let peer = "vpn ipsec site-to-site peer site-to-site";
    assert_lines(
        &imported,
        &[
            &format!("{peer} local-address 192.0.2.2"),
            &format!("{peer} remote-address 192.0.2.1"),
            &format!("{peer} authentication local-id keyid:GroupKey"),
            &format!("{peer} authentication remote-id @west"),
            &format!("{peer} tunnel 1 local prefix 10.2.0.0/24"),
            &format!("{peer} tunnel 1 remote prefix 10.1.0.0/24"),
            &format!("{peer} tunnel 2 remote prefix 10.1.1.0/24"),
            &format!("{peer} connection-type trap"),
            "vpn ipsec site-to-site peer vti disable",
            "vpn ipsec ike-group site-to-site proposal 1 prf prfsha512",
            "vpn ipsec ike-group site-to-site proposal 2 prf prfsha256",
            "vpn ipsec ike-group site-to-site lifetime 28800",
            "vpn ipsec esp-group site-to-site-site-to-site pfs enable",
            "vpn ipsec authentication psk psk1 id keyid:GroupKey",
        ],
    );
    assert!(!lines(&imported).iter().any(|line| line.contains("ikev2-reauth")));
    assert_complete(&imported, "libreswan.conf", is_option);
    let imported = files(Format::IpsecConf, &["libreswan.conf", "libreswan.secrets"], &[]);
    assert_lines(&imported, &[&format!("{peer} local-address 192.0.2.1")]);
}

#[test]
fn a_public_key_of_libreswan_is_a_key_pair() {
    // The modulus of 2048 bits belongs to no key.
    let key = format!("0sAwEAA{}Q==", "d".repeat(344));
    let imported = text(
        Format::IpsecConf,
        &format!(
            "conn a\n\tikev2=insist\n\tleft=192.0.2.1\n\tright=192.0.2.2\n\tauthby=rsasig\n\trightrsasigkey={key}\n\tauto=start\n"
        ),
    );
    assert!(
        lines(&imported)
            .iter()
            .any(|line| line.starts_with("set pki key-pair conn-a-rightrsasigkey public key "))
    );
    assert!(!imported.problems.is_empty(), "our private key is missing");
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    for (content, said) in [
        ("\tleft=1\n", "it:1:2: no section before this line"),
        ("conn a\n  left\n", "it:2:3: this is no setting"),
        ("connection a\n", "it:1:1: unknown section"),
        ("conn\n", "it:1:1: the section has no name"),
        ("conn a\n also=b\n auto=add\n", "it:2:2: there is no conn b"),
        ("conn a\n auto=add\n also=a\n", "it:1:1: also is too deep"),
        ("conn a\n leftid=\"x\n", "it:2:9: the closing quote is missing"),
    ] {
        let found = refused(Format::IpsecConf, content);
        assert!(found.starts_with(said), "{content}: {found}");
    }
}

/// A connection of libreswan with so many networks on each side.
fn with_networks(left: usize, right: usize) -> String {
    let list =
        |net: u8, count| (0..count).map(|it| format!("10.{net}.{it}.0/24")).collect::<Vec<_>>().join(",");
    format!(
        "conn a\n\tikev2=insist\n\tleft=192.0.2.1\n\tright=192.0.2.2\n\tauthby=secret\n\tleftsubnets={{{}}}\n\trightsubnets={{{}}}\n\tauto=start\n",
        list(1, left),
        list(2, right)
    )
}

#[test]
fn a_connection_of_too_many_tunnels_is_refused() {
    let imported = text(Format::IpsecConf, &with_networks(16, 16));
    let is_tunnel = |line: &&&str| line.contains(" remote prefix ");
    assert_eq!(lines(&imported).iter().filter(is_tunnel).count(), 256);
    let found = refused(Format::IpsecConf, &with_networks(20, 20));
    assert!(found.starts_with("it:7:2: conn a rightsubnets: these networks make 400 tunnels"), "{found}");
    assert!(found.contains("conn a-2, with also=a and rightsubnets={...}"), "{found}");
}

#[test]
fn the_advice_for_too_many_tunnels_leads_to_all_of_them() {
    let other = "conn a-2\n\talso=a\n\trightsubnets={10.3.0.0/24,10.3.1.0/24}\n\tauto=start\n";
    let imported = text(Format::IpsecConf, &format!("{}{other}", with_networks(16, 16)));
    let is_tunnel = |line: &&&str| line.contains("peer a tunnel ") && line.contains(" remote prefix ");
    assert_eq!(lines(&imported).iter().filter(is_tunnel).count(), 256 + 32);
}
