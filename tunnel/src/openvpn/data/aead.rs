//! Data packets under an AEAD cipher: header, packet number, tag, encrypted inner packet.
//!
//! ```text
//! version 2   lead 1 | peer ID 3 | number 4 | tag 16 | text      authenticated: the first 8 bytes
//! version 1   lead 1 |             number 4 | tag 16 | text      authenticated: the number
//! nonce       number 4 | constant of the key 8
//!
//! outbound    lay out: header, room for the tag → seal, one call of the engine for up to 64 packets
//! inbound     check the number → open, one call for up to 64 packets → accept: the window moves → strip
//! ```

use super::framing::Framing;
use super::layout::{ExitNote, Header, NUMBER, strip_packet};
use crate::opening::{self, JOBS};
use crate::replay::{Moving, ReplayWindow};
use arrayvec::ArrayVec;
use crypto::{EngineFailure, Job, Key};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bytes of the tag.
const TAG: usize = 16;
/// Bytes of the constant part of nonces.
const CONSTANT: usize = 8;

/// How the data packets of one direction of one key are laid out, sealed and opened.
pub struct AeadData {
    key: Arc<dyn Key>,
    constant: Zeroizing<[u8; CONSTANT]>,
    header: Header,
    pub(super) exit: ExitNote,
}

impl AeadData {
    /// With the key of one direction, and the secret constant of its nonces.
    pub fn new(key: Arc<dyn Key>, constant: [u8; CONSTANT], header: Header) -> Self {
        Self { key, constant: Zeroizing::new(constant), header, exit: ExitNote::default() }
    }

    /// Bytes before the encrypted packet.
    #[inline]
    pub fn overhead(&self) -> usize {
        self.header.length() + NUMBER + TAG
    }

