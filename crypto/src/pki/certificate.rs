//! X.509 certificates: parsing, and access to the fields that IKEv2 needs.

use super::identity::{is_same_domain, is_same_email};
use super::signed::Signed;
use super::{DistinguishedName, Identity};
use crate::pem::{self, PemError};
use crate::signature::{KeyError, VerifyingKey};
use aws_lc_rs::digest;
use der::asn1::ObjectIdentifier;
use der::{DateTime, Decode, Encode};
use rustls_pki_types::CertificateDer;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AuthorityInfoAccessSyntax, BasicConstraints, CrlDistributionPoints, ExtendedKeyUsage, KeyUsage,
    SubjectAltName, SubjectKeyIdentifier,
};

/// Why a certificate cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The file cannot be parsed.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The file is PEM, but has no certificate; the labels that it has.
    #[error("no certificate found, only: {0}")]
    OtherContent(String),
    /// The certificate is too long.
    #[error("a certificate may have at most {limit} bytes, this one has {found}")]
    TooLong {
        /// The maximum length in bytes.
        limit: usize,
        /// The length in bytes.
        found: usize,
    },
    /// Not the DER of a certificate (RFC 5280).
    #[error("the certificate is malformed: {0}")]
    Malformed(String),
    /// The certificate's public key cannot be used.
    #[error("the certificate of {subject} is not usable: {error}")]
    Key {
        /// The subject.
        subject: DistinguishedName,
        /// Why the key cannot be used.
        error: KeyError,
    },
}

/// A subject alternative name (RFC 5280, section 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// dNSName.
    Domain(String),
    /// rfc822Name: an e-mail address.
    Email(String),
    /// iPAddress.
    Address(IpAddr),
    /// directoryName.
    Name(DistinguishedName),
}

/// A parsed X.509 certificate. Nothing in it is verified.
#[derive(Clone)]
pub struct Certificate {
    der: CertificateDer<'static>,
    subject: DistinguishedName,
    issuer: DistinguishedName,
    serial: Vec<u8>,
    not_before: DateTime,
    not_after: DateTime,
    key: VerifyingKey,
    names: Vec<AlternativeName>,
    extensions: Extensions,
    list_urls: Vec<String>,
    status_urls: Vec<String>,
}

/// The extensions that are used.
#[derive(Clone, Default)]
struct Extensions {
    names: Option<SubjectAltName>,
    constraints: Option<BasicConstraints>,
    usage: Option<KeyUsage>,
    key_id: Option<SubjectKeyIdentifier>,
    /// Extended key usage; empty if absent or malformed.
    purposes: Vec<ObjectIdentifier>,
    /// CRL distribution points and authority information access; empty if absent or malformed.
    lists: CrlDistributionPoints,
    access: AuthorityInfoAccessSyntax,
}

/// The maximum length of a certificate: no IKEv2 payload is longer.
const MOST_BYTES: usize = u16::MAX as usize;

impl Certificate {
    /// Reads all certificates of a file: PEM with any number of them, DER, or bare base64.
    pub fn from_file(bytes: &[u8]) -> Result<Vec<Self>, CertificateError> {
        let sections = pem::read(bytes)?;
        let is_certificate =
            |label: &str| matches!(label, "" | "CERTIFICATE" | "X509 CERTIFICATE" | "TRUSTED CERTIFICATE");
        let found: Vec<_> = sections.iter().filter(|section| is_certificate(&section.label)).collect();
        if found.is_empty() {
            let labels: Vec<&str> = sections.iter().map(|section| section.label.as_str()).collect();
            return Err(CertificateError::OtherContent(labels.join(", ")));
        }
        found.into_iter().map(|section| Self::from_der(section.der.expose())).collect()
    }

