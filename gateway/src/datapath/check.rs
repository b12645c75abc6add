//! Inbound: drops packets that need not be decrypted. It only reads state, as nothing is authentic yet.

use super::{SaBatch, Stage};
use packet::{Batch, DropCounters, DropReason};
use tunnel::Time;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "check",
    does: "key age, TCP connection and replay window, reading only; ESP: lengths, and the half of the number that is not sent",
    drops: &[
        DropReason::OtherConnection,
        DropReason::KeyExpired,
        DropReason::Replayed,
        DropReason::TooShort,
        DropReason::BadPadding,
    ],
};

/// Checks the age of each SA batch's key, and the replay window for each packet.
///
/// `sequences` receives the full sequence numbers of ESP packets by index. They must be inferred here: once the
/// window has moved, the same low half could mean another number.
pub fn check(
    batch: &mut Batch,
    now: Time,
    drops: &DropCounters,
    sa_batches: &mut Vec<SaBatch<'_>>,
    sequences: &mut Vec<u64>,
) {
    sa_batches.retain(|sa_batch| {
        let sa = &sa_batch.session().sa;
        let drops = sa_batch.session().peer.drops(drops);
        if let Err(reason) = sa.check_age(now).and_then(|()| check_connection(sa_batch)) {
            drops.count(reason, sa_batch.packets.len());
            batch.note_drops_of(sa_batch.packets.clone(), reason);
            sa_batch.packets.clone().for_each(|index| batch.discard(index));
            return false;
        }
        let (window, end, packets) = (sa.window(), sa.end_sequence(), sa_batch.packets.clone());
        sa.protection.check(batch, packets, window, end, sequences, drops);
        true
    });
}

/// A session over TCP is bound to its connection, and one in UDP to UDP.
#[inline]
fn check_connection(sa_batch: &SaBatch<'_>) -> Result<(), DropReason> {
    let peer = &sa_batch.session().peer;
    let is_carried =
        if peer.state.is_bound() { peer.endpoint.is(&sa_batch.endpoint) } else { !sa_batch.endpoint.is_tcp };
    if is_carried { Ok(()) } else { Err(DropReason::OtherConnection) }
}
