//! Files of wg-quick.

use super::{assert_complete, assert_lines, at, files, left, lines, refused, text};
use config::import::{Format, Outcome};

#[test]
fn a_hub_is_taken_with_its_peers() {
    let imported = files(Format::WgQuick, &["wg0.conf"], &[]);
    assert_lines(
        &imported,
        &[
            "interfaces wireguard wg0 address 10.200.0.1/24",
            "interfaces wireguard wg0 address fd00:200::1/128",
            "interfaces wireguard wg0 port 51820",
            "interfaces wireguard wg0 fwmark 51820",
            "interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
            "interfaces wireguard wg0 peer berlin allowed-ips 10.201.0.0/24",
            "interfaces wireguard wg0 peer berlin preshared-key IYyPlCoG5+mMmVsVEXJRXUBNjVIoy3Q8yQnxX6kZU5k=",
            "interfaces wireguard wg0 peer laptop-anna allowed-ips 10.200.0.3/32",
            "interfaces wireguard wg0 peer peer3 allowed-ips 10.204.0.0/16",
            "interfaces wireguard wg0 peer peer3 host-name vpn.branch.example",
            "interfaces wireguard wg0 peer peer3 port 51820",
        ],
    );
    assert_eq!(lines(&imported).len(), 24);
    assert!(left(&imported, "Interface PostUp").1 && left(&imported, "Interface DNS").1);
    let endpoint = at(&imported, "wg0.conf", 19);
    assert_eq!((endpoint[0].place.column, &endpoint[0].outcome), (1, &Outcome::Taken));
    assert_complete(&imported, "wg0.conf", |line| line.contains(" = ") && !line.starts_with('#'));
}

#[test]
fn an_interface_without_routes_for_all_addresses_is_disabled() {
    let imported = files(Format::WgQuick, &["full.conf"], &[]);
    assert_lines(
        &imported,
        &["interfaces wireguard wg0 disable", "interfaces wireguard wg0 peer peer1 port 4500"],
    );
    assert!(left(&imported, "Interface Table").0.contains("is disabled"));
}

#[test]
fn files_get_different_names() {
    let imported = files(Format::WgQuick, &["wg0.conf", "full.conf"], &[]);
    let names = ["wg0", "wg1"].map(|name| format!("set interfaces wireguard {name} private-key"));
    assert!(names.iter().all(|name| lines(&imported).iter().any(|line| line.starts_with(name))));
}

const KEYS: [&str; 2] =
    ["xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=", "bQXiIwDbjusJsEXJdUW6jti8XjI3330SteGSGHLcin4="];

#[test]
fn a_prefix_of_two_peers_belongs_to_the_last() {
    let [a, b] = KEYS;
    let imported = text(
        Format::WgQuick,
        &format!(
            "[Interface]\nPrivateKey=YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\n\
             [Peer]\n#a\nPublicKey={a}\nAllowedIPs=10.1.0.0/24,10.2.0.0/24\n\
             [Peer]\n#b\nPublicKey={b}\nAllowedIPs=10.2.0.9/24"
        ),
    );
    assert_lines(&imported, &["interfaces wireguard wg0 peer b allowed-ips 10.2.0.0/24"]);
    assert!(!lines(&imported).contains(&"set interfaces wireguard wg0 peer a allowed-ips 10.2.0.0/24"));
    assert!(left(&imported, "Peer AllowedIPs").0.contains("10.2.0.0/24"));
}

