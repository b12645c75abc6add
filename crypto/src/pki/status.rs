//! Decides whether the revocation status of a chain's certificates is known well enough.
//!
//! A CRL is used only for certificates signed with the same key as the CRL. A CA that changes its key keeps its name,
//! and has two CRLs as long as certificates of both keys exist. If several CRLs cover a certificate, the newest is
//! used.

use super::list::List;
use super::trust::wrong;
use super::{Certificate, ChainError, ChainFailure, Revocation, TrustStore};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

impl TrustStore {
    /// Checks the revocation status of each certificate of a chain, from a peer's to a trusted CA's. All other checks
    /// of the chain have passed.
    pub(super) fn check_statuses(&self, chain: &[&Certificate], now: Duration) -> Result<(), ChainError> {
        let Some(authority) = chain.last() else { return Ok(()) };
        // A configured CA may have revoked the trusted CA below it. If it is the only one of its name, its CRL counts
        // even if another key signed the certificate.
        let above = || self.authorities.iter().filter(|it| it.subject() == authority.issuer());
        for issuer in above() {
            let is_listed = is_revoked_by(&self.lists_of(authority, issuer), authority);
            if is_listed && (above().count() == 1 || authority.is_signed_by(issuer)) {
                return Err(wrong(authority, ChainFailure::Revoked));
            }
        }
        for pair in chain.windows(2) {
            let checked = self.check_status([pair[0], pair[1], authority], now);
            checked.map_err(|failure| wrong(pair[0], failure))?;
        }
        Ok(())
    }

    /// Checks the revocation status of a certificate. Its issuer follows, and the trusted CA of both.
    fn check_status(
        &self,
        [certificate, issuer, authority]: [&Certificate; 3],
        now: Duration,
    ) -> Result<(), ChainFailure> {
        let has_place = !certificate.list_urls().is_empty() || !certificate.status_urls().is_empty();
        let is_required = match self.revocation {
            Revocation::Relaxed => false,
            Revocation::IfUri => has_place,
            Revocation::Strict => true,
        };
        let evidence = self.evidence.as_ref();
        // Read the progress before the data. A fetch that ends in between is then seen as both awaited and answered,
        // never as neither.
        let progress = evidence.filter(|_| is_required).and_then(|evidence| {
            evidence.want([certificate, issuer, authority], now);
            evidence.progress(certificate, issuer, now)
        });
        let answer = evidence.and_then(|evidence| evidence.answer_about(certificate, issuer, now));
        let lists = self.lists_of(certificate, issuer);
        if answer.is_some_and(|answer| answer.is_revoked) || is_revoked_by(&lists, certificate) {
            return Err(ChainFailure::Revoked);
        }
        // The CRL is configured for this CA, so a CRL that cannot be used must be reported.
        if lists.is_empty() && self.has_unsigned_list(certificate, issuer) {
            return Err(ChainFailure::RevocationListSignature);
        }
        if !is_required || answer.is_some() || lists.iter().any(|list| list.is_fresh(now)) {
            return Ok(());
        }
        Err(match progress {
            Some((progress, true)) => ChainFailure::StatusAwaited(progress),
            Some((progress, false)) => ChainFailure::StatusUnknown(progress),
            None if lists.is_empty() => ChainFailure::NoRevocationList,
            None => ChainFailure::RevocationListExpired,
        })
    }

    /// The CRLs that cover a certificate and that its issuer's key has signed, newest first.
    fn lists_of(&self, certificate: &Certificate, issuer: &Certificate) -> Vec<Arc<List>> {
        let mut lists: Vec<Arc<List>> = self.lists.iter().filter(|it| it.is_of(issuer)).cloned().collect();
        lists.extend(self.evidence.iter().flat_map(|evidence| evidence.lists_of(issuer)));
        // Check signatures here, where no lock is held.
        lists.retain(|list| list.covers(certificate) && list.is_by(issuer));
        lists.sort_by_key(|list| Reverse(list.this_update));
        lists
    }

    /// Whether a configured CRL names this issuer, but neither the issuer nor a CA of its name has signed it.
    fn has_unsigned_list(&self, certificate: &Certificate, issuer: &Certificate) -> bool {
        let mut lists = self.lists.iter().filter(|list| list.is_of(issuer) && list.covers(certificate));
        lists.any(|list| !self.authorities.iter().chain([issuer]).any(|authority| list.is_by(authority)))
    }
}

/// Whether the newest CRL, or one as new, lists a certificate.
fn is_revoked_by(lists: &[Arc<List>], certificate: &Certificate) -> bool {
    let newest = lists.first().map(|list| list.this_update);
    lists.iter().take_while(|list| Some(list.this_update) == newest).any(|list| list.has(certificate))
}
