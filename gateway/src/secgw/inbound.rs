//! From unprotected ports: ESP is told from clear packets, and both are held against the inbound policies.

use super::headers::Headers;
use super::leaving::Leaving;
use super::policies::Verdicts;
use super::tables::SecgwTables;
use crate::datapath::SaBatch;
use crate::datapath::punt::Punt;
use crate::datapath::tables::Session;
use config::secgw::settings::Action;
use packet::header::chain::{Place, find, find_esp};
use packet::header::esp::{ESP, HEADER, UDP_PORT};
use packet::header::flow::{Flow, Upper};
use packet::header::ip::{IpPacket, Ipv6Header, UDP, ecn};
use packet::header::udp::UdpHeader;
use packet::{Batch, DropCounters, DropReason, Endpoint, Train};
use std::net::SocketAddr;
use tunnel::ikev2::limits::{IKE_PORT, NAT_PORT};

/// What decides about packets that arrive.
pub struct Arrivals<'a> {
    /// Policies, and our addresses for IKE.
    pub tables: &'a SecgwTables,
    /// The verdicts about known flows.
    pub verdicts: &'a mut Verdicts,
    /// Where messages of IKE go.
    pub initial: &'a Punt,
}

/// Makes trains of ESP packets, cut to what follows the IP header, and of what is for UDP port 4500 of IKE, cut to what follows that of
/// UDP. Clear packets that may pass are added to `leaving`, and those for UDP port 500 of IKE go to IKE.
pub fn split(
    batch: &mut Batch,
    arrivals: &mut Arrivals<'_>,
    drops: &DropCounters,
    trains: &mut Vec<Train>,
    headers: &mut Headers,
    leaving: &mut Leaving,
) {
    trains.clear();
    for index in 0..batch.len() {
        if !batch.is_live(index) {
            continue;
        }
        let Ok(ip) = IpPacket::parse(batch.packet(index)) else {
            drops.count(DropReason::Malformed, 1);
            batch.discard(index);
            continue;
        };
        match sort(&ip, arrivals.tables, arrivals.verdicts) {
            Ok(Sorted::Clear) => leaving.add(index),
            Ok(Sorted::Ike { offset, endpoint }) => {
                let _ = arrivals.initial.punt(endpoint, &ip.bytes()[offset..], drops);
                batch.discard(index);
            }
            Ok(Sorted::Esp { place, start, port, ds_field }) => {
                if arrivals.tables.modes.has_transport_in {
                    headers.keep(index, batch.packet(index), place);
                }
                let length = ip.bytes().len() - start;
                match trains.last_mut() {
                    Some(last) if last.packets.end == index && goes_on(last, &ip, port, ds_field) => {
                        last.packets.end += 1;
                    }
                    _ => {
                        let endpoint = Some(endpoint(&ip, port));
                        trains.push(Train { packets: index..index + 1, endpoint, ds_field });
                    }
                }
                batch.shrink(index, start, length);
            }
            Err(reason) => {
                drops.count(reason, 1);
                batch.discard(index);
            }
        }
    }
    arrivals.verdicts.count(&arrivals.tables.policies_in);
    batch.set_trains(trains.drain(..));
}

/// A packet from an unprotected port.
enum Sorted {
    /// It passes as it is.
    Clear,
    /// A message of IKE behind a UDP header.
    Ike { offset: usize, endpoint: Endpoint },
    /// ESP behind an IP header, or behind UDP from this port.
    Esp { place: Place, start: usize, port: u16, ds_field: u8 },
}

/// Whether a train has come the way of this packet.
#[inline]
fn goes_on(train: &Train, ip: &IpPacket<'_>, port: u16, ds_field: u8) -> bool {
    // Field by field: an endpoint that is made for each packet, to be compared, costs as much as the rest of this stage.
    train.endpoint.as_ref().is_some_and(|last| {
        last.remote.port() == port && last.remote.ip() == ip.source() && last.local == Some(ip.destination())
    }) && train.ds_field == ds_field
}

