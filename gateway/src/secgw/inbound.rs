//! From unprotected ports: ESP is told from clear packets, and both are held against the inbound policies.

use super::leaving::Leaving;
use super::policies::Recent;
use super::tables::SecgwTables;
use crate::datapath::SaBatch;
use config::secgw::settings::Action;
use packet::header::esp::{ESP, HEADER};
use packet::header::ip::{IpPacket, Ipv6Header};
use packet::{Batch, DropCounters, DropReason, Endpoint, Train};
use std::net::SocketAddr;

/// Makes trains of ESP packets, cut to what follows the IP header. Clear packets that may pass are added to `leaving`.
pub fn split(
    batch: &mut Batch,
    tables: &SecgwTables,
    recent: &mut Recent,
    drops: &DropCounters,
    trains: &mut Vec<Train>,
    leaving: &mut Leaving,
) {
    trains.clear();
    for index in 0..batch.len() {
        if !batch.is_live(index) {
            continue;
        }
        match sort(batch.packet(index), tables, recent) {
            Ok(Sorted::Clear) => leaving.add(index),
            Ok(Sorted::Esp { header, length, endpoint, ds_field }) => {
                batch.shrink(index, header, length);
                match trains.last_mut() {
                    Some(last)
                        if last.packets.end == index
                            && last.endpoint == Some(endpoint)
                            && last.ds_field == ds_field =>
                    {
                        last.packets.end += 1;
                    }
                    _ => trains.push(Train { packets: index..index + 1, endpoint: Some(endpoint), ds_field }),
                }
            }
            Err(reason) => {
                drops.count(reason, 1);
                batch.discard(index);
            }
        }
    }
    batch.set_trains(trains.drain(..));
}

/// A packet from an unprotected port.
enum Sorted {
    /// It passes as it is.
    Clear,
    /// ESP behind an IP header.
    Esp { header: usize, length: usize, endpoint: Endpoint, ds_field: u8 },
}

#[inline]
fn sort(packet: &[u8], tables: &SecgwTables, recent: &mut Recent) -> Result<Sorted, DropReason> {
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
    let (protocol, header, is_fragment) = match &ip {
        IpPacket::V4(header, _) => (header.protocol, header.length(), header.is_fragment()),
        IpPacket::V6(header, _) => (header.next_header, Ipv6Header::LENGTH, false),
    };
    if protocol != ESP {
        return match recent.verdict(&tables.policies_in, &ip).action {
            Some(Action::Bypass) => Ok(Sorted::Clear),
            // RFC 4301 section 5.2: it should have come under an SA.
            Some(Action::Protect(_) | Action::Discard) | None => Err(DropReason::Denied),
        };
    }
    if is_fragment {
        return Err(DropReason::Fragmented);
    }
    let length = ip.bytes().len() - header;
    let spi = packet[header..].first_chunk::<4>();
    match spi {
        _ if length < HEADER => Err(DropReason::TooShort),
        // RFC 4303 section 2.1. It marks messages of IKE in UDP.
        Some([0, 0, 0, 0]) => Err(DropReason::UnknownSa),
        _ => {
            let remote = SocketAddr::new(ip.source(), 0);
            let endpoint = Endpoint { local: Some(ip.destination()), ..Endpoint::new(remote) };
            Ok(Sorted::Esp { header, length, endpoint, ds_field: ip.ds_field() })
        }
    }
}

/// Drops packets whose outer addresses are not those of their SA.
pub fn check_addresses(batch: &mut Batch, drops: &DropCounters, sa_batches: &mut Vec<SaBatch>) {
    sa_batches.retain(|sa_batch| {
        let is_right = sa_batch.session.peer.endpoint.load().as_deref() == Some(&sa_batch.endpoint);
        if !is_right {
            drops.count(DropReason::UnknownSa, batch.live(sa_batch.packets.clone()).count());
            sa_batch.packets.clone().for_each(|index| batch.discard(index));
        }
        is_right
    });
}

/// Drops decrypted packets unless a policy names the SA that they came under; the others are added to `leaving`.
pub fn admit(
    batch: &mut Batch,
    tables: &SecgwTables,
    recent: &mut Recent,
    drops: &DropCounters,
    sa_batches: &[SaBatch],
    leaving: &mut Leaving,
) {
    for sa_batch in sa_batches {
        let spi = sa_batch.session.sa.index;
        for index in sa_batch.packets.clone() {
            if !batch.is_live(index) {
                continue;
            }
            match allowed(batch.packet(index), spi, tables, recent) {
                Ok(()) => leaving.add(index),
                Err(reason) => {
                    drops.count(reason, 1);
                    batch.discard(index);
                }
            }
        }
    }
}

#[inline]
fn allowed(packet: &[u8], spi: u32, tables: &SecgwTables, recent: &mut Recent) -> Result<(), DropReason> {
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
    let verdict = recent.verdict(&tables.policies_in, &ip);
    match verdict.action {
        Some(Action::Protect(named)) if named == spi => Ok(()),
        // Without any policy for its family, a packet passes.
        Some(Action::Bypass) if verdict.is_default() => Ok(()),
        _ => Err(DropReason::ForeignSource),
    }
}
