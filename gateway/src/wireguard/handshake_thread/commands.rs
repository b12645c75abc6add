//! What control wants done.

use super::{Command, Entry, HandshakeThread, REBIND};
use crate::datapath::DataPathEvent;
use crate::datapath::protocol::PeerState;
use crate::datapath::tables::Peer;
use crate::wireguard::update::{AllowedIpUpdate, Found, PeerUpdate, Update, UpdateError};
use crypto::PublicKey;
use packet::Endpoint;
use port::Transmit;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tunnel::Now;
use tunnel::wireguard::PeerId;
use tunnel::wireguard::device::Outbox;

impl<T: Transmit> HandshakeThread<T> {
    pub(super) fn command(&mut self, command: Command) {
        // An answer that cannot be delivered is dropped: the caller has given up.
        match command {
            Command::Update(update, reply) => _ = reply.send(self.update(update)),
            Command::Snapshot(reply) => _ = reply.send(self.snapshot()),
            Command::Lost(peers, reply) => {
                _ = reply.send(peers.iter().map(|peer| self.is_lost(peer)).collect());
            }
            Command::Link { up, mtu } => self.link(up, mtu),
            Command::Stop => {}
        }
    }

    fn link(&mut self, up: bool, mtu: usize) {
        self.shared.tables.mtu.store(mtu, Ordering::Relaxed);
        if up == self.running {
            return;
        }
        self.running = up;
        if up {
            self.start(self.shared.clock.now());
        } else {
            let mut out = Outbox::new();
            self.device.stop(&mut out);
            self.carry_out(out, None);
            self.binding.close();
            self.rebind = None;
        }
    }

    pub(super) fn start(&mut self, now: Now) {
        match self.binding.open() {
            Ok(()) => {
                self.rebind = None;
                self.device.start(now.monotonic);
                // Packets that came before the interface was known to be up have asked for a key already, in vain.
                let waiting = self.peers.iter().filter(|(_, entry)| entry.peer.staging.is_occupied());
                for id in waiting.map(|(&id, _)| id).collect::<Vec<_>>() {
                    self.datapath_event(DataPathEvent::NoKey(id));
                }
            }
            Err(error) => {
                tracing::error!("{error}");
                self.rebind = Some(now.monotonic + REBIND);
            }
        }
    }

    /// Applies the whole update, or nothing of it if a socket cannot be opened.
    fn update(&mut self, update: Update) -> Result<(), UpdateError> {
        let mark = self.binding.fwmark();
        self.binding.set_fwmark(update.fwmark.unwrap_or(mark))?;
        if let Some(port) = update.listen_port {
            self.binding.set_port(port).inspect_err(|_| _ = self.binding.set_fwmark(mark))?;
        }
        if update.fwmark.is_some() || update.listen_port.is_some() {
            self.forget_sources();
        }
        let (mut out, mut gone) = (Outbox::new(), Vec::new());
        if let Some(names) = update.names {
            self.names = names;
            for (public, name) in &self.names {
                if let Some(peer) = self.device.peer(public).and_then(|id| self.peer(id)) {
                    peer.set_name(name);
                }
            }
        }
        if let Some(eager) = update.eager {
            self.device.set_eager(self.shared.clock.monotonic(), eager);
        }
        if let Some(key) = update.private_key {
            let key = Some(key).filter(|key| !key.is_zero());
            let ourselves = self.device.set_private_key(self.shared.clock.monotonic(), key, &mut out);
            if ourselves.is_some() {
                self.say_own_key();
            }
            gone.extend(ourselves);
        }
        if update.replace_peers {
            for id in self.device.peers() {
                self.device.remove_peer(id, &mut out);
                gone.push(id);
            }
        }
        // Keys are taken from peers that are still known.
        self.carry_out(out, None);
        for id in gone {
            self.forget(id);
        }
        for peer in update.peers {
            self.update_peer(peer);
        }
        if std::mem::take(&mut self.rerouted) {
            self.publish();
        }
        Ok(())
    }

