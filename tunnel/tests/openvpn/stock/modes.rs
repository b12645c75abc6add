//! Each wrap, cipher and way of deriving keys, against OpenVPN as server and as client.

use super::{OpenVpn, client_of_stock, is_inside, server_of_stock};
use crate::network::Setup;
use crypto::cipher::Integrity;
use crypto::prf::Prf;
use std::process::Command;
use tunnel::openvpn::client::ClientWrap;
use tunnel::openvpn::negotiate::DataCipher;
use tunnel::openvpn::peer_info::{OURS, proto};
use tunnel::openvpn::server::ServerWrap;
use tunnel::openvpn::wrap::v2::{ClientKey, ServerKey};
use tunnel::openvpn::wrap::{StaticKey, WrapKeys};

type Wraps = fn(&Setup) -> (ServerWrap, ClientWrap);

/// Our client with stock's server, then our server with stock's client.
fn both_ways(setup: &Setup, wraps: Wraps, server: &[&str], client: &[&str]) -> [String; 2] {
    let mut stock = client_of_stock(setup, wraps(setup).1, server).1;
    let first = stock.log();
    drop(stock);
    let mut stock = server_of_stock(setup, wraps(setup).0, client).1;
    [first, stock.log()]
}

const TLS_CRYPT: &str = "--tls-crypt static.key";

pub fn tls_auth(setup: &Setup) -> (ServerWrap, ClientWrap) {
    let keys = |direction| WrapKeys::tls_auth(Prf::HmacSha512, setup.key.clone(), direction);
    (ServerWrap::Shared(keys(Some(0))), ClientWrap::Shared(keys(Some(1))))
}

pub fn no_wrap(_: &Setup) -> (ServerWrap, ClientWrap) {
    (ServerWrap::Shared(WrapKeys::none()), ClientWrap::Shared(WrapKeys::none()))
}

#[test]
fn tls_crypt_with_exported_keys() {
    if !is_inside("modes::tls_crypt_with_exported_keys") {
        return;
    }
    let logs = both_ways(&Setup::new(), Setup::tls_crypt, &[TLS_CRYPT], &[TLS_CRYPT]);
    for log in logs {
        assert!(log.contains("tls-ekm") && log.contains("dyn-tls-crypt"), "{log}");
    }
}

#[test]
fn tls_auth_with_sha512() {
    if is_inside("modes::tls_auth_with_sha512") {
        let server = ["--tls-auth static.key 0", "--auth SHA512"];
        let client = ["--tls-auth static.key 1", "--auth SHA512"];
        both_ways(&Setup::new(), tls_auth, &server, &client);
    }
}

#[test]
fn tls_auth_without_a_direction_and_sha1() {
    if is_inside("modes::tls_auth_without_a_direction_and_sha1") {
        let keys = |setup: &Setup| WrapKeys::tls_auth(Prf::HmacSha1, setup.key.clone(), None);
        let setup = Setup::new();
        drop(client_of_stock(&setup, ClientWrap::Shared(keys(&setup)), &["--tls-auth static.key"]));
        drop(server_of_stock(&setup, ServerWrap::Shared(keys(&setup)), &["--tls-auth static.key"]));
    }
}

#[test]
fn no_wrap_and_tls_1_2() {
    if is_inside("modes::no_wrap_and_tls_1_2") {
        let arguments = ["--tls-version-max 1.2"];
        for log in both_ways(&Setup::new(), no_wrap, &arguments, &arguments) {
            assert!(log.contains("TLSv1.2"), "{log}");
        }
    }
}

