//! The keys that gateways have used since the start of the program, and where the numbers of SAs with them go on.
//!
//! An SA that began again with one of them would repeat nonces, which gives away what was encrypted (RFC 4106 section 2), and take packets
//! that were received before. So one that comes again goes on: after a commit was undone, or when a gateway is enabled again. Keys of SAs
//! that are gone are erased; their digests and numbers stay.

use super::lifetimes::Spent;
use crate::clock::Clock;
use config::secgw::settings::{Direction, Sa};
use crypto::hash::sha256;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Keys by their digests.
type Digests = HashMap<[u8; 32], Use>;

/// How a key is used.
#[derive(Default)]
struct Use {
    /// So many SAs have it.
    sas: usize,
    /// The number that follows those of all that had it.
    next: u64,
    /// Since when it is used, and what those that are gone have used of it.
    spent: Spent,
}

/// The keys of outbound and of inbound SAs, of all gateways of a program.
#[derive(Clone, Default)]
pub struct UsedKeys(Arc<Mutex<[Digests; 2]>>);

impl UsedKeys {
    /// The first number of a new SA, and what of its key was used; `None` if another SA of this direction has its key.
    pub fn first(&self, sa: &Sa) -> Option<(u64, Spent)> {
        let keys = self.keys();
        let Some(used) = keys[place(sa)].get(&digest(sa)) else { return Some((0, Spent::default())) };
        (used.sas == 0).then_some((used.next, used.spent))
    }

    /// Notes that an SA has its key from now on. Without encryption and authentication there is none.
    pub fn begin(&self, sa: &Sa) {
        if !sa.keys.expose().is_empty() {
            let mut keys = self.keys();
            let used = keys[place(sa)].entry(digest(sa)).or_default();
            used.sas += 1;
            used.spent.since.get_or_insert_with(|| Clock.monotonic());
        }
    }

    /// Notes that no thread uses an SA any more, the number that follows its last one, and how many packets and bytes it has carried.
    pub fn end(&self, sa: &Sa, next: u64, (packets, bytes): (u64, u64)) {
        if let Some(used) = self.keys()[place(sa)].get_mut(&digest(sa)) {
            used.sas = used.sas.saturating_sub(1);
            used.next = used.next.max(next);
            used.spent.packets = used.spent.packets.saturating_add(packets);
            used.spent.bytes = used.spent.bytes.saturating_add(bytes);
        }
    }

    fn keys(&self) -> MutexGuard<'_, [Digests; 2]> {
        // No code panics while it has the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(sa: &Sa) -> usize {
    usize::from(sa.direction == Direction::Inbound)
}

fn digest(sa: &Sa) -> [u8; 32] {
    sha256(&[sa.keys.expose()])
}
