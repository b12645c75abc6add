//! Inbound: the inner source must be the sending peer's own (cryptokey routing; whitepaper, section 2).

use super::{Run, Stage};
use crate::tables::Tables;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::sync::Arc;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "admit",
    does: "the inner source address must lead back to the sending peer",
    drops: &[DropReason::ForeignSource],
};

/// Drops every packet whose source address belongs to somebody else, or to nobody.
pub fn admit(batch: &mut Batch, tables: &Tables, drops: &DropCounters, runs: &[Run]) {
    let routes = tables.routes.load();
    for run in runs {
        // Neighbours are mostly of one flow.
        let mut admitted = None;
        for index in run.packets.clone() {
            if !batch.is_live(index) {
                continue;
            }
            let Ok(ip) = IpPacket::parse(batch.packet(index)) else { continue };
            let source = ip.source();
            if admitted == Some(source) {
                continue;
            }
            if routes.lookup(source).is_some_and(|peer| Arc::ptr_eq(peer, &run.session().peer)) {
                admitted = Some(source);
            } else {
                drops.count(DropReason::ForeignSource, 1);
                batch.discard(index);
            }
        }
    }
}
