//! The anti-replay window of RFC 6479: a ring of words that is only cleared in whole words.

use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const WORD: u64 = u64::BITS as u64;

/// The window of WireGuard: a ring of 8192 bits, less one word that is always in transition.
pub const WIREGUARD: u64 = 8192 - WORD;
/// The default window of ESP: a ring of 4096 bits. RFC 4303 section 3.4.3 recommends 64; paths that reorder packets
/// need more.
pub const ESP: u64 = 4096 - WORD;
/// The largest window: 256 KiB of ring an SA.
pub const LARGEST: u64 = 1 << 20;

/// The received sequence numbers.
pub struct ReplayWindow {
    /// The highest accepted number plus one; 0 before the first.
    next: AtomicU64,
    /// The number of packets by which an accepted packet may be behind the highest number. 0 disables replay
    /// protection.
    size: u64,
    /// A ring of words; their number is a power of two.
    ring: Box<[AtomicU64]>,
}

impl ReplayWindow {
    /// A window of `size` numbers, at most [`LARGEST`]; 0 accepts every number any number of times.
    pub fn new(size: u64) -> Self {
        let size = size.min(LARGEST);
        // One word is always in transition and not part of the window.
        let words = ((size + WORD) / WORD + u64::from(!size.is_multiple_of(WORD))).next_power_of_two();
        Self { next: AtomicU64::new(0), size, ring: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The window with all numbers below `next` received.
    #[must_use]
    pub fn starting_at(self, next: u64) -> Self {
        if let Some(highest) = next.checked_sub(1) {
            self.ring.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
            self.word(highest).store(u64::MAX >> (WORD - 1 - highest % WORD), Ordering::Relaxed);
            self.next.store(next, Ordering::Relaxed);
        }
        self
    }

    /// The number that follows the highest accepted one; 0 before the first.
    pub fn next(&self) -> u64 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether `sequence` would be accepted; nothing changes.
    ///
    /// Without a lock: the window may move meanwhile, so [`Moving::accept`] decides.
    #[inline]
    pub fn check(&self, sequence: u64) -> Result<(), DropReason> {
        let next = self.next.load(Ordering::Acquire);
        if sequence >= next || self.size == 0 {
            return Ok(());
        }
        let behind = next - 1 - sequence;
        // A word that was cleared for higher numbers meanwhile has none of a number that is still in the window.
        if behind >= self.size || self.word(sequence).load(Ordering::Relaxed) & bit(sequence) != 0 {
            return Err(DropReason::Replayed);
        }
        Ok(())
    }

    /// The window, to be moved by its only user.
    #[inline]
    pub fn moving(&mut self) -> Moving<'_> {
        Moving { window: self, _lock: None }
    }

    /// As [`Moving::accept`], for the only user of a window.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> Result<(), DropReason> {
        self.moving().accept(sequence)
    }

    /// Infers the 64-bit sequence number from its low half (RFC 4303 appendix A2).
    ///
    /// It lies in the window or in the almost 2^32 numbers after it; `None` if that would be out of range.
    #[inline]
    pub fn infer(&self, low: u32) -> Option<u64> {
        let highest = self.next.load(Ordering::Relaxed).saturating_sub(1);
        // Without a window, the nearest number is taken.
        let below = if self.size == 0 { 1 << 31 } else { self.size - 1 };
        match highest.checked_sub(below) {
            Some(bottom) => bottom.checked_add(low.wrapping_sub(bottom as u32).into()),
            None => Some(low.into()).filter(|&sequence| sequence < (1 << 32) - (below - highest)),
        }
    }

    /// Clears the words that enter the window when it advances from `next` to `sequence`.
    fn clear_between(&self, next: u64, sequence: u64) {
        // Before the first packet, the first word is still clear.
        let entered = sequence / WORD - next.saturating_sub(1) / WORD;
        for step in 0..entered.min(self.ring.len() as u64) {
            self.word(sequence - step * WORD).store(0, Ordering::Relaxed);
        }
    }

    #[inline]
    fn word(&self, sequence: u64) -> &AtomicU64 {
        &self.ring[(sequence / WORD) as usize & (self.ring.len() - 1)]
    }
}

/// A window that several threads read, and one at a time moves.
pub struct SharedWindow {
    window: ReplayWindow,
    moving: Mutex<()>,
}

impl SharedWindow {
    /// Shares a window.
    pub fn new(window: ReplayWindow) -> Self {
        Self { window, moving: Mutex::default() }
    }

    /// The window as it is, for [`ReplayWindow::check`].
    #[inline]
    pub fn read(&self) -> &ReplayWindow {
        &self.window
    }

