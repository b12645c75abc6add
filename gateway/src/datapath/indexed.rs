//! A table addressed by locally chosen numbers: receiver indices and SPIs.
//!
//! The numbers are random, so their low bits, for OpenVPN those of the peer ID, are a hash that no attacker controls.
//! Workers read without locks. A removed entry is dropped by the removing thread, or by the last worker that uses it. A
//! map that frees memory in batches would keep the keys of ended sessions while an interface is idle.

use arc_swap::ArcSwapOption;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Slots of the first level; each further level has twice as many.
const FIRST: usize = 1024;
/// Levels: enough for more than a billion entries.
const LEVELS: usize = 20;
/// The number of consecutive slots that may hold an entry.
const REACH: usize = 8;

/// An entry, which knows its number.
pub trait Indexed {
    /// Its number.
    fn index(&self) -> u32;
}

/// The table.
pub struct Table<T> {
    /// A level is allocated when the smaller ones are full, and never freed: entries never move, so readers miss
    /// none.
    levels: [OnceLock<Box<[Slot<T>]>>; LEVELS],
    /// One writer at a time.
    writing: Mutex<()>,
}

struct Slot<T> {
    /// The number of the entry, or of a removed one: it saves readers the access to other entries.
    index: AtomicU32,
    entry: ArcSwapOption<T>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { index: AtomicU32::new(0), entry: ArcSwapOption::empty() }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { levels: std::array::from_fn(|_| OnceLock::new()), writing: Mutex::default() }
    }
}

/// The slots of a level that may hold `index`.
#[inline]
fn reach<T>(slots: &[Slot<T>], index: u32) -> &[Slot<T>] {
    // The last slots of a level are only reached from the slots before them.
    let home = index as usize & (slots.len() - REACH - 1);
    &slots[home..home + REACH]
}

impl<T: Indexed> Table<T> {
    /// The allocated levels, the largest first: it has most entries.
    #[inline]
    fn levels(&self) -> impl Iterator<Item = &[Slot<T>]> {
        self.levels.iter().rev().filter_map(|level| level.get().map(|slots| &**slots))
    }

    /// The slot of an entry.
    #[inline]
    fn slot(&self, index: u32) -> Option<(&Slot<T>, Arc<T>)> {
        self.levels().flat_map(|slots| reach(slots, index)).find_map(|slot| {
            if slot.index.load(Ordering::Acquire) != index {
                return None;
            }
            let entry = slot.entry.load_full().filter(|entry| entry.index() == index)?;
            Some((slot, entry))
        })
    }

    /// The entry with this number.
    #[inline]
    pub fn get(&self, index: u32) -> Option<Arc<T>> {
        self.slot(index).map(|(_, entry)| entry)
    }

    /// Adds an entry, and returns the previous entry with this number.
    pub fn insert(&self, entry: Arc<T>) -> Option<Arc<T>> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let index = entry.index();
        if let Some((slot, before)) = self.slot(index) {
            slot.entry.store(Some(entry));
            return Some(before);
        }
        let slots = (0..LEVELS).map(|level| {
            let make = || (0..(FIRST << level) + REACH).map(|_| Slot::default()).collect();
            &**self.levels[level].get_or_init(make)
        });
        let mut free = slots.flat_map(|slots| reach(slots, index)).filter(|slot| slot.entry.load().is_none());
        let slot = free.next().expect("there are more slots than a machine has memory for entries");
        slot.entry.store(Some(entry));
        // Release: a reader that sees the number also sees the entry.
        slot.index.store(index, Ordering::Release);
        None
    }

    /// Removes an entry. It is dropped as soon as no worker uses it.
    pub fn remove(&self, index: u32) -> Option<Arc<T>> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, entry) = self.slot(index)?;
        slot.entry.store(None);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    struct Entry(u32);

    impl Indexed for Entry {
        fn index(&self) -> u32 {
            self.0
        }
    }

    #[test]
    fn what_was_added_is_found_until_it_is_removed() {
        let table = Table::default();
        // As random numbers, and many with the same low bits.
        let indices: Vec<u32> =
            (0..3000u32).map(|n| n.wrapping_mul(0x9e37_79b1)).chain((0..40).map(|n| n << 24 | 5)).collect();
        for &index in &indices {
            assert!(table.insert(Arc::new(Entry(index))).is_none());
        }
        for &index in &indices {
            assert_eq!(table.get(index).map(|entry| entry.0), Some(index));
        }
        assert!(table.get(7).is_none() && table.remove(7).is_none());
        assert!(table.insert(Arc::new(Entry(5))).is_some(), "the older one with its number goes");
        for &index in &indices {
            assert_eq!(table.remove(index).map(|entry| entry.0), Some(index));
            assert!(table.get(index).is_none());
        }
        assert!(table.get(0).is_none());
    }

    #[test]
    fn what_is_removed_is_dropped_at_once_although_a_worker_that_has_used_it_is_idle() {
        let table = Table::default();
        let (read, end) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let entry = Arc::new(Entry(9));
            let kept = Arc::downgrade(&entry);
            table.insert(entry);
            scope.spawn(|| {
                assert!(table.get(9).is_some());
                read.wait();
                end.wait();
            });
            read.wait();
            drop(table.remove(9));
            let is_dropped = kept.upgrade().is_none();
            end.wait();
            assert!(is_dropped);
        });
    }

    #[test]
    fn readers_find_what_is_there_while_others_come_and_go() {
        let table = Table::default();
        table.insert(Arc::new(Entry(1)));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..20 {
                    let indices = (2..2000u32).map(|n| n.wrapping_mul(0x9e37_79b1 + 2 * round));
                    indices.clone().for_each(|index| drop(table.insert(Arc::new(Entry(index)))));
                    indices.filter(|&index| index != 1).for_each(|index| drop(table.remove(index)));
                }
            });
            while !writer.is_finished() {
                assert!(table.get(1).is_some());
            }
        });
    }
}
