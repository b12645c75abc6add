//! Transport mode: the IP headers of packets, kept while ESP takes their place in the batch, and put back around it or without it.

use packet::batch::HEADROOM;
use packet::checksum::Sum;
use packet::header::chain::Place;
use packet::header::ip::{Ipv6Header, MAXIMUM};
use packet::{Batch, DropReason};

/// The headers of a burst. The memory is kept from burst to burst.
#[derive(Default)]
pub struct Headers {
    bytes: Vec<u8>,
    /// By index in the batch.
    kept: Vec<Kept>,
}

/// The headers of one packet; without any, the length is 0.
#[derive(Clone, Copy, Default)]
struct Kept {
    start: u32,
    length: u16,
    /// The offset of the field that names the protocol behind them.
    field: u16,
}

impl Headers {
    /// Forgets those of the last burst.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.kept.clear();
    }

    /// Keeps the headers of packet `index` up to a place in it.
    pub fn keep(&mut self, index: usize, packet: &[u8], place: Place) {
        if self.kept.len() <= index {
            self.kept.resize(index + 1, Kept::default());
        }
        let headers = &packet[..place.offset];
        self.kept[index] =
            Kept { start: self.bytes.len() as u32, length: headers.len() as u16, field: place.field as u16 };
        self.bytes.extend_from_slice(headers);
    }

    /// Puts the headers before packet `index`, which is of this protocol. Lengths and checksum become those of the whole.
    ///
    /// # Errors
    /// The packet becomes longer than an IP packet can be.
    pub fn put_back(&self, batch: &mut Batch, index: usize, protocol: u8) -> Result<(), DropReason> {
        let Kept { start, length, field } = self.kept.get(index).copied().unwrap_or_default();
        let headers = &self.bytes[start as usize..][..usize::from(length)];
        let total = headers.len() + batch.packet(index).len();
        if headers.is_empty() || total > MAXIMUM {
            return Err(DropReason::TooBig);
        }
        let mut missing = headers.len();
        while missing > 0 {
            // They were there before: the room of a packet is what it arrived with, and its room at that time.
            let step = missing.min(HEADROOM);
            batch.grow(index, step, 0);
            missing -= step;
        }
        let packet = batch.packet_mut(index);
        let (room, payload) = packet.split_at_mut(headers.len());
        room.copy_from_slice(headers);
        room[usize::from(field)] = protocol;
        if headers[0] >> 4 == 4 {
            room[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            room[10..12].fill(0);
            let checksum = Sum::of(room).checksum();
            room[10..12].copy_from_slice(&checksum);
        } else {
            let length = headers.len() - Ipv6Header::LENGTH + payload.len();
            room[4..6].copy_from_slice(&(length as u16).to_be_bytes());
        }
        Ok(())
    }
}
