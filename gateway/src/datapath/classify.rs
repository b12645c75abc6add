//! Both directions: determines the type of each packet.

use super::held::Held;
use super::protocol::{PacketType, Reader, Wire};
use super::punt::Punt;
use super::tables::{Session, Tables};
use super::{Classified, SaBatch, Stage};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason, Endpoint};
use std::ops::Range;

/// See [`Stage`].
pub const OUTBOUND: Stage = Stage {
    name: "classify",
    does: "reads the inner IP header, once a train",
    drops: &[DropReason::Malformed],
};

/// See [`Stage`].
pub const INBOUND: Stage = Stage {
    name: "classify",
    does: "tells data from handshakes, and finds the session by its receiver index or SPI",
    drops: &[DropReason::NotOurs, DropReason::TooShort, DropReason::UnknownSa],
};

/// Outbound: reads the IP header of each train's first packet; the others have the same addresses.
pub fn outbound(batch: &mut Batch, drops: &DropCounters, classified: &mut Vec<Classified>) {
    classified.clear();
    for train in 0..batch.trains().len() {
        let packets = batch.trains()[train].packets.clone();
        if let Ok(ip) = IpPacket::parse(batch.packet(packets.start)) {
            let (destination, ds_field) = (ip.destination(), ip.ds_field());
            classified.push(Classified { packets, destination, ds_field });
        } else {
            drops.count(DropReason::Malformed, packets.len());
            batch.note_drops_of(packets, DropReason::Malformed);
        }
    }
}

/// Inbound: forms SA batches of packets with the same receiver index or SPI; handshake messages go to the handshake
/// thread.
///
/// `lent` knows sessions that the burst need not share with its tables; the others are those of `tables`.
pub fn inbound<'t>(
    batch: &mut Batch,
    tables: &Tables,
    lent: impl Fn(u32) -> Option<&'t Session>,
    punt: &Punt,
    drops: &DropCounters,
    sa_batches: &mut Vec<SaBatch<'t>>,
) {
    sa_batches.clear();
    tables.protocol.read(Finder { batch, tables, lent, punt, drops, sa_batches });
}

/// The context of inbound classification.
struct Finder<'a, 't, L> {
    batch: &'a mut Batch,
    tables: &'a Tables,
    lent: L,
    punt: &'a Punt,
    drops: &'a DropCounters,
    sa_batches: &'a mut Vec<SaBatch<'t>>,
}

impl<'t, L: Fn(u32) -> Option<&'t Session>> Reader for Finder<'_, 't, L> {
    fn read<W: Wire>(self) {
        let Self { batch, tables, lent, punt, drops, sa_batches } = self;
        // The number of the last SA batch: a look at its session would wait for memory.
        let mut last = None;
        for train in 0..batch.trains().len() {
            let (packets, endpoint, ds_field) = {
                let train = &batch.trains()[train];
                (train.packets.clone(), train.endpoint, train.ds_field)
            };
            let Some(endpoint) = endpoint else {
                // Of an address family without a socket: it could not be answered.
                discard(batch, packets, DropReason::NotOurs, drops);
                continue;
            };
            let mut start = packets.start;
            while start < packets.end {
                if !batch.is_live(start) {
                    start += 1;
                    continue;
                }
                let range = same_session::<W>(batch, start..packets.end);
                start = range.end;
                match W::type_of(batch.packet(range.start)) {
                    Ok(PacketType::Data(index)) => {
                        let is_same = last == Some(index);
                        last = Some(index);
                        if !(is_same && join(sa_batches, &range, endpoint, ds_field)) {
                            let session = lent(index).map(Held::Lent);
                            if let Some(session) = session.or_else(|| tables.session(index).map(Held::Shared))
                            {
                                sa_batches.push(SaBatch { packets: range, session, endpoint, ds_field });
                            } else if let Some(sa_batch) =
                                keep(batch, tables, range, index, (endpoint, ds_field), drops)
                            {
                                sa_batches.push(sa_batch);
                            }
                        }
                    }
                    Ok(PacketType::Handshake) => {
                        for index in range {
                            if let Err(reason) = punt.punt(endpoint, W::handshake(batch.packet(index)), drops)
                            {
                                batch.note_drop(index, reason);
                            }
                            batch.discard(index);
                        }
                    }
                    Ok(PacketType::NatKeepalive) => range.for_each(|index| batch.discard(index)),
                    Err(reason) => discard(batch, range, reason, drops),
                }
            }
        }
    }
}

/// Queues packets of an expected SPI until its SA is installed; if the SA was just installed, they become an SA
/// batch.
#[cold]
fn keep(
    batch: &mut Batch,
    tables: &Tables,
    packets: Range<usize>,
    spi: u32,
    (endpoint, ds_field): (Endpoint, u8),
    drops: &DropCounters,
) -> Option<SaBatch<'static>> {
    let kept = tables.pre_sa.keep(spi, packets.clone().map(|index| batch.packet(index)), endpoint, ds_field);
    let (waiting, rest) = (packets.start..packets.start + kept, packets.start + kept..packets.end);
    waiting.for_each(|index| batch.discard(index));
    if rest.is_empty() {
        return None;
    }
    let Some(session) = tables.session(spi) else {
        discard(batch, rest, DropReason::UnknownSa, drops);
        return None;
    };
    Some(SaBatch { packets: rest, session: session.into(), endpoint, ds_field })
}

/// Adds packets to the last SA batch, which has their index, if they belong to it.
#[inline]
fn join(sa_batches: &mut [SaBatch<'_>], range: &Range<usize>, endpoint: Endpoint, ds_field: u8) -> bool {
    if let Some(last) = sa_batches.last_mut()
        && last.packets.end == range.start
        && (last.endpoint, last.ds_field) == (endpoint, ds_field)
    {
        last.packets.end = range.end;
        return true;
    }
    false
}

/// The longest prefix of `packets` that belongs to the same session and has no packet too short for data.
#[inline]
fn same_session<W: Wire>(batch: &Batch, packets: Range<usize>) -> Range<usize> {
    let first = batch.packet(packets.start);
    let same = |index: &usize| {
        let datagram = batch.packet(*index);
        W::is_same(first, datagram) && datagram.len() >= W::SHORTEST
    };
    let count = (packets.start + 1..packets.end).take_while(same).count();
    packets.start..packets.start + 1 + count
}

fn discard(batch: &mut Batch, packets: Range<usize>, reason: DropReason, drops: &DropCounters) {
    drops.count(reason, packets.len());
    batch.note_drops_of(packets.clone(), reason);
    for index in packets {
        batch.discard(index);
    }
}

impl SaBatch<'_> {
    pub(super) fn session(&self) -> &Session {
        &self.session
    }
}
