//! UCI of OpenWrt: stock tunnels, what its own daemon serves, and the way back.

use super::{assert_lines, files, left, lines, of_text, peers, refused, text};
use config::export::{self, Exported};
use config::import::{Disk, Format, Imported, Outcome, Wanted, import};
use config::parse;
use std::path::Path;

const ALL: Format = Format::Uci(Wanted::All);
const OWN: Format = Format::Uci(Wanted::Own);

fn network(content: &str) -> Imported {
    text(ALL, &format!("package network\n{content}"))
}

#[test]
fn a_stock_interface_is_taken_with_its_peers() {
    let imported = files(ALL, &["openwrt/network"], &[]);
    assert_lines(
        &imported,
        &[
            "interfaces wireguard wg0 address 10.200.0.1/24",
            "interfaces wireguard wg0 address fd00:200::1/128",
            "interfaces wireguard wg0 port 51820",
            "interfaces wireguard wg0 fwmark 51820",
            "interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
            "interfaces wireguard wg0 peer berlin address 192.0.2.9",
            "interfaces wireguard wg0 peer berlin port 51820",
            "interfaces wireguard wg0 peer berlin allowed-ips 10.201.0.0/24",
            "interfaces wireguard wg0 peer berlin preshared-key IYyPlCoG5+mMmVsVEXJRXUBNjVIoy3Q8yQnxX6kZU5k=",
            "interfaces wireguard wg0 peer laptop allowed-ips 10.200.0.3/32",
            "interfaces wireguard wg0 peer laptop disable",
            "interfaces wireguard wg1 address 10.9.0.2/32",
            "interfaces wireguard wg1 disable",
        ],
    );
    assert!(imported.problems.is_empty(), "{:?}", imported.problems);
    assert!(left(&imported, "network.@wireguard_wg0[1].private_key").0.contains("QR code"));
    assert!(
        left(&imported, "network.@wireguard_home[0].allowed_ips").1,
        "without routes, the interface is disabled"
    );
    assert!(!left(&imported, "network.lan").1 && !left(&imported, "network.loopback").1);
}

#[test]
fn our_daemon_serves_what_has_a_protocol_of_ours() {
    let config = "package network\nconfig interface 'wg0'\noption proto 'wireguard'\nconfig wireguard_wg0\noption public_key x\n\
         config interface 'home'\noption proto postern_wireguard\noption link wg7\n\
         option private_key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=\noption auto 0\nlist dns 10.0.0.1\n\
         config interface 'vtun3'\noption proto postern_openvpn\n\
         package postern\nconfig daemon daemon\noption enabled 1\nconfig lines\nlist set 'interfaces openvpn vtun3 mode client'\n";
    let imported = text(OWN, config);
    let misspelt = config.replace("config lines\n", "config lines\noption enabled ture\n");
    assert_eq!(lines(&text(OWN, &misspelt)), lines(&imported), "the default, as for OpenWrt's own scripts");
    let expected = [
        "set interfaces openvpn vtun3 mode client",
        "set interfaces wireguard wg7",
        "set interfaces wireguard wg7 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM=",
    ];
    assert_eq!(lines(&imported), expected);
    assert!(left(&imported, "network.wg0").0.contains("kernel"));
    assert!(!left(&imported, "network.@wireguard_wg0[0]").1);
}

#[test]
fn an_interface_of_ours_has_a_name_of_ours() {
    let imported = text(OWN, "package network\nconfig interface home\noption proto postern_wireguard\n");
    let (why, security) = left(&imported, "network.home");
    assert!(why.contains("interfaces wireguard") && security);
    // What would lose a tunnel without a word is refused.
    for (config, origin, reason) in [
        ("config interface wg0\noption proto postern_wiregaurd\n", "network.wg0", "no such protocol"),
        (
            "config interface home\noption proto postern_wireguard\noption link wg0\nconfig wireguard_wg0\noption public_key x\n",
            "network.@wireguard_wg0[0]",
            "wg0 is not imported",
        ),
        (
            "config interface wg0\noption proto postern_wireguard\nconfig interface home\noption proto postern_wireguard\noption link wg0\n",
            "network.home",
            "another section",
        ),
    ] {
        let imported = text(OWN, &format!("package network\n{config}"));
        let (why, security) = left(&imported, origin);
        assert!(why.contains(reason) && security, "{config}: {why}");
        assert!(imported.problems.iter().any(|it| it.reason.starts_with(origin)), "{:?}", imported.problems);
    }
    let imported = text(OWN, "package network\nconfig interface vtun0\noption proto postern_openvpn\n");
    assert!(left(&imported, "network.vtun0").0.contains("no line"));
}

