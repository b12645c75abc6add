//! The streams of one direction (RFC 2544 section 12): addresses and ports, and which frame is of which stream.
//!
//! A frame's stream follows from its sequence number, by a function that spreads frames evenly and without order. So the receiver knows each
//! frame that it misses, and whose it was; and a frame with the addresses of another stream is not whole.

use super::frame::Protocol;
use packet::checksum::Sum;
use packet::header::ip::{Ipv4Header, Ipv6Header};
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;

/// The most streams of a direction.
pub const MOST: usize = 16_384;
/// RFC 2544 section 12: the networks that streams are spread over.
const NETWORKS: usize = 256;

/// The addresses of the frames of one stream, and their ports if they are not those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stream {
    /// The source address.
    pub source: IpAddr,
    /// The destination address, of the same family.
    pub destination: IpAddr,
    /// Source and destination port.
    pub ports: Option<[u16; 2]>,
}

impl Stream {
    /// A stream between the ports of the protocol.
    pub fn between(source: IpAddr, destination: IpAddr) -> Self {
        Self { source, destination, ports: None }
    }

    /// So many streams: from and to 256 networks next to these addresses, then further hosts of them.
    pub fn spread(source: IpAddr, destination: IpAddr, count: usize) -> Vec<Self> {
        (0..count).map(|number| Self::between(source, destination).neighbour(number)).collect()
    }

    /// Stream `number` of those next to this one.
    #[must_use]
    pub fn neighbour(self, number: usize) -> Self {
        let [source, destination] = [self.source, self.destination].map(|it| neighbour(it, number));
        Self { source, destination, ..self }
    }

    /// The stream in the other direction.
    #[must_use]
    pub fn back(self) -> Self {
        let ports = self.ports.map(|[source, destination]| [destination, source]);
        Self { source: self.destination, destination: self.source, ports }
    }
}

/// The address of stream `number` next to this one.
fn neighbour(address: IpAddr, number: usize) -> IpAddr {
    let (network, host) = ((number % NETWORKS) as u8, (number / NETWORKS) as u8);
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            [a, b, c.wrapping_add(network), d.wrapping_add(host)].into()
        }
        IpAddr::V6(address) => {
            let mut bytes = address.octets();
            bytes[7] = bytes[7].wrapping_add(network);
            bytes[15] = bytes[15].wrapping_add(host);
            bytes.into()
        }
    }
}

/// Which of `count` streams frame `sequence` is of.
#[inline]
pub fn stream_of(sequence: u64, count: usize) -> usize {
    if count == 1 {
        return 0;
    }
    // SplitMix64, whose output is uniform; its high bits are scaled to the number of streams.
    let mut bits = sequence.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    ((u128::from(bits) * count as u128) >> 64) as usize
}

/// A version of IP, by what differs in a test frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "ipv4")]
    V4,
    /// IPv6.
    #[serde(rename = "ipv6")]
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Bytes of the IP header.
    pub fn header(self) -> usize {
        match self {
            Self::V4 => Ipv4Header::LENGTH,
            Self::V6 => Ipv6Header::LENGTH,
        }
    }

    /// Where both addresses are in the IP header.
    pub fn addresses(self) -> std::ops::Range<usize> {
        match self {
            Self::V4 => 12..20,
            Self::V6 => 8..40,
        }
    }
}

/// The bytes that tell a stream from the others.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    addresses: [u8; 32],
    length: usize,
    /// The first bytes behind the IP header; zero if the protocol has no ports.
    pub ports: [u8; 4],
    /// The sum of the addresses.
    pub addresses_sum: Sum,
    /// The sum of the ports.
    pub ports_sum: Sum,
}

impl Mark {
    fn new(stream: &Stream, protocol: Protocol) -> Self {
        let mut addresses = [0; 32];
        let length = match (stream.source, stream.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                addresses[..4].copy_from_slice(&source.octets());
                addresses[4..8].copy_from_slice(&destination.octets());
                8
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                addresses[..16].copy_from_slice(&source.octets());
                addresses[16..].copy_from_slice(&destination.octets());
                32
            }
            _ => unreachable!("the addresses of a stream have one family"),
        };
        let mut ports = [0; 4];
        if protocol.has_ports() {
            let [source, destination] = stream.ports.unwrap_or(protocol.ports());
            ports[..2].copy_from_slice(&source.to_be_bytes());
            ports[2..].copy_from_slice(&destination.to_be_bytes());
        }
        let addresses_sum = Sum::of(&addresses[..length]);
        Self { addresses, length, ports, addresses_sum, ports_sum: Sum::of(&ports) }
    }

    /// Source and destination address as in an IP header.
    pub fn addresses(&self) -> &[u8] {
        &self.addresses[..self.length]
    }

    /// Writes the addresses into an IP header.
    #[inline]
    pub fn write(&self, family: Family, header: &mut [u8]) {
        // Lengths that the compiler knows: a copy is then a move or two.
        match family {
            Family::V4 => header[12..20].copy_from_slice(&self.addresses[..8]),
            Family::V6 => header[8..40].copy_from_slice(&self.addresses),
        }
    }

    /// Whether an IP header has the addresses.
    #[inline]
    pub fn is_in(&self, family: Family, header: &[u8]) -> bool {
        match family {
            Family::V4 => header[12..20] == self.addresses[..8],
            Family::V6 => header[8..40] == self.addresses,
        }
    }

    fn key(&self) -> [u8; 36] {
        let mut key = [0; 36];
        key[..32].copy_from_slice(&self.addresses);
        key[32..].copy_from_slice(&self.ports);
        key
    }
}

