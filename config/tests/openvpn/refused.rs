//! What is refused, with the reason and what to do.

use super::{CLIENT, SERVER, bad, good, text};
use config::openvpn::settings::{Compression, DataCipher};
use config::openvpn::{Fate, Loaded, rows};

#[test]
fn each_refused_directive_is_refused_on_its_line() {
    for row in rows() {
        let Fate::Refused { why, fix } = row.fate else { continue };
        for before in [SERVER, CLIENT] {
            let refusals = text(&format!("{before}{} argument\n", row.name)).expect_err(row.name);
            let [refusal] = &refusals[..] else { panic!("{}: {refusals:?}", row.name) };
            assert_eq!((refusal.directive.as_str(), refusal.reason.as_str()), (row.name, why));
            assert_eq!(refusal.fix, fix);
            assert_eq!(refusal.position.line, before.lines().count() + 1);
        }
    }
}

#[test]
fn refused_directives_are_refused_inline_and_by_a_connection_too() {
    let block = format!("{CLIENT}<pkcs12>\nAAAA\n</pkcs12>\n");
    assert!(bad(&block).contains("it.conf:7: pkcs12: PKCS #12 files are not read"));
    let connection =
        format!("{CLIENT}<connection>\nremote a.example\nhttp-proxy p.example 8080\n</connection>\n");
    assert!(bad(&connection).contains("it.conf:9: http-proxy: proxies are not served"));
}

#[test]
fn values_that_are_not_served_are_refused() {
    for (line, reason) in [
        ("dev tap0", "dev: TAP devices are not served"),
        ("dev-type tap", "dev-type: TAP devices are not served"),
        ("dev vpn0", "dev: the type of vpn0 is not known"),
        ("cipher BF-CBC", "cipher: BF-CBC has blocks of 64 bits"),
        ("cipher DES-EDE3-CBC", "cipher: DES-EDE3-CBC has blocks of 64 bits"),
        ("data-ciphers BF-CBC", "data-ciphers: BF-CBC has blocks of 64 bits"),
        ("cipher CAMELLIA-128-CBC", "cipher: the cipher CAMELLIA-128-CBC is not served"),
        ("auth MD5", "auth: the digest MD5 is not served"),
        ("compress snappy", "compress: snappy is none of stub, stub-v2"),
        ("comp-lzo maybe", "comp-lzo: maybe is none of no, yes"),
        ("tls-version-max 1.1", "tls-version-max: TLS 1.0 and 1.1 are not served"),
        ("tls-ciphersuites TLS_AES_128_CCM_SHA256", "tls-ciphersuites: none of these suites"),
        ("tls-groups brainpoolP256r1", "tls-groups: none of these groups"),
        ("verify-hash AD:B0", "verify-hash: SHA-1 fingerprints can be forged"),
        ("port 0", "port: 0 is not a number from 1 to 65535"),
        ("proto sctp", "proto: sctp is none of udp, udp4"),
        ("keepalive 10 15", "keepalive: 15 is less than twice 10"),
        ("route 10.0.0.0 255.0.255.0", "route: 255.0.255.0 is not a netmask"),
        ("up /bin/true", "up: programs are not run without script-security 2"),
        ("verb 3 4", "verb: it has too many arguments"),
        ("verb", "verb: an argument is missing"),
        ("redirect-gateway def2", "redirect-gateway: def2 is not a flag of it"),
        ("tls-crypt-v2 ta.key", "tls-crypt-v2: ta.key has no OpenVPN tls-crypt-v2 client key or"),
        ("ca missing.pem", "ca: cannot read missing.pem"),
        ("ca ta.key", "ca: ta.key has no CERTIFICATE"),
    ] {
        let shown = bad(&format!("{CLIENT}{line}\n"));
        let place = "it.conf:7: ";
        assert!(shown.contains(&format!("{place}{reason}")), "{line}\n{shown}");
        assert!(shown.contains("\n  fix: "), "{shown}");
    }
}

