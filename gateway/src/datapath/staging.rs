//! The staging queue: packets that wait for a key.
//!
//! Only outbound workers add and remove packets, and one of them at a time sends those of a peer. If the handshake thread, which has a lower priority, removed
//! them, packets that arrive meanwhile would stay staged and then be dropped, although there is a key.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tunnel::wireguard::limits::STAGED_PACKETS;

/// The maximum size of all staged packets of an interface; beyond it, a peer may have a single staged packet.
const TOGETHER: usize = 32 << 20;

/// Bytes of staged packets, of all peers of an interface.
#[derive(Clone, Default)]
pub struct Budget(Arc<AtomicUsize>);

/// The staged packets of one peer, the oldest first.
pub struct Staging {
    budget: Budget,
    /// Whether packets are staged or being sent: later ones must be staged behind them.
    occupied: AtomicBool,
    queue: Mutex<VecDeque<Vec<u8>>>,
    /// Held by the worker that sends packets which were staged.
    sending: Mutex<()>,
}

impl Staging {
    /// An empty queue.
    pub fn new(budget: Budget) -> Self {
        Self { budget, occupied: AtomicBool::new(false), queue: Mutex::default(), sending: Mutex::default() }
    }

    /// Lets one worker at a time take packets and send them: another one, which has later packets of the same flow, waits until
    /// these have been sent.
    pub fn sending(&self) -> MutexGuard<'_, ()> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether packets must be staged behind others.
    #[inline]
    pub fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Acquire)
    }

    /// Adds packets at the end; returns whether they are the first, and how many packets were dropped.
    pub fn stage<'a>(&self, packets: impl Iterator<Item = &'a [u8]>) -> (bool, usize) {
        let mut queue = self.lock();
        let mut dropped = 0;
        for packet in packets {
            while queue.len() >= STAGED_PACKETS {
                dropped += usize::from(queue.pop_front().map(|oldest| self.release(&oldest)).is_some());
            }
            let together = self.budget.0.load(Ordering::Relaxed) + packet.len();
            if together > TOGETHER && !queue.is_empty() {
                dropped += 1;
                continue;
            }
            self.budget.0.fetch_add(packet.len(), Ordering::Relaxed);
            queue.push_back(packet.to_vec());
        }
        (!self.occupied.swap(true, Ordering::AcqRel), dropped)
    }

    /// Removes all packets, for sending. The queue stays occupied until this returns none.
    pub fn take(&self) -> VecDeque<Vec<u8>> {
        let mut queue = self.lock();
        queue.iter().for_each(|packet| self.release(packet));
        if queue.is_empty() {
            self.occupied.store(false, Ordering::Release);
        }
        std::mem::take(&mut *queue)
    }

    /// Removes all packets, which are dropped.
    pub fn purge(&self) -> VecDeque<Vec<u8>> {
        let mut queue = self.lock();
        queue.iter().for_each(|packet| self.release(packet));
        self.occupied.store(false, Ordering::Release);
        std::mem::take(&mut *queue)
    }

    fn release(&self, packet: &[u8]) {
        self.budget.0.fetch_sub(packet.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Vec<u8>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.purge();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(staging: &Staging, packets: usize, length: usize) -> (bool, usize) {
        let packet = vec![0; length];
        staging.stage((0..packets).map(|_| &packet[..]))
    }

    #[test]
    fn the_first_is_told_apart_until_all_were_taken() {
        let staging = Staging::new(Budget::default());
        assert_eq!(stage(&staging, 2, 100), (true, 0));
        assert_eq!(stage(&staging, 1, 100), (false, 0));
        assert_eq!(staging.take().len(), 3);
        assert!(staging.is_occupied(), "they are still under way");
        assert_eq!(staging.take().len(), 0);
        assert!(!staging.is_occupied());
        assert_eq!(stage(&staging, 1, 100), (true, 0));
    }

    #[test]
    fn the_oldest_give_way() {
        let staging = Staging::new(Budget::default());
        assert_eq!(stage(&staging, STAGED_PACKETS + 5, 10), (true, 5));
        assert_eq!(staging.take().len(), STAGED_PACKETS);
    }

    #[test]
    fn a_full_budget_still_lets_every_peer_ask_for_a_key() {
        let budget = Budget::default();
        let greedy: Vec<_> = (0..10).map(|_| Staging::new(budget.clone())).collect();
        for staging in &greedy {
            stage(staging, STAGED_PACKETS, 65_000);
        }
        let modest = Staging::new(budget.clone());
        assert_eq!(stage(&modest, 2, 1000), (true, 1));
        assert_eq!(modest.take().len(), 1);
        drop(greedy);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0, "who goes gives back what it held");
    }
}
