//! Data packets under a cipher in CBC mode and an HMAC, for peers without AEAD ciphers, or under an HMAC alone.
//!
//! ```text
//! CBC           header 1 or 4 | HMAC | IV 16 | encrypted (number 4 | inner packet | padding)
//! cipher none   header 1 or 4 | HMAC | number 4 | inner packet
//! ```
//! The HMAC covers what follows it, not the header. The number is known only after decryption. The padding is that of
//! PKCS #7 (RFC 5652, section 6.3).

use super::framing::Framing;
use super::layout::{ExitNote, Header, NUMBER, strip_packet};
use crate::esp::IvSource;
use crate::opening::{self, JOBS};
use crate::openvpn::keys::Direction;
use crate::openvpn::limits::END_PACKET;
use crate::replay::Moving;
use arrayvec::ArrayVec;
use crypto::cipher::{Encryption, Pair};
use crypto::engine::aws_lc::AwsLc;
use crypto::engine::{Engine, LoadError, PairJob, PairKey};
use crypto::{EngineFailure, Random};
use packet::batch::HEADROOM;
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the length before a packet over TCP.
const LENGTH: usize = 2;

/// Bytes of a block, and of the IV.
const BLOCK: usize = 16;

/// How the data packets of one direction of one key are laid out, sealed and opened.
pub struct CbcData {
    key: Arc<dyn PairKey>,
    /// None without a cipher.
    ivs: Option<IvSource>,
    tag: usize,
    header: Header,
    pub(super) exit: ExitNote,
}

impl CbcData {
    /// With the keys of one direction. The HMAC is not truncated, unlike in ESP: only AWS-LC is known to serve that.
    pub fn load(
        pair: Pair,
        keys: Direction<'_>,
        header: Header,
        random: &mut dyn Random,
    ) -> Result<Self, LoadError> {
        let tag = pair.integrity.key_length();
        let key = AwsLc.load_pair(pair, &keys.cipher[..pair.encryption.key_length()], &keys.hmac[..tag])?;
        let is_encrypted = pair.encryption != Encryption::Null;
        let ivs = is_encrypted.then(|| IvSource::new(&AwsLc, random)).transpose()?;
        Ok(Self { key, ivs, tag, header, exit: ExitNote::default() })
    }

    /// Bytes before the inner packet.
    #[inline]
    pub fn overhead(&self) -> usize {
        self.text() + NUMBER
    }

    /// Offset of the encrypted text.
    #[inline]
    fn text(&self) -> usize {
        self.header.length() + self.tag + self.iv()
    }

    /// Bytes of the IV.
    #[inline]
    fn iv(&self) -> usize {
        if self.ivs.is_some() { BLOCK } else { 0 }
    }

    /// Bytes of padding after an inner packet.
    #[inline]
    fn padding(&self, length: usize) -> usize {
        if self.ivs.is_some() { BLOCK - (NUMBER + length) % BLOCK } else { 0 }
    }

    /// The longest inner packet whose sealed packet has at most `length` bytes.
    #[inline]
    pub fn largest(&self, length: usize) -> usize {
        let text = length.saturating_sub(self.text());
        match self.ivs {
            Some(_) => (text - text % BLOCK).saturating_sub(NUMBER + 1),
            None => text.saturating_sub(NUMBER),
        }
    }