#[test]
fn what_would_be_refused_is_told_with_its_place() {
    let imported = text(
        Format::WgQuick,
        "[Interface]\nAddress = 10.0.0.1/8\nMTU = 9\n[Peer]\nAllowedIPs = 10.0.0.0/8\n",
    );
    assert!(left(&imported, "Interface MTU").0.contains("from 68"));
    let told: Vec<_> = imported
        .problems
        .iter()
        .map(|it| (it.place.as_ref().map(|place| place.line), it.reason.as_str()))
        .collect();
    assert!(
        told.iter().any(|(line, why)| *line == Some(1) && why.contains("private-key is not set")),
        "{told:?}"
    );
    assert!(
        told.iter().any(|(line, why)| *line == Some(4) && why.contains("public-key is not set")),
        "{told:?}"
    );
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place_and_without_its_text() {
    assert!(
        refused(Format::WgQuick, "[Interface]\n  OpenSesame")
            .starts_with("it:2:3: no = in this line\n  fix:")
    );
    assert!(!refused(Format::WgQuick, "[Interface]\nOpen Sesame = 1").contains("Sesame"));
    assert!(refused(Format::WgQuick, "PrivateKey = a").starts_with("it:1:1: no section"));
    assert!(refused(Format::WgQuick, "[Interfaces]").starts_with("it:1:1: unknown section"));
}

#[test]
fn an_interface_without_routes_for_some_addresses_is_reported() {
    let [a, _] = KEYS;
    let imported = text(
        Format::WgQuick,
        &format!("[Interface]\nTable = off\n[Peer]\nPublicKey = {a}\nAllowedIPs = 10.1.0.0/16\n"),
    );
    assert_eq!(
        left(&imported, "Interface Table"),
        ("Postern routes allowed-ips to the peer, in the main table", false)
    );
    assert!(!lines(&imported).iter().any(|line| line.ends_with(" disable")));
}

/// All options of wg-quick, some of them twice or without a value.
const ALL_OPTIONS: &str = "[Interface]
PrivateKey = YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=
Address = 10.0.0.1/24, fd00::1
Address =
ListenPort = 51820
MTU = 1420
MTU = 9
FwMark = off
FwMark = 0xca6c
Table = auto
Table = 7
Table = off
Table = off
SaveConfig = true
SaveConfig = false
DNS = 10.0.0.9
PreUp = a
PostUp = b
PreDown = c
PostDown = d
Frobnicate = e
[Peer]
PublicKey = xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=
PresharedKey = AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
AllowedIPs = 10.1.0.0/16, 10.2.0.9/16
AllowedIPs = 10.3.0.0/16
AllowedIPs =
Endpoint = 192.0.2.1:51820
Endpoint = vpn.example.org:51820
PersistentKeepalive = off
PersistentKeepalive = 25
Frobnicate = f
[Peer]
PublicKey = bQXiIwDbjusJsEXJdUW6jti8XjI3330SteGSGHLcin4=
PresharedKey = IYyPlCoG5+mMmVsVEXJRXUBNjVIoy3Q8yQnxX6kZU5k=
AllowedIPs = 10.3.0.0/16
AllowedIPs = everything
";

#[test]
fn each_line_of_a_source_is_in_the_report() {
    for (routes, disabled) in [("10.4.0.0/16", 0), ("0.0.0.0/0", 1)] {
        let content = format!("{ALL_OPTIONS}AllowedIPs = {routes}\n");
        let imported = text(Format::WgQuick, &content);
        for (line, number) in content.lines().zip(1..) {
            assert!(!at(&imported, "source.conf", number).is_empty(), "{number}: {line}");
        }
        let is_disabled = |line: &&&str| line.ends_with(" disable");
        assert_eq!(lines(&imported).iter().filter(is_disabled).count(), disabled, "{routes}");
    }
}

#[test]
fn what_is_neither_an_address_nor_a_name_is_left_with_its_port() {
    for endpoint in ["my_host.example:5", "[fe80::1%eth0]:5", "192.0.2.300:5"] {
        let content = ALL_OPTIONS.replace("vpn.example.org:51820", endpoint);
        let imported = text(Format::WgQuick, &content);
        assert!(
            left(&imported, "Peer Endpoint").0.contains("neither an address nor a domain name"),
            "{endpoint}"
        );
        assert!(!lines(&imported).iter().any(|line| line.contains("peer peer1 port")), "{endpoint}");
    }
}
