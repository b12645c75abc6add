//! Outbound: finds the peer, and a key for it.

use super::{Classified, Notice, Routed, Stage};
use crate::tables::{Peer, Tables};
use crossbeam_channel::Sender;
use packet::header::icmp::{self, IcmpError};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::ops::Range;
use std::sync::Arc;
use tunnel::Time;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "route",
    does: "finds the peer by the longest prefix; without a key the packets wait and one is asked for",
    drops: &[DropReason::NoRoute, DropReason::NoEndpoint, DropReason::NoKey],
};

/// What this stage asks of others.
pub struct Router<'a> {
    /// Where it looks.
    pub tables: &'a Tables,
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
        let routes = self.tables.routes.load();
        for Classified { packets, destination, ds_field } in classified.drain(..) {
            let Some(peer) = routes.lookup(destination) else {
                self.refuse(batch, packets, DropReason::NoRoute);
                continue;
            };
            if let Some(last) = routed.last_mut()
                && Arc::ptr_eq(&last.peer, peer)
                && last.ds_field == ds_field
                && last.packets.end == packets.start
            {
                last.packets.end = packets.end;
            } else if peer.endpoint.load().is_none() {
                self.refuse(batch, packets, DropReason::NoEndpoint);
            } else if let Some(sa) = peer.key(now) {
                routed.push(Routed { packets, peer: Arc::clone(peer), sa, ds_field, is_data: true });
            } else {
                self.stage(batch, packets, peer);
            }
        }
    }

    fn stage(&self, batch: &Batch, packets: Range<usize>, peer: &Peer) {
        let (first, dropped) = self.tables.stage(peer, packets.map(|index| batch.packet(index)));
        self.drops.count(DropReason::NoKey, dropped);
        if first {
            // The lane outlives the workers; if it did not, there would be nobody to make keys.
            let _ = self.notices.send(Notice::NoKey(peer.id));
        }
    }

    /// Drops a train and tells its sender, once.
    fn refuse(&mut self, batch: &Batch, packets: Range<usize>, reason: DropReason) {
        self.drops.count(reason, packets.len());
        if let Ok(ip) = IpPacket::parse(batch.packet(packets.start)) {
            self.answers.extend(icmp::answer(&ip, IcmpError::HostUnreachable));
        }
    }
}
