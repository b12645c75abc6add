//! Outbound: encrypts the messages. This stage needs only keys and bytes.

use super::{Assigned, Stage};
use packet::{Batch, DropCounters, DropReason};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "encrypt",
    does: "seals each SA batch with one call of the engine",
    drops: &[DropReason::EngineFailed],
};

/// Encrypts all messages in place.
pub fn encrypt(batch: &mut Batch, drops: &DropCounters, assigned: &mut Vec<Assigned<'_>>) {
    assigned.retain(|Assigned { fitted, first_sequence }| {
        let (packets, sa) = (fitted.packets.clone(), &fitted.sa);
        let sealed = sa.protection.seal(batch, packets, sa.receiver, *first_sequence);
        // After an engine error no packet of the SA batch may be sent: it could be plaintext.
        if sealed.is_err() {
            fitted.peer.drops(drops).count(DropReason::EngineFailed, fitted.packets.len());
            batch.note_drops_of(fitted.packets.clone(), DropReason::EngineFailed);
        }
        sealed.is_ok()
    });
}
