//! Timers of the endpoint.

use super::{CannotInitiate, Endpoint, Phase};
use crate::ikev2::action::Outbox;
use crate::ikev2::limits::RECONNECT_DELAY;
use crate::{Now, Time};
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// The due times of many keys.
pub(super) struct Timers<K> {
    at: HashMap<K, Time>,
    order: BTreeSet<(Time, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { at: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord + Hash> Timers<K> {
    /// Sets when a key is due; `None` for never.
    pub(super) fn set(&mut self, key: K, at: Option<Time>) {
        let before = match at {
            Some(at) => self.at.insert(key, at),
            None => self.at.remove(&key),
        };
        if let Some(before) = before {
            self.order.remove(&(before, key));
        }
        self.order.extend(at.map(|at| (at, key)));
    }

    /// The earliest due time.
    fn first(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// All keys that are due.
    fn due(&self, now: Time) -> Vec<K> {
        self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| *key).collect()
    }
}

impl Endpoint {
    /// When [`Endpoint::handle_timeout`] is to be called.
    pub fn next_timeout(&self) -> Option<Time> {
        self.timers.first().into_iter().chain(self.plans.first()).min()
    }

    /// Handles everything that is due.
    pub fn handle_timeout(&mut self, now: Now, out: &mut Outbox) {
        for id in self.timers.due(now.monotonic) {
            self.step(now, id, out, Phase::handle_timeout);
        }
        for connection in self.plans.due(now.monotonic) {
            self.plans.set(connection, None);
            // It may be up by now, not be ours to initiate, or have no route yet.
            let begun = self.initiate(now, connection, out);
            let is_known = self.connections.get(connection).is_some_and(|config| config.remote.is_some());
            if is_known && matches!(begun, Err(CannotInitiate::NoAddress)) {
                self.plans.set(connection, Some(now.monotonic + RECONNECT_DELAY));
            }
        }
    }
}