    /// Parses a certificate in DER, as in a CERT payload of encoding 4.
    pub fn from_der(bytes: &[u8]) -> Result<Self, CertificateError> {
        if bytes.len() > MOST_BYTES {
            return Err(CertificateError::TooLong { limit: MOST_BYTES, found: bytes.len() });
        }
        let malformed = |error: der::Error| CertificateError::Malformed(error.to_string());
        let parsed = x509_cert::Certificate::from_der(bytes).map_err(malformed)?;
        let parsed = parsed.tbs_certificate();
        let name = |name: &x509_cert::name::Name| {
            let der = name.to_der().map_err(malformed)?;
            DistinguishedName::from_der(&der).map_err(|error| CertificateError::Malformed(error.to_string()))
        };
        let subject = name(parsed.subject())?;
        let info = parsed.subject_public_key_info().to_der().map_err(malformed)?;
        let key = VerifyingKey::from_info(&info)
            .map_err(|error| CertificateError::Key { subject: subject.clone(), error })?;
        let extensions = Extensions::read(parsed.extensions().map_or(&[], Vec::as_slice))?;
        Ok(Self {
            der: CertificateDer::from(bytes.to_vec()),
            issuer: name(parsed.issuer())?,
            serial: parsed.serial_number().as_bytes().to_vec(),
            not_before: parsed.validity().not_before.to_date_time(),
            not_after: parsed.validity().not_after.to_date_time(),
            key,
            list_urls: extensions.list_urls(),
            status_urls: extensions.status_urls(),
            names: extensions.names.iter().flat_map(|names| &names.0).filter_map(alternative_name).collect(),
            extensions,
            subject,
        })
    }

    /// The DER.
    pub fn to_der(&self) -> &[u8] {
        &self.der
    }

    pub(super) fn as_webpki(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The subject.
    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// The issuer.
    pub fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    /// The serial number.
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// notBefore, as time since 1970.
    pub fn not_before(&self) -> Duration {
        self.not_before.unix_duration()
    }

    /// notAfter, as time since 1970.
    pub fn not_after(&self) -> Duration {
        self.not_after.unix_duration()
    }

    /// The subject's public key.
    pub fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// The subject alternative names of the supported types.
    pub fn names(&self) -> &[AlternativeName] {
        &self.names
    }

    /// SHA-1 of the SubjectPublicKeyInfo, by which a CERTREQ payload names a CA (RFC 7296, section 3.7).
    pub fn key_hash(&self) -> [u8; 20] {
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.key.info());
        hash.as_ref().try_into().expect("SHA-1 has 20 bytes")
    }

    /// Whether it is a CA certificate: basic constraints and key usage allow it to sign certificates.
    pub fn is_authority(&self) -> bool {
        let constraints = self.extensions.constraints.as_ref();
        constraints.is_some_and(|it| it.ca)
            && self.extensions.usage.as_ref().is_none_or(KeyUsage::key_cert_sign)
    }

    /// Whether there is a key usage extension (RFC 5280, section 4.2.1.3).
    pub fn has_key_usage(&self) -> bool {
        self.extensions.usage.is_some()
    }

    /// The key usage, with digitalSignature as 0x80, as OpenVPN writes it; 0 without one.
    pub fn key_usage(&self) -> u16 {
        let Some(usage) = &self.extensions.usage else { return 0 };
        let bits = [
            usage.digital_signature(),
            usage.non_repudiation(),
            usage.key_encipherment(),
            usage.data_encipherment(),
            usage.key_agreement(),
            usage.key_cert_sign(),
            usage.crl_sign(),
            usage.encipher_only(),
        ];
        bits.into_iter().enumerate().map(|(place, is_set)| if is_set { 0x80 >> place } else { 0 }).sum()
    }

    /// Whether the key usage, if there is one, allows the key to authenticate this end of TLS. As in OpenSSL, a server may
    /// also have keyEncipherment alone.
    pub fn may_authenticate_tls(&self, is_server: bool) -> bool {
        self.extensions.usage.as_ref().is_none_or(|usage| {
            usage.digital_signature() || usage.key_agreement() || is_server && usage.key_encipherment()
        })
    }

    /// Whether issuer and subject are the same name.
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Whether the issuer's key has signed it, with an algorithm that is not weak.
    pub fn is_signed_by(&self, issuer: &Self) -> bool {
        Signed::from_der(self.to_der()).is_ok_and(|signed| signed.is_by(issuer.key()))
    }

