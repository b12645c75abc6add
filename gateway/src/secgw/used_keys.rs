//! The keys that gateways have used since the start of the program, and where the numbers of SAs with them go on.
//!
//! An SA that began again with one of them would repeat nonces, which gives away what was encrypted (RFC 4106 section 2), and take packets
//! that were received before. So one that comes again goes on: after a commit was undone, or when a gateway is enabled again. Keys of SAs
//! that are gone are erased; their digests and numbers stay.

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
}

/// The keys of outbound and of inbound SAs, of all gateways of a program.
#[derive(Clone, Default)]
pub struct UsedKeys(Arc<Mutex<[Digests; 2]>>);

impl UsedKeys {
    /// The first number of a new SA; `None` if another SA of this direction has its key.
    pub fn first(&self, sa: &Sa) -> Option<u64> {
        let keys = self.keys();
        let used = keys[place(sa)].get(&digest(sa));
        used.map_or(Some(0), |used| (used.sas == 0).then_some(used.next))
    }

    /// Notes that an SA has its key from now on. Without encryption and authentication there is none.
    pub fn begin(&self, sa: &Sa) {
        if !sa.keys.expose().is_empty() {
            self.keys()[place(sa)].entry(digest(sa)).or_default().sas += 1;
        }
    }

    /// Notes that no thread uses an SA any more, and the number that follows its last one.
    pub fn end(&self, sa: &Sa, next: u64) {
        if let Some(used) = self.keys()[place(sa)].get_mut(&digest(sa)) {
            used.sas = used.sas.saturating_sub(1);
            used.next = used.next.max(next);
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
