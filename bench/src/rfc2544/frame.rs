//! The test frames: UDP, TCP or ICMP over IPv4 in Ethernet, with a tag that names trial, sequence number and time.
//!
//! A frame is copied from a template; then the tag is written, and the checksum follows from the template's. The tag's 18 bytes are
//! all that a UDP frame of 64 bytes has behind its headers; in TCP they are in the numbers, the window and the urgent pointer.

use packet::checksum::Sum;
use packet::header::ethernet::{self, EthernetHeader};
use packet::header::ip::{ICMP, IpPacket, Ipv4Header, TCP, UDP};
use serde::Serialize;
use std::net::Ipv4Addr;
use zerocopy::IntoBytes;

/// What marks our frames.
const MAGIC: [u8; 2] = [0x25, 0x44];
/// The UDP port of the echo service, as in RFC 2544 appendix C.2.6.4.
const ECHO: u16 = 7;
/// The TCP port of the discard service.
const DISCARD: u16 = 9;
/// Where headers behind the Ethernet and the IP header begin.
const SEGMENT: usize = EthernetHeader::LENGTH + Ipv4Header::LENGTH;

/// The protocol of the test frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Datagrams to the port of the echo service.
    Udp,
    /// Segments without a connection.
    Tcp,
    /// Echo requests.
    Icmp,
}

/// Where the parts of a tag are in a frame; all offsets are even, so that checksums of tags can be added.
#[derive(Clone, Copy, Debug)]
struct Layout {
    checksum: usize,
    magic: usize,
    stream: usize,
    sequence: usize,
    time: usize,
}

impl Protocol {
    /// The number in the IP header.
    pub fn number(self) -> u8 {
        match self {
            Self::Udp => UDP,
            Self::Tcp => TCP,
            Self::Icmp => ICMP,
        }
    }

    /// The first four bytes behind the IP header: the ports, or type, code and a checksum, which varies.
    pub fn first_words(self) -> [u16; 2] {
        match self {
            Self::Udp => [ECHO; 2],
            Self::Tcp => [DISCARD; 2],
            Self::Icmp => [0x0800, 0],
        }
    }

    fn layout(self) -> Layout {
        let at = |checksum, [magic, stream, sequence, time]: [usize; 4]| Layout {
            checksum: SEGMENT + checksum,
            magic: SEGMENT + magic,
            stream: SEGMENT + stream,
            sequence: SEGMENT + sequence,
            time: SEGMENT + time,
        };
        match self {
            Self::Udp => at(6, [8, 10, 12, 18]),
            Self::Tcp => at(16, [14, 18, 20, 4]),
            Self::Icmp => at(2, [8, 10, 12, 18]),
        }
    }

    /// The header in front of the payload, as far as it is the same in all frames.
    fn header(self, length: usize) -> Vec<u8> {
        match self {
            Self::Udp => [ECHO, ECHO, length as u16, 0].iter().flat_map(|it| it.to_be_bytes()).collect(),
            // Data offset 5, flag ACK.
            Self::Tcp => {
                [&DISCARD.to_be_bytes()[..], &DISCARD.to_be_bytes(), &[0; 8], &[0x50, 0x10], &[0; 6]].concat()
            }
            Self::Icmp => vec![8, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// The addresses of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The hardware address that frames come from.
    pub source_mac: [u8; 6],
    /// The hardware address that frames go to: the receiving port's, or the router's.
    pub destination_mac: [u8; 6],
    /// The IP address that frames come from.
    pub source: Ipv4Addr,
    /// The IP address that frames go to.
    pub destination: Ipv4Addr,
}

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The trial and the direction.
    pub stream: u16,
    /// The number of the frame, of 48 bits.
    pub sequence: u64,
    /// When it was sent, in nanoseconds of the tester's clock.
    pub time: u64,
}

impl Tag {
    /// Stream, sequence and time as in a UDP frame.
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(self.sequence & 0xffff_ffff_ffff).to_be_bytes());
        bytes[..2].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..].copy_from_slice(&self.time.to_be_bytes());
        bytes
    }
}

/// A frame without its tag.
pub struct Template {
    bytes: Vec<u8>,
    layout: Layout,
    /// The sum of the segment without its tag, and of the pseudo header.
    sum: Sum,
}

