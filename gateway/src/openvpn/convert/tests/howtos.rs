//! Files with what installers, routers and providers write into theirs.

use super::{CLIENT, Plan, SERVER, SettingsRole, client, plan, served, server};
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::data::Framing;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::packet::{Lead, Opcode, SessionId};
use tunnel::openvpn::wrap::PacketId;

/// As installers write it.
const INSTALLED: &str = "\
port 1194\nproto udp\ndev tun\nuser nobody\ngroup nogroup\npersist-key\npersist-tun\nkeepalive 10 120\ntopology subnet
server 10.8.0.0 255.255.255.0\nifconfig-pool-persist ipp.txt\npush \"redirect-gateway def1 bypass-dhcp\"
server-ipv6 fd42:42:42:42::/112\ntun-ipv6\npush tun-ipv6\npush \"route-ipv6 2000::/3\"\npush \"block-outside-dns\"
compress lz4-v2\npush \"compress lz4-v2\"\ndh none\necdh-curve prime256v1\ntls-crypt tls-crypt.key 0
ca ca.crt\ncert server.crt\nkey server.key\nauth SHA256\ncipher AES-128-GCM\nncp-ciphers AES-128-GCM\ntls-server
tls-version-min 1.2\ntls-cipher TLS-ECDHE-ECDSA-WITH-AES-128-GCM-SHA256\nclient-config-dir /etc/openvpn/ccd
status /var/log/openvpn/status.log\nverb 3\nexplicit-exit-notify\n";

/// As it was written for versions before 2.4.
const OLD: &str = "\
;local a.b.c.d\nport 443\nproto tcp\ndev tun0\nca ca.crt\ncert server.crt\nkey server.key  # keep it secret\ndh dh2048.pem
server 10.8.0.0 255.255.255.0\nifconfig-pool-persist ipp.txt\npush \"dhcp-option WINS 10.8.0.1\"
tls-auth tls-crypt.key 0\nkey-direction 0\ncipher AES-256-CBC\nncp-disable\nauth SHA256\ncomp-lzo adaptive\npush \"comp-lzo yes\"
max-clients 100\ntun-mtu 1500\ntun-mtu-extra 32\nmssfix 1450\ntxqueuelen 200\ntcp-queue-limit 128\nbcast-buffers 4096
persist-key\npersist-tun\nstatus openvpn-status.log 20\nlog-append openvpn.log\nverb 3\nmute 20\nexplicit-exit-notify 0\n";

/// As a provider hands it out.
const PROVIDED: &str = "\
client\ndev tun\nproto udp\nremote 203.0.113.5 1194\nremote us1.provider.example 443 tcp\nresolv-retry 16\nremote-random\nnobind
tun-mtu 1500\nmssfix 0\npersist-key\npersist-tun\nping 15\nping-restart 0\nreneg-sec 0\ncomp-lzo no\npull\nfast-io\ndisable-occ
remote-cert-tls server\nns-cert-type server\nverify-x509-name CN=us1.provider.example\nauth-user-pass pass.txt\nauth-nocache
setenv CLIENT_CERT 0\nsetenv opt block-outside-dns\nignore-unknown-option pull-filter2 block-outside-dns2\nblock-outside-dns2
route-method exe\nroute-delay 2\ncipher AES-256-CBC\nauth SHA512\ntls-client\nca ca.crt\nkey-direction 1\nverb 3
<tls-auth>\n#\n# 2048 bit OpenVPN static key\n#\nKEY</tls-auth>\n";

fn provided() -> String {
    let key = format!(
        "-----BEGIN OpenVPN Static key V1-----\n{}-----END OpenVPN Static key V1-----\n",
        format!("{}\n", "a5".repeat(16)).repeat(16)
    );
    PROVIDED.replace("KEY</", &format!("{key}</"))
}

fn client_with_password(text: &str) -> Plan {
    plan(text, &[("pass.txt", "anna\npassword\n")]).unwrap_or_else(|refusals| panic!("{refusals:?}"))
}

#[test]
fn files_of_installers_load_unchanged() {
    let network = server(INSTALLED, &[]).network;
    assert_eq!(network.v6, "fd42:42:42:42::/112".parse().ok());
    assert!(!network.push.iter().any(|option| option.starts_with("compress")), "{:?}", network.push);
    let core = server(OLD, &[]).core;
    assert!(core.ends_compression);
    let settings = served(OLD, &[]);
    assert_eq!((settings.queue, settings.tcp.map(|tcp| tcp.queue_limit)), (Some(200), Some(128)));
}

