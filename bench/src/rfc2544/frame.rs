//! The test frames: UDP, TCP or ICMP over IPv4 or IPv6 in Ethernet, with a tag that names trial, sequence number and time.
//!
//! A frame is copied from a template; then addresses, ports and the tag are written, and the checksums follow from the template's. The tag's 18
//! bytes are all that a UDP frame of 64 bytes has behind its IPv4 headers; in TCP they are in the numbers, the window and the urgent pointer.

use super::streams::{Family, Streams};
use packet::checksum::Sum;
use packet::header::ethernet::{self, EthernetHeader};
use packet::header::ip::{ICMP, ICMPV6, IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use serde::Serialize;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// What marks our frames.
const MAGIC: [u8; 2] = [0x25, 0x44];
/// The UDP port of the echo service, as in RFC 2544 appendix C.2.6.4.
const ECHO: u16 = 7;
/// The TCP port of the discard service.
const DISCARD: u16 = 9;
/// Bytes of the shortest payload of an IP header that has room for a tag, in every protocol.
const SEGMENT: usize = 26;

/// The protocol of the test frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Datagrams to the port of the echo service.
    Udp,
    /// Segments without a connection.
    Tcp,
    /// Echo requests: ICMP over IPv4, ICMPv6 over IPv6.
    Icmp,
}

/// Where the parts of a tag are behind the IP header; all offsets are even, so that checksums of tags can be added.
#[derive(Clone, Copy, Debug)]
struct Layout {
    checksum: usize,
    magic: usize,
    /// Two bytes of the trial, and six of the sequence number.
    number: usize,
    time: usize,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 3] = [Self::Udp, Self::Tcp, Self::Icmp];

    /// The number in the IP header.
    pub fn number(self, family: Family) -> u8 {
        match (self, family) {
            (Self::Udp, _) => UDP,
            (Self::Tcp, _) => TCP,
            (Self::Icmp, Family::V4) => ICMP,
            (Self::Icmp, Family::V6) => ICMPV6,
        }
    }

    /// Whether frames have ports, which a stream may choose.
    pub fn has_ports(self) -> bool {
        self != Self::Icmp
    }

    /// The ports of frames whose stream does not choose them.
    pub fn ports(self) -> [u16; 2] {
        match self {
            Self::Udp => [ECHO; 2],
            Self::Tcp => [DISCARD; 2],
            Self::Icmp => [0; 2],
        }
    }

    /// The first four bytes behind the IP header, as policies see them: the ports, or type, code and a checksum, which varies.
    pub fn first_words(self, family: Family) -> [u16; 2] {
        match self {
            Self::Icmp => [u16::from_be_bytes(Self::echo(family)), 0],
            _ => self.ports(),
        }
    }

    /// Type and code of an echo request.
    fn echo(family: Family) -> [u8; 2] {
        match family {
            Family::V4 => [8, 0],
            Family::V6 => [128, 0],
        }
    }

    /// Whether the checksum covers the addresses too.
    fn has_pseudo_header(self, family: Family) -> bool {
        self != Self::Icmp || family == Family::V6
    }

    fn layout(self) -> Layout {
        match self {
            Self::Udp => Layout { checksum: 6, magic: 8, number: 10, time: 18 },
            Self::Tcp => Layout { checksum: 16, magic: 14, number: 18, time: 4 },
            Self::Icmp => Layout { checksum: 2, magic: 8, number: 10, time: 18 },
        }
    }

    /// The header in front of the payload, as far as it is the same in all frames.
    fn header(self, family: Family, length: usize) -> Vec<u8> {
        match self {
            Self::Udp => [0, 0, length as u16, 0].iter().flat_map(|it| it.to_be_bytes()).collect(),
            // Data offset 5, flag ACK.
            Self::Tcp => [&[0; 12][..], &[0x50, 0x10], &[0; 6]].concat(),
            Self::Icmp => [&Self::echo(family)[..], &[0; 6]].concat(),
        }
    }
}

/// Bytes of the shortest test frame, without its frame check sequence.
pub fn shortest(family: Family) -> usize {
    (EthernetHeader::LENGTH + family.header() + SEGMENT).max(ethernet::SHORTEST)
}

/// The addresses of one direction.
#[derive(Clone, Debug)]
pub struct Path {
    /// The hardware address that frames come from.
    pub source_mac: [u8; 6],
    /// The hardware address that frames go to: the receiving port's, or the router's.
    pub destination_mac: [u8; 6],
    /// The IP addresses and ports.
    pub streams: Arc<Streams>,
}

