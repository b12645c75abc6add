//! Outbound: makes the packets fit the tunnel.

use super::{Fitted, Routed, Stage};
use packet::header::icmp::{self, IcmpError};
use packet::header::ip::{IpPacket, Ipv4Header, MAXIMUM, ecn};
use packet::header::udp::UdpHeader;
use packet::header::wireguard::DATA_OVERHEAD;
use packet::{Batch, DropCounters, DropReason};

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
        // Segments of a super-packet are no longer than its first; packets of other trains are at most this long.
        if packets.clone().any(|index| batch.packet(index).len() > largest) {
            drops.count(DropReason::TooBig, packets.len());
            if let Ok(ip) = IpPacket::parse(batch.packet(packets.start)) {
                answers.extend(icmp::answer(&ip, IcmpError::TooBig { mtu: largest as u32 }));
            }
            continue;
        }
        fitted.push(Fitted { packets, peer, sa, endpoint, ds_field: ds_field & ecn::MASK, is_data });
    }
}
