//! Messages that arrive for a set-up of ours while its job is running.

use crate::ikev2::inbound::Inbound;
use crate::ikev2::limits::{WAITING_BYTES, WAITING_MESSAGES};
use crate::ikev2::nat::Path;

/// Keeps messages until the job has finished: after a forged answer the genuine one arrives, and it arrives once.
#[derive(Default)]
pub(super) struct Waiting(Vec<(Path, Vec<u8>)>);

impl Waiting {
    pub(super) fn push(&mut self, inbound: &Inbound<'_>) {
        let Inbound { path, bytes, .. } = *inbound;
        let is_known = self.0.iter().any(|(_, waiting)| waiting == bytes);
        if !is_known && self.0.len() < WAITING_MESSAGES && bytes.len() <= WAITING_BYTES {
            self.0.push((path, bytes.to_vec()));
        }
    }

    pub(super) fn take(&mut self) -> Vec<(Path, Vec<u8>)> {
        std::mem::take(&mut self.0)
    }
}
