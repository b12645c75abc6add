//! Inbound: the last change to a packet before it leaves.

use super::{SaBatch, Stage};
use packet::header::ip::{IpPacket, ecn, set_ecn};
use packet::{Batch, DropCounters, DropReason};

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "forward",
    does: "carries congestion marks inside (RFC 6040)",
    drops: &[DropReason::EcnNotCapable],
};

/// Combines the ECN field of the outer header with that of each inner one.
pub fn forward(batch: &mut Batch, drops: &DropCounters, sa_batches: &[SaBatch<'_>]) {
    for sa_batch in sa_batches {
        // Without a mark outside, the inner field stays as it is (RFC 6040, figure 4, first columns).
        if !matches!(sa_batch.ds_field & ecn::MASK, ecn::CE | ecn::ECT_1) {
            continue;
        }
        let drops = sa_batch.session().peer.drops(drops);
        for index in sa_batch.packets.clone() {
            if !batch.is_live(index) {
                continue;
            }
            let Ok(inner) = IpPacket::parse(batch.packet(index)).map(|ip| ip.ds_field()) else { continue };
            match ecn::decapsulate(inner, sa_batch.ds_field) {
                Some(field) if field == inner & ecn::MASK => {}
                Some(field) => set_ecn(batch.packet_mut(index), field).expect("it was parsed above"),
                None => {
                    batch.drop_packet(index, DropReason::EcnNotCapable, drops);
                }
            }
        }
    }
}
