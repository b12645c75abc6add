//! A CA, and certificates of a server and of clients.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    date_time_ymd,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tunnel::openvpn::verify::{Identity, PeerCheck};
use tunnel::openvpn::wrap::Role;

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as DER and as PEM.
pub struct Issued {
    pub der: CertificateDer<'static>,
    pub key: KeyPair,
    pub pem: String,
    pub serial: u64,
}

impl Issued {
    pub fn identity(&self) -> Identity {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("PKCS #8");
        Identity { chain: vec![self.der.clone()], key }
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

impl Authority {
    pub fn new() -> Self {
        let mut params = params("Test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("works");
        Self(CertifiedIssuer::self_signed(params, key).expect("valid"))
    }

    pub fn issue(&self, name: &str, role: Role, serial: u64) -> Issued {
        let mut params = params(name);
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = vec![match role {
            Role::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Role::Server => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("works");
        let certificate = params.signed_by(&key, &self.0).expect("valid");
        Issued { der: certificate.der().clone(), pem: certificate.pem(), key, serial }
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Accepts peers in this role that the CA has issued certificates for.
    pub fn check(&self, peer: Role) -> PeerCheck {
        let mut check = PeerCheck::new(peer);
        check.add_authority(self.0.der()).expect("a CA");
        check.require_purpose();
        check.require_key_usage();
        check
    }

    pub fn revocation_list(&self, revoked: &[&Issued]) -> Vec<u8> {
        let entry = |issued: &&Issued| RevokedCertParams {
            serial_number: SerialNumber::from(issued.serial),
            revocation_time: date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.iter().map(entry).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).expect("valid").der().to_vec()
    }
}
