//! Super-packets: what a kernel has merged (GRO), or has left to a network card to cut (TSO, as a veth carries it). They are longer than a slot,
//! so the kernel queues them at the socket whole, and are cut here into frames of the size that their header says.

use super::ring::Frame;
use crate::tun::segment::Segmenter;
use crate::tun::virtio::VirtioHeader;
use arrayvec::ArrayVec;
use packet::header::ethernet::{EthernetHeader, IPV4, IPV6};
use packet::header::ip::{IpPacket, Ipv6Header, TCP, UDP};
use packet::{Batch, DropReason};
use rustix::net::{RecvFlags, recv};
use std::os::fd::OwnedFd;

/// The longest super-packet with its headers.
const LONGEST: usize = VirtioHeader::LENGTH + 64 + 65_535;
/// Bytes that may wait at the socket.
pub(super) const QUEUE: i32 = 8 << 20;

/// A super-packet that is being cut.
#[derive(Default)]
pub(super) struct Large {
    /// Made for the first one.
    bytes: Vec<u8>,
    /// Where its IP packet is in `bytes`.
    start: usize,
    end: usize,
    /// Its Ethernet header, with the VLAN tag that the kernel took off.
    ethernet: ArrayVec<u8, 22>,
    /// Where it goes on; none between two super-packets.
    segmenter: Option<Segmenter>,
}

impl Large {
    /// Takes a super-packet out of a slot, or out of the queue of the socket. The one before must be written.
    pub(super) fn take(&mut self, frame: &Frame<'_>, socket: &OwnedFd) -> Result<(), DropReason> {
        self.bytes.resize(LONGEST, 0);
        let length = if frame.has_copy {
            // Also if it is dropped: the next one is behind it.
            let received = recv(socket, &mut self.bytes[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC);
            let (_, length) = received.map_err(|_| DropReason::Truncated)?;
            // Two processors may queue in another order than that of their slots.
            if frame.bytes.is_empty() || !self.bytes[VirtioHeader::LENGTH..].starts_with(frame.bytes) {
                return Err(DropReason::Truncated);
            }
            length
        } else {
            let length = VirtioHeader::LENGTH + frame.bytes.len();
            self.bytes[VirtioHeader::LENGTH..length].copy_from_slice(frame.bytes);
            length
        };
        let is_single = frame.offload.gso_type == VirtioHeader::GSO_NONE;
        if is_single || frame.is_truncated && !frame.has_copy || length > LONGEST {
            return Err(DropReason::Truncated);
        }
        self.prepare(frame, length).ok_or(DropReason::BadOffload)
    }

    fn prepare(&mut self, frame: &Frame<'_>, length: usize) -> Option<()> {
        let ethernet = self.bytes.get(VirtioHeader::LENGTH..length)?;
        let (ether_type, offset) = EthernetHeader::payload(ethernet).ok()?;
        if !matches!(ether_type, IPV4 | IPV6) {
            return None;
        }
        self.ethernet.clear();
        let (addresses, rest) = ethernet[..offset].split_at(12);
        for part in [addresses, frame.vlan.as_ref().map_or(&[][..], |tag| tag), rest] {
            self.ethernet.try_extend_from_slice(part).ok()?;
        }
        (self.start, self.end) = (VirtioHeader::LENGTH + offset, length);
        let packet = &mut self.bytes[self.start..self.end];
        let (transport, protocol) = match IpPacket::parse(packet).ok()? {
            IpPacket::V4(header, _) => (header.length(), header.protocol),
            IpPacket::V6(header, _) => (Ipv6Header::LENGTH, header.next_header),
        };
        // Packets in tunnels have a transport header further in, and outer ones that are not for us to write. Without that flag the kernel
        // says no start: a network card that merges has checked the sums. They are computed anew in any case.
        let needs_checksum = frame.offload.flags & VirtioHeader::NEEDS_CHECKSUM != 0;
        let is_outermost = !needs_checksum || usize::from(frame.offload.checksum_start) == offset + transport;
        let is_udp = frame.offload.gso_type & !VirtioHeader::GSO_ECN == VirtioHeader::GSO_UDP;
        if !is_outermost || protocol != if is_udp { UDP } else { TCP } {
            return None;
        }
        let header = VirtioHeader { checksum_start: transport as u16, ..frame.offload };
        self.segmenter = Some(Segmenter::new(&header, packet).ok()?.behind(self.ethernet.len()));
        Some(())
    }

    /// Appends its frames, or those that are left; false if the batch has no room for all.
    #[inline]
    pub(super) fn write(&mut self, batch: &mut Batch) -> bool {
        let Some(mut segmenter) = self.segmenter.take() else { return true };
        let first = batch.len();
        let is_done = segmenter.write(&self.bytes[self.start..self.end], batch);
        for index in first..batch.len() {
            batch.packet_mut(index)[..self.ethernet.len()].copy_from_slice(&self.ethernet);
        }
        if !is_done {
            self.segmenter = Some(segmenter);
        }
        is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::checksum::Sum;
    use packet::header::ip::Ipv4Header;
    use zerocopy::IntoBytes;

    /// A frame of TCP with so many bytes of payload.
    fn frame(payload: usize) -> Vec<u8> {
        let mut ip = Ipv4Header::new(TCP, [10, 0, 0, 1], [10, 0, 0, 2], (40 + payload) as u16);
        ip.finish();
        let tcp = [0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0];
        let payload: Vec<u8> = (0..payload).map(|at| at as u8).collect();
        [&[2; 12][..], &[8, 0], ip.as_bytes(), &tcp, &payload].concat()
    }

    fn offload(checksum_start: u16) -> VirtioHeader {
        VirtioHeader {
            flags: VirtioHeader::NEEDS_CHECKSUM,
            gso_type: VirtioHeader::GSO_TCP_V4,
            header_length: 54,
            gso_size: 1000,
            checksum_start,
            checksum_offset: 16,
        }
    }

    fn in_slot(bytes: &[u8], offload: VirtioHeader, vlan: Option<[u8; 4]>) -> Frame<'_> {
        Frame { bytes, vlan, is_partial: true, is_truncated: false, has_copy: false, offload }
    }

    fn nowhere() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("it is there").into()
    }

