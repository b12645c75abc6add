//! From protected ports: the outbound policies, and the outer header behind encryption.

use super::leaving::Leaving;
use super::policies::Recent;
use super::tables::SecgwTables;
use crate::datapath::{Assigned, Routed};
use config::secgw::settings::Action;
use packet::header::esp::ESP;
use packet::header::flow::Upper;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header};
use packet::{Batch, DropCounters, DropReason};
use std::net::IpAddr;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// TTL and hop limit of outer headers.
const TTL: u8 = 64;

/// Groups packets by SA, as the outbound policies say; packets that pass in clear are added to `leaving`.
pub fn protect(
    batch: &mut Batch,
    tables: &SecgwTables,
    recent: &mut Recent,
    drops: &DropCounters,
    routed: &mut Vec<Routed>,
    leaving: &mut Leaving,
) {
    routed.clear();
    for index in 0..batch.len() {
        if !batch.is_live(index) {
            continue;
        }
        let decided = decide(batch.packet(index), tables, recent);
        match decided {
            Ok((None, _)) => leaving.add(index),
            Ok((Some(spi), ds_field)) => match routed.last_mut() {
                Some(last)
                    if last.packets.end == index && last.sa.receiver == spi && last.ds_field == ds_field =>
                {
                    last.packets.end += 1;
                }
                _ => match tables.outbound.get(&spi) {
                    Some((peer, sa)) => routed.push(Routed {
                        packets: index..index + 1,
                        peer: Arc::clone(peer),
                        sa: Arc::clone(sa),
                        ds_field,
                        is_data: true,
                    }),
                    None => drops.count(DropReason::NoKey, 1),
                },
            },
            Err(reason) => drops.count(reason, 1),
        }
    }
}

/// The SPI that a packet leaves under, or none for one that leaves as it is; and its DS field.
#[inline]
fn decide(packet: &[u8], tables: &SecgwTables, recent: &mut Recent) -> Result<(Option<u32>, u8), DropReason> {
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
    // ESP from a protected port could pass for a packet of ours.
    if Upper::of(&ip).protocol == ESP {
        return Err(DropReason::Denied);
    }
    match recent.verdict(&tables.policies_out, &ip).action {
        Some(Action::Protect(spi)) => Ok((Some(spi), ip.ds_field())),
        Some(Action::Bypass) => Ok((None, 0)),
        Some(Action::Discard) | None => Err(DropReason::Denied),
    }
}

/// Puts the outer header before each encrypted packet.
pub fn wrap(batch: &mut Batch, assigned: &[Assigned], leaving: &mut Leaving) {
    for Assigned { fitted, first_sequence } in assigned {
        let remote = fitted.endpoint.remote.ip();
        let Some(local) = fitted.endpoint.local else { continue };
        for (index, sequence) in fitted.packets.clone().zip(*first_sequence..) {
            let length = batch.packet(index).len();
            match (local, remote) {
                (IpAddr::V4(source), IpAddr::V4(destination)) => {
                    let mut header = Ipv4Header {
                        version_ihl: 0x45,
                        ds_field: fitted.ds_field,
                        total_length: ((Ipv4Header::LENGTH + length) as u16).into(),
                        // RFC 6864: unique, as routers on the way may fragment the packet.
                        identification: (sequence as u16).into(),
                        fragment: 0.into(),
                        ttl: TTL,
                        protocol: ESP,
                        checksum: [0; 2],
                        source: source.octets(),
                        destination: destination.octets(),
                    };
                    header.finish();
                    prepend(batch, index, header.as_bytes());
                }
                (IpAddr::V6(source), IpAddr::V6(destination)) => {
                    let class = u32::from(fitted.ds_field) << 20;
                    let header = Ipv6Header {
                        version_class_flow: (0x6000_0000 | class).into(),
                        payload_length: (length as u16).into(),
                        next_header: ESP,
                        hop_limit: TTL,
                        source: source.octets(),
                        destination: destination.octets(),
                    };
                    prepend(batch, index, header.as_bytes());
                }
                // The reader takes both addresses of one family.
                _ => batch.discard(index),
            }
        }
        leaving.extend(fitted.packets.clone());
    }
}

#[inline]
fn prepend(batch: &mut Batch, index: usize, header: &[u8]) {
    batch.grow(index, header.len(), 0);
    batch.packet_mut(index)[..header.len()].copy_from_slice(header);
}
