//! The tree as a file of OpenVPN, and what is refused of it.

use super::{Mode, OpenVpn, Profile};
use crate::import::{Disk, Files};
use crate::openvpn::settings::{Addresses, Compression, DataCipher, Role, Topology, Wrapping};
use crate::openvpn::{Loaded, Position};
use crate::{Path, Settings, parse};
use std::path::PathBuf;

const PKI: &str = "set pki ca ca certificate AAAA\nset pki certificate it certificate AAAA\n\
                   set pki certificate it private key T3BlblNlc2FtZQ==\n";
const SERVER: &str = "mode server\nserver subnet 10.8.0.0/24\ntls ca-certificate ca\ntls certificate it";
const CLIENT: &str = "mode client\nremote-host 192.0.2.1\ntls ca-certificate ca\ntls certificate it";
const SITES: &str = "mode site-to-site\nlocal-address 10.1.0.1\nremote-address 10.1.0.2\nremote-host 192.0.2.1\n\
                     tls role active\ntls ca-certificate ca\ntls certificate it";

fn lines(base: &str, extra: &str) -> String {
    let lists =
        "set pki ca lists certificate AAAA\nset pki ca lists crl AAAA\nset pki ca lists crl-file /a\n";
    let key = format!("{lists}set pki openvpn shared-secret ta key {}\n", "4f".repeat(256));
    let set = |line: &str| format!("set interfaces openvpn vtun0 {line}\n");
    PKI.to_owned() + &key + &[base, extra].iter().flat_map(|it| it.lines()).map(set).collect::<String>()
}

fn read(base: &str, extra: &str) -> (OpenVpn, Vec<String>) {
    let text = lines(base, extra);
    let (mut settings, warnings) = Settings::new(&parse(&text).expect("right")).unwrap_or_else(|errors| {
        panic!("{errors:?}");
    });
    (settings.openvpn.remove("vtun0").expect("it is there"), warnings)
}

fn loaded(base: &str, extra: &str) -> Loaded {
    let disk = Disk { root: PathBuf::from("/nonexistent") };
    let profile = read(base, extra).0.profile;
    profile.load(&disk).unwrap_or_else(|refusals| panic!("{refusals:?}"))
}

fn reasons(base: &str, extra: &str) -> Vec<String> {
    let errors = Settings::new(&parse(&lines(base, extra)).expect("right")).expect_err("wrong");
    errors.into_iter().map(|error| error.reason).collect()
}

#[test]
fn a_server_is_written_as_openvpn_reads_it() {
    let extra = "server subnet fd00:8::/64\nserver push-route 10.2.0.0/24\nserver push-route 2001:db8:2::/48\n\
                 server push-route 10.3.0.0/24 metric 7\nserver client anna ip 10.8.0.9\nserver client anna subnet 10.4.0.0/24\n\
                 server client anna push-route 10.5.0.0/24\nserver client bert disable\nserver reject-unconfigured-clients\n\
                 server max-connections 7\nserver name-server 10.8.0.1\nserver domain-name example.org\nlocal-port 1195\n\
                 encryption data-ciphers aes256gcm\nencryption data-ciphers aes128gcm\nhash sha256\nkeep-alive interval 5\n\
                 keep-alive failure-count 6\ntls crypt-key ta\ntls tls-version-min 1.2\nmtu 1400";
    let settings = loaded(SERVER, extra).settings;
    assert_eq!((settings.role, settings.device.name.as_str()), (Role::Server, "vtun0"));
    assert_eq!(settings.device.topology, Topology::Subnet);
    assert_eq!(settings.listen[0].port, 1195);
    assert_eq!(settings.data.ciphers, [DataCipher::Aes256Gcm, DataCipher::Aes128Gcm]);
    let server = settings.server.expect("it is one");
    assert_eq!(
        server.push[1..6],
        [
            "route 10.2.0.0 255.255.255.0",
            "route 10.3.0.0 255.255.255.0 vpn_gateway 7",
            "route-ipv6 2001:db8:2::/48",
            "dhcp-option DNS 10.8.0.1",
            "dhcp-option DOMAIN example.org"
        ]
    );
    assert_eq!((server.max_clients, server.only_with_file), (7, true));
    assert_eq!((settings.timers.ping_seconds, settings.timers.restart_seconds), (5, 60));
    assert!(matches!(settings.connections[0].wrapping, Some(Wrapping::Crypt(_))));
    assert_eq!(settings.connections[0].tun_mtu, 1400);
    // The network behind a client is routed here.
    assert_eq!(settings.routing.routes.len(), 1);
}

