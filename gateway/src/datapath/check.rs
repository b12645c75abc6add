//! Inbound: drops what need not be decrypted. Reads only: nothing is known to be authentic yet.

use super::{Run, Stage};
use packet::header::wireguard::DataHeader;
use packet::{Batch, DropCounters, DropReason};
use tunnel::Time;
use zerocopy::FromBytes;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "check",
    does: "key age and replay window, reading only",
    drops: &[DropReason::KeyExpired, DropReason::Replayed],
};

/// Looks at the age of each run's key, and for each packet at the window.
pub fn check(batch: &mut Batch, now: Time, drops: &DropCounters, runs: &mut Vec<Run>) {
    runs.retain(|run| {
        let sa = &run.session().sa;
        if let Err(reason) = sa.check_age(now) {
            drops.count(reason, run.packets.len());
            run.packets.clone().for_each(|index| batch.discard(index));
            return false;
        }
        let window = sa.window();
        for index in run.packets.clone() {
            let counter = counter(batch.packet(index));
            if counter >= sa.end_sequence() || window.check(counter).is_err() {
                drops.count(DropReason::Replayed, 1);
                batch.discard(index);
            }
        }
        true
    });
}

/// The counter in the header of a data message.
#[inline]
pub(super) fn counter(message: &[u8]) -> u64 {
    let (header, _) = DataHeader::ref_from_prefix(message).expect("classify has seen the length");
    header.counter.get()
}