#[test]
fn every_cipher() {
    if !is_inside("modes::every_cipher") {
        return;
    }
    let suites = [
        ("AES-256-GCM", Integrity::HmacSha1),
        ("AES-192-GCM", Integrity::HmacSha1),
        ("AES-128-GCM", Integrity::HmacSha1),
        ("CHACHA20-POLY1305", Integrity::HmacSha1),
        ("AES-256-CBC", Integrity::HmacSha1),
        ("AES-192-CBC", Integrity::HmacSha256),
        ("AES-128-CBC", Integrity::HmacSha384),
        ("AES-256-CBC", Integrity::HmacSha512),
    ];
    for (name, auth) in suites {
        let mut setup = Setup::new();
        let cipher = DataCipher::by_name(name).expect("known");
        (setup.server_ciphers, setup.client_ciphers) = (vec![cipher], vec![cipher]);
        setup.auth = auth;
        let arguments = [
            TLS_CRYPT.to_owned(),
            format!("--data-ciphers {name}"),
            format!("--auth {}", tunnel::openvpn::negotiate::auth_name(auth)),
        ];
        let arguments = arguments.each_ref().map(String::as_str);
        for log in both_ways(&setup, Setup::tls_crypt, &arguments, &arguments) {
            assert!(log.contains(&format!("Data Channel: Cipher '{name}'")), "{log}");
        }
    }
}

/// As with clients and servers before 2.6.
#[test]
fn derived_keys() {
    if !is_inside("modes::derived_keys") {
        return;
    }
    let mut setup = Setup::new();
    setup.client_features = OURS & !proto::TLS_EXPORT;
    setup.server_features = OURS & !proto::TLS_EXPORT;
    for log in both_ways(&setup, Setup::tls_crypt, &[TLS_CRYPT], &[TLS_CRYPT]) {
        assert!(!log.contains("protocol-flags cc-exit tls-ekm"), "{log}");
    }
}

/// As with clients before 2.4: no peer ID, no flags.
#[test]
fn data_packets_without_a_peer_id() {
    if !is_inside("modes::data_packets_without_a_peer_id") {
        return;
    }
    let mut setup = Setup::new();
    (setup.client_features, setup.server_features) = (0, 0);
    both_ways(&setup, Setup::tls_crypt, &[TLS_CRYPT], &[TLS_CRYPT]);
}

fn generate(arguments: &[&str]) {
    let directory = OpenVpn::directory();
    let status = Command::new("openvpn").current_dir(directory).args(arguments).status().expect("it runs");
    assert!(status.success());
}

#[test]
fn tls_crypt_v2_with_keys_of_openvpn() {
    if !is_inside("modes::tls_crypt_v2_with_keys_of_openvpn") {
        return;
    }
    let setup = Setup::new();
    generate(&["--genkey", "tls-crypt-v2-server", "server.key"]);
    generate(&["--tls-crypt-v2", "server.key", "--genkey", "tls-crypt-v2-client", "client.key"]);
    let read = |name| std::fs::read(OpenVpn::directory().join(name)).expect("generated");
    let client = ClientKey::from_file(&read("client.key")).expect("a key");
    let arguments = ["--tls-crypt-v2 server.key force-cookie"];
    drop(client_of_stock(&setup, ClientWrap::Own(client), &arguments));
    let key = ServerKey::from_file(&read("server.key")).expect("a key");
    let wrap = ServerWrap::PerClient { key, allow_without_cookie: false, max_age: None };
    drop(server_of_stock(&setup, wrap, &["--tls-crypt-v2 client.key"]));
}

#[test]
fn a_static_key_of_openvpn_is_read() {
    if is_inside("modes::a_static_key_of_openvpn_is_read") {
        let mut setup = Setup::new();
        generate(&["--genkey", "secret", "generated.key"]);
        let text = std::fs::read_to_string(OpenVpn::directory().join("generated.key")).expect("text");
        setup.key = StaticKey::from_file(&text).expect("a key");
        drop(client_of_stock(&setup, setup.tls_crypt().1, &["--tls-crypt generated.key"]));
    }
}

#[test]
fn over_tcp() {
    if !is_inside("modes::over_tcp") {
        return;
    }
    let setup = Setup::new();
    super::over_tcp(&setup, setup.tls_crypt());
}
