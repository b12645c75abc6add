//! Data packets under epoch keys of OpenVPN 2.7: an AEAD cipher, with the tag at the end.
//!
//! ```text
//! lead 1 | peer ID 3 | epoch 2 | counter 6 | text | tag 16      authenticated: the first 12 bytes
//!
//! outbound    number of the SA → epoch and counter → the epoch's key, derived when the first packet of the epoch is sealed
//! inbound     epoch → retiring, present or one of the future keys → its window; an authentic packet of a future epoch makes
//!             that epoch the present one, and the present one the retiring one
//! ```
//! A sender of ours goes on to the next epoch after [`EPOCH_PACKETS`]: with the longest packets that is the limit of AES-GCM.

use super::framing::Framing;
use super::layout::{ExitNote, Header, strip_packet};
use crate::opening::{self, JOBS};
use crate::openvpn::epoch::{EpochKey, EpochSecret};
use crate::openvpn::limits::{EPOCH_PACKETS, FUTURE_EPOCHS};
use crate::replay::{self, ReplayWindow};
use arrayvec::ArrayVec;
use crypto::engine::LoadError;
use crypto::{Cipher, Engine, EngineFailure, Job};
use packet::{Batch, DropCounters, DropReason};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of the tag.
const TAG: usize = 16;
/// Bytes of epoch and counter.
const NUMBER: usize = 8;
/// Bits of the counter.
const COUNTER_BITS: u32 = 48;
/// Bytes of the header of version 2, which epoch keys need.
const HEADER: usize = 4;

/// What both directions need to derive keys.
struct Source {
    engine: Arc<dyn Engine>,
    cipher: Cipher,
    /// The epoch after those whose keys were derived, and its secret.
    next: (u16, EpochSecret),
}

impl Source {
    fn new(engine: Arc<dyn Engine>, cipher: Cipher, cipher_key: &[u8]) -> Self {
        Self { engine, cipher, next: (1, EpochSecret::first(cipher_key)) }
    }

    /// The key of the next epoch; `None` after the last epoch.
    fn derive(&mut self) -> Result<Option<EpochKey>, LoadError> {
        let (epoch, secret) = &self.next;
        if *epoch == u16::MAX {
            return Ok(None);
        }
        let key = secret.load(*epoch, &*self.engine, self.cipher)?;
        self.next = (epoch + 1, secret.next());
        Ok(Some(key))
    }
}

/// The keys to send with.
struct Sending {
    source: Source,
    /// The epoch before, whose last packets may be sealed on another thread, and the present one.
    keys: ArrayVec<Arc<EpochKey>, 2>,
}

impl Sending {
    fn key(&mut self, epoch: u16) -> Result<Arc<EpochKey>, EngineFailure> {
        while self.keys.last().is_none_or(|last| last.epoch < epoch) {
            let key = self.source.derive().map_err(|_| EngineFailure)?.ok_or(EngineFailure)?;
            if self.keys.is_full() {
                self.keys.remove(0);
            }
            self.keys.push(Arc::new(key));
        }
        self.keys.iter().find(|key| key.epoch == epoch).cloned().ok_or(EngineFailure)
    }
}

/// A key to receive with, and what was received under it.
struct Received {
    key: EpochKey,
    window: ReplayWindow,
}

impl Received {
    fn new(key: EpochKey) -> Self {
        Self { key, window: ReplayWindow::new(replay::WIREGUARD) }
    }
}

/// The keys to receive with.
struct Receiving {
    source: Source,
    retiring: Option<Received>,
    /// The present one first.
    keys: VecDeque<Received>,
}

impl Receiving {
    fn fill(&mut self) -> Result<(), LoadError> {
        while self.keys.len() <= FUTURE_EPOCHS {
            let Some(key) = self.source.derive()? else { break };
            self.keys.push_back(Received::new(key));
        }
        Ok(())
    }

    fn find(&mut self, epoch: u16) -> Option<&mut Received> {
        self.retiring.iter_mut().chain(&mut self.keys).find(|it| it.key.epoch == epoch)
    }

