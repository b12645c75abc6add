//! The trusted authorities, and verification of a peer's certificate chain.

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

/// The certificate of a chain that is wrong, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate of {subject} {failure}")]
pub struct ChainError {
    /// Whose certificate it is.
    pub subject: DistinguishedName,
    /// What is wrong with it.
    pub failure: ChainFailure,
}

/// Why a certificate is not trusted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFailure {
    /// Its time has not come.
    #[error("is not valid before {0}")]
    NotYetValid(DateTime),
    /// Its time is over.
    #[error("expired {0}")]
    Expired(DateTime),
    /// Neither an authority of ours nor a certificate that the peer sent has the name of its issuer.
    #[error("was issued by {0}, which is not trusted here")]
    UnknownAuthority(DistinguishedName),
    /// The issuer did not sign it.
    #[error("is not signed by its issuer")]
    BadSignature,
    /// It is signed in a way that is weak or not known.
    #[error("is signed with an algorithm that is not supported")]
    UnsupportedAlgorithm,
    /// Its issuer took it back.
    #[error("is revoked")]
    Revoked,
    /// No revocation list of its issuer is there, though one is required.
    #[error("has no revocation list of its issuer, though one is required")]
    NoRevocationList,
    /// The revocation list of its issuer is too old.
    #[error("has a revocation list that expired")]
    RevocationListExpired,
    /// The places that it names have not told its status; what became of each.
    #[error("has no status of revocation, though one is required: {0}")]
    StatusUnknown(String),
    /// The same, and at least one of them is being asked: it may be known soon.
    #[error("has no status of revocation yet, though one is required: {0}")]
    StatusAwaited(String),
    /// The revocation list is not its issuer's.
    #[error("has a revocation list that is not signed by its issuer")]
    RevocationListSignature,
    /// It signed another, which it may not.
    #[error("is not an authority's")]
    NotAnAuthority,
    /// It is an authority's, and those only sign others.
    #[error("is an authority's, and not a peer's")]
    IsAuthority,
    /// An authority of the chain allows no such long one.
    #[error("has a longer chain than an authority of it allows")]
    PathTooLong,
    /// It has a name that an authority of the chain may not give.
    #[error("has a name that an authority of its chain may not give")]
    NameConstraint,
    /// It is for something else than IKE.
    #[error("is not for IPsec, IKE or TLS, by its key usage")]
    Purpose,
    /// The peer sent more certificates than are looked at.
    #[error("comes with more than {MOST_BETWEEN} certificates of authorities")]
    TooMany,
    /// It has what must be understood, and is not.
    #[error("cannot be judged: {0}")]
    Unsupported(String),
}

/// Why a revocation list is not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevocationListError {
    /// The file is not readable.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// There is PEM, but no revocation list in it.
    #[error("there is no revocation list in it, but: {0}")]
    OtherContent(String),
    /// Another issuer than the one that it is for has signed it.
    #[error("it is not signed by {0}")]
    OtherIssuer(DistinguishedName),
    /// The DER is not that of a list of RFC 5280, or of a kind that is not supported.
    #[error("the revocation list is not usable: {0}")]
    Unusable(String),
}

/// What a peer's certificate led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusted<'a> {
    /// The authority at the end of the chain.
    Authority(&'a Certificate),
    /// Itself: it was configured as trusted.
    Itself,
}

/// The authorities that are trusted, revocation lists, and certificates that are trusted themselves.
#[derive(Default)]
pub struct TrustStore {
    pub(super) authorities: Vec<Certificate>,
    /// Of `authorities`, in their order.
    anchors: Vec<TrustAnchor<'static>>,
    peers: Vec<Certificate>,
    pub(super) lists: Vec<Arc<List>>,
    pub(super) revocation: Revocation,
    pub(super) evidence: Option<Arc<Evidence>>,
}

/// What must be known about revocation. What is known to be revoked is refused in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revocation {
    /// Nothing: a list counts if it is there, however old.
    #[default]
    Relaxed,
    /// Of certificates that say where to ask: that they are not revoked, by a list or an answer that is not too old.
    IfUri,
    /// That of every certificate.
    Strict,
}

/// Certificates of authorities that a peer may send. The ways to put them in a row grow with the factorial of their
/// number, and are tried before anybody is authenticated.
const MOST_BETWEEN: usize = 6;

