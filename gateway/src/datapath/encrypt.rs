//! Outbound: seals the messages. Needs only keys and bytes.

use super::{Assigned, Stage};
use arrayvec::ArrayVec;
use crypto::Job;
use packet::header::wireguard::{DATA_HEADER, TAG};
use packet::{Batch, DropCounters, DropReason};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "encrypt",
    does: "seals each run with one call of the engine",
    drops: &[DropReason::EngineFailed],
};

/// Packets in one call of the engine.
pub(super) const JOBS: usize = 64;

/// Seals every message in place.
pub fn encrypt(batch: &mut Batch, drops: &DropCounters, assigned: &mut Vec<Assigned>) {
    assigned.retain(|run| {
        let mut sequence = run.first_sequence;
        let mut packets = batch.packets_mut(run.packets.clone()).map(|(_, message)| {
            let (_, sealed) = message.split_at_mut(DATA_HEADER);
            let (text, tag) = sealed.split_last_chunk_mut::<TAG>().expect("assign left room for the tag");
            let nonce = nonce(sequence);
            sequence += 1;
            Job { nonce, aad: &[], text, tag, authentic: false }
        });
        let failed = loop {
            let mut jobs: ArrayVec<Job<'_>, JOBS> = packets.by_ref().take(JOBS).collect();
            if jobs.is_empty() {
                break false;
            }
            if run.sa.key.seal(&mut jobs).is_err() {
                break true;
            }
        };
        // Nothing of a failed run may leave: it could be plaintext.
        if failed {
            drops.count(DropReason::EngineFailed, run.packets.len());
        }
        !failed
    });
}

/// WireGuard's nonce (whitepaper, section 5.4.6): four zero bytes and the counter.
#[inline]
pub(super) fn nonce(sequence: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    nonce
}
