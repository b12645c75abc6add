//! Look-ups of peers, tunnels and SAs.

use super::{Children, Passed};
use crate::ipsec::connections::{Names, child_name};
use std::net::IpAddr;
use tunnel::PeerId;
use tunnel::ikev2::{Connection, ConnectionId};

impl Children {
    /// The traffic of each tunnel since the last call.
    pub(in crate::ipsec::ike_thread) fn passed(&mut self) -> Vec<Passed> {
        let mut passed = Vec::new();
        for connected in self.connections.values_mut() {
            let known = connected.sessions.newest().map(|it| it.endpoint.remote);
            for tunnel in &mut connected.tunnels {
                let peer = &tunnel.peer;
                let counted = [peer.received.packets(), peer.sent.packets()];
                let before = std::mem::replace(&mut tunnel.counted, counted);
                let Some(sa) = tunnel.sas.first().filter(|_| before != counted) else { continue };
                let [is_received, is_sent] = [counted[0] != before[0], counted[1] != before[1]];
                let endpoint = peer.endpoint.load();
                let followed = endpoint.filter(|_| is_received && peer.is_followed());
                let moved = followed.filter(|it| known.is_some_and(|known| known != it.remote));
                let strayed = peer.tunnel().and_then(|tunnel| tunnel.strayed.swap(None));
                let strayed = strayed.map(|from| from.remote);
                passed.push(Passed { spi: sa.spi, is_received, is_sent, moved, strayed });
            }
        }
        passed
    }

    /// Whether packets may pass.
    pub(in crate::ipsec::ike_thread) fn has_sas(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Whether there is no peer, nor a removed one that must still be told of its end.
    pub(in crate::ipsec::ike_thread) fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.past.is_empty()
    }

    pub(in crate::ipsec::ike_thread) fn connections(&self) -> Vec<ConnectionId> {
        self.connections.keys().copied().collect()
    }

    pub(in crate::ipsec::ike_thread) fn settings(&self, id: ConnectionId) -> Option<&Connection> {
        self.connections.get(&id).map(|it| &*it.settings)
    }

    /// Names in the configuration.
    pub(in crate::ipsec::ike_thread) fn names(&self, id: ConnectionId) -> Option<&Names> {
        self.connections.get(&id).map(|it| &it.names)
    }

    /// The peer or the instance with this name.
    pub(in crate::ipsec::ike_thread) fn called(&self, name: &str) -> Option<ConnectionId> {
        self.by_name(name).or_else(|| self.instances.get(name).copied())
    }

    /// The peer of the configuration with this name.
    pub(in crate::ipsec::ike_thread) fn by_name(&self, name: &str) -> Option<ConnectionId> {
        self.by_name.get(name).copied()
    }

    /// The peer with this address, if there is one that is not connected, and only one.
    pub(in crate::ipsec::ike_thread) fn only_at(&self, address: IpAddr) -> Option<ConnectionId> {
        let ids = self.by_remote.get(&address).filter(|ids| ids.len() == 1)?;
        ids.first().copied().filter(|id| !self.is_established(*id))
    }

    /// A peer with this address.
    pub(in crate::ipsec::ike_thread) fn at(&self, address: IpAddr) -> Option<ConnectionId> {
        self.by_remote.get(&address)?.first().copied()
    }

    pub(in crate::ipsec::ike_thread) fn is_established(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connected| connected.sessions.newest().is_some())
    }

    pub(in crate::ipsec::ike_thread) fn by_tunnel(&self, id: ConnectionId, number: u32) -> Option<usize> {
        self.connections.get(&id)?.tunnels.iter().position(|tunnel| tunnel.plan.tunnel == number)
    }

    pub(in crate::ipsec::ike_thread) fn named(&self, peer: PeerId) -> Option<(ConnectionId, usize)> {
        self.names.get(&peer).copied()
    }

    pub(in crate::ipsec::ike_thread) fn spis(&self, id: ConnectionId, child: usize) -> Vec<u32> {
        self.tunnel(id, child).into_iter().flat_map(|tunnel| &tunnel.sas).map(|sa| sa.spi).collect()
    }

    /// The newest SA of a tunnel.
    pub(in crate::ipsec::ike_thread) fn newest(&self, peer: PeerId) -> Option<u32> {
        let (id, child) = self.named(peer)?;
        self.tunnel(id, child)?.sas.last().map(|sa| sa.spi)
    }

    /// The name of a connection, also of a removed one whose peer must still be told.
    pub(in crate::ipsec::ike_thread) fn name(&self, id: ConnectionId) -> &str {
        let known = self.connections.get(&id).map(|connected| &connected.name);
        known.or_else(|| self.past.get(&id)).map_or("of the past", String::as_str)
    }

    pub(in crate::ipsec::ike_thread) fn child_name(&self, id: ConnectionId, child: usize) -> String {
        match self.tunnel(id, child) {
            Some(tunnel) => child_name(self.name(id), tunnel.plan.tunnel),
            None => "a tunnel of the past".to_owned(),
        }
    }

    /// Forgets a removed connection: its peer was told.
    pub(in crate::ipsec::ike_thread) fn let_past_go(&mut self, id: ConnectionId) {
        self.past.remove(&id);
    }

    /// Whether the newest SA of a tunnel replaces another one of the same session.
    pub(in crate::ipsec::ike_thread) fn is_renewed(&self, id: ConnectionId, child: usize) -> bool {
        let sas = self.tunnel(id, child).map_or(&[][..], |tunnel| &tunnel.sas);
        sas.split_last().is_some_and(|(newest, older)| older.iter().any(|sa| sa.session == newest.session))
    }
}
