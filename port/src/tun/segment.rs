//! Segments a super-packet read from TUN into packets.
//!
//! Each segment gets the headers of the super-packet with its own lengths, sequence number, flags and checksums, as
//! in a network card (for TCP: `Documentation/networking/segmentation-offloads` of Linux). It is written to its final
//! place in the batch, where it is encrypted.

use super::virtio::VirtioHeader;
use crate::checksum;
use packet::Batch;
use packet::checksum::Sum;
use packet::header::Malformed;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use packet::header::tcp::TcpHeader;
use packet::header::udp::UdpHeader;
use zerocopy::FromBytes;

/// A super-packet that is being segmented into one or more batches.
#[derive(Clone, Copy, Debug)]
pub struct Segmenter {
    transport: Option<Transport>,
    /// Bytes before each packet that are left to the caller.
    before: usize,
    /// The offset of the layer 4 header.
    transport_start: usize,
    /// The length of all headers, which each segment repeats.
    header_length: usize,
    /// Payload bytes of each segment except the last.
    segment: usize,
    /// Payload bytes already written.
    done: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

impl Segmenter {
    /// Prepares the segmentation of `packet`; completes the checksum of a packet that needs no segmentation.
    pub fn new(header: &VirtioHeader, packet: &mut [u8]) -> Result<Self, Malformed> {
        let transport = match header.gso_type & !VirtioHeader::GSO_ECN {
            VirtioHeader::GSO_NONE => {
                if header.flags & VirtioHeader::NEEDS_CHECKSUM != 0 {
                    finish_checksum(header, packet)?;
                }
                // A single packet: all of it counts as header.
                let length = packet.len();
                return Ok(Self {
                    transport: None,
                    before: 0,
                    transport_start: 0,
                    header_length: length,
                    segment: 0,
                    done: 0,
                });
            }
            VirtioHeader::GSO_TCP_V4 | VirtioHeader::GSO_TCP_V6 => Transport::Tcp,
            VirtioHeader::GSO_UDP => Transport::Udp,
            _ => return Err(Malformed),
        };
        let parsed = IpPacket::parse(packet)?;
        let transport_start = usize::from(header.checksum_start);
        let minimum = match parsed {
            IpPacket::V4(ip, _) => ip.length(),
            IpPacket::V6(..) => Ipv6Header::LENGTH,
        };
        let rest = packet.get(transport_start..).filter(|_| transport_start >= minimum).ok_or(Malformed)?;
        let transport_length = match transport {
            Transport::Tcp => TcpHeader::parse(rest)?.1,
            Transport::Udp if rest.len() >= UdpHeader::LENGTH => UdpHeader::LENGTH,
            Transport::Udp => return Err(Malformed),
        };
        let header_length = transport_start + transport_length;
        if header.gso_size == 0 || header_length >= packet.len() {
            return Err(Malformed);
        }
        let segment = usize::from(header.gso_size);
        let transport = Some(transport);
        Ok(Self { transport, before: 0, transport_start, header_length, segment, done: 0 })
    }

    /// Leaves so many bytes before each packet, for the header of a frame.
    #[must_use]
    pub fn behind(self, before: usize) -> Self {
        Self { before, ..self }
    }

    /// Whether the packet is UDP.
    pub fn is_udp(&self) -> bool {
        self.transport == Some(Transport::Udp)
    }

    /// Appends the remaining segments of `packet`; returns false if `batch` is full before the end.
    pub fn write(&mut self, packet: &[u8], batch: &mut Batch) -> bool {
        let Some(transport) = self.transport else {
            let room = batch.append(self.before + packet.len());
            return room.map(|bytes| bytes[self.before..].copy_from_slice(packet)).is_some();
        };
        let (headers, payload) = packet.split_at(self.header_length);
        while self.done < payload.len() {
            let end = payload.len().min(self.done + self.segment);
            let length = self.header_length + end - self.done;
            let Some(bytes) = batch.append(self.before + length) else { return false };
            let bytes = &mut bytes[self.before..];
            bytes[..self.header_length].copy_from_slice(headers);
            let sum = checksum::copy(&payload[self.done..end], &mut bytes[self.header_length..]);
            self.finish(transport, bytes, sum, end == payload.len());
            self.done = end;
        }
        true
    }

