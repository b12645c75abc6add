//! From protected ports: the outbound policies, and the outer header behind encryption.

use super::acquire::Acquire;
use super::headers::Headers;
use super::leaving::Leaving;
use super::policies::Verdicts;
use super::tables::SecgwTables;
use crate::datapath::tables::Peer;
use crate::datapath::{Assigned, Fitted, Routed};
use config::secgw::settings::Action;
use packet::checksum::Sum;
use packet::header::chain::place_for_esp;
use packet::header::esp::{ESP, UDP_PORT};
use packet::header::flow::Upper;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header, UDP};
use packet::header::udp::UdpHeader;
use packet::{Batch, DropCounters, DropReason};
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::{OutboundSa, Time};
use zerocopy::IntoBytes;

/// What decides about packets that leave.
pub struct LookUp<'a, 't> {
    /// Policies and SAs.
    pub tables: &'t SecgwTables,
    /// The verdicts about known flows.
    pub verdicts: &'a mut Verdicts,
    /// The SAs of IKE.
    pub acquire: &'a mut Acquire,
    /// The time of the burst.
    pub now: Time,
}

/// Groups packets by SA, as the outbound policies say, or as IKE has agreed with the peer that they name; packets that pass in clear are
/// added to `leaving`. Those of SAs in transport mode leave their headers in `headers`.
pub fn protect<'t>(
    batch: &mut Batch,
    look_up: &mut LookUp<'_, 't>,
    drops: &DropCounters,
    routed: &mut Vec<Routed<'t>>,
    headers: &mut Headers,
    leaving: &mut Leaving,
) {
    routed.clear();
    // The SPI of the last SA batch, if its SA is of the file: a look at the SA itself would wait for memory.
    let mut last = None;
    for index in 0..batch.len() {
        if !batch.is_live(index) {
            continue;
        }
        let decided = decide(batch.packet(index), look_up);
        match decided {
            Ok((Way::Clear, _)) => leaving.add(index),
            Ok((Way::Negotiated(peer, sa), ds_field)) => {
                last = None;
                negotiated(index, peer, sa, ds_field, routed);
            }
            Ok((Way::Manual(spi), ds_field)) => {
                let is_joined = last == Some(spi);
                last = Some(spi);
                if let Err(reason) =
                    join(batch, index, (spi, is_joined), ds_field, look_up.tables, routed, headers)
                {
                    drops.count(reason, 1);
                }
            }
            Err(reason) => drops.count(reason, 1),
        }
    }
    look_up.verdicts.count(&look_up.tables.policies_out);
}

/// Adds a packet to the last SA batch if that is of the same SA and it follows, or else to a new one.
#[inline]
fn join<'t>(
    batch: &Batch,
    index: usize,
    (spi, is_same): (u32, bool),
    ds_field: u8,
    tables: &'t SecgwTables,
    routed: &mut Vec<Routed<'t>>,
    headers: &mut Headers,
) -> Result<(), DropReason> {
    match routed.last_mut() {
        Some(last) if is_same && last.packets.end == index && last.ds_field == ds_field => {
            if tables.modes.has_transport_out && last.sa.protection.is_transport() {
                keep(batch, index, headers)?;
            }
            last.packets.end += 1;
        }
        _ => {
            let (peer, sa) = tables.outbound.get(&spi).ok_or(DropReason::NoKey)?;
            if tables.modes.has_transport_out && sa.protection.is_transport() {
                keep(batch, index, headers)?;
            }
            let (peer, sa) = ((&**peer).into(), (&**sa).into());
            routed.push(Routed { packets: index..index + 1, peer, sa, ds_field, is_data: true });
        }
    }
    Ok(())
}

/// Keeps the headers of a packet for transport mode.
fn keep(batch: &Batch, index: usize, headers: &mut Headers) -> Result<(), DropReason> {
    let ip = IpPacket::parse(batch.packet(index)).map_err(|_| DropReason::Malformed)?;
    headers.keep(index, ip.bytes(), place_for_esp(&ip)?);
    Ok(())
}

/// How a packet leaves.
enum Way {
    /// As it is.
    Clear,
    /// Under the SA of a file.
    Manual(u32),
    /// Under an SA of IKE.
    Negotiated(Arc<Peer>, Arc<OutboundSa>),
}

/// Adds a packet to the last SA batch if it is under the same SA of IKE, or else to a new one.
#[inline]
fn negotiated(
    index: usize,
    peer: Arc<Peer>,
    sa: Arc<OutboundSa>,
    ds_field: u8,
    routed: &mut Vec<Routed<'_>>,
) {
    match routed.last_mut() {
        Some(last) if last.packets.end == index && last.sa.is(&sa) && last.ds_field == ds_field => {
            last.packets.end += 1;
        }
        _ => {
            let (peer, sa) = (peer.into(), sa.into());
            routed.push(Routed { packets: index..index + 1, peer, sa, ds_field, is_data: true });
        }
    }
}