    fn update_peer(&mut self, update: PeerUpdate) {
        // The interface itself is not added as a peer, as in the kernel.
        if self.device.private_key().is_some_and(|key| key.public() == update.public) {
            if !update.remove {
                self.say_own_key();
            }
            return;
        }
        let mut out = Outbox::new();
        let known = self.device.peer(&update.public);
        if update.remove {
            if let Some(id) = known {
                self.device.remove_peer(id, &mut out);
                self.carry_out(out, None);
                self.forget(id);
            }
            return;
        }
        let id = match known {
            Some(id) => id,
            None if update.update_only => return,
            None => self.add_peer(update.public),
        };
        if let Some(preshared) = update.preshared {
            self.device.set_preshared_key(id, preshared);
        }
        if let Some(remote) = update.endpoint {
            self.peers[&id].peer.endpoint.store(Some(Endpoint::new(remote)));
            self.device.set_reachable(self.shared.clock.monotonic(), id);
        }
        if let Some(addresses) = update.addresses.or_else(|| update.endpoint.map(|remote| vec![remote])) {
            self.device.set_addresses(self.shared.clock.monotonic(), id, addresses, &mut out);
        }
        if let Some(found) = update.found {
            self.found(id, &found, &mut out);
        }
        self.update_allowed_ips(id, update.replace_allowed_ips, &update.allowed_ips);
        if let Some(seconds) = update.persistent_keepalive {
            let every = (seconds != 0).then(|| Duration::from_secs(seconds.into()));
            self.device.set_persistent_keepalive(self.shared.clock.monotonic(), id, every, &mut out);
        }
        self.carry_out(out, None);
    }

    fn is_lost(&self, peer: &PublicKey) -> bool {
        let now = self.shared.clock.monotonic();
        self.running && self.device.peer(peer).is_some_and(|id| self.device.is_lost(now, id))
    }

    /// Takes what the name of a peer has been found to be. The answer of a resolver may be late: a peer that has answered stays.
    fn found(&mut self, id: PeerId, found: &Found, out: &mut Outbox) {
        let now = self.shared.clock.monotonic();
        if found.is_moved || self.device.is_lost(now, id) {
            let endpoint = self.peers[&id].peer.endpoint.load().map(|endpoint| endpoint.remote);
            self.device.set_found(now, id, endpoint, (&found.addresses, &found.others), out);
        }
    }

    fn say_own_key(&self) {
        let (name, own) = (&self.name, self.device.private_key().map(crypto::PrivateKey::public));
        let own = own.map(|key| key.to_string()).unwrap_or_default();
        tracing::warn!(
            "interface {name}: there is no peer {own}: that is the public key of the interface itself\n  \
             fix: wg set {name} peer KEY ..., with the public key of the other side, which wg show says there"
        );
    }

    fn add_peer(&mut self, public: PublicKey) -> PeerId {
        self.callers.forget(&public);
        let (id, activity) = self.device.add_peer(public);
        let name = self.names.get(&public).cloned().unwrap_or_else(|| public.to_string());
        let peer = Peer::new(id, PeerState::WireGuard(activity), self.budget.clone());
        let peer = Arc::new(peer.with_name(&name));
        self.peers.insert(id, Entry { peer, refusal: None, allowed: BTreeSet::new() });
        id
    }

    fn update_allowed_ips(&mut self, id: PeerId, replace: bool, changes: &[AllowedIpUpdate]) {
        self.rerouted |= replace || !changes.is_empty();
        if replace {
            for prefix in std::mem::take(&mut self.entry(id).allowed) {
                self.routes.remove(prefix);
            }
        }
        for change in changes {
            let prefix = change.prefix.trunc();
            if !change.remove {
                let before = self.routes.insert(prefix, id).filter(|&before| before != id);
                before.map(|before| self.entry(before).allowed.remove(&prefix));
                self.entry(id).allowed.insert(prefix);
            } else if self.entry(id).allowed.remove(&prefix) {
                self.routes.remove(prefix);
            }
        }
    }

    fn entry(&mut self, id: PeerId) -> &mut Entry {
        self.peers.get_mut(&id).expect("every peer of the device has its entry")
    }

    /// Removes the data path's part of a peer that the device has removed.
    fn forget(&mut self, id: PeerId) {
        let Some(entry) = self.peers.remove(&id) else { return };
        for prefix in entry.allowed {
            self.routes.remove(prefix);
        }
        self.rerouted = true;
    }

    /// Lets the kernel select the local addresses again: another mark or another port can mean another route.
    fn forget_sources(&self) {
        for entry in self.peers.values() {
            entry.peer.forget_source();
        }
    }

    /// Replaces the route table of the workers in one step.
    fn publish(&self) {
        let routes = self.routes.map(|id| Arc::clone(&self.peers[id].peer));
        self.shared.tables.routes.store(Arc::new(routes));
    }
}
