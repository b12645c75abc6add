//! Outbound: encrypts the messages. This stage needs only keys and bytes.

use super::{Assigned, Stage};
use arrayvec::ArrayVec;
use crypto::{EngineFailure, Job, Key};
use packet::header::wireguard::{DATA_HEADER, TAG};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use tunnel::sa::Protection;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "encrypt",
    does: "seals each SA batch with one call of the engine",
    drops: &[DropReason::EngineFailed],
};

/// The maximum number of packets in one engine call.
pub(super) const JOBS: usize = 64;

/// Encrypts all messages in place.
pub fn encrypt(batch: &mut Batch, drops: &DropCounters, assigned: &mut Vec<Assigned>) {
    assigned.retain(|sa_batch| {
        let (packets, sequence) = (sa_batch.packets.clone(), sa_batch.first_sequence);
        let sealed = match &sa_batch.sa.protection {
            Protection::WireGuard(key) => seal(&**key, batch, packets, sequence),
            Protection::Esp(esp) => esp.seal(batch, packets, sa_batch.sa.receiver, sequence),
        };
        // After an engine error no packet of the SA batch may be sent: it could be plaintext.
        if sealed.is_err() {
            drops.count(DropReason::EngineFailed, sa_batch.packets.len());
        }
        sealed.is_ok()
    });
}

/// Encrypts WireGuard messages.
fn seal(
    key: &dyn Key,
    batch: &mut Batch,
    packets: Range<usize>,
    mut sequence: u64,
) -> Result<(), EngineFailure> {
    let mut packets = batch.packets_mut(packets).map(|(_, message)| {
        let (_, sealed) = message.split_at_mut(DATA_HEADER);
        let (text, tag) = sealed.split_last_chunk_mut::<TAG>().expect("assign left room for the tag");
        let nonce = nonce(sequence);
        sequence += 1;
        Job { nonce, aad: &[], text, tag, authentic: false }
    });
    loop {
        let mut jobs: ArrayVec<Job<'_>, JOBS> = packets.by_ref().take(JOBS).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        key.seal(&mut jobs)?;
    }
}

/// WireGuard's nonce (whitepaper, section 5.4.6): four zero bytes and the counter.
#[inline]
pub(super) fn nonce(sequence: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    nonce
}
