//! Inbound ESP: check → open → accept → strip. Functions stand in packet order.

use super::keys::{Ivs, Keys, SaKeys, Salt, counter_block, suffixes};
use super::parameters::{Mode, Outer};
use crate::opening::{self, Call, JOBS, Verdicts};
use crate::replay::{Moving, ReplayWindow};
use arrayvec::ArrayVec;
use crypto::engine::{PairJob, PairKey};
use crypto::{EngineFailure, Job, Key};
use packet::header::esp::{EspHeader, HEADER, NEXT_IPV4, NEXT_IPV6, NEXT_NONE, Trailer};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use zerocopy::FromBytes;

/// The content of a decrypted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// A packet, or in transport mode its part after the IP header.
    Payload {
        /// The next header field.
        next_header: u8,
        /// The payload length; without TFC padding only in transport mode.
        length: usize,
    },
    /// A dummy packet (RFC 4303 section 2.6).
    Dummy,
}

impl SaKeys {
    /// Drops packets that need not be opened: their form, or their sequence number, which must be below `end`, is wrong.
    ///
    /// `sequences` receives the whole sequence numbers by index. They must be inferred here: once the window has moved,
    /// the same low half could mean another number.
    #[inline]
    pub fn check(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &ReplayWindow,
        end: u64,
        sequences: &mut Vec<u64>,
        drops: &DropCounters,
    ) {
        sequences.resize(batch.len(), 0);
        for index in packets {
            match self.check_packet(window, end, batch.packet(index)) {
                Ok(sequence) => sequences[index] = sequence,
                Err(reason) => {
                    batch.drop_packet(index, reason, drops);
                }
            }
        }
    }

    /// The whole sequence number of a packet that may be one of this SA.
    #[inline]
    fn check_packet(&self, window: &ReplayWindow, end: u64, packet: &[u8]) -> Result<u64, DropReason> {
        self.layout.check(packet.len())?;
        let sequence = self.infer_sequence(packet, window)?;
        if sequence >= end {
            return Err(DropReason::Replayed);
        }
        window.check(sequence)?;
        Ok(sequence)
    }

    /// Infers the full sequence number of a packet from its low half and `window` (RFC 4303 appendix A2).
    #[inline]
    pub fn infer_sequence(&self, packet: &[u8], window: &ReplayWindow) -> Result<u64, DropReason> {
        let (header, _) = EspHeader::ref_from_prefix(packet).map_err(|_| DropReason::TooShort)?;
        let low = header.sequence.get();
        let sequence = if self.extended { window.infer(low) } else { Some(low.into()) };
        // RFC 4303 section 3.3.3: the first packet has sequence number 1.
        sequence.filter(|&sequence| sequence != 0).ok_or(DropReason::Replayed)
    }

