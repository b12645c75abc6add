//! Which clients may begin a session: what those occupy that have not authenticated is bounded, for each source and in
//! total, and so are their TLS handshakes.

use super::frequency::{Frequency, Rate};
use crate::Time;
use crate::bucket::{self, Bucket};
use crate::openvpn::channel::PacketError;
use crate::openvpn::cookie;
use crate::openvpn::limits::{
    BEGIN_INTERVAL, BEGINS, BEGINS_INTERVAL, MAX_PENDING, MAX_PENDING_SOURCE, MAX_PENDING_SOURCE_AUTHENTIC,
    MAX_SPENT,
};
use crate::openvpn::packet::SessionId;
use crate::openvpn::peer_address::PeerAddress;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::IpAddr;

/// The sessions that begin.
pub(super) struct Begins {
    /// Sessions of one source that have not authenticated.
    most_of_source: usize,
    /// Sessions that have not authenticated, by source.
    pending: BTreeMap<IpAddr, usize>,
    pending_total: usize,
    /// Sessions that each source may begin.
    sources: HashMap<IpAddr, Bucket>,
    /// Sessions that all sources may begin.
    all: Option<Bucket>,
    frequency: Option<Frequency>,
    spent: Spent,
}

impl Begins {
    /// `is_authentic`: whether first packets are authenticated by a wrap; `rate`: what all clients together may begin.
    pub(super) fn new(is_authentic: bool, rate: Option<Rate>) -> Self {
        let most_of_source = if is_authentic { MAX_PENDING_SOURCE_AUTHENTIC } else { MAX_PENDING_SOURCE };
        Self {
            most_of_source,
            pending: BTreeMap::new(),
            pending_total: 0,
            sources: HashMap::new(),
            all: None,
            frequency: rate.map(Frequency::new),
            spent: Spent::default(),
        }
    }

    /// The pending sessions of the sources of which one must end before this source begins another; `None` if there is room. So a few
    /// sources cannot keep all others out.
    fn crowd(&self, source: IpAddr) -> Option<usize> {
        let most = self.pending.values().max().filter(|_| self.pending_total >= MAX_PENDING)?;
        // A source with one less would only take its place.
        (*most > self.of_source(source) + 1).then_some(*most)
    }

    /// The pending sessions of a source.
    pub(super) fn of_source(&self, source: IpAddr) -> usize {
        self.pending.get(&source).copied().unwrap_or_default()
    }

    /// Admits a session of this source, which then counts as pending. `proof`: the cookie, which begins one session only, or
    /// the session ID of a client that cannot return one. Returns the [crowd](Self::crowd) of
    /// which the caller ends a session, if there is one.
    pub(super) fn admit(
        &mut self,
        now: Time,
        source: IpAddr,
        proof: SessionId,
    ) -> Result<Option<usize>, PacketError> {
        let count = self.of_source(source);
        let crowd = self.crowd(source);
        let is_room = self.pending_total < MAX_PENDING || crowd.is_some();
        if count >= self.most_of_source || !is_room || self.spent.has(now, proof) {
            return Err(PacketError::TooMany);
        }
        // The source first: one that has begun too many must not use up the handshakes of others.
        if !self.may_begin(now, source) || !self.take_one_of_all(now) {
            return Err(PacketError::TooMany);
        }
        // The proof is not spent: the client sends it again, and may be admitted in the next period.
        if self.frequency.as_mut().is_some_and(|frequency| !frequency.take(now)) {
            return Err(PacketError::TooOften);
        }
        if !self.spent.add(now, proof) {
            return Err(PacketError::TooMany);
        }
        self.pending.insert(source, count + 1);
        self.pending_total += 1;
        Ok(crowd)
    }

    /// A session that fails at once is not pending, but has cost a handshake.
    fn may_begin(&mut self, now: Time, source: IpAddr) -> bool {
        if self.sources.len() >= MAX_PENDING {
            self.sources.retain(|_, bucket| !bucket.is_full(now));
        }
        if self.sources.len() >= MAX_PENDING && !self.sources.contains_key(&source) {
            return false;
        }
        let most = self.most_of_source as u32;
        let bucket = || Bucket::new(most, BEGIN_INTERVAL, now);
        self.sources.entry(source).or_insert_with(bucket).take(now)
    }

    fn take_one_of_all(&mut self, now: Time) -> bool {
        self.all.get_or_insert_with(|| Bucket::new(BEGINS, BEGINS_INTERVAL, now)).take(now)
    }

    /// The session has authenticated, or ended before.
    pub(super) fn no_longer_pending(&mut self, source: Option<IpAddr>) {
        let Some(source) = source else { return };
        let Entry::Occupied(mut entry) = self.pending.entry(source) else { return };
        self.pending_total -= 1;
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }
}