    /// The path length constraint: the maximum number of intermediate CA certificates below this one.
    pub(super) fn path_length(&self) -> Option<usize> {
        self.extensions.constraints.as_ref()?.path_len_constraint.map(usize::from)
    }

    /// Whether the key usage allows other signatures than those of certificates and CRLs. RFC 4945, section 5.1.3.2:
    /// digitalSignature or nonRepudiation, if there is a key usage extension.
    pub(super) fn may_sign(&self) -> bool {
        self.extensions
            .usage
            .as_ref()
            .is_none_or(|usage| usage.digital_signature() || usage.non_repudiation())
    }

    /// Whether the key usage allows signing CRLs.
    pub(super) fn may_sign_lists(&self) -> bool {
        self.extensions.usage.as_ref().is_none_or(KeyUsage::crl_sign)
    }

    /// Whether its issuer delegates OCSP responses to it: the extended key usage includes id-kp-OCSPSigning.
    pub(super) fn answers_for_its_issuer(&self) -> bool {
        self.extensions.purposes.contains(&OCSP_SIGNING)
    }

    /// The key bits without the algorithm, which OCSP hashes to name the issuer's key.
    pub(super) fn key_bits(&self) -> &[u8] {
        self.key.bytes()
    }

    /// The HTTP addresses of CRLs that cover the certificate.
    pub(super) fn list_urls(&self) -> &[String] {
        &self.list_urls
    }

    /// The HTTP addresses of OCSP responders for the certificate.
    pub(super) fn status_urls(&self) -> &[String] {
        &self.status_urls
    }

    /// Whether `url` is one of the certificate's CRL addresses.
    pub(super) fn lists_at(&self, url: &str) -> bool {
        self.list_urls.iter().any(|it| it == url)
    }

    /// Whether `identity` is the subject or a subject alternative name (RFC 4945, section 3.1). Wildcards are not
    /// expanded.
    ///
    /// A key ID must be the subject key identifier, or SHA-1 of the public key or of its SubjectPublicKeyInfo.
    pub fn holds(&self, identity: &Identity) -> bool {
        match identity {
            Identity::Name(name) => {
                !name.is_empty()
                    && (self.subject == *name
                        || self.has(|it| matches!(it, AlternativeName::Name(it) if it == name)))
            }
            Identity::Ipv4(address) => self.names.contains(&AlternativeName::Address((*address).into())),
            Identity::Ipv6(address) => self.names.contains(&AlternativeName::Address((*address).into())),
            Identity::Fqdn(domain) => {
                self.has(|it| matches!(it, AlternativeName::Domain(it) if is_same_domain(it, domain)))
            }
            Identity::Email(email) => {
                self.has(|it| matches!(it, AlternativeName::Email(it) if is_same_email(it, email)))
            }
            Identity::KeyId(id) => self.has_key_id(id),
        }
    }

    /// All identities that the certificate [holds](Self::holds).
    pub fn identities(&self) -> Vec<Identity> {
        let subject = Some(Identity::Name(self.subject.clone())).filter(|_| !self.subject.is_empty());
        let names = self.names.iter().map(|name| match name {
            AlternativeName::Domain(name) => Identity::Fqdn(name.clone()),
            AlternativeName::Email(name) => Identity::Email(name.clone()),
            AlternativeName::Address(address) => (*address).into(),
            AlternativeName::Name(name) => Identity::Name(name.clone()),
        });
        let mut found: Vec<Identity> = subject.into_iter().chain(names).collect();
        let key = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.key.bytes());
        let own = self.extensions.key_id.as_ref().map(|it| it.0.as_bytes().to_vec());
        let keys = own.into_iter().chain([self.key_hash().to_vec(), key.as_ref().to_vec()]);
        found.extend(keys.map(Identity::KeyId));
        found
    }

    fn has(&self, is_it: impl Fn(&AlternativeName) -> bool) -> bool {
        self.names.iter().any(is_it)
    }

    fn has_key_id(&self, id: &[u8]) -> bool {
        let key = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.key.bytes());
        let own = self.extensions.key_id.as_ref().map(|it| it.0.as_bytes());
        own == Some(id) || self.key_hash() == id || key.as_ref() == id
    }
}

