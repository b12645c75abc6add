//! What every state is handed with a message: the time, randomness, who has which SPI, and where actions go.

use super::action::{Action, Cause, Event, Install, Outbox, SessionId};
use super::channel::Datagrams;
use super::config::{ConnectionId, Patience};
use super::conflicts::Conflicts;
use super::connections::Connections;
use super::endpoint::Worn;
use super::identity::Identity;
use super::limits::{STRANGER_EVENTS, STRANGER_INTERVAL};
use super::nat::Path;
use crate::Time;
use crate::bucket::Bucket;
use crypto::Random;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// Who has which SPI.
#[derive(Default)]
pub(super) struct Registry {
    ike: HashMap<u64, SessionId>,
    children: HashMap<u32, SessionId>,
    /// Those that we have asked for: the caller keeps packets under them.
    expected: HashSet<u32>,
    /// Which peer has which packets.
    pub(super) conflicts: Conflicts,
    /// Sessions that are in the way of others: whether their peers are there is to be seen.
    pub(super) doubtful: BTreeSet<SessionId>,
    /// What peers may still have us do.
    pub(super) exchanges: Exchanges,
    /// What may still be reported that others bring about, of each connection, and whether they have authenticated: unauthenticated sources
    /// must not hide what those do.
    reports: HashMap<(Option<ConnectionId>, bool), Bucket>,
}

impl Registry {
    /// Whose IKE SA a message is for.
    pub(super) fn owner(&self, spi: u64) -> Option<SessionId> {
        self.ike.get(&spi).copied()
    }

    /// Whose Child SA it is.
    pub(super) fn child_owner(&self, spi: u32) -> Option<SessionId> {
        self.children.get(&spi).copied()
    }

    /// SPIs of IKE SAs and of Child SAs in use.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.ike.len(), self.children.len())
    }

    /// Whether what others bring about may be reported once more.
    fn may_report(&mut self, of: (Option<ConnectionId>, bool), now: Time) -> bool {
        let full = || Bucket::new(STRANGER_EVENTS, STRANGER_INTERVAL, now);
        self.reports.entry(of).or_insert_with(full).take(now)
    }

    /// A connection is no more.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        for is_authentic in [true, false] {
            self.reports.remove(&(Some(connection), is_authentic));
        }
        self.exchanges.0.retain(|(of, _), _| *of != connection);
    }
}

/// The key exchanges that are left to each peer. A bucket that is full is as good as none.
#[derive(Default)]
pub(super) struct Exchanges(HashMap<(ConnectionId, Identity), Bucket>);

/// Below this number of buckets, full ones are not removed.
const SWEPT: usize = 256;

impl Exchanges {
    pub(super) fn of(
        &mut self,
        peer: (ConnectionId, Identity),
        now: Time,
        fresh: impl FnOnce() -> Bucket,
    ) -> &mut Bucket {
        // Looked at whenever there is no room for another without growing.
        if self.0.len() >= SWEPT && self.0.len() == self.0.capacity() {
            self.0.retain(|_, bucket| !bucket.is_full(now));
        }
        self.0.entry(peer).or_insert_with(fresh)
    }
}

/// See the module.
pub(super) struct Context<'a> {
    pub(super) now: Time,
    /// Since 1970.
    pub(super) wall: Duration,
    pub(super) patience: Patience,
    pub(super) random: &'a mut dyn Random,
    pub(super) registry: &'a mut Registry,
    pub(super) connections: &'a Connections,
    /// Whether a Child SA has carried much of what it may.
    pub(super) worn: &'a Worn,
    /// See [`Endpoint::compared`](super::Endpoint::compared).
    pub(super) compared: &'a mut u64,
    /// Whether one more who has yet to show who it is may wait for the answer to a question about its certificate.
    pub(super) may_hold: bool,
    pub(super) out: &'a mut Outbox,
}

