//! IPsec: a configuration for a VyOS router is served unchanged, and an error names the fix.

mod guide;
mod refused;
mod settings;

use config::settings::IpSec;
use config::settings::ipsec::{Authentication, Esp, Ike, Peer};
use config::{ConfigError, Settings, parse};
use std::net::IpAddr;

fn load(text: &str) -> Result<(IpSec, Vec<String>), Vec<ConfigError>> {
    let (settings, warnings) = Settings::new(&parse(text)?)?;
    Ok((settings.ipsec, warnings))
}

fn loaded(text: &str) -> (IpSec, Vec<String>) {
    load(text).unwrap_or_else(|errors| {
        panic!("{}", errors.iter().map(|error| error.in_text("it", text).to_string()).collect::<String>())
    })
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn secret_of(peer: &Peer) -> &[u8] {
    match &peer.authentication {
        Authentication::PreSharedSecret(secret) => secret.expose(),
        other @ (Authentication::X509(_) | Authentication::Rsa(_)) => panic!("{other:?}"),
    }
}

/// A peer that uses the groups `ike` and `esp`, in the spelling of VyOS 1.4 and later.
fn using(groups: &str, ike: &str, esp: &str) -> String {
    format!(
        "{groups}
set vpn ipsec authentication psk a id 192.0.2.1
set vpn ipsec authentication psk a id 192.0.2.2
set vpn ipsec authentication psk a secret 'a b'
set vpn ipsec site-to-site peer a authentication mode pre-shared-secret
set vpn ipsec site-to-site peer a ike-group {ike}
set vpn ipsec site-to-site peer a local-address 192.0.2.1
set vpn ipsec site-to-site peer a remote-address 192.0.2.2
set vpn ipsec site-to-site peer a tunnel 1 esp-group {esp}
set vpn ipsec site-to-site peer a tunnel 1 local prefix 10.1.0.0/16
set vpn ipsec site-to-site peer a tunnel 1 remote prefix 10.2.0.0/16"
    )
}

/// A right configuration of one peer.
fn site(extra: &str) -> String {
    let groups = "set vpn ipsec esp-group SITE-ESP proposal 1 encryption aes256gcm128
set vpn ipsec ike-group SITE-IKE proposal 1 encryption aes256gcm128
set vpn ipsec ike-group SITE-IKE proposal 1 hash sha256
set vpn ipsec ike-group SITE-IKE proposal 1 dh-group 19";
    format!("{}\n{extra}", using(groups, "SITE-IKE", "SITE-ESP"))
}

fn groups_of(text: &str, ike: &str, esp: &str) -> (Ike, Esp, Vec<String>) {
    let (ipsec, warnings) = loaded(&using(text, ike, esp));
    let peer = &ipsec.peers["a"];
    ((*peer.ike).clone(), (*peer.tunnels[&1].esp).clone(), warnings)
}

/// A second peer with other addresses, and the tunnel 1 of these prefixes.
fn second(local: &str, remote: &str) -> String {
    let path = "vpn ipsec site-to-site peer b";
    format!(
        "set vpn ipsec authentication psk b id 192.0.2.3\nset vpn ipsec authentication psk b secret s
set {path} ike-group SITE-IKE
set {path} remote-address 192.0.2.3
set {path} default-esp-group SITE-ESP
set {path} tunnel 1 local prefix {local}
set {path} tunnel 1 remote prefix {remote}"
    )
}

const CERTIFICATES: &str = "set pki ca root certificate AAAA
set pki ca root crl BBBB
set pki certificate ours certificate CCCC
set pki certificate ours private key DDDD
set vpn ipsec site-to-site peer a authentication mode x509
set vpn ipsec site-to-site peer a authentication x509 certificate ours
set vpn ipsec site-to-site peer a authentication x509 ca-certificate root";

const KEYS: &str = "set pki key-pair ours public key AAAA
set pki key-pair ours private key BBBB
set pki key-pair theirs public key CCCC
set vpn ipsec site-to-site peer a authentication mode rsa
set vpn ipsec site-to-site peer a authentication remote-id 192.0.2.2
set vpn ipsec site-to-site peer a authentication rsa local-key ours
set vpn ipsec site-to-site peer a authentication rsa remote-key theirs";
