//! Merges consecutive packets of a flow into super-packets for TUN: the reverse of [`segment`](super::segment).
//!
//! Packets are only merged if segmentation gives the same packets again, and if their checksum is valid. The kernel
//! trusts the checksum of a super-packet, so a packet that was damaged before the tunnel would otherwise become
//! valid. The order within a flow is kept: a packet is never merged across another packet of its flow.

use super::virtio::VirtioHeader;
use crate::checksum;
use packet::Batch;
use packet::checksum::Sum;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use packet::header::tcp::TcpHeader;
use packet::header::udp::UdpHeader;
use zerocopy::FromBytes;

/// The number of latest groups that a packet is compared with: faster alternating flows are not worth the search.
const DEPTH: usize = 16;
/// The largest IP packet, and so the largest super-packet.
const LARGEST: usize = 65_535;
/// The maximum number of pieces in one write to the kernel.
pub const MAXIMUM_PACKETS: usize = 512;

/// Packets for one write.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The first packet's index in the batch.
    pub first: usize,
    last: usize,
    /// The number of packets.
    pub count: usize,
    /// The flow whose packets must not overtake this group; `None` if it is not IP, or merging is disabled.
    flow: Option<Flow>,
    /// The common properties of the packets; `None` if no packet may be added.
    shape: Option<Shape>,
    /// Bytes of the super-packet so far.
    length: usize,
    /// Whether the group is complete: the last packet was shorter, or had PSH set.
    closed: bool,
    /// Whether the first packet's checksum was verified.
    verified: bool,
}

/// The headers of a packet that can be merged with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    protocol: u8,
    /// The offset of the layer 4 header: 20 or 40.
    transport: usize,
    /// The offset of the payload.
    payload: usize,
}

/// A hash of the addresses, and the ports. A collision costs a missed merge, never a wrong one.
#[derive(Clone, Copy, Debug)]
struct Flow {
    addresses: u64,
    ports: Option<u32>,
}

impl Flow {
    /// Whether packets of the two must stay in order. A packet without ports, such as a fragment, may belong to any
    /// flow between its addresses.
    fn may_be(self, other: Self) -> bool {
        let same_ports = self.ports == other.ports || self.ports.is_none() || other.ports.is_none();
        self.addresses == other.addresses && same_ports
    }
}

/// Finds the packets of a batch that can be merged.
#[derive(Default)]
pub struct Coalescer {
    groups: Vec<Group>,
    /// For each packet of the batch, the next one of its group.
    next: Vec<usize>,
}

impl Coalescer {
    /// Groups the live packets of `batch`, in the order of each group's first packet.
    ///
    /// `udp` permits merging UDP; with `enabled` false, each packet is a group.
    pub fn group(&mut self, batch: &Batch, enabled: bool, udp: bool) {
        self.groups.clear();
        self.next.clear();
        self.next.resize(batch.len(), usize::MAX);
        for index in batch.live(0..batch.len()) {
            let packet = batch.packet(index);
            let (flow, shape) = if enabled { read(packet, udp).unzip() } else { (None, None) };
            let shape = shape.flatten();
            if !flow.zip(shape).is_some_and(|(flow, shape)| self.join(batch, index, flow, shape)) {
                let closed = shape.is_none_or(|shape| has_push(packet, shape));
                let length = packet.len();
                self.groups.push(Group {
                    first: index,
                    last: index,
                    count: 1,
                    flow,
                    shape,
                    length,
                    closed,
                    verified: false,
                });
            }
        }
    }

    /// The groups of the last batch.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The packets of a group, in order.
    pub fn packets(&self, group: &Group) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(group.first), |&index| Some(self.next[index])).take(group.count)
    }

    /// Adds packet `index` to the latest group of its flow, if it continues the group.
    fn join(&mut self, batch: &Batch, index: usize, flow: Flow, shape: Shape) -> bool {
        let youngest = self.groups.iter_mut().rev().take(DEPTH);
        let Some(group) = { youngest }.find(|group| group.flow.is_some_and(|other| other.may_be(flow)))
        else {
            return false;
        };
        let packet = batch.packet(index);
        if !continues(batch, group, packet, shape) {
            return false;
        }
        // All headers match; only a damaged packet prevents the merge. Then neither packet may be merged with any
        // other.
        if !group.verified {
            group.verified = checksum_is_right(batch.packet(group.first), shape);
            group.closed = !group.verified;
        }
        if group.closed || !checksum_is_right(packet, shape) {
            group.closed = true;
            return false;
        }
        let payload = packet.len() - shape.payload;
        let size = batch.packet(group.first).len() - shape.payload;
        group.closed = payload < size || has_push(packet, shape);
        group.length += payload;
        group.count += 1;
        self.next[group.last] = index;
        group.last = index;
        true
    }
}

