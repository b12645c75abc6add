//! Files of OpenVPN: those of the examples, and lines that are refused.

mod howtos;
mod sockets;

use super::*;
use crate::openvpn::scripts::Hook;
use crate::openvpn::settings::{ClientSettings, PasswordWay, PointToPoint, Remote, ServerSettings};
use config::Text;
use config::openvpn::load;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use std::fmt::Write;
use std::path::Path;
use tunnel::openvpn::server::{Rate, ServerWrap};

pub(in crate::openvpn) const SERVER: &str = include_str!("../../../../examples/openvpn/server.conf");
pub(in crate::openvpn) const CLIENT: &str = include_str!("../../../../examples/openvpn/client.conf");

/// Two sites: the client of TLS, and its server.
const SITES: [&str; 2] = [
    include_str!("../../../../examples/openvpn/site-a.conf"),
    include_str!("../../../../examples/openvpn/site-b.conf"),
];

/// Files in memory. Every certificate is the same one.
struct Memory {
    files: BTreeMap<String, String>,
    certificate: String,
    key: String,
}

impl Memory {
    fn new(files: &[(&str, &str)]) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(Vec::new()).expect("a certificate");
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Self { files, certificate: cert.pem(), key: signing_key.serialize_pem() }
    }
}

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Text> {
        let name = path.to_string_lossy().into_owned();
        let extension = path.extension().and_then(|it| it.to_str()).unwrap_or_default();
        let shared = format!(
            "-----BEGIN OpenVPN Static key V1-----\n{}-----END OpenVPN Static key V1-----\n",
            format!("{}\n", "5a".repeat(16)).repeat(16)
        );
        let content = match (self.files.get(&name), extension) {
            (Some(content), _) => content,
            (None, "crt") => &self.certificate,
            (None, "key") if name.ends_with("tls-crypt.key") => &shared,
            (None, "key") => &self.key,
            _ => return Err(io::ErrorKind::NotFound.into()),
        };
        let mut text = Text::default();
        text.write_str(content).expect("memory");
        Ok(text)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let below = |name: &String| Path::new(name).strip_prefix(folder).ok()?.to_str().map(str::to_owned);
        Ok(self.files.keys().filter_map(below).collect())
    }
}

