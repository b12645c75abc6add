//! Admission of half-open SAs: bounds on the state that unauthenticated sources can create (RFC 7296 section 2.6, RFC
//! 8019).

use super::cookie::CookieJar;
use super::ids::SessionId;
use super::limits::{
    HALF_OPEN_COOKIE, HALF_OPEN_FRAGMENTS, HALF_OPEN_JOBS, HALF_OPEN_SOURCE, HALF_OPEN_SOURCE_COOKIE,
    HALF_OPEN_TIME, HALF_OPEN_TOTAL, HELD_TOTAL,
};
use super::nat::Path;
use crate::Time;
use crate::bucket::{Bucket, aggregate};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The shortest interval between two sweeps: each sweep visits all sources.
const SOONEST_SWEEP: Duration = Duration::from_secs(1);

/// The conditions for a first message.
pub(super) struct Admission<'a> {
    pub(super) cookies: &'a mut CookieJar,
    /// Whether a cookie is required, as many SAs are half open.
    pub(super) wants_cookie: bool,
    /// Whether there is room for one more half-open SA.
    pub(super) is_open: bool,
}

/// The half-open SAs, by source.
#[derive(Default)]
pub(super) struct HalfOpenTable {
    cookies: CookieJar,
    inside: HashMap<(u64, SocketAddr), SessionId>,
    sources: HashMap<IpAddr, Source>,
    /// The time of the last sweep of idle sources.
    swept: Option<Time>,
    /// Bytes of fragments held by all half-open SAs.
    held: usize,
    /// Sources that hold fragments, by their bytes.
    by_fragments: BTreeSet<(usize, IpAddr)>,
    /// The number of half-open SAs with a running job.
    worked_on: usize,
    /// The number of half-open SAs that wait for a revocation status.
    waiting: usize,
    /// The budget for first messages that led to no SA: they cost time without leaving a half-open SA.
    wasted: Option<Bucket>,
}

/// A half-open IKE SA in the table: identified by its first message, whatever address later messages have.
#[derive(Clone, Copy)]
pub(super) struct HalfOpenEntry {
    spi: u64,
    source: SocketAddr,
    /// Whether the initiator returned a cookie, so that its address is proven.
    is_proven: bool,
    /// Bytes of its fragments, and of messages that it keeps.
    held: usize,
    /// Bytes of its fragments.
    fragments: usize,
    /// Whether a job of it is running.
    is_worked_on: bool,
    /// Whether it waits for a revocation status.
    is_waiting: bool,
}

impl HalfOpenEntry {
    pub(super) fn new(initiator_spi: u64, path: Path, is_proven: bool) -> Self {
        let (is_worked_on, is_waiting) = (false, false);
        let (held, fragments) = (0, 0);
        Self { spi: initiator_spi, source: path.remote, is_proven, held, fragments, is_worked_on, is_waiting }
    }

    /// Whether the initiator returned a cookie.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The same entry, with a running job.
    pub(super) fn worked_on(self) -> Self {
        Self { is_worked_on: true, ..self }
    }

    /// The same entry with this size of fragments and of kept messages, and whether it waits for a revocation status.
    pub(super) fn holding(self, fragments: usize, kept: usize, is_waiting: bool) -> Self {
        Self { held: fragments + kept, fragments, is_waiting, ..self }
    }
}

/// The half-open SAs of one source address.
struct Source {
    /// The number of its half-open SAs.
    all: usize,
    /// The number of those with a cookie, which no other source can have sent.
    proven: usize,
    /// Bytes of its fragments.
    fragments: usize,
    /// The SAs that hold them.
    holders: BTreeSet<SessionId>,
    /// The budget for first messages that led to no SA: each counts like a half-open SA.
    wasted: Bucket,
    /// The same, for messages with a cookie.
    proven_wasted: Bucket,
}

impl Source {
    fn new(now: Time) -> Self {
        let bucket = |size: usize| Bucket::new(size as u32, HALF_OPEN_TIME / size as u32, now);
        let (wasted, proven_wasted) = (bucket(HALF_OPEN_SOURCE_COOKIE), bucket(HALF_OPEN_SOURCE));
        Self { all: 0, proven: 0, fragments: 0, holders: BTreeSet::new(), wasted, proven_wasted }
    }

    fn wants_cookie(&mut self, now: Time) -> bool {
        self.all + self.wasted.missing(now) as usize >= HALF_OPEN_SOURCE_COOKIE
    }

    fn is_full(&mut self, now: Time) -> bool {
        self.proven + self.proven_wasted.missing(now) as usize >= HALF_OPEN_SOURCE
    }

    /// Whether the source has no state worth keeping.
    fn is_idle(&mut self, now: Time) -> bool {
        self.all == 0 && self.wasted.is_full(now) && self.proven_wasted.is_full(now)
    }
}

