//! Revocation data that changes at run time: CRL files, fetched CRLs and OCSP responses.
//!
//! ```text
//! verify ──no fresh status──> source ──due──> Query ──HTTP, by the caller──> answer ──verified──> source ──> next verify
//! ```
//! Nothing here blocks or opens a connection. A source is created only for a certificate whose chain leads to a trusted
//! CA, and its data is used only if the issuer of that certificate has signed it.

use super::list::List;
use super::ocsp::{self, Answer, CertId};
use super::{Certificate, RevocationListError};
use crate::pem;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of sources per trusted CA, of CRLs and of OCSP responses: the CAs below it can name any number. CRLs
/// may be large. The least recently used source is dropped first.
const MOST_SOURCES: [usize; 2] = [16, 1024];
/// Maximum length of a CRL, enough for some hundred thousand certificates, and of an OCSP response.
const MOST_BYTES: [usize; 2] = [4 << 20, 64 << 10];
/// The first and the longest delay after a source failed; it doubles in between.
const RETRY: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(3600)];
/// The shortest time until a successful fetch is repeated.
const SHORTEST: Duration = Duration::from_secs(60);
/// How long a source that never succeeded is tried after it was last wanted.
const PATIENCE: Duration = Duration::from_secs(3600);

/// An address, and the CRL or OCSP response to fetch from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    url: String,
    /// SHA-1 of the issuer's key.
    issuer: [u8; 20],
    /// The OCSP request; `None` for a CRL.
    request: Option<Vec<u8>>,
}

/// The state of a source.
struct State {
    issuer: Certificate,
    /// SHA-1 of the key of the trusted CA at the end of the issuer's chain.
    authority: [u8; 20],
    certificate: Option<CertId>,
    found: Option<Found>,
    /// When to fetch next, as time since 1970.
    due: Duration,
    is_asked: bool,
    failures: u32,
    failure: Option<String>,
    /// When [`Evidence::want`] last named the source, as time since 1970.
    used: Duration,
}

#[derive(Clone)]
enum Found {
    List(Arc<List>),
    Answer(Answer),
}

/// An HTTP request to make.
#[derive(Clone, Debug)]
pub struct Query(Source);

impl Query {
    /// The address; it begins with `http://`.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// The body to POST as `application/ocsp-request`; `None` for a CRL, which is fetched with GET.
    pub fn body(&self) -> Option<&[u8]> {
        self.0.request.as_deref()
    }

    /// Maximum length of the answer in bytes.
    pub fn limit(&self) -> usize {
        MOST_BYTES[usize::from(self.0.request.is_some())]
    }
}