impl Extensions {
    fn read(extensions: &[Extension]) -> Result<Self, CertificateError> {
        let mut read = Self::default();
        for extension in extensions {
            match extension.extn_id {
                NAMES => once(&mut read.names, extension)?,
                CONSTRAINTS => once(&mut read.constraints, extension)?,
                USAGE => once(&mut read.usage, extension)?,
                KEY_ID => once(&mut read.key_id, extension)?,
                // These are optional: a malformed extension counts as absent.
                PURPOSES => {
                    let known = ExtendedKeyUsage::from_der(extension.extn_value.as_bytes());
                    read.purposes = known.map(|usage| usage.0).unwrap_or_default();
                }
                LISTS => read.lists = value(extension),
                ACCESS => read.access = value(extension),
                _ => {}
            }
        }
        Ok(read)
    }

    /// The HTTP addresses of complete CRLs: not of CRLs for some reasons only, nor of indirect CRLs.
    fn list_urls(&self) -> Vec<String> {
        let whole = self.lists.0.iter().filter(|point| point.reasons.is_none() && point.crl_issuer.is_none());
        urls(whole.flat_map(|point| match &point.distribution_point {
            Some(DistributionPointName::FullName(names)) => &names[..],
            _ => &[],
        }))
    }

    /// The HTTP addresses of OCSP responders.
    fn status_urls(&self) -> Vec<String> {
        let of_ocsp = self.access.0.iter().filter(|access| access.access_method == OCSP);
        urls(of_ocsp.map(|access| &access.access_location))
    }
}

/// Maximum number of addresses taken from a certificate, and their maximum length.
const MOST_URLS: usize = 2;
const LONGEST_URL: usize = 1024;

/// The `http://` addresses. TLS would add nothing, because CRLs and OCSP responses are signed, but would need another
/// certificate check.
fn urls<'a>(names: impl Iterator<Item = &'a GeneralName>) -> Vec<String> {
    let urls = names.filter_map(|name| match name {
        GeneralName::UniformResourceIdentifier(url) => Some(url.as_str()),
        _ => None,
    });
    let is_usable = |url: &&str| {
        let scheme = url.get(..7).unwrap_or_default();
        scheme.eq_ignore_ascii_case("http://")
            && url.len() <= LONGEST_URL
            && url.bytes().all(|byte| byte.is_ascii_graphic())
    };
    urls.filter(is_usable).take(MOST_URLS).map(str::to_owned).collect()
}

/// The value of an extension; empty if it is malformed.
fn value<'a, T: Decode<'a> + Default>(extension: &'a Extension) -> T {
    T::from_der(extension.extn_value.as_bytes()).unwrap_or_default()
}

const PURPOSES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const LISTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.31");
const ACCESS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.1.1");
const OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");
const OCSP_SIGNING: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.9");

const NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
const CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
const USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
const KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");

/// RFC 5280, section 4.2: "A certificate MUST NOT include more than one instance of a particular extension."
fn once<'a, T>(place: &mut Option<T>, extension: &'a Extension) -> Result<(), CertificateError>
where
    T: Decode<'a, Error = der::Error>,
{
    let malformed = |what| CertificateError::Malformed(format!("the extension {} {what}", extension.extn_id));
    let value = T::from_der(extension.extn_value.as_bytes()).map_err(|_| malformed("cannot be read"))?;
    if place.replace(value).is_some() {
        return Err(malformed("occurs twice"));
    }
    Ok(())
}

fn alternative_name(name: &GeneralName) -> Option<AlternativeName> {
    match name {
        GeneralName::DnsName(name) => Some(AlternativeName::Domain(name.as_str().to_owned())),
        GeneralName::Rfc822Name(name) => Some(AlternativeName::Email(name.as_str().to_owned())),
        GeneralName::IpAddress(bytes) => {
            let bytes = bytes.as_bytes();
            let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
            v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(AlternativeName::Address)
        }
        GeneralName::DirectoryName(name) => {
            DistinguishedName::from_der(&name.to_der().ok()?).ok().map(AlternativeName::Name)
        }
        _ => None,
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Certificate {}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.subject)
    }
}
