//! What a certificate says.

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

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The file is not readable.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// There is PEM, but no certificate in it.
    #[error("there is no certificate in it, but: {0}")]
    OtherContent(String),
    /// More bytes than a certificate may have.
    #[error("a certificate may have {limit} bytes, this one has {found}")]
    TooLong {
        /// The most.
        limit: usize,
        /// What came.
        found: usize,
    },
    /// The DER is not that of a certificate of RFC 5280.
    #[error("the certificate is malformed: {0}")]
    Malformed(String),
    /// Its key is not usable.
    #[error("the certificate of {subject} is not usable: {error}")]
    Key {
        /// Whose it is.
        subject: DistinguishedName,
        /// What is wrong with the key.
        error: KeyError,
    },
}

/// A name of a certificate's owner besides the subject (RFC 5280, section 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// A domain name.
    Domain(String),
    /// An e-mail address.
    Email(String),
    /// An address.
    Address(IpAddr),
    /// A distinguished name.
    Name(DistinguishedName),
}

/// A parsed X.509 certificate, of which nothing has been verified.
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

/// What is read of the extensions.
#[derive(Clone, Default)]
struct Extensions {
    names: Option<SubjectAltName>,
    constraints: Option<BasicConstraints>,
    usage: Option<KeyUsage>,
    key_id: Option<SubjectKeyIdentifier>,
    /// What its key is for; none if that cannot be read.
    purposes: Vec<ObjectIdentifier>,
    /// Where lists and answers about it are, as far as that can be read.
    lists: CrlDistributionPoints,
    access: AuthorityInfoAccessSyntax,
}

/// No payload of IKEv2 is longer.
const MOST_BYTES: usize = u16::MAX as usize;

impl Certificate {
    /// Every certificate of a file: PEM with any number of them, DER, or base64 alone.
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

    /// The certificate of its DER, as a CERT payload of encoding 4 has it.
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

    /// Whose it is.
    pub fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// Who signed it, by its own words.
    pub fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    /// The number its issuer gave it.
    pub fn serial(&self) -> &[u8] {
        &self.serial
    }

    /// From when on it is valid, since 1970.
    pub fn not_before(&self) -> Duration {
        self.not_before.unix_duration()
    }

    /// Until when it is valid, since 1970.
    pub fn not_after(&self) -> Duration {
        self.not_after.unix_duration()
    }

    /// The owner's public key.
    pub fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// The owner's names besides the subject; those of other types are left out.
    pub fn names(&self) -> &[AlternativeName] {
        &self.names
    }

    /// SHA-1 of the SubjectPublicKeyInfo: what a CERTREQ payload names an authority by (RFC 7296, section 3.7).
    pub fn key_hash(&self) -> [u8; 20] {
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.key.info());
        hash.as_ref().try_into().expect("SHA-1 has 20 bytes")
    }

    /// Whether it may sign other certificates.
    pub fn is_authority(&self) -> bool {
        let constraints = self.extensions.constraints.as_ref();
        constraints.is_some_and(|it| it.ca)
            && self.extensions.usage.as_ref().is_none_or(KeyUsage::key_cert_sign)
    }

    /// Whether it calls itself its own issuer.
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Whether the key of another certificate has signed it, with an algorithm that is not weak.
    pub(super) fn is_signed_by(&self, issuer: &Self) -> bool {
        Signed::from_der(self.to_der()).is_ok_and(|signed| signed.is_by(issuer.key()))
    }

    /// How many authorities may stand between it and the end of a chain.
    pub(super) fn path_length(&self) -> Option<usize> {
        self.extensions.constraints.as_ref()?.path_len_constraint.map(usize::from)
    }

    /// Whether its key may sign what is no certificate. RFC 4945, section 5.1.3.2: digitalSignature or nonRepudiation,
    /// if anything is said about the usage.
    pub(super) fn may_sign(&self) -> bool {
        self.extensions
            .usage
            .as_ref()
            .is_none_or(|usage| usage.digital_signature() || usage.non_repudiation())
    }

    /// Whether it may sign revocation lists.
    pub(super) fn may_sign_lists(&self) -> bool {
        self.extensions.usage.as_ref().is_none_or(KeyUsage::crl_sign)
    }

    /// Whether its issuer lets it answer questions of OCSP.
    pub(super) fn answers_for_its_issuer(&self) -> bool {
        self.extensions.purposes.contains(&OCSP_SIGNING)
    }

    /// What OCSP names the key by: without its algorithm.
    pub(super) fn key_bits(&self) -> &[u8] {
        self.key.bytes()
    }

    /// Where it says that revocation lists are that may name it.
    pub(super) fn list_urls(&self) -> &[String] {
        &self.list_urls
    }

    /// Where it says that questions about it are answered.
    pub(super) fn status_urls(&self) -> &[String] {
        &self.status_urls
    }

    /// Whether it says that lists that may name it are at this place.
    pub(super) fn lists_at(&self, url: &str) -> bool {
        self.list_urls.iter().any(|it| it == url)
    }

    /// Whether `identity` is one of the owner's: the subject or a name besides it, without wildcards (RFC 4945, section
    /// 3.1). A key ID is the certificate's own, or SHA-1 of the public key or of its SubjectPublicKeyInfo.
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

    /// Every identity that it [holds](Self::holds).
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
                // Optional: a malformed extension counts as absent.
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

    /// Where whole revocation lists are: not parts of them, and not those of another issuer.
    fn list_urls(&self) -> Vec<String> {
        let whole = self.lists.0.iter().filter(|point| point.reasons.is_none() && point.crl_issuer.is_none());
        urls(whole.flat_map(|point| match &point.distribution_point {
            Some(DistributionPointName::FullName(names)) => &names[..],
            _ => &[],
        }))
    }

    /// Where OCSP is served.
    fn status_urls(&self) -> Vec<String> {
        let of_ocsp = self.access.0.iter().filter(|access| access.access_method == OCSP);
        urls(of_ocsp.map(|access| &access.access_location))
    }
}

/// Of places to ask at, so many are looked at, and no longer ones.
const MOST_URLS: usize = 2;
const LONGEST_URL: usize = 1024;

/// Those that are reached by HTTP. What is there is signed: TLS would add nothing, but the need to check its certificate.
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

/// The value of an extension, or nothing.
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
        return Err(malformed("is there twice"));
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
