//! Both directions: tells what a packet is.

use super::punt::Punt;
use super::{Classified, Run, Stage};
use crate::tables::{Session, Tables};
use packet::header::ip::IpPacket;
use packet::header::wireguard::{COOKIE_REPLY, DATA, DATA_OVERHEAD, INITIATION, RESPONSE};
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use std::sync::Arc;

/// See [`Stage`].
pub const OUTBOUND: Stage = Stage {
    name: "classify",
    does: "reads the inner IP header, once a train",
    drops: &[DropReason::Malformed],
};

/// See [`Stage`].
pub const INBOUND: Stage = Stage {
    name: "classify",
    does: "tells data from handshakes, and finds the session by its receiver index",
    drops: &[DropReason::NotOurs, DropReason::TooShort, DropReason::UnknownSa],
};

/// Outbound: reads the IP header of each train's first packet; the others have the same addresses.
pub fn outbound(batch: &Batch, drops: &DropCounters, classified: &mut Vec<Classified>) {
    classified.clear();
    for train in batch.trains() {
        let packets = train.packets.clone();
        match IpPacket::parse(batch.packet(packets.start)) {
            Ok(ip) => {
                classified.push(Classified {
                    packets,
                    destination: ip.destination(),
                    ds_field: ip.ds_field(),
                });
            }
            Err(_) => drops.count(DropReason::Malformed, packets.len()),
        }
    }
}

/// Inbound: finds runs of packets with the same receiver index; handshake messages leave for the lane.
pub fn inbound(batch: &mut Batch, tables: &Tables, punt: &Punt, drops: &DropCounters, runs: &mut Vec<Run>) {
    runs.clear();
    for train in 0..batch.trains().len() {
        let (packets, endpoint, ds_field) = {
            let train = &batch.trains()[train];
            (train.packets.clone(), train.endpoint, train.ds_field)
        };
        let Some(endpoint) = endpoint else {
            // Of an address family that none of our sockets has: there would be nobody to answer.
            discard(batch, packets, DropReason::NotOurs, drops);
            continue;
        };
        let mut start = packets.start;
        while start < packets.end {
            if !batch.is_live(start) {
                start += 1;
                continue;
            }
            let range = same_receiver(batch, start..packets.end);
            start = range.end;
            match kind_of(batch.packet(range.start)) {
                Ok(Kind::Data(index)) => {
                    if let Some(last) = runs.last_mut()
                        && last.packets.end == range.start
                        && last.session.sa.index == index
                        && (last.endpoint, last.ds_field) == (endpoint, ds_field)
                    {
                        last.packets.end = range.end;
                    } else if let Some(session) = tables.session(index) {
                        runs.push(Run { packets: range, session, endpoint, ds_field });
                    } else {
                        discard(batch, range, DropReason::UnknownSa, drops);
                    }
                }
                Ok(Kind::Handshake) => {
                    for index in range {
                        punt.punt(endpoint, batch.packet(index), drops);
                        batch.discard(index);
                    }
                }
                Err(reason) => discard(batch, range, reason, drops),
            }
        }
    }
}

/// What the first bytes of a datagram say.
enum Kind {
    /// Under this receiver index.
    Data(u32),
    Handshake,
}

#[inline]
fn kind_of(datagram: &[u8]) -> Result<Kind, DropReason> {
    let word = |at: usize| {
        let bytes = datagram.get(at..at + 4).ok_or(DropReason::TooShort)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    };
    match word(0)? {
        DATA if datagram.len() >= DATA_OVERHEAD => Ok(Kind::Data(word(4)?)),
        DATA => Err(DropReason::TooShort),
        INITIATION | RESPONSE | COOKIE_REPLY => Ok(Kind::Handshake),
        _ => Err(DropReason::NotOurs),
    }
}

/// The longest beginning of `packets` in which kind and receiver are the same, and no packet is too short for data.
#[inline]
fn same_receiver(batch: &Batch, packets: Range<usize>) -> Range<usize> {
    let first = batch.packet(packets.start).first_chunk::<8>();
    let same = |index: &usize| {
        let datagram = batch.packet(*index);
        first.is_some() && datagram.first_chunk() == first && datagram.len() >= DATA_OVERHEAD
    };
    let count = (packets.start + 1..packets.end).take_while(same).count();
    packets.start..packets.start + 1 + count
}

fn discard(batch: &mut Batch, packets: Range<usize>, reason: DropReason, drops: &DropCounters) {
    drops.count(reason, packets.len());
    for index in packets {
        batch.discard(index);
    }
}

impl Run {
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }
}
