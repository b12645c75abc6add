//! Inbound: decrypts the messages. This stage needs only keys and bytes.

use super::{SaBatch, Stage};
use packet::{Batch, DropCounters, DropReason};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "decrypt",
    does: "opens each SA batch with one call of the engine",
    drops: &[DropReason::BadTag, DropReason::EngineFailed],
};

/// Decrypts all messages in place and drops those with an invalid tag.
pub fn decrypt(batch: &mut Batch, drops: &DropCounters, sa_batches: &[SaBatch<'_>], sequences: &[u64]) {
    for sa_batch in sa_batches {
        let (session, packets) = (sa_batch.session(), sa_batch.packets.clone());
        session.sa.protection.open(batch, packets, sequences, session.peer.drops(drops));
    }
}