#[test]
fn peers_of_ipsec_are_those_of_swanctl() {
    let imported = files(ALL, &["openwrt/ipsec"], &[]);
    assert_lines(
        &imported,
        &[
            "vpn ipsec site-to-site peer west remote-address 192.0.2.2",
            "vpn ipsec site-to-site peer west authentication mode pre-shared-secret",
            "vpn ipsec site-to-site peer west tunnel 1 local prefix 10.1.0.0/16",
            "vpn ipsec site-to-site peer west tunnel 1 remote prefix 10.2.0.0/16",
            "vpn ipsec ike-group west proposal 1 encryption aes256gcm128",
            "vpn ipsec ike-group west proposal 1 dh-group 19",
        ],
    );
    assert!(imported.problems.is_empty(), "{:?}", imported.problems);
    assert!(left(&imported, "ipsec.old").0.contains("IKEv1"));
    assert!(left(&imported, "ipsec.off").0.contains("not enabled"));
    assert!(left(&imported, "ipsec.west.local_gateway_id").1, "an option that is not known");
}

#[test]
fn clients_and_servers_of_openvpn_are_taken() {
    let imported = files(ALL, &["openwrt/openvpn"], &[]);
    let found = lines(&imported);
    for wanted in [
        "interfaces openvpn vtun0 mode server",
        "interfaces openvpn vtun0 server subnet 10.8.0.0/24",
        "interfaces openvpn vtun0 server push-route 10.2.0.0/24",
        "interfaces openvpn vtun0 server name-server 10.2.0.1",
        "interfaces openvpn vtun0 keep-alive interval 10",
        "interfaces openvpn vtun0 keep-alive failure-count 12",
        "interfaces openvpn vtun0 local-port 1194",
        "interfaces openvpn vtun0 openvpn-option client-to-client",
        "interfaces openvpn vtun1 openvpn-option 'remote-cert-tls server'",
        // The files of its keys are not there.
        "interfaces openvpn vtun0 disable",
        "interfaces openvpn vtun1 mode client",
        "interfaces openvpn vtun1 remote-host vpn.example.org",
        "interfaces openvpn vtun1 remote-port 1195",
        "interfaces openvpn vtun1 protocol tcp-active",
        "interfaces openvpn vtun1 encryption data-ciphers aes128gcm",
    ] {
        assert!(found.contains(&&*format!("set {wanted}")), "no {wanted} in\n{}", found.join("\n"));
    }
    assert!(
        imported.problems.iter().all(|problem| problem.reason.contains(" tls")),
        "{:?}",
        imported.problems
    );
    assert!(left(&imported, "openvpn.server.ca").1 && left(&imported, "openvpn.server.up").1);
    assert!(left(&imported, "openvpn.file").0.contains("another file"));
}

#[test]
fn lines_of_ours_are_taken_as_they_are() {
    let imported = text(
        OWN,
        "package postern\nconfig lines a\nlist set 'system ip forwarding'\nlist set \"set interfaces wireguard wg0 description 'it is'\"\n\
         list set 'no such thing'\nlist comment \"interfaces wireguard wg0 'to the office'\"\nlist comment 'nowhere x'\n\
         config lines b\noption enabled 0\nlist set 'system ipv6 forwarding'\n",
    );
    let expected = [
        "set system ip forwarding",
        "set interfaces wireguard wg0 description 'it is'",
        "comment interfaces wireguard wg0 'to the office'",
    ];
    assert_eq!(lines(&imported), expected);
    assert!(imported.entries.iter().any(|entry| entry.option == "postern.a.set"
        && matches!(entry.outcome, Outcome::Left { security: true, .. })));
    assert!(left(&imported, "postern.b").0.contains("not enabled"));
}

#[test]
fn secrets_of_lines_are_not_shown() {
    let imported = text(
        OWN,
        "package postern\nconfig lines a\nlist set 'interfaces wireguard wg0 private-key YAnz5TF+lXXJte14tji3zlMNftft3s+fYzyBdnGPWlM='\n",
    );
    super::assert_no_secrets(&imported);
    assert_eq!(lines(&imported).len(), 1);
}

#[test]
fn a_file_that_is_not_uci_is_refused() {
    assert!(
        refused(ALL, "config interface\n\toption a 'secret\n")
            .contains("it:2:11: a quotation mark is not closed")
    );
    assert!(refused(ALL, "[Interface]\n").contains("no word of UCI"));
}

