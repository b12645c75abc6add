//! The context of a state that handles a message: time, randomness, allocated SPIs, and the outbox for actions.

use super::action::{Action, Install, Outbox};
use super::cause::Cause;
use super::config::Patience;
use super::conflicts::Conflicts;
use super::connections::Connections;
use super::event::Event;
use super::identity::Identity;
use super::ids::ConnectionId;
use super::ids::SessionId;
use super::instances::Instances;
use super::job::{Job, Work};
use super::limits::{LATE, UNAUTHENTICATED_REPORT_INTERVAL, UNAUTHENTICATED_REPORTS};
use super::nat::Path;
use super::receivers::Receivers;
use super::retransmission::Datagrams;
use crate::Time;
use crate::bucket::Bucket;
use crypto::Random;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// The allocated SPIs and the sessions that own them.
#[derive(Default)]
pub(super) struct Registry {
    ike: HashMap<u64, SessionId>,
    children: HashMap<u32, SessionId>,
    /// SPIs of Child SAs that we asked for: the caller queues packets under them.
    expected: HashSet<u32>,
    /// The number of the last job.
    last_job: u64,
    /// The instances of profiles.
    pub(super) instances: Instances,
    /// The receiving threads that SPIs of Child SAs lead to.
    pub(super) receivers: Receivers,
    /// The peers that hold traffic selectors.
    pub(super) conflicts: Conflicts,
    /// Sessions that conflict with others: a liveness check will be sent to their peers.
    pub(super) doubtful: BTreeSet<SessionId>,
    /// The key exchanges that each peer may still ask for.
    pub(super) exchanges: Exchanges,
    /// The report budget of each connection, kept apart for authenticated peers and unauthenticated sources: a flood
    /// from the latter must not hide reports about the former.
    reports: HashMap<(Option<ConnectionId>, bool), Bucket>,
}

impl Registry {
    /// The session that owns the IKE SA of this SPI.
    pub(super) fn owner(&self, spi: u64) -> Option<SessionId> {
        self.ike.get(&spi).copied()
    }

    /// The session that owns the Child SA of this SPI.
    pub(super) fn child_owner(&self, spi: u32) -> Option<SessionId> {
        self.children.get(&spi).copied()
    }

    /// The number of allocated SPIs of IKE SAs and of Child SAs.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.ike.len(), self.children.len())
    }

    /// Whether one more report is within the budget.
    fn may_report(&mut self, of: (Option<ConnectionId>, bool), now: Time) -> bool {
        let full = || Bucket::new(UNAUTHENTICATED_REPORTS, UNAUTHENTICATED_REPORT_INTERVAL, now);
        self.reports.entry(of).or_insert_with(full).take(now)
    }

    /// Drops the state of a connection that was removed or replaced, but for the receiving thread that its SPIs lead to.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        for is_authentic in [true, false] {
            self.reports.remove(&(Some(connection), is_authentic));
        }
        self.exchanges.forget(connection);
    }
}

/// The key exchanges left to each peer of each connection. A full bucket need not be stored.
#[derive(Default)]
pub(super) struct Exchanges(HashMap<ConnectionId, HashMap<Identity, Bucket>>);

/// Below this number of buckets of a connection, full buckets are kept.
const SWEPT: usize = 256;

impl Exchanges {
    pub(super) fn of(
        &mut self,
        (connection, identity): (ConnectionId, Identity),
        now: Time,
        fresh: impl FnOnce() -> Bucket,
    ) -> &mut Bucket {
        let buckets = self.0.entry(connection).or_default();
        // Full buckets are removed whenever the map would have to grow.
        if buckets.len() >= SWEPT && buckets.len() == buckets.capacity() {
            buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        buckets.entry(identity).or_insert_with(fresh)
    }

    fn forget(&mut self, connection: ConnectionId) {
        self.0.remove(&connection);
    }
}

/// Tells whether the Child SA with these inbound and outbound SPIs is near its byte or packet limit.
pub type Worn = Box<dyn Fn([u32; 2]) -> bool + Send>;

/// See the module documentation.
pub(super) struct Context<'a> {
    pub(super) now: Time,
    /// The time since 1970.
    pub(super) wall: Duration,
    pub(super) patience: Patience,
    pub(super) random: &'a mut dyn Random,
    pub(super) registry: &'a mut Registry,
    pub(super) connections: &'a Connections,
    /// Tells whether a Child SA is near its byte or packet limit.
    pub(super) worn: &'a Worn,
    /// See [`Endpoint::compared`](super::Endpoint::compared).
    pub(super) compared: &'a mut u64,
    /// Whether one more unauthenticated peer may wait for the revocation status of its certificate.
    pub(super) may_hold: bool,
    /// Bytes of messages that half-open SAs may still keep.
    pub(super) room: usize,
    pub(super) out: &'a mut Outbox,
}

