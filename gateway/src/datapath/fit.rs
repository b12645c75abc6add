//! Outbound: makes packets fit into the tunnel.

use super::icmp_errors::IcmpErrors;
use super::protocol::Room;
use super::tables::Inside;
use super::{Fitted, Routed, Stage};
use packet::header::flow::Upper;
use packet::header::icmp::IcmpError;
use packet::header::ip::{IpPacket, Ipv4Header, Ipv6Header};
use packet::header::tcp::{self, TcpHeader};
use packet::{Batch, DropCounters, DropReason, PackedEndpoint};
use std::sync::atomic::Ordering;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "fit",
    does: "carries ECN outside (RFC 6040); answers packets larger than the tunnel carries; clamps MSS: ESP, OpenVPN, or where set; \
           drops what a congested link would lose",
    drops: &[
        DropReason::TooBig,
        DropReason::NoEndpoint,
        DropReason::PeerCongested,
        DropReason::Malformed,
        DropReason::Fragmented,
    ],
};

/// RFC 8200 section 5: the minimum MTU of IPv6.
const SMALLEST_V6: usize = 1280;

/// Selects the outer DS field and the path, and drops packets that the tunnel cannot carry. `is_full` tells of an endpoint whether packets to
/// it would be lost now: sealing them would cost the other peers their share of the processor.
pub fn fit<'t>(
    batch: &mut Batch,
    inside: Inside,
    drops: &DropCounters,
    errors: &mut IcmpErrors,
    is_full: impl Fn(&PackedEndpoint) -> bool,
    routed: &mut Vec<Routed<'t>>,
    fitted: &mut Vec<Fitted<'t>>,
) {
    fitted.clear();
    let clamps_all = inside.segment_sizes != [0; 2];
    for Routed { packets, peer, sa, ds_field, is_data } in routed.drain(..) {
        let drops = peer.drops(drops);
        let Some(endpoint) = peer.endpoint.load_packed() else {
            drops.count(DropReason::NoEndpoint, packets.len());
            batch.note_drops_of(packets, DropReason::NoEndpoint);
            continue;
        };
        if is_full(&endpoint) {
            drops.count(DropReason::PeerCongested, packets.len());
            batch.note_drops_of(packets.clone(), DropReason::PeerCongested);
            peer.unsent.fetch_add(packets.len() as u64, Ordering::Relaxed);
            continue;
        }
        let room = peer.state.room(&sa.protection, &endpoint);
        let ds_field = ds_field & room.ds_mask;
        // The MSS is clamped because ICMP too-big errors are often filtered.
        let fits = room.fitting.min(inside.mtu);
        if room.clamps_mss || room.fitting < inside.mtu {
            packets.clone().for_each(|index| _ = tcp::clamp_mss(batch.packet_mut(index), fits));
        }
        if clamps_all {
            packets.clone().for_each(|index| clamp(batch.packet_mut(index), inside.segment_sizes, fits));
        }
        // An SA batch has packets of many senders: only the packet that does not fit is dropped, not those around it.
        let mut rest = packets.clone();
        for index in packets {
            let Err(reason) = room.check(batch.packet(index), inside.cuts_v6) else { continue };
            drops.count(reason, 1);
            batch.note_drop(index, reason);
            if reason == DropReason::TooBig
                && let Ok(ip) = IpPacket::parse(batch.packet(index))
            {
                errors.add(&ip, IcmpError::TooBig { mtu: room.answer(&ip) });
            }
            let before = rest.start..index;
            rest.start = index + 1;
            if !before.is_empty() {
                let (peer, sa) = (peer.clone(), sa.clone());
                fitted.push(Fitted { packets: before, peer, sa, endpoint, ds_field, is_data });
            }
        }
        if !rest.is_empty() {
            fitted.push(Fitted { packets: rest, peer, sa, endpoint, ds_field, is_data });
        }
    }
}

/// Lowers the announced MSS of a packet to the configured value for its IP version, and to the size that fits.
#[cold]
fn clamp(packet: &mut [u8], [v4, v6]: [u16; 2], fits: usize) {
    let (size, ip) = match packet.first().map(|first| first >> 4) {
        Some(6) => (v6, Ipv6Header::LENGTH),
        _ => (v4, Ipv4Header::LENGTH),
    };
    if size > 0 {
        tcp::clamp_mss(packet, fits.min(ip + TcpHeader::LENGTH + usize::from(size)));
    }
}

impl Room {
    #[inline]
    fn check(&self, packet: &[u8], cuts_v6: bool) -> Result<(), DropReason> {
        if packet.len() > self.usual && (packet.len() > self.largest || is_answered(packet, cuts_v6)) {
            return Err(DropReason::TooBig);
        }
        if self.whole { check_whole(packet) } else { Ok(()) }
    }

    /// The MTU that an ICMP error reports to the sender of a packet that is too big.
    fn answer(&self, packet: &IpPacket<'_>) -> u32 {
        let smallest = if matches!(packet, IpPacket::V6(..)) { SMALLEST_V6 } else { 0 };
        self.usual.max(smallest) as u32
    }
}

/// Whether a packet above the usual size must not be fragmented, so that its sender gets an error.
fn is_answered(packet: &[u8], cuts_v6: bool) -> bool {
    match IpPacket::parse(packet) {
        Ok(IpPacket::V4(header, _)) => header.fragment.get() & Ipv4Header::DONT_FRAGMENT != 0,
        Ok(IpPacket::V6(_, bytes)) => bytes.len() > SMALLEST_V6 && !cuts_v6,
        Err(_) => true,
    }
}

/// RFC 4301 section 7: transport mode SAs carry no fragments.
fn check_whole(packet: &[u8]) -> Result<(), DropReason> {
    let ip = IpPacket::parse(packet).map_err(|_| DropReason::Malformed)?;
    if Upper::of(&ip).is_fragment { Err(DropReason::Fragmented) } else { Ok(()) }
}