#[test]
fn files_of_clients_are_in_memory() {
    let profile =
        read(SERVER, "server client anna ip 10.8.0.9\nserver client anna push-route 10.5.0.0/24").0.profile;
    let disk = Disk { root: PathBuf::from("/nonexistent") };
    let files = profile.files(&disk);
    let folder = PathBuf::from(super::CLIENTS);
    assert_eq!(files.list(&folder).expect("memory"), ["anna"]);
    let text = files.read(&folder.join("anna")).expect("memory");
    assert_eq!(
        text.as_str(),
        Ok("ifconfig-push 10.8.0.9 255.255.255.0\npush \"route 10.5.0.0 255.255.255.0\"\n")
    );
    assert!(files.read(&PathBuf::from("other")).is_err());
}

#[test]
fn a_client_and_a_site_are_written_as_openvpn_reads_them() {
    let settings = loaded(CLIENT, "remote-port 443\nremote-host vpn.example\nauthentication username a\nauthentication password \"b c\"").settings;
    let remotes: Vec<_> =
        settings.connections.iter().map(|it| (it.remote.as_deref(), it.remote_port, it.bind)).collect();
    assert_eq!(remotes, [(Some("192.0.2.1"), 443, false), (Some("vpn.example"), 443, false)]);
    assert_eq!(settings.role, Role::Client);
    let settings = loaded(SITES, "tls auth-key ta").settings;
    assert_eq!(settings.role, Role::SiteToSite);
    let [local, remote]: [std::net::Ipv4Addr; 2] =
        ["10.1.0.1", "10.1.0.2"].map(|it| it.parse().expect("literal"));
    assert!(matches!(settings.device.addresses, Some(Addresses::Peer(a, b)) if a == local && b == remote));
    assert!(matches!(settings.connections[0].wrapping, Some(Wrapping::Auth(_, Some(1)))));
}

#[test]
fn an_option_is_a_directive_of_openvpn() {
    let profile =
        read(SERVER, "openvpn-option \"--push &quot;route 10.9.0.0 255.255.255.0&quot;\"").0.profile;
    let disk = Disk { root: PathBuf::from("/nonexistent") };
    let server = profile.load(&disk).expect("right").settings.server.expect("it is one");
    assert_eq!(server.push[1], "route 10.9.0.0 255.255.255.0");
    let refused = |option: &str| {
        let profile = read(SERVER, &format!("openvpn-option '{option}'")).0.profile;
        let refusals = profile.load(&disk).expect_err("refused");
        let path = Path::new(["interfaces", "openvpn", "vtun0"]);
        refusals
            .iter()
            .map(|it| format!("{}: {}", profile.origin(&it.position, &path), it.reason))
            .collect::<String>()
    };
    for option in ["dev tap0\" x", "<ca>", "config /etc/passwd", "no-such-thing", "secret static.key"] {
        assert!(
            refused(option).starts_with("interfaces openvpn vtun0 openvpn-option: "),
            "{}",
            refused(option)
        );
    }
}

#[test]
fn a_remote_with_a_port_of_its_own_is_a_directive_beside_remote_host() {
    let settings = loaded(CLIENT, "remote-port 1200\nopenvpn-option 'remote b 443'").settings;
    let found: Vec<_> =
        settings.connections.iter().map(|it| (it.remote.as_deref(), it.remote_port)).collect();
    assert_eq!(found, [(Some("192.0.2.1"), 1200), (Some("b"), 443)]);
}

#[test]
fn refusals_are_told_with_the_node() {
    let profile = Profile::default();
    let path = Path::new(["interfaces", "openvpn", "vtun0"]);
    let place = Position { file: "elsewhere".into(), line: 7 };
    assert_eq!(profile.origin(&place, &path), "interfaces openvpn vtun0");
    let read = read(SERVER, "protocol tcp-passive\nserver client anna ip 10.8.0.7").0;
    let place = |file: &str, line| read.profile.origin(&Position { file: file.into(), line }, &path);
    assert_eq!(place("configuration", 3), "interfaces openvpn vtun0 protocol");
    assert_eq!(place("server client/anna", 1), "interfaces openvpn vtun0 server client anna ip");
}

