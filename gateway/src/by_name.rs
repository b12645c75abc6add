//! What a service shows of its interfaces, by name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Entries that come and go with the configuration. A copy has the same entries.
pub struct ByName<T>(Arc<Mutex<BTreeMap<String, T>>>);

impl<T: Clone> ByName<T> {
    /// Shows an interface, in place of an earlier entry.
    pub fn show(&self, name: &str, entry: T) {
        self.lock().insert(name.to_owned(), entry);
    }

    /// Shows it no more.
    pub fn hide(&self, name: &str) {
        self.lock().remove(name);
    }

    /// All entries, in the order of names.
    pub fn all(&self) -> Vec<T> {
        self.lock().values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for ByName<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}
