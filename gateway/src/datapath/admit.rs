//! Inbound: checks that the sending peer may send the inner packet.

use super::tables::{Peer, Tables};
use super::{SaBatch, Stage};
use packet::header::flow::Flow;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::sync::Arc;
use tunnel::esp::Selectors;
use tunnel::wireguard::AllowedIps;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "admit",
    does: "the inner packet must lead back to the sending peer, or be one that its SA is for",
    drops: &[DropReason::ForeignSource, DropReason::Malformed],
};

/// Drops every packet that its sender may not send.
pub fn admit(batch: &mut Batch, tables: &Tables, drops: &DropCounters, sa_batches: &[SaBatch]) {
    let routes = tables.routes.load();
    for sa_batch in sa_batches {
        match &sa_batch.session().selectors {
            None => admit_sources(batch, &routes, drops, sa_batch),
            Some(selectors) => admit_flows(batch, selectors, drops, sa_batch),
        }
    }
}

/// Cryptokey routing (whitepaper, section 2): the source address must belong to the sending peer.
fn admit_sources(
    batch: &mut Batch,
    routes: &AllowedIps<Arc<Peer>>,
    drops: &DropCounters,
    sa_batch: &SaBatch,
) {
    // Consecutive packets mostly belong to one flow.
    let mut admitted = None;
    for index in sa_batch.packets.clone() {
        if !batch.is_live(index) {
            continue;
        }
        let Ok(ip) = IpPacket::parse(batch.packet(index)) else {
            // The stage accept drops such packets; the check must hold even if one arrives here.
            drops.count(DropReason::Malformed, 1);
            batch.discard(index);
            continue;
        };
        let source = ip.source();
        if admitted == Some(source) {
            continue;
        }
        if routes.lookup(source).is_some_and(|peer| Arc::ptr_eq(peer, &sa_batch.session().peer)) {
            admitted = Some(source);
        } else {
            drops.count(DropReason::ForeignSource, 1);
            batch.discard(index);
        }
    }
}

/// RFC 4301 section 5.2, step 4: the packet must match the selectors of the SA that it arrived under.
fn admit_flows(batch: &mut Batch, selectors: &Selectors, drops: &DropCounters, sa_batch: &SaBatch) {
    // Consecutive packets mostly belong to one flow.
    let mut admitted = None;
    for index in sa_batch.packets.clone() {
        if !batch.is_live(index) {
            continue;
        }
        let Ok(flow) = Flow::parse(batch.packet(index)) else {
            drops.count(DropReason::Malformed, 1);
            batch.discard(index);
            continue;
        };
        if admitted == Some(flow) {
            continue;
        }
        if selectors.match_inbound(&flow) {
            admitted = Some(flow);
        } else {
            drops.count(DropReason::ForeignSource, 1);
            batch.discard(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{Bed, INDEX};
    use crypto::engine::aws_lc::AwsLc;
    use packet::Endpoint;

    #[test]
    fn a_packet_without_a_source_is_dropped() {
        let bed = Bed::new(&AwsLc).expect("the engine has the cipher");
        let mut batch = Batch::new(4096);
        batch.append(40).expect("it fits").fill(0x11);
        let session = bed.tables.session(INDEX).expect("the bed has one");
        let endpoint = Endpoint::new("192.0.2.1:5".parse().expect("literal"));
        admit(
            &mut batch,
            &bed.tables,
            &bed.drops,
            &[SaBatch { packets: 0..1, session, endpoint, ds_field: 0 }],
        );
        assert!(!batch.is_live(0));
        assert_eq!(bed.dropped(), [(DropReason::Malformed, 1)]);
    }
}
