//! Authentication by certificates and signatures (RFC 7296 section 2.15, RFC 7427).

use crate::network::{A, B, Network, exchange};
use crate::support::{
    acquainted, assert_agree, assert_nothing_leaks, assert_one_session, begin, connected, connection, seconds,
};
use crypto::pki::{Certificate, Revocation, TrustStore};
use crypto::signature::SigningKey;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    CrlDistributionPoint, DnType, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_ED25519, RevokedCertParams, SanType, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};
use std::sync::Arc;
use tunnel::ikev2::message::Exchange;
use tunnel::ikev2::message::numbers::notify;
use tunnel::ikev2::{Authentication, Cause, Connection, ConnectionId, Credentials, Event, Identity};

/// Where certificates of hosts say that the lists of their issuer are.
const LISTS: &str = "http://lists.example/root.crl";

pub type Authority = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

pub fn authority() -> Authority {
    CertifiedIssuer::self_signed(authority_params("root"), KeyPair::generate().expect("works"))
        .expect("valid")
}

/// A host's certificate, with its domain name and some room.
fn host_params(host: usize) -> CertificateParams {
    let mut params = params(&format!("host {}", host + 1));
    let name = format!("host{}.example", host + 1);
    params.subject_alt_names = vec![SanType::DnsName(name.try_into().expect("ASCII"))];
    params.serial_number = Some(SerialNumber::from(7 + host as u64));
    params.crl_distribution_points = vec![CrlDistributionPoint { uris: vec![LISTS.to_owned()] }];
    params
}

fn parse(der: &[u8]) -> Certificate {
    Certificate::from_der(der).expect("ours")
}

/// What a host signs with: a certificate made of `params` by `issuer`, with `between` on the way to the root.
fn credentials(
    params: &CertificateParams,
    algorithm: &'static SignatureAlgorithm,
    issuer: &Authority,
    between: &[&Authority],
    trusted: &Authority,
) -> Credentials {
    let key = KeyPair::generate_for(algorithm).expect("works");
    let own = params.signed_by(&key, issuer).expect("valid");
    let mut certificates = vec![parse(own.der())];
    certificates.extend(between.iter().map(|authority| parse(authority.der())));
    let mut trust = TrustStore::default();
    trust.add_authority(parse(trusted.der())).expect("an authority");
    let key = SigningKey::from_der(&key.serialize_der()).expect("a key");
    Credentials { key, certificates, trust, accept_sha1: false }
}

pub fn use_certificate(connection: &mut Connection, credentials: Credentials) {
    connection.authentication = Authentication::Certificate(Arc::new(credentials));
}

pub fn plain(host: usize, root: &Authority) -> Credentials {
    credentials(&host_params(host), &PKCS_ECDSA_P256_SHA256, root, &[], root)
}

fn why(network: &Network, host: usize) -> String {
    let failed = |event: &Event| match event {
        Event::Failed { cause: Cause::NotAuthentic { why, .. }, .. } => Some(why.to_string()),
        _ => None,
    };
    network.hosts[host].events.iter().find_map(failed).expect("it failed")
}

/// Two hosts that know each other by certificates.
pub fn acquainted_by_certificates(seed: u64) -> (Network, [ConnectionId; 2]) {
    let connections = certified();
    acquainted(seed, |host, connection| connection.clone_from(&connections[host]))
}

/// The connections of both.
pub fn certified() -> [Connection; 2] {
    certified_by(&authority())
}

/// The list of an authority that revokes certificates with these serial numbers.
pub fn list(root: &Authority, serials: &[&[u8]]) -> Vec<u8> {
    let revoked = |serial: &&[u8]| RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: date_time_ymd(2020, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2020, 1, 1),
        next_update: date_time_ymd(2100, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(root).expect("valid").der().to_vec()
}

fn certified_by(root: &Authority) -> [Connection; 2] {
    [A, B].map(|host| {
        let mut connection = connection(host);
        use_certificate(&mut connection, plain(host, root));
        connection
    })
}

/// The same, for a B that demands the revocation status of its peer: A is revoked, or its status is unknown.
pub fn certified_but(is_revoked: bool) -> ([Connection; 2], Authentication) {
    let root = authority();
    let connections = certified_by(&root);
    let mut strict = plain(B, &root);
    strict.trust.set_revocation(Revocation::Strict);
    if is_revoked {
        let Authentication::Certificate(peer) = &connections[A].authentication else { unreachable!() };
        strict.trust.add_revocation_lists(&list(&root, &[peer.certificates[0].serial()])).expect("a list");
    }
    (connections, Authentication::Certificate(Arc::new(strict)))
}

#[test]
fn both_sides_authenticate_with_every_kind_of_key() {
    let root = authority();
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384, &PKCS_ED25519] {
        let (network, _) = connected(60, |host, connection| {
            use_certificate(connection, credentials(&host_params(host), algorithm, &root, &[], &root));
        });
        assert_one_session(&network);
    }
}

