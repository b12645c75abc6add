//! Outbound: makes the packets fit the tunnel.

use super::{Fitted, Routed, Stage};
use packet::header::icmp::{self, IcmpError};
use packet::header::ip::{IpPacket, Ipv4Header, MAXIMUM, ecn};
use packet::header::udp::UdpHeader;
use packet::header::wireguard::DATA_OVERHEAD;
use packet::{Batch, DropCounters, DropReason};
use std::sync::Arc;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "fit",
    does: "carries ECN outside (RFC 6040); answers packets larger than a datagram can be",
    drops: &[DropReason::TooBig, DropReason::NoEndpoint],
};

/// Chooses the outer DS field and the path, and drops what no datagram can hold.
///
/// The DSCP stays inside, as in other implementations: it would tell an observer what is carried.
pub fn fit(
    batch: &Batch,
    drops: &DropCounters,
    answers: &mut Vec<Vec<u8>>,
    routed: &mut Vec<Routed>,
    fitted: &mut Vec<Fitted>,
) {
    fitted.clear();
    for Routed { packets, peer, sa, ds_field, is_data } in routed.drain(..) {
        let Some(endpoint) = peer.endpoint.load().as_deref().copied() else {
            drops.count(DropReason::NoEndpoint, packets.len());
            continue;
        };
        let outer = if endpoint.remote.is_ipv4() { Ipv4Header::LENGTH } else { 0 };
        let largest = MAXIMUM - outer - UdpHeader::LENGTH - DATA_OVERHEAD;
        let ds_field = ds_field & ecn::MASK;
        // A run has packets of many senders: what is before and behind one that does not fit goes on its way.
        let mut rest = packets.clone();
        for index in packets.filter(|&index| batch.packet(index).len() > largest) {
            drops.count(DropReason::TooBig, 1);
            if let Ok(ip) = IpPacket::parse(batch.packet(index)) {
                answers.extend(icmp::answer(&ip, IcmpError::TooBig { mtu: largest as u32 }));
            }
            let before = rest.start..index;
            rest.start = index + 1;
            if !before.is_empty() {
                let (peer, sa) = (Arc::clone(&peer), Arc::clone(&sa));
                fitted.push(Fitted { packets: before, peer, sa, endpoint, ds_field, is_data });
            }
        }
        if !rest.is_empty() {
            fitted.push(Fitted { packets: rest, peer, sa, endpoint, ds_field, is_data });
        }
    }
}