impl HalfOpenTable {
    /// The half-open SA that an earlier copy of this first message has created.
    pub(super) fn find(&self, initiator_spi: u64, source: SocketAddr) -> Option<SessionId> {
        self.inside.get(&(initiator_spi, source)).copied()
    }

    /// The number of half-open SAs.
    pub(super) fn len(&self) -> usize {
        self.inside.len()
    }

    /// Bytes of fragments held by all of them.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// The conditions for a first message of this source.
    pub(super) fn admission(&mut self, now: Time, source: IpAddr) -> Admission<'_> {
        let mut of_source = self.sources.get_mut(&aggregate(source));
        let is_doubted = of_source.as_mut().is_some_and(|source| source.wants_cookie(now));
        let is_full = of_source.is_some_and(|source| source.is_full(now));
        let total = self.inside.len();
        let wastes = self.wasted.as_mut().is_some_and(|bucket| bucket.is_empty(now));
        let wants_cookie = wastes || total >= HALF_OPEN_COOKIE || is_doubted;
        let is_open = total < HALF_OPEN_TOTAL && !is_full && self.worked_on < HALF_OPEN_JOBS;
        Admission { wants_cookie, is_open, cookies: &mut self.cookies }
    }

    /// Counts a first message that led to no SA: it was refused, malformed, or of another version.
    pub(super) fn note_wasted(&mut self, now: Time, source: IpAddr, is_proven: bool) {
        let size = HALF_OPEN_COOKIE as u32;
        let full = || Bucket::new(size, HALF_OPEN_TIME / size, now);
        self.wasted.get_or_insert_with(full).take(now);
        self.sweep(now);
        let (source, is_room) = (aggregate(source), self.sources.len() < HALF_OPEN_TOTAL);
        let known = match self.sources.entry(source) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) if is_room => new.insert(Source::new(now)),
            Entry::Vacant(_) => return,
        };
        known.wasted.take(now);
        if is_proven {
            known.proven_wasted.take(now);
        }
    }

    /// Counts an entry whose key exchange was computed in vain.
    pub(super) fn note_wasted_entry(&mut self, now: Time, entry: HalfOpenEntry) {
        self.note_wasted(now, entry.source.ip(), entry.is_proven);
    }

    /// Credits the source of an authenticated entry for earlier first messages with another group or without a
    /// cookie: hundreds of peers may be behind one NAT.
    pub(super) fn credit(&mut self, entry: HalfOpenEntry) {
        if let Some(source) = self.sources.get_mut(&aggregate(entry.source.ip())) {
            source.wasted.put_back();
            if entry.is_proven {
                source.proven_wasted.put_back();
            }
        }
    }

    /// Removes idle sources: periodically, or early if there are too many.
    fn sweep(&mut self, now: Time) {
        let interval = if self.sources.len() < HALF_OPEN_TOTAL { HALF_OPEN_TIME } else { SOONEST_SWEEP };
        if self.swept.is_some_and(|swept| now - swept < interval) {
            return;
        }
        self.swept = Some(now);
        self.sources.retain(|_, source| !source.is_idle(now));
    }

    /// Whether one more entry may wait for a revocation status.
    pub(super) fn may_hold(&self) -> bool {
        self.waiting < HELD_TOTAL
    }

    /// Bytes of messages and fragments that entries may still keep.
    pub(super) fn room(&self) -> usize {
        HALF_OPEN_FRAGMENTS.saturating_sub(self.held)
    }

    /// Whether what an entry holds fits into the memory limit.
    pub(super) fn has_room(&self, entry: &HalfOpenEntry) -> bool {
        self.held + entry.held <= HALF_OPEN_FRAGMENTS
    }

    /// The SA that must drop its fragments to make room for those of an entry: one of the source that holds most. `None` if that is the
    /// source of the entry itself. So a few sources cannot keep all others out.
    pub(super) fn to_make_room(&self, entry: &HalfOpenEntry) -> Option<SessionId> {
        let own = self.sources.get(&aggregate(entry.source.ip())).map_or(0, |source| source.fragments);
        let (most, source) = self.by_fragments.last()?;
        let source = self.sources.get(source).filter(|_| *most > own + entry.fragments)?;
        source.holders.first().copied()
    }

    /// Counts the fragments of an SA for its source.
    fn count(&mut self, source: IpAddr, id: SessionId, change: impl FnOnce(usize) -> usize) {
        let Some(known) = self.sources.get_mut(&source) else { return };
        let before = known.fragments;
        known.fragments = change(before);
        if known.fragments > before {
            known.holders.insert(id);
        } else {
            known.holders.remove(&id);
        }
        let after = known.fragments;
        self.by_fragments.remove(&(before, source));
        self.by_fragments.extend((after > 0).then_some((after, source)));
    }

    pub(super) fn enter(&mut self, now: Time, id: SessionId, entry: HalfOpenEntry) {
        self.held += entry.held;
        self.worked_on += usize::from(entry.is_worked_on);
        self.waiting += usize::from(entry.is_waiting);
        if self.inside.insert((entry.spi, entry.source), id).is_none() {
            let source = self.sources.entry(aggregate(entry.source.ip()));
            let source = source.or_insert_with(|| Source::new(now));
            source.all += 1;
            source.proven += usize::from(entry.is_proven);
        }
        if entry.fragments > 0 {
            self.count(aggregate(entry.source.ip()), id, |before| before + entry.fragments);
        }
    }

    pub(super) fn leave(&mut self, now: Time, id: SessionId, entry: HalfOpenEntry) {
        if entry.fragments > 0 {
            self.count(aggregate(entry.source.ip()), id, |before| before.saturating_sub(entry.fragments));
        }
        self.held -= entry.held;
        self.worked_on -= usize::from(entry.is_worked_on);
        self.waiting -= usize::from(entry.is_waiting);
        if self.inside.remove(&(entry.spi, entry.source)).is_none() {
            return;
        }
        let address = aggregate(entry.source.ip());
        if let Some(source) = self.sources.get_mut(&address) {
            source.all -= 1;
            source.proven -= usize::from(entry.is_proven);
            if source.is_idle(now) {
                self.sources.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_wait_for_the_status_of_their_certificate() {
        let (mut half_open, now) = (HalfOpenTable::default(), Time::from_nanoseconds(1));
        let entry = |spi: usize| {
            let [local, remote] = ["192.0.2.1:500", "192.0.2.2:500"].map(|it| it.parse().expect("literal"));
            HalfOpenEntry::new(spi as u64, Path { local, remote }, false)
        };
        for spi in 0..HELD_TOTAL {
            assert!(half_open.may_hold());
            half_open.enter(now, SessionId(spi as u64), entry(spi).holding(0, 0, true));
        }
        assert!(!half_open.may_hold());
        half_open.enter(now, SessionId(1 << 20), entry(1 << 20));
        half_open.leave(now, SessionId(1 << 20), entry(1 << 20));
        assert!(!half_open.may_hold(), "it did not wait");
        half_open.leave(now, SessionId(7), entry(7).holding(0, 0, true));
        assert!(half_open.may_hold());
    }

    #[test]
    fn the_source_with_most_fragments_makes_room() {
        let (mut table, now) = (HalfOpenTable::default(), Time::from_nanoseconds(1));
        let entry = |source: u8, spi: u64, fragments: usize| {
            let remote = ([198, 18, 0, source], 500).into();
            let path = Path { local: ([192, 0, 2, 1], 500).into(), remote };
            HalfOpenEntry::new(spi, path, true).holding(fragments, 0, false)
        };
        let each = HALF_OPEN_FRAGMENTS / 32;
        for spi in 0..32 {
            // One source has 20 parts of the memory, two have 6.
            let source = if spi < 20 { 1 } else { 2 + (spi % 2) as u8 };
            table.enter(now, SessionId(spi), entry(source, spi, each));
        }
        let new = entry(9, 99, 1000);
        assert!(!table.has_room(&new));
        assert_eq!(table.to_make_room(&new), Some(SessionId(0)));
        table.leave(now, SessionId(0), entry(1, 0, each));
        table.enter(now, SessionId(0), entry(1, 0, 0));
        assert!(table.has_room(&new));
        table.enter(now, SessionId(99), new);
        let more = entry(1, 98, each);
        assert!(!table.has_room(&more));
        assert_eq!(table.to_make_room(&more), None, "its own source has most");
        assert_eq!(table.to_make_room(&entry(2, 97, each)), Some(SessionId(1)));
        for spi in 1..20 {
            table.leave(now, SessionId(spi), entry(1, spi, each));
        }
        assert_eq!(table.to_make_room(&entry(2, 97, each)), None, "now that is the one with most");
        assert_eq!(table.by_fragments.len(), 3);
    }

    #[test]
    fn a_full_table_admits_none_until_an_entry_leaves() {
        let (mut table, now) = (HalfOpenTable::default(), Time::from_nanoseconds(1));
        let entry = |number: usize| {
            let source = [198, 18, (number >> 8) as u8, number as u8];
            let path = Path { local: ([192, 0, 2, 1], 500).into(), remote: (source, 500).into() };
            HalfOpenEntry::new(number as u64, path, true)
        };
        let other = [192, 0, 2, 9].into();
        for number in 0..HALF_OPEN_TOTAL {
            assert!(table.admission(now, other).is_open);
            table.enter(now, SessionId(number as u64), entry(number));
        }
        assert!(!table.admission(now, other).is_open);
        table.leave(now, SessionId(7), entry(7));
        assert!(table.admission(now, other).is_open);
    }
}
