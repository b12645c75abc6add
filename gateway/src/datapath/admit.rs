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
    drops: &[DropReason::ForeignSource, DropReason::Malformed],
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
            let Ok(ip) = IpPacket::parse(batch.packet(index)) else {
                // Accept lets none of these pass; should it ever, this is no way around the check.
                drops.count(DropReason::Malformed, 1);
                batch.discard(index);
                continue;
            };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{Bed, INDEX};
    use crypto::engine::aws_lc::AwsLc;
    use packet::Endpoint;

    #[test]
    fn what_has_no_source_is_nobodys() {
        let bed = Bed::new(&AwsLc).expect("the engine has the cipher");
        let mut batch = Batch::new(4096);
        batch.append(40).expect("it fits").fill(0x11);
        let session = bed.tables.session(INDEX).expect("the bed has one");
        let endpoint = Endpoint::new("192.0.2.1:5".parse().expect("literal"));
        admit(&mut batch, &bed.tables, &bed.drops, &[Run { packets: 0..1, session, endpoint, ds_field: 0 }]);
        assert!(!batch.is_live(0));
        assert_eq!(bed.dropped(), [(DropReason::Malformed, 1)]);
    }
}