impl Template {
    /// A frame of `length` bytes without its frame check sequence.
    pub fn new(protocol: Protocol, path: &Path, length: usize) -> Self {
        let length = length.max(ethernet::SHORTEST);
        let ether = EthernetHeader {
            destination: path.destination_mac,
            source: path.source_mac,
            ether_type: ethernet::IPV4.into(),
        };
        let total = length - EthernetHeader::LENGTH;
        let mut ip = Ipv4Header {
            fragment: Ipv4Header::DONT_FRAGMENT.into(),
            ..Ipv4Header::new(
                protocol.number(),
                path.source.octets(),
                path.destination.octets(),
                total as u16,
            )
        };
        ip.finish();
        let segment = total - Ipv4Header::LENGTH;
        let mut bytes = [ether.as_bytes(), ip.as_bytes(), &protocol.header(segment)].concat();
        // Not zeros: a link or a device may treat them better.
        bytes.extend((bytes.len()..length).map(|at| (at as u8).wrapping_mul(151)));
        let layout = protocol.layout();
        for (at, length) in [(layout.stream, 2), (layout.sequence, 6), (layout.time, 8)] {
            bytes[at..at + length].fill(0);
        }
        bytes[layout.magic..layout.magic + 2].copy_from_slice(&MAGIC);
        let sum = Sum::of(&bytes[SEGMENT..]) + pseudo(protocol, path.source, path.destination, segment);
        Self { bytes, layout, sum }
    }

    /// The length of the frame.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the frame with `tag`; `frame` has its length.
    #[inline]
    pub fn write(&self, frame: &mut [u8], tag: Tag) {
        let (layout, words) = (&self.layout, tag.bytes());
        frame.copy_from_slice(&self.bytes);
        frame[layout.stream..layout.stream + 2].copy_from_slice(&words[..2]);
        frame[layout.sequence..layout.sequence + 6].copy_from_slice(&words[2..8]);
        frame[layout.time..layout.time + 8].copy_from_slice(&words[8..]);
        let checksum = match (self.sum + Sum::of(&words)).checksum() {
            // Zero would mean that a datagram has none (RFC 768).
            [0, 0] => [0xff; 2],
            checksum => checksum,
        };
        frame[layout.checksum..layout.checksum + 2].copy_from_slice(&checksum);
    }
}

fn pseudo(protocol: Protocol, source: Ipv4Addr, destination: Ipv4Addr, length: usize) -> Sum {
    match protocol {
        Protocol::Icmp => Sum::default(),
        _ => Sum::pseudo_v4(source, destination, protocol.number(), length),
    }
}

/// What a received frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// One of ours, whole.
    Ours(Tag),
    /// One of ours that is not what was sent.
    Corrupt,
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
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    protocol: Protocol,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    layout: Layout,
}

impl Reader {
    /// Recognizes frames of this path.
    pub fn new(protocol: Protocol, path: &Path) -> Self {
        Self { protocol, source: path.source, destination: path.destination, layout: protocol.layout() }
    }

    /// What the frame is. Checksums of the IP header and of the segment are verified, so that any bit of them counts.
    #[inline]
    pub fn read(&self, frame: &[u8]) -> Seen {
        let packet = EthernetHeader::payload(frame).ok().filter(|it| it.0 == ethernet::IPV4);
        let whole = packet.and_then(|(_, offset)| self.whole(&frame[offset..]));
        whole.map_or_else(|| self.rest(frame.get(EthernetHeader::LENGTH..).unwrap_or_default()), Seen::Ours)
    }

    /// What the IP packet is, without a frame around it.
    #[inline]
    pub fn read_packet(&self, packet: &[u8]) -> Seen {
        self.whole(packet).map_or_else(|| self.rest(packet), Seen::Ours)
    }

