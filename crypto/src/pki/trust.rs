//! Trusted CAs, and the verification of a peer's certificate chain.

use super::list::List;
use super::{Certificate, CertificateError, DistinguishedName, Evidence, evidence};
use crate::pem::PemError;
use der::DateTime;
use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use webpki::{EndEntityCert, Error, ExtendedKeyUsageValidator, KeyPurposeIdIter, VerifiedPath};

/// Why a chain is not trusted, and the certificate at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate of {subject} {failure}")]
pub struct ChainError {
    /// The subject of the certificate at fault.
    pub subject: DistinguishedName,
    /// What is wrong with the certificate.
    pub failure: ChainFailure,
}

/// Why a certificate is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFailure {
    /// Not yet valid.
    #[error("is not valid before {0}")]
    NotYetValid(DateTime),
    /// Expired.
    #[error("expired {0}")]
    Expired(DateTime),
    /// The issuer is neither a trusted CA nor the subject of a certificate that the peer sent.
    #[error("was issued by {0}, which is not trusted here")]
    UnknownAuthority(DistinguishedName),
    /// The signature is not the issuer's.
    #[error("is not signed by its issuer")]
    BadSignature,
    /// The signature algorithm is weak or unknown.
    #[error("is signed with an algorithm that is not supported")]
    UnsupportedAlgorithm,
    /// Revoked by its issuer.
    #[error("is revoked")]
    Revoked,
    /// A status is required, but there is no CRL of the issuer.
    #[error("has no revocation list of its issuer, though one is required")]
    NoRevocationList,
    /// The issuer's CRL has expired.
    #[error("has an expired revocation list")]
    RevocationListExpired,
    /// A status is required, but could not be fetched; what happened at each address.
    #[error("has no revocation status, though one is required: {0}")]
    StatusUnknown(String),
    /// A status is required, and a fetch is pending; the state of each address.
    #[error("has no revocation status yet, though one is required: {0}")]
    StatusAwaited(String),
    /// A configured CRL names the issuer, but is not signed by it.
    #[error("has a revocation list that is not signed by its issuer")]
    RevocationListSignature,
    /// Issued a certificate without being a CA.
    #[error("is not a CA certificate, but has issued another")]
    NotAnAuthority,
    /// A CA certificate, which cannot authenticate a peer.
    #[error("is a CA certificate, not a peer's")]
    IsAuthority,
    /// The chain is longer than a path length constraint allows.
    #[error("has a chain that is longer than one of its CAs allows")]
    PathTooLong,
    /// A name constraint of a CA in the chain forbids one of its names.
    #[error("has a name that a CA of its chain may not certify")]
    NameConstraint,
    /// The key usage or extended key usage does not allow IKE.
    #[error("has a key usage that does not include IPsec, IKE or TLS")]
    Purpose,
    /// The peer sent too many intermediate CA certificates.
    #[error("comes with more than {MOST_BETWEEN} intermediate CA certificates")]
    TooMany,
    /// Another error, such as an unknown critical extension.
    #[error("cannot be verified: {0}")]
    Unsupported(String),
}

/// Why a CRL cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevocationListError {
    /// The file cannot be parsed.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The file is PEM, but has no CRL; the labels that it has.
    #[error("no revocation list found, only: {0}")]
    OtherContent(String),
    /// The CRL is not signed by the CA for which it is configured.
    #[error("it is not signed by {0}")]
    OtherIssuer(DistinguishedName),
    /// Not the DER of a CRL (RFC 5280), or a CRL of a kind that is not supported.
    #[error("the revocation list is not usable: {0}")]
    Unusable(String),
}

/// Why a peer's certificate is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusted<'a> {
    /// Its chain leads to this trusted CA.
    Authority(&'a Certificate),
    /// The certificate itself is configured as trusted.
    Itself,
}

/// Trusted CAs, pinned peer certificates, and revocation data.
#[derive(Default)]
pub struct TrustStore {
    pub(super) authorities: Vec<Certificate>,
    /// The trust anchors of `authorities`, in the same order.
    anchors: Vec<TrustAnchor<'static>>,
    peers: Vec<Certificate>,
    pub(super) lists: Vec<Arc<List>>,
    pub(super) revocation: Revocation,
    pub(super) evidence: Option<Arc<Evidence>>,
}

/// How much must be known about revocation. A certificate known to be revoked is always refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revocation {
    /// Nothing. A CRL is used if there is one, even if it has expired.
    #[default]
    Relaxed,
    /// A certificate with a CRL or OCSP address needs a current status.
    IfUri,
    /// Every certificate needs a current status.
    Strict,
}

