//! Verification of the peer's certificate: by CA, purpose, name, revocation lists and fingerprints.
//!
//! OpenVPN does not compare a server's host name, so that the verifiers of rustls do not fit. rustls-webpki builds the
//! chain. It is stricter than OpenSSL: certificates of version 1, signatures with SHA-1, and RSA keys below 2048 bits are
//! refused, with a sentence that names it.

mod configuration;
mod plain_lists;
#[cfg(test)]
mod tests;

pub use configuration::*;

use super::name_fields::NameFields;
use super::wrap::Role;
use crypto::hash;
use crypto::pki::{self, Certificate, PlainList};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};
use std::sync::Arc;
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, ExpirationPolicy, KeyUsage,
    RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};

/// Object identifiers of extended key usages, without tag and length.
const SERVER_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 1];
const CLIENT_AUTH: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];

/// Why a peer's certificate is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// rustls-webpki refuses it, or its chain.
    #[error("{}", sentence(.0))]
    Chain(webpki::Error),
    /// `verify-x509-name` does not match.
    #[error("its name is {found:?}, but verify-x509-name requires {required:?}")]
    Name {
        /// What the certificate has.
        found: String,
        /// What is configured.
        required: String,
    },
    /// It has not this field of `x509-username-field`.
    #[error("it has no {0} of at most 64 bytes, of which x509-username-field makes its name")]
    Field(String),
    /// `peer-fingerprint` does not match.
    #[error(
        "its fingerprint {0} is not among the configured ones: add it to peer-fingerprint if you trust it"
    )]
    Fingerprint(String),
    /// The key usage does not fit, or is missing although `remote-cert-tls` requires one.
    #[error(
        "its key usage {0}: issue it again with digitalSignature, and keyEncipherment for a server, as easy-rsa does"
    )]
    KeyUsage(&'static str),
    /// The key usage has none of the values of `remote-cert-ku`.
    #[error("its key usage is {0:02x}, which has all bits of no value of remote-cert-ku")]
    OtherKeyUsage(u16),
    /// `verify-hash` does not match.
    #[error("verify-hash does not have the fingerprint of the CA that has issued it")]
    Issuer,
    /// It cannot be parsed, or its key cannot be used.
    #[error("{0}")]
    Malformed(pki::CertificateError),
}

impl From<webpki::Error> for Refusal {
    fn from(error: webpki::Error) -> Self {
        Self::Chain(error)
    }
}

/// What is wrong, and what to do.
pub(super) fn sentence(error: &webpki::Error) -> String {
    use webpki::Error as E;
    String::from(match error {
        E::UnsupportedCertVersion => {
            "it is an X.509 certificate of version 1 or 2: issue one of version 3, as easy-rsa does"
        }
        E::UnsupportedSignatureAlgorithmContext(_)
        | E::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => {
            "its chain is signed with an algorithm that is not supported, such as RSA with SHA-1 or MD5: issue it again \
             with SHA-256"
        }
        E::InvalidSignatureForPublicKey => {
            "a signature of its chain is wrong, or made with an RSA key below 2048 bits, which is not supported"
        }
        E::CertExpired { .. } => "it, or a CA of its chain, has expired",
        E::CertNotValidYet { .. } => "it is not valid yet: check the clocks of both sides",
        E::CertRevoked => "it, or a CA of its chain, is revoked",
        E::CrlExpired { .. } => "the revocation list has expired: generate it again and replace the file",
        E::UnknownRevocationStatus => "the file of crl-verify has no revocation list of its issuer",
        E::UnknownIssuer => "no CA that is trusted here has issued it",
        E::RequiredEkuNotFoundContext(_) => {
            "its extended key usage does not fit: remote-cert-tls requires serverAuth of a server and clientAuth of a \
             client"
        }
        E::UnsupportedCriticalExtension => "it has a critical extension that is not supported",
        E::CaUsedAsEndEntity => "it is a CA certificate, which cannot identify a peer",
        other => return other.to_string(),
    })
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        use webpki::Error as E;
        // These have alerts of their own, which tell the peer the reason.
        Self::InvalidCertificate(match refusal {
            Refusal::Chain(E::CertRevoked) => CertificateError::Revoked,
            Refusal::Chain(E::CertExpired { .. }) => CertificateError::Expired,
            Refusal::Chain(E::UnknownIssuer) => CertificateError::UnknownIssuer,
            other => CertificateError::Other(OtherError(Arc::new(other))),
        })
    }
}

/// `verify-x509-name` about the common name, or the whole subject.
#[derive(Clone, Debug)]
pub enum NameCheck {
    /// It is this.
    Exactly(String),
    /// It begins with this.
    Prefix(String),
    /// The subject is this, as OpenVPN writes it: `C=DE, O=Example, CN=vpn`.
    Subject(String),
}