/// Cookies that have begun a session, until they are no longer accepted: a copy of the packet, sent when the session has
/// ended, would cost another handshake (CVE-2025-2704 is about such copies).
#[derive(Default)]
struct Spent {
    /// By the slot of time in which they were spent, the oldest first.
    slots: VecDeque<(u64, HashSet<SessionId>)>,
}

impl Spent {
    fn has(&mut self, now: Time, proof: SessionId) -> bool {
        let oldest = cookie::slot(now).saturating_sub(cookie::SLOTS - 1);
        while self.slots.front().is_some_and(|(slot, _)| *slot < oldest) {
            self.slots.pop_front();
        }
        self.slots.iter().any(|(_, spent)| spent.contains(&proof))
    }

    /// Returns false if there is no room for another.
    fn add(&mut self, now: Time, proof: SessionId) -> bool {
        if self.slots.iter().map(|(_, spent)| spent.len()).sum::<usize>() >= MAX_SPENT {
            return false;
        }
        let now = cookie::slot(now);
        match self.slots.back_mut() {
            Some((slot, spent)) if *slot == now => _ = spent.insert(proof),
            _ => self.slots.push_back((now, HashSet::from([proof]))),
        }
        true
    }
}

/// The source that limits count, in UDP and TCP together: an IPv4 address or an IPv6 /64.
pub(super) fn source(address: PeerAddress) -> IpAddr {
    bucket::aggregate(address.socket.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Time {
        Time::from_nanoseconds(1) + Duration::from_secs(seconds)
    }

    fn proof(number: u64) -> SessionId {
        SessionId(number.to_be_bytes())
    }

    #[test]
    fn a_proof_is_spent_for_as_long_as_a_cookie_is_accepted() {
        let mut begins = Begins::new(true, None);
        let source = IpAddr::from([192, 0, 2, 1]);
        for (seconds, is_admitted) in [(1000, true), (1001, false), (1060, false), (1110, true)] {
            assert_eq!(begins.admit(at(seconds), source, proof(7)).is_ok(), is_admitted, "{seconds}");
            begins.no_longer_pending(is_admitted.then_some(source));
        }
    }

    #[test]
    fn sources_together_begin_a_bounded_number() {
        let mut begins = Begins::new(true, None);
        let mut admitted = 0;
        // Sources are few enough for the table of their buckets, and each stays below its own limit.
        for number in 0..20_000u32 {
            let source = IpAddr::from([198, 18, 0, (number % 200) as u8]);
            if begins.admit(at(1), source, proof(number.into())).is_ok() {
                begins.no_longer_pending(Some(source));
                admitted += 1;
            }
        }
        assert_eq!(admitted, BEGINS);
        assert_eq!(begins.admit(at(2), IpAddr::from([198, 18, 0, 250]), proof(1 << 40)), Ok(None));
    }

    #[test]
    fn a_source_with_fewer_sessions_comes_in_although_all_places_are_taken() {
        let mut begins = Begins::new(true, None);
        let source = |number: usize| IpAddr::from([198, 18, 0, number as u8]);
        let each = MAX_PENDING / 8;
        for number in 0..MAX_PENDING {
            let of = source(number / each);
            assert_eq!(begins.crowd(of), None);
            // As slowly as buckets allow it.
            let time = at(1) + BEGIN_INTERVAL * number as u32;
            assert_eq!(begins.admit(time, of, proof(number as u64)), Ok(None));
        }
        let late = at(1000);
        assert_eq!(begins.crowd(source(0)), None, "it has as many as any");
        assert_eq!(begins.admit(late, source(0), proof(1 << 40)), Err(PacketError::TooMany));
        assert_eq!(begins.crowd(source(9)), Some(each));
        assert_eq!(begins.admit(late, source(9), proof(1 << 41)), Ok(Some(each)));
        begins.no_longer_pending(Some(source(3)));
        assert_eq!((begins.of_source(source(3)), begins.pending_total), (each - 1, MAX_PENDING));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut spent = Spent::default();
        let added = (0..2 * MAX_SPENT as u64).filter(|number| spent.add(at(1), proof(*number))).count();
        assert_eq!(added, MAX_SPENT);
        let per_life = BEGINS_INTERVAL.as_nanos() as usize * MAX_SPENT;
        let life = (cookie::SLOT * cookie::SLOTS as u32).as_nanos() as usize;
        assert!(per_life > life + BEGINS_INTERVAL.as_nanos() as usize * BEGINS as usize, "it is never full");
    }
}
