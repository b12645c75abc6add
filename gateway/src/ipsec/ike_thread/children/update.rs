//! A peer whose configuration changes while it is connected.

use super::{Carried, Children, traffic};
use crate::ipsec::connections::Plan;
use std::collections::BTreeMap;
use std::sync::Arc;
use tunnel::ikev2::{Connection, ConnectionId};

impl Children {
    /// Where each tunnel of a connection would be under another plan of it; none for those that would be for other packets, or
    /// carried in another way.
    pub(in crate::ipsec::ike_thread) fn places(
        &self,
        id: ConnectionId,
        plan: &Plan,
    ) -> Option<Vec<Option<usize>>> {
        let connected = self.connections.get(&id)?;
        let is_same = |(before, tunnel): (usize, &Carried), after: usize| {
            let mode = |settings: &Connection, child: usize| settings.children[child].mode;
            let (old, new) = (&tunnel.plan, &plan.children[after]);
            (old.tunnel, old.mtu) == (new.tunnel, new.mtu)
                && tunnel.configured == traffic(&plan.connection, after)
                && mode(&connected.settings, before) == mode(&plan.connection, after)
        };
        let place = |tunnel| (0..plan.children.len()).find(|&after| is_same(tunnel, after));
        Some(connected.tunnels.iter().enumerate().map(place).collect())
    }

    /// Puts a connection under another plan, whose tunnels are where [`places`](Self::places) says. The caller then
    /// stores the policies.
    pub(in crate::ipsec::ike_thread) fn update(
        &mut self,
        id: ConnectionId,
        plan: &Plan,
        places: &[Option<usize>],
    ) {
        let Some(connected) = self.connections.get_mut(&id) else { return };
        let (name, is_of_instance) = (connected.name.clone(), connected.profile.is_some());
        let mut kept: BTreeMap<usize, Carried> = BTreeMap::new();
        for (tunnel, place) in std::mem::take(&mut connected.tunnels).into_iter().zip(places) {
            let Some(place) = place else {
                self.names.remove(&tunnel.peer.id);
                self.published.remove(tunnel.peer.id);
                continue;
            };
            kept.insert(*place, tunnel);
        }
        let settings = Arc::clone(&plan.connection);
        let mut tunnels = Vec::new();
        for (child, plan) in plan.children.iter().cloned().enumerate() {
            let Some(tunnel) = kept.remove(&child) else {
                tunnels.push(self.carry((id, child), &name, &settings, plan, is_of_instance));
                continue;
            };
            self.names.insert(tunnel.peer.id, (id, child));
            self.owners.extend(tunnel.sas.iter().map(|sa| (sa.spi, (id, child))));
            tunnels.push(Carried { plan, ..tunnel });
        }
        if let Some(connected) = self.connections.get_mut(&id) {
            let (before, after) = (connected.settings.remote, settings.remote);
            (connected.settings, connected.names, connected.tunnels) =
                (settings, plan.names.clone(), tunnels);
            self.leave(id, before);
            self.enter(id, after);
            self.set_policies(id);
        }
    }
}
