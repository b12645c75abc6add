//! Timers: when each of many sessions or peers is due.

use crate::Time;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// The due times of many keys, and their order.
pub struct Timers<K> {
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
    pub fn set(&mut self, key: K, at: Option<Time>) {
        let before = match at {
            Some(at) => self.at.insert(key, at),
            None => self.at.remove(&key),
        };
        if let Some(before) = before {
            self.order.remove(&(before, key));
        }
        self.order.extend(at.map(|at| (at, key)));
    }

    /// When a key is due.
    pub fn at(&self, key: K) -> Option<Time> {
        self.at.get(&key).copied()
    }

    /// The earliest due time.
    pub fn first(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// All keys that are due.
    pub fn due(&self, now: Time) -> Vec<K> {
        self.order.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| *key).collect()
    }

    /// Removes and returns the key that has been due for the longest time.
    pub fn take_due(&mut self, now: Time) -> Option<K> {
        let &(_, key) = self.order.first().filter(|(at, _)| *at <= now)?;
        self.set(key, None);
        Some(key)
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.at.clear();
        self.order.clear();
    }
}
