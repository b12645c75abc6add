//! Inbound: drops packets that need not be decrypted. It only reads state, as nothing is authentic yet.

use super::{SaBatch, Stage};
use packet::header::wireguard::DataHeader;
use packet::{Batch, DropCounters, DropReason};
use tunnel::replay::ReplayWindow;
use tunnel::sa::Protection;
use tunnel::{Time, esp};
use zerocopy::FromBytes;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "check",
    does: "key age and replay window, reading only; ESP: lengths, and the half of the number that is not sent",
    drops: &[DropReason::KeyExpired, DropReason::Replayed, DropReason::TooShort, DropReason::BadPadding],
};

/// Checks the age of each SA batch's key, and the replay window for each packet.
///
/// `sequences` receives the full sequence numbers of ESP packets by index. They must be inferred here: once the
/// window has moved, the same low half could mean another number.
pub fn check(
    batch: &mut Batch,
    now: Time,
    drops: &DropCounters,
    sa_batches: &mut Vec<SaBatch>,
    sequences: &mut Vec<u64>,
) {
    sa_batches.retain(|sa_batch| {
        let sa = &sa_batch.session().sa;
        if let Err(reason) = sa.check_age(now) {
            drops.count(reason, sa_batch.packets.len());
            sa_batch.packets.clone().for_each(|index| batch.discard(index));
            return false;
        }
        let (window, end) = (sa.window(), sa.end_sequence());
        match &sa.protection {
            Protection::WireGuard(_) => {
                for index in sa_batch.packets.clone() {
                    let counter = counter(batch.packet(index));
                    if counter >= end || window.check(counter).is_err() {
                        drops.count(DropReason::Replayed, 1);
                        batch.discard(index);
                    }
                }
            }
            Protection::Esp(esp) => {
                sequences.resize(batch.len(), 0);
                for index in sa_batch.packets.clone() {
                    match check_esp(esp, &window, end, batch.packet(index)) {
                        Ok(sequence) => sequences[index] = sequence,
                        Err(reason) => {
                            drops.count(reason, 1);
                            batch.discard(index);
                        }
                    }
                }
            }
        }
        true
    });
}

/// The full sequence number of a packet with a valid length for this SA.
#[inline]
fn check_esp(
    esp: &esp::Protection,
    window: &ReplayWindow,
    end: u64,
    packet: &[u8],
) -> Result<u64, DropReason> {
    esp.layout().check(packet.len())?;
    let sequence = esp.infer_sequence(packet, window)?;
    if sequence >= end {
        return Err(DropReason::Replayed);
    }
    window.check(sequence)?;
    Ok(sequence)
}

/// The counter in the header of a data message.
#[inline]
pub(super) fn counter(message: &[u8]) -> u64 {
    let (header, _) = DataHeader::ref_from_prefix(message).expect("classify has seen the length");
    header.counter.get()
}