    /// Decrypts packets in place, and drops packets with an invalid tag.
    ///
    /// `sequences` has the full sequence numbers by packet index. The packet lengths must have been checked with the
    /// [layout](super::Layout::check).
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, sequences: &[u64], drops: &DropCounters) {
        opening::open(batch, packets, drops, |batch, call| match &self.keys {
            Keys::Aead(key, salt) => self.open_aead(&**key, *salt, batch, call, sequences),
            Keys::Gmac(key, salt) => self.open_gmac(&**key, *salt, batch, call, sequences),
            Keys::Pair(key, ivs) => self.open_pair(&**key, ivs, batch, call, sequences),
            Keys::Null => Ok(call.live.iter().map(|_| true).collect()),
        });
    }

    #[inline]
    fn open_aead(
        &self,
        key: &dyn Key,
        salt: Salt,
        batch: &mut Batch,
        call: Call<'_>,
        sequences: &[u64],
    ) -> Result<Verdicts, EngineFailure> {
        let mut aads = ArrayVec::<[u8; 12], JOBS>::new();
        aads.extend(call.live.iter().map(|&index| self.aad(spi(batch.packet(index)), sequences[index])));
        let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
        for ((_, packet), aad) in batch.packets_mut(call.packets).zip(&aads) {
            let nonce = salt.nonce(explicit_iv(packet));
            let (covered, tag) = packet.split_at_mut(packet.len() - self.layout.tag);
            let text = &mut covered[HEADER + 8..];
            jobs.push(Job { nonce, aad: &aad[..self.aad_length()], text, tag, authentic: false });
        }
        opening::call(key, &mut jobs)
    }

    fn open_gmac(
        &self,
        key: &dyn Key,
        salt: Salt,
        batch: &mut Batch,
        call: Call<'_>,
        sequences: &[u64],
    ) -> Result<Verdicts, EngineFailure> {
        let mut copies = Vec::new();
        for &index in call.live {
            let packet = batch.packet(index);
            let covered = &packet[..packet.len() - self.layout.tag];
            self.gmac_aad(covered, spi(packet), sequences[index], &mut copies);
        }
        let mut aads = &copies[..];
        let mut jobs = ArrayVec::<Job<'_>, JOBS>::new();
        for (_, packet) in batch.packets_mut(call.packets) {
            let nonce = salt.nonce(explicit_iv(packet));
            let (covered, tag) = packet.split_at_mut(packet.len() - self.layout.tag);
            let aad = self.take_gmac_aad(&mut aads, covered);
            jobs.push(Job { nonce, aad, text: &mut [], tag, authentic: false });
        }
        opening::call(key, &mut jobs)
    }

    fn open_pair(
        &self,
        key: &dyn PairKey,
        ivs: &Ivs,
        batch: &mut Batch,
        call: Call<'_>,
        sequences: &[u64],
    ) -> Result<Verdicts, EngineFailure> {
        let suffixes = suffixes(call.live.iter().map(|&index| sequences[index]));
        let mut jobs = ArrayVec::<PairJob<'_>, JOBS>::new();
        for ((_, packet), suffix) in batch.packets_mut(call.packets).zip(&suffixes) {
            let iv = match ivs {
                Ivs::Null => [0; 16],
                Ivs::Counter(nonce) => counter_block(*nonce, explicit_iv(packet)),
                Ivs::Unpredictable(_, length) => {
                    let mut iv = [0; 16];
                    iv[..*length].copy_from_slice(&packet[HEADER..HEADER + length]);
                    iv
                }
            };
            let (packet, tag) = packet.split_at_mut(packet.len() - self.layout.tag);
            let (text, suffix) = (self.layout.header(), &suffix[..self.suffix_length()]);
            jobs.push(PairJob { iv, packet, text, suffix, tag, authentic: false });
        }
        opening::call_pair(key, jobs)
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut Moving<'_>,
        sequences: &[u64],
        drops: &DropCounters,
    ) -> (usize, usize) {
        window.accept_all(batch, packets, drops, |_, index| sequences[index])
    }

    /// Strips opened packets to their inner packets; returns whether there was one.
    #[inline]
    pub fn strip(
        &self,
        batch: &mut Batch,
        packets: &mut Range<usize>,
        outer: &Outer<'_>,
        drops: &DropCounters,
    ) -> bool {
        match self.mode {
            Mode::Tunnel => {}
            Mode::Transport => return self.rebuild(batch, packets, outer, drops),
            Mode::BumpInTheWire => return self.strip_to_next_header(batch, packets.clone(), drops),
        }
        let mut with_data = false;
        for index in packets.clone() {
            if batch.is_live(index) {
                with_data |= self.strip_packet(batch, index, drops);
            }
        }
        with_data
    }

    /// Tunnel mode: strips a packet to its inner packet; returns false if there is none.
    #[inline]
    fn strip_packet(&self, batch: &mut Batch, index: usize, drops: &DropCounters) -> bool {
        let stripped = self.decapsulate(batch, index).and_then(|inner| match inner {
            Inner::Dummy => Err(DropReason::Dummy),
            Inner::Payload { .. } => cut(batch, index),
        });
        if let Err(reason) = stripped {
            batch.drop_packet(index, reason, drops);
        }
        stripped.is_ok()
    }

    /// Reads the trailer of packet `index` and truncates the packet to its payload, in tunnel mode with any TFC
    /// padding.
    ///
    /// TFC padding (RFC 4303 section 2.7) is not removed here: only the inner packet tells where the padding starts.
    #[inline]
    pub fn decapsulate(&self, batch: &mut Batch, index: usize) -> Result<Inner, DropReason> {
        let header = self.layout.header();
        let packet = batch.packet(index);
        let text = packet.get(header..packet.len() - self.layout.tag).ok_or(DropReason::TooShort)?;
        let trailer = Trailer::parse(text).map_err(|_| DropReason::BadPadding)?;
        let Trailer { payload: length, next_header } = trailer;
        let first = text[..length].first().map(|byte| byte >> 4);
        if next_header == NEXT_NONE {
            return Ok(Inner::Dummy);
        }
        let is_right = match (self.mode, next_header) {
            (Mode::Tunnel, NEXT_IPV4) => first.is_none_or(|version| version == 4),
            (Mode::Tunnel, NEXT_IPV6) => first.is_none_or(|version| version == 6),
            (Mode::Tunnel, _) => false,
            (Mode::Transport | Mode::BumpInTheWire, _) => true,
        };
        if !is_right {
            return Err(DropReason::BadNextHeader);
        }
        batch.shrink(index, header, length);
        Ok(Inner::Payload { next_header, length })
    }
}

