//! Verification of certificate chains. The certificates in `certificates/` were made with OpenSSL.

#[path = "support/authorities.rs"]
mod authorities;

use authorities::{Authority, NOW, authority, authority_params, key, list_params, params, parse};
use crypto::pki::{
    Certificate, CertificateError, ChainError, ChainFailure, Identity, Revocation, TrustStore, Trusted, chain,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType, SerialNumber,
    SigningKey, date_time_ymd,
};
use std::time::Duration;

const ROOT: &[u8] = include_bytes!("certificates/root.pem");
const MOON: &[u8] = include_bytes!("certificates/moon.pem");

const LAST_YEAR: Duration = Duration::from_secs(1_861_920_000);

fn below(params: CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Authority {
    CertifiedIssuer::signed_by(params, key(), issuer).expect("valid")
}

fn peer(params: &CertificateParams, issuer: &Issuer<'_, impl SigningKey>) -> Certificate {
    parse(params.signed_by(&key(), issuer).expect("valid").der())
}

fn trusting(authorities: &[&Authority]) -> TrustStore {
    let mut store = TrustStore::default();
    for authority in authorities {
        store.add_authority(parse(authority.der())).expect("an authority");
    }
    store
}

fn failure(result: Result<Trusted<'_>, ChainError>) -> ChainFailure {
    result.expect_err("it is not trusted").failure
}

/// A CRL of an authority with these serial numbers.
fn revocation_list(issuer: &Authority, serials: &[u64], year: i32) -> Vec<u8> {
    let list = list_params(serials, year).signed_by(issuer).expect("valid");
    list.pem().expect("PEM").into_bytes()
}

#[test]
fn a_chain_of_openssl_with_pss_is_trusted() {
    let [root] = &Certificate::from_file(ROOT).expect("PEM among text")[..] else { panic!("there is one") };
    let moon = Certificate::from_file(MOON).expect("PEM").remove(0);
    let mut store = TrustStore::default();
    store.add_authority(root.clone()).expect("an authority");
    assert_eq!(store.verify(&moon, &[], NOW), Ok(Trusted::Authority(root)));
    assert_eq!(store.request(), root.key_hash());
}

/// Wildcards are not expanded: no peer is every host of a domain.
#[test]
fn wildcards_match_nothing_but_themselves() {
    let root = authority("root");
    let mut params = CertificateParams::new(["*.example.org".to_owned()]).expect("a name");
    params.distinguished_name = rcgen::DistinguishedName::new();
    let peer = peer(&params, &root);
    assert!(!peer.holds(&"moon.example.org".parse().expect("an identity")));
    let empty = Identity::from_payload(9, &[0x30, 0]).expect("an empty name");
    assert!(!peer.holds(&empty), "an empty subject is no name");
}

#[test]
fn chains_are_found_through_what_the_peer_sends() {
    let root = authority("root");
    let middle = below(authority_params("middle"), &root);
    let lower = below(authority_params("lower"), &middle);
    let peer = peer(&params("moon"), &lower);
    let store = trusting(&[&root]);
    let sent = [parse(root.der()), parse(lower.der()), parse(middle.der()), parse(lower.der())];
    assert_eq!(store.verify(&peer, &sent, NOW), Ok(Trusted::Authority(&sent[0])));
    let error = store.verify(&peer, &sent[..2], NOW).expect_err("the middle is missing");
    assert_eq!(
        error.to_string(),
        "the certificate of C=CH, CN=lower was issued by C=CH, CN=middle, which is not trusted here"
    );
    assert!(trusting(&[&middle]).verify(&peer, &sent[1..2], NOW).is_ok(), "an authority need not be a root");
    let own = chain(&peer, &sent);
    assert_eq!(own, [&sent[1], &sent[2]], "from the issuer on, without the root");
}

#[test]
fn unauthenticated_sources_and_namesakes_are_refused() {
    let (root, other) = (authority("root"), authority("other"));
    let peer = peer(&params("moon"), &root);
    let unknown = ChainFailure::UnknownAuthority("C=CH, CN=root".parse().expect("literal"));
    assert_eq!(failure(trusting(&[&other]).verify(&peer, &[], NOW)), unknown);
    assert_eq!(failure(TrustStore::default().verify(&peer, &[parse(root.der())], NOW)), unknown);
    let namesake = authority("root");
    assert_eq!(failure(trusting(&[&namesake]).verify(&peer, &[], NOW)), ChainFailure::BadSignature);
    assert!(trusting(&[&namesake, &root]).verify(&peer, &[], NOW).is_ok(), "both keys of a name are tried");
}

#[test]
fn a_peer_cannot_sign_for_others() {
    let root = authority("root");
    let mut below_params = params("moon");
    below_params.is_ca = IsCa::ExplicitNoCa;
    let moon = below(below_params, &root);
    let forged = peer(&params("sun"), &moon);
    let error =
        trusting(&[&root]).verify(&forged, &[parse(moon.der())], NOW).expect_err("moon is no authority");
    assert_eq!(error.failure, ChainFailure::NotAnAuthority);
    assert_eq!(error.subject, "C=CH, CN=moon".parse().expect("literal"));
    let refused = TrustStore::default().add_authority(parse(moon.der()));
    assert!(matches!(refused, Err(CertificateError::Malformed(_))));
}

/// webpki checks only the basic constraints.
#[test]
fn an_authority_needs_the_usage_to_sign_certificates() {
    let root = authority("root");
    let mut without = authority_params("middle");
    without.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let middle = below(without, &root);
    let peer = peer(&params("moon"), &middle);
    let result = trusting(&[&root]).verify(&peer, &[parse(middle.der())], NOW).map(|_| ());
    assert_eq!(result.expect_err("no keyCertSign").failure, ChainFailure::NotAnAuthority);
}

#[test]
fn an_authoritys_certificate_does_not_authenticate_a_peer() {
    let root = authority("root");
    let mut params = authority_params("middle");
    params.key_usages.push(KeyUsagePurpose::DigitalSignature);
    let middle = below(params, &root);
    assert_eq!(failure(trusting(&[&root]).verify(&parse(middle.der()), &[], NOW)), ChainFailure::IsAuthority);
}

#[test]
fn certificates_outside_their_validity_are_refused() {
    let root = authority("root");
    let mut params = params("moon");
    params.not_before = date_time_ymd(2029, 6, 1);
    params.not_after = date_time_ymd(2031, 6, 1);
    let peer = peer(&params, &root);
    let store = trusting(&[&root]);
    assert!(store.verify(&peer, &[], NOW).is_ok());
    let early = store.verify(&peer, &[], LAST_YEAR).expect_err("too early");
    assert_eq!(
        early.to_string(),
        "the certificate of C=CH, CN=moon is not valid before 2029-06-01T00:00:00Z"
    );
    let late = store.verify(&peer, &[], NOW + Duration::from_secs(730 * 86400)).expect_err("too late");
    assert_eq!(late.to_string(), "the certificate of C=CH, CN=moon expired 2031-06-01T00:00:00Z");
}

#[test]
fn authorities_outside_their_validity_are_refused() {
    let mut expired = authority_params("root");
    expired.not_after = date_time_ymd(2029, 1, 1);
    let root = CertifiedIssuer::self_signed(expired.clone(), key()).expect("valid");
    let store = trusting(&[&root]);
    let error = store.verify(&peer(&params("moon"), &root), &[], NOW).expect_err("the root is too old");
    assert_eq!(error.to_string(), "the certificate of C=CH, CN=root expired 2029-01-01T00:00:00Z");
    let root = authority("root");
    expired.distinguished_name.push(DnType::OrganizationName, "middle");
    let middle = below(expired, &root);
    let peer = peer(&params("moon"), &middle);
    let result = trusting(&[&root]).verify(&peer, &[parse(middle.der())], NOW).map(|_| ());
    assert!(matches!(result.expect_err("the middle is too old").failure, ChainFailure::Expired(_)));
}

#[test]
fn an_authority_that_was_renewed_is_trusted_beside_its_old_self() {
    let (mut params, key) = (authority_params("root"), key());
    let new = parse(params.self_signed(&key).expect("valid").der());
    params.not_after = date_time_ymd(2029, 1, 1);
    let old = parse(params.self_signed(&key).expect("valid").der());
    let peer = peer(&self::params("moon"), &Issuer::from_params(&params, &key));
    let mut store = TrustStore::default();
    store.add_authority(old).expect("an authority");
    assert!(store.verify(&peer, &[], NOW).is_err());
    store.add_authority(new.clone()).expect("an authority");
    assert_eq!(store.verify(&peer, &[], NOW), Ok(Trusted::Authority(&new)));
}

#[test]
fn path_lengths_hold_for_every_authority() {
    let limited = |name: &str| {
        let mut params = authority_params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params
    };
    let root = CertifiedIssuer::self_signed(limited("root"), key()).expect("valid");
    let middle = below(authority_params("middle"), &root);
    let peer = peer(&params("moon"), &middle);
    let result = trusting(&[&root]).verify(&peer, &[parse(middle.der())], NOW).map(|_| ());
    assert_eq!(result.expect_err("the root allows none between").failure, ChainFailure::PathTooLong);

    let root = authority("root");
    let middle = below(limited("middle"), &root);
    let lower = below(authority_params("lower"), &middle);
    let peer = self::peer(&params("moon"), &lower);
    let sent = [parse(middle.der()), parse(lower.der())];
    let result = trusting(&[&root]).verify(&peer, &sent, NOW).map(|_| ());
    assert_eq!(result.expect_err("the middle allows none below").failure, ChainFailure::PathTooLong);
}

#[test]
fn authorities_that_sign_each_other_are_not_trusted() {
    let (keys, root) = ([key(), key()], authority("root"));
    let params = [authority_params("a"), authority_params("b")];
    let issuers = [0, 1].map(|index: usize| Issuer::from_params(&params[index], &keys[index]));
    let crossed = [
        parse(params[0].signed_by(&keys[0], &issuers[1]).expect("valid").der()),
        parse(params[1].signed_by(&keys[1], &issuers[0]).expect("valid").der()),
    ];
    let peer = parse(self::params("moon").signed_by(&key(), &issuers[0]).expect("valid").der());
    let result = trusting(&[&root]).verify(&peer, &crossed, NOW).map(|_| ());
    assert!(matches!(result.expect_err("a loop").failure, ChainFailure::UnknownAuthority(_)));
    assert_eq!(chain(&peer, &crossed).len(), 2);
}

#[test]
fn no_more_certificates_are_tried_than_make_a_chain() {
    let root = authority("root");
    let mut names = vec![below(authority_params("0"), &root)];
    for number in 1..8 {
        let last = names.last().expect("not empty");
        names.push(below(authority_params(&number.to_string()), last));
    }
    let peer = peer(&params("moon"), names.last().expect("not empty"));
    let sent: Vec<_> = names.iter().map(|it| parse(it.der())).collect();
    assert_eq!(failure(trusting(&[&root]).verify(&peer, &sent, NOW)), ChainFailure::TooMany);
    let unrelated: Vec<_> = (0..20).map(|_| parse(authority("x").der())).collect();
    let near = self::peer(&params("moon"), &root);
    assert!(
        trusting(&[&root]).verify(&near, &unrelated, NOW).is_ok(),
        "certificates outside the chain do not count"
    );
}

#[test]
fn revoked_certificates_are_refused() {
    let root = authority("root");
    let mut params = params("moon");
    params.serial_number = Some(SerialNumber::from(77));
    let revoked = peer(&params, &root);
    params.serial_number = Some(SerialNumber::from(78));
    let good = peer(&params, &root);
    let mut store = trusting(&[&root]);
    store.add_revocation_lists(&revocation_list(&root, &[77], 2029)).expect("a list");
    let error = store.verify(&revoked, &[], NOW).expect_err("revoked");
    assert_eq!(error.to_string(), "the certificate of C=CH, CN=moon is revoked");
    assert!(store.verify(&good, &[], NOW).is_ok());
    store.add_revocation_lists(&revocation_list(&root, &[], 2020)).expect("an older list");
    assert!(store.verify(&revoked, &[], NOW).is_err(), "the newer list counts");
}

#[test]
fn peers_below_a_revoked_authority_are_refused() {
    let root = authority("root");
    let mut middle = authority_params("middle");
    middle.serial_number = Some(SerialNumber::from(5));
    let middle = below(middle, &root);
    let peer = peer(&params("moon"), &middle);
    let mut store = trusting(&[&root]);
    store.add_revocation_lists(&revocation_list(&root, &[5], 2029)).expect("a list");
    let error = store.verify(&peer, &[parse(middle.der())], NOW).expect_err("revoked");
    assert_eq!(error.to_string(), "the certificate of C=CH, CN=middle is revoked");
    // Trusting the revoked CA itself does not help.
    store.add_authority(parse(middle.der())).expect("an authority");
    for others in [&[][..], &[parse(middle.der())]] {
        let error = store.verify(&peer, others, NOW).expect_err("revoked");
        assert_eq!(error.to_string(), "the certificate of C=CH, CN=middle is revoked");
    }
    store.add_revocation_lists(&revocation_list(&root, &[], 2030)).expect("a newer list");
    assert!(store.verify(&peer, &[], NOW).is_ok());
}

#[test]
fn required_lists_must_be_current() {
    let root = authority("root");
    let peer = peer(&params("moon"), &root);
    let mut store = trusting(&[&root]);
    store.set_revocation(Revocation::Strict);
    assert_eq!(failure(store.verify(&peer, &[], NOW)), ChainFailure::NoRevocationList);
    store.add_revocation_lists(&revocation_list(&authority("other"), &[], 2029)).expect("a list");
    assert_eq!(failure(store.verify(&peer, &[], NOW)), ChainFailure::NoRevocationList);
    store.add_revocation_lists(&revocation_list(&root, &[], 2027)).expect("a list");
    assert_eq!(failure(store.verify(&peer, &[], NOW)), ChainFailure::RevocationListExpired);
    store.add_revocation_lists(&revocation_list(&root, &[], 2030)).expect("a list");
    assert!(store.verify(&peer, &[], NOW).is_ok());
}

#[test]
fn a_list_signed_by_another_authority_is_ignored() {
    let root = authority("root");
    let mut store = trusting(&[&root]);
    store.add_revocation_lists(&revocation_list(&authority("root"), &[], 2029)).expect("a list");
    let peer = peer(&params("moon"), &root);
    assert_eq!(failure(store.verify(&peer, &[], NOW)), ChainFailure::RevocationListSignature);
}

#[test]
fn certificates_for_other_purposes_are_refused() {
    let root = authority("root");
    let store = trusting(&[&root]);
    let ike_intermediate = ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 8, 2, 2]);
    let ipsec_ike = ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 17]);
    for purpose in [
        ike_intermediate,
        ipsec_ike,
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::Any,
    ] {
        let mut params = params("moon");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection, purpose];
        assert!(store.verify(&peer(&params, &root), &[], NOW).is_ok());
    }
    let mut mail = params("moon");
    mail.extended_key_usages = vec![ExtendedKeyUsagePurpose::EmailProtection];
    assert_eq!(failure(store.verify(&peer(&mail, &root), &[], NOW)), ChainFailure::Purpose);
    let mut encrypts = params("moon");
    encrypts.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
    assert_eq!(failure(store.verify(&peer(&encrypts, &root), &[], NOW)), ChainFailure::Purpose);
}

