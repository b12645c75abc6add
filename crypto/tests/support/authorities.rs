//! CAs, certificates and CRLs generated for tests.

use crypto::pki::Certificate;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::time::Duration;

/// January 1, 2030.
pub const NOW: Duration = Duration::from_secs(1_893_456_000);

pub type Authority = CertifiedIssuer<'static, KeyPair>;

pub fn key() -> KeyPair {
    KeyPair::generate().expect("P-256 is there")
}

pub fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CountryName, "CH");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

pub fn authority_params(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

pub fn authority(name: &str) -> Authority {
    CertifiedIssuer::self_signed(authority_params(name), key()).expect("valid")
}

pub fn parse(der: &[u8]) -> Certificate {
    Certificate::from_der(der).expect("ours")
}

/// The parameters of a CRL with these serial numbers, valid for one year.
pub fn list_params(serials: &[u64], year: i32) -> CertificateRevocationListParams {
    let revoked = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(year, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    CertificateRevocationListParams {
        this_update: date_time_ymd(year, 1, 1),
        next_update: date_time_ymd(year + 1, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(revoked).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    }
}
