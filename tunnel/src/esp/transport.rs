//! Transport mode (RFC 4303 section 3.1.1): the IP header of a packet is removed before it is sealed. The receiver makes
//! one from the addresses of the SA and from the outer header.

use super::keys::SaKeys;
use super::open::Inner;
use super::parameters::{Outer, Transport};
use packet::checksum::Sum;
use packet::header::chain::place_for_esp;
use packet::header::esp::{NEXT_NONE, TRAILER};
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, TCP, UDP};
use packet::header::tcp::TcpHeader;
use packet::header::udp::UdpHeader;
use packet::{Batch, DropCounters, DropReason};
use std::net::IpAddr;
use std::ops::Range;
use zerocopy::IntoBytes;

/// Removes the IP header; returns the protocol of the rest.
pub(super) fn take_header(batch: &mut Batch, index: usize) -> u8 {
    let packet = batch.packet(index);
    let (header, total, protocol) = match IpPacket::parse(packet) {
        Ok(IpPacket::V4(header, bytes)) => (header.length(), bytes.len(), header.protocol),
        Ok(IpPacket::V6(header, bytes)) => (Ipv6Header::LENGTH, bytes.len(), header.next_header),
        // The data path drops such packets before; the receiver would take this one for a dummy.
        Err(_) => return NEXT_NONE,
    };
    batch.shrink(index, header, total - header);
    protocol
}

/// Removes the IP header, and the extension headers before the place of ESP; returns the protocol of the rest.
pub(super) fn take_headers(batch: &mut Batch, index: usize) -> u8 {
    let Ok(ip) = IpPacket::parse(batch.packet(index)) else { return NEXT_NONE };
    // The caller has kept the headers, and has dropped packets without such a place.
    let Ok(place) = place_for_esp(&ip) else { return NEXT_NONE };
    let total = ip.bytes().len();
    batch.shrink(index, place.offset, total - place.offset);
    place.protocol
}

impl SaKeys {
    /// Strips opened packets to the next header and the payload; returns whether there was one.
    pub(super) fn strip_to_next_header(
        &self,
        batch: &mut Batch,
        packets: Range<usize>,
        drops: &DropCounters,
    ) -> bool {
        let mut any = false;
        for index in packets {
            if !batch.is_live(index) {
                continue;
            }
            match self.decapsulate(batch, index) {
                Ok(Inner::Payload { next_header, .. }) => {
                    batch.grow(index, 1, 0);
                    batch.packet_mut(index)[0] = next_header;
                    any = true;
                }
                Ok(Inner::Dummy) => {
                    batch.drop_packet(index, DropReason::Dummy, drops);
                }
                Err(reason) => {
                    batch.drop_packet(index, reason, drops);
                }
            }
        }
        any
    }

    /// Strips opened packets, and adds IP headers; returns whether there was a packet.
    pub(super) fn rebuild(
        &self,
        batch: &mut Batch,
        packets: &mut Range<usize>,
        outer: &Outer<'_>,
        drops: &DropCounters,
    ) -> bool {
        let (transport, layout) = (outer.addresses(), self.layout);
        let header = if transport.remote.is_ipv4() { Ipv4Header::LENGTH } else { Ipv6Header::LENGTH };
        // What ESP leaves free before and behind the payload is often enough for the header.
        let fits = layout.header() + TRAILER + layout.tag >= header;
        let first_copy = batch.len();
        let mut any = false;
        for index in packets.clone() {
            if !batch.is_live(index) {
                continue;
            }
            let copies = batch.len();
            let rebuilt = self.decapsulate(batch, index).and_then(|inner| {
                let Inner::Payload { next_header, length } = inner else { return Err(DropReason::Dummy) };
                let packet = if fits {
                    make_room(batch, index, layout.header(), header)
                } else {
                    batch.append_copy(index, header).ok_or(DropReason::Truncated)?
                };
                write(packet, length, header, next_header, outer.ds_field, &transport)
            });
            match rebuilt {
                Ok(()) => any = true,
                Err(reason) => {
                    batch.drop_packet(index, reason, drops);
                    if batch.len() > copies {
                        batch.discard(copies);
                    }
                }
            }
        }
        if !fits {
            packets.clone().for_each(|index| batch.discard(index));
            *packets = first_copy..batch.len();
        }
        any
    }
}

/// Makes room for the header in what was before and behind the payload.
fn make_room(batch: &mut Batch, index: usize, before: usize, header: usize) -> &mut [u8] {
    let length = batch.packet(index).len();
    let before = before.min(header);
    batch.grow(index, before, header - before);
    let packet = batch.packet_mut(index);
    packet.copy_within(before..before + length, header);
    packet
}

/// Writes the IP header, and corrects the checksum behind it if addresses were translated.
fn write(
    packet: &mut [u8],
    length: usize,
    header: usize,
    next_header: u8,
    ds_field: u8,
    transport: &Transport,
) -> Result<(), DropReason> {
    let total = header + length;
    let (room, payload) = packet.split_at_mut(header);
    match (transport.remote, transport.local) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let mut ip = Ipv4Header {
                ds_field,
                fragment: Ipv4Header::DONT_FRAGMENT.into(),
                ..Ipv4Header::new(
                    next_header,
                    source.octets(),
                    destination.octets(),
                    u16::try_from(total).map_err(|_| DropReason::Malformed)?,
                )
            };
            ip.finish();
            room.copy_from_slice(ip.as_bytes());
            let pseudo = Sum::pseudo_v4(source, destination, next_header, length);
            correct(payload, next_header, pseudo, transport.translated);
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ip = Ipv6Header::new(
                next_header,
                source.octets(),
                destination.octets(),
                u16::try_from(length).map_err(|_| DropReason::Malformed)?,
            )
            .with_ds_field(ds_field);
            room.copy_from_slice(ip.as_bytes());
            let pseudo = Sum::pseudo_v6(source, destination, next_header, length);
            correct(payload, next_header, pseudo, transport.translated);
        }
        _ => return Err(DropReason::Malformed),
    }
    Ok(())
}

/// RFC 3948 section 3.1.2: the sender's checksum is over its own addresses. The tag has proved the payload intact, so
/// that the checksum may be computed again.
fn correct(payload: &mut [u8], protocol: u8, pseudo: Sum, translated: bool) {
    let offset = match protocol {
        _ if !translated => return,
        TCP => TcpHeader::CHECKSUM,
        UDP => UdpHeader::CHECKSUM,
        _ => return,
    };
    let Some(field) = payload.get(offset..offset + 2) else { return };
    if protocol == UDP && field == [0; 2] {
        return;
    }
    payload[offset..offset + 2].fill(0);
    let mut checksum = (pseudo + Sum::of(payload)).checksum();
    if protocol == UDP && checksum == [0; 2] {
        checksum = [0xff; 2];
    }
    payload[offset..offset + 2].copy_from_slice(&checksum);
}