#[test]
fn names_outside_an_authoritys_constraints_are_refused() {
    let mut constrained = authority_params("root");
    constrained.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("example.org".into())],
        excluded_subtrees: vec![GeneralSubtree::Rfc822Name("example.net".into())],
    });
    let root = CertifiedIssuer::self_signed(constrained.clone(), key()).expect("valid");
    let top = authority("top");
    constrained.distinguished_name.push(DnType::OrganizationName, "middle");
    let middle = below(constrained, &top);
    let named = |name: &str, issuer: &Issuer<'_, KeyPair>| {
        let mut params = params("moon");
        let text = name.try_into().expect("ASCII");
        params.subject_alt_names =
            vec![if name.contains('@') { SanType::Rfc822Name(text) } else { SanType::DnsName(text) }];
        peer(&params, issuer)
    };
    for (store, issuer, sent) in
        [(trusting(&[&root]), &root, vec![]), (trusting(&[&top]), &middle, vec![parse(middle.der())])]
    {
        assert!(store.verify(&named("moon.example.org", issuer), &sent, NOW).is_ok());
        for outside in ["moon.example.com", "moon@example.net"] {
            let result = store.verify(&named(outside, issuer), &sent, NOW);
            assert_eq!(failure(result), ChainFailure::NameConstraint, "{outside}");
        }
    }
}

