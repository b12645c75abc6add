//! Refusals before a peer is served, and the settings for the data path.

use super::*;
use config::Settings;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

const SITE: &str = "set vpn ipsec esp-group E proposal 1 encryption aes256gcm128
set vpn ipsec ike-group I proposal 1 encryption aes256gcm128
set vpn ipsec authentication psk a id %any
set vpn ipsec authentication psk a secret 'a b'
set vpn ipsec site-to-site peer a ike-group I
set vpn ipsec site-to-site peer a default-esp-group E
set vpn ipsec site-to-site peer a tunnel 1 local prefix 10.1.0.0/16
set vpn ipsec site-to-site peer a tunnel 1 remote prefix 10.2.0.0/16
";

/// The error or warning for the peer with these lines.
fn said(lines: &str) -> String {
    let line = |line: &str| match line.strip_prefix("pki ") {
        Some(_) => format!("set {line}\n"),
        None => format!("set vpn ipsec site-to-site peer a {line}\n"),
    };
    let text = SITE.to_owned() + &lines.lines().map(line).collect::<String>();
    let tree = config::parse(&text).unwrap_or_else(|errors| panic!("{errors:?}"));
    let (settings, _) = Settings::new(&tree).unwrap_or_else(|errors| panic!("{errors:?}"));
    let checked = check("a", &settings.ipsec.peers["a"]);
    checked.unwrap_or_else(|error| Some(error.to_string())).unwrap_or_default()
}

#[test]
fn the_data_path_knows_when_a_key_ends() {
    let text = format!(
        "{SITE}set vpn ipsec site-to-site peer a remote-address 192.0.2.2
set vpn ipsec esp-group E lifetime 600
"
    );
    let (settings, _) = Settings::new(&config::parse(&text).expect("right")).expect("right");
    let peer = &settings.ipsec.peers["a"];
    let options = options(peer, &peer.tunnels[&1].esp);
    assert_eq!(options.hard.time, Some(Duration::from_secs(600)));
    assert_eq!(options.soft.time, None, "IKE begins before, and each time a little earlier or later");
}

#[test]
fn a_check_asks_no_resolver() {
    assert_eq!(said("remote-address berlin.invalid"), "");
    assert_eq!(said("remote-address any\nlocal-address 192.0.2.1"), "");
}

#[test]
fn what_cannot_be_served_is_known_without_serving_it() {
    let unknown = said("remote-address any");
    assert!(unknown.contains("authentication local-id NAME"), "{unknown}");
    let name = said("remote-address 192.0.2.2\nauthentication remote-id 'dn:berlin'");
    assert!(name.contains("the name berlin") && name.contains("\n  fix: set vpn ipsec "), "{name}");
    let x509 = "remote-address 192.0.2.2
authentication mode x509
authentication x509 certificate own
authentication x509 ca-certificate root
pki certificate own certificate AAAA
pki certificate own private key BBBB
pki ca root certificate CCCC";
    let key = said(x509);
    assert!(key.starts_with("vpn ipsec site-to-site peer a: pki certificate own private key: "), "{key}");
    assert!(key.contains("\n  fix: set pki certificate own private key BASE64"), "{key}");
    let rsa = "remote-address 192.0.2.2
authentication mode rsa
authentication remote-id 192.0.2.2
authentication rsa local-key own
authentication rsa remote-key theirs
pki key-pair own private key AAAA
pki key-pair theirs public key BBBB";
    let key = said(rsa);
    assert!(key.starts_with("vpn ipsec site-to-site peer a: pki key-pair own private key: "), "{key}");
    let own = include_str!("../../../../crypto/tests/keys/rsa2048-pkcs8.pem");
    let own: String = own.lines().filter(|line| !line.starts_with('-')).collect();
    let key = said(&rsa.replace("AAAA", &own));
    assert!(key.contains("\n  fix: set pki key-pair theirs public key BASE64"), "{key}");
}

#[test]
fn our_own_key_as_that_of_the_peer_is_warned_of() {
    let [own, other] = [(), ()].map(|()| KeyPair::generate().expect("P-256 is there"));
    let told = |theirs: &KeyPair| {
        let [private, public] = [own.serialize_pem(), theirs.public_key_pem()].map(|pem| base64(&pem));
        said(&format!(
            "remote-address 192.0.2.2\nauthentication mode rsa\nauthentication remote-id 192.0.2.2\n\
             authentication rsa local-key own\nauthentication rsa remote-key theirs\n\
             pki key-pair own private key {private}\npki key-pair theirs public key {public}"
        ))
    };
    assert_eq!(told(&other), "");
    let warning = told(&own);
    let set = "vpn ipsec site-to-site peer a authentication rsa remote-key";
    assert!(warning.starts_with(&format!("{set} theirs: it is our own public key")), "{warning}");
    assert!(warning.contains(&format!("\n  fix: set {set} NAME")), "{warning}");
}

/// What stands between the first and the last line of a PEM file.
fn base64(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with('-')).collect()
}

#[test]
fn an_own_certificate_must_be_valid_and_of_our_key() {
    let root_key = KeyPair::generate().expect("P-256 is there");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(params, root_key).expect("valid");
    let (key, other) = (KeyPair::generate().expect("one"), KeyPair::generate().expect("another"));
    let told_with = |from: i32, until: i32, key_of: &KeyPair, more: &str| {
        let mut params = CertificateParams::default();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        let own = params.signed_by(&key, &root).expect("valid");
        let [own, secret, root] = [own.pem(), key_of.serialize_pem(), root.pem()].map(|pem| base64(&pem));
        said(&format!(
            "remote-address 192.0.2.2\nauthentication mode x509\nauthentication x509 certificate own\n\
             authentication x509 ca-certificate root\npki certificate own certificate {own}\n\
             pki certificate own private key {secret}\npki ca root certificate {root}{more}"
        ))
    };
    let told = |from, until, key_of| told_with(from, until, key_of, "");
    assert_eq!(told(2020, 2090, &key), "");
    let named = |local: &str, remote: &str| {
        let ids = format!("\nauthentication local-id {local}\nauthentication remote-id {remote}");
        told_with(2020, 2090, &key, &ids)
    };
    assert_eq!(named("a.example", "b.example"), "");
    let same = named("a.example", "a.example");
    assert!(same.contains("it is our own name") && same.contains("\n  fix: set vpn ipsec"), "{same}");
    let foreign = told(2020, 2090, &other);
    assert!(foreign.contains("own private key: it does not belong to the certificate"), "{foreign}");
    assert!(foreign.contains("\n  fix: set pki certificate own private key BASE64"), "{foreign}");
    let expired = told(2020, 2021, &key);
    assert!(expired.contains("expired 2021-01-01T00:00:00Z, and every peer would refuse it"), "{expired}");
    assert!(expired.contains("\n  fix: set pki certificate own certificate BASE64, renewed"), "{expired}");
    let early = told(2080, 2090, &key);
    assert!(early.contains("is not valid before 2080-01-01T00:00:00Z"), "{early}");
}
