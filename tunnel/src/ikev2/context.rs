//! What every state is handed with a message: the time, randomness, who has which SPI, and where actions go.

use super::action::{Action, Cause, Event, Outbox, SessionId};
use super::channel::Datagrams;
use super::config::{Connection, ConnectionId, Patience};
use super::limits::STRANGER_EVENTS;
use super::nat::Path;
use crate::Time;
use crypto::Random;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The connections of a configuration.
#[derive(Default)]
pub(super) struct Connections {
    by_id: HashMap<ConnectionId, Arc<Connection>>,
    /// By the other side's address, or that of any: a first message finds its few among ten thousand.
    by_remote: HashMap<Option<IpAddr>, BTreeSet<ConnectionId>>,
}

impl Connections {
    pub(super) fn insert(&mut self, id: ConnectionId, config: Connection) {
        self.replace(id, Arc::new(config));
    }

    /// Puts another configuration in the place of one.
    pub(super) fn replace(&mut self, id: ConnectionId, config: Arc<Connection>) {
        self.remove(id);
        self.by_remote.entry(config.remote).or_default().insert(id);
        self.by_id.insert(id, config);
    }

    pub(super) fn remove(&mut self, id: ConnectionId) {
        let Some(config) = self.by_id.remove(&id) else { return };
        if let Some(ids) = self.by_remote.get_mut(&config.remote) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_remote.remove(&config.remote);
            }
        }
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Arc<Connection>> {
        self.by_id.get(&id)
    }

    /// Those for two addresses, the most precise first, of equals the first that was added.
    pub(super) fn between(&self, local: IpAddr, remote: IpAddr) -> Vec<(ConnectionId, Arc<Connection>)> {
        let ids = [Some(remote), None].map(|remote| self.by_remote.get(&remote));
        let configs = ids.into_iter().flatten().flatten().filter_map(|id| self.get(*id).map(|it| (*id, it)));
        let fitting = configs.filter(|(_, config)| config.local.is_none_or(|address| address == local));
        let mut found: Vec<_> = fitting.map(|(id, config)| (id, Arc::clone(config))).collect();
        found.sort_by_key(|(id, config)| (Reverse(config.precision()), *id));
        found
    }
}

/// Who has which SPI.
#[derive(Default)]
pub(super) struct Registry {
    ike: HashMap<u64, SessionId>,
    children: HashMap<u32, SessionId>,
    strangers: Option<(Time, u32)>,
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

    /// Whether one more report about strangers may be made in this second.
    fn may_report_stranger(&mut self, now: Time) -> bool {
        let (since, count) = match self.strangers {
            Some((since, count)) if now - since < Duration::from_secs(1) => (since, count + 1),
            _ => (now, 1),
        };
        self.strangers = Some((since, count));
        count <= STRANGER_EVENTS
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
    pub(super) out: &'a mut Outbox,
}

impl Context<'_> {
    pub(super) fn send(&mut self, path: Path, datagrams: Datagrams) {
        self.out.extend(datagrams.into_iter().map(|message| Action::Send { path, message }));
    }

    pub(super) fn report(&mut self, event: Event) {
        self.out.push(Action::Report(Box::new(event)));
    }

    /// Reports what was not agreed on; about strangers only so often.
    pub(super) fn fail(&mut self, connection: Option<ConnectionId>, path: Path, cause: Cause) {
        if connection.is_some() || self.registry.may_report_stranger(self.now) {
            self.report(Event::Failed { connection, path, cause });
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

    pub(super) fn release_child_spi(&mut self, spi: u32) {
        self.registry.children.remove(&spi);
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