    /// An authentic packet of this epoch has come.
    fn advance(&mut self, epoch: u16) {
        while self.keys.len() > 1 && self.keys.front().is_some_and(|present| present.key.epoch < epoch) {
            self.retiring = self.keys.pop_front();
        }
        // Without further keys, the present ones stay; the peer's next epochs are then dropped.
        let _ = self.fill();
    }
}

/// The data packets of one direction.
enum Side {
    Sending(Mutex<Sending>),
    Receiving(Mutex<Receiving>),
}

/// How the data packets of one direction are laid out, sealed and opened under epoch keys.
pub struct EpochData {
    header: Header,
    side: Side,
    pub(super) exit: ExitNote,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while holding the lock; even then, the keys would remain valid.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EpochData {
    /// The direction in which we send, with the first cipher key of that direction.
    pub fn sending(
        engine: Arc<dyn Engine>,
        cipher: Cipher,
        cipher_key: &[u8],
        header: Header,
    ) -> Result<Self, LoadError> {
        let mut sending = Sending { source: Source::new(engine, cipher, cipher_key), keys: ArrayVec::new() };
        if let Some(key) = sending.source.derive()? {
            sending.keys.push(Arc::new(key));
        }
        Ok(Self { header, side: Side::Sending(Mutex::new(sending)), exit: ExitNote::default() })
    }

    /// The direction in which we receive.
    pub fn receiving(
        engine: Arc<dyn Engine>,
        cipher: Cipher,
        cipher_key: &[u8],
        header: Header,
    ) -> Result<Self, LoadError> {
        let source = Source::new(engine, cipher, cipher_key);
        let mut receiving = Receiving { source, retiring: None, keys: VecDeque::new() };
        receiving.fill()?;
        Ok(Self { header, side: Side::Receiving(Mutex::new(receiving)), exit: ExitNote::default() })
    }

    /// Bytes before the inner packet.
    #[inline]
    pub fn overhead(&self) -> usize {
        HEADER + NUMBER
    }

    /// The longest inner packet whose sealed packet has at most `length` bytes.
    #[inline]
    pub fn largest(&self, length: usize) -> usize {
        length.saturating_sub(self.overhead() + TAG)
    }

    /// Bytes of these inner packets once they are sealed.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>) -> usize {
        packets.map(|index| self.overhead() + batch.packet(index).len() + TAG).sum()
    }

    /// Puts headers before packets, with room for the tags after them.
    #[inline]
    pub fn lay_out(&self, batch: &mut Batch, packets: Range<usize>, first_sequence: u64) {
        let word = self.header.word().to_be_bytes();
        for (index, sequence) in packets.zip(first_sequence..) {
            batch.grow(index, self.overhead(), TAG);
            let packet = batch.packet_mut(index);
            packet[..HEADER].copy_from_slice(&word);
            packet[HEADER..][..NUMBER].copy_from_slice(&number_of(sequence).to_be_bytes());
        }
    }

    /// Seals packets that were laid out. When the engine fails, nothing of the packets may leave.
    pub fn seal(&self, batch: &mut Batch, packets: Range<usize>) -> Result<(), EngineFailure> {
        let Side::Sending(sending) = &self.side else { return Err(EngineFailure) };
        let mut packets = batch.packets_mut(packets).map(|(_, packet)| packet).peekable();
        while let Some(first) = packets.peek() {
            let epoch = epoch_of(first);
            let key = lock(sending).key(epoch)?;
            let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
            while !jobs.is_full()
                && let Some(packet) = packets.next_if(|packet| epoch_of(packet) == epoch)
            {
                jobs.push(job(&key, packet));
            }
            key.key.seal(&mut jobs)?;
        }
        Ok(())
    }

