//! Inbound: packets from one client of a server to another leave by the outside again (`client-to-client`), without the inside
//! interface.
//!
//! They are copied to a batch of their own, which has room for headers, and take the way of outbound packets from `fit` on.

use super::egress::Egress;
use super::icmp_errors::IcmpErrors;
use super::tables::{Peer, Tables};
use super::{Routed, Stage};
use packet::header::ip::IpPacket;
use packet::{Batch, DropCounters, DropReason};
use port::Transmit;
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::Time;

/// See [`Stage`].
pub const STAGE: Stage = Stage {
    name: "relay",
    does: "OpenVPN's client-to-client: seals packets for another client, and sends them outside",
    drops: &[DropReason::NoKey],
};

/// Bytes that are sealed at once.
const BATCH_BYTES: usize = 512 * 1024;

/// The way from one client to another.
pub struct Relay<T> {
    egress: Egress<T>,
    batch: Batch,
    routed: Vec<Routed<'static>>,
}

impl<T: Transmit> Relay<T> {
    /// Sends by `egress`.
    pub fn new(egress: Egress<T>) -> Self {
        Self { egress, batch: Batch::new(BATCH_BYTES), routed: Vec::new() }
    }

    /// Takes the packets for other clients out of `batch`. Those for the server itself go inside.
    pub fn relay(&mut self, batch: &mut Batch, tables: &Tables, now: Time, drops: &DropCounters) {
        let Some(own) = tables.relayed_beside.get() else { return };
        let routes = tables.routes.load();
        // Consecutive packets mostly have one destination.
        let mut last: Option<(IpAddr, Option<Arc<Peer>>)> = None;
        for index in 0..batch.len() {
            if !batch.is_live(index) {
                continue;
            }
            let Some(destination) = destination(batch.packet(index)) else { continue };
            if last.as_ref().is_none_or(|(known, _)| *known != destination) {
                let is_own = destination.is_multicast() || own.contains(&destination);
                // Only clients that are connected have routes.
                let peer = (!is_own).then(|| routes.lookup(destination).cloned()).flatten();
                last = Some((destination, peer));
            }
            let Some((_, Some(peer))) = &last else { continue };
            if !self.append(batch.packet(index), peer, now) {
                drops.count(DropReason::NoKey, 1);
                batch.note_drop(index, DropReason::NoKey);
            }
            batch.discard(index);
        }
        self.send(now);
    }

    /// Adds a packet for a client; false if the client has no key.
    fn append(&mut self, packet: &[u8], peer: &Arc<Peer>, now: Time) -> bool {
        if self.batch.free() < Batch::footprint(packet.len()) {
            self.send(now);
        }
        let index = self.batch.len();
        let is_joined = self.routed.last().is_some_and(|last| last.peer.is(peer));
        if !is_joined {
            let Some(sa) = peer.key(now) else { return false };
            let (peer, sa) = (Arc::clone(peer).into(), sa.into());
            self.routed.push(Routed { packets: index..index, peer, sa, ds_field: 0, is_data: true });
        }
        self.batch.append(packet.len()).expect("there is room").copy_from_slice(packet);
        if let Some(last) = self.routed.last_mut() {
            last.packets.end = index + 1;
        }
        true
    }

    fn send(&mut self, now: Time) {
        if !self.batch.is_empty() {
            self.egress.send(&mut self.batch, now, &mut self.routed, &mut IcmpErrors::none(), &mut ());
            self.batch.clear();
        }
        self.routed.clear();
    }
}

#[inline]
fn destination(packet: &[u8]) -> Option<IpAddr> {
    Some(match IpPacket::parse(packet).ok()? {
        IpPacket::V4(header, _) => IpAddr::from(header.destination),
        IpPacket::V6(header, _) => IpAddr::from(header.destination),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::Ends;
    use crate::clock::Clock;
    use crate::datapath::protocol::{Link, PeerState};
    use crate::datapath::staging::Budget;
    use crate::datapath::worker::Shared;
    use crossbeam_channel::unbounded;
    use crypto::engine::aws_lc::AwsLc;
    use packet::Endpoint;
    use port::memory;
    use std::net::Ipv4Addr;
    use tunnel::PeerId;
    use tunnel::sa::Lifetime;
    use tunnel::wireguard::AllowedIps;

    const LIFETIME: Lifetime = Lifetime {
        renew: None,
        renew_sequence: u64::MAX,
        expires: Time::from_nanoseconds(u64::MAX),
        end_sequence: u64::MAX,
    };

    fn packet_to(destination: [u8; 4], length: usize) -> Vec<u8> {
        let mut packet = vec![0x5a; length];
        packet[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0]);
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[12..16].copy_from_slice(&[10, 8, 0, 3]);
        packet[16..20].copy_from_slice(&destination);
        packet
    }

    #[test]
    fn what_is_for_another_client_leaves_sealed_and_the_rest_goes_inside() {
        let ends = Ends::openvpn(&AwsLc, LIFETIME, true, None).expect("the engine has the cipher");
        let (tables, peer) = ends.parts();
        let without_key = Link::new(Arc::default(), true, None);
        let without_key =
            Arc::new(Peer::new(PeerId::new(2), PeerState::OpenVpn(without_key), Budget::default()));
        let endpoint = Endpoint::new("192.0.2.9:1194".parse().expect("literal"));
        without_key.endpoint.store(Some(endpoint));
        let mut routes = AllowedIps::default();
        routes.insert("10.8.0.2/32".parse().expect("literal"), Arc::clone(&peer));
        routes.insert("10.71.0.0/16".parse().expect("literal"), Arc::clone(&peer));
        routes.insert("10.8.0.4/32".parse().expect("literal"), without_key);
        tables.routes.store(Arc::new(routes));
        let (outside, drops) = (memory::Link::default(), Arc::new(DropCounters::default()));
        let (datapath_events, _events) = unbounded();
        let shared = Shared { tables: Arc::clone(&tables), datapath_events, clock: Clock };
        let mut relay = Relay::new(Egress::new(shared, outside.clone(), Arc::clone(&drops)));
        let mut batch = Batch::new(64 * 1024);
        tables.relayed_beside.set(vec![Ipv4Addr::new(10, 71, 0, 1).into()]).expect("not set");
        let destinations =
            [[10, 8, 0, 2], [10, 71, 9, 9], [10, 71, 0, 1], [10, 8, 0, 4], [10, 2, 0, 1], [224, 0, 0, 1]];
        for destination in destinations {
            let packet = packet_to(destination, 60);
            batch.append(packet.len()).expect("it fits").copy_from_slice(&packet);
        }
        relay.relay(&mut batch, &tables, Time::from_nanoseconds(1), &drops);
        let left: Vec<bool> = (0..destinations.len()).map(|index| batch.is_live(index)).collect();
        assert_eq!(left, [false, false, true, false, true, true]);
        assert_eq!(drops.read(DropReason::NoKey), 1);
        // Header, number and tag of AES-GCM, and another text than before.
        let sent: Vec<Vec<u8>> = std::iter::from_fn(|| outside.pop()).collect();
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [84, 84]);
        assert!(sent.iter().all(|datagram| !datagram.windows(8).any(|part| part == [0x5a; 8])));
        assert_eq!((peer.sent.packets(), peer.sent.bytes()), (2, 168));
    }
}