impl Path {
    /// The Ethernet header of IP packets on this path.
    pub fn ether(&self, family: Family) -> EthernetHeader {
        let ether_type = match family {
            Family::V4 => ethernet::IPV4,
            Family::V6 => ethernet::IPV6,
        };
        EthernetHeader {
            destination: self.destination_mac,
            source: self.source_mac,
            ether_type: ether_type.into(),
        }
    }
}

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The trial and the direction.
    pub trial: u16,
    /// The number of the frame, of 48 bits.
    pub sequence: u64,
    /// When it was sent, in nanoseconds of the tester's clock.
    pub time: u64,
}

impl Tag {
    /// Trial and sequence, and the time, as in a frame.
    #[inline]
    fn words(self) -> [[u8; 8]; 2] {
        let number = u64::from(self.trial) << 48 | (self.sequence & 0xffff_ffff_ffff);
        [number.to_be_bytes(), self.time.to_be_bytes()]
    }
}

/// A frame without its tag, its addresses and its ports.
pub struct Template {
    bytes: Vec<u8>,
    layout: Layout,
    streams: Arc<Streams>,
    /// The sum of an IPv4 header without its addresses.
    header_sum: Sum,
    /// The sum of the segment without tag and ports, and of the pseudo header without addresses.
    sum: Sum,
}

impl Template {
    /// A frame of `length` bytes without its frame check sequence.
    pub fn new(path: &Path, length: usize) -> Self {
        let streams = Arc::clone(&path.streams);
        let Streams { protocol, family, .. } = *streams;
        let length = length.max(shortest(family));
        let total = length - EthernetHeader::LENGTH;
        let segment = total - family.header();
        let ip = ip_header(protocol, family, total);
        let mut bytes = [path.ether(family).as_bytes(), &ip, &protocol.header(family, segment)].concat();
        // Not zeros: a link or a device may treat them better.
        bytes.extend((bytes.len()..length).map(|at| (at as u8).wrapping_mul(151)));
        let layout = protocol.layout();
        let body = &mut bytes[EthernetHeader::LENGTH + family.header()..];
        for at in [layout.number, layout.time] {
            body[at..at + 8].fill(0);
        }
        body[layout.magic..layout.magic + 2].copy_from_slice(&MAGIC);
        let sum = Sum::of(body) + pseudo(protocol, family, segment);
        Self { layout, streams, header_sum: Sum::of(&ip), sum, bytes }
    }

    /// The length of the frame.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the frame with `tag`, of the stream that follows from it; `frame` has its length.
    #[inline]
    pub fn write(&self, frame: &mut [u8], tag: Tag) {
        let (layout, [number, time]) = (&self.layout, tag.words());
        let Streams { protocol, family, .. } = *self.streams;
        let stream = self.streams.of(tag.sequence);
        frame.copy_from_slice(&self.bytes);
        let (ip, segment) = frame[EthernetHeader::LENGTH..].split_at_mut(family.header());
        stream.write(family, ip);
        if family == Family::V4 {
            ip[10..12].copy_from_slice(&(self.header_sum + stream.addresses_sum).checksum());
        }
        segment[layout.number..layout.number + 8].copy_from_slice(&number);
        segment[layout.time..layout.time + 8].copy_from_slice(&time);
        let mut sum = self.sum + Sum::of(&number) + Sum::of(&time);
        if protocol.has_ports() {
            segment[..4].copy_from_slice(&stream.ports);
            sum = sum + stream.ports_sum;
        }
        if protocol.has_pseudo_header(family) {
            sum = sum + stream.addresses_sum;
        }
        let checksum = match sum.checksum() {
            // Zero would mean that a datagram has none (RFC 768).
            [0, 0] => [0xff; 2],
            checksum => checksum,
        };
        segment[layout.checksum..layout.checksum + 2].copy_from_slice(&checksum);
    }
}

/// The IP header of a packet of `total` bytes, without addresses and checksum.
fn ip_header(protocol: Protocol, family: Family, total: usize) -> Vec<u8> {
    let number = protocol.number(family);
    match family {
        Family::V4 => Ipv4Header {
            fragment: Ipv4Header::DONT_FRAGMENT.into(),
            ..Ipv4Header::new(number, [0; 4], [0; 4], total as u16)
        }
        .as_bytes()
        .to_vec(),
        Family::V6 => {
            Ipv6Header::new(number, [0; 16], [0; 16], (total - Ipv6Header::LENGTH) as u16).as_bytes().to_vec()
        }
    }
}

