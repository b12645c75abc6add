//! Framing of compression: a byte says that the packet behind it is not compressed. Packets are never compressed here.
//!
//! ```text
//! comp-lzo     0xfa | packet
//! compress     0xfb | packet without its first byte | its first byte
//! ```
//! `compress stub-v2` needs no framing: only a packet that begins with 0x50, which is no IP packet, would have some.

use packet::Batch;
use std::ops::Range;

/// Where the first byte of a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Behind the byte of the framing: `comp-lzo`.
    Before,
    /// At the end, so that the packet stays aligned: `compress`.
    Swapped,
}

impl Framing {
    /// Bytes that it adds.
    pub(super) const LENGTH: usize = 1;

    fn mark(self) -> u8 {
        match self {
            Self::Before => 0xfa,
            Self::Swapped => 0xfb,
        }
    }

    /// Adds it to packets.
    pub(super) fn add(self, batch: &mut Batch, packets: Range<usize>) {
        for index in packets {
            let length = batch.packet(index).len();
            // The room before the packet is for the headers of CBC, which leave none.
            batch.grow(index, 0, Self::LENGTH);
            let packet = batch.packet_mut(index);
            match self {
                Self::Before => packet.copy_within(..length, Self::LENGTH),
                Self::Swapped => packet[length] = packet[0],
            }
            packet[0] = self.mark();
        }
    }

    /// The packet within `range`, which is put together again; `None` if it is compressed, or has other framing.
    pub(super) fn remove(self, packet: &mut [u8], range: Range<usize>) -> Option<Range<usize>> {
        if range.is_empty() || packet[range.start] != self.mark() {
            return None;
        }
        match self {
            Self::Before => Some(range.start + Self::LENGTH..range.end),
            Self::Swapped => {
                packet[range.start] = packet[range.end - Self::LENGTH];
                Some(range.start..range.end - Self::LENGTH)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_framed_as_on_the_wire() {
        for (framing, expected) in [(Framing::Before, [0xfa, 1, 2, 3]), (Framing::Swapped, [0xfb, 2, 3, 1])] {
            let mut batch = Batch::new(4096);
            batch.append(3).expect("it fits").copy_from_slice(&[1, 2, 3]);
            framing.add(&mut batch, 0..1);
            assert_eq!(batch.packet(0), expected);
            let range = framing.remove(batch.packet_mut(0), 0..4).expect("it is not compressed");
            assert_eq!(batch.packet(0)[range], [1, 2, 3]);
        }
    }

    #[test]
    fn what_is_compressed_or_has_other_framing_is_not_taken() {
        for (framing, other) in [(Framing::Before, 0xfb), (Framing::Swapped, 0xfa)] {
            for mark in [other, 0x66, 0x69, 0x45] {
                assert_eq!(framing.remove(&mut [mark, 2, 3], 0..3), None);
            }
            assert_eq!(framing.remove(&mut [], 0..0), None);
        }
        assert_eq!(Framing::Swapped.remove(&mut [0xfb], 0..1), Some(0..0));
    }
}