/// Revocation data that changes at run time: CRL files, fetched CRLs and OCSP responses. Shared by all trust stores.
pub struct Evidence {
    known: Mutex<Known>,
    generation: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Known {
    files: HashMap<String, Vec<Arc<List>>>,
    sources: HashMap<Source, State>,
}

impl Evidence {
    /// Starts without data; `wake` is called when there may be something to fetch.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { known: Mutex::default(), generation: AtomicU64::new(0), wake: Box::new(wake) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Each change is a single step, so the data is consistent even if a thread panicked.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the CRLs of a file. `authority` itself must have signed them all.
    pub fn set_file(
        &self,
        path: &str,
        authority: &Certificate,
        bytes: &[u8],
    ) -> Result<(), RevocationListError> {
        let lists = read_lists(bytes)?;
        if !lists.iter().all(|list| list.is_by(authority)) {
            return Err(RevocationListError::OtherIssuer(authority.subject().clone()));
        }
        self.known().files.insert(path.to_owned(), lists.into_iter().map(Arc::new).collect());
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Drops the sources of all CAs but these, given by [`Certificate::key_hash`].
    pub fn keep_authorities(&self, keys: &HashSet<[u8; 20]>) {
        self.known().sources.retain(|_, state| keys.contains(&state.authority));
    }

    /// Drops the CRLs of all files but these.
    pub fn keep_files(&self, paths: &[&str]) {
        self.known().files.retain(|path, _| paths.contains(&path.as_str()));
    }

    /// The CRLs that name an issuer. Signatures are not checked here, because the lock is held.
    pub(super) fn lists_of(&self, issuer: &Certificate) -> Vec<Arc<List>> {
        let known = self.known();
        let fetched = known.sources.values().filter_map(|state| match &state.found {
            Some(Found::List(list)) => Some(list),
            _ => None,
        });
        known.files.values().flatten().chain(fetched).filter(|list| list.is_of(issuer)).cloned().collect()
    }

    /// The OCSP status of a certificate: revoked, or not revoked by a response that has not expired.
    pub(super) fn answer_about(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        now: Duration,
    ) -> Option<Answer> {
        let sources: Vec<_> = sources(certificate, issuer).collect();
        let known = self.known();
        let answers =
            sources.iter().filter_map(|(source, _)| match known.sources.get(source)?.found.as_ref()? {
                Found::Answer(answer) => Some(*answer),
                Found::List(_) => None,
            });
        answers.filter(|answer| answer.is_revoked || now <= answer.until).max_by_key(|it| it.is_revoked)
    }

    /// Schedules fetches of the CRL or OCSP status that the certificate points to, and refreshes it before it expires.
    ///
    /// The sources count towards the limit of `authority`, the trusted CA of both certificates.
    pub(super) fn want(&self, [certificate, issuer, authority]: [&Certificate; 3], now: Duration) {
        let mut is_new = false;
        let sources: Vec<_> = sources(certificate, issuer).collect();
        let authority = authority.key_hash();
        let mut known = self.known();
        for (source, id) in sources {
            let state = known.sources.entry(source).or_insert_with(|| {
                is_new = true;
                State {
                    issuer: issuer.clone(),
                    authority,
                    certificate: id,
                    found: None,
                    due: now,
                    is_asked: false,
                    failures: 0,
                    failure: None,
                    used: now,
                }
            });
            state.used = now;
            // Retry a failed source soon after it is wanted again, but not at each attempt of a peer.
            let has_fresh = state.found.as_ref().is_some_and(|found| found.is_fresh(now));
            if !has_fresh && state.failures > 0 {
                state.due = state.due.min(now + RETRY[0]);
            }
            is_new |= !state.is_asked && state.due <= now;
        }
        known.make_room(authority);
        drop(known);
        if is_new {
            (self.wake)();
        }
    }

    /// The state of the certificate's sources, as text for an operator, and whether a fetch is pending.
    pub(super) fn progress(
        &self,
        certificate: &Certificate,
        issuer: &Certificate,
        now: Duration,
    ) -> Option<(String, bool)> {
        let sources: Vec<_> = sources(certificate, issuer).collect();
        let (known, mut is_awaited) = (self.known(), false);
        let said = sources.iter().map(|(source, _)| {
            let (url, state) = (&source.url, known.sources.get(source));
            let is_asked = state.is_some_and(|state| state.is_asked || state.due <= now);
            is_awaited |= is_asked;
            match state.map(|state| state.failure.as_ref()) {
                None => format!("{url} is not asked, because certificates of its CA name too many addresses"),
                Some(None) => format!("{url} is being asked"),
                Some(Some(failure)) if is_asked => format!("{url} {failure}, and is being asked again"),
                Some(Some(failure)) => format!("{url} {failure}"),
            }
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| (said.join("; "), is_awaited))
    }

    /// Changes whenever a fetch has ended or a file was read: a certificate without a known status may be accepted now.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The requests due at the time `now` since 1970. Each must be [answered](Self::answer).
    pub fn due(&self, now: Duration) -> Vec<Query> {
        let mut known = self.known();
        known
            .sources
            .retain(|_, state| state.is_asked || state.found.is_some() || now < state.used + PATIENCE);
        let due = known.sources.iter_mut().filter(|(_, state)| !state.is_asked && state.due <= now);
        due.map(|(source, state)| {
            state.is_asked = true;
            Query(source.clone())
        })
        .collect()
    }

    /// Takes the answer to a query, or why there is none. Fails for data that is not signed, not current, or about
    /// another certificate.
    pub fn answer(
        &self,
        query: &Query,
        now: Duration,
        fetched: Result<Vec<u8>, String>,
    ) -> Result<(), String> {
        let Some((issuer, certificate)) =
            self.known().sources.get(&query.0).map(|state| (state.issuer.clone(), state.certificate.clone()))
        else {
            return Ok(());
        };
        let read = fetched.and_then(|bytes| match &certificate {
            Some(id) => {
                let answer = ocsp::read(&bytes, id, &issuer, now)?;
                Ok((Found::Answer(answer), answer.until))
            }
            None => read_fetched(&bytes, &issuer, now).map(|(list, until)| (Found::List(list), until)),
        });
        let mut known = self.known();
        let Some(state) = known.sources.get_mut(&query.0) else { return Ok(()) };
        state.is_asked = false;
        self.generation.fetch_add(1, Ordering::Release);
        match read {
            Ok((found, until)) => {
                // An attacker on the path could replay an older answer that has not expired.
                if !state.found.as_ref().is_some_and(|known| known.stays(&found, now)) {
                    state.found = Some(found);
                }
                (state.failures, state.failure) = (0, None);
                state.due = now + (until.saturating_sub(now) / 10 * 9).max(SHORTEST);
                Ok(())
            }
            Err(error) => {
                let wait = RETRY[0].saturating_mul(1 << state.failures.min(16));
                state.due = now + wait.min(RETRY[1]);
                state.failures = state.failures.saturating_add(1);
                state.failure = Some(error.clone());
                Err(error)
            }
        }
    }
}

impl Known {
    /// Drops the least recently used sources of a CA that has too many.
    fn make_room(&mut self, authority: [u8; 20]) {
        for (kind, most) in MOST_SOURCES.into_iter().enumerate() {
            let is_of_kind = |(source, state): &(&Source, &State)| {
                state.authority == authority && usize::from(source.request.is_some()) == kind
            };
            while self.sources.iter().filter(is_of_kind).count() > most {
                let of_kind = self.sources.iter().filter(is_of_kind);
                let Some(oldest) = of_kind.min_by_key(|(_, state)| state.used).map(|(it, _)| it.clone())
                else {
                    return;
                };
                self.sources.remove(&oldest);
            }
        }
    }
}

impl Found {
    /// Whether the data is current at the time `now`.
    fn is_fresh(&self, now: Duration) -> bool {
        match self {
            Self::List(list) => list.is_fresh(now),
            Self::Answer(answer) => now <= answer.until,
        }
    }

    /// Whether to keep this data instead of `other`. The newer counts, not the one that is valid for longer.
    fn stays(&self, other: &Self, now: Duration) -> bool {
        match (self, other) {
            (Self::List(ours), Self::List(theirs)) => ours.this_update > theirs.this_update,
            // An expired "good" is worthless. Of two responses of the same time, "revoked" counts.
            (Self::Answer(ours), Self::Answer(theirs)) => {
                let rank = |answer: &Answer| (answer.this_update, answer.is_revoked, answer.until);
                rank(ours) > rank(theirs) && (ours.is_revoked || now <= ours.until)
            }
            _ => false,
        }
    }
}

/// The sources of a certificate's status: OCSP responders first.
fn sources<'a>(
    certificate: &'a Certificate,
    issuer: &'a Certificate,
) -> impl Iterator<Item = (Source, Option<CertId>)> + 'a {
    let id = CertId::of(certificate, issuer).ok();
    let key = issuer.key_hash();
    let of_answers = certificate.status_urls().iter().filter_map(move |url| {
        let id = id.clone()?;
        Some((Source { url: url.clone(), issuer: key, request: Some(id.request().ok()?) }, Some(id)))
    });
    let of_lists = certificate.list_urls().iter();
    of_answers.chain(of_lists.map(move |url| (Source { url: url.clone(), issuer: key, request: None }, None)))
}

/// Reads all CRLs of a file: PEM, DER or bare base64.
pub(super) fn read_lists(bytes: &[u8]) -> Result<Vec<List>, RevocationListError> {
    let sections = pem::read(bytes)?;
    let of_lists = sections.iter().filter(|section| matches!(section.label.as_str(), "" | "X509 CRL"));
    let read =
        |section: &pem::Section| List::from_der(section.der.expose()).map_err(RevocationListError::Unusable);
    let lists = of_lists.map(read).collect::<Result<Vec<List>, _>>()?;
    if lists.is_empty() {
        let labels: Vec<&str> = sections.iter().map(|section| section.label.as_str()).collect();
        return Err(RevocationListError::OtherContent(labels.join(", ")));
    }
    Ok(lists)
}

/// Reads a fetched CRL: it must be signed by the issuer and current at the time `now`. Also returns nextUpdate.
fn read_fetched(bytes: &[u8], issuer: &Certificate, now: Duration) -> Result<(Arc<List>, Duration), String> {
    let lists = read_lists(bytes).map_err(|error| format!("sends no revocation list: {error}"))?;
    let newest = lists.into_iter().filter(|list| list.is_by(issuer)).max_by_key(|list| list.this_update);
    let list = newest.ok_or("sends a revocation list that the issuer has not signed")?;
    match list.next_update {
        Some(until) if list.is_fresh(now) => Ok((Arc::new(list), until)),
        Some(_) => Err("sends a revocation list that is not current; is the clock right?".to_owned()),
        None => Err("sends a revocation list without nextUpdate".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_answer_counts_even_if_another_is_valid_for_longer() {
        let answer = |is_revoked, [this_update, until]: [u64; 2]| {
            let [this_update, until] = [this_update, until].map(Duration::from_secs);
            Found::Answer(Answer { is_revoked, this_update, until })
        };
        for (known, new, stays) in [
            // A longer-lived "good" does not hide a later revocation.
            (answer(false, [10, 900]), answer(true, [20, 100]), false),
            (answer(true, [20, 100]), answer(false, [10, 900]), true),
            // At the same time, "revoked" counts.
            (answer(true, [10, 100]), answer(false, [10, 900]), true),
            (answer(false, [10, 900]), answer(true, [10, 100]), false),
            // The certificate was on hold, and is released.
            (answer(true, [10, 900]), answer(false, [20, 100]), false),
            (answer(false, [20, 100]), answer(false, [10, 900]), true),
            // An expired answer is replaced, unless it is "revoked".
            (answer(false, [20, 40]), answer(false, [10, 900]), false),
            (answer(true, [20, 40]), answer(false, [10, 900]), true),
        ] {
            assert_eq!(known.stays(&new, Duration::from_secs(50)), stays);
        }
    }
}