/// Maximum number of intermediate CA certificates from a peer. The number of possible chains grows with its factorial,
/// and chains are tried before the peer is authenticated.
const MOST_BETWEEN: usize = 6;

impl TrustStore {
    /// Adds a trusted CA; its certificate need not be self-signed.
    pub fn add_authority(&mut self, authority: Certificate) -> Result<(), CertificateError> {
        let malformed = |error: Error| CertificateError::Malformed(error.to_string());
        if !authority.is_authority() {
            let text = format!("{} is not a CA certificate", authority.subject());
            return Err(CertificateError::Malformed(text));
        }
        let anchor = webpki::anchor_from_trusted_cert(authority.as_webpki()).map_err(malformed)?.to_owned();
        self.anchors.push(anchor);
        self.authorities.push(authority);
        Ok(())
    }

    /// Pins a peer certificate: it is trusted while it is valid, but certificates that it signed are not.
    pub fn add_peer(&mut self, peer: Certificate) {
        self.peers.push(peer);
    }

    /// Adds all CRLs of a file: PEM, DER or bare base64. Of two CRLs of one issuer the newer is used.
    pub fn add_revocation_lists(&mut self, file: &[u8]) -> Result<(), RevocationListError> {
        self.lists.extend(evidence::read_lists(file)?.into_iter().map(Arc::new));
        Ok(())
    }

    /// Sets how much must be known about revocation.
    pub fn set_revocation(&mut self, revocation: Revocation) {
        self.revocation = revocation;
    }

    /// Also uses the revocation data of `evidence`, and requests missing data through it.
    pub fn use_evidence(&mut self, evidence: Arc<Evidence>) {
        self.evidence = Some(evidence);
    }

    /// Changes when revocation data has changed: an [awaited](ChainFailure::StatusAwaited) status may be known now.
    pub fn generation(&self) -> u64 {
        self.evidence.as_ref().map_or(0, |evidence| evidence.generation())
    }

    /// Whether nothing is trusted: neither a CA nor a peer certificate.
    pub fn is_empty(&self) -> bool {
        self.authorities.is_empty() && self.peers.is_empty()
    }

    /// The trusted CAs.
    pub fn authorities(&self) -> &[Certificate] {
        &self.authorities
    }

    /// The data of a CERTREQ payload of encoding 4: SHA-1 of each CA's SubjectPublicKeyInfo, concatenated.
    pub fn request(&self) -> Vec<u8> {
        self.authorities.iter().flat_map(Certificate::key_hash).collect()
    }