#[test]
fn rsa_keys_sign_too() {
    let root = authority();
    let pem = include_str!("../../../crypto/tests/keys/rsa2048-pkcs8.pem");
    let (network, _) = connected(61, |host, connection| {
        let key = KeyPair::from_pem(pem).expect("a key");
        let own = host_params(host).signed_by(&key, &root).expect("valid");
        let key = SigningKey::from_file(pem.as_bytes()).expect("a key");
        use_certificate(
            connection,
            Credentials { key, certificates: vec![parse(own.der())], ..plain(host, &root) },
        );
    });
    assert_agree(&network, 1);
}

#[test]
fn chains_and_large_certificates_travel_in_fragments() {
    let root = authority();
    let key = || KeyPair::generate().expect("works");
    let middle = CertifiedIssuer::signed_by(authority_params("middle"), key(), &root).expect("valid");
    let (network, _) = connected(62, |host, connection| {
        let mut params = host_params(host);
        let long = |number| {
            SanType::DnsName(
                format!("alias-{number}.{}.example", "long".repeat(12)).try_into().expect("ASCII"),
            )
        };
        params.subject_alt_names.extend((0..60).map(long));
        use_certificate(
            connection,
            credentials(&params, &PKCS_ECDSA_P256_SHA256, &middle, &[&middle], &root),
        );
    });
    assert_agree(&network, 1);
    let auth = network.log.iter().filter(|(_, datagram)| exchange(&datagram.bytes).0 == Exchange::IkeAuth);
    assert!(auth.clone().count() >= 8);
    assert!(auth.map(|(_, datagram)| datagram.bytes.len()).all(|length| length <= 1228));
}

#[test]
fn unauthenticated_sources_are_refused_on_either_side_and_told_apart() {
    let (root, other) = (authority(), authority());
    for bad in [A, B] {
        let (network, _) = connected(63, |host, connection| {
            let issuer = if host == bad { &other } else { &root };
            use_certificate(
                connection,
                credentials(&host_params(host), &PKCS_ECDSA_P256_SHA256, issuer, &[], &root),
            );
        });
        assert_agree(&network, 0);
        assert_nothing_leaks(&network, 0);
        assert!(why(&network, 1 - bad).contains("signed"), "{}", why(&network, 1 - bad));
        let is_told = |event: &Event| matches!(event, Event::Failed { cause: Cause::Refused, .. });
        assert_eq!(network.hosts[bad].count(is_told), 1, "{bad} learns that it is not believed");
    }
}

/// CVE-2015-4171, CVE-2023-26463: a valid certificate of another owner.
#[test]
fn an_identity_is_the_certificates_own() {
    let root = authority();
    for bad in [A, B] {
        let (network, _) = connected(64, |host, connection| {
            let owner = if host == bad { 7 } else { host };
            use_certificate(
                connection,
                credentials(&host_params(owner), &PKCS_ECDSA_P256_SHA256, &root, &[], &root),
            );
        });
        assert_agree(&network, 0);
        assert_nothing_leaks(&network, 0);
        assert_eq!(why(&network, 1 - bad), "its certificate is for CN=host 8");
    }
}

#[test]
fn the_signature_is_the_certificates_own() {
    let root = authority();
    let (network, _) = connected(65, |host, connection| {
        let mut credentials = plain(host, &root);
        if host == A {
            credentials.key = plain(host, &root).key;
        }
        use_certificate(connection, credentials);
    });
    assert_agree(&network, 0);
    assert_nothing_leaks(&network, 0);
    assert_eq!(why(&network, B), "its signature is invalid");
}