    /// Adapts the headers to the segment that starts at `done`, and whose payload has this sum.
    fn finish(&self, transport: Transport, bytes: &mut [u8], payload: Sum, last: bool) {
        let length = bytes.len() - self.transport_start;
        let rest = self.finish_ip(transport, bytes, length) + payload;
        // Headers of TCP and UDP have an even length: the payload begins with a word.
        let segment = &mut bytes[self.transport_start..self.header_length];
        match transport {
            Transport::Tcp => {
                let (tcp, _) = TcpHeader::mut_from_prefix(segment).expect("new() has seen the header");
                tcp.sequence.set(tcp.sequence.get().wrapping_add(self.done as u32));
                if !last {
                    tcp.flags &= !(TcpHeader::FIN | TcpHeader::PSH);
                }
                if self.done != 0 {
                    tcp.flags &= !TcpHeader::CWR;
                }
                tcp.checksum = [0; 2];
                let checksum = (rest + Sum::of(segment)).checksum();
                segment[TcpHeader::CHECKSUM..][..2].copy_from_slice(&checksum);
            }
            Transport::Udp => {
                let (udp, _) = UdpHeader::mut_from_prefix(segment).expect("new() has seen the header");
                udp.length.set(length as u16);
                udp.checksum = [0; 2];
                let checksum = never_zero((rest + Sum::of(segment)).checksum());
                segment[UdpHeader::CHECKSUM..][..2].copy_from_slice(&checksum);
            }
        }
    }

    /// Sets lengths, identification and header checksum; returns the sum of the pseudo header.
    fn finish_ip(&self, transport: Transport, bytes: &mut [u8], length: usize) -> Sum {
        let protocol = if transport == Transport::Tcp { TCP } else { UDP };
        let total = bytes.len();
        if bytes[0] >> 4 == 4 {
            let (ip, _) = Ipv4Header::mut_from_prefix(bytes).expect("new() has seen the header");
            ip.total_length.set(total as u16);
            ip.identification.set(ip.identification.get().wrapping_add((self.done / self.segment) as u16));
            ip.checksum = [0; 2];
            let (ip_length, source, destination) = (ip.length(), ip.source, ip.destination);
            let checksum = Sum::of(&bytes[..ip_length]).checksum();
            bytes[10..12].copy_from_slice(&checksum);
            Sum::pseudo_v4(source.into(), destination.into(), protocol, length)
        } else {
            let (ip, _) = Ipv6Header::mut_from_prefix(bytes).expect("new() has seen the header");
            ip.payload_length.set((total - Ipv6Header::LENGTH) as u16);
            Sum::pseudo_v6(ip.source.into(), ip.destination.into(), protocol, length)
        }
    }
}

/// Completes a checksum whose field holds the sum of the pseudo header.
fn finish_checksum(header: &VirtioHeader, packet: &mut [u8]) -> Result<(), Malformed> {
    let covered = packet.get_mut(usize::from(header.checksum_start)..).ok_or(Malformed)?;
    // The protocol does not matter: where zero has no special meaning, both zeros are the same number.
    let checksum = never_zero(checksum::sum(covered).checksum());
    let field = usize::from(header.checksum_offset);
    covered.get_mut(field..field + 2).ok_or(Malformed)?.copy_from_slice(&checksum);
    Ok(())
}

/// RFC 768: a computed zero is sent as ones, since zero means "none".
fn never_zero(checksum: [u8; 2]) -> [u8; 2] {
    if checksum == [0; 2] { [0xff; 2] } else { checksum }
}
