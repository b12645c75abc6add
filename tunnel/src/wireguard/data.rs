//! WireGuard's data messages (whitepaper, section 5.4.6): header, packet padded to 16 bytes, tag.
//!
//! ```text
//! outbound   lay out: header, padding, room for the tag → seal, one call of the engine for up to 64 messages
//! inbound    check the counter → open, one call for up to 64 messages → accept: the window moves → strip
//! ```

use crate::opening::{self, JOBS};
use crate::replay::{Moving, ReplayWindow};
use arrayvec::ArrayVec;
use crypto::{EngineFailure, Job, Key};
use packet::header::ip::IpPacket;
use packet::header::wireguard::{DATA, DATA_HEADER, DATA_OVERHEAD, DataHeader, TAG, padded};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// How the data messages of one session are laid out, sealed and opened.
pub struct SessionKey {
    key: Arc<dyn Key>,
}

impl SessionKey {
    /// The first counter.
    pub(crate) const FIRST_SEQUENCE: u64 = 0;

    /// With the key of one direction.
    pub fn new(key: Arc<dyn Key>) -> Self {
        Self { key }
    }

    /// The key.
    pub fn key(&self) -> &dyn Key {
        &*self.key
    }

    /// Bytes of these inner packets once they are sealed, on an interface with this MTU.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>, mtu: usize) -> usize {
        packets.map(|index| DATA_OVERHEAD + padded(batch.packet(index).len(), mtu)).sum()
    }

    /// Puts header and padding around packets, and leaves room for the tags.
    ///
    /// `mtu`: of the inside interface, beyond which nothing is padded.
    #[inline]
    pub fn lay_out(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        receiver: u32,
        first_sequence: u64,
        mtu: usize,
    ) {
        for (index, sequence) in packets.zip(first_sequence..) {
            let length = batch.packet(index).len();
            let padding = padded(length, mtu) - length;
            batch.grow(index, DATA_HEADER, padding + TAG);
            let message = batch.packet_mut(index);
            let header =
                DataHeader { kind: DATA.into(), receiver: receiver.into(), counter: sequence.into() };
            message[..DATA_HEADER].copy_from_slice(header.as_bytes());
            message[DATA_HEADER + length..][..padding].fill(0);
        }
    }

    /// Seals messages that were laid out with consecutive sequence numbers.
    ///
    /// When the engine fails, nothing of the messages may leave.
    pub fn seal(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        mut sequence: u64,
    ) -> Result<(), EngineFailure> {
        let mut packets = batch.packets_mut(packets).map(|(_, message)| {
            let (_, sealed) = message.split_at_mut(DATA_HEADER);
            let (text, tag) = sealed.split_last_chunk_mut::<TAG>().expect("lay_out left room for the tag");
            let nonce = nonce(sequence);
            sequence += 1;
            Job { nonce, aad: &[], text, tag, authentic: false }
        });
        loop {
            let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
            jobs.extend(packets.by_ref().take(JOBS));
            if jobs.is_empty() {
                return Ok(());
            }
            self.key.seal(&mut jobs)?;
        }
    }

    /// Drops messages whose counter was received before, or is not below `end`. Their lengths were checked.
    #[inline]
    pub fn check(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &ReplayWindow,
        end: u64,
        drops: &DropCounters,
    ) {
        for index in packets {
            let counter = counter(batch.packet(index));
            if counter >= end || window.check(counter).is_err() {
                batch.drop_packet(index, DropReason::Replayed, drops);
            }
        }
    }

    /// Opens messages in place, and drops those whose tag is wrong.
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        opening::open(batch, packets, drops, |batch, call| {
            let jobs = batch.packets_mut(call.packets).map(|(_, message)| {
                let nonce = nonce(counter(message));
                let sealed = &mut message[DATA_HEADER..];
                let (text, tag) = sealed.split_last_chunk_mut::<TAG>().expect("the length was checked");
                Job { nonce, aad: &[], text, tag, authentic: false }
            });
            opening::call_each(&*self.key, jobs)
        });
    }

    /// Marks authentic messages as received, and drops duplicates; returns the number of new messages and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut Moving<'_>,
        drops: &DropCounters,
    ) -> (usize, usize) {
        window.accept_all(batch, packets, drops, |batch, index| counter(batch.packet(index)))
    }

    /// Strips opened messages to their inner packets; returns whether there was one other than a keepalive.
    #[inline]
    pub fn strip(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) -> bool {
        let mut with_data = false;
        for index in packets {
            if batch.is_live(index) {
                with_data |= strip_message(batch, index, drops);
            }
        }
        with_data
    }
}

/// The counter in the header of a message whose length was checked.
#[inline]
fn counter(message: &[u8]) -> u64 {
    let (header, _) = DataHeader::ref_from_prefix(message).expect("the length was checked");
    header.counter.get()
}

/// Strips an opened message to its inner packet; returns false for a keepalive, which is discarded.
#[inline]
fn strip_message(batch: &mut Batch, index: usize, drops: &DropCounters) -> bool {
    let message = batch.packet(index);
    let inner = &message[DATA_HEADER..message.len() - (DATA_OVERHEAD - DATA_HEADER)];
    if inner.is_empty() {
        batch.discard(index);
        return false;
    }
    if let Ok(ip) = IpPacket::parse(inner) {
        let length = ip.bytes().len();
        batch.shrink(index, DATA_HEADER, length);
    } else {
        let is_ip = matches!(inner[0] >> 4, 4 | 6);
        batch.drop_packet(index, if is_ip { DropReason::BadPadding } else { DropReason::Malformed }, drops);
    }
    true
}

/// Four zero bytes and the counter.
#[inline]
fn nonce(sequence: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&sequence.to_le_bytes());
    nonce
}
