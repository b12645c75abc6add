//! What data packets of every cipher have in common: the header, and inner packets that are messages.

use super::framing::Framing;
use crate::openvpn::packet::{Lead, Opcode};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a packet number.
pub(super) const NUMBER: usize = 4;

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

/// Whether the peer has said in a data packet that it exits. Set once by the data path, and taken once by the control thread.
#[derive(Default)]
pub struct ExitNote(AtomicBool);

impl ExitNote {
    /// Whether the peer has said so since the last call.
    #[inline]
    pub fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// Strips an opened packet to what is after `before` and before the last `after` bytes; returns false for a ping or
/// another message, which is discarded. Framing is removed first; a packet without it is dropped.
#[inline]
pub(super) fn strip_packet(
    batch: &mut Batch,
    index: usize,
    (before, after): (usize, usize),
    framing: Option<Framing>,
    exit: &ExitNote,
    drops: &DropCounters,
) -> bool {
    let mut range = before..batch.packet(index).len() - after;
    if let Some(framing) = framing {
        let Some(framed) = framing.remove(batch.packet_mut(index), range) else {
            batch.drop_packet(index, DropReason::Compressed, drops);
            return true;
        };
        range = framed;
    }
    let before = range.start;
    let inner = &batch.packet(index)[range];
    match Inner::of(inner) {
        Inner::Packet => {}
        message => {
            if message == Inner::Exit {
                exit.0.store(true, Ordering::Relaxed);
            }
            batch.discard(index);
            return false;
        }
    }
    if let Ok(ip) = IpPacket::parse(inner) {
        let length = ip.bytes().len();
        batch.shrink(index, before, length);
    } else {
        let is_ip = inner.first().is_some_and(|byte| matches!(byte >> 4, 4 | 6));
        batch.drop_packet(index, if is_ip { DropReason::BadPadding } else { DropReason::Malformed }, drops);
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