    /// The window, to be moved by this thread alone.
    #[inline]
    pub fn lock(&self) -> Moving<'_> {
        // No code panics while holding the lock; even then, the window would remain valid.
        let lock = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        Moving { window: &self.window, _lock: Some(lock) }
    }

    /// The window, to be moved by the only thread that does.
    #[inline]
    pub fn alone(&self) -> Moving<'_> {
        Moving { window: &self.window, _lock: None }
    }

    /// The window, no longer shared.
    pub fn into_inner(self) -> ReplayWindow {
        self.window
    }
}

/// A window that no other thread moves.
pub struct Moving<'a> {
    window: &'a ReplayWindow,
    _lock: Option<MutexGuard<'a, ()>>,
}

impl Moving<'_> {
    /// Marks `sequence` as received, and advances the window to it.
    ///
    /// RFC 4303 section 3.4.3: only for a packet with a valid tag.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> Result<(), DropReason> {
        let window = self.window;
        window.check(sequence)?;
        let next = window.next.load(Ordering::Relaxed);
        if sequence >= next {
            window.clear_between(next, sequence);
            // Release: a reader that finds the number in the window finds its word cleared.
            window.next.store(sequence + 1, Ordering::Release);
        }
        let word = window.word(sequence);
        // No read-modify-write of the processor: nobody else writes.
        word.store(word.load(Ordering::Relaxed) | bit(sequence), Ordering::Relaxed);
        Ok(())
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub(crate) fn accept_all(
        &mut self,
        batch: &mut Batch,
        packets: Range<usize>,
        drops: &DropCounters,
        sequence: impl Fn(&Batch, usize) -> u64,
    ) -> (usize, usize) {
        let (mut authentic, mut bytes) = (0, 0);
        for index in packets {
            if !batch.is_live(index) {
                continue;
            }
            // A duplicate within one burst: the check before decryption could not see it.
            if let Err(reason) = self.accept(sequence(batch, index)) {
                batch.drop_packet(index, reason, drops);
                continue;
            }
            authentic += 1;
            bytes += batch.packet(index).len();
        }
        (authentic, bytes)
    }
}