#[test]
fn certificates_have_their_time() {
    let root = authority();
    let mut expired = authority_params("middle");
    expired.not_after = date_time_ymd(2029, 1, 1);
    let key = KeyPair::generate().expect("works");
    let middle = CertifiedIssuer::signed_by(expired, key, &root).expect("valid");
    let (network, _) = connected(66, |host, connection| {
        let issuers = if host == B { (&middle, &[&middle][..]) } else { (&root, &[][..]) };
        let params = host_params(host);
        use_certificate(
            connection,
            credentials(&params, &PKCS_ECDSA_P256_SHA256, issuers.0, issuers.1, &root),
        );
    });
    assert_agree(&network, 0);
    assert!(why(&network, A).contains("expired"), "{}", why(&network, A));
}

/// Every peer would refuse it: the local side reports the failure.
#[test]
fn an_own_certificate_that_is_not_valid_now_is_not_shown() {
    let root = authority();
    for (bad, from, until, said) in
        [(A, 2020, 2029, "expired"), (B, 2020, 2029, "expired"), (A, 2040, 2041, "not valid before")]
    {
        let (network, _) = connected(66, |host, connection| {
            let mut params = host_params(host);
            if host == bad {
                (params.not_before, params.not_after) =
                    (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
            }
            use_certificate(connection, credentials(&params, &PKCS_ECDSA_P256_SHA256, &root, &[], &root));
        });
        assert_agree(&network, 0);
        let is_said = |event: &Event| matches!(event, Event::Failed { cause: Cause::OwnCertificate(why), authentic: true, .. } if why.contains(said));
        assert!(network.hosts[bad].count(is_said) > 0, "{bad}: {:?}", network.hosts[bad].events);
    }
}

#[test]
fn a_secret_does_not_stand_in_for_a_certificate_nor_the_reverse() {
    let root = authority();
    for host_with_certificate in [A, B] {
        let (network, _) = connected(67, |host, connection| {
            if host == host_with_certificate {
                use_certificate(connection, plain(host, &root));
            }
        });
        assert_agree(&network, 0);
        assert_nothing_leaks(&network, 0);
    }
}

#[test]
fn a_distinguished_name_is_an_identity() {
    let root = authority();
    let (network, _) = connected(68, |host, connection| {
        let name = |host: usize| -> Identity { format!("CN=host {}", host + 1).parse().expect("a name") };
        connection.local_identity = name(host);
        connection.remote_identity = Some(name(1 - host));
        use_certificate(connection, plain(host, &root));
    });
    assert_agree(&network, 1);
}

/// Which connection it will be is not known: all their authorities are named, and a bounded number.
#[test]
fn every_candidate_connection_asks_for_certificates() {
    let roots: Vec<Authority> = (0..40).map(|_| authority()).collect();
    let (mut network, ids) = acquainted(70, |host, connection| {
        if host == A {
            use_certificate(connection, plain(host, &roots[1]));
        } else {
            connection.remote_identity = Some(Identity::Fqdn("host9.example".to_owned()));
            use_certificate(connection, plain(host, &roots[0]));
        }
    });
    for root in &roots[1..] {
        let mut connection = connection(B);
        use_certificate(&mut connection, plain(B, root));
        network.add(B, connection);
    }
    begin(&mut network, A, ids[A]);
    network.run(seconds(1));
    let answer = &network.log[1].1.bytes;
    let is_named = |root: &&Authority| {
        let hash = parse(root.der()).key_hash();
        answer.windows(20).any(|bytes| bytes == hash)
    };
    assert!(is_named(&&roots[0]) && is_named(&&roots[1]));
    assert_eq!(roots.iter().filter(is_named).count(), 25);
}

#[test]
fn hashes_and_requests_are_announced() {
    let root = authority();
    let (network, _) = connected(69, |host, connection| use_certificate(connection, plain(host, &root)));
    let request = parse(root.der()).key_hash();
    for (_, datagram) in &network.log[..2] {
        let announced =
            datagram.bytes.windows(2).any(|pair| pair == notify::SIGNATURE_HASH_ALGORITHMS.to_be_bytes());
        assert!(announced);
    }
    assert!(network.log[1].1.bytes.windows(20).any(|bytes| bytes == request));
}
