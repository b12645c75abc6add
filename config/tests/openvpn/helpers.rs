//! Directives that stand for others, and the files of clients. The values are those that OpenVPN 2.6.14 prints with `verb 4`.

use super::{CLIENT, Memory, SERVER, bad, good, shown};
use config::Text;
use config::openvpn::settings::{
    Addresses, DataCipher, Gateway, Revocation, TlsRole, TlsVersion, Topology, Wrapping,
};
use config::openvpn::{ClientFile, Refusal, client_file};
use std::fmt::Write;

#[test]
fn server_sets_addresses_pool_and_pushed_options() {
    let settings = good(&format!("{SERVER}server-ipv6 fd00::/64\nkeepalive 10 60\ntopology subnet\n"));
    let server = settings.server.expect("a server");
    assert_eq!(settings.tls.role, TlsRole::Server);
    assert_eq!(settings.device.addresses, Some(Addresses::Subnet("10.8.0.1/24".parse().expect("a literal"))));
    let ipv6 = settings.device.ipv6.expect("addresses");
    assert_eq!((ipv6.local.to_string(), ipv6.remote.to_string()), ("fd00::1/64".into(), "fd00::2".into()));
    let pool = server.pool.expect("a pool");
    assert_eq!((pool.first.octets(), pool.last.octets()), ([10, 8, 0, 2], [10, 8, 0, 254]));
    assert_eq!(server.pool6.expect("a pool").first.to_string(), "fd00::1000/64");
    assert_eq!(server.push, ["topology subnet", "route-gateway 10.8.0.1", "ping 10", "ping-restart 60"]);
    assert_eq!((settings.timers.ping_seconds, settings.timers.restart_seconds), (10, 120));
    assert_eq!(settings.routing.gateway, Some(Gateway::Address([10, 8, 0, 2].into())));
}

#[test]
fn small_ipv6_networks_have_a_pool_too() {
    for (network, first) in
        [("fd00::/111", "fd00::1000/111"), ("fd00::/112", "fd00::2/112"), ("fd00::/120", "fd00::2/120")]
    {
        let server = good(&format!("{SERVER}server-ipv6 {network}\n")).server.expect("a server");
        assert_eq!(server.pool6.expect("a pool").first.to_string(), first);
    }
}

#[test]
fn a_server_may_have_no_pool() {
    let config = SERVER.replace("255.255.255.0", "255.255.255.0 nopool");
    assert!(good(&config).server.expect("a server").pool.is_none());
    let settings = good(
        "dev tun\nmode server\ntls-server\nifconfig 10.9.0.1 255.255.255.0\nifconfig-pool 10.9.0.10 10.9.0.20\n\
         ca ca.crt\ncert a.crt\nkey a.key\n",
    );
    let pool = settings.server.expect("a server").pool.expect("a pool");
    assert_eq!((pool.first.octets(), pool.last.octets()), ([10, 9, 0, 10], [10, 9, 0, 20]));
}

/// OpenVPN's documentation of `server`.
#[test]
fn a_server_expands_with_each_topology() {
    let of = |lines: &str| {
        let settings = good(&format!("{SERVER}push \"topology subnet\"\n{lines}"));
        let server = settings.server.expect("a server");
        let pool = server.pool.expect("a pool");
        (settings.device.topology, [pool.first, pool.last].map(|it| it.octets()[3]), server.push.join(","))
    };
    let route = "route 10.8.0.0 255.255.255.0";
    for (lines, topology, pool, push) in [
        ("", Topology::Subnet, [2, 254], "topology subnet,route-gateway 10.8.0.1".to_owned()),
        ("topology net30", Topology::Net30, [4, 251], "topology net30,route 10.8.0.1".to_owned()),
        ("topology net30\nclient-to-client", Topology::Net30, [4, 251], format!("topology net30,{route}")),
        ("topology p2p", Topology::PointToPoint, [4, 251], "topology p2p".to_owned()),
        ("topology p2p\nclient-to-client", Topology::PointToPoint, [4, 251], format!("topology p2p,{route}")),
        ("topology net30\nifconfig-pool-linear", Topology::PointToPoint, [4, 251], "topology p2p".to_owned()),
    ] {
        assert_eq!(of(lines), (topology, pool, push), "{lines}");
    }
    let small = SERVER.replace("255.255.255.0", "255.255.255.248");
    let shown = bad(&format!("{small}topology net30\n"));
    assert!(shown.contains("server: 10.8.0.0/29 is too small for topology net30"), "{shown}");
}

#[test]
fn keepalive_of_a_client_is_not_doubled() {
    let timers = good(&format!("{CLIENT}keepalive 10 60\n")).timers;
    assert_eq!((timers.ping_seconds, timers.restart_seconds), (10, 60));
}

