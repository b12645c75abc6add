//! The headers around encrypted packets: IPv4 or IPv6, and UDP.

use super::streams::Family;
use packet::Batch;
use packet::checksum::Sum;
use packet::header::ethernet::{self, EthernetHeader};
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, UDP};
use packet::header::udp::UdpHeader;
use std::net::{IpAddr, Ipv6Addr};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes that a batch must have in front of a frame, beside its own headroom, for the longest headers.
pub const ROOM: usize = 32;

/// The addresses of an outer header, both of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OuterAddresses {
    /// The source.
    pub source: IpAddr,
    /// The destination.
    pub destination: IpAddr,
}

impl OuterAddresses {
    /// Bytes of the header.
    pub fn header(&self) -> usize {
        Family::of(self.source).header()
    }

    /// Puts an IP header before a packet of this protocol.
    pub fn prepend(&self, batch: &mut Batch, index: usize, protocol: u8, ds_field: u8) {
        let length = batch.packet(index).len();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = (Ipv4Header::LENGTH + length) as u16;
                let mut header = Ipv4Header {
                    ds_field,
                    fragment: Ipv4Header::DONT_FRAGMENT.into(),
                    ..Ipv4Header::new(protocol, source.octets(), destination.octets(), total)
                };
                header.finish();
                prepend(batch, index, header.as_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = Ipv6Header::new(protocol, source.octets(), destination.octets(), length as u16)
                    .with_ds_field(ds_field);
                prepend(batch, index, header.as_bytes());
            }
            _ => unreachable!("both addresses are of one family"),
        }
    }
}

/// Puts a UDP header without a checksum before a packet.
pub fn prepend_udp(batch: &mut Batch, index: usize, source: u16, destination: u16) {
    let length = ((UdpHeader::LENGTH + batch.packet(index).len()) as u16).into();
    let header =
        UdpHeader { source: source.into(), destination: destination.into(), length, checksum: [0; 2] };
    prepend(batch, index, header.as_bytes());
}

/// Sets the checksum of UDP over IPv6, which must have one (RFC 8200 section 8.1).
pub fn finish_udp(packet: &mut [u8]) {
    if packet.first().is_none_or(|first| first >> 4 != 6) {
        return;
    }
    let (header, datagram) = packet.split_at_mut(Ipv6Header::LENGTH);
    let Ok(header) = Ipv6Header::ref_from_bytes(header) else { return };
    let pseudo = Sum::pseudo_v6(header.source.into(), header.destination.into(), UDP, datagram.len());
    let checksum = match (pseudo + Sum::of(datagram)).checksum() {
        [0, 0] => [0xff; 2],
        checksum => checksum,
    };
    datagram[UdpHeader::CHECKSUM..UdpHeader::LENGTH].copy_from_slice(&checksum);
}

/// Puts an Ethernet header before an IP packet; `macs` are destination and source.
pub fn prepend_ether(batch: &mut Batch, index: usize, macs: [u8; 12]) {
    let is_v6 = batch.packet(index).first().is_some_and(|first| first >> 4 == 6);
    let ether_type = if is_v6 { ethernet::IPV6 } else { ethernet::IPV4 };
    let mut header = [0; EthernetHeader::LENGTH];
    header[..12].copy_from_slice(&macs);
    header[12..].copy_from_slice(&ether_type.to_be_bytes());
    prepend(batch, index, &header);
}

fn prepend(batch: &mut Batch, index: usize, header: &[u8]) {
    batch.grow(index, header.len(), 0);
    batch.packet_mut(index)[..header.len()].copy_from_slice(header);
}

/// A received packet whose IP header is right, as far as a checksum tells.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// Its addresses.
    pub addresses: OuterAddresses,
    /// The protocol behind the IP header.
    pub protocol: u8,
    /// Where the IP packet begins in the frame.
    pub start: usize,
    /// Bytes of the IP header.
    pub header: usize,
    /// The IP packet.
    pub packet: &'a [u8],
}

impl<'a> Arrived<'a> {
    /// Reads a frame; none if it is not IP, or its header is damaged.
    pub fn read(frame: &'a [u8]) -> Option<Self> {
        let (ether_type, start) = EthernetHeader::payload(frame).ok()?;
        let ip = IpPacket::parse(&frame[start..]).ok()?;
        let (addresses, packet) =
            (OuterAddresses { source: ip.source(), destination: ip.destination() }, ip.bytes());
        let (protocol, header) = match ip {
            IpPacket::V4(header, packet) if ether_type == ethernet::IPV4 => {
                Sum::of(&packet[..header.length()])
                    .is_valid()
                    .then_some((header.protocol, header.length()))?
            }
            IpPacket::V6(header, _) if ether_type == ethernet::IPV6 => {
                (header.next_header, Ipv6Header::LENGTH)
            }
            _ => return None,
        };
        Some(Self { addresses, protocol, start, header, packet })
    }

    /// What is behind the IP header.
    pub fn payload(&self) -> &'a [u8] {
        &self.packet[self.header..]
    }

    /// Source and destination port of a whole datagram, which over IPv4 may be without a checksum.
    pub fn datagram(&self) -> Option<[u16; 2]> {
        let datagram = self.payload();
        let header = UdpHeader::parse(datagram).ok().filter(|_| self.protocol == UDP)?;
        let is_valid = header.checksum == [0; 2] || self.has_valid_checksum();
        is_valid.then(|| [header.source.get(), header.destination.get()])
    }

    /// Whether the payload has a checksum over it and the addresses, as UDP, TCP and ICMPv6 have, and it is right.
    pub fn has_valid_checksum(&self) -> bool {
        let (payload, protocol) = (self.payload(), self.protocol);
        let pseudo = match (self.addresses.source, self.addresses.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Sum::pseudo_v4(source, destination, protocol, payload.len())
            }
            (source, destination) => {
                let [source, destination] = [source, destination].map(v6);
                Sum::pseudo_v6(source, destination, protocol, payload.len())
            }
        };
        (pseudo + Sum::of(payload)).is_valid()
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}
