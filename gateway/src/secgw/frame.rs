//! Ethernet headers: taken off received frames, and put on packets that leave.

use packet::header::ethernet::{EthernetHeader, IPV4, IPV6, SERVICE_VLAN, SHORTEST, VLAN};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use zerocopy::{FromBytes, IntoBytes};

/// An Ethernet address.
pub type Address = [u8; 6];

/// Cuts each frame to its IP packet. Drops frames without IP, those with a VLAN tag, and those for other stations unless `station` is none. An IP packet for
/// one host that is sent to many stations is not forwarded (RFC 1812 section 5.3.4): each gateway of the link would send a copy.
pub fn strip(batch: &mut Batch, station: Option<Address>, drops: &DropCounters) {
    for index in 0..batch.len() {
        if !batch.is_live(index) {
            continue;
        }
        match payload(batch.packet(index), station) {
            Ok(length) => batch.shrink(index, EthernetHeader::LENGTH, length),
            Err(reason) => {
                drops.count(reason, 1);
                batch.discard(index);
            }
        }
    }
}

/// The length of the IP packet in a frame. What follows it is padding.
#[inline]
fn payload(frame: &[u8], station: Option<Address>) -> Result<usize, DropReason> {
    let (header, rest) = EthernetHeader::ref_from_prefix(frame).map_err(|_| DropReason::TooShort)?;
    let is_group = header.destination[0] & 1 == 1;
    if !is_group && station.is_some_and(|station| station != header.destination) {
        return Err(DropReason::OtherStation);
    }
    let ip = match header.ether_type.get() {
        IPV4 | IPV6 => IpPacket::parse(rest).map_err(|_| DropReason::Malformed)?,
        VLAN | SERVICE_VLAN => return Err(DropReason::VlanTag),
        _ => return Err(DropReason::NotIp),
    };
    let is_v4 = matches!(ip, IpPacket::V4(..));
    if is_v4 != (header.ether_type.get() == IPV4) {
        return Err(DropReason::Malformed);
    }
    if is_group && station.is_some() && !ip.destination().is_multicast() {
        return Err(DropReason::OtherStation);
    }
    Ok(ip.bytes().len())
}

/// Puts the Ethernet header on packet `index`, and padding behind a short one.
#[inline]
pub fn wrap(batch: &mut Batch, index: usize, source: Address, destination: Address) {
    let packet = batch.packet(index);
    let ether_type = if packet[0] >> 4 == 4 { IPV4 } else { IPV6 };
    let length = EthernetHeader::LENGTH + packet.len();
    let padding = SHORTEST.saturating_sub(length);
    batch.grow(index, EthernetHeader::LENGTH, padding);
    let frame = batch.packet_mut(index);
    let header = EthernetHeader { destination, source, ether_type: ether_type.into() };
    frame[..EthernetHeader::LENGTH].copy_from_slice(header.as_bytes());
    frame[length..].fill(0);
}
