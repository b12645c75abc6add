//! Long requests: how many are in memory at once, until their keys are known.

use crate::source::Source;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Of clients with a right key in a header, at once. Further ones wait.
const KNOWN: usize = 4;
/// Of sources whose key is in the body, at once; and one of a source. Further ones are refused.
const UNKNOWN: usize = 4;

/// Counts long requests. Those with a key in the body may be an attacker's: they take no room of the others.
pub(crate) struct LongBodies {
    known: Semaphore,
    unknown: Semaphore,
    sources: Mutex<HashSet<Source>>,
}

/// Room for one long request.
pub(crate) struct Room<'a> {
    _permit: SemaphorePermit<'a>,
    of: Option<(&'a LongBodies, Source)>,
}

impl Default for LongBodies {
    fn default() -> Self {
        Self { known: Semaphore::new(KNOWN), unknown: Semaphore::new(UNKNOWN), sources: Mutex::default() }
    }
}

impl LongBodies {
    /// Room for a client with a right key.
    pub(crate) async fn known(&self) -> Room<'_> {
        let permit = self.known.acquire().await.expect("it is never closed");
        Room { _permit: permit, of: None }
    }

    /// Room for a source whose key is not known yet, if there is any.
    pub(crate) fn unknown(&self, source: Source) -> Option<Room<'_>> {
        let permit = self.unknown.try_acquire().ok()?;
        let is_first = self.sources.lock().unwrap_or_else(PoisonError::into_inner).insert(source);
        is_first.then_some(Room { _permit: permit, of: Some((self, source)) })
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some((bodies, source)) = self.of {
            bodies.sources.lock().unwrap_or_else(PoisonError::into_inner).remove(&source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn source(last: u8) -> Source {
        Source::of(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)))
    }

    #[tokio::test]
    async fn sources_without_a_key_take_one_room_each_and_none_of_those_with_one() {
        let bodies = LongBodies::default();
        let first = bodies.unknown(source(1)).expect("room");
        assert!(bodies.unknown(source(1)).is_none(), "one of a source");
        let others: Vec<_> =
            (2..=UNKNOWN as u8).map(|last| bodies.unknown(source(last)).expect("room")).collect();
        assert!(bodies.unknown(source(99)).is_none(), "all is taken");
        let mut known = Vec::new();
        for _ in 0..KNOWN {
            known.push(bodies.known().await);
        }
        drop(first);
        assert!(bodies.unknown(source(1)).is_some());
        drop(others);
    }
}