#[test]
fn no_key_is_shown() {
    let read = read(CLIENT, "tls crypt-key ta\nauthentication username a\nauthentication password hunter2").0;
    let shown = format!("{read:?}");
    for secret in ["T3BlblNlc2FtZQ", "4f4f", "hunter2"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_with_its_node() {
    for (base, extra, reason) in [
        ("local-port 5", "", "vtun0: mode is not set"),
        (SERVER, "remote-host 192.0.2.1", "vtun0 remote-host: mode server"),
        (SERVER, "protocol tcp-active", "vtun0 protocol: mode server: a server does not connect"),
        (SERVER, "server subnet 10.9.0.0/24", "server subnet: there are 2 of IPv4"),
        (SERVER, "device-type tap", "device-type: the interface carries IP packets"),
        (SERVER, "server client-ip-pool start 10.8.0.9", "client-ip-pool: start or stop is not set"),
        (
            SERVER,
            "server client-ip-pool start 10.8.0.9\nserver client-ip-pool stop 10.8.0.8",
            "start 10.8.0.9 is behind stop",
        ),
        (
            SERVER,
            "server client-ip-pool start 10.8.0.9\nserver client-ip-pool stop 10.9.0.8",
            "is not in the server subnet",
        ),
        (SERVER, "server client a ip 10.9.0.1", "client a ip: 10.9.0.1 is in no server subnet"),
        (
            SERVER,
            "server client a ip 10.8.0.3\nserver client b ip 10.8.0.3",
            "client b ip: client a has 10.8.0.3, too",
        ),
        (SERVER, "server reject-unconfigured-clients", "there is no server client"),
        (SERVER, "server client-ipv6-pool base fd00::/64", "there is no server subnet of IPv6"),
        (SERVER, "tls role active", "tls role: it is for mode site-to-site"),
        (SERVER, "tls auth-key ta\ntls crypt-key ta", "tls auth-key: crypt-key is set, too"),
        (SERVER, "tls auth-key tb", "there is no pki openvpn shared-secret tb"),
        (SERVER, "local-port 5\ntls ca-certificate lists", "there are several revocation lists"),
        (CLIENT, "local-port 5", "local-port: mode client"),
        (CLIENT, "protocol tcp-passive", "a client does not listen"),
        (CLIENT, "authentication username a", "authentication: password is not set"),
        (
            CLIENT,
            "authentication password-hash-file /a",
            "authentication password-hash-file: mode client: a server",
        ),
        (SERVER, "authentication username a", "authentication username: mode server: a client sends"),
        (
            SITES,
            "authentication password-hash-file /a",
            "authentication: mode site-to-site: it is for mode client or server",
        ),
        (
            "mode client\ntls ca-certificate ca\ntls certificate it",
            "",
            "mode: client: remote-host is not set",
        ),
        (
            "mode server\ntls ca-certificate ca\ntls certificate it",
            "",
            "mode: server: server subnet is not set",
        ),
        ("mode server\nserver subnet 10.8.0.0/24", "", "tls: neither ca-certificate nor peer-fingerprint"),
        (
            "mode server\nserver subnet 10.8.0.0/30\ntls ca-certificate ca\ntls certificate it",
            "",
            "10.8.0.0/30 is too small",
        ),
        (SITES, "local-address 10.1.0.3", "local-address: there are 2 of IPv4"),
        (SITES, "local-address 10.1.0.2", "remote-address: 10.1.0.2 is local-address, too"),
        (SITES, "remote-address 2001:db8::1", "the other end has no IPv6 address"),
        (SITES, "protocol tcp-passive", "remote-host: protocol tcp-passive"),
        (SITES, "protocol tcp-active\ntls role passive", "tls role: it does not go with protocol tcp-active"),
    ] {
        let found = reasons(base, extra);
        assert!(found.iter().any(|it| it.contains(reason)), "{extra}: {found:?}");
    }
}

#[test]
fn a_port_is_not_given_twice_and_a_disabled_interface_has_none() {
    let other: String = SERVER
        .lines()
        .map(|line| format!("set interfaces openvpn vtun1 {}\n", line.replace("10.8", "10.9")))
        .collect();
    let text = lines(SERVER, "") + &other;
    let errors = Settings::new(&parse(&text).expect("right")).expect_err("one port");
    assert!(errors[0].reason.contains("vtun1: vtun0 has port 1194 too"), "{errors:?}");
    for line in ["disable", "protocol tcp-passive", "local-port 1195"] {
        let text = format!("{text}set interfaces openvpn vtun1 {line}");
        assert!(Settings::new(&parse(&text).expect("right")).is_ok(), "{line}");
    }
}

#[test]
fn words_of_older_vyos_and_words_without_effect_are_warned_of() {
    let (read, warnings) = read(SERVER, "encryption ncp-ciphers aes256gcm\ntls dh-params dh\noffload dco");
    assert_eq!((read.mode, read.port, warnings.len()), (Mode::Server, Some(1194), 3), "{warnings:?}");
    let warnings = self::read(CLIENT, "").1;
    assert!(warnings[0].contains("can pass as the server"), "{warnings:?}");
    assert!(self::read(CLIENT, "openvpn-option 'remote-cert-tls server'").1.is_empty());
}

#[test]
fn compression_is_loaded_and_its_framing_is_served() {
    assert_eq!(loaded(SERVER, "").settings.data.compression, Compression::Off);
    assert_eq!(loaded(SERVER, "use-lzo-compression").settings.data.compression, Compression::Before);
}