impl TrustStore {
    /// Trusts an authority, whether or not it signed itself.
    pub fn add_authority(&mut self, authority: Certificate) -> Result<(), CertificateError> {
        let malformed = |error: Error| CertificateError::Malformed(error.to_string());
        if !authority.is_authority() {
            let text = format!("{} is not an authority and signs no others", authority.subject());
            return Err(CertificateError::Malformed(text));
        }
        let anchor = webpki::anchor_from_trusted_cert(authority.as_webpki()).map_err(malformed)?.to_owned();
        self.anchors.push(anchor);
        self.authorities.push(authority);
        Ok(())
    }

    /// Trusts one certificate, as long as it is valid, and none that it signed.
    pub fn add_peer(&mut self, peer: Certificate) {
        self.peers.push(peer);
    }

    /// Loads every revocation list of a file: PEM, DER or base64 alone. Of two of one issuer the newer counts.
    pub fn add_revocation_lists(&mut self, file: &[u8]) -> Result<(), RevocationListError> {
        self.lists.extend(evidence::read_lists(file)?.into_iter().map(Arc::new));
        Ok(())
    }

    /// Decides what must be known about revocation.
    pub fn set_revocation(&mut self, revocation: Revocation) {
        self.revocation = revocation;
    }

    /// Takes what is known there as well, and has fetched there what is not.
    pub fn use_evidence(&mut self, evidence: Arc<Evidence>) {
        self.evidence = Some(evidence);
    }

    /// Changes when what is known about revocation has: what was [awaited](ChainFailure::StatusAwaited) may be there.
    pub fn generation(&self) -> u64 {
        self.evidence.as_ref().map_or(0, |evidence| evidence.generation())
    }

    /// Whether no authority is trusted.
    pub fn is_empty(&self) -> bool {
        self.authorities.is_empty() && self.peers.is_empty()
    }

    /// The authorities.
    pub fn authorities(&self) -> &[Certificate] {
        &self.authorities
    }

    /// The data of a CERTREQ payload of encoding 4: SHA-1 of each authority's key, one after the other.
    pub fn request(&self) -> Vec<u8> {
        self.authorities.iter().flat_map(Certificate::key_hash).collect()
    }

    /// What the certificate of a peer leads to, with others that the peer sent, at the time `now` since 1970. Whether it
    /// is that peer's is not asked: see [`Certificate::holds`].
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

    /// The authority at the end of a chain in which nothing is wrong. Where there are several chains, one such is enough.
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
        // What is known about revocation is no matter of webpki's, which looks for lists by the name of their issuer only: an
        // authority with a new key keeps its name.
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
        // A chain that is right but for this is closer to the truth than what is wrong with others.
        built.map_err(|error| doubt.take().unwrap_or_else(|| self.explain(peer, between, now, error)))
    }

    /// What webpki leaves to others: validity and path length of the trusted authority, and keyCertSign. Gives the chain, from
    /// the peer to the authority.
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
        // By its place, not by what it is: an authority and its renewal differ in nothing that an anchor has.
        let index = self.anchors.iter().position(|anchor| std::ptr::eq(anchor, path.anchor()))?;
        self.authorities.get(index)
    }

    /// Whose fault it is: webpki says what is wrong, but not with which certificate.
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

    /// The certificate at which following the issuers' names ends.
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

/// Whether of two doubts about revocation the first says more: what may be known soon, then what is known.
fn is_rather(one: &ChainError, other: &ChainError) -> bool {
    let rank = |error: &ChainError| match error.failure {
        ChainFailure::StatusAwaited(_) => 2,
        ChainFailure::Revoked => 1,
        _ => 0,
    };
    rank(one) > rank(other)
}

/// What may lie between a peer's certificate and a trusted authority: each once, reachable by the names of issuers, and
/// none that signed itself, which helps only if it is trusted already.
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

/// What to send besides one's own certificate: those of `pool` that lead from it to an authority, but not one that
/// signed itself (RFC 7296, section 3.6).
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
    /// Whether the time `now` since 1970 is within its validity.
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

/// What a certificate may be for, if it says so (RFC 4945, section 5.1.3.12): anything, TLS in either role, IPsec in the
/// ways of RFC 2459 and of Microsoft and Apple, or IKE.
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
        // webpki refuses an extension that is there and empty before it asks.
        if none { Ok(()) } else { Err(Error::EmptyEkuExtension) }
    }
}