fn bit(sequence: u64) -> u64 {
    1 << (sequence % WORD)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const WINDOW: u64 = WIREGUARD;
    const BITS: u64 = 8192;

    #[test]
    fn each_number_is_accepted_once() {
        let mut window = ReplayWindow::new(WIREGUARD);
        for sequence in [0, 1, 3, 2, 100, 99, 8191, 8192, 65] {
            assert_eq!(window.accept(sequence), Ok(()), "{sequence} for the first time");
            assert_eq!(window.accept(sequence), Err(DropReason::Replayed), "{sequence} again");
        }
    }

    #[test]
    fn a_window_that_starts_later_has_received_all_before() {
        for (size, next) in [(64, 1), (64, 64), (1024, 65), (64, 0xffff_ffff), (0, 70)] {
            let mut window = ReplayWindow::new(size).starting_at(next);
            let before = (next.saturating_sub(200)..next).filter(|&it| window.check(it).is_ok()).count();
            assert_eq!(before > 0, size == 0, "{size} {next}: {before}");
            for sequence in next..next + 200 {
                assert_eq!(window.accept(sequence), Ok(()), "{size} {next} {sequence}");
            }
            assert_eq!(window.infer((next as u32).wrapping_add(200)), Some(next + 200), "{next}");
        }
    }

    #[test]
    fn the_window_ends_where_it_says() {
        let mut window = ReplayWindow::new(WIREGUARD);
        window.accept(100_000).expect("new");
        assert_eq!(window.check(100_000 - (WINDOW - 1)), Ok(()));
        assert_eq!(window.check(100_000 - WINDOW), Err(DropReason::Replayed));
        assert_eq!(WINDOW, 8128);
    }

    #[test]
    fn a_leap_over_the_whole_ring_forgets_it() {
        let mut window = ReplayWindow::new(WIREGUARD);
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
        let mut window = ReplayWindow::new(WIREGUARD);
        window.accept(5).expect("new");
        window.check(1_000_000).expect("possible");
        assert_eq!(window.accept(4), Ok(()));
    }

    #[test]
    fn the_end_of_the_number_space_is_no_special_case() {
        let mut window = ReplayWindow::new(WIREGUARD);
        window.accept(u64::MAX - 2).expect("new");
        window.accept(u64::MAX - 1).expect("new");
        assert_eq!(window.accept(u64::MAX - 2), Err(DropReason::Replayed));
    }

    #[test]
    fn agrees_with_a_set_over_a_long_shuffled_row() {
        for size in [1, 32, 63, 64, 65, 128, 1000, 1024, 4096, WIREGUARD, 1 << 15] {
            agrees_with_a_set(size);
        }
    }

    fn agrees_with_a_set(size: u64) {
        let (mut window, mut seen, mut highest, mut state) =
            (ReplayWindow::new(size), HashSet::new(), 0u64, 1u64);
        for step in 0..100_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let back = (state >> 33) % (size + size / 4 + 2);
            let leap = if state >> 60 == 0 { (state >> 20) % (size * 3) } else { 0 };
            let sequence = (step + highest / 2 + leap).saturating_sub(back);
            let fits = sequence + size > highest;
            let expected = fits && !seen.contains(&sequence);
            assert_eq!(window.accept(sequence).is_ok(), expected, "{sequence}, highest {highest}, {size}");
            if expected {
                seen.insert(sequence);
                highest = highest.max(sequence);
            }
        }
    }

    #[test]
    fn windows_take_twice_their_bits_at_most() {
        for (size, words) in [(32, 2), (64, 2), (128, 4), (4096, 128), (WIREGUARD, 128), (LARGEST, 1 << 15)] {
            assert_eq!(ReplayWindow::new(size).ring.len(), words, "{size}");
        }
        assert_eq!(ReplayWindow::new(u64::MAX).size, LARGEST);
    }

    #[test]
    fn no_window_accepts_everything_again() {
        let mut window = ReplayWindow::new(0);
        for sequence in [5, 5, 1, 1 << 40, 3] {
            assert_eq!(window.accept(sequence), Ok(()));
        }
    }

    /// RFC 4303 appendix A2.1 word by word: case A, the window within one subspace; case B, across two.
    fn appendix_a(highest: u64, size: u64, low: u32) -> Option<u64> {
        let (th, tl, w) = ((highest >> 32) as u32, highest as u32, size as u32);
        let bl = tl.wrapping_sub(w).wrapping_add(1);
        let high = match (tl >= w - 1, low >= bl) {
            (true, true) | (false, false) => th,
            (true, false) => th.checked_add(1)?,
            (false, true) => th.checked_sub(1)?,
        };
        Some(u64::from(high) << 32 | u64::from(low))
    }

    #[test]
    fn the_high_half_is_that_of_appendix_a() {
        const SPACE: u64 = 1 << 32;
        for size in [1, 32, 64, 4096, LARGEST] {
            for space in [0, 1, 2, 77, u64::from(u32::MAX)] {
                for low in
                    [0, 1, 31, 63, 64, 4095, 5000, 1 << 20, 1 << 31, SPACE - 5000, SPACE - 64, SPACE - 1]
                {
                    let highest = space * SPACE + low;
                    if highest == u64::MAX {
                        continue;
                    }
                    let mut window = ReplayWindow::new(size);
                    window.accept(highest).expect("new");
                    for near in [0, 1, 63, 64, 4000, 4096, 1 << 20, (1 << 20) + 1, 1 << 31, SPACE - 1] {
                        for low in [(low + near) as u32, (low as u32).wrapping_sub(near as u32)] {
                            let expected = appendix_a(highest, size, low);
                            assert_eq!(window.infer(low), expected, "{highest:x} {size} {low:x}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_sequence_crosses_into_the_next_subspace_and_late_ones_come_from_the_last() {
        let mut window = ReplayWindow::new(LARGEST);
        window.accept(0xffff_ff00).expect("new");
        assert_eq!(window.infer(5), Some(0x1_0000_0005));
        window.accept(0x1_0000_0005).expect("new");
        assert_eq!(window.infer(0xffff_ff01), Some(0xffff_ff01), "late");
        assert_eq!(window.infer(6), Some(0x1_0000_0006));
        let new = ReplayWindow::new(64);
        assert_eq!((new.infer(1), new.infer(u32::MAX)), (Some(1), None), "nothing was sent before the first");
        let mut last = ReplayWindow::new(64);
        last.accept(u64::MAX - 1).expect("new");
        assert_eq!(last.infer(0), None, "nothing is sent after the last");
    }

    #[test]
    fn readers_find_no_new_number_received_while_the_window_moves() {
        const LAST: u64 = 200_000;
        let shared = SharedWindow::new(ReplayWindow::new(64));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..LAST).for_each(|it| shared.lock().accept(it).expect("new")));
            let mut from = 0;
            while !writer.is_finished() {
                let next = shared.read().next.load(Ordering::Acquire);
                assert!(next >= from, "it never goes back");
                // No number from here on was received when the check began, but it may be by now.
                if shared.read().check(next).is_err() {
                    assert!(shared.read().next.load(Ordering::Acquire) > next, "{next}");
                }
                from = next;
            }
        });
        assert!((LAST - 64..LAST).all(|it| shared.read().check(it).is_err()));
    }

    #[test]
    fn threads_that_move_a_window_accept_each_number_once() {
        let shared = SharedWindow::new(ReplayWindow::new(LARGEST));
        let accepted: usize = std::thread::scope(|scope| {
            let work = || (0..20_000).filter(|&it| shared.lock().accept(it).is_ok()).count();
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
        });
        assert_eq!(accepted, 20_000);
    }
}