impl NameCheck {
    fn check(&self, certificate: &Certificate, name: String) -> Result<(), Refusal> {
        let (found, required) = match self {
            Self::Exactly(required) | Self::Prefix(required) => (name, required),
            Self::Subject(required) => (certificate.subject().to_openssl(), required),
        };
        let matches = match self {
            Self::Exactly(_) | Self::Subject(_) => found == *required,
            Self::Prefix(prefix) => found.starts_with(prefix.as_str()),
        };
        if matches { Ok(()) } else { Err(Refusal::Name { found, required: required.clone() }) }
    }
}

/// Which certificates are accepted.
#[derive(Debug)]
pub struct PeerCheck {
    /// What the peer is.
    peer: Role,
    authorities: Vec<TrustAnchor<'static>>,
    lists: Vec<CertRevocationList<'static>>,
    /// Lists without extensions.
    plain_lists: Vec<PlainList>,
    requires_purpose: bool,
    requires_key_usage: bool,
    name: Option<NameCheck>,
    name_fields: NameFields,
    fingerprints: Vec<[u8; 32]>,
    /// The key usages of which one is required.
    key_usages: Vec<u16>,
    /// The fingerprints of which the issuer has one.
    issuers: Vec<[u8; 32]>,
    /// The certificates of the authorities.
    known: Vec<CertificateDer<'static>>,
    /// Whether a client needs no certificate.
    is_optional: bool,
    subjects: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PeerCheck {
    /// Accepts no certificate yet. `peer`: what the peer is.
    pub fn new(peer: Role) -> Self {
        Self {
            peer,
            authorities: Vec::new(),
            lists: Vec::new(),
            plain_lists: Vec::new(),
            requires_purpose: false,
            requires_key_usage: false,
            name: None,
            name_fields: NameFields::default(),
            fingerprints: Vec::new(),
            key_usages: Vec::new(),
            issuers: Vec::new(),
            known: Vec::new(),
            is_optional: false,
            subjects: Vec::new(),
            algorithms: aws_lc_rs::default_provider().signature_verification_algorithms,
        }
    }

    /// Accepts certificates issued by this CA (`ca`).
    pub fn add_authority(&mut self, der: &CertificateDer<'_>) -> Result<(), Refusal> {
        let anchor = webpki::anchor_from_trusted_cert(der)?.to_owned();
        self.subjects.push(DistinguishedName::in_sequence(&anchor.subject));
        self.authorities.push(anchor);
        self.known.push(der.clone().into_owned());
        Ok(())
    }

    /// Refuses what this list revokes (`crl-verify`). With lists, the issuer of the peer's certificate needs one; CAs above
    /// it may have none.
    pub fn add_list(&mut self, der: &[u8]) -> Result<(), Refusal> {
        match BorrowedCertRevocationList::from_der(der).and_then(|list| list.to_owned()) {
            Ok(list) => self.lists.push(list.into()),
            // Version 1.
            Err(error) => self.plain_lists.push(PlainList::from_der(der).map_err(|_| error)?),
        }
        Ok(())
    }

    /// Requires the extended key usage of the peer's side (`remote-cert-tls`, `remote-cert-eku`).
    pub fn require_purpose(&mut self) {
        self.requires_purpose = true;
    }

    /// Requires a key usage (`remote-cert-tls`). One that is there must fit in any case.
    pub fn require_key_usage(&mut self) {
        self.requires_key_usage = true;
    }

    /// Requires all bits of one of these key usages (`remote-cert-ku`).
    pub fn require_key_usages(&mut self, usages: &[u16]) {
        self.key_usages.extend(usages);
    }

    /// Accepts the certificate of an issuer with this SHA-256 fingerprint (`verify-hash`). Without one, any CA does.
    pub fn add_issuer(&mut self, fingerprint: [u8; 32]) {
        self.issuers.push(fingerprint);
    }

    /// Requires a name (`verify-x509-name`).
    pub fn require_name(&mut self, name: NameCheck) {
        self.name = Some(name);
    }

    /// Takes the name from these fields, which the certificate must have (`x509-username-field`).
    pub fn set_name_fields(&mut self, fields: NameFields) {
        self.name_fields = fields;
    }

    /// Accepts the certificate with this SHA-256 fingerprint (`peer-fingerprint`). Without a CA, that alone decides.
    pub fn add_fingerprint(&mut self, fingerprint: [u8; 32]) {
        self.fingerprints.push(fingerprint);
    }

    /// Accepts clients without a certificate (`verify-client-cert optional` and `none`).
    pub fn make_optional(&mut self) {
        self.is_optional = true;
    }

    /// Checks a peer's certificate, and its chain.
    pub fn check(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Refusal> {
        let end_entity = EndEntityCert::try_from(own)?;
        if !self.fingerprints.is_empty() {
            let fingerprint = hash::sha256(&[own]);
            if !self.fingerprints.contains(&fingerprint) {
                let bytes: Vec<String> = fingerprint.iter().map(|byte| format!("{byte:02X}")).collect();
                return Err(Refusal::Fingerprint(bytes.join(":")));
            }
        }
        let has_chain = self.fingerprints.is_empty() || !self.authorities.is_empty();
        if has_chain {
            self.check_chain(own, &end_entity, between, now)?;
        }
        // The length of its key, among others: TLS would refuse the key's signatures without naming it.
        let certificate = Certificate::from_der(own).map_err(Refusal::Malformed)?;
        if has_chain && !certificate.may_authenticate_tls(self.peer == Role::Server) {
            return Err(Refusal::KeyUsage("is not for TLS"));
        }
        if self.requires_key_usage && !certificate.has_key_usage() {
            return Err(Refusal::KeyUsage("is missing, and remote-cert-tls requires one"));
        }
        let usage = certificate.key_usage();
        if !self.key_usages.is_empty() && self.key_usages.iter().all(|wanted| usage & wanted != *wanted) {
            return Err(Refusal::OtherKeyUsage(usage));
        }
        if !self.issuers.is_empty() && !self.is_of_issuer(&certificate, between) {
            return Err(Refusal::Issuer);
        }
        let name = self.name_fields.name(&certificate).map_err(Refusal::Field)?;
        self.name.as_ref().map_or(Ok(()), |required| required.check(&certificate, name))?;
        Ok(())
    }

    /// Whether one of the issuers that are wanted has signed it.
    fn is_of_issuer(&self, own: &Certificate, between: &[CertificateDer<'_>]) -> bool {
        let all = self.known.iter().chain(between);
        let mut wanted = all.filter(|der| self.issuers.contains(&hash::sha256(&[der])));
        wanted.any(|der| {
            let issuer = Certificate::from_der(der);
            issuer.is_ok_and(|issuer| issuer.subject() == own.issuer() && own.is_signed_by(&issuer))
        })
    }

    fn check_chain(
        &self,
        own: &CertificateDer<'_>,
        end_entity: &EndEntityCert<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Refusal> {
        let usage = match (self.peer, self.requires_purpose) {
            (Role::Server, true) => KeyUsage::required(SERVER_AUTH),
            (Role::Server, false) => KeyUsage::required_if_present(SERVER_AUTH),
            (Role::Client, true) => KeyUsage::required(CLIENT_AUTH),
            (Role::Client, false) => KeyUsage::required_if_present(CLIENT_AUTH),
        };
        let lists: Vec<&CertRevocationList<'_>> = self.lists.iter().collect();
        let verify = |depth, unknown| {
            let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
                let builder = builder.with_depth(depth).with_status_policy(unknown);
                builder.with_expiration_policy(ExpirationPolicy::Enforce).build()
            });
            let (all, anchors) = (self.algorithms.all, &self.authorities);
            end_entity.verify_for_usage(all, anchors, between, now, usage, revocation, None)
        };
        if !self.plain_lists.is_empty() {
            let path = verify(RevocationCheckDepth::Chain, UnknownStatusPolicy::Allow)?;
            let chain = plain_lists::chain(own, &path, &self.authorities, &self.known);
            if !plain_lists::cover(&self.plain_lists, &chain, now)? {
                if lists.is_empty() {
                    return Err(webpki::Error::UnknownRevocationStatus.into());
                }
                verify(RevocationCheckDepth::EndEntity, UnknownStatusPolicy::Deny)?;
            }
            return Ok(());
        }
        let mut verified = verify(RevocationCheckDepth::Chain, UnknownStatusPolicy::Deny);
        if matches!(verified, Err(webpki::Error::UnknownRevocationStatus)) {
            // Many who run an intermediate CA have no list of the root. OpenVPN goes on without any list; here, the issuer of
            // the peer's own certificate must have one.
            verified = verify(RevocationCheckDepth::Chain, UnknownStatusPolicy::Allow)
                .and_then(|_| verify(RevocationCheckDepth::EndEntity, UnknownStatusPolicy::Deny));
        }
        verified?;
        Ok(())
    }
}

impl ServerCertVerifier for PeerCheck {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(own, between, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, own, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, own, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for PeerCheck {
    fn client_auth_mandatory(&self) -> bool {
        !self.is_optional
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn verify_client_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(own, between, now)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, own, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, own, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
