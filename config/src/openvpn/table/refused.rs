//! Directives that are refused, and those that only print something.

use crate::openvpn::row::{Row, refused};

const PROXY: &str = "proxies are not served";
const PROXY_FIX: &str =
    "delete the line, and reach the server without a proxy: over TCP on port 443, for example";
const TOKEN: &str = "PKCS #11 is not served";
const TOKEN_FIX: &str = "write cert FILE and key FILE";
const TAP: &str = "TAP devices are not served: packets are IP packets";
const TAP_FIX: &str = "use dev tun, and routes in place of a bridge";
const SHOWS: &str = "it is a task of its own, and no setting";

/// Rows of directives that are refused.
pub(super) const ROWS: &[Row] = &[
    refused(
        "secret",
        "static keys are not served: OpenVPN 2.7 removed them",
        "use certificates, or peer-fingerprint for two peers",
    ),
    refused(
        "allow-deprecated-insecure-static-crypto",
        "static keys are not served: OpenVPN 2.7 removed them",
        "use certificates, or peer-fingerprint for two peers",
    ),
    refused(
        "fragment",
        "fragments of OpenVPN are not served: their header changes each packet",
        "delete the line on both ends, and write mssfix 1400 or tun-mtu 1400",
    ),
    refused(
        "plugin",
        "plugins are not served: they are code for the process of OpenVPN",
        "use auth-user-pass-verify, client-connect or the management interface in place of the plugin",
    ),
    refused("http-proxy", PROXY, PROXY_FIX),
    refused("http-proxy-option", PROXY, PROXY_FIX),
    refused("http-proxy-override", PROXY, PROXY_FIX),
    refused("http-proxy-user-pass", PROXY, PROXY_FIX),
    refused("socks-proxy", PROXY, PROXY_FIX),
    refused(
        "pkcs12",
        "PKCS #12 files are not read",
        "write it as PEM with openssl pkcs12 -in FILE -nodes -out FILE.pem, then: ca FILE.pem, cert FILE.pem, key FILE.pem",
    ),
    refused("pkcs11-providers", TOKEN, TOKEN_FIX),
    refused("pkcs11-protected-authentication", TOKEN, TOKEN_FIX),
    refused("pkcs11-private-mode", TOKEN, TOKEN_FIX),
    refused("pkcs11-cert-private", TOKEN, TOKEN_FIX),
    refused("pkcs11-pin-cache", TOKEN, TOKEN_FIX),
    refused("pkcs11-id", TOKEN, TOKEN_FIX),
    refused("pkcs11-id-management", TOKEN, TOKEN_FIX),
    refused("cryptoapicert", "the certificate store of Windows is not here", TOKEN_FIX),
    refused("server-bridge", TAP, TAP_FIX),
    refused("vlan-tagging", TAP, TAP_FIX),
    refused("client-nat", "translation of addresses in the client is not served", "use nftables for it"),
    refused(
        "no-replay",
        "replay protection is never off",
        "delete the line; replay-window makes the window larger",
    ),
    refused("no-iv", "each packet has an IV of its own", "delete the line"),
    refused("replay-persist", "replay windows are not kept: each session has new keys", "delete the line"),
    refused("tls-remote", "it ended with OpenVPN 2.4", "write verify-x509-name NAME name-prefix"),
    refused("mktun", SHOWS, "use ip tuntap add mode tun NAME"),
    refused("rmtun", SHOWS, "use ip tuntap del mode tun NAME"),
    refused("genkey", SHOWS, "use postern generate pki openvpn shared-secret"),
    refused("test-crypto", SHOWS, "use postern show crypto"),
    refused("show-ciphers", SHOWS, "see data-ciphers in the guide"),
    refused("show-digests", SHOWS, "see auth in the guide"),
    refused("show-engines", SHOWS, "use postern show crypto"),
    refused("show-tls", SHOWS, "see tls-cipher in the guide"),
    refused("show-curves", SHOWS, "see tls-groups in the guide"),
    refused("show-groups", SHOWS, "see tls-groups in the guide"),
    refused("show-gateway", SHOWS, "use ip route show default"),
    refused("show-pkcs11-ids", SHOWS, TOKEN_FIX),
    refused("show-adapters", SHOWS, "use ip link"),
    refused("show-net", SHOWS, "use ip address and ip route"),
    refused("show-valid-subnets", SHOWS, "delete it: it is for Windows"),
    refused("help", SHOWS, "use postern openvpn --help alone"),
    refused("version", SHOWS, "use postern --version"),
];
