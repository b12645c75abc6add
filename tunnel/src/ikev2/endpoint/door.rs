//! Who may become half open: what strangers can make us keep (RFC 7296 section 2.6, RFC 8019).

use crate::Time;
use crate::bucket::{Bucket, aggregate};
use crate::ikev2::action::SessionId;
use crate::ikev2::cookie::CookieJar;
use crate::ikev2::limits::{
    GUEST_JOBS, HALF_OPEN_COOKIE, HALF_OPEN_FRAGMENTS, HALF_OPEN_SOURCE, HALF_OPEN_SOURCE_COOKIE,
    HALF_OPEN_TIME, HALF_OPEN_TOTAL,
};
use crate::ikev2::nat::Path;
use crate::ikev2::setup::Gate;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

/// The half-open SAs, by whom they are.
#[derive(Default)]
pub(super) struct Door {
    cookies: CookieJar,
    inside: HashMap<(u64, SocketAddr), SessionId>,
    sources: HashMap<IpAddr, Count>,
    /// Bytes of fragments that they hold.
    held: usize,
    /// For how many a job is done.
    worked_on: usize,
    /// First messages that were read and came to nothing: they cost as well, and leave nothing half open.
    wasted: Option<Bucket>,
}

/// Who waits for an IKE SA, and has yet to show who it is: always by the first message, from wherever later ones come.
#[derive(Clone, Copy)]
pub(in crate::ikev2) struct Guest {
    spi: u64,
    source: SocketAddr,
    /// Whether it has returned a cookie: it is where it says that it is.
    is_proven: bool,
    /// Bytes of fragments that are held for it.
    held: usize,
    /// Whether a job is done for it.
    is_worked_on: bool,
}

impl Guest {
    pub(in crate::ikev2) fn new(initiator_spi: u64, path: Path, is_proven: bool) -> Self {
        Self { spi: initiator_spi, source: path.remote, is_proven, held: 0, is_worked_on: false }
    }

    /// Whether it has returned a cookie.
    pub(in crate::ikev2) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The same, for whom a job is done.
    pub(super) fn worked_on(self) -> Self {
        Self { is_worked_on: true, ..self }
    }

    /// The same, for whom so many bytes of fragments are held.
    pub(in crate::ikev2) fn holding(self, held: usize) -> Self {
        Self { held, ..self }
    }
}

/// How many SAs of a source are half open.
#[derive(Clone, Copy, Default)]
struct Count {
    all: usize,
    /// Those that came with a cookie: nobody else can have sent them.
    proven: usize,
}

impl Door {
    /// The half-open SA that a first message has already made.
    pub(super) fn find(&self, initiator_spi: u64, source: SocketAddr) -> Option<SessionId> {
        self.inside.get(&(initiator_spi, source)).copied()
    }

    /// How many are half open.
    pub(super) fn len(&self) -> usize {
        self.inside.len()
    }

    /// Bytes of fragments that they hold.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// How open the door is for a source.
    pub(super) fn gate(&mut self, now: Time, source: IpAddr) -> Gate<'_> {
        let of_source = self.sources.get(&aggregate(source)).copied().unwrap_or_default();
        let total = self.inside.len();
        let wastes = self.wasted.as_mut().is_some_and(|bucket| bucket.is_empty(now));
        let wants_cookie = wastes || total >= HALF_OPEN_COOKIE || of_source.all >= HALF_OPEN_SOURCE_COOKIE;
        let is_open =
            total < HALF_OPEN_TOTAL && of_source.proven < HALF_OPEN_SOURCE && self.worked_on < GUEST_JOBS;
        Gate { wants_cookie, is_open, cookies: &mut self.cookies }
    }

    /// A first message came to nothing.
    pub(super) fn note_wasted(&mut self, now: Time) {
        let size = HALF_OPEN_COOKIE as u32;
        let full = || Bucket::new(size, HALF_OPEN_TIME / size, now);
        self.wasted.get_or_insert_with(full).take(now);
    }

    /// Whether there is room for the fragments that are held for a guest.
    pub(super) fn has_room(&self, guest: &Guest) -> bool {
        self.held + guest.held <= HALF_OPEN_FRAGMENTS
    }

    pub(super) fn enter(&mut self, id: SessionId, guest: Guest) {
        self.held += guest.held;
        self.worked_on += usize::from(guest.is_worked_on);
        if self.inside.insert((guest.spi, guest.source), id).is_none() {
            let count = self.sources.entry(aggregate(guest.source.ip())).or_default();
            count.all += 1;
            count.proven += usize::from(guest.is_proven);
        }
    }

    pub(super) fn leave(&mut self, guest: Guest) {
        self.held -= guest.held;
        self.worked_on -= usize::from(guest.is_worked_on);
        if self.inside.remove(&(guest.spi, guest.source)).is_none() {
            return;
        }
        let source = aggregate(guest.source.ip());
        if let Some(count) = self.sources.get_mut(&source) {
            count.all -= 1;
            count.proven -= usize::from(guest.is_proven);
            if count.all == 0 {
                self.sources.remove(&source);
            }
        }
    }
}
