//! Certificates, and what is required of them.

use super::super::name_fields::UnknownField;
use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::time::Duration;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("works")).expect("valid")
}

fn issue(authority: &Authority, purpose: Option<ExtendedKeyUsagePurpose>) -> CertificateDer<'static> {
    issue_with(authority, purpose, &[])
}

fn issue_with(
    authority: &Authority,
    purpose: Option<ExtendedKeyUsagePurpose>,
    usages: &[KeyUsagePurpose],
) -> CertificateDer<'static> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "berlin-1");
    params.distinguished_name.push(DnType::OrganizationName, "Example, Inc.");
    params.extended_key_usages = purpose.into_iter().collect();
    params.key_usages = usages.to_vec();
    let key = KeyPair::generate().expect("works");
    params.signed_by(&key, authority).expect("valid").der().clone()
}

fn server_check(authority: &Authority) -> PeerCheck {
    let mut check = PeerCheck::new(Role::Server);
    check.add_authority(authority.der()).expect("a CA");
    check
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000))
}

#[test]
fn the_purpose_counts_if_it_is_there_or_is_required() {
    let authority = authority();
    let mut check = server_check(&authority);
    let with = |purpose| issue(&authority, purpose);
    let [server, client, none] = [
        with(Some(ExtendedKeyUsagePurpose::ServerAuth)),
        with(Some(ExtendedKeyUsagePurpose::ClientAuth)),
        with(None),
    ];
    let accepts = |check: &PeerCheck, own| check.check(own, &[], now()).is_ok();
    assert!(accepts(&check, &server) && accepts(&check, &none) && !accepts(&check, &client));
    check.require_purpose();
    assert!(accepts(&check, &server) && !accepts(&check, &none) && !accepts(&check, &client));
    let error = check.check(&client, &[], now()).expect_err("a client").to_string();
    assert!(error.contains("remote-cert-tls requires serverAuth"), "{error}");
}

#[test]
fn the_key_usage_counts_if_it_is_there_or_is_required() {
    use KeyUsagePurpose::{DigitalSignature, KeyAgreement, KeyCertSign, KeyEncipherment};
    let authority = authority();
    for (usages, as_server, as_client, if_required) in [
        (&[][..], true, true, false),
        (&[DigitalSignature], true, true, true),
        (&[KeyAgreement], true, true, true),
        (&[KeyEncipherment], true, false, true),
        (&[KeyCertSign], false, false, false),
    ] {
        let own = issue_with(&authority, None, usages);
        for (role, expected) in [(Role::Server, as_server), (Role::Client, as_client)] {
            let mut check = PeerCheck::new(role);
            check.add_authority(authority.der()).expect("a CA");
            assert_eq!(check.check(&own, &[], now()).is_ok(), expected, "{role:?} {usages:?}");
            check.require_key_usage();
            assert_eq!(check.check(&own, &[], now()).is_ok(), expected && if_required, "{role:?} {usages:?}");
        }
    }
}

#[test]
fn names_are_compared_whole_or_by_prefix() {
    let authority = authority();
    let own = issue(&authority, None);
    for (name, expected) in [
        (NameCheck::Exactly("berlin-1".into()), true),
        (NameCheck::Exactly("berlin".into()), false),
        (NameCheck::Prefix("berlin-".into()), true),
        (NameCheck::Prefix("paris-".into()), false),
        (NameCheck::Subject("CN=berlin-1, O=Example, Inc.".into()), true),
        (NameCheck::Subject("CN=berlin-1".into()), false),
    ] {
        let mut check = server_check(&authority);
        check.require_name(name.clone());
        assert_eq!(check.check(&own, &[], now()).is_ok(), expected, "{name:?}");
    }
}

