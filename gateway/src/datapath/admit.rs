//! Inbound: checks that the sending peer may send the inner packet.

use super::tables::{Session, Tables};
use super::{SaBatch, Stage};
use packet::header::flow::Flow;
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "admit",
    does: "the inner packet must lead back to the sending peer, or be one that its SA is for",
    drops: &[DropReason::ForeignSource, DropReason::Malformed],
};

/// Drops every packet that its sender may not send.
pub fn admit(batch: &mut Batch, tables: &Tables, drops: &DropCounters, sa_batches: &[SaBatch<'_>]) {
    let routes = tables.routes.load();
    for sa_batch in sa_batches {
        let Session { peer, selectors, .. } = sa_batch.session();
        let packets = sa_batch.packets.clone();
        match selectors {
            // Cryptokey routing (whitepaper, section 2): the source address must belong to the sending peer.
            None => {
                admit_each(batch, packets, drops, source, |&source| {
                    routes.lookup(source.address()).is_some_and(|found| Arc::ptr_eq(found, peer))
                });
            }
            // RFC 4301 section 5.2, step 4: the packet must match the selectors of the SA that it arrived under.
            Some(selectors) => {
                let flow = |packet: &[u8]| Flow::parse(packet).ok();
                admit_each(batch, packets, drops, flow, |flow| selectors.match_inbound(flow));
            }
        }
    }
}

/// A source address as a number, which is compared in registers: the bytes of an `IpAddr` go through the stack.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    V4(u32),
    V6(u128),
}

impl Source {
    fn address(self) -> IpAddr {
        match self {
            Self::V4(bits) => Ipv4Addr::from_bits(bits).into(),
            Self::V6(bits) => Ipv6Addr::from_bits(bits).into(),
        }
    }
}

/// The source address of a packet.
#[inline]
fn source(packet: &[u8]) -> Option<Source> {
    Some(match IpPacket::parse(packet).ok()? {
        IpPacket::V4(header, _) => Source::V4(u32::from_be_bytes(header.source)),
        IpPacket::V6(header, _) => Source::V6(u128::from_be_bytes(header.source)),
    })
}

/// Drops packets whose `key`, which is what decides, is not allowed.
fn admit_each<K: Copy + PartialEq>(
    batch: &mut Batch,
    packets: Range<usize>,
    drops: &DropCounters,
    key: impl Fn(&[u8]) -> Option<K>,
    is_allowed: impl Fn(&K) -> bool,
) {
    // Consecutive packets mostly belong to one flow.
    let mut admitted = None;
    for index in packets {
        if !batch.is_live(index) {
            continue;
        }
        let Some(key) = key(batch.packet(index)) else {
            // The stage accept drops such packets; the check must hold even if one arrives here.
            batch.drop_packet(index, DropReason::Malformed, drops);
            continue;
        };
        if admitted == Some(key) {
            continue;
        }
        if is_allowed(&key) {
            admitted = Some(key);
        } else {
            batch.drop_packet(index, DropReason::ForeignSource, drops);
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
            &[SaBatch { packets: 0..1, session: session.into(), endpoint, ds_field: 0 }],
        );
        assert!(!batch.is_live(0));
        assert_eq!(bed.dropped(), [(DropReason::Malformed, 1)]);
    }
}
