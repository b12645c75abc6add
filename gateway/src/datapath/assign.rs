//! Outbound: assigns sequence numbers, and adds padding and header to each packet.

use super::{Assigned, Fitted, Stage};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use tunnel::{OutboundSa, Time};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "assign",
    does: "takes sequence numbers for a whole SA batch in one step; writes padding and header",
    drops: &[DropReason::CounterExhausted, DropReason::KeyExpired],
};

/// Assigns sequence numbers and lays out the messages: header, padded packet, space for the tag.
pub fn assign<'t>(
    batch: &mut Batch,
    mtu: usize,
    now: Time,
    drops: &DropCounters,
    fitted: &mut Vec<Fitted<'t>>,
    assigned: &mut Vec<Assigned<'t>>,
) {
    assigned.clear();
    for sa_batch in fitted.drain(..) {
        let Fitted { packets, sa, .. } = &sa_batch;
        let sequences = match take(batch, sa, packets.clone(), mtu, now) {
            Ok(sequences) => sequences,
            Err(reason) => {
                sa_batch.peer.drops(drops).count(reason, packets.len());
                batch.note_drops_of(packets.clone(), reason);
                continue;
            }
        };
        let first_sequence = sequences.start;
        sa.protection.lay_out(batch, packets.clone(), sa.receiver, first_sequence, mtu);
        assigned.push(Assigned { fitted: sa_batch, first_sequence });
    }
}

/// Counts the packets and bytes of an SA batch against the limits of its SA.
#[inline]
fn take(
    batch: &Batch,
    sa: &OutboundSa,
    packets: Range<usize>,
    mtu: usize,
    now: Time,
) -> Result<Range<u64>, DropReason> {
    let count = packets.len();
    if sa.volume().is_none() {
        return sa.assign(count, now);
    }
    let bytes = sa.protection.sealed(batch, packets, mtu);
    sa.spend(count, bytes)?;
    sa.assign(count, now)
}