/// The form of a group for the kernel: the virtio header, and the first packet's headers adapted to the super-packet.
pub struct SuperPacket {
    /// Written before the packet.
    pub virtio: VirtioHeader,
    headers: [u8; 40 + 60],
    header_length: usize,
}

impl SuperPacket {
    /// Describes a group of at least two packets; `first` and `last` are its outer packets.
    pub fn new(group: &Group, first: &[u8], last: &[u8]) -> Self {
        let shape = group.shape.expect("only packets with a shape are merged");
        let mut headers = [0; 40 + 60];
        headers[..shape.payload].copy_from_slice(&first[..shape.payload]);
        let length = group.length - shape.transport;
        let pseudo = finish_ip(&mut headers, shape, group.length);
        let transport = &mut headers[shape.transport..shape.payload];
        let (gso_type, checksum_offset) = if shape.protocol == TCP {
            // The PSH flag of the last packet applies to the super-packet.
            transport[13] |= last[shape.transport + 13] & TcpHeader::PSH;
            let kind =
                if shape.transport == 20 { VirtioHeader::GSO_TCP_V4 } else { VirtioHeader::GSO_TCP_V6 };
            (kind, TcpHeader::CHECKSUM)
        } else {
            transport[4..6].copy_from_slice(&(length as u16).to_be_bytes());
            (VirtioHeader::GSO_UDP, UdpHeader::CHECKSUM)
        };
        transport[checksum_offset..][..2].copy_from_slice(&pseudo.fold().to_ne_bytes());
        let virtio = VirtioHeader {
            flags: VirtioHeader::NEEDS_CHECKSUM,
            gso_type,
            header_length: shape.payload as u16,
            gso_size: (first.len() - shape.payload) as u16,
            checksum_start: shape.transport as u16,
            checksum_offset: checksum_offset as u16,
        };
        Self { virtio, headers, header_length: shape.payload }
    }

    /// The headers of the super-packet; each packet contributes its bytes after the header length.
    pub fn headers(&self) -> &[u8] {
        &self.headers[..self.header_length]
    }
}

/// Sets the IP length and header checksum of a super-packet; returns the sum of the pseudo header.
fn finish_ip(headers: &mut [u8], shape: Shape, total: usize) -> Sum {
    let length = total - shape.transport;
    if shape.transport == Ipv4Header::LENGTH {
        let (ip, _) = Ipv4Header::mut_from_prefix(headers).expect("longer than a header");
        ip.total_length.set(total as u16);
        ip.finish();
        Sum::pseudo_v4(ip.source.into(), ip.destination.into(), shape.protocol, length)
    } else {
        let (ip, _) = Ipv6Header::mut_from_prefix(headers).expect("longer than a header");
        ip.payload_length.set(length as u16);
        Sum::pseudo_v6(ip.source.into(), ip.destination.into(), shape.protocol, length)
    }
}

/// The flow of a packet, and its shape if it can be merged.
fn read(packet: &[u8], udp: bool) -> Option<(Flow, Option<Shape>)> {
    let parsed = IpPacket::parse(packet).ok()?;
    let (addresses, protocol, transport, plain) = match parsed {
        IpPacket::V4(ip, _) => {
            let whole = ip.fragment.get() & Ipv4Header::FRAGMENTED == 0;
            let protocol = whole.then_some(ip.protocol);
            (&packet[12..20], protocol, ip.length(), ip.length() == Ipv4Header::LENGTH)
        }
        IpPacket::V6(ip, _) => (&packet[8..40], Some(ip.next_header), Ipv6Header::LENGTH, true),
    };
    let has_ports = matches!(protocol, Some(TCP | UDP));
    let ports = parsed.bytes().get(transport..).filter(|_| has_ports).and_then(<[u8]>::first_chunk);
    let flow = Flow { addresses: mix(addresses), ports: ports.map(|&ports| u32::from_ne_bytes(ports)) };
    let plain = plain && parsed.bytes().len() == packet.len();
    Some((flow, protocol.filter(|_| plain).and_then(|protocol| shape_of(packet, protocol, transport, udp))))
}