/// All streams of one direction.
#[derive(Debug)]
pub struct Streams {
    /// The protocol of all.
    pub protocol: Protocol,
    /// The family of all.
    pub family: Family,
    marks: Vec<Mark>,
    by_key: HashMap<[u8; 36], u32>,
}

impl Streams {
    /// Streams, of one family and at least one.
    pub fn new(protocol: Protocol, streams: &[Stream]) -> Self {
        let marks: Vec<Mark> = streams.iter().map(|stream| Mark::new(stream, protocol)).collect();
        let by_key = marks.iter().zip(0..).map(|(mark, number)| (mark.key(), number)).collect();
        Self { protocol, family: Family::of(streams[0].source), marks, by_key }
    }

    /// The source address of the first.
    pub fn source(&self) -> IpAddr {
        let bytes = self.marks[0].addresses();
        match self.family {
            Family::V4 => IpAddr::from([bytes[0], bytes[1], bytes[2], bytes[3]]),
            Family::V6 => IpAddr::from(*bytes.first_chunk::<16>().expect("two addresses of 16 bytes")),
        }
    }

    /// The number of streams.
    #[inline]
    pub fn count(&self) -> usize {
        self.marks.len()
    }

    /// The stream that a frame is of.
    #[inline]
    pub fn of(&self, sequence: u64) -> &Mark {
        &self.marks[stream_of(sequence, self.marks.len())]
    }

    /// The stream that a packet seems to be of, by its addresses and ports alone.
    pub fn resembled(&self, packet: &[u8]) -> Option<u32> {
        let (header, addresses) = (self.family.header(), self.family.addresses());
        let mut key = [0; 36];
        key[..addresses.len()].copy_from_slice(packet.get(addresses)?);
        if self.protocol.has_ports() {
            key[32..].copy_from_slice(packet.get(header..header + 4)?);
        }
        self.by_key.get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn frames_are_spread_evenly_over_streams_in_no_order() {
        for count in [2, 3, 256, 1000] {
            let mut found = vec![0; count];
            let frames = count * 1000;
            (0..frames as u64).for_each(|sequence| found[stream_of(sequence, count)] += 1);
            let (least, most) = (found.iter().min().copied(), found.iter().max().copied());
            assert!(least > Some(850) && most < Some(1150), "{count}: {least:?} {most:?}");
        }
        let repeated = (0..10_000).filter(|&it| stream_of(it, 256) == stream_of(it + 1, 256)).count();
        assert!((10..90).contains(&repeated), "one in 256: {repeated}");
        assert_eq!(stream_of(u64::MAX, 1), 0);
    }

    #[test]
    fn streams_are_of_256_networks_and_then_of_further_hosts() {
        for (source, destination, last) in [
            ("198.18.0.2", "198.19.0.2", "198.19.255.65"),
            ("2001:2::2", "2001:2:0:8000::2", "2001:2:0:80ff::41"),
        ] {
            let of = |text: &str| text.parse::<IpAddr>().expect("literal");
            let streams = Stream::spread(of(source), of(destination), MOST);
            assert_eq!(streams[0], Stream::between(of(source), of(destination)));
            let all: HashSet<IpAddr> = streams.iter().flat_map(|it| [it.source, it.destination]).collect();
            assert_eq!((all.len(), streams[MOST - 1].destination), (2 * MOST, of(last)));
        }
    }

    #[test]
    fn a_packet_resembles_the_stream_whose_addresses_and_ports_it_has() {
        let [a, b] = ["198.18.0.2", "198.19.0.2"].map(|text| text.parse::<IpAddr>().expect("literal"));
        let mut list = Stream::spread(a, b, 3);
        list.push(Stream { ports: Some([1000, 2000]), ..list[1] });
        let streams = Streams::new(Protocol::Udp, &list);
        for number in 0..4 {
            let mark = streams.marks[number];
            let packet = [&[0; 12][..], mark.addresses(), &mark.ports].concat();
            assert_eq!(streams.resembled(&packet), Some(number as u32));
            assert_eq!(streams.resembled(&packet[..23]), None);
        }
        assert_eq!(streams.resembled(&[7; 60]), None);
    }
}