#[test]
fn several_sockets_listen() {
    let settings = good(&format!("{SERVER}local 192.0.2.1\nlocal * 443 tcp\nlocal 2001:db8::1 1195 udp6\n"));
    let shown: Vec<_> = settings.listen.iter().map(|it| (it.host.as_deref(), it.port)).collect();
    assert_eq!(shown, [(Some("192.0.2.1"), 1194), (None, 443), (Some("2001:db8::1"), 1195)]);
}

#[test]
fn an_old_version_changes_defaults() {
    let of = |version: &str| good(&format!("{CLIENT}cipher AES-256-CBC\n{version}")).data;
    let cbc = Some(DataCipher::Aes256Cbc);
    assert_eq!((of("").ciphers.len(), of("").fallback), (3, None));
    assert_eq!(
        (of("compat-mode 2.4.12\n").ciphers.last().copied(), of("compat-mode 2.4.12\n").fallback),
        (cbc, None)
    );
    assert_eq!(of("compat-mode 2.3.6\n").fallback, cbc);
    let tls = good(&format!("{CLIENT}tls-version-min 1.0\n")).tls;
    assert_eq!(tls.version_min, Some(TlsVersion::V1_2));
}

#[test]
fn files_of_a_running_server_are_below_its_root() {
    let config = format!("{SERVER}client-config-dir ccd\ncrl-verify /crl.pem\nchroot /srv/vpn\n");
    let settings = good(&config);
    let server = settings.server.expect("a server");
    assert_eq!(server.client_directory, Some("/srv/vpn/ccd".into()));
    let Some(Revocation::List(list)) = settings.tls.revocation else { panic!("a list") };
    assert_eq!(list.file, Some("/srv/vpn/crl.pem".into()));
}

#[test]
fn a_server_takes_two_kinds_of_wrapping_at_once() {
    let block = "<tls-crypt-v2>\n-----BEGIN OpenVPN tls-crypt-v2 server key-----\nAA==\n\
                 -----END OpenVPN tls-crypt-v2 server key-----\n</tls-crypt-v2>\n";
    let settings = good(&format!("{SERVER}tls-crypt ta.key\n{block}"));
    let Some(Wrapping::CryptV2 { others, .. }) = &settings.connections[0].wrapping else { panic!("a key") };
    assert!(matches!(others.as_deref(), Some(Wrapping::Crypt(_))));
    let shown = bad(&format!("{CLIENT}tls-crypt ta.key\n{block}"));
    assert!(shown.contains("tls-crypt-v2: it is not a client key"), "{shown}");
    assert!(
        shown.contains("tls-crypt-v2: tls-auth or tls-crypt and tls-crypt-v2 exclude each other"),
        "{shown}"
    );
}

fn client(content: &str) -> Result<ClientFile, Vec<Refusal>> {
    let mut text = Text::default();
    text.write_str(content).expect("memory");
    client_file("ccd/berlin", &text, &Memory::default()).map(|(client, _)| client)
}

#[test]
fn the_file_of_a_client_is_taken() {
    let file = client(
        "# Berlin\nifconfig-push 10.8.0.9 255.255.255.0\nifconfig-ipv6-push fd00::9/64 fd00::1\niroute 10.20.0.0 255.255.0.0\n\
         iroute-ipv6 fd00:20::/48\npush \"route 10.30.0.0 255.255.0.0\"\npush-remove \"route 10.9\"\npush-reset\n",
    )
    .unwrap_or_else(|refusals| panic!("{}", shown(&refusals)));
    assert_eq!(file.address, Some(([10, 8, 0, 9].into(), [255, 255, 255, 0].into())));
    assert_eq!(file.routes.len(), 2);
    assert_eq!((file.push.len(), file.remove.len(), file.reset, file.is_disabled), (1, 1, true, false));
    let ends =
        client("ifconfig-push 10.8.0.9 10.8.0.10\ndisable\n").unwrap_or_else(|it| panic!("{}", shown(&it)));
    assert_eq!(ends.address, Some(([10, 8, 0, 9].into(), [10, 8, 0, 10].into())));
    assert!(ends.is_disabled);
}

#[test]
fn the_file_of_a_client_has_errors_with_lines() {
    let refusals = client("iroute 10.20.0.0 255.0.255.0\nport 1194\nirute 10.0.0.0\n").expect_err("wrong");
    let shown = shown(&refusals);
    assert!(shown.contains("ccd/berlin:1: iroute: 255.0.255.0 is not a netmask"), "{shown}");
    assert!(shown.contains("ccd/berlin:2: port: it may not stand in a file of client-config-dir"), "{shown}");
    assert!(shown.contains("ccd/berlin:3: irute: it is not a directive"), "{shown}");
}