#[test]
fn unknown_critical_extensions_are_refused() {
    let root = authority("root");
    let mut params = params("moon");
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions = vec![extension];
    assert!(matches!(
        failure(trusting(&[&root]).verify(&peer(&params, &root), &[], NOW)),
        ChainFailure::Unsupported(_)
    ));
}

#[test]
fn a_pinned_certificate_is_trusted_but_is_no_authority() {
    let mut params = params("moon");
    params.not_after = date_time_ymd(2031, 1, 1);
    let moon = CertifiedIssuer::self_signed(params, key()).expect("valid");
    let pinned = parse(moon.der());
    let mut store = TrustStore::default();
    assert!(store.is_empty());
    store.add_peer(pinned.clone());
    assert_eq!(store.verify(&pinned, &[], NOW), Ok(Trusted::Itself));
    let late = store.verify(&pinned, &[], NOW + Duration::from_secs(730 * 86400));
    assert!(matches!(failure(late), ChainFailure::Expired(_)));
    let signed = peer(&self::params("sun"), &moon);
    assert!(store.verify(&signed, std::slice::from_ref(&pinned), NOW).is_err());
    let namesake = CertifiedIssuer::self_signed(self::params("moon"), key()).expect("valid");
    assert!(store.verify(&parse(namesake.der()), &[], NOW).is_err());
}

#[test]
fn damaged_certificates_are_not_trusted() {
    let root = authority("root");
    let good = peer(&params("moon"), &root);
    let store = trusting(&[&root]);
    for at in 0..good.to_der().len() {
        let mut damaged = good.to_der().to_vec();
        damaged[at] ^= 0x01;
        if let Ok(damaged) = Certificate::from_der(&damaged) {
            assert!(store.verify(&damaged, &[], NOW).is_err(), "byte {at}");
        }
        assert!(Certificate::from_der(&good.to_der()[..at]).is_err(), "cut at {at}");
    }
}
