//! Packets that are longer than the MTU: cut into fragments (RFC 791 section 3.2, RFC 8200 section 4.5).

use packet::header::chain::place_for_fragment;
use packet::header::ip::{IpPacket, Ipv4Header, MAXIMUM};
use packet::{Batch, DropReason};
use std::ops::Range;
use zerocopy::IntoBytes;

/// The next header of a fragment header.
const FRAGMENT: u8 = 44;
/// Bytes of a fragment header.
const FRAGMENT_HEADER: usize = 8;
/// The flag "more fragments" of IPv4.
const MORE: u16 = 0x2000;
/// The bits of a fragment offset of IPv4.
const MOST_OFFSET: u16 = 0x1fff;
/// Fragment offsets count units of 8 bytes.
const UNIT: usize = 8;
/// RFC 8200 section 5: what each link of IPv6 carries. Fragments of a foreign packet may have a way with less room than the port.
const SMALLEST_V6: usize = 1280;

/// Cuts packets. Its memory is kept from packet to packet.
pub struct Cutter {
    packet: Vec<u8>,
    header: Vec<u8>,
    /// The identification of the next IPv6 packet.
    identification: u32,
    /// How far the one after it is: no two cutters of a gateway use the same.
    step: u32,
    /// Whether IPv6 packets are cut that are not ours: those that were put together here or at the other end of a tunnel.
    pub(super) cuts_all: bool,
}

impl Cutter {
    /// A cutter whose identifications begin with this one, and of which each is so far from the one before.
    pub fn new(identification: u32, step: u32) -> Self {
        Self { packet: Vec::new(), header: Vec::new(), identification, step, cuts_all: false }
    }

    /// Adds the fragments of packet `index` to the batch. IPv6 packets are cut only if they are `ours`, or fragments of theirs may have
    /// been put together: routers do not cut them.
    ///
    /// # Errors
    /// The packet must not be cut, or the batch has no room: then it has none of the fragments.
    pub fn cut(
        &mut self,
        batch: &mut Batch,
        index: usize,
        mtu: usize,
        ours: bool,
    ) -> Result<Range<usize>, DropReason> {
        let ip = IpPacket::parse(batch.packet(index)).map_err(|_| DropReason::Malformed)?;
        self.packet.clear();
        self.packet.extend_from_slice(ip.bytes());
        match ip {
            IpPacket::V4(header, _) => {
                let (fragment, length) = (header.fragment.get(), header.length());
                if fragment & Ipv4Header::DONT_FRAGMENT != 0 {
                    return Err(DropReason::TooBig);
                }
                self.header.clear();
                self.header.extend_from_slice(&self.packet[..length]);
                self.cut_v4(batch, fragment, mtu)
            }
            IpPacket::V6(..) if ours || self.cuts_all => {
                let mtu = if ours { mtu } else { mtu.min(SMALLEST_V6) };
                let place = place_for_fragment(&ip)?;
                self.header.clear();
                self.header.extend_from_slice(&self.packet[..place.offset]);
                self.header[place.field] = FRAGMENT;
                self.header.extend_from_slice(&[place.protocol, 0, 0, 0]);
                self.header.extend_from_slice(&self.identification.to_be_bytes());
                self.identification = self.identification.wrapping_add(self.step);
                self.cut_v6(batch, place.offset, mtu)
            }
            IpPacket::V6(..) => Err(DropReason::TooBig),
        }
    }