    /// Verifies a peer's certificate with the other certificates that the peer sent, at the time `now` since 1970.
    ///
    /// Whether the certificate belongs to the peer is not checked: see [`Certificate::holds`].
    pub fn verify(
        &self,
        peer: &Certificate,
        others: &[Certificate],
        now: Duration,
    ) -> Result<Trusted<'_>, ChainError> {
        if self.peers.contains(peer) {
            check_time(peer, now).map_err(|failure| wrong(peer, failure))?;
            return Ok(Trusted::Itself);
        }
        if !peer.may_sign() {
            return Err(wrong(peer, ChainFailure::Purpose));
        }
        let between = between(peer, others);
        if between.len() > MOST_BETWEEN {
            return Err(wrong(peer, ChainFailure::TooMany));
        }
        let authority = self.build(peer, &between, now)?;
        Ok(Trusted::Authority(authority))
    }

    /// The trusted CA at the end of a valid chain. One valid chain is enough.
    fn build(
        &self,
        peer: &Certificate,
        between: &[&Certificate],
        now: Duration,
    ) -> Result<&Certificate, ChainError> {
        let ders: Vec<CertificateDer<'_>> =
            between.iter().map(|it| CertificateDer::from(it.to_der())).collect();
        let doubt = RefCell::new(None);
        let check = |path: &VerifiedPath<'_>| {
            let chain = self.check_path(path, peer, between, now)?;
            self.check_statuses(&chain, now).map_err(|error| {
                let mut doubt = doubt.borrow_mut();
                if doubt.as_ref().is_none_or(|before| is_rather(&error, before)) {
                    *doubt = Some(error);
                }
                Error::UnknownRevocationStatus
            })
        };
        // webpki is not given the CRLs, since it finds them by issuer name only: a CA with a new key keeps its name.
        let built = EndEntityCert::try_from(peer.as_webpki()).and_then(|end| {
            let path = end.verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &self.anchors,
                &ders,
                UnixTime::since_unix_epoch(now),
                Purposes,
                None,
                Some(&check),
            )?;
            self.authority(&path).ok_or(Error::UnknownIssuer)
        });
        // Report the chain that failed only the revocation check, if there is one, rather than the faults of others.
        built.map_err(|error| doubt.take().unwrap_or_else(|| self.explain(peer, between, now, error)))
    }

    /// Checks what webpki leaves out: keyCertSign, and the trusted CA's validity and path length constraint. Returns
    /// the chain from the peer to the CA.
    fn check_path<'a>(
        &'a self,
        path: &VerifiedPath<'_>,
        peer: &'a Certificate,
        between: &[&'a Certificate],
        now: Duration,
    ) -> Result<Vec<&'a Certificate>, Error> {
        let authority = self.authority(path).ok_or(Error::UnknownIssuer)?;
        let mut chain = vec![peer];
        let mut length = 0;
        for link in path.intermediate_certificates() {
            let link =
                between.iter().find(|it| it.to_der() == link.der().as_ref()).ok_or(Error::UnknownIssuer)?;
            if !link.is_authority() {
                return Err(Error::EndEntityUsedAsCa);
            }
            length += usize::from(!link.is_self_issued());
            chain.push(link);
        }
        chain.push(authority);
        if authority.path_length().is_some_and(|most| length > most) {
            return Err(Error::PathLenConstraintViolated);
        }
        let time = UnixTime::since_unix_epoch(now);
        match check_time(authority, now) {
            Ok(()) => Ok(chain),
            Err(ChainFailure::NotYetValid(_)) => {
                let not_before = UnixTime::since_unix_epoch(authority.not_before());
                Err(Error::CertNotValidYet { time, not_before })
            }
            Err(_) => {
                let not_after = UnixTime::since_unix_epoch(authority.not_after());
                Err(Error::CertExpired { time, not_after })
            }
        }
    }

    fn authority(&self, path: &VerifiedPath<'_>) -> Option<&Certificate> {
        // Compare addresses, not contents: the anchors of a CA and of its renewal are equal.
        let index = self.anchors.iter().position(|anchor| std::ptr::eq(anchor, path.anchor()))?;
        self.authorities.get(index)
    }

    /// Finds the certificate at fault: webpki reports an error, but not for which certificate.
    fn explain(
        &self,
        peer: &Certificate,
        between: &[&Certificate],
        now: Duration,
        error: Error,
    ) -> ChainError {
        let failure = failure(error, peer);
        let chain = || [peer].into_iter().chain(between.iter().copied());
        let culprit = match &failure {
            ChainFailure::Expired(_) | ChainFailure::NotYetValid(_) => chain()
                .chain(&self.authorities)
                .find_map(|it| check_time(it, now).err().map(|failure| wrong(it, failure))),
            ChainFailure::UnknownAuthority(_) => self.loose_end(peer, between),
            ChainFailure::NotAnAuthority => {
                between.iter().find(|it| !it.is_authority()).map(|it| wrong(it, ChainFailure::NotAnAuthority))
            }
            _ => None,
        };
        culprit.unwrap_or_else(|| wrong(peer, failure))
    }

    /// The certificate whose issuer is missing, found by following the issuer names.
    fn loose_end(&self, peer: &Certificate, between: &[&Certificate]) -> Option<ChainError> {
        let mut last = peer;
        for _ in 0..=between.len() {
            if self.authorities.iter().any(|it| it.subject() == last.issuer()) {
                return None;
            }
            match between.iter().find(|it| it.subject() == last.issuer()) {
                Some(next) => last = next,
                None => break,
            }
        }
        Some(wrong(last, ChainFailure::UnknownAuthority(last.issuer().clone())))
    }
}

/// Whether the first of two revocation failures is the one to report: a pending status first, then "revoked".
fn is_rather(one: &ChainError, other: &ChainError) -> bool {
    let rank = |error: &ChainError| match error.failure {
        ChainFailure::StatusAwaited(_) => 2,
        ChainFailure::Revoked => 1,
        _ => 0,
    };
    rank(one) > rank(other)
}

/// The certificates that can be intermediates of the peer's chain: each once, found by issuer names. Self-issued ones
/// are left out, because they help only if they are trusted, and then they are known.
fn between<'a>(peer: &Certificate, others: &'a [Certificate]) -> Vec<&'a Certificate> {
    let mut wanted: HashSet<&DistinguishedName> = HashSet::from([peer.issuer()]);
    let mut between: Vec<&Certificate> = Vec::new();
    loop {
        let known = between.len();
        for other in others {
            let new = !between.contains(&other) && other != peer && !other.is_self_issued();
            if new && wanted.contains(other.subject()) && between.len() <= MOST_BETWEEN {
                between.push(other);
            }
        }
        if between.len() == known {
            return between;
        }
        wanted.extend(others.iter().filter(|it| between.contains(it)).map(Certificate::issuer));
    }
}