    /// Bytes of these inner packets once they are sealed.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>) -> usize {
        packets.map(|index| self.overhead() + batch.packet(index).len()).sum()
    }

    /// Puts headers before packets, with room for the tags.
    #[inline]
    pub fn lay_out(&self, batch: &mut Batch, packets: Range<usize>, first_sequence: u64) {
        let length = self.header.length();
        let word = self.header.word().to_be_bytes();
        for (index, sequence) in packets.zip(first_sequence..) {
            batch.grow(index, self.overhead(), 0);
            let packet = batch.packet_mut(index);
            packet[..length].copy_from_slice(&word[..length]);
            packet[length..][..NUMBER].copy_from_slice(&(sequence as u32).to_be_bytes());
        }
    }

    /// Seals packets that were laid out. When the engine fails, nothing of the packets may leave.
    pub fn seal(&self, batch: &mut Batch, packets: Range<usize>) -> Result<(), EngineFailure> {
        let mut packets = batch.packets_mut(packets).map(|(_, packet)| self.job(packet));
        loop {
            let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
            jobs.extend(packets.by_ref().take(JOBS));
            if jobs.is_empty() {
                return Ok(());
            }
            self.key.seal(&mut jobs)?;
        }
    }

    /// The parts of a packet whose length was checked.
    #[inline]
    fn job<'a>(&self, packet: &'a mut [u8]) -> Job<'a> {
        let length = self.header.length();
        let (header, rest) = packet.split_at_mut(length + NUMBER);
        let (tag, text) = rest.split_at_mut(TAG);
        let header: &'a [u8] = header;
        let number = &header[length..];
        let mut nonce = [0; NUMBER + CONSTANT];
        nonce[..NUMBER].copy_from_slice(number);
        nonce[NUMBER..].copy_from_slice(&*self.constant);
        let aad = if matches!(self.header, Header::V2 { .. }) { header } else { number };
        Job { nonce, aad, text, tag, authentic: false }
    }

    #[inline]
    fn number(&self, packet: &[u8]) -> u64 {
        let number = packet[self.header.length()..].first_chunk().expect("the length was checked");
        u32::from_be_bytes(*number).into()
    }

    /// Drops packets that are too short, or whose number was received before, or is not below `end`.
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
            let packet = batch.packet(index);
            let reason = if packet.len() <= self.overhead() {
                Some(DropReason::TooShort)
            } else {
                let number = self.number(packet);
                let is_new = number != 0 && number < end && window.check(number).is_ok();
                (!is_new).then_some(DropReason::Replayed)
            };
            if let Some(reason) = reason {
                batch.drop_packet(index, reason, drops);
            }
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        opening::open(batch, packets, drops, |batch, call| {
            let jobs = batch.packets_mut(call.packets).map(|(_, packet)| self.job(packet));
            opening::call_each(&*self.key, jobs)
        });
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut Moving<'_>,
        drops: &DropCounters,
    ) -> (usize, usize) {
        window.accept_all(batch, packets, drops, |batch, index| self.number(batch.packet(index)))
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
                with_data |= strip_packet(batch, index, (self.overhead(), 0), framing, &self.exit, drops);
            }
        }
        with_data
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{Inner, PING, exit_message};
    use super::*;
    use crate::replay;
    use crypto::Cipher;
    use crypto::engine::Engine;
    use crypto::engine::aws_lc::AwsLc;

    const V2: Header = Header::V2 { key_id: 2, peer_id: 0x01_0203 };

    const V1: Header = Header::V1 { key_id: 5, peer_id: 0 };

    fn data(header: Header) -> AeadData {
        AeadData::new(AwsLc.load(Cipher::Aes256Gcm, &[7; 32]).expect("a key"), [9; CONSTANT], header)
    }

    /// An IPv4 packet of 20 bytes.
    fn inner() -> [u8; 20] {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[3] = 20;
        packet
    }

    fn sealed(data: &AeadData, inner: &[u8], sequences: u64) -> Batch {
        let mut batch = Batch::new(32_768);
        for _ in 0..sequences {
            batch.append(inner.len()).expect("it fits").copy_from_slice(inner);
        }
        let count = batch.len();
        data.lay_out(&mut batch, 0..count, 1);
        data.seal(&mut batch, 0..count).expect("works");
        batch
    }

    #[test]
    fn both_versions_have_the_layout_of_the_wire_protocol() {
        for (header, start) in [(V2, &[0x4a, 1, 2, 3, 0, 0, 0, 1][..]), (V1, &[0x35, 0, 0, 0, 1])] {
            let batch = sealed(&data(header), &inner(), 1);
            let packet = batch.packet(0);
            assert_eq!(&packet[..start.len()], start);
            assert_eq!(packet.len(), start.len() + 16 + 20);
        }
    }

    #[test]
    fn packets_are_opened_once_and_stripped() {
        for header in [V2, V1] {
            let (data, drops) = (data(header), DropCounters::default());
            let mut window = ReplayWindow::new(replay::WIREGUARD);
            let mut batch = sealed(&data, &inner(), 100);
            let copy = batch.packet(0).to_vec();
            data.check(&mut batch, 0..100, &window, u64::MAX, &drops);
            data.open(&mut batch, 0..100, &drops);
            assert_eq!(data.accept(&mut batch, 0..100, &mut window.moving(), &drops).0, 100);
            assert!(data.strip(&mut batch, 0..100, None, &drops));
            assert!((0..100).all(|index| batch.packet(index) == inner()));
            batch.clear();
            batch.append(copy.len()).expect("it fits").copy_from_slice(&copy);
            data.check(&mut batch, 0..1, &window, u64::MAX, &drops);
            assert_eq!((batch.is_live(0), drops.read(DropReason::Replayed)), (false, 1));
        }
    }

    #[test]
    fn changed_bytes_and_short_packets_are_dropped() {
        let (data, drops) = (data(V2), DropCounters::default());
        let length = sealed(&data, &inner(), 1).packet(0).len();
        for index in 0..length {
            let mut batch = sealed(&data, &inner(), 1);
            batch.packet_mut(0)[index] ^= 1;
            data.open(&mut batch, 0..1, &drops);
            assert!(!batch.is_live(0), "{index}");
        }
        let window = ReplayWindow::new(64);
        for length in 0..=data.overhead() {
            let mut batch = Batch::new(4096);
            batch.append(length).expect("it fits").fill(0);
            data.check(&mut batch, 0..1, &window, u64::MAX, &drops);
            assert!(!batch.is_live(0), "{length}");
        }
    }

    #[test]
    fn pings_and_messages_are_not_forwarded() {
        let (data, drops) = (data(V2), DropCounters::default());
        for message in [&PING[..], &exit_message()] {
            let mut batch = sealed(&data, message, 1);
            data.open(&mut batch, 0..1, &drops);
            assert!(!data.strip(&mut batch, 0..1, None, &drops));
            assert!(!batch.is_live(0));
            assert_eq!(data.exit.take(), message == exit_message());
            assert!(!data.exit.take(), "it is read once");
        }
        assert_eq!(Inner::of(&exit_message()), Inner::Exit);
        assert_eq!(Inner::of(&PING[..15]), Inner::Packet);
    }
}
