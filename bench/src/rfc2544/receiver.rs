//! What arrives in one direction of a trial: loss, duplicates, reordering and corruption, each counted apart, and by stream.

use super::frame::{Seen, Tag};
use super::histogram::{Differences, Histogram};
use super::streams::stream_of;
use serde::Serialize;
use std::ops::Range;

/// The counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Frames that left the tester, or that the device's ring did not take.
    pub sent: u64,
    /// Frames that arrived whole, each counted once.
    pub received: u64,
    /// Frames that arrived whole once more.
    pub duplicated: u64,
    /// Frames that arrived behind one of their stream that was sent later (RFC 4737).
    pub reordered: u64,
    /// Frames of ours that are not what was sent.
    pub corrupted: u64,
    /// Frames of ours that arrived unencrypted where they have to be encrypted.
    pub clear: u64,
    /// Frames whose number of ESP or WireGuard another frame has had.
    pub repeated: u64,
    /// Frames that arrived under another SA than that of the policy for them.
    pub other_sa: u64,
    /// Frames that are not ours.
    pub foreign: u64,
    /// Frames of an earlier trial.
    pub stale: u64,
}

impl Counts {
    /// Frames that did not arrive, not even corrupted or unencrypted.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.received + self.corrupted + self.clear)
    }

    /// The share of frames that did not arrive whole.
    pub fn loss(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }

    /// The counts of two directions together.
    pub fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            corrupted: self.corrupted + other.corrupted,
            clear: self.clear + other.clear,
            repeated: self.repeated + other.repeated,
            other_sa: self.other_sa + other.other_sa,
            foreign: self.foreign + other.foreign,
            stale: self.stale + other.stale,
        }
    }
}

/// The counts of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StreamCounts {
    /// Frames that left the tester.
    pub sent: u64,
    /// Frames that arrived whole, each counted once.
    pub received: u64,
    /// Frames that arrived whole once more.
    pub duplicated: u64,
    /// Frames that arrived behind one of the stream that was sent later.
    pub reordered: u64,
    /// Frames that arrived damaged, but with the addresses and ports of the stream.
    pub corrupted: u64,
}

impl StreamCounts {
    /// The share of frames that did not arrive whole.
    pub fn loss(&self) -> f64 {
        self.sent.saturating_sub(self.received) as f64 / self.sent.max(1) as f64
    }

    /// The counts of two trials together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            duplicated: self.duplicated + other.duplicated,
            reordered: self.reordered + other.reordered,
            corrupted: self.corrupted + other.corrupted,
        }
    }
}

/// Frames whose delay is noted one by one: RFC 2544 wants one, RFC 8219 at least 500.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// The first of them.
    pub first: u64,
    /// One in so many.
    pub every: u64,
    /// How many.
    pub count: usize,
}

/// Counts the frames of one direction of one trial.
pub struct Receiver {
    trial: u16,
    /// One bit for each sequence number.
    seen: Vec<u64>,
    /// By stream: the number after the highest that has arrived.
    next: Vec<u64>,
    /// The counts by stream.
    pub by_stream: Vec<StreamCounts>,
    /// What was counted so far.
    pub counts: Counts,
    /// The delays of all frames.
    pub delays: Histogram,
    /// The differences between the delays of two frames that were sent one behind the other, and arrived so.
    pub delay_changes: Differences,
    /// The frame that arrived last, and its delay.
    last: Option<(u64, u64)>,
    sampling: Option<Sampling>,
    /// The delays of the sampled frames.
    pub samples: Vec<u64>,
}

impl Receiver {
    /// Counts the frames of a trial, of which about `expected` will come in so many streams.
    pub fn new(trial: u16, streams: usize, expected: u64, sampling: Option<Sampling>) -> Self {
        Self {
            trial,
            seen: vec![0; (expected / 64 + 1) as usize],
            next: vec![0; streams],
            by_stream: vec![StreamCounts::default(); streams],
            counts: Counts::default(),
            delays: Histogram::default(),
            delay_changes: Differences::default(),
            last: None,
            samples: Vec::with_capacity(sampling.map_or(0, |it| it.count)),
            sampling,
        }
    }

    /// The tag of a frame of this direction.
    #[inline]
    pub fn tag(&self, sequence: u64, time: u64) -> Tag {
        Tag { trial: self.trial, sequence, time }
    }

    /// Counts the frames of these sequence numbers as sent.
    #[inline]
    pub fn left(&mut self, sequences: Range<u64>) {
        let count = sequences.end - sequences.start;
        self.counts.sent += count;
        if let [only] = &mut self.by_stream[..] {
            only.sent += count;
            return;
        }
        for sequence in sequences {
            self.by_stream[stream_of(sequence, self.next.len())].sent += 1;
        }
    }

    /// Counts one frame that arrived at `now`; whether it is whole, and had not arrived before.
    #[inline]
    pub fn note(&mut self, seen: Seen, now: u64) -> bool {
        let counts = &mut self.counts;
        let other = match seen {
            Seen::Ours(tag) if tag.trial == self.trial => return self.note_whole(tag, now),
            Seen::Ours(_) => &mut counts.stale,
            Seen::Corrupt(stream) => {
                if let Some(stream) = stream {
                    self.by_stream[stream as usize].corrupted += 1;
                }
                &mut counts.corrupted
            }
            Seen::Clear => &mut counts.clear,
            Seen::Foreign => &mut counts.foreign,
        };
        *other += 1;
        false
    }

