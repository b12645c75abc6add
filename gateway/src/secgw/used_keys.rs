//! The keys that a gateway has used since its start.
//!
//! An SA that began again with one of them would repeat nonces, which gives away what was encrypted (RFC 4106 section 2), and take packets
//! that were received before.

use config::secgw::settings::{Direction, Sa};
use crypto::hash::sha256;
use std::collections::HashSet;

/// Digests of the keys of outbound and of inbound SAs.
#[derive(Clone, Default)]
pub struct UsedKeys([HashSet<[u8; 32]>; 2]);

impl UsedKeys {
    /// Whether an SA of this direction has had the key.
    pub fn has(&self, sa: &Sa) -> bool {
        self.0[place(sa)].contains(&digest(sa))
    }

    /// Notes the key of an SA. Without encryption and authentication there is none.
    pub fn add(&mut self, sa: &Sa) {
        if !sa.keys.expose().is_empty() {
            self.0[place(sa)].insert(digest(sa));
        }
    }
}

fn place(sa: &Sa) -> usize {
    usize::from(sa.direction == Direction::Inbound)
}

fn digest(sa: &Sa) -> [u8; 32] {
    sha256(&[sa.keys.expose()])
}