#[test]
fn what_contradicts_the_role_is_refused() {
    for (before, line, reason) in [
        (CLIENT, "push \"route 10.0.0.0\"", "push: it is for a server"),
        (CLIENT, "client-to-client", "client-to-client: it is for a server"),
        (CLIENT, "iroute 10.0.0.0", "iroute: it may not stand in the configuration"),
        (CLIENT, "ifconfig-push 10.8.0.9 255.255.255.0", "ifconfig-push: it may not stand"),
        (SERVER, "remote a.example", "remote: it is not for a server"),
        (SERVER, "auth-user-pass", "auth-user-pass: it is for a client"),
        (SERVER, "client", "server: client and server exclude each other"),
        (SERVER, "verify-client-cert none", "verify-client-cert: clients would need neither"),
        (SERVER, "username-as-common-name", "username-as-common-name: no user name is checked"),
        (SERVER, "ccd-exclusive", "ccd-exclusive: client-config-dir is not set"),
        (SERVER, "port-share 127.0.0.1 443", "port-share: it needs TCP"),
        (SERVER, "ifconfig-pool 10.8.0.9 10.8.0.12", "ifconfig-pool: server sets it too"),
        (SERVER, "proto tcp-client", "proto: a server does not connect"),
    ] {
        let shown = bad(&format!("{before}{line}\n"));
        assert!(shown.contains(reason), "{line}\n{shown}");
    }
}

#[test]
fn what_is_missing_is_named() {
    assert!(bad("dev tun\n").contains("there is no TLS"));
    assert!(bad("client\nremote a.example\nca ca.crt\nauth-user-pass\n").contains("dev is not set"));
    assert!(bad("client\ndev tun\nca ca.crt\nauth-user-pass\n").contains("there is no remote"));
    assert!(bad("client\ndev tun\nremote a\nauth-user-pass\n").contains("no authority is trusted"));
    assert!(bad("client\ndev tun\nremote a\nca ca.crt\n").contains("neither a certificate nor a user name"));
    assert!(bad("client\ndev tun\nremote a\nca ca.crt\ncert a.crt\n").contains("key is not set"));
}

#[test]
fn a_list_keeps_the_ciphers_that_are_served() {
    let settings = good(&format!("{CLIENT}data-ciphers DEFAULT:BF-CBC:?ARIA-128-CBC:AES-256-CBC\n"));
    let last = settings.data.ciphers.last();
    assert_eq!((settings.data.ciphers.len(), last), (4, Some(&DataCipher::Aes256Cbc)));
}

#[test]
fn framing_is_served_and_nothing_is_compressed() {
    for (line, compression, compresses) in [
        ("compress migrate", Compression::Migrate, false),
        ("comp-lzo no\npush \"comp-lzo no\"", Compression::Before, false),
        ("comp-lzo", Compression::Before, true),
        ("comp-lzo adaptive", Compression::Before, true),
        ("compress lzo", Compression::Before, true),
        ("compress", Compression::Swapped, false),
        ("compress stub", Compression::Swapped, false),
        ("compress lz4", Compression::Swapped, true),
        ("compress stub-v2", Compression::StubV2, false),
        ("compress lz4-v2", Compression::StubV2, true),
    ] {
        let Loaded { settings, remarks, .. } = text(&format!("{SERVER}{line}\n")).expect("taken");
        assert_eq!(settings.data.compression, compression, "{line}");
        let warned = remarks.iter().any(|remark| remark.text.contains("clients are told to stop it"));
        assert_eq!(warned, compresses, "{line}");
        let push = settings.server.expect("a server").push;
        assert!(!push.iter().any(|option| option.starts_with("comp")), "{push:?}");
    }
    let Loaded { remarks, .. } = text(&format!("{CLIENT}comp-lzo\n")).expect("taken");
    assert!(remarks.iter().any(|remark| remark.is_warning && remark.text.contains("must not")));
}
