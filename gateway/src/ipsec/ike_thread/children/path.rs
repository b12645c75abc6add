//! The largest outer packet: the path MTU to a peer, from the kernel.

use super::{Carried, Children};
use crate::host::netlink::Netlink;
use crate::host::networks::MARK;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// The path MTU to each peer, by the kernel's routes.
#[derive(Default)]
pub(super) struct PathMtuCache {
    /// Opened with the first request.
    netlink: Option<Netlink>,
    /// The MTUs of links, by their numbers: thousands of peers are behind a few.
    links: HashMap<u32, u32>,
}

impl PathMtuCache {
    /// Stores the path MTU to a tunnel's peer, unless it is known. A configured mtu takes precedence: outer packets may then
    /// be fragmented.
    pub(super) fn measure(&mut self, carried: &mut Carried) {
        let (Some(tunnel), Some(endpoint)) = (carried.peer.tunnel(), carried.peer.endpoint.load()) else {
            return;
        };
        let remote = endpoint.remote.ip();
        if carried.plan.mtu.is_some() || carried.measured == Some(remote) {
            return;
        }
        let mtu = self.mtu(remote);
        // Without a route the kernel is asked again.
        carried.measured = mtu.is_some().then_some(remote);
        tunnel.path_mtu.store(mtu.map_or(usize::MAX, |mtu| mtu as usize), Ordering::Relaxed);
    }

    /// The path MTU to an address; `None` without a route.
    fn mtu(&mut self, remote: IpAddr) -> Option<u32> {
        if self.netlink.is_none() {
            self.netlink = Netlink::open().ok();
        }
        let netlink = self.netlink.as_mut()?;
        let outside = netlink.outside(remote, MARK).ok()?;
        if let Some(mtu) = outside.mtu {
            return Some(mtu);
        }
        let index = outside.index?;
        if let Some(mtu) = self.links.get(&index) {
            return Some(*mtu);
        }
        let mtu = netlink.link_mtu(index).ok()?;
        self.links.insert(index, mtu);
        Some(mtu)
    }
}

impl Children {
    /// Asks the kernel again for the path MTU to every peer.
    pub(in crate::ipsec::ike_thread) fn measure_all(&mut self) {
        self.path_mtus.links.clear();
        for tunnel in self.connections.values_mut().flat_map(|connected| &mut connected.tunnels) {
            tunnel.measured = None;
            self.path_mtus.measure(tunnel);
        }
    }
}