/// The sum of the pseudo header without addresses.
fn pseudo(protocol: Protocol, family: Family, length: usize) -> Sum {
    let number = protocol.number(family);
    match family {
        _ if !protocol.has_pseudo_header(family) => Sum::default(),
        Family::V4 => Sum::pseudo_v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED, number, length),
        Family::V6 => Sum::pseudo_v6(Ipv6Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED, number, length),
    }
}

/// What a received frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// One of ours, whole.
    Ours(Tag),
    /// One of ours that is not what was sent, and its stream if that can be told.
    Corrupt(Option<u32>),
    /// One of ours, whole, but not encrypted where it has to be.
    Clear,
    /// Not one of ours.
    Foreign,
}

/// Whether the checksum of an IPv4 header is right.
pub fn is_valid_header(header: &[u8]) -> bool {
    Sum::of(header).is_valid()
}

/// Recognizes the frames of one direction.
#[derive(Clone, Debug)]
pub struct Reader {
    streams: Arc<Streams>,
    layout: Layout,
}

impl Reader {
    /// Recognizes frames of this path.
    pub fn new(path: &Path) -> Self {
        Self { layout: path.streams.protocol.layout(), streams: Arc::clone(&path.streams) }
    }

    /// What the frame is. Checksums of the IPv4 header and of the segment are verified, so that any bit of them counts. Traffic class, flow
    /// label and hop limit of IPv6 have no checksum.
    #[inline]
    pub fn read(&self, frame: &[u8]) -> Seen {
        let is_ip = |ether_type| matches!(ether_type, ethernet::IPV4 | ethernet::IPV6);
        let packet = EthernetHeader::payload(frame).ok().filter(|it| is_ip(it.0));
        let whole = packet.and_then(|(_, offset)| self.whole(&frame[offset..]));
        whole.map_or_else(|| self.rest(frame.get(EthernetHeader::LENGTH..).unwrap_or_default()), Seen::Ours)
    }

    /// What the IP packet is, without a frame around it.
    #[inline]
    pub fn read_packet(&self, packet: &[u8]) -> Seen {
        self.whole(packet).map_or_else(|| self.rest(packet), Seen::Ours)
    }

    fn whole(&self, packet: &[u8]) -> Option<Tag> {
        let Streams { protocol, family, .. } = *self.streams;
        let (is_ours, packet) = match (IpPacket::parse(packet).ok()?, family) {
            (IpPacket::V4(header, packet), Family::V4) => {
                let is_plain = header.length() == Ipv4Header::LENGTH;
                (header.protocol == protocol.number(family) && is_plain, packet)
            }
            (IpPacket::V6(header, packet), Family::V6) => {
                (header.next_header == protocol.number(family), packet)
            }
            _ => return None,
        };
        if !is_ours || packet.len() < family.header() + SEGMENT {
            return None;
        }
        let (head, segment) = packet.split_at(family.header());
        let word = |at: usize| u64::from_be_bytes(segment[at..at + 8].try_into().expect("eight bytes"));
        let layout = &self.layout;
        let number = word(layout.number);
        let (trial, sequence) = ((number >> 48) as u16, number & 0xffff_ffff_ffff);
        let stream = self.streams.of(sequence);
        let is_of_stream =
            stream.is_in(family, head) && (!protocol.has_ports() || segment[..4] == stream.ports);
        if !is_of_stream || segment[layout.magic..layout.magic + 2] != MAGIC {
            return None;
        }
        let mut sum = Sum::of(segment) + pseudo(protocol, family, segment.len());
        if protocol.has_pseudo_header(family) {
            sum = sum + stream.addresses_sum;
        }
        let is_valid = sum.is_valid() && (family == Family::V6 || is_valid_header(head));
        is_valid.then(|| Tag { trial, sequence, time: word(layout.time) })
    }

    /// What a packet is that is not whole: one of ours if one of the marks is left.
    fn rest(&self, packet: &[u8]) -> Seen {
        let Streams { protocol, family, .. } = *self.streams;
        // Whole, of another protocol: a device may still hold frames of an earlier measurement.
        if let Some(header) = packet.get(..family.header()) {
            let number = if family == Family::V4 { header[9] } else { header[6] };
            let others = Protocol::ALL.map(|it| it.number(family));
            let is_other = number != protocol.number(family) && others.contains(&number);
            if is_other && (family == Family::V6 || is_valid_header(header)) {
                return Seen::Foreign;
            }
        }
        let magic = family.header() + self.layout.magic;
        let stream = self.streams.resembled(packet);
        let resembles = stream.is_some() || packet.get(magic..magic + 2).is_some_and(|it| it == MAGIC);
        if resembles { Seen::Corrupt(stream) } else { Seen::Foreign }
    }
}

#[cfg(test)]
pub mod tests;