fn resolve(host: &str) -> io::Result<Vec<IpAddr>> {
    match host {
        "vpn.example" => Ok(vec!["2001:db8::1".parse().expect("literal"), [192, 0, 2, 1].into()]),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

fn plan(text: &str, files: &[(&str, &str)]) -> Result<Plan, Vec<String>> {
    plan_asking(text, files, &|_| Err("nothing asks for the password of the key".to_owned()))
}

/// What asks for the password of the private key.
type AsksKeyPassword<'a> = &'a dyn Fn(bool) -> Result<Option<Zeroizing<Vec<u8>>>, String>;

pub(super) fn plan_asking(
    text: &str,
    files: &[(&str, &str)],
    key_password: AsksKeyPassword<'_>,
) -> Result<Plan, Vec<String>> {
    let files = Memory::new(&[&[("vpn.conf", text)], files].concat());
    let sources = Sources { files: &files, resolve: &resolve, key_password };
    let loaded = load(&["--config".to_owned(), "vpn.conf".to_owned()], &files);
    let plan = loaded.and_then(|loaded| convert(loaded, &sources));
    plan.map_err(|refusals| refusals.iter().map(Refusal::to_string).collect())
}

pub(super) fn plan_with(text: &str, files: &[(&str, &str)]) -> Result<(), Vec<String>> {
    plan(text, files).map(drop)
}

/// A server with these lines for its certificate.
pub(super) fn server_lines(lines: &str) -> String {
    format!("dev tun\nserver 10.8.0.0 255.255.255.0\ndh none\n{lines}\n")
}

fn served(text: &str, files: &[(&str, &str)]) -> Settings {
    plan(text, files).unwrap_or_else(|lines| panic!("{lines:?}")).settings
}

pub(in crate::openvpn) fn server(text: &str, files: &[(&str, &str)]) -> ServerSettings {
    let SettingsRole::Server(server) = served(text, files).role else { panic!("it is a server") };
    *server
}

pub(in crate::openvpn) fn client(text: &str) -> ClientSettings {
    let SettingsRole::Client(client) = served(text, &[]).role else { panic!("it is a client") };
    *client
}

#[test]
fn the_examples_are_served() {
    let settings = served(SERVER, &[]);
    assert_eq!((settings.port, settings.mtu, settings.mssfix), (1194, 1500, Some(1492)));
    let server = server(SERVER, &[]);
    let network = server.network;
    assert_eq!(network.v4, "10.8.0.0/24".parse().ok());
    assert_eq!(network.v6, "fd00:8::/64".parse().ok());
    assert_eq!(network.push, ["route 10.2.0.0 255.255.255.0", "ping 10", "ping-restart 60"]);
    // The server waits twice as long as its clients.
    assert_eq!(server.core.ping_restart, Some(Duration::from_secs(120)));
    assert_eq!(server.core.ciphers.len(), 3);
    assert_eq!(served(CLIENT, &[]).port, 0);
    let remotes = client(CLIENT).remotes;
    let known: [std::net::SocketAddr; 2] =
        ["198.51.100.1:1194", "203.0.113.1:1194"].map(|it| it.parse().expect("literal"));
    assert_eq!(
        remotes,
        [0, 1].map(|connection| Remote {
            address: known[connection],
            is_tcp: false,
            timeout: Duration::from_secs(120),
            connection
        })
    );
}

#[test]
fn host_names_and_routes_of_a_client_are_served() {
    let more =
        format!("{CLIENT}\nremote vpn.example 443 udp4\nroute 10.3.0.7 255.255.0.0\nmssfix 1400 mtu\n");
    let client = client(&more.replace("route 10.3.0.7", "route 10.3.0.0"));
    assert_eq!(client.remotes.last().map(ToString::to_string).as_deref(), Some("192.0.2.1:443"));
    assert_eq!(
        client.own.network(&[]).tunnel.keys().map(|(net, _)| net.to_string()).collect::<Vec<_>>(),
        ["10.3.0.0/16"]
    );
    assert_eq!(served(&format!("{CLIENT}\nmssfix 1400\n"), &[]).mssfix, Some(1428));
    for line in ["", "resolv-retry 5", "resolv-retry 0"] {
        let later = self::client(&format!("{CLIENT}\nremote lost.example\n{line}\n"));
        assert_eq!((later.names.len(), later.remotes.len()), (3, 2), "it is looked up again: {line}");
    }
}

#[test]
fn ciphers_without_aead_and_the_fallback_are_served() {
    let core = server(&format!("{SERVER}data-ciphers AES-256-GCM:AES-128-CBC:none\nauth SHA512\n"), &[]).core;
    assert_eq!(DataCipher::list(&core.ciphers), "AES-256-GCM:AES-128-CBC:none");
    assert_eq!((core.fallback, core.auth), (None, crypto::cipher::Integrity::HmacSha512));
    for lines in ["data-ciphers-fallback AES-256-CBC", "compat-mode 2.3.0\ncipher AES-256-CBC"] {
        let core = client(&format!("{CLIENT}{lines}\n")).core;
        assert_eq!(core.fallback, DataCipher::by_name("AES-256-CBC"), "{lines}");
    }
}

#[test]
fn tls_is_limited_to_what_the_lines_name() {
    let lines =
        "tls-ciphersuites TLS_AES_128_GCM_SHA256\ntls-groups secp384r1:X25519\nreplay-window 128 30\n";
    let core =
        server(&format!("{SERVER}{lines}tls-cipher TLS-ECDHE-RSA-WITH-AES-128-GCM-SHA256\n"), &[]).core;
    let provider = core.tls.crypto_provider();
    let suites = provider.cipher_suites.iter().map(|it| format!("{:?}", it.suite()));
    assert_eq!(
        suites.collect::<Vec<_>>(),
        ["TLS13_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
    );
    let groups = provider.kx_groups.iter().map(|it| format!("{:?}", it.name()));
    assert_eq!(groups.collect::<Vec<_>>(), ["secp384r1", "X25519"]);
}

#[test]
fn a_client_has_times_of_its_own() {
    let times = |more: &str| client(&format!("{CLIENT}{more}\n")).core.keepalive;
    let own = |ping, restart| Keepalive::restarting(seconds(ping), seconds(restart));
    assert_eq!(times(""), own(0, 120), "OpenVPN's default");
    assert_eq!(times("keepalive 10 60"), own(10, 60));
    assert_eq!(times("ping 5\nping-restart 0"), own(5, 0));
}

#[test]
fn limits_and_the_dscp_are_as_the_file_says() {
    let limited = served(&format!("{SERVER}\npasstos\ninactive 60 5000\nsession-timeout 90\n"), &[]);
    let time = Duration::from_secs;
    let expected = Limits { inactive: Some((time(60), 5000)), session: Some(time(90)) };
    assert_eq!((limited.copies_dscp, limited.limits), (true, expected));
    let usual = served(SERVER, &[]);
    assert_eq!((usual.copies_dscp, usual.limits), (false, Limits::default()));
}

#[test]
fn the_age_of_a_clients_key_is_limited() {
    let key = "-----BEGIN OpenVPN tls-crypt-v2 server key-----\n".to_owned()
        + &"AAAA".repeat(42)
        + "AAA=\n-----END OpenVPN tls-crypt-v2 server key-----\n";
    let text = format!("{SERVER}\ntls-crypt-v2 v2.key\ntls-crypt-v2-max-age 30\n")
        .replace("tls-crypt tls-crypt.key", "");
    let server = server(&text, &[("v2.key", &key)]);
    let ServerWrap::PerClient { max_age, .. } = server.core.wrap else { panic!("a key for each client") };
    assert_eq!(max_age, Some(Duration::from_secs(30 * 24 * 3600)));
}

#[test]
fn tcp_is_served_on_both_sides() {
    let without_exit = SERVER.replace("explicit-exit-notify", "# explicit-exit-notify");
    let tcp = |line: &str| served(&format!("{}\n{line}\n", without_exit.replace("proto udp", "")), &[]).tcp;
    let listen = |line: &str| tcp(line).map(|tcp| tcp.listen).unwrap_or_default();
    let [v4, v6] = ["0.0.0.0:1194", "[::]:1194"].map(|it| it.parse().expect("literal"));
    assert_eq!(listen("proto tcp"), [v6, v4]);
    assert_eq!((listen("proto tcp4-server"), listen("proto tcp6")), (vec![v4], vec![v6, v4]));
    assert_eq!(listen("proto tcp6\nbind ipv6only"), [v6]);
    assert!(tcp("proto udp").is_none() && tcp("proto tcp").is_some_and(|tcp| !tcp.has_udp));
    assert_eq!(tcp("proto tcp\ntcp-queue-limit 9").map(|tcp| tcp.queue_limit), Some(9));
    let mixed = format!("{CLIENT}\nremote vpn.example 443 tcp4\n");
    assert_eq!(
        client(&mixed).remotes.last().map(ToString::to_string).as_deref(),
        Some("192.0.2.1:443 over TCP")
    );
    assert!(served(&mixed, &[]).tcp.is_some_and(|tcp| tcp.has_udp && tcp.listen.is_empty()));
    assert!(served(CLIENT, &[]).tcp.is_none());
}

#[test]
fn a_list_that_is_read_again_and_is_cut_in_its_first_line_is_refused() {
    let files = Memory::new(&[("vpn.conf", SERVER)]);
    let loaded = load(&["--config".to_owned(), "vpn.conf".to_owned()], &files).expect("right");
    let mut refusals = Refusals { given: loaded.given, found: Vec::new() };
    let peer = tunnel::openvpn::wrap::Role::Client;
    let check = keys::check_with(&loaded.settings, peer, Some(b"-----BEGIN X509 C"), &mut refusals);
    assert!(check.is_none());
    let told: String = refusals.found.iter().map(Refusal::to_string).collect();
    assert!(told.contains("crl-verify: there is no BEGIN X509 CRL in it"), "{told}");
}

#[test]
fn programs_and_the_directory_of_clients_are_named_once() {
    let text = format!(
        "{SERVER}\nscript-security 3\nclient-config-dir ccd\nccd-exclusive\nauth-user-pass-verify \"check -x 'a b'\" via-env\n\
         learn-address /bin/learn\ntmp-dir /run/vpn\nsetenv SITE berlin\nusername-as-common-name\nverify-client-cert optional\n"
    );
    let Plan { programs, settings, .. } = plan(&text, &[]).unwrap_or_else(|lines| panic!("{lines:?}"));
    let SettingsRole::Server(server) = settings.role else { panic!("it is a server") };
    assert!(server.network.requires_override && server.access.uses_user_name);
    assert_eq!(server.access.password_way, PasswordWay::Environment);
    let hooks: Vec<Hook> = programs.by_hook.keys().copied().collect();
    assert_eq!(hooks, [Hook::LearnAddress, Hook::AuthUserPassVerify, Hook::ClientFile]);
    let check = &programs.by_hook[&Hook::AuthUserPassVerify];
    assert!(check.path.is_absolute() && check.path.ends_with("check"));
    assert_eq!(check.arguments, ["-x", "a b"]);
    assert_eq!(programs.temporary, Path::new("/run/vpn"));
    assert_eq!(programs.environment, [("SITE".to_owned(), "berlin".to_owned())]);
}

/// The line, and what is told of it.
fn refused(base: &str, line: &str) -> String {
    let line_number = base.lines().count() + 1;
    let told = plan(&format!("{}\n{line}\n", base.trim_end()), &[]).err().unwrap_or_default();
    let name = line.split(' ').next().unwrap_or_default();
    let place = format!("vpn.conf:{line_number}: {name}: not served yet");
    told.into_iter().find(|it| it.starts_with(&place) && it.contains("\n  fix: ")).unwrap_or_default()
}

#[test]
fn what_is_not_served_yet_is_refused_with_its_line() {
    let server = [
        "management tunnel 7505",
        "replay-window 60000",
        "data-ciphers AES-256-CBC\nauth none",
        "reneg-sec 3600 1800",
        "reneg-bytes 1000000",
        "dhcp-option DNS 192.0.2.1",
        "remote-cert-tls server",
    ];
    for line in server {
        // The last line is refused.
        let (before, line) = line.rsplit_once('\n').unwrap_or(("", line));
        let base = if before.is_empty() { SERVER.to_owned() } else { format!("{SERVER}{before}\n") };
        assert!(
            !refused(&base, line).is_empty(),
            "{line}: {:?}",
            plan(&format!("{base}{line}\n"), &[]).err()
        );
    }
    let client = ["dns-updown /bin/true", "script-security 2\ntls-verify /bin/true"];
    for line in client {
        let (before, line) = line.rsplit_once('\n').unwrap_or(("", line));
        let base = if before.is_empty() { CLIENT.to_owned() } else { format!("{CLIENT}{before}\n") };
        assert!(
            !refused(&base, line).is_empty(),
            "{line}: {:?}",
            plan(&format!("{CLIENT}{line}\n"), &[]).err()
        );
    }
}

#[test]
fn a_part_of_a_network_is_a_pool() {
    let text = SERVER.replace("server 10.8.0.0 255.255.255.0", "server 10.8.0.0 255.255.255.0 nopool");
    let part = format!("{text}\nifconfig-pool 10.8.0.10 10.8.0.20\n");
    assert_eq!(server(&part, &[]).network.pool, Some(([10, 8, 0, 10].into(), [10, 8, 0, 20].into())));
    let told = plan(&part.replace("10.8.0.20", "10.8.1.20"), &[]).err().unwrap_or_default().concat();
    assert!(told.contains("ifconfig-pool: it is not a part of 10.8.0.0/24"), "{told}");
    let small = server(&SERVER.replace("fd00:8::/64", "fd00:8::/112"), &[]).network;
    let mut pool = crate::openvpn::pool::Pool::new(&small);
    let lease = pool.assign(1, "anna", |_| false).expect("free");
    assert_eq!(lease.v6, "fd00:8::2".parse().ok());
    let part = format!("{SERVER}ifconfig-ipv6-pool fd00:8::77/64\n");
    let told = plan(&part, &[]).err().unwrap_or_default().concat();
    assert!(told.contains("ifconfig-ipv6-pool: not served yet"), "{told}");
}

#[test]
fn what_two_peers_cannot_do_is_refused_with_what_to_do() {
    let text = "dev tun\nifconfig 10.1.0.1 10.1.0.2\nca ca.crt\ncert a.crt\nkey a.key\n";
    let told = |more: &str| plan(&format!("{text}{more}"), &[]).err().unwrap_or_default().concat();
    assert!(told("tls-client\n").contains("without remote: the client of TLS begins"));
    assert!(
        told("tls-client\nremote 192.0.2.1\nproto tcp-server\n").contains("write proto tcp-server beside")
    );
    let not_served = [
        "dhcp-option DNS 10.0.0.1",
        "ping-exit 60",
        "inactive 60",
        "session-timeout 60",
        "tls-exit",
        "single-session",
    ];
    for line in not_served {
        let (name, _) = line.split_once(' ').unwrap_or((line, ""));
        let told = told(&format!("tls-server\nremote 192.0.2.1\n{line}\n"));
        assert!(told.contains(&format!("{name}: not served")), "{told}");
    }
    // A client of TLS ends its process as a client of a server does.
    let lines = "tls-client\nremote 192.0.2.1\nping-exit 60\ninactive 60\nsession-timeout 60\ntls-exit\n";
    assert!(!told(lines).contains("not served"));
}

#[test]
fn the_examples_of_two_sites_are_served() {
    let SettingsRole::Server(b) = served(SITES[1], &[]).role else { panic!("the server of TLS") };
    assert!(b.core.only.is_some_and(|only| only.addresses.is_none()), "its peer may be anywhere");
    let network = b.site.expect("a site").own.network(&[]);
    let inside: Vec<String> = network.tunnel.keys().map(|(prefix, _)| prefix.to_string()).collect();
    assert_eq!(inside, ["10.1.0.0/16", "10.255.1.1/32"]);
    let a = served(SITES[0], &[]);
    assert_eq!(a.site().map(|own| own.network(&[]).addresses.len()), Some(1));
    let named = format!("{}\nremote 203.0.113.1 5000\n", SITES[1]);
    let SettingsRole::Server(b) = served(&named, &[]).role else { panic!("the server of TLS") };
    let addresses = b.core.only.and_then(|only| only.addresses);
    assert_eq!(addresses, Some(vec!["203.0.113.1:5000".parse().expect("literal")]));
    assert_eq!(b.site.expect("a site").names.len(), 1);
}

#[test]
fn a_file_of_hashes_is_read_at_once_and_its_wrong_lines_are_told() {
    let right = "anna:$2y$05$uWaclRAwv79iwo34Bt0lF.W2Ga09F7BynQGQlVFzukfun.8xgNhPi\n";
    let text =
        format!("{SERVER}\nauth-user-pass-hashes users\nverify-client-cert none\nusername-as-common-name\n");
    let plan = plan(&text, &[("users", right)]).unwrap_or_else(|lines| panic!("{lines:?}"));
    assert!(plan.programs.by_hook[&Hook::PasswordHashes].path.ends_with("users"));
    let SettingsRole::Server(server) = plan.settings.role else { panic!("it is a server") };
    assert!(server.access.hashes.expect("read").users.admits("anna", "Hello world!"));
    let refused = |text: &str, content: &str| {
        self::plan(text, &[("users", content)]).err().expect("refused").join("\n")
    };
    let told = refused(&text, &format!("{right}berta:hunter2\n"));
    assert!(told.contains("auth-user-pass-hashes: users:2: the hash: a text without $METHOD$"), "{told}");
    assert!(!told.contains("hunter2"), "{told}");
    let both = format!("{text}script-security 2\nauth-user-pass-verify /bin/true via-file\n");
    let told = refused(&both, right);
    assert!(told.contains("auth-user-pass-hashes: auth-user-pass-verify checks passwords, too"), "{told}");
    let external = format!("{text}auth-gen-token 0 external-auth\n");
    assert!(refused(&external, right).contains("external-auth hands tokens to a program"));
    // In the file itself, there is nothing to read again.
    let block = format!("{SERVER}\n<auth-user-pass-hashes>\n{right}</auth-user-pass-hashes>\n");
    let plan = self::plan(&block, &[]).unwrap_or_else(|lines| panic!("{lines:?}"));
    assert!(!plan.programs.by_hook.contains_key(&Hook::PasswordHashes));
}

#[test]
fn the_rates_of_clients_and_the_length_of_control_packets_are_served() {
    let rate = |most, seconds| Some(Rate { most, period: Duration::from_secs(seconds) });
    let lines = "connect-freq 3 20\nconnect-freq-initial 50 5\nmax-packet-size 1200\n";
    let core = server(&format!("{SERVER}{lines}"), &[]).core;
    assert_eq!((core.new_sessions, core.answers, core.control_packet), (rate(3, 20), rate(50, 5), 1200));
    assert_eq!(served(&format!("{SERVER}{lines}"), &[]).mssfix, Some(1200));
    let core = server(SERVER, &[]).core;
    assert_eq!((core.new_sessions, core.answers, core.control_packet), (None, None, 1250));
    assert_eq!(client(&format!("{CLIENT}max-packet-size 9000\n")).core.control_packet, 2048);
    assert_eq!(served(&format!("{CLIENT}max-packet-size 1100\nmssfix 0\n"), &[]).mssfix, None);
}

#[test]
fn each_topology_of_a_server_is_served_with_what_programs_are_told() {
    let of = |lines: &str| {
        let plan = plan(&format!("{}{lines}\n", SERVER.replace("topology subnet", "")), &[]);
        let settings = plan.unwrap_or_else(|lines| panic!("{lines:?}")).settings;
        let told = settings.programs.addressing.ends();
        let SettingsRole::Server(server) = settings.role else { panic!("it is a server") };
        (server.network.line, server.network.pool.map(|(first, _)| first.octets()[3]), told)
    };
    let ends = |second: &str| ["10.8.0.1".to_owned(), second.to_owned()];
    assert_eq!(of(""), (None, Some(2), ends("255.255.255.0")));
    assert_eq!(of("topology net30"), (Some(PointToPoint::Net30), Some(4), ends("10.8.0.2")));
    assert_eq!(of("topology p2p"), (Some(PointToPoint::Single), Some(4), ends("10.8.0.2")));
}

#[test]
fn no_digest_is_needed_for_aead_ciphers_with_tls_crypt() {
    let text = |ciphers: &str| format!("{SERVER}auth none\ndata-ciphers {ciphers}\n");
    assert_eq!(plan(&text("AES-256-GCM:CHACHA20-POLY1305"), &[]).err(), None);
    let refused = |text: &str| plan(text, &[]).err().expect("refused").join("\n");
    assert!(refused(&text("AES-256-GCM:AES-256-CBC")).contains("auth: not served yet: none"));
    let auth = text("AES-256-GCM").replace("tls-crypt ", "tls-auth ");
    assert!(refused(&auth).contains("auth: not served yet: none"));
}