    /// Drops packets that are too short, of an epoch without a key, or received before.
    pub fn check(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        let Side::Receiving(receiving) = &self.side else { return };
        let mut receiving = lock(receiving);
        for index in packets {
            let packet = batch.packet(index);
            let reason = if packet.len() <= self.overhead() + TAG {
                Some(DropReason::TooShort)
            } else {
                match receiving.find(epoch_of(packet)) {
                    None => Some(DropReason::KeyExpired),
                    Some(found) => found.window.check(counter_of(packet)).err(),
                }
            };
            if let Some(reason) = reason {
                batch.drop_packet(index, reason, drops);
            }
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        let Side::Receiving(receiving) = &self.side else { return };
        let mut receiving = lock(receiving);
        let mut next = packets.start;
        while let Some((epoch, same)) = of_one_epoch(batch, next..packets.end) {
            next = same.end;
            // Another worker may have moved on to a later epoch since the check.
            let Some(found) = receiving.find(epoch) else {
                drops.count(DropReason::KeyExpired, batch.live(same.clone()).count());
                batch.note_drops_of(same.clone(), DropReason::KeyExpired);
                same.for_each(|index| batch.discard(index));
                continue;
            };
            opening::open(batch, same, drops, |batch, call| {
                let jobs = batch.packets_mut(call.packets).map(|(_, packet)| job(&found.key, packet));
                opening::call_each(&*found.key.key, jobs)
            });
        }
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    pub fn accept(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) -> (usize, usize) {
        let Side::Receiving(receiving) = &self.side else { return (0, 0) };
        let mut receiving = lock(receiving);
        let (mut authentic, mut bytes) = (0, 0);
        for index in packets {
            if !batch.is_live(index) {
                continue;
            }
            let packet = batch.packet(index);
            let (epoch, counter) = (epoch_of(packet), counter_of(packet));
            receiving.advance(epoch);
            // A burst over three epochs leaves no key for the first of them.
            let found = receiving.find(epoch).ok_or(DropReason::Replayed);
            if let Err(reason) = found.and_then(|found| found.window.accept(counter)) {
                batch.drop_packet(index, reason, drops);
                continue;
            }
            authentic += 1;
            bytes += batch.packet(index).len();
        }
        (authentic, bytes)
    }

    /// Strips opened packets to their inner packets; returns whether there was one other than a ping.
    #[inline]
    pub fn strip(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        framing: Option<Framing>,
        drops: &DropCounters,
    ) -> bool {
        let mut with_data = false;
        for index in packets {
            if batch.is_live(index) {
                with_data |= strip_packet(batch, index, (self.overhead(), TAG), framing, &self.exit, drops);
            }
        }
        with_data
    }
}

/// Epoch and counter of a number of the SA, which begins at 1, as both do.
fn number_of(sequence: u64) -> u64 {
    let before = sequence - 1;
    (before / EPOCH_PACKETS + 1) << COUNTER_BITS | (before % EPOCH_PACKETS + 1)
}

#[inline]
fn number(packet: &[u8]) -> [u8; NUMBER] {
    *packet[HEADER..].first_chunk().expect("the length was checked")
}

#[inline]
fn epoch_of(packet: &[u8]) -> u16 {
    (u64::from_be_bytes(number(packet)) >> COUNTER_BITS) as u16
}

#[inline]
fn counter_of(packet: &[u8]) -> u64 {
    u64::from_be_bytes(number(packet)) & ((1 << COUNTER_BITS) - 1)
}

/// The parts of a packet whose length was checked.
#[inline]
fn job<'a>(key: &EpochKey, packet: &'a mut [u8]) -> Job<'a> {
    let nonce = key.nonce(&number(packet));
    let (header, rest) = packet.split_at_mut(HEADER + NUMBER);
    let (text, tag) = rest.split_at_mut(rest.len() - TAG);
    Job { nonce, aad: header, text, tag, authentic: false }
}

/// The epoch of the first packet that is not dropped, and the packets from it on that are of the same epoch.
fn of_one_epoch(batch: &Batch, packets: Range<usize>) -> Option<(u16, Range<usize>)> {
    let first = batch.live(packets.clone()).next()?;
    let epoch = epoch_of(batch.packet(first));
    let last = batch.live(first..packets.end).take_while(|&it| epoch_of(batch.packet(it)) == epoch).last();
    Some((epoch, first..last.unwrap_or(first) + 1))
}

#[cfg(test)]
mod tests;
