//! How large packets may be outside: what the kernel knows of the way to a peer.

use super::super::super::connections::Child;
use super::super::super::network::MARK;
use super::Children;
use crate::control::netlink::Netlink;
use crate::tables::Peer;
use std::sync::atomic::Ordering;

/// Keeps in mind what the way to a peer carries. Who has said what fits is believed, and gets fragments outside.
pub(super) fn measure(netlink: &mut Netlink, plan: &Child, peer: &Peer) {
    if plan.mtu.is_some() {
        return;
    }
    let (Some(tunnel), Some(endpoint)) = (peer.tunnel(), peer.endpoint.load_full()) else { return };
    let outside = netlink.outside(endpoint.remote.ip(), MARK).ok();
    let mtu = outside.and_then(|outside| outside.mtu).map_or(usize::MAX, |mtu| mtu as usize);
    tunnel.path_mtu.store(mtu, Ordering::Relaxed);
}

impl Children {
    /// Looks anew what the ways to all peers carry.
    pub(in super::super) fn measure_all(&self) {
        let Ok(mut netlink) = Netlink::open() else { return };
        for tunnel in self.connections.values().flat_map(|connected| &connected.tunnels) {
            measure(&mut netlink, &tunnel.plan, &tunnel.peer);
        }
    }
}