#[test]
fn files_of_providers_load_unchanged() {
    let plan = client_with_password(&provided());
    assert_eq!(plan.settings.mssfix, None);
    let SettingsRole::Client(client) = plan.settings.role else { panic!("it is a client") };
    assert_eq!(client.core.framing, Some(Framing::Before));
    // The old cipher is for a server that does not negotiate.
    assert_eq!(client.core.ciphers.len(), 3);
    assert_eq!(client.names.len(), 2);
    for (line, framing) in
        [("compress", Some(Framing::Swapped)), ("compress lz4-v2", None), ("comp-lzo", Some(Framing::Before))]
    {
        let SettingsRole::Client(client) =
            client_with_password(&provided().replace("comp-lzo no", line)).settings.role
        else {
            panic!("it is a client")
        };
        assert_eq!(client.core.framing, framing, "{line}");
    }
}

#[test]
fn connections_have_keys_and_settings_of_their_own() {
    let text = "client\ndev tun\nca ca.crt\ncert a.crt\nkey a.key\n\
        <connection>\nremote 198.51.100.1 1194 udp\nexplicit-exit-notify 2\nfloat\ntls-crypt tls-crypt.key\n</connection>\n\
        <connection>\nremote 198.51.100.2 1195 udp\nnobind\nmssfix 1300\nconnect-timeout 9\ntls-auth tls-crypt.key 1\n</connection>\n\
        <connection>\nremote 198.51.100.3 443 tcp\nconnect-retry 5\n</connection>\n";
    let settings = served(text, &[]);
    assert_eq!((settings.port, settings.mssfix), (0, Some(1328)));
    let client = client(text);
    assert_eq!(client.retry.0.as_secs(), 5);
    let of: Vec<(usize, bool, u64)> = client
        .remotes
        .iter()
        .map(|remote| (remote.connection, client.links[remote.connection].float, remote.timeout.as_secs()))
        .collect();
    assert_eq!(of, [(0, true, 120), (1, false, 9), (2, false, 120)]);
    let wrapped: Vec<usize> = client.links.iter().map(|link| wrapped(&link.wrap)).collect();
    assert_eq!(wrapped, [9 + 8 + 32, 9 + 8 + 20, 9], "tls-crypt, tls-auth with SHA-1, none");
}

/// The length of an empty control packet: leading byte, session ID, and what the wrap adds.
fn wrapped(wrap: &ClientWrap) -> usize {
    let ClientWrap::Shared(keys) = wrap else { panic!("a shared key, or none") };
    let lead = Lead { opcode: Opcode::Ack, key_id: 0 };
    keys.seal(lead, SessionId([7; 8]), PacketId { number: 1, time: 1 }, &[]).len()
}

#[test]
fn what_is_refused_for_good_says_what_to_do() {
    for (line, reason) in [
        ("plugin /usr/lib/openvpn/openvpn-plugin-auth-pam.so login", "plugins are not served"),
        ("dev tap", "TAP devices are not served"),
        ("secret static.key", "static keys are not served"),
        ("fragment 1300", "fragments of OpenVPN are not served"),
        ("cipher BF-CBC", "blocks of 64 bits"),
        ("http-proxy proxy.example 3128", "proxies are not served"),
        ("socks-proxy proxy.example 1080", "proxies are not served"),
    ] {
        let told = plan(&format!("{INSTALLED}{line}\n"), &[]).err().unwrap_or_default().concat();
        assert!(told.contains(reason) && told.contains("\n  fix: "), "{line}: {told}");
    }
    assert!(DataCipher::by_name("BF-CBC").is_none());
}

/// What OpenVPN's documentation says `server` stands for, and other addresses.
#[test]
fn a_server_whose_network_is_written_by_hand_gives_the_same_addresses() {
    use crate::openvpn::settings::PointToPoint::{Net30, Single};
    let base = SERVER
        .replace("server 10.8.0.0 255.255.255.0", "mode server\ntls-server")
        .replace("topology subnet\n", "");
    let of = |lines: &str| {
        let network = server(&format!("{base}{lines}"), &[]).network;
        let mut pool = crate::openvpn::pool::Pool::new(&network);
        let first = pool.assign(1, "anna", |_| false).expect("free").v4.expect("IPv4");
        let own = network.own().next().expect("an address").to_string();
        let told = network.second(first, None).map(|second| format!("{first} {second}"));
        let routes: Vec<String> = network.routes.iter().map(ToString::to_string).collect();
        (own, network.line, told.unwrap_or_default(), routes.join(","))
    };
    let line = "ifconfig 10.8.0.1 10.8.0.2\nifconfig-pool 10.8.0.4 10.8.0.251\n";
    let route = "route 10.8.0.0 255.255.255.0\n";
    let more = "route 10.0.0.0 255.0.0.0\nroute 10.9.0.0 255.255.0.0\n";
    let subnet = "topology subnet\nifconfig 10.8.0.5 255.255.255.0\nifconfig-pool 10.8.0.5 10.8.0.9\n";
    for (lines, own, line, told, routes) in [
        (format!("{line}{route}"), "10.8.0.1/24", Some(Net30), "10.8.0.6 10.8.0.5", ""),
        (format!("topology p2p\n{line}{route}"), "10.8.0.1/24", Some(Single), "10.8.0.4 10.8.0.1", ""),
        (format!("topology net30\n{line}"), "10.8.0.1/24", Some(Net30), "10.8.0.6 10.8.0.5", ""),
        (format!("{line}{more}"), "10.8.0.1/8", Some(Net30), "10.8.0.6 10.8.0.5", "10.9.0.0/16"),
        (subnet.to_owned(), "10.8.0.5/24", None, "10.8.0.6 255.255.255.0", ""),
    ] {
        let expected = (own.to_owned(), line, told.to_owned(), routes.to_owned());
        assert_eq!(of(&lines), expected, "{lines}");
    }
}

