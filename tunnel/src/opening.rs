//! Opens received packets: engine calls of at most 64 packets → verdicts → unauthentic packets are dropped.
//!
//! Each protocol makes the jobs of a call from its packets; all else is the same for all.

use arrayvec::ArrayVec;
use crypto::engine::{PairJob, PairKey};
use crypto::{EngineFailure, Job, Key};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;

/// Packets in one call of the engine.
pub(crate) const JOBS: usize = 64;

/// Whether each packet of a call is authentic, in order.
pub(crate) type Verdicts = ArrayVec<bool, JOBS>;

/// The packets of one call.
pub(crate) struct Call<'a> {
    /// The range from the first to the last packet; packets in it may be dropped already.
    pub(crate) packets: Range<usize>,
    /// The indices of the packets that are not dropped.
    pub(crate) live: &'a [usize],
}

/// Opens packets in place, and drops those that are not authentic, or all packets of a call that fails.
///
/// `open` makes one call of the engine.
#[inline]
pub(crate) fn open(
    batch: &mut Batch,
    packets: Range<usize>,
    drops: &DropCounters,
    open: impl Fn(&mut Batch, Call<'_>) -> Result<Verdicts, EngineFailure>,
) {
    let mut next = packets.start;
    while next < packets.end {
        // Filled in place: a list that is collected is moved with its empty places.
        let mut live = ArrayVec::<usize, JOBS>::new();
        live.extend(batch.live(next..packets.end).take(JOBS));
        let (Some(&first), Some(&last)) = (live.first(), live.last()) else { return };
        next = last + 1;
        let verdicts = open(batch, Call { packets: first..next, live: &live });
        let reason = if verdicts.is_err() { DropReason::EngineFailed } else { DropReason::BadTag };
        let verdicts = verdicts.unwrap_or_default();
        for (place, &index) in live.iter().enumerate() {
            if verdicts.get(place) != Some(&true) {
                batch.drop_packet(index, reason, drops);
            }
        }
    }
}

/// One call for jobs of an AEAD cipher.
#[inline]
pub(crate) fn call(key: &dyn Key, jobs: &mut [Job<'_>]) -> Result<Verdicts, EngineFailure> {
    key.open(jobs)?;
    Ok(jobs.iter().map(|job| job.authentic).collect())
}

/// The same for jobs that are made one by one. They are made in place: a list that is returned is moved with its empty places,
/// which costs a packet that comes alone as much as all else.
#[inline]
pub(crate) fn call_each<'a>(
    key: &dyn Key,
    jobs: impl Iterator<Item = Job<'a>>,
) -> Result<Verdicts, EngineFailure> {
    let mut list = ArrayVec::<Job<'_>, JOBS>::new();
    list.extend(jobs);
    call(key, &mut list)
}

/// One call for jobs of a cipher and a hash.
#[inline]
pub(crate) fn call_pair(
    key: &dyn PairKey,
    mut jobs: ArrayVec<PairJob<'_>, JOBS>,
) -> Result<Verdicts, EngineFailure> {
    key.open(&mut jobs)?;
    Ok(jobs.iter().map(|job| job.authentic).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn batch(packets: usize) -> Batch {
        let mut batch = Batch::new(64 * 1024);
        for _ in 0..packets {
            batch.append(1).expect("it fits").fill(1);
        }
        batch
    }

    #[test]
    fn calls_have_at_most_64_live_packets_and_only_authentic_ones_are_left() {
        let (mut batch, drops, calls) = (batch(150), DropCounters::default(), RefCell::new(Vec::new()));
        for index in [0, 70, 149] {
            batch.discard(index);
        }
        open(&mut batch, 0..150, &drops, |batch, call| {
            calls.borrow_mut().push((call.packets.clone(), call.live.len()));
            assert_eq!(batch.packets_mut(call.packets).count(), call.live.len());
            Ok(call.live.iter().map(|index| index % 50 != 3).collect())
        });
        assert_eq!(calls.into_inner(), [(1..65, 64), (65..130, 64), (130..149, 19)]);
        assert_eq!(drops.read(DropReason::BadTag), 3, "3, 53 and 103");
        assert_eq!(batch.live(0..150).count(), 144);
    }

    #[test]
    fn all_packets_of_a_call_that_fails_are_dropped_and_of_no_other() {
        let (mut batch, drops) = (batch(100), DropCounters::default());
        open(&mut batch, 0..100, &drops, |_, call| {
            if call.packets.start == 0 {
                return Err(EngineFailure);
            }
            Ok(call.live.iter().map(|_| true).collect())
        });
        assert_eq!((drops.read(DropReason::EngineFailed), drops.read(DropReason::BadTag)), (64, 0));
        assert_eq!(batch.live(0..100).next(), Some(64));
    }
}
