//! Who may become half open: what strangers can make us keep (RFC 7296 section 2.6, RFC 8019).

use crate::Time;
use crate::bucket::{Bucket, aggregate};
use crate::ikev2::action::SessionId;
use crate::ikev2::cookie::CookieJar;
use crate::ikev2::limits::{
    HALF_OPEN_COOKIE, HALF_OPEN_FRAGMENTS, HALF_OPEN_SOURCE, HALF_OPEN_SOURCE_COOKIE, HALF_OPEN_TIME,
    HALF_OPEN_TOTAL,
};
use crate::ikev2::setup::{Gate, HalfOpen};
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
    /// First messages that were read and came to nothing: they cost as well, and leave nothing half open.
    wasted: Option<Bucket>,
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
        let is_open = total < HALF_OPEN_TOTAL && of_source.proven < HALF_OPEN_SOURCE;
        Gate { wants_cookie, is_open, cookies: &mut self.cookies }
    }

    /// A first message came to nothing.
    pub(super) fn note_wasted(&mut self, now: Time) {
        let size = HALF_OPEN_COOKIE as u32;
        let full = || Bucket::new(size, HALF_OPEN_TIME / size, now);
        self.wasted.get_or_insert_with(full).take(now);
    }

    pub(super) fn enter(&mut self, id: SessionId, state: &mut HalfOpen) {
        if self.held + state.held() > HALF_OPEN_FRAGMENTS {
            state.forget_fragments();
        }
        self.held += state.held();
        let source = state.path().remote;
        if self.inside.insert((state.initiator_spi(), source), id).is_none() {
            let count = self.sources.entry(aggregate(source.ip())).or_default();
            count.all += 1;
            count.proven += usize::from(state.is_proven());
        }
    }

    pub(super) fn leave(&mut self, state: &HalfOpen) {
        self.held -= state.held();
        let source = state.path().remote;
        if self.inside.remove(&(state.initiator_spi(), source)).is_none() {
            return;
        }
        let source = aggregate(source.ip());
        if let Some(count) = self.sources.get_mut(&source) {
            count.all -= 1;
            count.proven -= usize::from(state.is_proven());
            if count.all == 0 {
                self.sources.remove(&source);
            }
        }
    }
}
