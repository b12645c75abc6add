//! Revocation lists of a chain with an intermediate CA.

use rcgen::SigningKey;
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

/// The end of a list that is valid.
const LATE: &str = "491231235959Z";

/// A value of DER.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u8::try_from(content.len()).expect("short");
    let header = if length < 128 { vec![tag, length] } else { vec![tag, 0x81, length] };
    [header, content].concat()
}

/// A list of version 1, as OpenSSL makes it without a section of extensions.
fn version_1(issuer: &str, key: &KeyPair, revoked: &[u8], until: &str, more: &[u8]) -> Vec<u8> {
    let algorithm = tlv(0x30, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let name = tlv(0x30, &[&[6, 3, 0x55, 4, 3], &tlv(0x0c, &[issuer.as_bytes()])]);
    let name = tlv(0x30, &[&tlv(0x31, &[&name])]);
    let [since, until] = ["200101000000Z", until].map(|time| tlv(0x17, &[time.as_bytes()]));
    let entry = |serial: &u8| tlv(0x30, &[&tlv(2, &[&[*serial]]), &since]);
    let entries: Vec<u8> = revoked.iter().flat_map(entry).collect();
    let entries = if entries.is_empty() { entries } else { tlv(0x30, &[&entries]) };
    let body = tlv(0x30, &[&algorithm, &name, &since, &until, &entries, more]);
    let signature = key.sign(&body).expect("it can sign");
    tlv(0x30, &[&body, &algorithm, &tlv(3, &[&[0], &signature])])
}

#[test]
fn a_list_of_version_1_revokes_with_the_signature_of_its_issuer_alone() {
    let params = |name: &str, is_ca| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(if is_ca { 77u64 } else { 78 }));
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        }
        params
    };
    let key = || KeyPair::generate().expect("works");
    let root = CertifiedIssuer::self_signed(params("root", true), key()).expect("valid");
    let between = CertifiedIssuer::signed_by(params("between", true), key(), &root).expect("valid");
    let leaf = params("leaf", false).signed_by(&key(), &between).expect("valid");
    let now = rustls_pki_types::UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let found = |lists: &[Vec<u8>]| {
        let mut check = PeerCheck::new(Role::Client);
        check.add_authority(root.der()).expect("a CA");
        for list in lists {
            check.add_list(list).expect("a list");
        }
        check.check(leaf.der(), &[between.der().clone()], now).map_err(|refusal| refusal.to_string())
    };
    let of_between = |revoked: &[u8]| version_1("between", between.key(), revoked, LATE, &[]);
    let of_root = |revoked: &[u8]| version_1("root", root.key(), revoked, LATE, &[]);
    let revoked = Err(String::from("it, or a CA of its chain, is revoked"));
    let no_list = Err(String::from("the file of crl-verify has no revocation list of its issuer"));
    assert_eq!(found(&[of_between(&[])]), Ok(()));
    assert_eq!(found(&[of_between(&[1, 77])]), Ok(()), "77 is of the root");
    assert_eq!(found(&[of_between(&[1, 78])]), revoked);
    assert_eq!(found(&[of_between(&[]), of_root(&[77])]), revoked);
    assert_eq!(found(&[of_root(&[])]), no_list);
    // The name of the issuer, and the key of another: it neither revokes nor admits.
    let forged = version_1("between", &key(), &[78], LATE, &[]);
    assert_eq!(found(std::slice::from_ref(&forged)), no_list);
    assert_eq!(found(&[forged, of_between(&[])]), Ok(()));
    let old = version_1("between", between.key(), &[], "210101000000Z", &[]);
    let expired = "the revocation list has expired: generate it again and replace the file";
    assert_eq!(found(&[old]), Err(String::from(expired)));
    // Extensions may change what a list means.
    let partial = version_1("between", between.key(), &[], LATE, &tlv(0xa0, &[&tlv(0x30, &[])]));
    let whole = of_between(&[78]);
    let mut check = PeerCheck::new(Role::Client);
    for list in [&partial[..], &whole[..whole.len() - 1], &whole[..20], &[][..]] {
        assert!(check.add_list(list).is_err(), "{list:02x?}");
    }
}
