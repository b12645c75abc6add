//! Makes certificates and revocation lists.

use super::authority::Authority;
use crate::Failure;
use base64ct::{Base64, Encoding};
use clap::ValueEnum;
use crypto::{Random, random};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256, RevokedCertParams, RsaKeySize,
    SerialNumber, date_time_ymd,
};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Peers whose clock is behind accept a new certificate too.
const BEFORE: Duration = Duration::from_secs(3600);
/// Bytes of a serial number: OpenSSL and browsers take up to 20.
const SERIAL: usize = 16;
/// Characters in a line of a PEM file.
const LINE: usize = 64;

/// What a certificate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// A client
    Client,
    /// A server
    Server,
}

/// The kind of a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyType {
    /// The elliptic curve P-256
    Ec,
    /// RSA with 3072 bits
    Rsa,
}

/// A certificate that is to be made.
pub(super) struct Wanted {
    pub(super) common_name: String,
    pub(super) alternative_names: Vec<String>,
    pub(super) is_authority: bool,
    pub(super) purpose: Purpose,
    pub(super) days: u32,
    pub(super) key_type: KeyType,
}

/// A certificate and its key, in DER.
pub(super) struct Made {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Zeroizing<Vec<u8>>,
}

/// Makes a certificate; without an authority, its own key signs it.
pub(super) fn certificate(wanted: &Wanted, signer: Option<&Authority>) -> Result<Made, Failure> {
    let key = match wanted.key_type {
        KeyType::Ec => KeyPair::generate()?,
        KeyType::Rsa => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_3072)?,
    };
    let mut parameters = CertificateParams::new(wanted.alternative_names.clone())?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, wanted.common_name.as_str());
    parameters.not_before = date_time_ymd(1970, 1, 1) + now().saturating_sub(BEFORE);
    parameters.not_after = date_time_ymd(1970, 1, 1) + now() + DAY * wanted.days;
    parameters.serial_number = Some(serial());
    parameters.use_authority_key_identifier_extension = true;
    if wanted.is_authority {
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    } else {
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if wanted.key_type == KeyType::Rsa {
            parameters.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        parameters.extended_key_usages = vec![match wanted.purpose {
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
        }];
    }
    let made = match signer {
        Some(authority) => parameters.signed_by(&key, &authority.issuer()?)?,
        None => parameters.self_signed(&key)?,
    };
    Ok(Made { certificate: made.der().to_vec(), key: Zeroizing::new(key.serialize_der()) })
}

/// Makes a list of these serial numbers.
pub(super) fn revocation_list(
    authority: &Authority,
    serials: BTreeSet<Vec<u8>>,
    days: u32,
) -> Result<Vec<u8>, Failure> {
    let revoked = |serial: Vec<u8>| RevokedCertParams {
        serial_number: SerialNumber::from_slice(&serial),
        revocation_time: date_time_ymd(1970, 1, 1) + now(),
        reason_code: None,
        invalidity_date: None,
    };
    let parameters = CertificateRevocationListParams {
        this_update: date_time_ymd(1970, 1, 1) + now().saturating_sub(BEFORE),
        next_update: date_time_ymd(1970, 1, 1) + now() + DAY * days,
        // It grows: a later list has a later time.
        crl_number: SerialNumber::from(now().as_secs()),
        issuing_distribution_point: None,
        revoked_certs: serials.into_iter().map(revoked).collect(),
        key_identifier_method: authority.key_identifier(),
    };
    Ok(parameters.signed_by(&authority.issuer()?)?.der().to_vec())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A random serial number, which is positive.
fn serial() -> SerialNumber {
    let mut bytes = random::System::default().bytes::<SERIAL>();
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

/// A section of a PEM file.
pub(super) fn pem(label: &str, der: &[u8]) -> String {
    section(label, &Base64::encode_string(der)).to_string()
}

/// A private key in PEM.
pub(super) fn secret_pem(der: &[u8]) -> Zeroizing<String> {
    section("PRIVATE KEY", &Zeroizing::new(Base64::encode_string(der)))
}

/// The same of text in base64.
pub(super) fn section(label: &str, base64: &str) -> Zeroizing<String> {
    // No copy of a key is left behind by growth.
    let mut text = Zeroizing::new(String::with_capacity(2 * base64.len() + 200));
    let _ = writeln!(text, "-----BEGIN {label}-----");
    let mut rest = base64;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(LINE.min(rest.len()));
        let _ = writeln!(text, "{line}");
        rest = after;
    }
    let _ = writeln!(text, "-----END {label}-----");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crypto::pki::Certificate;

    fn wanted(common_name: &str, is_authority: bool, key_type: KeyType) -> Wanted {
        Wanted {
            common_name: common_name.to_owned(),
            alternative_names: Vec::new(),
            is_authority,
            purpose: Purpose::Client,
            days: 10,
            key_type,
        }
    }

    fn authority(common_name: &str) -> Authority {
        let made = certificate(&wanted(common_name, true, KeyType::Ec), None).expect("made");
        Authority::new("pki ca it", &made.certificate, &made.key).expect("its own key")
    }

    #[test]
    fn an_authority_signs_certificates_for_either_key() {
        let authority = authority("users");
        for key_type in [KeyType::Ec, KeyType::Rsa] {
            let made = certificate(&wanted("anna", false, key_type), Some(&authority)).expect("made");
            let read = Certificate::from_der(&made.certificate).expect("valid");
            assert_eq!(
                (read.subject().common_name(), read.issuer().common_name()),
                (Some("anna"), Some("users"))
            );
            assert!(!read.is_authority());
            assert_eq!(read.not_after(), read.not_before() + DAY * 10 + BEFORE);
            let serials = authority.serials_of(pem("CERTIFICATE", &made.certificate).as_bytes(), "it");
            assert_eq!(serials.expect("its own"), [read.serial().to_vec()]);
        }
    }

    #[test]
    fn a_revocation_list_has_the_serials_of_its_authority_alone() {
        let [first, second] = ["users", "others"].map(authority);
        let made = certificate(&wanted("anna", false, KeyType::Ec), Some(&first)).expect("made");
        let file = pem("CERTIFICATE", &made.certificate);
        let serials: BTreeSet<Vec<u8>> =
            first.serials_of(file.as_bytes(), "it").expect("its own").into_iter().collect();
        let refused = second.serials_of(file.as_bytes(), "it").expect_err("foreign").to_string();
        assert!(refused.contains("has not signed it\n  fix: "), "{refused}");
        let list = revocation_list(&first, serials.clone(), 30).expect("made");
        // The next list keeps what this one has.
        let base64 = Base64::encode_string(&list);
        let tree = config::parse(&format!("set pki ca users crl {base64}")).expect("right");
        assert_eq!(first.revoked(&tree).expect("read"), serials);
        assert!(second.revoked(&tree).expect("read").is_empty());
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let [one, other] = [0, 1].map(|_| certificate(&wanted("it", true, KeyType::Ec), None).expect("made"));
        let refused = Authority::new("pki ca it", &one.certificate, &other.key).err().expect("refused");
        assert!(refused.to_string().contains("belongs to another certificate"), "{refused}");
    }
}
