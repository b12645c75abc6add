//! Data packets: one file for each kind of cipher, with the same verbs.
//!
//! ```text
//! outbound    lay out: header, room for the tag → seal, one call of the engine for up to 64 packets
//! inbound     check form and number → open, one call for up to 64 packets → accept: the window moves → strip
//! ```

mod aead;
mod cbc;

pub use aead::AeadData;
pub use cbc::CbcData;

use super::packet::{Lead, Opcode};
use crate::replay::ReplayWindow;
use crypto::EngineFailure;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;

/// Packets in one call of the engine.
const JOBS: usize = 64;
/// Bytes of a packet number.
const NUMBER: usize = 4;

/// The inner packet of a ping, which is never forwarded.
pub const PING: [u8; 16] = 0x2a18_7bf3_641e_b4cb_07ed_2d0a_981f_c748_u128.to_be_bytes();
/// The start of inner packets with a message about options or exit.
const OCC: [u8; 16] = 0x287f_346b_d4ef_7a81_2d56_b8d3_afc5_459c_u128.to_be_bytes();
/// The message after [`OCC`] with which a peer exits.
const OCC_EXIT: u8 = 6;

/// The inner packet with which a peer without `cc-exit` says that it exits.
pub fn exit_message() -> [u8; 17] {
    let mut message = [OCC_EXIT; 17];
    message[..16].copy_from_slice(&OCC);
    message
}

/// What an inner packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inner {
    /// An IP packet, or something malformed.
    Packet,
    /// A ping.
    Ping,
    /// The peer exits.
    Exit,
    /// Another message that is not forwarded.
    Occ,
}

impl Inner {
    /// Tells messages from packets.
    #[inline]
    pub fn of(inner: &[u8]) -> Self {
        match inner.first_chunk::<16>() {
            Some(start) if *start == PING => Self::Ping,
            Some(start) if *start == OCC && inner.get(16) == Some(&OCC_EXIT) => Self::Exit,
            Some(start) if *start == OCC => Self::Occ,
            _ => Self::Packet,
        }
    }
}

/// The header of data packets: the receiver's lookup key, as the first four bytes of version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Without a peer ID. The receiver finds the peer by its address.
    V1 {
        /// Which key, 0 to 7.
        key_id: u8,
        /// The peer ID that the session would have; it is not sent.
        peer_id: u32,
    },
    /// With a peer ID of three bytes.
    V2 {
        /// Which key, 0 to 7.
        key_id: u8,
        /// Chosen by the server.
        peer_id: u32,
    },
}

impl Header {
    /// The header that a packet begins with, if it carries data. That of version 1 has peer ID 0.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let Lead { opcode, key_id } = Lead::parse(*packet.first()?)?;
        match opcode {
            Opcode::DataV1 => Some(Self::V1 { key_id, peer_id: 0 }),
            Opcode::DataV2 => {
                let word = u32::from_be_bytes(*packet.first_chunk()?);
                Some(Self::V2 { key_id, peer_id: word & 0x00ff_ffff })
            }
            _ => None,
        }
    }

    /// The leading byte and the peer ID as one word: the first word of version 2. It identifies the key at its receiver.
    pub fn word(self) -> u32 {
        let (opcode, key_id, peer_id) = match self {
            Self::V1 { key_id, peer_id } => (Opcode::DataV1, key_id, peer_id),
            Self::V2 { key_id, peer_id } => (Opcode::DataV2, key_id, peer_id),
        };
        u32::from(Lead { opcode, key_id }.byte()) << 24 | peer_id & 0x00ff_ffff
    }

    /// Bytes of the header.
    #[inline]
    pub fn length(self) -> usize {
        match self {
            Self::V1 { .. } => 1,
            Self::V2 { .. } => 4,
        }
    }
}

/// How the data packets of one direction of one key are laid out, sealed and opened.
pub enum DataKey {
    /// With an AEAD cipher.
    Aead(AeadData),
    /// With a cipher in CBC mode and an HMAC.
    Cbc(CbcData),
}

impl DataKey {
    /// The first packet number.
    pub(crate) const FIRST_SEQUENCE: u64 = 1;

    /// Bytes before the inner packet.
    #[inline]
    pub fn overhead(&self) -> usize {
        match self {
            Self::Aead(data) => data.overhead(),
            Self::Cbc(data) => data.overhead(),
        }
    }

    /// The longest inner packet whose sealed packet has at most `length` bytes.
    #[inline]
    pub fn largest(&self, length: usize) -> usize {
        match self {
            Self::Aead(data) => length.saturating_sub(data.overhead()),
            Self::Cbc(data) => data.largest(length),
        }
    }

