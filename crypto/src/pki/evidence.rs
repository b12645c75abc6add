//! What is known about revocation besides the lists of the configuration: lists in files, and what issuers answered.
//!
//! ```text
//! verify ──no fresh status──> source ──due──> Query ──HTTP, elsewhere──> answer ──verified──> source ──> next verify
//! ```
//! Nothing here waits or opens a connection. A source is made only of a certificate whose chain leads to a trusted authority,
//! and what comes from it counts only if the issuer of that certificate has signed it.

use super::list::List;
use super::ocsp::{self, Answer, CertId};
use super::{Certificate, RevocationListError};
use crate::pem;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Sources that are remembered for each trusted authority, as those below it can name as many as they like: of lists, which may
/// be large, and of answers about one certificate. The one that was longest without use goes first.
const MOST_SOURCES: [usize; 2] = [16, 1024];
/// Bytes of what a source sends: a list of some hundred thousand certificates, or an answer about one.
const MOST_BYTES: [usize; 2] = [4 << 20, 64 << 10];
/// The first wait after a source failed, doubled up to the longest.
const RETRY: [Duration; 2] = [Duration::from_secs(15), Duration::from_secs(3600)];
/// The shortest time until a source is asked again that has answered.
const SHORTEST: Duration = Duration::from_secs(60);
/// How long a source that never answered is tried without being wanted.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Where to ask, and about what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    url: String,
    /// SHA-1 of the issuer's key.
    issuer: [u8; 20],
    /// The request of OCSP; none for a list.
    request: Option<Vec<u8>>,
}

/// What has come of a source.
struct State {
    issuer: Certificate,
    /// SHA-1 of the key of the trusted authority to which the issuer leads.
    authority: [u8; 20],
    certificate: Option<CertId>,
    found: Option<Found>,
    /// When it is asked next, since 1970.
    due: Duration,
    is_asked: bool,
    failures: u32,
    failure: Option<String>,
    /// When it was last wanted, since 1970.
    used: Duration,
}

#[derive(Clone)]
enum Found {
    List(Arc<List>),
    Answer(Answer),
}

/// Something to be fetched by HTTP.
#[derive(Clone, Debug)]
pub struct Query(Source);

impl Query {
    /// Where; it begins with `http://`.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// What is posted, as `application/ocsp-request`; a list is only fetched.
    pub fn body(&self) -> Option<&[u8]> {
        self.0.request.as_deref()
    }

    /// How many bytes the answer may have.
    pub fn limit(&self) -> usize {
        MOST_BYTES[usize::from(self.0.request.is_some())]
    }
}