#[test]
fn a_name_to_which_a_server_pushes_a_route_is_looked_up_with_allow_pull_fqdn_alone() {
    use crate::openvpn::client_network::resolved;
    use crate::openvpn::named_routes::{Known, look_up};
    let options = [
        "topology subnet",
        "ifconfig 10.8.0.2 255.255.255.0",
        "route www.example",
        "route away.example 255.255.255.255 net_gateway",
    ];
    let mut options: Vec<String> = options.map(str::to_owned).to_vec();
    let refused = client(CLIENT).own.network(&options);
    assert!(refused.named.hosts().is_empty() && refused.warnings.len() == 2, "{:?}", refused.warnings);
    let own = client(&format!("{CLIENT}allow-pull-fqdn\n")).own;
    let network = own.network(&options);
    assert_eq!(network.named.hosts(), ["www.example", "away.example"]);
    let known = look_up(&network.named.hosts(), |host| {
        let last = if host == "www.example" { 1 } else { 2 };
        let v6 = "2001:db8::1".parse().expect("literal");
        Ok(vec![[192, 0, 2, last].into(), v6, [127, 0, 0, 1].into()])
    });
    let (before, after) = (resolved(&network, &Known::new()), resolved(&network, &known));
    assert!(before.tunnel.is_empty() && before.outside.is_empty());
    let inside: Vec<String> = after.tunnel.keys().map(|(prefix, _)| prefix.to_string()).collect();
    let outside: Vec<String> = after.outside.iter().map(ToString::to_string).collect();
    assert_eq!((inside, outside), (vec!["192.0.2.1/32".to_owned()], vec!["192.0.2.2/32".to_owned()]));
    assert!(look_up(&["gone".to_owned()], |_| Err(std::io::ErrorKind::NotFound.into()))["gone"].is_empty());
    options.extend((0..20).map(|number| format!("route host{number}.example")));
    let many = own.network(&options);
    assert_eq!((many.named.hosts().len(), many.warnings.len()), (16, 6));
}

#[test]
fn a_gateway_of_a_pushed_route_may_be_a_name_whose_address_tells_where_the_route_leads() {
    use crate::openvpn::client_network::resolved;
    use crate::openvpn::named_routes::{Known, look_up};
    let options = [
        "topology subnet",
        "ifconfig 10.8.0.2 255.255.255.0",
        "route 10.20.0.0 255.255.0.0 inside.example 7",
        "route 10.30.0.0 255.255.0.0 away.example",
        "route 10.40.0.0 255.255.0.0 gone.example",
    ];
    let options: Vec<String> = options.map(str::to_owned).to_vec();
    let refused = client(CLIENT).own.network(&options);
    assert!(refused.tunnel.is_empty() && refused.outside.is_empty() && refused.named.hosts().is_empty());
    assert!(refused.warnings[0].contains("by way of inside.example is not set without allow-pull-fqdn"));
    let network = client(&format!("{CLIENT}allow-pull-fqdn\n")).own.network(&options);
    assert_eq!(network.named.hosts(), ["inside.example", "away.example", "gone.example"]);
    let known = look_up(&network.named.hosts(), |host| match host {
        "inside.example" => Ok(vec![[10, 8, 0, 1].into()]),
        "away.example" => Ok(vec![[192, 0, 2, 1].into()]),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    });
    let (before, after) = (resolved(&network, &Known::new()), resolved(&network, &known));
    // Until it is known where it leads, a route is neither set nor cut out of others.
    assert!(before.tunnel.is_empty() && before.outside.is_empty());
    let inside: Vec<(String, u32)> =
        after.tunnel.iter().map(|((prefix, _), metric)| (prefix.to_string(), *metric)).collect();
    let outside: Vec<String> = after.outside.iter().map(ToString::to_string).collect();
    assert_eq!(inside, [("10.20.0.0/16".to_owned(), 7)]);
    assert_eq!(outside, ["10.30.0.0/16"]);
}
