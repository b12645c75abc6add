//! Files in the manner of installers, distributions, firewalls and providers.

use super::{Memory, SECRETS, arguments, shown};
use config::import::Files;
use config::openvpn::settings::{
    Addresses, Compression, DataCipher, Destination, Digest, Family, Gateway, Group, Login,
    ManagementAddress, MssFix, Retry, Revocation, Role, Suite, TlsRole, Topology, Transport, Wrapping,
};
use config::openvpn::{Loaded, load};
use std::path::Path;

/// Loads a source below `sources/`; files that it names are those of [`Memory`].
fn source(name: &str) -> Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openvpn/sources").join(name);
    let content = std::fs::read_to_string(path).expect("it is there");
    let files = Memory::default().with("/etc/openvpn/it.conf", &content);
    let words = arguments(&["--cd", "/etc/openvpn", "--config", "it.conf"]);
    let loaded = load(&words, &files).unwrap_or_else(|refusals| panic!("{name}\n{}", shown(&refusals)));
    let debug = format!("{loaded:?}");
    assert!(!SECRETS.iter().any(|secret| debug.contains(secret)), "{name} shows a secret");
    loaded
}

fn warned(loaded: &Loaded, directive: &str) -> bool {
    loaded.remarks.iter().any(|remark| remark.directive == directive && remark.is_warning)
}

#[test]
fn the_server_of_an_installer_is_taken() {
    let loaded = source("installer-server.conf");
    let settings = &loaded.settings;
    assert_eq!(settings.role, Role::Server);
    let server = settings.server.as_ref().expect("a server");
    let pool = server.pool.expect("a pool");
    assert_eq!([pool.first, pool.last].map(|it| it.to_string()), ["10.8.0.2", "10.8.0.254"]);
    assert_eq!(server.pool6.expect("a pool").first.to_string(), "fd42:42:42:42::2/112");
    assert_eq!(server.leases, Some(("/etc/openvpn/ipp.txt".into(), 600)));
    assert_eq!(server.client_directory.as_deref(), Some(Path::new("/etc/openvpn/ccd")));
    for option in ["topology subnet", "route-gateway 10.8.0.1", "ping 10", "ping-restart 120", "tun-ipv6"] {
        assert!(server.push.iter().any(|pushed| pushed == option), "{option}");
    }
    assert_eq!(settings.timers.restart_seconds, 240);
    assert_eq!(settings.data.ciphers, [DataCipher::Aes128Gcm]);
    assert_eq!(settings.data.digest, Digest::Sha256);
    assert_eq!(settings.tls.groups, Some(vec![Group::Secp256r1]));
    assert_eq!(settings.tls.suites, Some(vec![Suite::EcdsaAes128]));
    assert!(matches!(settings.tls.revocation, Some(Revocation::List(_))));
    assert!(matches!(settings.connections[0].wrapping, Some(Wrapping::Crypt(_))));
    let management = settings.management.as_ref().expect("an interface");
    assert_eq!(management.address, ManagementAddress::Unix("/run/openvpn/server.sock".into()));
    assert_eq!(settings.process.user.as_deref(), Some("nobody"));
}

#[test]
fn the_server_of_a_distribution_is_taken() {
    let loaded = source("distribution-server.conf");
    let settings = &loaded.settings;
    let server = settings.server.as_ref().expect("a server");
    assert!(server.client_to_client && !server.duplicate_names);
    assert_eq!((server.max_clients, settings.listen[0].port), (100, 1194));
    assert_eq!(settings.log.file, Some(("/var/log/openvpn/openvpn.log".into(), true)));
    assert_eq!(settings.connections[0].exit_notify, 1);
    assert_eq!(settings.device.topology, Topology::Subnet);
    let net = "10.8.0.1/24".parse().expect("a literal");
    assert_eq!(settings.device.addresses, Some(Addresses::Subnet(net)));
    assert!(matches!(settings.connections[0].wrapping, Some(Wrapping::Auth(_, Some(0)))));
    let route = &settings.routing.routes[0].destination;
    assert_eq!(*route, Destination::Network("192.168.40.128/29".parse().expect("a literal")));
    // As in OpenVPN 2.6, the cipher alone is not negotiated.
    assert_eq!(settings.data.ciphers.len(), 3);
    assert_eq!(settings.data.compression, Compression::Off);
}

#[test]
fn the_client_of_a_distribution_is_taken() {
    let settings = source("distribution-client.conf").settings;
    assert_eq!((settings.role, settings.tls.role), (Role::Client, TlsRole::Client));
    let [first, second] = &settings.connections[..] else { panic!("two remotes") };
    assert_eq!(first.remote.as_deref(), Some("vpn1.example.net"));
    assert_eq!(first.protocol.transport, Transport::Udp);
    assert_eq!(second.protocol.transport, Transport::TcpClient);
    assert!(!first.bind && first.local_port.is_none());
    assert_eq!(settings.connecting.resolve, Retry::Infinite);
    assert_eq!(settings.tls.extended_key_usage.as_deref(), Some("serverAuth"));
    assert!(matches!(first.wrapping, Some(Wrapping::Auth(_, Some(1)))));
}

