//! What the tests of the data path share: packets, and an engine that fails.

use crypto::Cipher;
use crypto::engine::{Engine, EngineFailure, Job, Key, LoadError};
use packet::checksum::Sum;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use std::net::Ipv6Addr;
use std::sync::Arc;
use zerocopy::{FromBytes, IntoBytes};

/// An IPv4 packet from 10.1.0.1 to 10.2.0.`host`.
pub fn v4(host: u8, length: usize, ds_field: u8) -> Vec<u8> {
    let mut header = Ipv4Header {
        ds_field,
        identification: 1.into(),
        fragment: Ipv4Header::DONT_FRAGMENT.into(),
        ..Ipv4Header::new(UDP, [10, 1, 0, 1], [10, 2, 0, host], length as u16)
    };
    header.finish();
    let mut packet = header.as_bytes().to_vec();
    packet.resize(length, host);
    packet
}

pub fn v6(length: usize, ds_field: u8) -> Vec<u8> {
    let header = Ipv6Header::new(
        UDP,
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets(),
        Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets(),
        (length - Ipv6Header::LENGTH) as u16,
    )
    .with_ds_field(ds_field);
    let mut packet = header.as_bytes().to_vec();
    packet.resize(length, 6);
    packet
}

/// A TCP packet that opens a connection and announces segments of 1460 bytes, over IPv4 or IPv6.
pub fn syn(is_v6: bool) -> Vec<u8> {
    let mut packet = if is_v6 { v6(64, 0) } else { v4(1, 44, 0) };
    let (header, segment) = packet.split_at_mut(if is_v6 { 40 } else { 20 });
    header[if is_v6 { 6 } else { 9 }] = TCP;
    if let Ok((header, _)) = Ipv4Header::mut_from_prefix(header)
        && !is_v6
    {
        header.finish();
    }
    segment.fill(0);
    (segment[12], segment[13]) = (0x60, 0x02);
    segment[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    let checksum = tcp_sum(&packet).checksum();
    let at = packet.len() - 24 + 16;
    packet[at..at + 2].copy_from_slice(&checksum);
    packet
}

/// The sum over a TCP packet that [`syn`] has made: with its checksum, it is valid.
pub fn tcp_sum(packet: &[u8]) -> Sum {
    let (header, segment) = packet.split_at(packet.len() - 24);
    let pseudo = match IpPacket::parse(packet).expect("well-formed") {
        IpPacket::V4(ip, _) => Sum::pseudo_v4(ip.source.into(), ip.destination.into(), TCP, segment.len()),
        IpPacket::V6(ip, _) => Sum::pseudo_v6(ip.source.into(), ip.destination.into(), TCP, segment.len()),
    };
    assert!(header.len() == 40 || Sum::of(header).is_valid());
    pseudo + Sum::of(segment)
}

/// The segment size that a packet of [`syn`] announces.
pub fn announced(packet: &[u8]) -> u16 {
    let option = packet.len() - 4;
    assert_eq!(packet[option..option + 2], [2, 4]);
    assert!(tcp_sum(packet).is_valid(), "the checksum is mended");
    u16::from_be_bytes([packet[option + 2], packet[option + 3]])
}

/// An engine that fails every call.
pub struct Broken;

impl Engine for Broken {
    fn name(&self) -> &'static str {
        "broken"
    }

    fn version(&self) -> String {
        String::new()
    }

    fn load(&self, _: Cipher, _: &[u8]) -> Result<Arc<dyn Key>, LoadError> {
        Ok(Arc::new(Self))
    }
}

impl Key for Broken {
    fn seal(&self, _: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        Err(EngineFailure)
    }

    fn open(&self, _: &mut [Job<'_>]) -> Result<(), EngineFailure> {
        Err(EngineFailure)
    }
}