impl Context<'_> {
    pub(super) fn send(&mut self, path: Path, datagrams: Datagrams) {
        self.out.extend(datagrams.into_iter().map(|message| Action::Send { path, message }));
    }

    pub(super) fn report(&mut self, event: Event) {
        self.out.push(Action::Report(Box::new(event)));
    }

    /// Reports a failure that is local, or of an authenticated peer.
    pub(super) fn fail(&mut self, connection: ConnectionId, path: Path, cause: Cause) {
        self.report(Event::Failed { connection: Some(connection), path, authentic: true, cause });
    }

    /// The same, rate-limited: an authenticated peer can cause the failure at will.
    pub(super) fn fail_sometimes(&mut self, connection: ConnectionId, path: Path, cause: Cause) {
        // An instance is new whenever its peer comes back: the budget is that of its profile.
        let configured = self.registry.instances.configured(connection);
        if self.registry.may_report((Some(configured), true), self.now) {
            self.fail(connection, path, cause);
        }
    }

    /// Reports why a set-up of ours failed, as stated by an unauthenticated source. There is at most one such report
    /// for each attempt, whatever unauthenticated sources send.
    pub(super) fn give_up(&mut self, connection: ConnectionId, path: Path, cause: Cause) {
        self.report(Event::Failed { connection: Some(connection), path, authentic: false, cause });
    }

    /// Reports a failure that any unauthenticated source can cause, rate-limited. The text is only built if the
    /// report is sent.
    pub(super) fn suspect(
        &mut self,
        connection: Option<ConnectionId>,
        path: Path,
        cause: impl FnOnce() -> Cause,
    ) {
        // A connection that was removed meanwhile has no budget of its own.
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

    /// Allocates an SPI for an IKE SA; never zero.
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

    /// Allocates an SPI for inbound ESP: random, but for what leads to the receiving thread of the peer. RFC 4303 section 2.1 reserves
    /// values below 256.
    pub(super) fn new_child_spi(&mut self, owner: SessionId, peer: ConnectionId) -> u32 {
        loop {
            let spi = u32::from_be_bytes(self.bytes());
            let Some(spi) = self.registry.receivers.steer(spi, peer) else { continue };
            if spi >= 256 && !self.registry.children.contains_key(&spi) {
                self.registry.children.insert(spi, owner);
                return spi;
            }
        }
    }

    /// The same, for an SA that we ask for. The peer may send under it before its answer arrives.
    pub(super) fn expect_child_spi(&mut self, owner: SessionId, peer: ConnectionId) -> u32 {
        let spi = self.new_child_spi(owner, peer);
        self.registry.expected.insert(spi);
        self.out.push(Action::Expect { spi });
        spi
    }

    /// Starts a job, and returns its number.
    pub(super) fn start(&mut self, session: SessionId, is_urgent: bool, work: Work) -> u64 {
        self.registry.last_job += 1;
        let number = self.registry.last_job;
        self.out.push(Action::Work(Job { session, number, is_urgent, work }));
        number
    }

    /// Asks the caller to install a Child SA.
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

    /// A time after `delay` and up to twice that: the random part keeps both sides from retrying together.
    pub(super) fn after_about(&mut self, delay: Duration) -> Time {
        self.now + delay + delay.mul_f64(self.fraction())
    }

    /// The time at which an SA of this lifetime is rekeyed: after 80 to 90 % of it. The random part spreads the
    /// rekeying of both sides and of many SAs.
    pub(super) fn rekey_time(&mut self, lifetime: Duration) -> Time {
        let part = 0.8 + 0.1 * self.fraction();
        self.now + lifetime.mul_f64(part)
    }

    /// The time at which the responder replaces a session that the initiator has not: 3 to 8 % of its lifetime before the end, or a few
    /// minutes.
    pub(super) fn late_rekey_time(&mut self, lifetime: Duration) -> Time {
        let fraction = self.fraction();
        let left = lifetime.mul_f64(0.08 - 0.05 * fraction).min(LATE.mul_f64(1.0 - 0.5 * fraction));
        self.now + lifetime.saturating_sub(left)
    }

    fn fraction(&mut self) -> f64 {
        f64::from(u16::from_be_bytes(self.bytes())) / f64::from(u16::MAX)
    }
}