/// Where a packet of ESP came from.
fn endpoint(ip: &IpPacket<'_>, port: u16) -> Endpoint {
    Endpoint { local: Some(ip.destination()), ..Endpoint::new(SocketAddr::new(ip.source(), port)) }
}

#[inline]
fn sort(ip: &IpPacket<'_>, tables: &SecgwTables, verdicts: &mut Verdicts) -> Result<Sorted, DropReason> {
    if tables.ike_addresses.contains(&ip.destination())
        && let Some(sorted) = for_ike(ip)
    {
        return sorted;
    }
    if let Some(place) = find_esp(ip) {
        return esp(ip, place, place.offset, 0);
    }
    let upper = Upper::of(ip);
    // RFC 4303 section 3.4.1: ESP is not opened before its fragments are one packet.
    if upper.protocol == ESP {
        return Err(DropReason::Fragmented);
    }
    if tables.modes.has_udp_in()
        && !upper.is_fragment
        && let Some(place) = find(ip, UDP)
        && tables.modes.is_esp(&ip.bytes()[place.offset..])
    {
        // A NAT may have changed the source port.
        return esp(ip, place, place.offset + UdpHeader::LENGTH, UDP_PORT);
    }
    if tables.modes.single.is_some() {
        return Err(DropReason::Denied);
    }
    match verdicts.verdict(&tables.policies_in, ip).action {
        Some(Action::Bypass) => Ok(Sorted::Clear),
        // RFC 4301 section 5.2: it should have come under an SA.
        Some(Action::Protect(_) | Action::Ike(_) | Action::Discard) | None => Err(DropReason::Denied),
    }
}

/// ESP that starts here.
#[inline]
fn esp(ip: &IpPacket<'_>, place: Place, start: usize, port: u16) -> Result<Sorted, DropReason> {
    if matches!(ip, IpPacket::V4(header, _) if header.is_fragment()) {
        return Err(DropReason::Fragmented);
    }
    let length = ip.bytes().len() - start;
    let spi = ip.bytes()[start..].first_chunk::<4>();
    match spi {
        _ if length < HEADER => Err(DropReason::TooShort),
        // RFC 4303 section 2.1. It marks messages of IKE in UDP.
        Some([0, 0, 0, 0]) => Err(DropReason::UnknownSa),
        _ => {
            // As in ipsec-secgw, and RFC 4301 section 5.1.2.1, no mark but CE is carried inside; RFC 6040 carries ECT(1) too.
            let is_congested = ip.ds_field() & ecn::MASK == ecn::CE;
            let ds_field = ip.ds_field() & if is_congested { u8::MAX } else { !ecn::MASK };
            Ok(Sorted::Esp { place, start, port, ds_field })
        }
    }
}

/// What is for a port of IKE. The checksum of UDP is not checked: both IKE and ESP authenticate their packets.
#[cold]
fn for_ike(ip: &IpPacket<'_>) -> Option<Result<Sorted, DropReason>> {
    let (protocol, header, is_fragment) = match ip {
        IpPacket::V4(header, _) => (header.protocol, header.length(), header.is_fragment()),
        IpPacket::V6(header, _) => (header.next_header, Ipv6Header::LENGTH, false),
    };
    if protocol != UDP || is_fragment {
        return None;
    }
    let Ok(udp) = UdpHeader::parse(&ip.bytes()[header..]) else { return Some(Err(DropReason::Malformed)) };
    let port = udp.source.get();
    let offset = header + UdpHeader::LENGTH;
    let length = ip.bytes().len() - offset;
    match udp.destination.get() {
        IKE_PORT => Some(Ok(Sorted::Ike { offset, endpoint: endpoint(ip, port) })),
        NAT_PORT if length == 0 => Some(Err(DropReason::TooShort)),
        NAT_PORT => {
            // IKE agrees on tunnel mode only, which needs no header again.
            let place = Place { offset, field: 0, protocol: ESP };
            Some(Ok(Sorted::Esp { place, start: offset, port, ds_field: ip.ds_field() }))
        }
        _ => None,
    }
}