/// The intermediate certificates of `pool` to send with the own certificate, without the self-signed root (RFC 7296,
/// section 3.6).
pub fn chain<'a>(own: &Certificate, pool: &'a [Certificate]) -> Vec<&'a Certificate> {
    let mut chain: Vec<&Certificate> = Vec::new();
    let mut issuer = own.issuer();
    while let Some(next) =
        pool.iter().find(|it| it.subject() == issuer && !it.is_self_issued() && it.is_authority())
    {
        if chain.contains(&next) || chain.len() == MOST_BETWEEN {
            break;
        }
        chain.push(next);
        issuer = next.issuer();
    }
    chain
}

impl Certificate {
    /// Whether the certificate is valid at the time `now` since 1970.
    pub fn check_time(&self, now: Duration) -> Result<(), ChainError> {
        check_time(self, now).map_err(|failure| wrong(self, failure))
    }
}

fn check_time(certificate: &Certificate, now: Duration) -> Result<(), ChainFailure> {
    let date = |time| DateTime::from_unix_duration(time).unwrap_or(DateTime::INFINITY);
    if now < certificate.not_before() {
        return Err(ChainFailure::NotYetValid(date(certificate.not_before())));
    }
    if now > certificate.not_after() {
        return Err(ChainFailure::Expired(date(certificate.not_after())));
    }
    Ok(())
}

pub(super) fn wrong(certificate: &Certificate, failure: ChainFailure) -> ChainError {
    ChainError { subject: certificate.subject().clone(), failure }
}

fn failure(error: Error, peer: &Certificate) -> ChainFailure {
    let date = |time: UnixTime| {
        DateTime::from_unix_duration(Duration::from_secs(time.as_secs())).unwrap_or(DateTime::INFINITY)
    };
    match error {
        Error::CertNotValidYet { not_before, .. } => ChainFailure::NotYetValid(date(not_before)),
        Error::CertExpired { not_after, .. } => ChainFailure::Expired(date(not_after)),
        Error::UnknownIssuer => ChainFailure::UnknownAuthority(peer.issuer().clone()),
        Error::InvalidSignatureForPublicKey => ChainFailure::BadSignature,
        Error::UnsupportedSignatureAlgorithmContext(_)
        | Error::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => ChainFailure::UnsupportedAlgorithm,
        Error::EndEntityUsedAsCa => ChainFailure::NotAnAuthority,
        Error::CaUsedAsEndEntity => ChainFailure::IsAuthority,
        Error::PathLenConstraintViolated | Error::MaximumPathDepthExceeded => ChainFailure::PathTooLong,
        Error::NameConstraintViolation => ChainFailure::NameConstraint,
        Error::RequiredEkuNotFoundContext(_) | Error::EmptyEkuExtension => ChainFailure::Purpose,
        other => ChainFailure::Unsupported(other.to_string()),
    }
}

/// The acceptable extended key usages (RFC 4945, section 5.1.3.12): any, TLS server and client, the IPsec usages of RFC
/// 2459, id-kp-ipsecIKE, and the one of Microsoft and Apple.
struct Purposes;

const PURPOSES: &[&[usize]] = &[
    &[2, 5, 29, 37, 0],
    &[1, 3, 6, 1, 5, 5, 7, 3, 1],
    &[1, 3, 6, 1, 5, 5, 7, 3, 2],
    &[1, 3, 6, 1, 5, 5, 7, 3, 5],
    &[1, 3, 6, 1, 5, 5, 7, 3, 6],
    &[1, 3, 6, 1, 5, 5, 7, 3, 7],
    &[1, 3, 6, 1, 5, 5, 7, 3, 17],
    &[1, 3, 6, 1, 5, 5, 8, 2, 2],
];

impl ExtendedKeyUsageValidator for Purposes {
    fn validate(&self, purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), Error> {
        let mut none = true;
        for purpose in purposes {
            none = false;
            if PURPOSES.contains(&purpose?.to_decoded_oid().as_slice()) {
                return Ok(());
            }
        }
        // webpki itself refuses an empty extension, before this is called.
        if none { Ok(()) } else { Err(Error::EmptyEkuExtension) }
    }
}
