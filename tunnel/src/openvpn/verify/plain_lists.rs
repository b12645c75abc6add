//! Revocation lists without extensions, which rustls-webpki does not take: the links of a chain that webpki has verified are looked up in
//! them, with the signature of each list.

use crypto::pki::{Certificate, PlainList};
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use std::time::Duration;
use webpki::{Error, VerifiedPath};

/// The certificates of a path, that of the peer first. One that our parser does not read ends it.
pub(super) fn chain(
    own: &CertificateDer<'_>,
    path: &VerifiedPath<'_>,
    authorities: &[TrustAnchor<'static>],
    known: &[CertificateDer<'static>],
) -> Vec<Certificate> {
    let is_anchor = |authority: &TrustAnchor<'_>| {
        let anchor = path.anchor();
        authority.subject == anchor.subject
            && authority.subject_public_key_info == anchor.subject_public_key_info
    };
    let anchor = authorities.iter().position(is_anchor).and_then(|place| known.get(place));
    let between: Vec<CertificateDer<'_>> = path.intermediate_certificates().map(webpki::Cert::der).collect();
    let all = std::iter::once(own).chain(&between).chain(anchor);
    all.map_while(|der| Certificate::from_der(der).ok()).collect()
}

/// Whether a list has told about the certificate of the peer, whose chain is `chain`.
///
/// # Errors
/// A certificate of the chain is revoked, or the last list of its issuer has expired.
pub(super) fn cover(lists: &[PlainList], chain: &[Certificate], now: UnixTime) -> Result<bool, Error> {
    let mut is_covered = false;
    for (depth, link) in chain.windows(2).enumerate() {
        let [certificate, issuer] = link else { continue };
        let of_issuer = lists.iter().filter(|list| list.is_by(issuer));
        let Some(list) = of_issuer.max_by_key(|list| list.this_update()) else { continue };
        if list.has(certificate) {
            return Err(Error::CertRevoked);
        }
        if let Some(due) = list.next_update().filter(|due| *due < Duration::from_secs(now.as_secs())) {
            return Err(Error::CrlExpired { time: now, next_update: UnixTime::since_unix_epoch(due) });
        }
        is_covered |= depth == 0;
    }
    Ok(is_covered)
}