/// How a packet leaves, and its DS field.
#[inline]
fn decide(packet: &[u8], look_up: &mut LookUp<'_, '_>) -> Result<(Way, u8), DropReason> {
    let LookUp { tables, verdicts, acquire, now } = look_up;
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
    // ESP from a protected port could pass for a packet of ours.
    if Upper::of(&ip).protocol == ESP {
        return Err(DropReason::Denied);
    }
    if let Some(spi) = tables.modes.single {
        return Ok((Way::Manual(spi), ip.ds_field()));
    }
    match verdicts.verdict(&tables.policies_out, &ip).action {
        Some(Action::Protect(spi)) => Ok((Way::Manual(spi), ip.ds_field())),
        Some(Action::Ike(number)) => {
            let (peer, sa) = acquire.sa_for(&ip, number, &tables.sessions, *now)?;
            Ok((Way::Negotiated(peer, sa), ip.ds_field()))
        }
        Some(Action::Bypass) => Ok((Way::Clear, 0)),
        Some(Action::Discard) | None => Err(DropReason::Denied),
    }
}

/// Puts the outer header before each encrypted packet, in transport mode its own.
pub fn wrap(
    batch: &mut Batch,
    assigned: &[Assigned<'_>],
    headers: &Headers,
    drops: &DropCounters,
    leaving: &mut Leaving,
) {
    for Assigned { fitted, first_sequence } in assigned {
        let drops = fitted.peer.drops(drops);
        let in_udp = fitted.endpoint.port() != 0;
        let protocol = if in_udp { UDP } else { ESP };
        if in_udp {
            for index in fitted.packets.clone() {
                let header = datagram(batch.packet(index), fitted.endpoint.port());
                prepend(batch, index, header.as_bytes());
            }
        }
        if fitted.sa.protection.is_transport() {
            for index in fitted.packets.clone() {
                if let Err(reason) = headers.put_back(batch, index, ESP) {
                    drops.count(reason, 1);
                    batch.discard(index);
                }
            }
        } else {
            wrap_in_tunnel(batch, fitted, *first_sequence, protocol);
        }
        leaving.extend(fitted.packets.clone());
    }
}

/// Puts the outer header of an SA before each of its packets.
fn wrap_in_tunnel(batch: &mut Batch, fitted: &Fitted<'_>, first_sequence: u64, protocol: u8) {
    let remote = fitted.endpoint.remote();
    let Some(local) = fitted.endpoint.local() else { return };
    for (index, sequence) in fitted.packets.clone().zip(first_sequence..) {
        let length = batch.packet(index).len();
        match (local, remote) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let total = (Ipv4Header::LENGTH + length) as u16;
                let mut header = Ipv4Header {
                    ds_field: fitted.ds_field,
                    // RFC 6864: unique, as routers on the way may fragment the packet.
                    identification: (sequence as u16).into(),
                    ..Ipv4Header::new(protocol, source.octets(), destination.octets(), total)
                };
                header.finish();
                prepend(batch, index, header.as_bytes());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                if protocol == UDP {
                    // RFC 8200 section 8.1: over IPv6, a datagram has a checksum.
                    let pseudo = Sum::pseudo_v6(source, destination, UDP, length);
                    fill_checksum(batch.packet_mut(index), pseudo);
                }
                let header = Ipv6Header::new(protocol, source.octets(), destination.octets(), length as u16)
                    .with_ds_field(fitted.ds_field);
                prepend(batch, index, header.as_bytes());
            }
            // The reader takes both addresses of one family.
            _ => batch.discard(index),
        }
    }
}

/// The UDP header of an ESP packet for this port, which a NAT may have chosen (RFC 3948 section 2.1). Over IPv4 it needs no checksum.
fn datagram(esp: &[u8], port: u16) -> UdpHeader {
    let length = ((UdpHeader::LENGTH + esp.len()) as u16).into();
    UdpHeader { source: UDP_PORT.into(), destination: port.into(), length, checksum: [0; 2] }
}

/// Sets the checksum of a datagram.
pub(super) fn fill_checksum(datagram: &mut [u8], pseudo: Sum) {
    let checksum = (pseudo + Sum::of(datagram)).checksum();
    // RFC 768: zero would mean none.
    let checksum = if checksum == [0; 2] { [0xff; 2] } else { checksum };
    datagram[UdpHeader::CHECKSUM..UdpHeader::LENGTH].copy_from_slice(&checksum);
}

#[inline]
fn prepend(batch: &mut Batch, index: usize, header: &[u8]) {
    batch.grow(index, header.len(), 0);
    batch.packet_mut(index)[..header.len()].copy_from_slice(header);
}
