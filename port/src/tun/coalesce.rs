//! Merges neighbouring packets of a flow into super-packets for TUN: the reverse of [`segment`](super::segment).
//!
//! Only what can be cut again into the same packets is merged, and only packets whose checksum was verified: the
//! kernel trusts the checksum of a super-packet, so a packet damaged before it entered the tunnel would come out of it
//! whole. Within a flow the order stays: no packet is merged to one that came before another of its flow.

use super::virtio::VirtioHeader;
use packet::Batch;
use packet::checksum::Sum;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use packet::header::tcp::TcpHeader;
use packet::header::udp::UdpHeader;
use zerocopy::FromBytes;

/// How many of the youngest groups a packet is compared with: flows that alternate faster are not worth the search.
const DEPTH: usize = 16;
/// The largest IP packet, and so the largest super-packet.
const LARGEST: usize = 65_535;
/// The kernel takes no more pieces in one write.
pub const MAXIMUM_PACKETS: usize = 512;

/// Packets that leave in one write.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The first packet's index in the batch.
    pub first: usize,
    last: usize,
    /// How many there are.
    pub count: usize,
    /// Whose packets may not pass this group; `None` if it is not IP, or nothing is merged at all.
    flow: Option<Flow>,
    /// What all packets of the group have in common; `None` if nothing may be merged to it.
    shape: Option<Shape>,
    /// Bytes of the super-packet so far.
    length: usize,
    /// Nothing may follow: the last packet was shorter, or asked for delivery.
    closed: bool,
    /// The first packet's checksum is known to be right.
    verified: bool,
}

/// The headers of a packet that can be merged with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    protocol: u8,
    /// Where the layer 4 header begins: 20 or 40.
    transport: usize,
    /// Where the payload begins.
    payload: usize,
}

/// Addresses, mixed into a word, and ports. A collision costs a missed merge, never a wrong one.
#[derive(Clone, Copy, Debug)]
struct Flow {
    addresses: u64,
    ports: Option<u32>,
}

impl Flow {
    /// Whether packets of the two must stay in order. One without ports, such as a fragment, may be of any flow
    /// between its addresses.
    fn may_be(self, other: Self) -> bool {
        let same_ports = self.ports == other.ports || self.ports.is_none() || other.ports.is_none();
        self.addresses == other.addresses && same_ports
    }
}

/// Finds what can be merged in a batch.
#[derive(Default)]
pub struct Coalescer {
    groups: Vec<Group>,
    /// For each packet of the batch, the next one of its group.
    next: Vec<usize>,
}

impl Coalescer {
    /// Groups the live packets of `batch`, in the order of each group's first packet.
    ///
    /// `udp`: whether UDP may be merged too; with `enabled` false every packet is alone.
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

    /// Adds packet `index` to the youngest group of its flow, if it continues that.
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
        // From here on only damage speaks against it. Then neither packet may be merged with anything.
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

/// What a group looks like to the kernel: the header that says so, and the headers of the first packet made those of
/// the super-packet.
pub struct SuperPacket {
    /// Goes before the packet.
    pub virtio: VirtioHeader,
    headers: [u8; 40 + 60],
    header_length: usize,
}

impl SuperPacket {
    /// Describes a group of at least two packets, whose first and last are given.
    pub fn new(group: &Group, first: &[u8], last: &[u8]) -> Self {
        let shape = group.shape.expect("only packets with a shape are merged");
        let mut headers = [0; 40 + 60];
        headers[..shape.payload].copy_from_slice(&first[..shape.payload]);
        let length = group.length - shape.transport;
        let pseudo = finish_ip(&mut headers, shape, group.length);
        let transport = &mut headers[shape.transport..shape.payload];
        let (gso_type, checksum_offset) = if shape.protocol == TCP {
            // PSH of the last packet speaks for all.
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

    /// The headers of the super-packet; every packet contributes what lies behind as many bytes.
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

/// The flow of a packet, and its shape if it could be merged with others.
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

/// The shape of a packet whose layer 4 header begins at `transport`.
fn shape_of(packet: &[u8], protocol: u8, transport: usize, udp: bool) -> Option<Shape> {
    let payload = match protocol {
        TCP => {
            let (tcp, length) = TcpHeader::parse(&packet[transport..]).ok()?;
            (tcp.flags & !TcpHeader::PSH == TcpHeader::ACK).then_some(transport + length)?
        }
        UDP if udp => {
            let header = UdpHeader::parse(&packet[transport..]).ok()?;
            // Without a checksum there is nothing to verify, and the kernel would add one.
            (header.checksum != [0; 2]).then_some(transport + UdpHeader::LENGTH)?
        }
        _ => return None,
    };
    (packet.len() > payload).then_some(Shape { protocol, transport, payload })
}

/// Mixes addresses into a word.
fn mix(addresses: &[u8]) -> u64 {
    addresses.chunks_exact(8).fold(0, |mixed: u64, word| {
        let word = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        (mixed.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn has_push(packet: &[u8], shape: Shape) -> bool {
    shape.protocol == TCP && packet[shape.transport + 13] & TcpHeader::PSH != 0
}

/// Whether `packet` is what cutting a longer super-packet of this group would give next.
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

/// Whether the IP headers differ in nothing but length, identification and checksum.
fn same_ip(first: &[u8], packet: &[u8], position: usize, shape: Shape) -> bool {
    if shape.transport == Ipv6Header::LENGTH {
        return first[..4] == packet[..4] && first[6..40] == packet[6..40];
    }
    let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    // Packets that may be fragmented are told apart by their identification: it must count up as cutting would.
    let may_fragment = word(first, 6) & Ipv4Header::DONT_FRAGMENT == 0;
    let counts_up = word(packet, 4) == word(first, 4).wrapping_add(position as u16);
    first[..2] == packet[..2]
        && first[6..10] == packet[6..10]
        && first[12..20] == packet[12..20]
        && (counts_up || !may_fragment)
}

/// Whether the ports are equal, and for TCP whether everything is but sequence number, PSH and checksum.
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

/// Whether the checksum of TCP or UDP is right.
fn checksum_is_right(packet: &[u8], shape: Shape) -> bool {
    let length = packet.len() - shape.transport;
    let pseudo = match IpPacket::parse(packet) {
        Ok(IpPacket::V4(ip, _)) => {
            // The header's own checksum is rewritten too when packets are merged.
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
    (pseudo + Sum::of(&packet[shape.transport..])).is_valid()
}
