//! Outbound ESP: lay out → seal. Functions stand in packet order.

use super::keys::{IvSource, Ivs, Keys, SaKeys, Salt, counter_block, suffixes};
use super::parameters::Mode;
use super::transport::{take_header, take_headers};
use crate::opening::JOBS;
use arrayvec::ArrayVec;
use crypto::engine::{PairJob, PairKey};
use crypto::{EngineFailure, Job, Key};
use packet::Batch;
use packet::header::esp::{EspHeader, HEADER, NEXT_IPV4, NEXT_IPV6, write_trailer};
use std::ops::Range;
use zerocopy::IntoBytes;

impl SaKeys {
    /// The first sequence number (RFC 4303 section 3.3.3).
    pub(crate) const FIRST_SEQUENCE: u64 = 1;

    /// Bytes of these inner packets once they are sealed.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>) -> usize {
        packets.map(|index| self.layout.sealed(batch.packet(index).len())).sum()
    }

    /// Adds header, padding and trailer to inner packets, and reserves space for the tags.
    #[inline]
    pub fn lay_out(&self, batch: &mut Batch, packets: Range<usize>, spi: u32, first_sequence: u64) {
        let packets = packets.zip(first_sequence..);
        match self.mode {
            Mode::Tunnel => {
                for (index, sequence) in packets {
                    let is_v6 = batch.packet(index).first().is_some_and(|byte| byte >> 4 == 6);
                    let next_header = if is_v6 { NEXT_IPV6 } else { NEXT_IPV4 };
                    self.encapsulate(batch, index, spi, sequence, next_header);
                }
            }
            Mode::Transport => {
                for (index, sequence) in packets {
                    let next_header = take_header(batch, index);
                    self.encapsulate(batch, index, spi, sequence, next_header);
                }
            }
            Mode::BumpInTheWire => {
                for (index, sequence) in packets {
                    let next_header = take_headers(batch, index);
                    self.encapsulate(batch, index, spi, sequence, next_header);
                }
            }
        }
    }

    /// Adds header, padding and trailer to packet `index`, and reserves space for the tag.
    ///
    /// `next_header` is the type of the packet.
    #[inline]
    pub fn encapsulate(&self, batch: &mut Batch, index: usize, spi: u32, sequence: u64, next_header: u8) {
        let (layout, length) = (self.layout, batch.packet(index).len());
        let (header, trailer) = (layout.header(), layout.trailer(length));
        batch.grow(index, header, trailer + layout.tag);
        let packet = batch.packet_mut(index);
        let fields = EspHeader { spi: spi.into(), sequence: (sequence as u32).into() };
        packet[..HEADER].copy_from_slice(fields.as_bytes());
        if layout.iv == 8 {
            // RFC 4106 section 3.1, RFC 3686 section 3.1: the IV may be any value that is never reused, such as a
            // counter. 3DES gets a random one when the packet is sealed.
            packet[HEADER..HEADER + 8].copy_from_slice(&sequence.to_be_bytes());
        }
        write_trailer(&mut packet[header + length..][..trailer], next_header);
    }

    /// Seals packets that were laid out with consecutive sequence numbers; none may have been dropped since.
    ///
    /// After an engine error, none of the packets may be sent.
    pub fn seal(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        spi: u32,
        first_sequence: u64,
    ) -> Result<(), EngineFailure> {
        let mut sequence = first_sequence;
        let mut rest = packets;
        while !rest.is_empty() {
            let end = rest.end.min(rest.start + JOBS);
            let sa_batch = SaBatch { packets: rest.start..end, spi, first_sequence: sequence };
            match &self.keys {
                Keys::Aead(key, salt) => self.seal_aead(&**key, *salt, batch, sa_batch)?,
                Keys::Gmac(key, salt) => self.seal_gmac(&**key, *salt, batch, sa_batch)?,
                Keys::Pair(key, ivs) => self.seal_pair(&**key, ivs, batch, sa_batch)?,
                Keys::Null => {}
            }
            sequence += (end - rest.start) as u64;
            rest.start = end;
        }
        Ok(())
    }

    #[inline]
    fn seal_aead(
        &self,
        key: &dyn Key,
        salt: Salt,
        batch: &mut Batch,
        sa_batch: SaBatch,
    ) -> Result<(), EngineFailure> {
        let mut aads = ArrayVec::<[u8; 12], JOBS>::new();
        aads.extend(sa_batch.sequences().map(|sequence| self.aad(sa_batch.spi, sequence)));
        let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
        let packets = batch.packets_mut(sa_batch.packets.clone());
        for (((_, packet), aad), sequence) in packets.zip(&aads).zip(sa_batch.sequences()) {
            let (covered, tag) = packet.split_at_mut(packet.len() - self.layout.tag);
            let text = &mut covered[HEADER + 8..];
            let nonce = salt.nonce(sequence.to_be_bytes());
            jobs.push(Job { nonce, aad: &aad[..self.aad_length()], text, tag, authentic: false });
        }
        key.seal(&mut jobs)
    }

    fn seal_gmac(
        &self,
        key: &dyn Key,
        salt: Salt,
        batch: &mut Batch,
        sa_batch: SaBatch,
    ) -> Result<(), EngineFailure> {
        let mut copies = Vec::new();
        for (index, sequence) in sa_batch.packets.clone().zip(sa_batch.sequences()) {
            let packet = batch.packet(index);
            self.gmac_aad(&packet[..packet.len() - self.layout.tag], sa_batch.spi, sequence, &mut copies);
        }
        let mut aads = &copies[..];
        let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
        for ((_, packet), sequence) in batch.packets_mut(sa_batch.packets.clone()).zip(sa_batch.sequences()) {
            let (covered, tag) = packet.split_at_mut(packet.len() - self.layout.tag);
            let aad = self.take_gmac_aad(&mut aads, covered);
            let nonce = salt.nonce(sequence.to_be_bytes());
            jobs.push(Job { nonce, aad, text: &mut [], tag, authentic: false });
        }
        key.seal(&mut jobs)
    }

    fn seal_pair(
        &self,
        key: &dyn PairKey,
        ivs: &Ivs,
        batch: &mut Batch,
        sa_batch: SaBatch,
    ) -> Result<(), EngineFailure> {
        let blocks = match ivs {
            Ivs::Null => ArrayVec::from([[0; 16]; JOBS]),
            Ivs::Counter(nonce) => {
                sa_batch.sequences().map(|sequence| counter_block(*nonce, sequence.to_be_bytes())).collect()
            }
            Ivs::Unpredictable(source, length) => write_ivs(source, *length, batch, &sa_batch)?,
        };
        let suffixes = suffixes(sa_batch.sequences());
        let mut jobs = ArrayVec::<PairJob<'_>, JOBS>::new();
        for (((_, packet), &iv), suffix) in
            batch.packets_mut(sa_batch.packets.clone()).zip(&blocks).zip(&suffixes)
        {
            let (packet, tag) = packet.split_at_mut(packet.len() - self.layout.tag);
            let (text, suffix) = (self.layout.header(), &suffix[..self.suffix_length()]);
            jobs.push(PairJob { iv, packet, text, suffix, tag, authentic: false });
        }
        key.seal(&mut jobs)
    }

    /// Appends the data that AES-GMAC covers to `copies`, unless it is contiguous in the packet (RFC 4543 section
    /// 3.3). With ESN it is not: the high half of the sequence number is not sent.
    pub(super) fn gmac_aad(&self, covered: &[u8], spi: u32, sequence: u64, copies: &mut Vec<u8>) {
        if self.extended {
            copies.extend_from_slice(&self.aad(spi, sequence));
            copies.extend_from_slice(&covered[HEADER..]);
        }
    }

    /// Returns the next range written by [`gmac_aad`](Self::gmac_aad), or the packet itself.
    pub(super) fn take_gmac_aad<'a>(&self, copies: &mut &'a [u8], covered: &'a [u8]) -> &'a [u8] {
        if !self.extended {
            return covered;
        }
        let (aad, rest) = copies.split_at(covered.len() + 4);
        *copies = rest;
        aad
    }
}

/// Packets of one engine call.
struct SaBatch {
    packets: Range<usize>,
    spi: u32,
    first_sequence: u64,
}

impl SaBatch {
    #[inline]
    fn sequences(&self) -> impl Iterator<Item = u64> + use<> {
        (self.first_sequence..).take(self.packets.len())
    }
}

/// Writes an IV into each packet, and returns the IVs.
fn write_ivs(
    source: &IvSource,
    length: usize,
    batch: &mut Batch,
    sa_batch: &SaBatch,
) -> Result<ArrayVec<[u8; 16], JOBS>, EngineFailure> {
    let mut ivs: ArrayVec<[u8; 16], JOBS> = std::iter::repeat_n([0; 16], sa_batch.packets.len()).collect();
    source.fill(sa_batch.first_sequence, &mut ivs)?;
    for ((_, packet), iv) in batch.packets_mut(sa_batch.packets.clone()).zip(&ivs) {
        packet[HEADER..HEADER + length].copy_from_slice(&iv[..length]);
    }
    Ok(ivs)
}