    /// Bytes of these inner packets once they are sealed.
    #[inline]
    pub fn sealed(&self, batch: &Batch, packets: Range<usize>) -> usize {
        match self {
            Self::Aead(data) => data.sealed(batch, packets),
            Self::Cbc(data) => data.sealed(batch, packets),
        }
    }

    /// Puts headers and padding around packets, with room for the tags.
    #[inline]
    pub fn lay_out(&self, batch: &mut Batch, packets: Range<usize>, first_sequence: u64) {
        match self {
            Self::Aead(data) => data.lay_out(batch, packets, first_sequence),
            Self::Cbc(data) => data.lay_out(batch, packets, first_sequence),
        }
    }

    /// Seals packets that were laid out. When the engine fails, nothing of the packets may leave.
    #[inline]
    pub fn seal(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        first_sequence: u64,
    ) -> Result<(), EngineFailure> {
        match self {
            Self::Aead(data) => data.seal(batch, packets),
            Self::Cbc(data) => data.seal(batch, packets, first_sequence),
        }
    }

    /// Drops packets whose form is wrong, or whose number can be read and was received before, or is not below `end`.
    #[inline]
    pub fn check(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &ReplayWindow,
        end: u64,
        drops: &DropCounters,
    ) {
        match self {
            Self::Aead(data) => data.check(batch, packets, window, end, drops),
            Self::Cbc(data) => data.check(batch, packets, drops),
        }
    }

    /// Opens packets in place, and drops those whose tag is wrong.
    #[inline]
    pub fn open(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) {
        match self {
            Self::Aead(data) => data.open(batch, packets, drops),
            Self::Cbc(data) => data.open(batch, packets, drops),
        }
    }

    /// Marks authentic packets as received, and drops duplicates; returns the number of new packets and their bytes.
    #[inline]
    pub fn accept(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        window: &mut ReplayWindow,
        drops: &DropCounters,
    ) -> (usize, usize) {
        match self {
            Self::Aead(data) => data.accept(batch, packets, window, drops),
            Self::Cbc(data) => data.accept(batch, packets, window, drops),
        }
    }

    /// Strips opened packets to their inner packets; returns whether there was one other than a ping.
    #[inline]
    pub fn strip(&self, batch: &mut Batch, packets: Range<usize>, drops: &DropCounters) -> bool {
        match self {
            Self::Aead(data) => data.strip(batch, packets, drops),
            Self::Cbc(data) => data.strip(batch, packets, drops),
        }
    }
}

/// Drops packets that an engine did not find authentic, or all if it failed.
#[inline]
fn drop_unauthentic<'a>(
    batch: &mut Batch,
    verdicts: impl Iterator<Item = (&'a usize, &'a bool)>,
    failed: bool,
    drops: &DropCounters,
) {
    for (&index, &authentic) in verdicts {
        if failed || !authentic {
            drops.count(if failed { DropReason::EngineFailed } else { DropReason::BadTag }, 1);
            batch.discard(index);
        }
    }
}

/// Strips an opened packet to what is after `before` and before the last `after` bytes; returns false for a ping or
/// another message, which is discarded.
#[inline]
fn strip_packet(batch: &mut Batch, index: usize, before: usize, after: usize, drops: &DropCounters) -> bool {
    let packet = batch.packet(index);
    let inner = &packet[before..packet.len() - after];
    if Inner::of(inner) != Inner::Packet {
        batch.discard(index);
        return false;
    }
    if let Ok(ip) = IpPacket::parse(inner) {
        let length = ip.bytes().len();
        batch.shrink(index, before, length);
    } else {
        let is_ip = inner.first().is_some_and(|byte| matches!(byte >> 4, 4 | 6));
        drops.count(if is_ip { DropReason::BadPadding } else { DropReason::Malformed }, 1);
        batch.discard(index);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: Header = Header::V2 { key_id: 2, peer_id: 0x01_0203 };
    const V1: Header = Header::V1 { key_id: 5, peer_id: 0 };

    #[test]
    fn a_header_is_the_word_it_is_looked_up_by() {
        assert_eq!(V2.word(), 0x4a01_0203);
        for header in [V2, V1] {
            assert_eq!(Header::parse(&header.word().to_be_bytes()), Some(header));
        }
        assert_eq!(Header::parse(&[0x4a, 1, 2]), None);
        assert_eq!(Header::parse(&[0x20]), None, "a control packet");
    }
}