    fn whole(&self, packet: &[u8]) -> Option<Tag> {
        let IpPacket::V4(header, packet) = IpPacket::parse(packet).ok()? else { return None };
        let is_ours = header.protocol == self.protocol.number()
            && header.length() == Ipv4Header::LENGTH
            && (header.source, header.destination) == (self.source.octets(), self.destination.octets());
        if !is_ours {
            return None;
        }
        let (head, segment) = packet.split_at(Ipv4Header::LENGTH);
        let sum = Sum::of(segment) + pseudo(self.protocol, self.source, self.destination, segment.len());
        if !Sum::of(head).is_valid() || !sum.is_valid() {
            return None;
        }
        let at = |at: usize, length: usize| segment.get(at - SEGMENT..at - SEGMENT + length);
        if at(self.layout.magic, 2)? != MAGIC {
            return None;
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
        Some(Tag {
            stream: number(at(self.layout.stream, 2)?) as u16,
            sequence: number(at(self.layout.sequence, 6)?),
            time: number(at(self.layout.time, 8)?),
        })
    }

    /// What a packet is that is not whole: one of ours if one of the marks is left.
    fn rest(&self, packet: &[u8]) -> Seen {
        // Whole, of another protocol: a device may still hold frames of an earlier measurement.
        if let Some(header) = packet.first_chunk::<{ Ipv4Header::LENGTH }>()
            && header[9] != self.protocol.number()
            && [UDP, TCP, ICMP].contains(&header[9])
            && is_valid_header(header)
        {
            return Seen::Foreign;
        }
        let addresses = [self.source.octets(), self.destination.octets()].concat();
        let magic = self.layout.magic - EthernetHeader::LENGTH;
        let resembles = packet.get(magic..magic + 2).is_some_and(|it| it == MAGIC)
            || packet.get(12..Ipv4Header::LENGTH).is_some_and(|it| it == addresses);
        if resembles { Seen::Corrupt } else { Seen::Foreign }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A path between two ports.
    pub fn path() -> Path {
        Path {
            source_mac: [2, 0x25, 0x44, 0, 0, 1],
            destination_mac: [2, 0x25, 0x44, 0, 0, 2],
            source: Ipv4Addr::new(198, 18, 0, 2),
            destination: Ipv4Addr::new(198, 19, 0, 2),
        }
    }

    #[test]
    fn a_tag_is_read_as_it_was_written_in_every_size_and_protocol() {
        for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp] {
            let reader = Reader::new(protocol, &path());
            for length in [60, 61, 124, 508, 1276, 1514] {
                let template = Template::new(protocol, &path(), length);
                let mut frame = vec![0; template.length()];
                for sequence in [0, 1, 65_535, 0xffff_ffff_ffff] {
                    let tag = Tag { stream: 0xabcd, sequence, time: u64::MAX - sequence };
                    template.write(&mut frame, tag);
                    assert_eq!(reader.read(&frame), Seen::Ours(tag), "{protocol:?} {length}");
                }
            }
        }
    }

    #[test]
    fn every_inverted_bit_behind_the_addresses_is_corruption() {
        for protocol in [Protocol::Udp, Protocol::Tcp, Protocol::Icmp] {
            let (reader, template) = (Reader::new(protocol, &path()), Template::new(protocol, &path(), 60));
            let mut frame = vec![0; 60];
            template.write(&mut frame, Tag { stream: 1, sequence: 2, time: 3 });
            for bit in 12 * 8..60 * 8 {
                frame[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(reader.read(&frame), Seen::Corrupt, "{protocol:?}, bit {bit}");
                frame[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }

    #[test]
    fn frames_of_others_are_foreign_and_padding_is_ignored() {
        let (udp, tcp) = (Reader::new(Protocol::Udp, &path()), Reader::new(Protocol::Tcp, &path()));
        let back = Path { source: path().destination, destination: path().source, ..path() };
        let template = Template::new(Protocol::Tcp, &back, 60);
        let mut frame = vec![0; 60];
        let tag = Tag { stream: 1, sequence: 2, time: 3 };
        template.write(&mut frame, tag);
        assert_eq!(udp.read(&frame), Seen::Foreign);
        assert_eq!(udp.read(&[]), Seen::Foreign);
        Template::new(Protocol::Tcp, &path(), 60).write(&mut frame, tag);
        assert_eq!(udp.read(&frame), Seen::Foreign, "of an earlier measurement with another protocol");
        frame.extend([0; 4]);
        assert_eq!(tcp.read(&frame), Seen::Ours(tag));
    }
}
