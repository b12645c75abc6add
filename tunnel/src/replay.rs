//! The anti-replay window of RFC 6479: a ring of words in which only whole words are ever cleared.

use packet::DropReason;

/// Bits in the ring. One word of them is always in transition, so the window is one word smaller.
const BITS: u64 = 8192;
const WORD: u64 = u64::BITS as u64;
const WORDS: usize = (BITS / WORD) as usize;

/// How far behind the highest number seen a packet may come and still be told from a replay.
pub const WINDOW: u64 = BITS - WORD;

/// Which sequence numbers have been seen.
pub struct ReplayWindow {
    /// One more than the highest number accepted; 0 when there was none.
    next: u64,
    ring: [u64; WORDS],
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { next: 0, ring: [0; WORDS] }
    }
}

impl ReplayWindow {
    /// Whether `sequence` could be accepted; nothing changes.
    #[inline]
    pub fn check(&self, sequence: u64) -> Result<(), DropReason> {
        if sequence >= self.next {
            return Ok(());
        }
        let behind = self.next - 1 - sequence;
        if behind >= WINDOW || self.ring[word(sequence)] & bit(sequence) != 0 {
            return Err(DropReason::Replayed);
        }
        Ok(())
    }

    /// Marks `sequence` as seen, and moves the window up to it.
    ///
    /// RFC 4303 section 3.4.3: only for a packet whose tag was right.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> Result<(), DropReason> {
        self.check(sequence)?;
        if sequence >= self.next {
            self.clear_between(self.next, sequence);
            self.next = sequence + 1;
        }
        self.ring[word(sequence)] |= bit(sequence);
        Ok(())
    }

    /// Clears the words that the window enters when it moves from `next` to `sequence`.
    fn clear_between(&mut self, next: u64, sequence: u64) {
        // With nothing accepted yet, the first word is still clean.
        let entered = sequence / WORD - next.saturating_sub(1) / WORD;
        for step in 0..entered.min(WORDS as u64) {
            self.ring[word(sequence - step * WORD)] = 0;
        }
    }
}

fn word(sequence: u64) -> usize {
    (sequence / WORD) as usize % WORDS
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_number_is_accepted_once() {
        let mut window = ReplayWindow::default();
        for sequence in [0, 1, 3, 2, 100, 99, 8191, 8192, 65] {
            assert_eq!(window.accept(sequence), Ok(()), "{sequence} for the first time");
            assert_eq!(window.accept(sequence), Err(DropReason::Replayed), "{sequence} again");
        }
    }

    #[test]
    fn the_window_ends_where_it_says() {
        let mut window = ReplayWindow::default();
        window.accept(100_000).expect("new");
        assert_eq!(window.check(100_000 - (WINDOW - 1)), Ok(()));
        assert_eq!(window.check(100_000 - WINDOW), Err(DropReason::Replayed));
        assert_eq!(WINDOW, 8128);
    }

    #[test]
    fn a_leap_over_the_whole_ring_forgets_it() {
        let mut window = ReplayWindow::default();
        for sequence in 0..BITS {
            window.accept(sequence).expect("new");
        }
        window.accept(10 * BITS + 5).expect("new");
        for sequence in 10 * BITS + 6 - WINDOW..10 * BITS + 5 {
            assert_eq!(window.accept(sequence), Ok(()), "{sequence}");
        }
    }

    #[test]
    fn checking_changes_nothing() {
        let mut window = ReplayWindow::default();
        window.accept(5).expect("new");
        window.check(1_000_000).expect("possible");
        assert_eq!(window.accept(4), Ok(()));
    }

    #[test]
    fn the_end_of_the_number_space_is_no_special_case() {
        let mut window = ReplayWindow::default();
        window.accept(u64::MAX - 2).expect("new");
        window.accept(u64::MAX - 1).expect("new");
        assert_eq!(window.accept(u64::MAX - 2), Err(DropReason::Replayed));
    }

    #[test]
    fn agrees_with_a_set_over_a_long_shuffled_row() {
        let (mut window, mut seen, mut highest, mut state) =
            (ReplayWindow::default(), HashSet::new(), 0u64, 1u64);
        for step in 0..200_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let back = (state >> 33) % 10_000;
            let leap = if state >> 60 == 0 { (state >> 20) % 20_000 } else { 0 };
            let sequence = (step + highest / 2 + leap).saturating_sub(back);
            let fits = sequence + WINDOW > highest;
            let expected = fits && !seen.contains(&sequence);
            assert_eq!(window.accept(sequence).is_ok(), expected, "{sequence}, highest {highest}");
            if expected {
                seen.insert(sequence);
                highest = highest.max(sequence);
            }
        }
    }
}