    #[test]
    fn a_super_packet_becomes_frames_with_checksums_of_their_own_in_as_many_batches_as_it_takes() {
        let bytes = frame(2500);
        let mut large = Large::default();
        large.take(&in_slot(&bytes, offload(34), None), &nowhere()).expect("it is right");
        let mut frames: Vec<Vec<u8>> = Vec::new();
        loop {
            // Room for one.
            let mut batch = Batch::new(Batch::footprint(1054) + 64);
            let is_done = large.write(&mut batch);
            frames.extend((0..batch.len()).map(|index| batch.packet(index).to_vec()));
            if is_done {
                break;
            }
        }
        assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [1054, 1054, 554]);
        let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[54..].to_vec()).collect();
        assert_eq!(payload, bytes[54..]);
        for frame in &mut frames {
            assert_eq!(frame[..14], bytes[..14]);
            assert!(IpPacket::parse(&frame[14..]).is_ok());
            assert!(!crate::partial_checksum::complete(frame), "it is complete");
        }
        let tag = [0x81, 0, 0, 5];
        large.take(&in_slot(&bytes, offload(34), Some(tag)), &nowhere()).expect("it is right");
        let mut batch = Batch::new(64 * 1024);
        assert!(large.write(&mut batch) && large.write(&mut batch), "nothing is left");
        assert_eq!((batch.len(), &batch.packet(2)[12..18]), (3, &[0x81, 0, 0, 5, 8, 0][..]));
    }

    /// A network card that merges (LRO, GRO in hardware) has checked the sums: the kernel asks for none, and says no start.
    #[test]
    fn a_super_packet_whose_checksums_were_checked_is_cut_unless_it_is_in_a_tunnel() {
        let checked = VirtioHeader { flags: 0, checksum_offset: 0, ..offload(0) };
        let mut bytes = frame(2500);
        let mut large = Large::default();
        large.take(&in_slot(&bytes, checked, None), &nowhere()).expect("it is right");
        let mut batch = Batch::new(64 * 1024);
        assert!(large.write(&mut batch));
        assert_eq!((0..batch.len()).map(|at| batch.packet(at).len()).collect::<Vec<_>>(), [1054, 1054, 554]);
        for index in 0..batch.len() {
            let segment = &batch.packet(index)[34..];
            let pseudo = Sum::pseudo_v4([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), TCP, segment.len());
            assert!((pseudo + Sum::of(segment)).is_valid());
        }
        for tunnel in [UDP, 4, 47] {
            bytes[23] = tunnel;
            let taken = large.take(&in_slot(&bytes, checked, None), &nowhere());
            assert_eq!(taken, Err(DropReason::BadOffload), "{tunnel}");
        }
    }

    #[test]
    fn what_is_no_super_packet_of_tcp_or_udp_is_dropped_with_a_reason() {
        let bytes = frame(2500);
        let mut large = Large::default();
        let mut take = |frame: &Frame<'_>| large.take(frame, &nowhere());
        for start in [0, 13, 33, 35, 54, 5000] {
            let reason = take(&in_slot(&bytes, offload(start), None));
            assert_eq!(reason, Err(DropReason::BadOffload), "{start}");
        }
        for length in 0..bytes.len().min(54) {
            let reason = take(&in_slot(&bytes[..length], offload(34), None));
            assert_eq!(reason, Err(DropReason::BadOffload), "{length} bytes");
        }
        let unknown = VirtioHeader { gso_type: 3, ..offload(34) };
        assert_eq!(take(&in_slot(&bytes, unknown, None)), Err(DropReason::BadOffload));
        let single = VirtioHeader { gso_type: VirtioHeader::GSO_NONE, ..offload(34) };
        assert_eq!(take(&in_slot(&bytes, single, None)), Err(DropReason::Truncated), "longer than a slot");
        let lost = Frame { is_truncated: true, ..in_slot(&[], offload(34), None) };
        assert_eq!(take(&lost), Err(DropReason::Truncated), "the queue was full");
        let gone = Frame { has_copy: true, ..in_slot(&[], offload(34), None) };
        assert_eq!(take(&gone), Err(DropReason::Truncated), "the queue is empty");
    }
}
