//! Revocation lists of a chain with an intermediate CA.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName,
    DnType, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::time::Duration;
use tunnel::openvpn::verify::PeerCheck;
use tunnel::openvpn::wrap::Role;

#[test]
fn a_revoked_intermediate_authority_is_refused() {
    let params = |name: &str, is_ca| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(if is_ca { 77 } else { 78 }));
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        }
        params
    };
    let list = |revoked: Vec<u64>, issuer: &CertifiedIssuer<'_, KeyPair>| {
        let entry = |serial: u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.into_iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        }
        .signed_by(issuer)
        .expect("valid")
        .der()
        .to_vec()
    };
    let root = CertifiedIssuer::self_signed(params("root", true), KeyPair::generate().expect("works"))
        .expect("valid");
    let between =
        CertifiedIssuer::signed_by(params("between", true), KeyPair::generate().expect("works"), &root)
            .expect("valid");
    let key = KeyPair::generate().expect("works");
    let leaf = params("leaf", false).signed_by(&key, &between).expect("valid");
    let now = rustls_pki_types::UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let found = |lists: &[Vec<u8>]| {
        let mut check = PeerCheck::new(Role::Client);
        check.add_authority(root.der()).expect("a CA");
        for list in lists {
            check.add_list(list).expect("a list");
        }
        check.check(leaf.der(), &[between.der().clone()], now).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(found(&[list(vec![], &root), list(vec![], &between)]), Ok(()));
    let revoked = Err(String::from("it, or a CA of its chain, is revoked"));
    assert_eq!(found(&[list(vec![77], &root), list(vec![], &between)]), revoked);
    assert_eq!(found(&[list(vec![], &root), list(vec![78], &between)]), revoked);
    assert_eq!(found(&[list(vec![], &between)]), Ok(()), "an authority above the issuer may have no list");
    assert_eq!(found(&[list(vec![78], &between)]), revoked);
    let no_list = "the file of crl-verify has no revocation list of its issuer";
    assert_eq!(found(&[list(vec![], &root)]), Err(String::from(no_list)));
    assert!(found(&[list(vec![77], &root)]).is_err());
}
