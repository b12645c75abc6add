//! What arrives in one direction of a trial: loss, duplicates, reordering and corruption, each counted apart.

use super::frame::{Seen, Tag};
use super::histogram::Histogram;
use serde::Serialize;

/// The counts of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Frames that left the tester, or that the device's ring did not take.
    pub sent: u64,
    /// Frames that arrived whole, each counted once.
    pub received: u64,
    /// Frames that arrived whole once more.
    pub duplicated: u64,
    /// Frames that arrived behind one that was sent later (RFC 4737).
    pub reordered: u64,
    /// Frames of ours that are not what was sent.
    pub corrupted: u64,
    /// Frames of ours that arrived unencrypted where ESP is expected.
    pub clear: u64,
    /// Frames whose ESP sequence number another frame has had.
    pub repeated: u64,
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
            foreign: self.foreign + other.foreign,
            stale: self.stale + other.stale,
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
    stream: u16,
    /// One bit for each sequence number.
    seen: Vec<u64>,
    /// The number after the highest that has arrived.
    next: u64,
    /// What was counted so far.
    pub counts: Counts,
    /// The delays of all frames.
    pub delays: Histogram,
    sampling: Option<Sampling>,
    /// The delays of the sampled frames.
    pub samples: Vec<u64>,
}

impl Receiver {
    /// Counts the frames of `stream`, of which about `expected` will come.
    pub fn new(stream: u16, expected: u64, sampling: Option<Sampling>) -> Self {
        Self {
            stream,
            seen: vec![0; (expected / 64 + 1) as usize],
            next: 0,
            counts: Counts::default(),
            delays: Histogram::default(),
            samples: Vec::with_capacity(sampling.map_or(0, |it| it.count)),
            sampling,
        }
    }

    /// The tag of a frame of this direction.
    #[inline]
    pub fn tag(&self, sequence: u64, time: u64) -> Tag {
        Tag { stream: self.stream, sequence, time }
    }

    /// Counts one frame that arrived at `now`; whether it is whole, and had not arrived before.
    #[inline]
    pub fn note(&mut self, seen: Seen, now: u64) -> bool {
        let counts = &mut self.counts;
        let other = match seen {
            Seen::Ours(tag) if tag.stream == self.stream => return self.note_whole(tag, now),
            Seen::Ours(_) => &mut counts.stale,
            Seen::Corrupt => &mut counts.corrupted,
            Seen::Clear => &mut counts.clear,
            Seen::Foreign => &mut counts.foreign,
        };
        *other += 1;
        false
    }

    #[inline]
    fn note_whole(&mut self, tag: Tag, now: u64) -> bool {
        let (word, bit) = ((tag.sequence / 64) as usize, 1 << (tag.sequence % 64));
        if word >= self.seen.len() {
            self.seen.resize(word * 2 + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.counts.duplicated += 1;
            return false;
        }
        self.seen[word] |= bit;
        self.counts.received += 1;
        if tag.sequence < self.next {
            self.counts.reordered += 1;
        }
        self.next = self.next.max(tag.sequence + 1);
        let delay = now.saturating_sub(tag.time);
        self.delays.note(delay);
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
        Seen::Ours(Tag { stream: 7, sequence, time: 100 })
    }

    #[test]
    fn loss_duplicates_reordering_and_corruption_are_counted_apart() {
        let mut receiver = Receiver::new(7, 4, None);
        receiver.counts.sent = 10;
        // 2 lost, 3 twice, 4 behind 5 and 6, 7 corrupted, 8 lost.
        for sequence in [0, 1, 3, 3, 5, 6, 4, 9] {
            receiver.note(ours(sequence), 150);
        }
        receiver.note(Seen::Corrupt, 150);
        receiver.note(Seen::Foreign, 150);
        receiver.note(Seen::Ours(Tag { stream: 6, sequence: 2, time: 0 }), 150);
        let counts = Counts {
            sent: 10,
            received: 7,
            duplicated: 1,
            reordered: 1,
            corrupted: 1,
            clear: 0,
            repeated: 0,
            foreign: 1,
            stale: 1,
        };
        assert_eq!((receiver.counts, counts.lost()), (counts, 2));
        assert!((counts.loss() - 0.3).abs() < 1e-9, "a corrupted frame did not arrive whole");
        assert_eq!((receiver.delays.count(), receiver.delays.most()), (7, 50));
    }

    #[test]
    fn more_frames_than_expected_are_counted_too() {
        let mut receiver = Receiver::new(7, 1, None);
        for sequence in 0..10_000 {
            receiver.note(ours(sequence), 100);
            receiver.note(ours(sequence), 100);
        }
        assert_eq!((receiver.counts.received, receiver.counts.duplicated), (10_000, 10_000));
    }

    #[test]
    fn samples_are_taken_from_the_first_on_at_their_distance() {
        let mut receiver = Receiver::new(7, 100, Some(Sampling { first: 50, every: 10, count: 3 }));
        for sequence in 0..100 {
            receiver.note(ours(sequence), 100 + sequence);
        }
        assert_eq!(receiver.samples, [50, 60, 70]);
    }
}
