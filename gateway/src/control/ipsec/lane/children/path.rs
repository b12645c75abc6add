//! How large packets may be outside: what the kernel knows of the way to a peer.

use super::super::super::network::MARK;
use super::{Carried, Children};
use crate::control::netlink::Netlink;
use std::sync::atomic::Ordering;

/// Keeps in mind what the way to a tunnel's peer carries, if that was not asked before. Who has said what fits is believed,
/// and gets fragments outside.
pub(super) fn measure(netlink: &mut Option<Netlink>, carried: &mut Carried) {
    let (Some(tunnel), Some(endpoint)) = (carried.peer.tunnel(), carried.peer.endpoint.load_full()) else {
        return;
    };
    let remote = endpoint.remote.ip();
    if carried.plan.mtu.is_some() || carried.measured == Some(remote) {
        return;
    }
    if netlink.is_none() {
        *netlink = Netlink::open().ok();
    }
    let outside = netlink.as_mut().and_then(|netlink| netlink.outside(remote, MARK).ok());
    // Without a route it is asked again.
    carried.measured = outside.is_some().then_some(remote);
    let mtu = outside.and_then(|outside| outside.mtu).map_or(usize::MAX, |mtu| mtu as usize);
    tunnel.path_mtu.store(mtu, Ordering::Relaxed);
}

impl Children {
    /// Looks anew what the ways to all peers carry.
    pub(in super::super) fn measure_all(&mut self) {
        for tunnel in self.connections.values_mut().flat_map(|connected| &mut connected.tunnels) {
            tunnel.measured = None;
            measure(&mut self.netlink, tunnel);
        }
    }
}
