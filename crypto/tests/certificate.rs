//! Parsing of certificates made with OpenSSL, and of files without certificates.

use crypto::pki::{
    AlternativeName, Certificate, CertificateError, Identity, RevocationListError, TrustStore,
};
use crypto::signature::KeyKind;

const ROOT: &[u8] = include_bytes!("certificates/root.pem");
const MOON: &[u8] = include_bytes!("certificates/moon.pem");

#[test]
fn a_certificate_of_openssl_is_read() {
    let [moon] = &Certificate::from_file(MOON).expect("PEM")[..] else { panic!("there is one") };
    assert_eq!(moon.subject().to_string(), "C=CH, O=strongSwan, OU=Gateway\\, \\\"east\\\", CN=moon");
    assert_eq!(moon.issuer().to_string(), "C=CH, O=strongSwan, CN=strongSwan Root");
    assert_eq!(moon.serial(), [0x10, 0x01]);
    assert_eq!(moon.key().kind(), KeyKind::Rsa { bits: 2048 });
    assert_eq!(moon.key_hash()[..4], [0x0a, 0xf2, 0x86, 0xb1]);
    assert!(!moon.is_authority() && !moon.is_self_issued());
    assert_eq!(
        moon.names(),
        [
            AlternativeName::Domain("moon.strongswan.example".into()),
            AlternativeName::Email("moon@strongswan.example".into()),
            AlternativeName::Address([192, 0, 2, 1].into()),
            AlternativeName::Address("2001:db8::1".parse().expect("literal")),
            AlternativeName::Name("C=CH, CN=other moon".parse().expect("literal")),
        ]
    );
}

#[test]
fn a_certificate_holds_its_names_and_no_others() {
    let moon = Certificate::from_file(MOON).expect("PEM").remove(0);
    for held in [
        "moon.strongswan.example",
        "MOON.strongSwan.Example",
        "moon@strongswan.example",
        "192.0.2.1",
        "2001:db8::1",
        "C=CH, O=strongSwan, OU=\"Gateway, \\\"east\\\"\", CN=moon",
        "C=CH, CN=other moon",
        "@#7deda786648ea46218334a79c115a097c58ea207",
        "@#0af286b1d4c4ab9327dc3768681ef91901a954b7",
    ] {
        assert!(moon.holds(&held.parse::<Identity>().expect("an identity")), "{held}");
    }
    for foreign in [
        "strongswan.example",
        "sun.moon.strongswan.example",
        "fqdn:moon",
        "fqdn:192.0.2.1",
        "Moon@strongswan.example",
        "fqdn:moon@strongswan.example",
        "192.0.2.2",
        "::ffff:192.0.2.1",
        "C=CH, O=strongSwan, CN=moon",
        "CN=moon",
        "@#7deda786648ea46218334a79c115a097c58ea2",
        "keyid:moon",
    ] {
        assert!(!moon.holds(&foreign.parse::<Identity>().expect("an identity")), "{foreign}");
    }
}

#[test]
fn files_without_certificates_say_what_they_have() {
    let other = Certificate::from_file(include_bytes!("keys/ed25519.pem")).expect_err("a key");
    assert_eq!(other, CertificateError::OtherContent("PRIVATE KEY".to_owned()));
    let refused = TrustStore::default().add_revocation_lists(MOON).expect_err("a certificate");
    assert_eq!(refused, RevocationListError::OtherContent("CERTIFICATE".to_owned()));
    assert!(Certificate::from_file(b"").is_err());
    assert!(matches!(Certificate::from_der(&vec![0x30; 70_000]), Err(CertificateError::TooLong { .. })));
    let both = [ROOT, MOON].concat();
    assert_eq!(Certificate::from_file(&both).expect("PEM").len(), 2);
}