impl Context<'_> {
    pub(super) fn send(&mut self, path: Path, datagrams: Datagrams) {
        self.out.extend(datagrams.into_iter().map(|message| Action::Send { path, message }));
    }

    pub(super) fn report(&mut self, event: Event) {
        self.out.push(Action::Report(Box::new(event)));
    }

    /// Reports what was not agreed on with who has shown who it is, or what is our own doing.
    pub(super) fn fail(&mut self, connection: ConnectionId, path: Path, cause: Cause) {
        self.report(Event::Failed { connection: Some(connection), path, authentic: true, cause });
    }

    /// The same, but only so often: an authenticated peer can bring it about as often as it likes.
    pub(super) fn fail_sometimes(&mut self, connection: ConnectionId, path: Path, cause: Cause) {
        if self.registry.may_report((Some(connection), true), self.now) {
            self.fail(connection, path, cause);
        }
    }

    /// Reports why an attempt of ours came to nothing, as somebody says who has not shown who it is: no more often than
    /// we try, whatever unauthenticated sources do.
    pub(super) fn give_up(&mut self, connection: ConnectionId, path: Path, cause: Cause) {
        self.report(Event::Failed { connection: Some(connection), path, authentic: false, cause });
    }

    /// Reports what anybody may have brought about, and only so often: what it costs to say why is not spent more often
    /// either.
    pub(super) fn suspect(
        &mut self,
        connection: Option<ConnectionId>,
        path: Path,
        cause: impl FnOnce() -> Cause,
    ) {
        // What was removed meanwhile is not counted for itself.
        let known = connection.filter(|id| self.connections.get(*id).is_some());
        if self.registry.may_report((known, false), self.now) {
            self.report(Event::Failed { connection, path, authentic: false, cause: cause() });
        }
    }

    /// Random bytes.
    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    /// An SPI for an IKE SA that nobody has; never zero.
    pub(super) fn new_ike_spi(&mut self, owner: SessionId) -> u64 {
        loop {
            let spi = u64::from_be_bytes(self.bytes());
            if spi != 0 && !self.registry.ike.contains_key(&spi) {
                self.registry.ike.insert(spi, owner);
                return spi;
            }
        }
    }

    pub(super) fn release_ike_spi(&mut self, spi: u64) {
        self.registry.ike.remove(&spi);
    }

    /// An SPI to receive ESP with that nobody has. RFC 4303 section 2.1: those below 256 are reserved.
    pub(super) fn new_child_spi(&mut self, owner: SessionId) -> u32 {
        loop {
            let spi = u32::from_be_bytes(self.bytes());
            if spi >= 256 && !self.registry.children.contains_key(&spi) {
                self.registry.children.insert(spi, owner);
                return spi;
            }
        }
    }

    /// The same, for an SA that we ask for. The other side may send under it before we have its answer.
    pub(super) fn expect_child_spi(&mut self, owner: SessionId) -> u32 {
        let spi = self.new_child_spi(owner);
        self.registry.expected.insert(spi);
        self.out.push(Action::Expect { spi });
        spi
    }

    /// Has the caller put a Child SA to work.
    pub(super) fn install(&mut self, install: Install) {
        self.registry.expected.remove(&install.sa.inbound.spi);
        self.out.push(Action::Install(Box::new(install)));
    }

    pub(super) fn release_child_spi(&mut self, spi: u32) {
        self.registry.children.remove(&spi);
        if self.registry.expected.remove(&spi) {
            self.out.push(Action::ExpectNoMore { spi });
        }
    }

    /// A moment after `delay` and up to as much again, so that both sides do not try again together.
    pub(super) fn after_about(&mut self, delay: Duration) -> Time {
        self.now + delay + delay.mul_f64(self.fraction())
    }

    /// When something of this lifetime is to be rekeyed: after eight or nine tenths of it, so that both sides and many
    /// SAs do not do so together.
    pub(super) fn rekey_time(&mut self, lifetime: Duration) -> Time {
        let part = 0.8 + 0.1 * self.fraction();
        self.now + lifetime.mul_f64(part)
    }

    fn fraction(&mut self) -> f64 {
        f64::from(u16::from_be_bytes(self.bytes())) / f64::from(u16::MAX)
    }
}