/// Both packages in one text.
fn whole(exported: &Exported) -> String {
    let [network, postern] = [&exported.network, &exported.postern].map(|text| text.as_str().expect("UTF-8"));
    format!("package network\n{network}\npackage postern\n{postern}")
}

/// A configuration, as UCI, as a configuration.
fn there_and_back(name: &str, content: &str) {
    let tree = parse(content).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
    let exported = export::uci(&tree).unwrap_or_else(|error| panic!("{name}: {error}"));
    let uci = whole(&exported);
    let imported = text(OWN, &uci);
    let again = parse(imported.text.as_str().expect("UTF-8")).expect("it was read");
    assert!(again == tree, "{name}: {again:?}\nis not\n{tree:?}");
    let uci_again = export::uci(&again).expect("it was exported");
    assert_eq!(whole(&uci_again), uci, "{name}");
}

#[test]
fn each_example_comes_back_from_uci() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("it is there").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "conf") {
            there_and_back(&path.display().to_string(), &std::fs::read_to_string(&path).expect("text"));
            seen += 1;
        }
    }
    assert!(seen > 8);
}

#[test]
fn what_uci_has_no_words_for_comes_back_as_lines() {
    there_and_back(
        "odd",
        "set interfaces wireguard wg0 fwmark 0\nset interfaces wireguard wg0 threads 4\n\
         set interfaces wireguard wg0 description \"it's \\ #1\"\n\
         set interfaces wireguard wg0 peer a.b@c address 192.0.2.1\n\
         set interfaces wireguard wg0 peer peer1 port 7\n\
         set interfaces wireguard wg0 peer nowhere host-name n.example\n\
         set interfaces wireguard wg0 peer both host-name n.example\nset interfaces wireguard wg0 peer both port 5\n\
         set interfaces wireguard wg0 peer both address 192.0.2.1\n\
         set interfaces wireguard wg0 peer named host-name n.example\nset interfaces wireguard wg0 peer named port 5\n\
         set interfaces wireguard wg0 peer empty\n\
         set interfaces wireguard wg0 peer \"it's\" port 9\n\
         set interfaces wireguard wg0 peer zero preshared-key AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\
         set interfaces wireguard wg0 peer full allowed-ips 0.0.0.0/0\n\
         set interfaces wireguard wg0 peer full address 2001:db8::1\nset interfaces wireguard wg0 peer full port 51821\n\
         set interfaces wireguard wg1\nset interfaces wireguard wg2 disable\n\
         comment interfaces wireguard wg1 'it is empty'\n",
    );
    there_and_back("nothing", "");
}

#[test]
fn a_name_and_its_port_are_an_endpoint_of_uci() {
    let lines = "set interfaces wireguard wg0 peer b host-name n.example\nset interfaces wireguard wg0 peer b port 5\n";
    let exported = export::uci(&parse(lines).expect("right")).expect("it can be said");
    let network = exported.network.as_str().expect("text").to_owned();
    assert!(
        network.contains("endpoint_host 'n.example'") && network.contains("endpoint_port '5'"),
        "{network}"
    );
}

#[test]
fn uci_has_words_for_wireguard() {
    let tree = parse("set interfaces wireguard wg0 port 51820\nset system ip forwarding\n").expect("right");
    let exported = export::uci(&tree).expect("it can be said");
    let network =
        "\nconfig interface 'wg0'\n\toption proto 'postern_wireguard'\n\toption listen_port '51820'\n";
    assert_eq!(exported.network.as_str(), Ok(network));
    assert_eq!(exported.postern.as_str(), Ok("\nconfig lines 'main'\n\tlist set 'system ip forwarding'\n"));
    assert_eq!((exported.options, exported.as_lines["system ip"]), (1, 1));
}

#[test]
fn a_stock_interface_becomes_ours_by_its_protocol() {
    let interface = |proto: &str| {
        let text = network(&format!(
            "config interface wg0\noption proto {proto}\noption listen_port 51820\nconfig wireguard_wg0 a\nlist allowed_ips 10.0.0.0/8\noption route_allowed_ips 1\n"
        ));
        lines(&text).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(interface("wireguard"), interface("postern_wireguard"));
}

/// A machine with two authorities in files of one name, and two static keys.
fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    let write = |path: &str, content: &[u8]| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, content).expect("a file");
    };
    write("etc/openvpn/ca.crt", include_bytes!("../../../crypto/tests/certificates/root.pem"));
    write("etc/swanctl/x509ca/ca.crt", include_bytes!("../../../crypto/tests/certificates/ocsp/ca.pem"));
    for (folder, digit) in [("a", "1"), ("b", "2")] {
        let digits = format!("{}\n", digit.repeat(32)).repeat(16);
        let key =
            format!("-----BEGIN OpenVPN Static key V1-----\n{digits}-----END OpenVPN Static key V1-----\n");
        write(&format!("etc/openvpn/{folder}/ta.key"), key.as_bytes());
    }
    root
}