    /// Bytes of these inner packets once they are sealed.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>) -> usize {
        let sealed = |length| self.overhead() + length + self.padding(length);
        packets.map(|index| sealed(batch.packet(index).len())).sum()
    }

    /// Puts header, number and padding around packets, with room for tag and IV.
    pub fn lay_out(&self, batch: &mut Batch, packets: Range<usize>, first_sequence: u64) {
        let (header, overhead) = (self.header.length(), self.overhead());
        let word = self.header.word().to_be_bytes();
        // The longest tags do not fit before the packet, with its length over TCP: it moves into the room after it.
        let moved = (overhead + LENGTH).saturating_sub(HEADROOM);
        for (index, sequence) in packets.zip(first_sequence..) {
            let length = batch.packet(index).len();
            let padding = self.padding(length);
            batch.grow(index, overhead - moved, moved + padding);
            let packet = batch.packet_mut(index);
            if moved > 0 {
                packet.copy_within(overhead - moved..overhead - moved + length, overhead);
            }
            packet[..header].copy_from_slice(&word[..header]);
            packet[overhead - NUMBER..overhead].copy_from_slice(&(sequence as u32).to_be_bytes());
            packet[overhead + length..].fill(padding as u8);
        }
    }

    /// Seals packets that were laid out. When the engine fails, nothing of the packets may leave.
    pub fn seal(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        mut sequence: u64,
    ) -> Result<(), EngineFailure> {
        let mut packets = batch.packets_mut(packets);
        loop {
            let mut chunk: ArrayVec<&mut [u8], JOBS> =
                packets.by_ref().take(JOBS).map(|(_, packet)| packet).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            if let Some(source) = &self.ivs {
                let mut ivs: ArrayVec<[u8; BLOCK], JOBS> =
                    std::iter::repeat_n([0; BLOCK], chunk.len()).collect();
                source.fill(sequence, &mut ivs)?;
                sequence += chunk.len() as u64;
                for (packet, iv) in chunk.iter_mut().zip(&ivs) {
                    packet[self.text() - BLOCK..self.text()].copy_from_slice(iv);
                }
            }
            let mut jobs: ArrayVec<PairJob<'_>, JOBS> =
                chunk.into_iter().map(|packet| self.job(packet)).collect();
            self.key.seal(&mut jobs)?;
        }
    }

    /// The parts of a packet whose length was checked, and whose IV is in place.
    #[inline]
    fn job<'a>(&self, packet: &'a mut [u8]) -> PairJob<'a> {
        let (_, rest) = packet.split_at_mut(self.header.length());
        let (tag, packet) = rest.split_at_mut(self.tag);
        let mut iv = [0; BLOCK];
        if self.ivs.is_some() {
            iv = *packet.first_chunk().expect("the length was checked");
        }
        PairJob { iv, packet, text: self.iv(), suffix: &[], tag, authentic: false }
    }

    /// Drops packets of an impossible length.
    #[inline]
    pub fn check(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        for index in packets {
            let text = batch.packet(index).len().saturating_sub(self.text());
            if text <= NUMBER || self.ivs.is_some() && !text.is_multiple_of(BLOCK) {
                batch.drop_packet(index, DropReason::TooShort, drops);
            }
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        opening::open(batch, packets, drops, |batch, call| {
            let jobs = batch.packets_mut(call.packets).map(|(_, packet)| self.job(packet));
            opening::call_pair(&*self.key, jobs.collect())
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
        // Numbers that no sender uses: they can be checked only now, after decryption.
        for index in packets.clone() {
            if batch.is_live(index) && !(1..END_PACKET).contains(&self.number(batch.packet(index))) {
                batch.drop_packet(index, DropReason::Replayed, drops);
            }
        }
        window.accept_all(batch, packets, drops, |batch, index| self.number(batch.packet(index)))
    }

    #[inline]
    fn number(&self, packet: &[u8]) -> u64 {
        let number = packet[self.text()..].first_chunk().expect("the length was checked");
        u32::from_be_bytes(*number).into()
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
            if !batch.is_live(index) {
                continue;
            }
            let packet = batch.packet(index);
            let padding = if self.ivs.is_some() { packet.last().map_or(0, |&last| last.into()) } else { 0 };
            let is_possible = self.ivs.is_none() || (1..=BLOCK).contains(&padding);
            if !is_possible || packet.len() < self.overhead() + padding {
                batch.drop_packet(index, DropReason::BadPadding, drops);
                continue;
            }
            with_data |= strip_packet(batch, index, (self.overhead(), padding), framing, &self.exit, drops);
        }
        with_data
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::PING;
    use super::*;
    use crate::replay::ReplayWindow;
    use crypto::cipher::Integrity;
    use crypto::random::System;

    const V2: Header = Header::V2 { key_id: 2, peer_id: 0x01_0203 };

    fn data(encryption: Encryption, integrity: Integrity) -> CbcData {
        let keys = Direction { cipher: &[7; 64], hmac: &[9; 64] };
        CbcData::load(Pair { encryption, integrity }, keys, V2, &mut System::default()).expect("keys")
    }

    fn inner(length: u8) -> Vec<u8> {
        let mut packet = vec![length; length.into()];
        (packet[0], packet[2], packet[3]) = (0x45, 0, length);
        packet
    }

    fn sealed(data: &CbcData, inner: &[u8]) -> Batch {
        let mut batch = Batch::new(4096);
        batch.append(inner.len()).expect("it fits").copy_from_slice(inner);
        let expected = data.sealed(&batch, 0..1);
        data.lay_out(&mut batch, 0..1, 1);
        data.seal(&mut batch, 0..1, 1).expect("works");
        assert_eq!(batch.packet(0).len(), expected);
        batch
    }

    #[test]
    fn numbers_that_no_sender_uses_are_dropped() {
        let data = data(Encryption::AesCbc(32), Integrity::HmacSha256);
        for (number, is_accepted) in [(0, 0), (1, 1), (END_PACKET - 1, 1), (END_PACKET, 0)] {
            let mut batch = Batch::new(4096);
            batch.append(20).expect("it fits").copy_from_slice(&inner(20));
            data.lay_out(&mut batch, 0..1, number);
            data.seal(&mut batch, 0..1, number).expect("works");
            let (mut window, drops) = (ReplayWindow::new(64), DropCounters::default());
            data.open(&mut batch, 0..1, &drops);
            assert_eq!(
                data.accept(&mut batch, 0..1, &mut window.moving(), &drops).0,
                is_accepted,
                "{number}"
            );
            assert_eq!(drops.read(DropReason::Replayed), 1 - is_accepted as u64);
        }
    }

    #[test]
    fn packets_of_every_length_are_opened_with_every_hash() {
        let hashes =
            [Integrity::HmacSha1, Integrity::HmacSha256, Integrity::HmacSha384, Integrity::HmacSha512];
        let keys = [16, 24, 32, 32].map(Encryption::AesCbc);
        let encrypted = hashes.into_iter().zip(keys);
        for (integrity, encryption) in encrypted.chain(hashes.map(|it| (it, Encryption::Null))) {
            let (data, drops) = (data(encryption, integrity), DropCounters::default());
            for length in 20..60 {
                let mut batch = sealed(&data, &inner(length));
                // There is room before it for the length that TCP needs, also for the first packet of the slab.
                batch.grow(0, LENGTH, 0);
                let whole = batch.packet(0).len();
                batch.shrink(0, LENGTH, whole - LENGTH);
                let mut window = ReplayWindow::new(64);
                assert!(data.largest(batch.packet(0).len()) >= length.into());
                data.check(&mut batch, 0..1, &drops);
                data.open(&mut batch, 0..1, &drops);
                assert_eq!(data.accept(&mut batch, 0..1, &mut window.moving(), &drops).0, 1);
                assert!(window.check(1).is_err(), "number 1 was received");
                assert!(data.strip(&mut batch, 0..1, None, &drops));
                assert_eq!(batch.packet(0), inner(length));
            }
        }
    }

    #[test]
    fn without_a_cipher_number_and_packet_follow_the_hmac() {
        let data = data(Encryption::Null, Integrity::HmacSha1);
        let batch = sealed(&data, &inner(20));
        let packet = batch.packet(0);
        assert_eq!(packet.len(), 4 + 20 + 4 + 20);
        assert_eq!((&packet[24..28], &packet[28..]), (&[0, 0, 0, 1][..], &inner(20)[..]));
    }

    #[test]
    fn only_the_header_may_change_and_no_length() {
        for encryption in [Encryption::AesCbc(32), Encryption::Null] {
            only_the_header_may_change(encryption);
        }
    }

    fn only_the_header_may_change(encryption: Encryption) {
        let (data, drops) = (data(encryption, Integrity::HmacSha256), DropCounters::default());
        let length = sealed(&data, &inner(20)).packet(0).len();
        for index in 0..length {
            let mut batch = sealed(&data, &inner(20));
            batch.packet_mut(0)[index] ^= 1;
            data.open(&mut batch, 0..1, &drops);
            assert_eq!(batch.is_live(0), index < 4, "{index}");
        }
        for length in 0..length {
            let mut batch = sealed(&data, &inner(20));
            batch.shrink(0, 0, length);
            data.check(&mut batch, 0..1, &drops);
            data.open(&mut batch, 0..1, &drops);
            assert!(!batch.is_live(0), "{length}");
        }
    }

    #[test]
    fn a_ping_is_not_forwarded() {
        let (data, drops) = (data(Encryption::AesCbc(32), Integrity::HmacSha1), DropCounters::default());
        let mut batch = sealed(&data, &PING);
        data.open(&mut batch, 0..1, &drops);
        assert!(!data.strip(&mut batch, 0..1, None, &drops) && !batch.is_live(0));
    }
}
