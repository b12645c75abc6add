//! Files with what installers, routers and providers write into theirs.

use super::{Plan, SettingsRole, client, plan, served, server};
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