/// What is known about revocation besides the lists of the configuration. Shared by all who verify.
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
    /// Knows nothing; `wake` is called when there may be something to fetch.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { known: Mutex::default(), generation: AtomicU64::new(0), wake: Box::new(wake) }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // What a thread that panicked has left is whole: it is changed in single steps.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lists of a file, in place of those that it had before. Only the authority itself may have signed them.
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

    /// Forgets what was fetched for authorities whose keys are not among these, by [`Certificate::key_hash`].
    pub fn keep_authorities(&self, keys: &HashSet<[u8; 20]>) {
        self.known().sources.retain(|_, state| keys.contains(&state.authority));
    }

    /// Forgets the lists of files that are not among these.
    pub fn keep_files(&self, paths: &[&str]) {
        self.known().files.retain(|path, _| paths.contains(&path.as_str()));
    }

    /// The lists that say that they are an issuer's. Whether they are is not looked at while all others wait.
    pub(super) fn lists_of(&self, issuer: &Certificate) -> Vec<Arc<List>> {
        let known = self.known();
        let fetched = known.sources.values().filter_map(|state| match &state.found {
            Some(Found::List(list)) => Some(list),
            _ => None,
        });
        known.files.values().flatten().chain(fetched).filter(|list| list.is_of(issuer)).cloned().collect()
    }

    /// What the issuer has answered about a certificate: that it is revoked, or, if it was asked lately enough, that not.
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

    /// Has fetched, now and again before it is too old, what is said of a certificate where it says that it is said.
    /// The authority to which both lead is charged with it.
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
            // What failed is asked again when it is wanted again, but not with each knock.
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

    /// How it stands with the places at which a certificate says that its status is told, for an operator; and whether one of
    /// them is still being asked.
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
                None => format!("{url} is not asked, as its authority names too many places"),
                Some(None) => format!("{url} is being asked"),
                Some(Some(failure)) if is_asked => format!("{url} {failure}, and is being asked again"),
                Some(Some(failure)) => format!("{url} {failure}"),
            }
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| (said.join("; "), is_awaited))
    }

    /// Changes whenever a question has come to an end, or a file was read: what was refused for want of a status may be taken.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What is to be fetched at the time `now` since 1970. Each must be [answered](Self::answer).
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

    /// Takes what was fetched, or why it was not. What is not signed, old or about something else is an error.
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
                // An attacker on the path could send an older one that has not expired.
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
    /// Forgets sources of an authority that has too many.
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
    /// Whether it counts at the time `now`.
    fn is_fresh(&self, now: Duration) -> bool {
        match self {
            Self::List(list) => list.is_fresh(now),
            Self::Answer(answer) => now <= answer.until,
        }
    }

    /// Whether it stays although `other` has come. How long one of them counts says nothing of which is newer.
    fn stays(&self, other: &Self, now: Duration) -> bool {
        match (self, other) {
            (Self::List(ours), Self::List(theirs)) => ours.this_update > theirs.this_update,
            // That a certificate was good says nothing more when it has expired. Of two of one time that counts which
            // says that it is revoked.
            (Self::Answer(ours), Self::Answer(theirs)) => {
                let rank = |answer: &Answer| (answer.this_update, answer.is_revoked, answer.until);
                rank(ours) > rank(theirs) && (ours.is_revoked || now <= ours.until)
            }
            _ => false,
        }
    }
}

/// Where the status of a certificate is told: the answers about it alone first.
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

/// Every revocation list of a file: PEM, DER or base64 alone.
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

/// The list of an issuer as it was fetched, which counts at the time `now`, and until when.
fn read_fetched(bytes: &[u8], issuer: &Certificate, now: Duration) -> Result<(Arc<List>, Duration), String> {
    let lists = read_lists(bytes).map_err(|error| format!("sends no revocation list: {error}"))?;
    let newest = lists.into_iter().filter(|list| list.is_by(issuer)).max_by_key(|list| list.this_update);
    let list = newest.ok_or("sends a revocation list that the issuer has not signed")?;
    match list.next_update {
        Some(until) if list.is_fresh(now) => Ok((Arc::new(list), until)),
        Some(_) => Err("sends a revocation list that is not of now; is the clock right?".to_owned()),
        None => Err("sends a revocation list that does not say until when it counts".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_answer_counts_however_long_others_do() {
        let answer = |is_revoked, [this_update, until]: [u64; 2]| {
            let [this_update, until] = [this_update, until].map(Duration::from_secs);
            Found::Answer(Answer { is_revoked, this_update, until })
        };
        for (known, new, stays) in [
            // A good one that counts for longer does not hide that it was revoked since.
            (answer(false, [10, 900]), answer(true, [20, 100]), false),
            (answer(true, [20, 100]), answer(false, [10, 900]), true),
            // Of one time: revoked.
            (answer(true, [10, 100]), answer(false, [10, 900]), true),
            (answer(false, [10, 900]), answer(true, [10, 100]), false),
            // It was on hold, and is so no longer.
            (answer(true, [10, 900]), answer(false, [20, 100]), false),
            (answer(false, [20, 100]), answer(false, [10, 900]), true),
            // What has expired gives way, unless it says that the certificate is revoked.
            (answer(false, [20, 40]), answer(false, [10, 900]), false),
            (answer(true, [20, 40]), answer(false, [10, 900]), true),
        ] {
            assert_eq!(known.stays(&new, Duration::from_secs(50)), stays);
        }
    }
}
