//! Instances of profiles: the peers that one configured peer serves at once, each with tunnels of its own.

use super::Children;
use tunnel::ikev2::{ConnectionId, Identity};

impl Children {
    /// Adds the instance of a peer with this identity, whose name is that of its profile and the identity.
    pub(in crate::ipsec::ike_thread) fn add_instance(
        &mut self,
        profile: ConnectionId,
        instance: ConnectionId,
        identity: &Identity,
    ) {
        let Some(of) = self.connections.get_mut(&profile) else { return };
        // What went wrong before concerned no connected peer.
        (of.failure, of.told) = (None, None);
        let name = format!("{}/{identity}", of.name);
        let plans = of.tunnels.iter().map(|tunnel| tunnel.plan.clone()).collect();
        let (settings, names) = (of.settings.clone(), of.names.clone());
        self.instances.insert(name.clone(), instance);
        self.insert((instance, Some(profile)), name, settings, names, plans);
    }

    /// Removes an instance whose sessions have ended.
    pub(in crate::ipsec::ike_thread) fn remove_instance(&mut self, instance: ConnectionId) {
        self.remove(instance);
    }

    /// A connection and its instances.
    pub(in crate::ipsec::ike_thread) fn with_instances(&self, id: ConnectionId) -> Vec<ConnectionId> {
        let connections = self.connections.iter();
        let instances = connections.filter(|(_, it)| it.profile == Some(id)).map(|(instance, _)| *instance);
        std::iter::once(id).chain(instances).collect()
    }
}