    #[inline]
    fn note_whole(&mut self, tag: Tag, now: u64) -> bool {
        let (word, bit) = ((tag.sequence / 64) as usize, 1 << (tag.sequence % 64));
        let number = stream_of(tag.sequence, self.next.len());
        let stream = &mut self.by_stream[number];
        if word >= self.seen.len() {
            self.seen.resize(word * 2 + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.counts.duplicated += 1;
            stream.duplicated += 1;
            return false;
        }
        self.seen[word] |= bit;
        self.counts.received += 1;
        stream.received += 1;
        let next = &mut self.next[number];
        if tag.sequence < *next {
            self.counts.reordered += 1;
            stream.reordered += 1;
        }
        *next = (*next).max(tag.sequence + 1);
        let delay = now.saturating_sub(tag.time);
        self.delays.note(delay);
        if let Some((sequence, before)) = self.last.replace((tag.sequence, delay))
            && sequence + 1 == tag.sequence
        {
            self.delay_changes.note(before, delay);
        }
        if let Some(sampling) = self.sampling
            && self.samples.len() < sampling.count
            && tag.sequence >= sampling.first
            && (tag.sequence - sampling.first).is_multiple_of(sampling.every)
        {
            self.samples.push(delay);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(sequence: u64) -> Seen {
        Seen::Ours(Tag { trial: 7, sequence, time: 100 })
    }

    #[test]
    fn loss_duplicates_reordering_and_corruption_are_counted_apart() {
        let mut receiver = Receiver::new(7, 1, 4, None);
        receiver.left(0..10);
        // 2 lost, 3 twice, 4 behind 5 and 6, 7 corrupted, 8 lost.
        for sequence in [0, 1, 3, 3, 5, 6, 4, 9] {
            receiver.note(ours(sequence), 150);
        }
        receiver.note(Seen::Corrupt(None), 150);
        receiver.note(Seen::Foreign, 150);
        receiver.note(Seen::Ours(Tag { trial: 6, sequence: 2, time: 0 }), 150);
        let counts = Counts {
            sent: 10,
            received: 7,
            duplicated: 1,
            reordered: 1,
            corrupted: 1,
            clear: 0,
            repeated: 0,
            other_sa: 0,
            foreign: 1,
            stale: 1,
        };
        assert_eq!((receiver.counts, counts.lost()), (counts, 2));
        assert!((counts.loss() - 0.3).abs() < 1e-9, "a corrupted frame did not arrive whole");
        assert_eq!((receiver.delays.count(), receiver.delays.most()), (7, 50));
    }

    #[test]
    fn delays_are_compared_of_frames_that_follow_each_other() {
        let mut receiver = Receiver::new(7, 1, 4, None);
        receiver.left(0..5);
        // 0 and 1, and 3 and 4; 2 is lost.
        for (sequence, now) in [(0, 150), (1, 140), (3, 900), (4, 907)] {
            receiver.note(ours(sequence), now);
        }
        assert_eq!(receiver.delay_changes.least_median_most(), Some([-10.0, -10.0, 7.0]));
    }

    #[test]
    fn each_stream_has_its_own_order_and_its_own_counts() {
        let mut receiver = Receiver::new(7, 3, 1000, None);
        receiver.left(0..300);
        let of = |stream: usize| (0..300u64).filter(move |&it| stream_of(it, 3) == stream);
        // All of stream 2 before all of stream 0: they may pass each other. Of stream 1, the second comes before the first, the third twice.
        let mut one: Vec<u64> = of(1).collect();
        one.swap(0, 1);
        one.insert(3, one[2]);
        let (damaged, one) = (one.pop(), one);
        for sequence in of(2).chain(of(0).skip(5)).chain(one.iter().copied()) {
            receiver.note(ours(sequence), 150);
        }
        assert!(damaged.is_some());
        receiver.note(Seen::Corrupt(Some(1)), 150);
        let count = |stream| of(stream).count() as u64;
        let whole =
            |stream| StreamCounts { sent: count(stream), received: count(stream), ..Default::default() };
        let zero = StreamCounts { received: count(0) - 5, ..whole(0) };
        let one =
            StreamCounts { received: count(1) - 1, duplicated: 1, reordered: 1, corrupted: 1, ..whole(1) };
        assert_eq!(receiver.by_stream, [zero, one, whole(2)]);
        let Counts { sent, received, duplicated, reordered, corrupted, .. } = receiver.counts;
        let sum = zero.and(one).and(whole(2));
        assert_eq!([sent, received, duplicated, reordered, corrupted], [sum.sent, sum.received, 1, 1, 1]);
        assert_eq!(receiver.counts.lost(), 5);
    }

    #[test]
    fn more_frames_than_expected_are_counted_too() {
        let mut receiver = Receiver::new(7, 1, 1, None);
        for sequence in 0..10_000 {
            receiver.note(ours(sequence), 100);
            receiver.note(ours(sequence), 100);
        }
        assert_eq!((receiver.counts.received, receiver.counts.duplicated), (10_000, 10_000));
    }

    #[test]
    fn samples_are_taken_from_the_first_on_at_their_distance() {
        let mut receiver = Receiver::new(7, 1, 100, Some(Sampling { first: 50, every: 10, count: 3 }));
        for sequence in 0..100 {
            receiver.note(ours(sequence), 100 + sequence);
        }
        assert_eq!(receiver.samples, [50, 60, 70]);
    }
}
