//! Inbound: decrypts the messages. This stage needs only keys and bytes.

use super::check::counter;
use super::encrypt::{JOBS, nonce};
use super::{SaBatch, Stage};
use arrayvec::ArrayVec;
use crypto::{Job, Key};
use packet::header::wireguard::{DATA_HEADER, TAG};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use tunnel::sa::Protection;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "decrypt",
    does: "opens each SA batch with one call of the engine",
    drops: &[DropReason::BadTag, DropReason::EngineFailed],
};

/// Decrypts all messages in place and drops those with an invalid tag.
pub fn decrypt(batch: &mut Batch, drops: &DropCounters, sa_batches: &[SaBatch], sequences: &[u64]) {
    for sa_batch in sa_batches {
        match &sa_batch.session().sa.protection {
            Protection::WireGuard(key) => open(&**key, batch, sa_batch.packets.clone(), drops),
            Protection::Esp(esp) => esp.open(batch, sa_batch.packets.clone(), sequences, drops),
        }
    }
}

/// Decrypts WireGuard messages.
fn open(key: &dyn Key, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
    let mut next = packets.start;
    while next < packets.end {
        let mut indices = ArrayVec::<usize, JOBS>::new();
        let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
        for (index, message) in batch.packets_mut(next..packets.end).take(JOBS) {
            let nonce = nonce(counter(message));
            let (text, tag) = message[DATA_HEADER..].split_last_chunk_mut::<TAG>().expect("classify saw it");
            jobs.push(Job { nonce, aad: &[], text, tag, authentic: false });
            indices.push(index);
        }
        let Some(&last) = indices.last() else { break };
        next = last + 1;
        let failed = key.open(&mut jobs).is_err();
        let verdicts: ArrayVec<bool, JOBS> = jobs.iter().map(|job| job.authentic).collect();
        drop(jobs);
        for (&index, &authentic) in indices.iter().zip(&verdicts) {
            if failed || !authentic {
                drops.count(if failed { DropReason::EngineFailed } else { DropReason::BadTag }, 1);
                batch.discard(index);
            }
        }
    }
}