#[test]
fn the_export_of_a_firewall_has_a_mark_and_carriage_returns() {
    let settings = source("firewall-export.ovpn").settings;
    assert_eq!(settings.connections[0].protocol.family, Family::V4);
    let name = settings.tls.peer_name.expect("a name");
    assert_eq!(name.name, "fw.example.org");
    assert_eq!(settings.data.fallback, Some(DataCipher::Aes256Cbc));
    assert_eq!(settings.data.ciphers.len(), 4);
    assert!(matches!(settings.connections[0].wrapping, Some(Wrapping::Auth(_, Some(1)))));
    assert!(matches!(settings.client.expect("a client").user, Some(Login::Asked)));
    let certificate = settings.tls.certificate.expect("a certificate");
    assert!(certificate.file.is_none() && certificate.bytes().starts_with(b"-----BEGIN"));
}

#[test]
fn the_client_of_a_nas_needs_no_certificate() {
    let settings = source("nas.ovpn").settings;
    assert_eq!(settings.role, Role::Client);
    assert_eq!(settings.data.ciphers, [DataCipher::Aes256Cbc]);
    assert_eq!(settings.data.digest, Digest::Sha512);
    assert_eq!(settings.timers.renegotiate_seconds, 0);
    assert!(settings.tls.certificate.is_none());
}

#[test]
fn the_client_of_a_provider_has_its_password_inside() {
    let loaded = source("provider.ovpn");
    let settings = &loaded.settings;
    let ports: Vec<u16> = settings.connections.iter().map(|it| it.remote_port).collect();
    assert_eq!(ports, [80, 51820, 4569]);
    assert!(settings.connecting.random);
    assert!(settings.connections.iter().all(|it| it.mssfix == MssFix::Off && it.timeout_seconds == 20));
    let client = settings.client.as_ref().expect("a client");
    let Some(Login::Known(credentials)) = &client.user else { panic!("known") };
    assert_eq!(credentials.user.as_str(), "anna");
    assert_eq!(credentials.password.as_ref().expect("one").as_str(), "hunter2-sesame");
    assert_eq!(client.filters[0].prefix, "ifconfig-ipv6");
    assert_eq!(settings.routing.routes[0].gateway, Some(Gateway::Network));
    let down = settings.scripts.down.as_ref().expect("a script");
    assert_eq!(down.arguments, ["--down", "a b"]);
    assert_eq!(settings.process.send_buffer, Some(524_288));
    assert!(loaded.remarks.iter().any(|remark| remark.directive == "future-directive" && !remark.is_warning));
}

#[test]
fn blocks_of_connections_have_settings_of_their_own() {
    let loaded = source("profile.ovpn");
    let [first, second] = &loaded.settings.connections[..] else { panic!("two") };
    assert_eq!((first.exit_notify, second.exit_notify), (2, 0));
    assert_eq!(second.protocol.transport, Transport::TcpClient);
    assert_eq!((first.retry_seconds, second.retry_seconds), ((1, 300), (5, 60)));
    // The key stands behind the blocks, and its direction before them.
    assert!(matches!(second.wrapping, Some(Wrapping::Auth(_, Some(1)))));
    assert!(warned(&loaded, "ns-cert-type"));
    let variables = &loaded.settings.scripts.environment;
    assert!(variables.contains(&("UV_SERVERID".to_owned(), "1401".to_owned())));
    assert!(variables.contains(&("PUSH_PEER_INFO".to_owned(), String::new())));
}

#[test]
fn one_of_two_sites_is_taken() {
    let settings = source("site.conf").settings;
    assert_eq!((settings.role, settings.tls.role), (Role::SiteToSite, TlsRole::Server));
    let ends = Addresses::Peer([10, 99, 0, 1].into(), [10, 99, 0, 2].into());
    assert_eq!(settings.device.addresses, Some(ends));
    assert_eq!(settings.device.name, "tun7");
    assert_eq!(settings.tls.peer_fingerprints[0][..2], [0xad, 0xb0]);
    assert!(settings.tls.authority.is_none() && settings.connections[0].float);
    assert_eq!(settings.connections[0].local_port, Some(1195));
    assert_eq!(settings.timers.restart_seconds, 60);
    assert_eq!(settings.routing.routes.len(), 2);
}

#[test]
fn files_of_memory_are_looked_up_by_their_whole_path() {
    let files = Memory::default().with("/etc/openvpn/up.txt", "x");
    assert!(files.read(Path::new("/etc/openvpn/up.txt")).is_ok());
    assert!(files.read(Path::new("up.txt")).is_err());
}