    fn cut_v4(&mut self, batch: &mut Batch, fragment: u16, mtu: usize) -> Result<Range<usize>, DropReason> {
        let length = self.header.len();
        let step = step(mtu, length)?;
        let (first, payload) = (batch.len(), self.packet.len() - length);
        // RFC 791 section 3.1: the whole would be longer than an IP packet can be, and the offset longer than its field.
        if usize::from(fragment & MOST_OFFSET) * UNIT + payload > MAXIMUM {
            return Err(DropReason::Malformed);
        }
        for start in (0..payload).step_by(step) {
            let end = payload.min(start + step);
            let more = if end < payload { MORE } else { fragment & MORE };
            let offset = (fragment & MOST_OFFSET) + (start / UNIT) as u16;
            if start > 0 {
                forget_options(&mut self.header[Ipv4Header::LENGTH..]);
            }
            self.header[2..4].copy_from_slice(&((length + end - start) as u16).to_be_bytes());
            self.header[6..8].copy_from_slice(&(offset | more).to_be_bytes());
            self.header[10..12].fill(0);
            let checksum = packet::checksum::Sum::of(self.header.as_bytes()).checksum();
            self.header[10..12].copy_from_slice(&checksum);
            self.add(batch, first, length + start..length + end)?;
        }
        Ok(first..batch.len())
    }

    fn cut_v6(&mut self, batch: &mut Batch, offset: usize, mtu: usize) -> Result<Range<usize>, DropReason> {
        let length = self.header.len();
        let step = step(mtu, length)?;
        let (first, payload) = (batch.len(), self.packet.len() - offset);
        for start in (0..payload).step_by(step) {
            let end = payload.min(start + step);
            let field = start as u16 | u16::from(end < payload);
            // The length of what is behind the 40 bytes of the first header.
            let total = (offset - 40 + FRAGMENT_HEADER + end - start) as u16;
            self.header[4..6].copy_from_slice(&total.to_be_bytes());
            self.header[length - 6..length - 4].copy_from_slice(&field.to_be_bytes());
            self.add(batch, first, offset + start..offset + end)?;
        }
        Ok(first..batch.len())
    }

    /// Adds a fragment, or else discards those from `first` on.
    fn add(&self, batch: &mut Batch, first: usize, payload: Range<usize>) -> Result<(), DropReason> {
        let Some(room) = batch.append(self.header.len() + payload.len()) else {
            (first..batch.len()).for_each(|index| batch.discard(index));
            return Err(DropReason::BurstFull);
        };
        let (header, rest) = room.split_at_mut(self.header.len());
        header.copy_from_slice(&self.header);
        rest.copy_from_slice(&self.packet[payload]);
        Ok(())
    }
}

/// The payload of each fragment but the last.
fn step(mtu: usize, header: usize) -> Result<usize, DropReason> {
    let step = mtu.saturating_sub(header) / UNIT * UNIT;
    if step == 0 { Err(DropReason::TooBig) } else { Ok(step) }
}

/// Replaces options that are for the first fragment alone (RFC 791 section 3.1) by options without effect.
fn forget_options(options: &mut [u8]) {
    let mut at = 0;
    while at < options.len() {
        let length = match options[at] {
            0 => return,
            1 => 1,
            _ => options.get(at + 1).map_or(0, |&length| usize::from(length)),
        };
        let end = at + length;
        if length == 0 || end > options.len() {
            return;
        }
        if options[at] & 0x80 == 0 {
            options[at..end].fill(1);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_without_room_has_no_fragments() {
        let mut batch = Batch::new(Batch::footprint(3000) + Batch::footprint(1500));
        let packet = batch.append(3000).expect("it fits");
        packet.fill(0);
        packet[..4].copy_from_slice(&[0x45, 0, 0x0b, 0xb8]);
        let mut cutter = Cutter::new(0, 1);
        assert_eq!(cutter.cut(&mut batch, 0, 1500, true), Err(DropReason::BurstFull));
        assert_eq!(batch.live(0..batch.len()).count(), 1, "only the whole packet");
        assert_eq!(cutter.cut(&mut batch, 0, 27, true), Err(DropReason::TooBig));
    }

    #[test]
    fn options_for_the_first_fragment_alone_are_not_repeated() {
        let mut options = [7, 3, 4, 0x94, 4, 0, 0, 1, 0];
        forget_options(&mut options);
        assert_eq!(options, [1, 1, 1, 0x94, 4, 0, 0, 1, 0]);
        for mut bad in [[7, 0], [7, 9], [1, 7]] {
            forget_options(&mut bad);
        }
    }
}
