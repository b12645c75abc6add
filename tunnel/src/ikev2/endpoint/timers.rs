//! Due times of many keys.

use crate::Time;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// See the module documentation.
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
    pub(super) fn first(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// All keys that are due.
    pub(super) fn due(&self, now: Time) -> Vec<K> {
        self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| *key).collect()
    }
}