/// The shape of a packet whose layer 4 header is at offset `transport`.
fn shape_of(packet: &[u8], protocol: u8, transport: usize, udp: bool) -> Option<Shape> {
    let payload = match protocol {
        TCP => {
            let (tcp, length) = TcpHeader::parse(&packet[transport..]).ok()?;
            (tcp.flags & !TcpHeader::PSH == TcpHeader::ACK).then_some(transport + length)?
        }
        UDP if udp => {
            let header = UdpHeader::parse(&packet[transport..]).ok()?;
            // UDP without a checksum cannot be verified, and the kernel would add a checksum.
            (header.checksum != [0; 2]).then_some(transport + UdpHeader::LENGTH)?
        }
        _ => return None,
    };
    (packet.len() > payload).then_some(Shape { protocol, transport, payload })
}

/// Hashes addresses.
fn mix(addresses: &[u8]) -> u64 {
    addresses.chunks_exact(8).fold(0, |mixed: u64, word| {
        let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        (mixed.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn has_push(packet: &[u8], shape: Shape) -> bool {
    shape.protocol == TCP && packet[shape.transport + 13] & TcpHeader::PSH != 0
}

/// Whether `packet` is the next segment of this group's super-packet.
fn continues(batch: &Batch, group: &Group, packet: &[u8], shape: Shape) -> bool {
    if group.closed || group.shape != Some(shape) || group.count == MAXIMUM_PACKETS {
        return false;
    }
    let first = batch.packet(group.first);
    let (size, payload) = (first.len() - shape.payload, packet.len() - shape.payload);
    payload <= size
        && group.length + payload <= LARGEST
        && same_ip(first, packet, group.count, shape)
        && same_transport(first, packet, group.length - shape.payload, shape)
}

/// Whether the IP headers only differ in length, identification and checksum.
fn same_ip(first: &[u8], packet: &[u8], position: usize, shape: Shape) -> bool {
    if shape.transport == Ipv6Header::LENGTH {
        return first[..4] == packet[..4] && first[6..40] == packet[6..40];
    }
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    // The identification of packets that may be fragmented must count up, as in segmentation.
    let may_fragment = word(first, 6) & Ipv4Header::DONT_FRAGMENT == 0;
    let counts_up = word(packet, 4) == word(first, 4).wrapping_add(position as u16);
    first[..2] == packet[..2]
        && first[6..10] == packet[6..10]
        && first[12..20] == packet[12..20]
        && (counts_up || !may_fragment)
}

/// Whether the ports are equal, and for TCP all fields but sequence number, PSH and checksum.
fn same_transport(first: &[u8], packet: &[u8], sent: usize, shape: Shape) -> bool {
    let (a, b) = (&first[shape.transport..shape.payload], &packet[shape.transport..shape.payload]);
    if shape.protocol == UDP {
        return a[..4] == b[..4];
    }
    let sequence = |tcp: &[u8]| u32::from_be_bytes(tcp[4..8].try_into().expect("four bytes"));
    a[..4] == b[..4]
        && sequence(b) == sequence(a).wrapping_add(sent as u32)
        && a[8..13] == b[8..13]
        && a[14..16] == b[14..16]
        && a[18..] == b[18..]
}

/// Whether the TCP or UDP checksum is valid.
fn checksum_is_right(packet: &[u8], shape: Shape) -> bool {
    let length = packet.len() - shape.transport;
    let pseudo = match IpPacket::parse(packet) {
        Ok(IpPacket::V4(ip, _)) => {
            // The IP header checksum is verified too, as it is rewritten when packets are merged.
            if !Sum::of(&packet[..Ipv4Header::LENGTH]).is_valid() {
                return false;
            }
            Sum::pseudo_v4(ip.source.into(), ip.destination.into(), shape.protocol, length)
        }
        Ok(IpPacket::V6(ip, _)) => {
            Sum::pseudo_v6(ip.source.into(), ip.destination.into(), shape.protocol, length)
        }
        Err(_) => return false,
    };
    (pseudo + checksum::sum(&packet[shape.transport..])).is_valid()
}