/// Drops packets whose outer addresses are not those of their SA. In transport mode an SA has none: policies check those of packets.
/// IKE follows peers of its SAs that move.
pub fn check_addresses(batch: &mut Batch, drops: &DropCounters, sa_batches: &mut Vec<SaBatch<'_>>) {
    sa_batches.retain_mut(|sa_batch| {
        if sa_batch.session.selectors.is_some() {
            return true;
        }
        let of_sa = &sa_batch.session.peer.endpoint;
        if sa_batch.session.sa.protection.is_transport()
            && let Some(of_sa) = of_sa.load()
            && of_sa.remote.port() == sa_batch.endpoint.remote.port()
        {
            // No address is one that the peer has moved to.
            sa_batch.endpoint = of_sa;
        }
        let is_right = of_sa.is(&sa_batch.endpoint);
        if !is_right {
            drops.count(DropReason::UnknownSa, batch.live(sa_batch.packets.clone()).count());
            sa_batch.packets.clone().for_each(|index| batch.discard(index));
        }
        is_right
    });
}

/// Puts the IP headers back before opened packets of transport mode.
pub fn restore(batch: &mut Batch, headers: &Headers, drops: &DropCounters, sa_batches: &[SaBatch<'_>]) {
    for sa_batch in sa_batches {
        if !sa_batch.session.sa.protection.is_transport() {
            continue;
        }
        let drops = sa_batch.session.peer.drops(drops);
        for index in sa_batch.packets.clone() {
            let &[next_header, ..] = batch.packet(index) else { continue };
            let length = batch.packet(index).len() - 1;
            batch.shrink(index, 1, length);
            if let Err(reason) = headers.put_back(batch, index, next_header) {
                drops.count(reason, 1);
                batch.discard(index);
            }
        }
    }
}

/// Drops decrypted packets unless a policy names the SA that they came under; the others are added to `leaving`.
pub fn admit(
    batch: &mut Batch,
    tables: &SecgwTables,
    verdicts: &mut Verdicts,
    drops: &DropCounters,
    sa_batches: &[SaBatch<'_>],
    leaving: &mut Leaving,
) {
    for sa_batch in sa_batches {
        let drops = sa_batch.session.peer.drops(drops);
        for index in sa_batch.packets.clone() {
            if !batch.is_live(index) {
                continue;
            }
            match allowed(batch.packet(index), &sa_batch.session, tables, verdicts) {
                Ok(()) => leaving.add(index),
                Err(reason) => {
                    drops.count(reason, 1);
                    batch.discard(index);
                }
            }
        }
    }
    verdicts.count(&tables.policies_in);
}

#[inline]
fn allowed(
    packet: &[u8],
    session: &Session,
    tables: &SecgwTables,
    verdicts: &mut Verdicts,
) -> Result<(), DropReason> {
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
    // RFC 4301 section 5.2, step 4: the packet must match what IKE has agreed on.
    if session.selectors.as_ref().is_some_and(|selectors| !selectors.match_inbound(&Flow::of(&ip))) {
        return Err(DropReason::ForeignSource);
    }
    if tables.modes.single.is_some() {
        return Ok(());
    }
    let verdict = verdicts.verdict(&tables.policies_in, &ip);
    match verdict.action {
        Some(Action::Protect(named)) if named == session.sa.index && session.selectors.is_none() => Ok(()),
        Some(Action::Ike(peer)) if session.peer.tunnel().is_some_and(|it| it.ike_peer == peer + 1) => Ok(()),
        // Without any policy for its family, a packet passes.
        Some(Action::Bypass) if verdict.is_default() => Ok(()),
        _ => Err(DropReason::ForeignSource),
    }
}
