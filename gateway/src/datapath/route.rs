//! Outbound: finds the peer, and a key for it.

use super::{Classified, Notice, Routed, Stage};
use crate::tables::{Peer, Tables};
use crossbeam_channel::Sender;
use packet::header::icmp::{self, IcmpError};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use tunnel::Time;
use tunnel::wireguard::AllowedIps;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "route",
    does: "finds the peer by the longest prefix; without a key the packets wait and one is asked for",
    drops: &[DropReason::NoRoute, DropReason::NoEndpoint, DropReason::NoKey],
};

/// Destinations that are remembered.
const REMEMBERED: usize = 256;

/// The table of prefixes as it was at the last burst, and what was found in it: most packets go where others went.
pub struct Recent {
    table: Arc<AllowedIps<Arc<Peer>>>,
    found: Vec<Option<(IpAddr, Arc<Peer>)>>,
}

impl Default for Recent {
    fn default() -> Self {
        Self { table: Arc::default(), found: vec![None; REMEMBERED] }
    }
}

impl Recent {
    /// Forgets everything if the table was replaced.
    fn refresh(&mut self, tables: &Tables) {
        let now = tables.routes.load();
        if !Arc::ptr_eq(&now, &self.table) {
            self.table = Arc::clone(&now);
            self.found.fill(None);
        }
    }

    #[inline]
    fn lookup(&mut self, destination: IpAddr) -> Option<&Arc<Peer>> {
        let found = &mut self.found[slot(destination)];
        if found.as_ref().is_none_or(|(address, _)| *address != destination) {
            *found = Some((destination, Arc::clone(self.table.lookup(destination)?)));
        }
        found.as_ref().map(|(_, peer)| peer)
    }
}

/// Neighbours have different places.
#[inline]
fn slot(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) as u32
        }
    };
    (bits ^ bits >> 8 ^ bits >> 16 ^ bits >> 24) as usize % REMEMBERED
}

/// What this stage asks of others.
pub struct Router<'a> {
    /// Where it looks.
    pub tables: &'a Tables,
    /// Where it looks first.
    pub recent: &'a mut Recent,
    /// Whom it tells that a key is needed.
    pub notices: &'a Sender<Notice>,
    /// Where it counts.
    pub drops: &'a DropCounters,
    /// ICMP errors for the inside.
    pub answers: &'a mut Vec<Vec<u8>>,
}

impl Router<'_> {
    /// Finds the peer of each train; neighbours for the same peer become one.
    pub fn route(
        &mut self,
        batch: &Batch,
        now: Time,
        classified: &mut Vec<Classified>,
        routed: &mut Vec<Routed>,
    ) {
        routed.clear();
        let Self { tables, recent, notices, drops, answers } = self;
        recent.refresh(tables);
        for Classified { packets, destination, ds_field } in classified.drain(..) {
            let Some(peer) = recent.lookup(destination) else {
                refuse(batch, packets, DropReason::NoRoute, drops, answers);
                continue;
            };
            if let Some(last) = routed.last_mut()
                && Arc::ptr_eq(&last.peer, peer)
                && last.ds_field == ds_field
                && last.packets.end == packets.start
            {
                last.packets.end = packets.end;
            } else if peer.endpoint.load().is_none() {
                refuse(batch, packets, DropReason::NoEndpoint, drops, answers);
            } else if let Some(sa) = peer.key(now) {
                routed.push(Routed { packets, peer: Arc::clone(peer), sa, ds_field, is_data: true });
            } else {
                let (first, dropped) = peer.staging.stage(packets.map(|index| batch.packet(index)));
                drops.count(DropReason::NoKey, dropped);
                if first {
                    // The lane outlives the workers; if it did not, there would be nobody to make keys.
                    let _ = notices.send(Notice::NoKey(peer.id));
                }
            }
        }
    }
}

/// Drops a train and tells its sender, once.
fn refuse(
    batch: &Batch,
    packets: Range<usize>,
    reason: DropReason,
    drops: &DropCounters,
    answers: &mut Vec<Vec<u8>>,
) {
    drops.count(reason, packets.len());
    if let Ok(ip) = IpPacket::parse(batch.packet(packets.start)) {
        answers.extend(icmp::answer(&ip, IcmpError::HostUnreachable));
    }
}