/// Cuts off bytes after the inner packet (RFC 4303 section 2.7).
#[inline]
fn cut(batch: &mut Batch, index: usize) -> Result<(), DropReason> {
    let length = IpPacket::parse(batch.packet(index)).map_err(|_| DropReason::Malformed)?.bytes().len();
    batch.shrink(index, 0, length);
    Ok(())
}

/// The SPI of a packet with a checked length.
#[inline]
fn spi(packet: &[u8]) -> u32 {
    packet.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// The explicit IV of a counter mode.
#[inline]
fn explicit_iv(packet: &[u8]) -> [u8; 8] {
    packet.get(HEADER..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esp::{ChildSa, Half, Options, Transform};
    use crate::{InboundSa, OutboundSa, Time};
    use crypto::cipher::{Cipher, Encryption, Integrity, Pair};
    use crypto::engine::aws_lc::AwsLc;
    use crypto::{SecretBytes, random};
    use packet::header::esp::TRAILER;

    const NOW: Time = Time::from_nanoseconds(1);
    const SPI: u32 = 0xc0de_0001;

    /// Two ends of one SA.
    fn pair(transform: Transform, extended: bool, mode: Mode) -> (OutboundSa, InboundSa) {
        let half = || Half {
            spi: SPI,
            keys: SecretBytes::new((0..transform.key_material_length()).map(|byte| byte as u8).collect()),
        };
        let (outbound, inbound) = (half(), half());
        let (extended_sequence, local, remote) = (extended, Vec::new(), Vec::new());
        let child = ChildSa { transform, extended_sequence, mode, outbound, inbound, local, remote };
        let options = Options { replay_window: 64, ..Options::default() };
        child.load(&options, &AwsLc, &mut random::System::default(), NOW).expect("keys of the right length")
    }

    fn of(protection: &crate::Protection) -> &SaKeys {
        let crate::Protection::Esp(protection) = protection else { panic!("it is ESP") };
        protection
    }

    fn packets(count: usize) -> Batch {
        let mut batch = Batch::new(256 * 1024);
        for number in 0..count {
            let packet = batch.append(20 + number * 7).expect("it fits");
            packet.fill(number as u8);
            packet[0] = 0x45;
        }
        batch
    }

    fn seal(sa: &OutboundSa, batch: &mut Batch, first_sequence: u64) {
        for index in 0..batch.len() {
            of(&sa.protection).encapsulate(
                batch,
                index,
                sa.receiver,
                first_sequence + index as u64,
                NEXT_IPV4,
            );
        }
        of(&sa.protection)
            .seal(batch, 0..batch.len(), sa.receiver, first_sequence)
            .expect("the engine works");
    }

    /// Infers sequence numbers and opens all packets; returns the drop counters.
    fn open(sa: &InboundSa, batch: &mut Batch) -> DropCounters {
        let (protection, drops) = (of(&sa.protection), DropCounters::default());
        let window = sa.window();
        let sequences: Vec<u64> = (0..batch.len())
            .map(|index| {
                protection.layout.check(batch.packet(index).len()).expect("of a right length");
                protection.infer_sequence(batch.packet(index), window).expect("there is one")
            })
            .collect();
        protection.open(batch, 0..batch.len(), &sequences, &drops);
        drops
    }

    #[test]
    fn every_transform_opens_what_it_sealed() {
        for transform in Transform::all() {
            for (extended, first) in [(false, 1), (true, 1), (true, 0xffff_fff0)] {
                let (outbound, inbound) = pair(transform, extended, Mode::Tunnel);
                inbound.moving_window().accept(first).expect("new");
                let (mut batch, expected) = (packets(100), packets(100));
                seal(&outbound, &mut batch, first + 1);
                assert_eq!(open(&inbound, &mut batch).read(DropReason::BadTag), 0, "{transform:?}");
                for index in 0..100 {
                    let inner =
                        of(&inbound.protection).decapsulate(&mut batch, index).expect("padded as it should");
                    let length = expected.packet(index).len();
                    assert_eq!(inner, Inner::Payload { next_header: NEXT_IPV4, length });
                    assert_eq!(batch.packet(index), expected.packet(index), "{transform:?} {index}");
                }
            }
        }
    }

    #[test]
    fn every_byte_of_a_packet_is_authenticated() {
        for transform in Transform::all() {
            let (outbound, inbound) = pair(transform, true, Mode::Tunnel);
            let mut batch = packets(1);
            seal(&outbound, &mut batch, 1);
            let sealed = batch.packet(0).to_vec();
            // A changed SPI would find no SA, and a changed sequence number infers another full number.
            for damaged in 8..sealed.len() {
                let mut batch = Batch::new(4096);
                batch.append(sealed.len()).expect("it fits").copy_from_slice(&sealed);
                batch.packet_mut(0)[damaged] ^= 0x10;
                assert_eq!(open(&inbound, &mut batch).read(DropReason::BadTag), 1, "{transform:?} {damaged}");
                assert!(!batch.is_live(0));
            }
        }
    }

    #[test]
    fn the_high_half_that_is_not_sent_is_authenticated() {
        for transform in Transform::all() {
            let (outbound, inbound) = pair(transform, true, Mode::Tunnel);
            let mut batch = packets(3);
            seal(&outbound, &mut batch, 0x1_0000_0001);
            assert_eq!(open(&inbound, &mut batch).read(DropReason::BadTag), 3, "{transform:?}");
        }
    }

    #[test]
    fn ivs_of_cbc_are_never_the_same_and_never_a_counter() {
        let cbc =
            Transform::Pair(Pair { encryption: Encryption::AesCbc(16), integrity: Integrity::HmacSha256 });
        let (outbound, _) = pair(cbc, false, Mode::Tunnel);
        let mut seen = std::collections::HashSet::new();
        for round in 0..4 {
            let mut batch = packets(100);
            seal(&outbound, &mut batch, 1 + round * 100);
            for index in 0..100 {
                let iv: [u8; 16] = batch.packet(index)[8..24].try_into().expect("an IV");
                assert!(seen.insert(iv), "an IV twice");
                assert!(iv[..8] != [0; 8], "a counter");
            }
        }
    }

    #[test]
    fn dropped_packets_are_passed_over() {
        let gcm = Transform::Aead(Cipher::Aes128Gcm, 16);
        let (outbound, inbound) = pair(gcm, true, Mode::Tunnel);
        let mut batch = packets(150);
        seal(&outbound, &mut batch, 1);
        let sequences: Vec<u64> = (1..=150).collect();
        let drops = DropCounters::default();
        for index in [0, 3, 70, 149] {
            batch.discard(index);
        }
        of(&inbound.protection).open(&mut batch, 0..150, &sequences, &drops);
        assert_eq!((batch.live(0..150).count(), drops.read(DropReason::BadTag)), (146, 0));
    }

    #[test]
    fn the_trailer_is_believed_only_where_it_can_be() {
        let null = Transform::Pair(Pair { encryption: Encryption::Null, integrity: Integrity::HmacSha1 });
        let strip = |mode, text: &[u8]| {
            let (outbound, _) = pair(null, false, mode);
            let mut batch = Batch::new(4096);
            batch.append(8 + text.len() + 12).expect("it fits")[8..8 + text.len()].copy_from_slice(text);
            of(&outbound.protection).decapsulate(&mut batch, 0)
        };
        let payload = |next_header, length| Ok(Inner::Payload { next_header, length });
        assert_eq!(strip(Mode::Tunnel, &[0x45, 9, 0, 4]), payload(4, 2));
        assert_eq!(strip(Mode::Tunnel, &[0x65, 1, 1, 41]), payload(41, 1));
        assert_eq!(strip(Mode::Tunnel, &[0x45, 9, 0, 41]), Err(DropReason::BadNextHeader));
        assert_eq!(strip(Mode::Tunnel, &[0x45, 9, 0, 17]), Err(DropReason::BadNextHeader));
        assert_eq!(strip(Mode::Transport, &[9, 9, 0, 17]), payload(17, 2));
        assert_eq!(strip(Mode::Tunnel, &[7, 7, 0, NEXT_NONE]), Ok(Inner::Dummy));
        assert_eq!(strip(Mode::Tunnel, &[9, 2, 2, 4]), Err(DropReason::BadPadding));
        assert_eq!(strip(Mode::Tunnel, &[0x45, 9, 3, 4]), Err(DropReason::BadPadding));
        assert_eq!(TRAILER, 2);
    }

    #[test]
    fn sequence_numbers_end_before_they_wrap() {
        let gcm = Transform::Aead(Cipher::Aes128Gcm, 16);
        let (short, inbound) = pair(gcm, false, Mode::Tunnel);
        assert_eq!(short.assign(3, NOW), Ok(1..4), "the first is 1");
        assert_eq!(short.assign(0xffff_fffb, NOW), Ok(4..0xffff_ffff));
        assert_eq!(short.assign(1, NOW), Ok(0xffff_ffff..0x1_0000_0000));
        assert_eq!(short.assign(1, NOW), Err(DropReason::CounterExhausted));
        assert!(short.wants_renewal(NOW));
        let (extended, _) = pair(gcm, true, Mode::Tunnel);
        extended.assign(1 << 40, NOW).expect("there are more");
        let mut zero = Batch::new(4096);
        zero.append(100).expect("it fits").fill(0);
        let window = inbound.window();
        assert_eq!(of(&inbound.protection).infer_sequence(zero.packet(0), window), Err(DropReason::Replayed));
    }
}