#[test]
fn the_name_may_be_made_of_other_fields_which_must_be_there() {
    let authority = authority();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "anna");
    params.distinguished_name.push(DnType::OrganizationalUnitName, "sales");
    params
        .distinguished_name
        .push(DnType::CustomDnType(vec![1, 2, 840, 113_549, 1, 9, 1]), "anna@example.org");
    let address = |text: &str| rcgen::SanType::Rfc822Name(text.try_into().expect("ASCII"));
    params.subject_alt_names = vec![address("first@example.org"), address("last@example.org")];
    params.serial_number = Some(rcgen::SerialNumber::from(vec![0x1a, 0x2b, 0x3c]));
    let key = KeyPair::generate().expect("works");
    let own = params.signed_by(&key, &authority).expect("valid").der().clone();
    // As OpenVPN 2.6.14 names them.
    for (fields, expected) in [
        (vec![], Ok("anna")),
        (vec!["CN", "serialNumber"], Ok("anna_0x1A2B3C")),
        (vec!["emailAddress"], Ok("anna@example.org")),
        (vec!["ext:subjectAltName"], Ok("last@example.org")),
        (vec!["ou", "CN"], Ok("sales_anna")),
        (vec!["2.5.4.11"], Ok("sales")),
        (vec!["CN", "L"], Err("L")),
    ] {
        let fields: Vec<String> = fields.into_iter().map(str::to_owned).collect();
        let fields = NameFields::new(&fields).expect("they are known");
        let certificate = Certificate::from_der(&own).expect("valid");
        assert_eq!(fields.name(&certificate).as_deref().map_err(String::as_str), expected);
        for required in ["anna", "sales", "anna@example.org", "last@example.org"] {
            let mut check = server_check(&authority);
            check.set_name_fields(fields.clone());
            check.require_name(NameCheck::Exactly(required.to_owned()));
            assert_eq!(check.check(&own, &[], now()).is_ok(), expected == Ok(required), "{fields:?}");
        }
    }
    for unknown in ["ext:issuerAltName", "ext:x", "any field"] {
        assert_eq!(NameFields::new(&[unknown.to_owned()]), Err(UnknownField(unknown.to_owned())));
    }
}

#[test]
fn a_fingerprint_alone_or_beside_a_ca() {
    let (ours, theirs) = (authority(), authority());
    let own = issue(&ours, None);
    let mut check = PeerCheck::new(Role::Server);
    check.add_fingerprint(hash::sha256(&[&own]));
    assert_eq!(check.check(&own, &[], now()), Ok(()));
    let other = check.check(&issue(&ours, None), &[], now());
    assert!(matches!(other, Err(Refusal::Fingerprint(text)) if text.len() == 95));
    check.add_authority(theirs.der()).expect("a CA");
    assert!(check.check(&own, &[], now()).is_err(), "of another CA");
}

#[test]
fn no_certificate_is_accepted_without_a_ca_or_a_fingerprint() {
    let own = issue(&authority(), None);
    assert!(PeerCheck::new(Role::Server).check(&own, &[], now()).is_err());
}

#[test]
fn the_bits_of_the_key_usage_and_the_issuer_are_checked_if_they_are_wanted() {
    use KeyUsagePurpose::{DigitalSignature, KeyEncipherment};
    let authority = authority();
    let own = issue_with(&authority, None, &[DigitalSignature, KeyEncipherment]);
    for (usages, is_accepted) in
        [(&[0xa0][..], true), (&[0x80], true), (&[0x08, 0xa0], true), (&[0xa8, 0x01], false)]
    {
        let mut check = server_check(&authority);
        check.require_key_usages(usages);
        assert_eq!(check.check(&own, &[], now()).is_ok(), is_accepted, "{usages:02x?}");
    }
    let of = |der: &CertificateDer<'_>| hash::sha256(&[der]);
    for (fingerprint, is_accepted) in [(of(authority.der()), true), (of(&own), false), ([7; 32], false)] {
        let mut check = server_check(&authority);
        check.add_issuer(fingerprint);
        assert_eq!(check.check(&own, &[], now()).is_ok(), is_accepted);
    }
}