#[test]
fn files_of_one_name_in_two_packages_stay_apart() {
    let client = |name: &str| {
        format!(
            "config openvpn {name}\noption enabled 1\noption client 1\nlist remote vpn.example.org\n\
             option ca /etc/openvpn/ca.crt\noption tls_auth '/etc/openvpn/{name}/ta.key 1'\n"
        )
    };
    let content = format!(
        "package openvpn\n{}{}package ipsec\nconfig remote west\noption enabled 1\noption gateway 192.0.2.2\n\
         option authentication_method pubkey\noption ca_cert ca.crt\n",
        client("a"),
        client("b")
    );
    let root = machine();
    let sources = [of_text("/nowhere/all", &content)];
    let files = Disk { root: root.path().to_owned() };
    let imported = import(ALL, &sources, &files, &[]).unwrap_or_else(|error| panic!("{error}"));
    let lines = lines(&imported);
    let value = |path: &str| {
        let found: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix(path)).collect();
        assert_eq!(found.len(), 1, "{path} in\n{}", lines.join("\n"));
        found[0]
    };
    assert_ne!(value("set pki ca ca certificate "), value("set pki ca ca-2 certificate "));
    assert!(value("set pki openvpn shared-secret ta key ").starts_with("1111"));
    assert!(value("set pki openvpn shared-secret ta-2 key ").starts_with("2222"));
    for (path, name) in [
        ("interfaces openvpn vtun1 tls ca-certificate", "ca"),
        ("interfaces openvpn vtun1 tls auth-key", "ta-2"),
        ("vpn ipsec site-to-site peer west authentication x509 ca-certificate", "ca-2"),
    ] {
        assert_eq!(value(&format!("set {path} ")), name);
    }
}

#[test]
fn each_remote_has_its_own_secret() {
    let remote = |name: &str, number: u8| {
        format!(
            "config remote {name}\noption enabled 1\noption gateway 192.0.2.{number}\noption authentication_method psk\n\
             option local_identifier us\noption remote_identifier peer-{number}\noption pre_shared_key 'key {number}'\n"
        )
    };
    let remotes: String =
        ["2", "3", "", "", "psk1"].into_iter().zip(1..).map(|(name, it)| remote(name, it)).collect();
    let imported = text(ALL, &format!("package ipsec\n{remotes}"));
    let found = lines(&imported);
    let psks = found.iter().filter_map(|line| line.strip_prefix("set vpn ipsec authentication psk "));
    let secrets: Vec<(&str, &str)> = psks.filter_map(|line| line.split_once(" secret ")).collect();
    assert_eq!(secrets.len(), 5, "{secrets:?}");
    for (name, secret) in &secrets {
        let number = secret.trim_matches('\'').strip_prefix("key ").expect("a number");
        let path = format!("set vpn ipsec authentication psk {name} id ");
        let ids: Vec<&str> = found.iter().filter_map(|line| line.strip_prefix(&*path)).collect();
        assert_eq!(ids, ["us", &format!("peer-{number}")], "{name}");
    }
    assert_eq!(peers(&imported).len(), 5, "a section without a name is a peer, too");
}

#[test]
fn each_remote_of_openvpn_has_its_own_port() {
    let client = |options: &str| {
        let content =
            format!("package openvpn\nconfig openvpn a\noption enabled 1\noption client 1\n{options}");
        let imported = text(ALL, &content);
        let lines = lines(&imported).into_iter().filter(|line| line.contains("remote"));
        lines
            .filter_map(|line| line.strip_prefix("set interfaces openvpn vtun0 "))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(
        client("list remote 'a 1194'\nlist remote 'b 443'\nlist remote c\n"),
        "remote-host a\nremote-port 1194\nopenvpn-option 'remote b 443'\nremote-host c"
    );
    assert_eq!(
        client("option port 1200\nlist remote a\nlist remote 'b 1194'\nlist remote 'c 1200'\n"),
        "remote-port 1200\nremote-host a\nopenvpn-option 'remote b 1194'\nremote-host c"
    );
    assert_eq!(
        client("list remote 'a 443'\nlist remote 'b 443'\nlist remote c\n"),
        "remote-host a\nremote-port 443\nremote-host b\nopenvpn-option 'remote c 1194'"
    );
}
